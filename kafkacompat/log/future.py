"""Future logs: copies of partitions in another directory, which replace the current logs when they have all records.

They are kept by partition and directory. On disk the directory is `<topic>-<partition>.<uuid>-future` (KIP-113). This
module does not know who copies, when, or which directories the metadata names. The manager connects future logs with
the current ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkacompat.log.directory import (
    DELETE_SUFFIX,
    FUTURE_SUFFIX,
    STRAY_SUFFIX,
    partition_directory,
)

if TYPE_CHECKING:
    from kafkacompat.ids import TopicPartition
    from kafkacompat.log.deletion import DeletionQueue
    from kafkacompat.log.directory import LogDirectory
    from kafkacompat.log.opening import LogOpener
    from kafkacompat.log.unified_log import UnifiedLog
    from kafkacompat.ports import Disk


class FutureLogs:
    """The future logs of a node, at most one per partition."""

    __slots__ = ("_disk", "_doomed", "_home", "_opener", "logs")

    def __init__(self, disk: Disk, opener: LogOpener, doomed: DeletionQueue) -> None:
        self._disk = disk
        self._opener = opener
        self._doomed = doomed
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
        self._doomed.follow(before, path)
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
        self._doomed.add_directory(target, log.config.file_delete_delay_ms)
