"""The checkpoints of the log directories, and when their entries become invalid.

Each checkpoint is written when one of its offsets has changed. Until then its offset for a deleted or truncated log
may be too high. After a crash, a new log with the same name would be opened with that offset. So no log of that name
is created before the checkpoints are written, and callers that depend on a truncated log wait until then
(`when_true`). An offset that is too low does no harm.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Protocol

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
    from kafkacompat.log.unified_log import UnifiedLog
    from kafkacompat.ports import Log

OFFSETS: Mapping[str, Callable[[UnifiedLog], int]] = {
    HIGH_WATERMARK_FILE: lambda log: log.high_watermark,
    RECOVERY_POINT_FILE: lambda log: log.recovery_point,
    LOG_START_FILE: lambda log: log.log_start_offset,
    CLEANER_FILE: lambda log: log.cleaned_to,
}
FILES = tuple(OFFSETS)


def offsets_of(file: str, logs: Mapping[TopicPartition, UnifiedLog]) -> dict[TopicPartition, int]:
    """The offsets that a checkpoint file must contain for these logs."""
    offset_of = OFFSETS[file]
    if file == LOG_START_FILE:
        # Kafka lists only partitions whose log start is above the base offset of their first segment.
        return {
            name: log.log_start_offset
            for name, log in logs.items()
            if log.log_start_offset > log.segments[0].base_offset
        }
    if file == CLEANER_FILE:
        return {name: log.cleaned_to for name, log in logs.items() if log.cleaned_to >= 0}
    return {name: offset_of(log) for name, log in logs.items()}


class Homes(Protocol):
    """The logs of a node and their directories."""

    directories: list[LogDirectory]
    on_stale: Callable[[], None]
    """Called when a caller waits until the checkpoints are written."""

    def every_log_in(self, directory: LogDirectory) -> dict[TopicPartition, UnifiedLog]: ...

    def log_in(self, directory: LogDirectory, name: TopicPartition) -> UnifiedLog | None: ...

    def refused_in(self, directory: LogDirectory) -> list[TopicPartition]: ...

    def directory_failed(self, directory: LogDirectory, error: OSError) -> None: ...


class CheckpointPlan:
    """Checkpoint files to write, with the logs' offsets at the time the plan is made."""

    __slots__ = ("_checkpoints", "_failures", "_homes", "_writes", "_written")

    def __init__(
        self,
        homes: Homes,
        checkpoints: Checkpoints,
        writes: Iterable[tuple[LogDirectory, str, Mapping[TopicPartition, int]]],
    ) -> None:
        self._homes = homes
        self._checkpoints = checkpoints
        self._writes = [
            (directory, file, offsets, directory.begin_write(file, offsets))
            for directory, file, offsets in writes
        ]
        self._written: list[tuple[LogDirectory, str, int]] = []
        self._failures: list[tuple[LogDirectory, str, int, OSError]] = []

    def run(self) -> None:
        """Write the files. Blocks; for a worker thread."""
        for directory, file, offsets, turn in self._writes:
            try:
                directory.write(file, offsets, turn)
            except OSError as error:
                self._failures.append((directory, file, turn, error))
            else:
                self._written.append((directory, file, turn))

    def finish(self) -> None:
        """Take over the results, after `run`, in the loop's thread."""
        for directory, file, turn in self._written:
            directory.finish_write(file, turn)
        for directory, file, turn, error in self._failures:
            directory.fail_write(file, turn)
            self._homes.directory_failed(directory, error)
        self._checkpoints.look()


class Checkpoints:
    """The checkpoints of all log directories. Used in the loop's thread only."""

    __slots__ = ("_homes", "_waiting")

    def __init__(self, homes: Homes) -> None:
        self._homes = homes
        self._waiting: list[tuple[Log, Deferred[None]]] = []
        """Waiting callers: at most a few per log, for its follower and its other roles."""

    def plan(self, *files: str) -> CheckpointPlan | None:
        """Plan every file of every directory in which an offset has changed. None if nothing has changed."""
        writes = []
        for directory in self._homes.directories:
            if directory.online:
                for file in files:
                    offsets = self.true_of(directory, file)
                    if not directory.holds(file, offsets):
                        writes.append((directory, file, offsets))
        return CheckpointPlan(self._homes, self, writes) if writes else None

    def true_of(self, directory: LogDirectory, file: str) -> dict[TopicPartition, int]:
        """The correct contents of a checkpoint. Logs that could not be opened keep their earlier entries."""
        offsets = offsets_of(file, self._homes.every_log_in(directory))
        for name in self._homes.refused_in(directory):
            said = directory.said_of(file, name)
            if said >= 0:
                offsets.setdefault(name, said)
        return offsets

    def are_stale(self, name: TopicPartition) -> bool:
        """Whether a checkpoint has a higher offset for this name than its current log, or an offset without a log."""
        return any(
            directory.online and self._overstate(directory, name) for directory in self._homes.directories
        )

    def _overstate(self, directory: LogDirectory, name: TopicPartition) -> bool:
        log = self._homes.log_in(directory, name)
        if log is None and name in self._homes.refused_in(directory):
            return False
        for file, offset_of in OFFSETS.items():
            said = directory.said_of(file, name)
            # An offset of 0 is correct for every log.
            if said > 0 and (log is None or said > offset_of(log)):
                return True
        return False

    def without(self, names: Iterable[TopicPartition]) -> CheckpointPlan | None:
        """The checkpoints to write before logs of these names may be created. None if they may be created now."""
        if not any(self.are_stale(name) for name in names):
            return None
        return self.plan(*FILES)

    def after_load(self) -> CheckpointPlan | None:
        """The checkpoints to write first after loading: those with entries for missing logs, or with offsets above
        what the logs have."""
        stale = {
            file
            for directory in self._homes.directories
            if directory.online
            for file in FILES
            for name in directory.names_in(file)
            if self._overstate(directory, name)
        }
        return self.plan(*sorted(stale)) if stale else None

    def when_true(self, log: Log) -> Deferred[None]:
        """Resolve when no checkpoint has an offset that is too high for this log, or when the log is gone. For logs
        that were truncated."""
        done: Deferred[None] = Deferred()
        if self._is_overstated(log):
            self._waiting.append((log, done))
            self._homes.on_stale()
        else:
            done.resolve(None)
        return done

    def _is_overstated(self, log: Log) -> bool:
        """Check only the log's own directory. The checkpoints of other directories matter only when a log is created
        there. Such a directory may also be full, and full directories are a reason to move partitions away."""
        name = log.topic_partition
        return any(
            directory.online
            and self._homes.log_in(directory, name) is log
            and self._overstate(directory, name)
            for directory in self._homes.directories
        )

    @property
    def are_awaited(self) -> bool:
        """Whether a caller waits for checkpoints to be written. The disk may have refused the last write."""
        return bool(self._waiting)

    def look(self) -> None:
        """Resolve the waiting callers whose logs are now correct. Called when checkpoints were written or a directory
        has failed."""
        waiting, self._waiting = self._waiting, []
        for log, done in waiting:
            if self._is_overstated(log):
                self._waiting.append((log, done))
            else:
                done.resolve(None)
