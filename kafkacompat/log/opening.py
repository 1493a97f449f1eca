"""Opens or creates one partition's log in a directory, for current and future logs alike.

It handles the log's files and the topic id beside them. All functions block on the disk and touch nothing shared, so a
load may run them in any thread.
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
from kafkacompat.log.log_segment import LOG_SUFFIX
from kafkacompat.log.recovery import open_directory, trust_syncs_again
from kafkacompat.log.unified_log import UnifiedLog

if TYPE_CHECKING:
    from kafkacompat.config import LogConfig
    from kafkacompat.log.index_cache import IndexCache
    from kafkacompat.log.log_segment import LogSegment
    from kafkacompat.log.segment_list import DeleteLater
    from kafkacompat.meters import Histogram
    from kafkacompat.ports import Clock, Disk


FIRST_LOG = f"{0:020d}{LOG_SUFFIX}"


class TopicUnknown(Exception):
    """A log's directory does not contain the topic id."""

    def __init__(self, reason: str, *, is_empty: bool) -> None:
        """`is_empty`: no record was ever written to the log."""
        super().__init__(reason)
        self.is_empty = is_empty


class LogOpener:
    """Opens all logs of a node."""

    __slots__ = (
        "_cache",
        "_clock",
        "_delete_later",
        "_disk",
        "_flush_times_ms",
        "_mend_later",
        "_note",
        "_producer_ids_max",
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
        mend_later: Callable[[UnifiedLog, LogSegment], None],
        rolled: Callable[[UnifiedLog], None],
        flush_times_ms: Histogram,
        producer_ids_max: int,
    ) -> None:
        """`delete_later` takes files that logs no longer need, `mend_later` segments with damaged indexes. `cache` is
        the index cache of all logs. `rolled` is called with a log that has closed a segment."""
        self._flush_times_ms = flush_times_ms
        self._producer_ids_max = producer_ids_max
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
    ) -> UnifiedLog:
        """Open an existing log if `topic_id` is None; otherwise create one. Raises TopicUnknown if an existing log has
        no topic id."""
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
            # After a failed sync the id and the directory's name may be in the page cache only. A later sync would not
            # report that, so they are written again.
            self._disk.write_atomic(metadata, format_partition_metadata(topic_id))
            self._disk.sync_directory(posixpath.dirname(path))
            trust_syncs_again(self._disk, path)
        elif is_new and not self._disk.exists(metadata):
            self._disk.write_atomic(metadata, format_partition_metadata(topic_id), sync=False)
        log = UnifiedLog(
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
        log.syncs.times_ms = self._flush_times_ms
        log.producer_state.ids_max = self._producer_ids_max
        # The process that created the log may have been killed before the first sync. A recovery point above 0 shows
        # that a sync succeeded.
        log.is_anchored = not is_new and not has_lost and (clean or recovery_point > 0)
        return log

    def _id_of(self, path: str) -> Uuid:
        """Read the topic id. Without it the name alone does not identify the topic, because an earlier topic of the
        same name may have been deleted."""
        metadata = f"{path}/{PARTITION_METADATA_FILE}"
        reason = "there is no partition.metadata"
        if self._disk.exists(metadata):
            try:
                return parse_partition_metadata(self._disk.read_bytes(metadata))
            except CheckpointCorrupt as error:
                reason = str(error)
        raise TopicUnknown(reason, is_empty=self._is_empty(path))

    def _is_empty(self, path: str) -> bool:
        """Whether the directory has at most the empty first files of a log."""
        logs = [name for name in self._disk.list_directory(path) if name.endswith(LOG_SUFFIX)]
        return not any(name != FIRST_LOG or self._disk.file_size(f"{path}/{name}") for name in logs)
