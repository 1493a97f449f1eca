"""How one partition's log is opened or made in a directory: the same for current logs and future ones.

Duty: its files, and the topic's id beside them. Must not know: which logs there are. Everything here blocks on the disk and touches
nothing shared, so a load may run it in any thread.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable
from typing import TYPE_CHECKING

from kafkacompat.ids import TopicPartition, Uuid
from kafkacompat.log.checkpoint import (
    PARTITION_METADATA_FILE,
    SYNC_FAILED_FILE,
    CheckpointCorrupt,
    format_partition_metadata,
    parse_partition_metadata,
)
from kafkacompat.log.log import PartitionLog
from kafkacompat.log.recovery import open_directory, trust_syncs_again
from kafkacompat.log.segment_batches import LOG_SUFFIX

if TYPE_CHECKING:
    from kafkacompat.config import LogConfig
    from kafkacompat.log.index_cache import IndexCache
    from kafkacompat.log.segment import Segment
    from kafkacompat.log.segment_list import DeleteLater
    from kafkacompat.ports import Clock, Disk


FIRST_LOG = f"{0:020d}{LOG_SUFFIX}"


class TopicUnknown(Exception):
    """A log is found that does not tell its topic's id."""

    def __init__(self, reason: str, *, is_empty: bool) -> None:
        """`is_empty`: no record was ever written to it."""
        super().__init__(reason)
        self.is_empty = is_empty


class LogOpener:
    """One for all logs of a node."""

    __slots__ = (
        "_cache",
        "_clock",
        "_delete_later",
        "_disk",
        "_mend_later",
        "_note",
        "_randrange",
        "_rolled",
    )

    def __init__(
        self,
        disk: Disk,
        clock: Clock,
        delete_later: DeleteLater,
        randrange: Callable[[int], int] | None,
        note: Callable[[str], None],
        cache: IndexCache,
        mend_later: Callable[[PartitionLog, Segment], None],
        rolled: Callable[[PartitionLog], None],
    ) -> None:
        """`delete_later` takes the files that logs have no use for any more, `mend_later` segments whose indexes are damaged;
        `cache` is for the indexes of all logs. `rolled` is told of logs that have closed a segment."""
        self._cache = cache
        self._mend_later = mend_later
        self._rolled = rolled
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
    ) -> PartitionLog:
        """With topic_id None it is found and tells its own, or TopicUnknown; else it is new."""
        is_new = topic_id is not None
        has_lost = False
        if topic_id is None:
            topic_id = self._id_of(path)
            has_lost = self._disk.exists(f"{path}/{SYNC_FAILED_FILE}")
        parts = open_directory(
            self._disk,
            path,
            config,
            self._clock.now_ms(),
            clean=clean,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            note=self._note,
            cache=self._cache,
        )
        metadata = f"{path}/{PARTITION_METADATA_FILE}"
        if has_lost:
            # The id, and the log's own name, may be in the page cache alone, and no later sync of them would say so.
            self._disk.write_atomic(metadata, format_partition_metadata(topic_id))
            self._disk.sync_directory(posixpath.dirname(path))
            trust_syncs_again(self._disk, path)
        elif is_new and not self._disk.exists(metadata):
            self._disk.write_atomic(metadata, format_partition_metadata(topic_id), sync=False)
        log = PartitionLog(
            self._disk,
            path,
            name,
            topic_id,
            config,
            parts,
            high_watermark=high_watermark,
            delete_later=self._delete_later,
            mend_later=self._mend_later,
            randrange=self._randrange,
            rolled=self._rolled,
        )
        # The process that made it may have been killed before its first sync, of which the recovery point tells.
        log.is_anchored = not is_new and not has_lost and (clean or recovery_point > 0)
        return log

    def _id_of(self, path: str) -> Uuid:
        """Without one, whose records these are cannot be told by the name: a topic of this name may have been deleted."""
        metadata = f"{path}/{PARTITION_METADATA_FILE}"
        reason = "there is no partition.metadata"
        if self._disk.exists(metadata):
            try:
                return parse_partition_metadata(self._disk.read_bytes(metadata))
            except CheckpointCorrupt as error:
                reason = str(error)
        raise TopicUnknown(reason, is_empty=self._is_empty(path))

    def _is_empty(self, path: str) -> bool:
        """Whether there is nothing of a log but the beginning of its files."""
        logs = [name for name in self._disk.list_directory(path) if name.endswith(LOG_SUFFIX)]
        return not any(name != FIRST_LOG or self._disk.file_size(f"{path}/{name}") for name in logs)
