"""Creates and opens the logs of partitions, current and future ones: their files, and the topic id beside them.

The blocking work of the log manager is here, in pieces for worker threads that touch nothing shared. At a start it finds the
partitions of a directory and what is known of them before they are opened (`look_into`, LoadTask). A new partition's files
are made ahead (Preparation), because creating a file may take a millisecond.
"""

from __future__ import annotations

import errno
import posixpath
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeGuard

from kafkacompat.ids import METADATA_TOPIC, NO_EPOCH, TopicPartition, Uuid
from kafkacompat.log.checkpoint import (
    CLEANER_FILE,
    HIGH_WATERMARK_FILE,
    LOG_START_FILE,
    PARTITION_METADATA_FILE,
    RECOVERY_POINT_FILE,
    SYNC_FAILED_FILE,
    CheckpointCorrupt,
    format_partition_metadata,
    parse_partition_metadata,
)
from kafkacompat.log.directory import (
    DELETE_SUFFIX,
    FUTURE_SUFFIX,
    STRAY_SUFFIX,
    LogDirectory,
    parse_future_directory,
    parse_partition_directory,
)
from kafkacompat.log.log_loader import open_directory, trust_syncs_again
from kafkacompat.log.log_segment import LOG_SUFFIX, file_stem
from kafkacompat.log.unified_log import NEVER_TIERED, LogServices, UnifiedLog

if TYPE_CHECKING:
    from kafkacompat.config import LogConfig
    from kafkacompat.log.index_cache import IndexCache
    from kafkacompat.ports import Clock, Disk


FIRST_LOG = f"{0:020d}{LOG_SUFFIX}"
WRONG_KINDS = frozenset({errno.EISDIR, errno.ENOTDIR, errno.EEXIST, errno.ELOOP})
"""Errors from a directory in the place of a file, or the reverse."""


class Preparation:
    """ports.PreparedLog: an empty log from offset 0 on, with its topic id."""

    __slots__ = ("_disk", "directory", "made", "path", "topic_id", "topic_partition")

    def __init__(
        self, disk: Disk, directory: LogDirectory, topic_partition: TopicPartition, topic_id: Uuid
    ) -> None:
        self._disk = disk
        self.directory = directory
        self.path = directory.marked(topic_partition, DELETE_SUFFIX)
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.made = False

    def run(self) -> None:
        """Create the files. Blocks; any thread. Disk errors are ignored, because opening the log raises them again."""
        try:
            self._disk.make_directory(self.path)
            self._disk.open(file_stem(self.path, 0) + LOG_SUFFIX, create=True).close()
            self._disk.write_atomic(
                f"{self.path}/{PARTITION_METADATA_FILE}",
                format_partition_metadata(self.topic_id),
                sync=False,
            )
        except OSError:
            return
        self.made = True


class TopicUnknown(Exception):
    """A log's directory does not contain the topic id."""

    def __init__(self, reason: str, *, is_empty: bool) -> None:
        """`is_empty`: no record was ever written to the log."""
        super().__init__(reason)
        self.is_empty = is_empty


class LogOpener:
    """Opens all logs of a node."""

    __slots__ = ("_cache", "_clock", "_disk", "_note", "_services")

    def __init__(
        self,
        disk: Disk,
        clock: Clock,
        note: Callable[[str], None],
        cache: IndexCache,
        services: LogServices,
    ) -> None:
        """`cache` is the index cache of all logs."""
        self._disk = disk
        self._clock = clock
        self._note = note
        self._cache = cache
        self._services = services

    def open_log(
        self,
        path: str,
        name: TopicPartition,
        topic_id: Uuid | None,
        config: LogConfig,
        *,
        clean: bool,
        recovery_point: int = 0,
        log_start_offset: int | None = None,
        high_watermark: int = 0,
    ) -> UnifiedLog:
        """Open an existing log if `topic_id` is None; otherwise create one. Raises TopicUnknown if an existing log has
        no topic id. `log_start_offset` is None if there is no checkpoint of it. The log then begins at 0 until its settings are
        known, and a tiered one until its leader has looked into the remote storage."""
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
            log_start_offset=log_start_offset or 0,
            # Also on a node without a remote storage: it may have been started without by mistake.
            may_be_tiered=not is_new and name.topic not in NEVER_TIERED,
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
        # The process that created the log may have been killed before the first sync. A recovery point above 0 shows
        # that a sync succeeded.
        is_durable = not is_new and not has_lost and (clean or recovery_point > 0)
        return UnifiedLog(
            self._disk,
            path,
            name,
            topic_id,
            config,
            parts,
            self._services,
            high_watermark=high_watermark,
            is_durable=is_durable,
        )

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


