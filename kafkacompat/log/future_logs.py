"""Moves of a partition's log to another directory of this node (KIP-113): future logs, and the logs that they have replaced.

A future log is a copy of the partition in another directory. It replaces the current log when it has all records. On disk its
directory is `<topic>-<partition>.<uuid>-future`. This module does not know who copies, when, or which directories the
metadata names. The manager connects future logs with the current ones.

A replaced log keeps its name until the copy is durable. So after a power loss at least one log has everything that was
durable. If a crash leaves both logs, this module decides which one is the partition's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kafkacompat.log.directory import (
    DELETE_SUFFIX,
    FUTURE_SUFFIX,
    STRAY_SUFFIX,
    partition_directory,
)

if TYPE_CHECKING:
    from kafkacompat.ids import TopicPartition
    from kafkacompat.log.directory import DeletionQueue, LogDirectory
    from kafkacompat.log.opening import LogOpener
    from kafkacompat.log.unified_log import UnifiedLog
    from kafkacompat.ports import Disk, Log


class FutureLogs:
    """The future logs of a node, at most one per partition."""

    __slots__ = ("_deletions", "_disk", "_home", "_opener", "logs")

    def __init__(self, disk: Disk, opener: LogOpener, deletions: DeletionQueue) -> None:
        self._disk = disk
        self._opener = opener
        self._deletions = deletions
        self.logs: dict[TopicPartition, UnifiedLog] = {}
        self._home: dict[TopicPartition, LogDirectory] = {}

    def begin(self, current: UnifiedLog, directory: LogDirectory) -> UnifiedLog:
        """Create an empty future log for a current log. Raises OSError."""
        name = current.topic_partition
        path = directory.marked(name, FUTURE_SUFFIX)
        log = self._opener.open_log(path, name, current.topic_id, current.config, clean=True)
        self.adopt(log, directory)
        return log

    def promote(self, name: TopicPartition) -> UnifiedLog:
        """Give the future log the partition's directory name. On OSError nothing has changed."""
        log, home = self.logs[name], self._home[name]
        path = f"{home.path}/{partition_directory(name)}"
        before = log.directory
        self._disk.rename(before, path)
        log.relocate(path)
        self._deletions.follow(before, path)
        self.forget(name)
        return log

    def adopt(self, log: UnifiedLog, directory: LogDirectory) -> None:
        """Add a future log. The partition must not have one yet."""
        name = log.topic_partition
        self.logs[name] = log
        self._home[name] = directory

    def home(self, name: TopicPartition) -> LogDirectory | None:
        return self._home.get(name)

    def within(self, directory: LogDirectory) -> dict[TopicPartition, UnifiedLog]:
        """The future logs in a directory, as a new dict."""
        return {name: log for name, log in self.logs.items() if self._home[name] is directory}

    def forget(self, name: TopicPartition) -> UnifiedLog | None:
        """Remove a future log from this registry only. Its files and names stay."""
        self._home.pop(name, None)
        return self.logs.pop(name, None)

    def set_aside(self, name: TopicPartition) -> None:
        """Rename the log's directory to `-stray`, because the metadata has no such replica here."""
        directory, log = self._home[name], self.logs[name]
        self.forget(name)
        log.release()
        self._disk.rename(log.directory, directory.marked(name, STRAY_SUFFIX))

    def discard(self, name: TopicPartition) -> None:
        """Delete a future log that is no longer needed: rename it now, remove its files after file.delete.delay.ms."""
        directory = self._home.get(name)
        log = self.forget(name)
        if log is None or directory is None:
            return
        log.release()
        target = directory.marked(name, DELETE_SUFFIX)
        self._disk.rename(log.directory, target)
        self._deletions.add_directory(target, log.config.file_delete_delay_ms)


class Predecessors:
    """The replaced logs of a node, at most one per partition."""

    __slots__ = ("_disk", "_items")

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._items: dict[TopicPartition, tuple[UnifiedLog, LogDirectory, UnifiedLog]] = {}
        """(replaced log, its directory, the log that has replaced it)."""

    def add(self, log: UnifiedLog, directory: LogDirectory, successor: UnifiedLog) -> None:
        self._items[log.topic_partition] = log, directory, successor

    def get(self, name: TopicPartition) -> UnifiedLog | None:
        item = self._items.get(name)
        return None if item is None else item[0]

    def home(self, name: TopicPartition) -> LogDirectory | None:
        item = self._items.get(name)
        return None if item is None else item[1]

    def successors(self) -> list[UnifiedLog]:
        return [successor for _, _, successor in self._items.values()]

    def is_before(self, log: Log) -> bool:
        """Whether the log that `log` has replaced still exists."""
        item = self._items.get(log.topic_partition)
        return item is not None and item[2] is log

    def within(self, directory: LogDirectory) -> dict[TopicPartition, UnifiedLog]:
        return {name: log for name, (log, home, _) in self._items.items() if home is directory}

    def forget(self, name: TopicPartition) -> None:
        """Remove a log from this registry only. Its files and name stay."""
        self._items.pop(name, None)

    def rename(self, name: TopicPartition) -> str:
        """Mark the log's directory for deletion and return its new path. On OSError nothing has changed."""
        log, directory, _ = self._items[name]
        target = directory.marked(name, DELETE_SUFFIX)
        self._disk.rename(log.directory, target)
        del self._items[name]
        return target


class Retirement:
    """The work after the rename: sync the directory, so that the old name does not come back, and remove the files
    later."""

    __slots__ = ("_delay_ms", "_deletions", "_directory", "_disk", "_failed", "_failure", "_path")

    def __init__(
        self,
        disk: Disk,
        directory: LogDirectory,
        path: str,
        delay_ms: int,
        deletions: DeletionQueue,
        failed: Callable[[LogDirectory, OSError], None],
    ) -> None:
        """`failed` is called with a directory whose sync fails."""
        self._deletions = deletions
        self._failed = failed
        self._disk = disk
        self._directory = directory
        self._path = path
        self._delay_ms = delay_ms
        self._failure: OSError | None = None

    def run(self) -> None:
        """Sync the directory. Blocks; for a worker thread."""
        try:
            self._disk.sync_directory(self._directory.path)
        except OSError as error:
            self._failure = error

    def finish(self) -> None:
        if self._failure is not None:
            self._failed(self._directory, self._failure)
        else:
            self._deletions.add_directory(self._path, self._delay_ms)


def suffix_of_second(log: UnifiedLog, taken: UnifiedLog) -> str:
    """The suffix for the second of two logs of a partition. It is deleted if the chosen log has all its records,
    judged by the epochs of both, as between follower and leader. Otherwise it is kept as a stray."""
    epoch = log.latest_epoch()
    known = taken.end_offset_for_epoch(epoch)
    is_empty = log.log_end_offset == log.log_start_offset
    return (
        DELETE_SUFFIX
        if is_empty or (known.epoch == epoch and known.offset >= log.log_end_offset)
        else STRAY_SUFFIX
    )


def age_of(log: UnifiedLog) -> tuple[int, int, int]:
    """A sort key: of two logs of a partition the one with the greater key is further ahead. A copy begins at the start
    of its source, or later."""
    return log.latest_epoch(), log.log_end_offset, log.log_start_offset
