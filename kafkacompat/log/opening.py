"""How one partition's log is opened or made in a directory: the same for current logs and future ones.

Duty: its files, and the topic's id beside them. Must not know: which logs there are. Everything here blocks on the disk and touches
nothing shared, so a load may run it in any thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kafkacompat.ids import ZERO_UUID, TopicPartition, Uuid
from kafkacompat.log.checkpoint import (
    PARTITION_METADATA_FILE,
    CheckpointCorrupt,
    format_partition_metadata,
    parse_partition_metadata,
)
from kafkacompat.log.log import PartitionLog
from kafkacompat.log.recovery import open_directory

if TYPE_CHECKING:
    from kafkacompat.config import LogConfig
    from kafkacompat.log.segment_list import DeleteLater
    from kafkacompat.ports import Clock, Disk


class LogOpener:
    """One for all logs of a node."""

    __slots__ = ("_clock", "_delete_later", "_disk", "_note", "_randrange")

    def __init__(
        self,
        disk: Disk,
        clock: Clock,
        delete_later: DeleteLater,
        randrange: Callable[[int], int] | None,
        note: Callable[[str], None],
    ) -> None:
        """`delete_later` takes the files that logs have no use for any more."""
        self._disk = disk
        self._clock = clock
        self._delete_later = delete_later
        self._randrange = randrange
        self._note = note

    def open_log(
        self,
        path: str,
        name: TopicPartition,
        topic_id: Uuid | None,
        config: LogConfig,
        *,
        clean: bool,
        recovery_point: int = 0,
        log_start_offset: int = 0,
        high_watermark: int = 0,
        moves: bool = False,
    ) -> PartitionLog:
        """With topic_id None it is read from the directory. One that `moves` will get another path: what it drops goes at once."""
        metadata = f"{path}/{PARTITION_METADATA_FILE}"
        parts = open_directory(
            self._disk,
            path,
            config,
            self._clock.now_ms(),
            clean=clean,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            note=self._note,
        )
        if topic_id is None:
            topic_id = ZERO_UUID
            if self._disk.exists(metadata):
                try:
                    topic_id = parse_partition_metadata(self._disk.read_bytes(metadata))
                except CheckpointCorrupt as error:
                    if clean:
                        raise
                    # A crash can leave it empty; the metadata log knows the id and `claim` writes it again.
                    self._note(f"{metadata}: {error}; the topic's id is taken from the metadata log")
                    # Nobody may ask for this log before the next clean stop, after which it would be an error.
                    self._disk.remove(metadata)
        elif not self._disk.exists(metadata):
            self._disk.write_atomic(metadata, format_partition_metadata(topic_id), sync=False)
        return PartitionLog(
            self._disk,
            path,
            name,
            topic_id,
            config,
            parts,
            high_watermark=high_watermark,
            delete_later=None if moves else self._delete_later,
            randrange=self._randrange,
        )

    def claim(self, log: PartitionLog, topic_id: Uuid) -> bool:
        """False when the log is another topic's; one without an id gets this one."""
        if log.topic_id == ZERO_UUID:
            self._disk.write_atomic(
                f"{log.directory}/{PARTITION_METADATA_FILE}",
                format_partition_metadata(topic_id),
                sync=False,
            )
            log.topic_id = topic_id
        return log.topic_id == topic_id

    def settle(self, log: PartitionLog, path: str) -> None:
        """A future log has become the current one, and its directory has this name now."""
        log.relocate(path, self._delete_later)