class LoadTask:
    """Opens one partition's directory. `run` blocks, touches nothing shared, and may run in any thread."""

    __slots__ = (
        "_opener",
        "clean",
        "cleaned_to",
        "directory",
        "high_watermark",
        "is_future",
        "log_start",
        "name",
        "path",
        "recovery_point",
        "result",
    )

    def __init__(
        self,
        opener: Callable[[LoadTask], UnifiedLog],
        directory: LogDirectory,
        name: TopicPartition,
        path: str,
        *,
        is_future: bool = False,
        clean: bool,
        recovery_point: int,
        log_start: int | None,
        high_watermark: int,
        cleaned_to: int,
    ) -> None:
        self._opener = opener
        self.directory = directory
        self.name = name
        self.path = path
        self.is_future = is_future
        self.clean = clean
        self.recovery_point = recovery_point
        self.log_start = log_start
        self.high_watermark = high_watermark
        self.cleaned_to = cleaned_to
        self.result: UnifiedLog | Exception | None = None

    @property
    def has_lost(self) -> bool:
        """Whether the log now ends below the recovery point of a clean stop."""
        log = self.result
        return self.clean and isinstance(log, UnifiedLog) and log.log_end_offset < self.recovery_point

    def run(self) -> None:
        """Open the log. An error of one partition does not stop the others."""
        try:
            self.result = self._opener(self)
        except Exception as error:
            self.result = error


def is_of_the_directory(error: Exception) -> TypeGuard[OSError]:
    """Whether the error concerns the directory. False for damage in one partition, and for a file in the place of a
    directory."""
    return isinstance(error, OSError) and error.errno not in WRONG_KINDS


class Found(NamedTuple):
    """The contents of a log directory. `broker_epoch` is -1 unless the last stop was clean and recorded an epoch."""

    tasks: list[LoadTask]
    to_be_deleted: list[str]
    broker_epoch: int


def look_into(
    disk: Disk,
    directory: LogDirectory,
    opener: Callable[[LoadTask], UnifiedLog],
    note: Callable[[str], None],
) -> Found:
    """List the partitions of a directory with their checkpointed offsets. Removes the clean-shutdown mark, at last: what is
    refused before can be asked again."""
    names = disk.list_directory(directory.path)
    offsets = {}
    for name in (RECOVERY_POINT_FILE, LOG_START_FILE, HIGH_WATERMARK_FILE, CLEANER_FILE):
        offsets[name], trouble = directory.read_offsets(name)
        if trouble is not None:
            note(trouble)
    epoch = directory.take_clean_mark()
    tasks: list[LoadTask] = []
    to_be_deleted: list[str] = []
    for name in names:
        path = f"{directory.path}/{name}"
        if name.endswith(DELETE_SUFFIX):
            to_be_deleted.append(path)
        elif name.endswith(STRAY_SUFFIX):
            note(f"Found stray log dir {path}, which is left as it is")
        elif (
            partition := parse_future_directory(name) or parse_partition_directory(name)
        ) is not None and partition.topic != METADATA_TOPIC:
            tasks.append(
                LoadTask(
                    opener,
                    directory,
                    partition,
                    path,
                    is_future=name.endswith(FUTURE_SUFFIX),
                    clean=epoch is not None,
                    recovery_point=offsets[RECOVERY_POINT_FILE].get(partition, 0),
                    log_start=offsets[LOG_START_FILE].get(partition),
                    high_watermark=offsets[HIGH_WATERMARK_FILE].get(partition, 0),
                    cleaned_to=offsets[CLEANER_FILE].get(partition, -1),
                )
            )
    return Found(tasks, to_be_deleted, NO_EPOCH if epoch is None else epoch)


def agreed_epoch(epochs: Sequence[int]) -> int:
    """The broker epoch of the clean stop in every directory. -1 (unclean) if a directory has none or they differ."""
    return epochs[0] if len(set(epochs)) == 1 else NO_EPOCH
