"""Future logs: copies of partitions in another directory, which take the place of the current ones once they have all records.

Duty: hold them by name and home, as `<topic>-<partition>.<uuid>-future` on the disk (KIP-113). Must not know: who copies, when,
or what the metadata says of directories. The manager joins them with the current logs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkacompat.log.directory import (
    DELETE_SUFFIX,
    FUTURE_SUFFIX,
    STRAY_SUFFIX,
    marked_name,
    partition_directory,
)

if TYPE_CHECKING:
    from kafkacompat.ids import TopicPartition
    from kafkacompat.log.deletion import DeletionQueue
    from kafkacompat.log.directory import LogDirectory
    from kafkacompat.log.log import PartitionLog
    from kafkacompat.log.opening import LogOpener
    from kafkacompat.ports import Disk


class FutureLogs:
    """At most one a partition."""

    __slots__ = ("_disk", "_doomed", "_home", "_opener", "logs")

    def __init__(self, disk: Disk, opener: LogOpener, doomed: DeletionQueue) -> None:
        self._disk = disk
        self._opener = opener
        self._doomed = doomed
        self.logs: dict[TopicPartition, PartitionLog] = {}
        self._home: dict[TopicPartition, LogDirectory] = {}

    def begin(self, current: PartitionLog, directory: LogDirectory) -> PartitionLog:
        """An empty one beside a current log. OSError."""
        name = current.topic_partition
        path = f"{directory.path}/{marked_name(name, FUTURE_SUFFIX)}"
        log = self._opener.open_log(path, name, current.topic_id, current.config, clean=True)
        self.adopt(log, directory)
        return log

    def promote(self, name: TopicPartition) -> PartitionLog:
        """It takes the name that a current log has. OSError: nothing has changed."""
        log, home = self.logs[name], self._home[name]
        path = f"{home.path}/{partition_directory(name)}"
        before = log.directory
        self._disk.rename(before, path)
        log.relocate(path)
        self._doomed.follow(before, path)
        self.forget(name)
        return log

    def adopt(self, log: PartitionLog, directory: LogDirectory) -> None:
        """There is no other of its partition."""
        name = log.topic_partition
        self.logs[name] = log
        self._home[name] = directory

    def home(self, name: TopicPartition) -> LogDirectory | None:
        return self._home.get(name)

    def within(self, directory: LogDirectory) -> dict[TopicPartition, PartitionLog]:
        """Those in a directory; a copy."""
        return {name: log for name, log in self.logs.items() if self._home[name] is directory}

    def forget(self, name: TopicPartition) -> PartitionLog | None:
        """Out of the books; files and names stay."""
        self._home.pop(name, None)
        return self.logs.pop(name, None)

    def set_aside(self, name: TopicPartition) -> None:
        """The metadata knows nothing of it here: its directory is a stray from now on."""
        directory, log = self._home[name], self.logs[name]
        self.forget(name)
        log.release()
        self._disk.rename(log.directory, f"{directory.path}/{marked_name(name, STRAY_SUFFIX)}")

    def discard(self, name: TopicPartition) -> None:
        """It is not wanted any more: renamed now, removed after file.delete.delay.ms."""
        directory = self._home.get(name)
        log = self.forget(name)
        if log is None or directory is None:
            return
        log.release()
        target = f"{directory.path}/{marked_name(name, DELETE_SUFFIX)}"
        self._disk.rename(log.directory, target)
        self._doomed.add_directory(target, log.config.file_delete_delay_ms)
