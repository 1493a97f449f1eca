"""What the checkpoints of the log directories say of logs, and when that has become untrue.

Duty: write each checkpoint when something has moved; tell whether one still says more of a name than is true: of a log that went,
or of one that was cut back. The next log of that name would take it for its own after a crash, so none is made before the
checkpoints are written anew, and nobody relies on a log that was cut back. Too little does no harm. Must not know: threads, timers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from kafkacompat.deferred import Deferred
from kafkacompat.log.checkpoint import (
    CLEANER_FILE,
    HIGH_WATERMARK_FILE,
    LOG_START_FILE,
    RECOVERY_POINT_FILE,
)

if TYPE_CHECKING:
    from kafkacompat.ids import TopicPartition
    from kafkacompat.log.directory import LogDirectory
    from kafkacompat.log.homes import LogHomes
    from kafkacompat.log.log import PartitionLog
    from kafkacompat.ports import Log

OFFSETS: Mapping[str, Callable[[PartitionLog], int]] = {
    HIGH_WATERMARK_FILE: lambda log: log.high_watermark,
    RECOVERY_POINT_FILE: lambda log: log.recovery_point,
    LOG_START_FILE: lambda log: log.log_start_offset,
    CLEANER_FILE: lambda log: log.cleaned_to,
}
FILES = tuple(OFFSETS)


def offsets_of(file: str, logs: Mapping[TopicPartition, PartitionLog]) -> dict[TopicPartition, int]:
    """What a checkpoint is to say of these logs."""
    offset_of = OFFSETS[file]
    if file == LOG_START_FILE:
        # Kafka lists only partitions whose start lies above their first segment's base.
        return {
            name: log.log_start_offset
            for name, log in logs.items()
            if log.log_start_offset > log.segments[0].base_offset
        }
    if file == CLEANER_FILE:
        return {name: log.cleaned_to for name, log in logs.items() if log.cleaned_to >= 0}
    return {name: offset_of(log) for name, log in logs.items()}


class CheckpointPlan:
    """Checkpoint files to write, with what is true of the logs as it is made."""

    __slots__ = ("_checkpoints", "_failures", "_manager", "_writes", "_written")

    def __init__(
        self, manager: LogHomes, writes: Iterable[tuple[LogDirectory, str, Mapping[TopicPartition, int]]]
    ) -> None:
        self._manager = manager
        self._writes = [
            (directory, file, offsets, directory.begin_write(file, offsets))
            for directory, file, offsets in writes
        ]
        self._written: list[tuple[LogDirectory, str, int]] = []
        self._failures: list[tuple[LogDirectory, str, int, OSError]] = []

    def run(self) -> None:
        """Blocks; for a worker thread."""
        for directory, file, offsets, turn in self._writes:
            try:
                directory.write(file, offsets, turn)
            except OSError as error:
                self._failures.append((directory, file, turn, error))
            else:
                self._written.append((directory, file, turn))

    def finish(self) -> None:
        """After `run`, in the loop's thread."""
        for directory, file, turn in self._written:
            directory.finish_write(file, turn)
        for directory, file, turn, error in self._failures:
            directory.fail_write(file, turn)
            self._manager.directory_failed(directory, error)
        self._manager.checkpoints.look()


class Checkpoints:
    """Of all log directories. In the loop's thread."""

    __slots__ = ("_manager", "_waiting")

    def __init__(self, manager: LogHomes) -> None:
        self._manager = manager
        self._waiting: list[tuple[Log, Deferred[None]]] = []
        """A few a log: whoever follows with it, and its role."""

    def plan(self, *files: str) -> CheckpointPlan | None:
        """Of each directory the files in which something has moved; None when nothing has."""
        writes = []
        for directory in self._manager.directories:
            if directory.online:
                for file in files:
                    offsets = self.true_of(directory, file)
                    if not directory.holds(file, offsets):
                        writes.append((directory, file, offsets))
        return CheckpointPlan(self._manager, writes) if writes else None

    def true_of(self, directory: LogDirectory, file: str) -> dict[TopicPartition, int]:
        """What a checkpoint is to say: of what could not be opened, as before."""
        offsets = offsets_of(file, self._manager.every_log_in(directory))
        for name in self._manager.refused_in(directory):
            said = directory.said_of(file, name)
            if said >= 0:
                offsets.setdefault(name, said)
        return offsets

    def are_stale(self, name: TopicPartition) -> bool:
        """Whether one of them says more of this name than is true of the log that has it now, if any has."""
        return any(
            directory.online and self._overstate(directory, name) for directory in self._manager.directories
        )

    def _overstate(self, directory: LogDirectory, name: TopicPartition) -> bool:
        log = self._manager.log_in(directory, name)
        if log is None and name in self._manager.refused_in(directory):
            return False
        for file, offset_of in OFFSETS.items():
            said = directory.said_of(file, name)
            # What is said to begin at 0, or to be known up to there, is true of every log.
            if said > 0 and (log is None or said > offset_of(log)):
                return True
        return False

    def without(self, names: Iterable[TopicPartition]) -> CheckpointPlan | None:
        """What is to be written before logs of these names may be made; None when they may."""
        if not any(self.are_stale(name) for name in names):
            return None
        return self.plan(*FILES)

    def after_load(self) -> CheckpointPlan | None:
        """As the logs were found: entries of logs that are not there, or that were not believed, go before anything is written."""
        stale = {
            file
            for directory in self._manager.directories
            if directory.online
            for file in FILES
            for name in directory.names_in(file)
            if self._overstate(directory, name)
        }
        return self.plan(*sorted(stale)) if stale else None

    def when_true(self, log: Log) -> Deferred[None]:
        """There once no checkpoint says more of this log than is true, or it is gone: it was cut back."""
        done: Deferred[None] = Deferred()
        if self._is_overstated(log):
            self._waiting.append((log, done))
            self._manager.on_stale()
        else:
            done.resolve(None)
        return done

    def _is_overstated(self, log: Log) -> bool:
        """In the directory where it lies. Of what another one says there is nothing to fear while no log is made there, and it may
        be full: partitions are moved away for that."""
        name = log.topic_partition
        return any(
            directory.online
            and self._manager.log_in(directory, name) is log
            and self._overstate(directory, name)
            for directory in self._manager.directories
        )

    @property
    def are_awaited(self) -> bool:
        """Whether somebody waits until they are true, which a disk may have refused to make them."""
        return bool(self._waiting)

    def look(self) -> None:
        """Some were written, or a directory has failed."""
        waiting, self._waiting = self._waiting, []
        for log, done in waiting:
            if self._is_overstated(log):
                self._waiting.append((log, done))
            else:
                done.resolve(None)
