"""Current logs whose place a copy in another directory has taken, until the copy is durable.

Duty: keep them under the name they had, so that a power loss leaves one log at least that has everything that was durable; then let
them go. Where a crash leaves both, tell which of the two is the partition's. Must not know: who copies, when something is synced.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkacompat.log.directory import DELETE_SUFFIX, STRAY_SUFFIX, marked_name

if TYPE_CHECKING:
    from kafkacompat.ids import TopicPartition
    from kafkacompat.log.directory import LogDirectory
    from kafkacompat.log.homes import LogHomes
    from kafkacompat.log.log import PartitionLog
    from kafkacompat.ports import Disk, Log


class Predecessors:
    """At most one a partition."""

    __slots__ = ("_disk", "_items")

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._items: dict[TopicPartition, tuple[PartitionLog, LogDirectory, PartitionLog]] = {}
        """With the directory of each, and the log that has taken its place."""

    def add(self, log: PartitionLog, directory: LogDirectory, successor: PartitionLog) -> None:
        self._items[log.topic_partition] = log, directory, successor

    def get(self, name: TopicPartition) -> PartitionLog | None:
        item = self._items.get(name)
        return None if item is None else item[0]

    def home(self, name: TopicPartition) -> LogDirectory | None:
        item = self._items.get(name)
        return None if item is None else item[1]

    def successors(self) -> list[PartitionLog]:
        return [successor for _, _, successor in self._items.values()]

    def is_before(self, log: Log) -> bool:
        """Whether there still is one whose place this log has taken."""
        item = self._items.get(log.topic_partition)
        return item is not None and item[2] is log

    def within(self, directory: LogDirectory) -> dict[TopicPartition, PartitionLog]:
        return {name: log for name, (log, home, _) in self._items.items() if home is directory}

    def forget(self, name: TopicPartition) -> None:
        """Out of the books; files and name stay."""
        self._items.pop(name, None)

    def rename(self, name: TopicPartition) -> str:
        """It is to be deleted from now on; what it is called then. OSError: nothing has changed."""
        log, directory, _ = self._items[name]
        target = f"{directory.path}/{marked_name(name, DELETE_SUFFIX)}"
        self._disk.rename(log.directory, target)
        del self._items[name]
        return target


class Retirement:
    """What follows when one was renamed: its new name made durable, so that it does not come again, and its removal later."""

    __slots__ = ("_delay_ms", "_directory", "_disk", "_failure", "_manager", "_path")

    def __init__(
        self, manager: LogHomes, disk: Disk, directory: LogDirectory, path: str, delay_ms: int
    ) -> None:
        self._manager = manager
        self._disk = disk
        self._directory = directory
        self._path = path
        self._delay_ms = delay_ms
        self._failure: OSError | None = None

    def run(self) -> None:
        """Blocks; for a worker thread."""
        try:
            self._disk.sync_directory(self._directory.path)
        except OSError as error:
            self._failure = error

    def finish(self) -> None:
        if self._failure is not None:
            self._manager.directory_failed(self._directory, self._failure)
        else:
            self._manager.doomed.add_directory(self._path, self._delay_ms)


def suffix_of_second(log: PartitionLog, taken: PartitionLog) -> str:
    """What becomes of one of two logs of a partition: it goes if the one that is taken has all its records, by the epochs of both,
    as a follower asks its leader. Otherwise it is kept."""
    epoch = log.latest_epoch()
    known = taken.end_offset_for_epoch(epoch)
    is_empty = log.log_end_offset == log.log_start_offset
    return (
        DELETE_SUFFIX
        if is_empty or (known.epoch == epoch and known.offset >= log.log_end_offset)
        else STRAY_SUFFIX
    )


def age_of(log: PartitionLog) -> tuple[int, int, int]:
    """Of two logs of a partition the one that is greater has come further. A copy begins where its log began then, or later."""
    return log.latest_epoch(), log.log_end_offset, log.log_start_offset
