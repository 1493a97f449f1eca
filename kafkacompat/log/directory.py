"""One log directory (an entry of `log.dirs`): the names of partition directories, the checkpoints, the clean-shutdown mark, and
the files that are to be deleted. The storage formatting code reads and writes meta.properties.

Each checkpoint is written when one of its offsets has changed. Until then its offset for a deleted or truncated log
may be too high. After a crash, a new log with the same name would be opened with that offset. So no log of that name
is created before the checkpoints are written, and callers that depend on a truncated log wait until then
(`Checkpoints.when_true`). An offset that is too low does no harm.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from kafkacompat.deferred import Deferred
from kafkacompat.ids import TopicPartition, parse_int
from kafkacompat.log.checkpoint import (
    CLEAN_SHUTDOWN_FILE,
    CLEANER_FILE,
    HIGH_WATERMARK_FILE,
    LOG_START_FILE,
    RECOVERY_POINT_FILE,
    CheckpointCorrupt,
    format_clean_shutdown,
    format_offsets,
    parse_clean_shutdown,
    parse_offsets,
)
from kafkacompat.ports import is_full, passes

if TYPE_CHECKING:
    from kafkacompat.log.unified_log import UnifiedLog
    from kafkacompat.ports import Clock, Disk, Log

DELETE_SUFFIX, FUTURE_SUFFIX, STRAY_SUFFIX = "-delete", "-future", "-stray"
LONGEST_NAME = 255


def partition_directory(topic_partition: TopicPartition) -> str:
    return f"{topic_partition.topic}-{topic_partition.partition}"


def parse_partition_directory(name: str) -> TopicPartition | None:
    """The partition whose log has this directory name. None for other directories and for names with a suffix."""
    topic, dash, partition = name.rpartition("-")
    if not dash or not topic or not partition.isascii() or not partition.isdigit():
        return None
    try:
        return TopicPartition(topic, parse_int(partition))
    except ValueError:
        return None


def parse_future_directory(name: str) -> TopicPartition | None:
    """The partition whose future log has this directory name. None for other directories."""
    stem, dot, unique = name.removesuffix(FUTURE_SUFFIX).rpartition(".")
    if not name.endswith(FUTURE_SUFFIX) or not dot or not unique:
        return None
    return parse_partition_directory(stem)


def can_be_marked(topic_partition: TopicPartition) -> bool:
    """Whether a future log's name can hold the whole topic name. Moves of other partitions are refused (KAFKA-4893)."""
    return len(f"{topic_partition}.{'0' * 32}{FUTURE_SUFFIX}") <= LONGEST_NAME


def random_text() -> str:
    return os.urandom(16).hex()


def marked_name(topic_partition: TopicPartition, suffix: str, unique: str) -> str:
    """The directory name with the suffix of a deleted, stray or future log. `unique`: 32 digits that no other one has.
    A topic name that is too long is cut."""
    tail = f"-{topic_partition.partition}.{unique}{suffix}"
    return topic_partition.topic[: LONGEST_NAME - len(tail)] + tail


class LogDirectory:
    """One entry of `log.dirs`. Checkpoints are written as whole files, from any thread. If two threads write the same
    file, the write that began later wins."""

    __slots__ = (
        "_begun",
        "_disk",
        "_failed",
        "_lock",
        "_newest",
        "_said",
        "_turns",
        "directory_id",
        "failure",
        "has_unopened",
        "noted_ms",
        "path",
        "unique_text",
    )

    def __init__(
        self, disk: Disk, path: str, directory_id: bytes, unique_text: Callable[[], str] = random_text
    ) -> None:
        """`unique_text` returns 32 hexadecimal digits, different ones at each call of any life of the node."""
        self._disk = disk
        self.unique_text = unique_text
        self.path = path
        self.directory_id = directory_id
        self.failure: OSError | None = None
        """The error that took the directory offline. None while it is online."""
        self.has_unopened = False
        """True if a log in it could not be opened at this start. The next stop then leaves no clean-shutdown mark."""
        self.noted_ms: int | None = None
        """Monotonic time in ms of the last log line about an error that left the directory online."""
        self._said: dict[str, Mapping[TopicPartition, int]] = {}
        """The contents of each checkpoint file."""
        self._begun: dict[str, dict[int, Mapping[TopicPartition, int]]] = {}
        """Other possible contents of each file, by turn: writes in progress, and the contents of writes that failed."""
        self._failed: dict[str, int] = {}
        """For each file, the turn under which all failed writes are merged. A full disk may refuse writes for hours."""
        self._turns = 0
        self._lock = threading.Lock()
        self._newest: dict[str, int] = {}
        """For each file, the turn that was written last. Only writers use it."""

    @property
    def online(self) -> bool:
        return self.failure is None

    def marked(self, topic_partition: TopicPartition, suffix: str) -> str:
        """A new path for a deleted, stray or future log."""
        return f"{self.path}/{marked_name(topic_partition, suffix, self.unique_text())}"

    def take_clean_mark(self) -> int | None:
        """Remove the clean-shutdown mark. Returns the broker epoch of the clean stop (-1 if the mark has none), or
        None after an unclean stop."""
        path = f"{self.path}/{CLEAN_SHUTDOWN_FILE}"
        if not self._disk.exists(path):
            return None
        epoch = parse_clean_shutdown(self._disk.read_bytes(path))
        self._disk.remove(path)
        # The removal must be durable first. Otherwise a start after a power loss would treat later writes as cleanly
        # closed.
        self._disk.sync_directory(self.path)
        return epoch

    def mark_clean(self, broker_epoch: int) -> None:
        self._disk.write_atomic(f"{self.path}/{CLEAN_SHUTDOWN_FILE}", format_clean_shutdown(broker_epoch))

    def read_offsets(self, name: str) -> tuple[Mapping[TopicPartition, int], str | None]:
        """Read a checkpoint. Returns its offsets and None, or no offsets and the reason why it cannot be read."""
        path = f"{self.path}/{name}"
        if not self._disk.exists(path):
            return {}, None
        try:
            said = self._said[name] = parse_offsets(self._disk.read_bytes(path))
        except CheckpointCorrupt as error:
            return {}, f"{path}: {error}"
        return said, None

    def said_of(self, name: str, topic_partition: TopicPartition) -> int:
        """The highest offset that a start may read there for the partition. -1 if there is none."""
        most = self._said.get(name, {}).get(topic_partition, -1)
        for offsets in self._begun.get(name, {}).values():
            most = max(most, offsets.get(topic_partition, -1))
        return most

    def names_in(self, name: str) -> set[TopicPartition]:
        """The partitions with an entry in a checkpoint."""
        return set(self._said.get(name, {})).union(*self._begun.get(name, {}).values())

    def holds(self, name: str, offsets: Mapping[TopicPartition, int]) -> bool:
        """Whether the checkpoint file has these offsets and still exists. The existence check finds a failed directory
        that nothing else writes to."""
        if self._begun.get(name) or self._said.get(name) != offsets:
            return False
        try:
            return self._disk.exists(f"{self.path}/{name}")
        except OSError:
            return False  # the write tells of it

    def begin_write(self, name: str, offsets: Mapping[TopicPartition, int]) -> int:
        """Announce a checkpoint write. Returns its turn, for `write` and `finish_write`."""
        self._turns += 1
        self._begun.setdefault(name, {})[self._turns] = offsets
        return self._turns

    def write(self, name: str, offsets: Mapping[TopicPartition, int], turn: int) -> None:
        """Write and sync a checkpoint, unless a later one has been written. Blocks; any thread."""
        with self._lock:
            if turn > self._newest.get(name, 0):
                self._disk.write_atomic(f"{self.path}/{name}", format_offsets(offsets))
                self._newest[name] = turn

    def finish_write(self, name: str, turn: int) -> None:
        """Record that the write of this turn succeeded."""
        begun = self._begun[name]
        if turn in begun:
            self._said[name] = begun[turn]
            self._begun[name] = {each: offsets for each, offsets in begun.items() if each > turn}

    def fail_write(self, name: str, turn: int) -> None:
        """Record that the write of this turn failed: the disk may have this version or the one before. Until a later
        write succeeds, the highest offset of all failed versions counts."""
        begun = self._begun[name]
        before = self._failed.get(name, turn)
        if turn not in begun:
            return
        if before != turn and before in begun:
            offsets, most = begun.pop(turn), begun.pop(before)
            if offsets != most:
                most = dict(most)
                for each, offset in offsets.items():
                    if offset > most.get(each, -1):
                        most[each] = offset
            turn = max(turn, before)
            begun[turn] = most
        self._failed[name] = turn

    def write_now(self, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Run all three steps of a write. Blocks."""
        turn = self.begin_write(name, offsets)
        self.write(name, offsets, turn)
        self.finish_write(name, turn)


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
        # Kafka lists only partitions whose log start is above the base offset of their first segment, and tiered ones. A
        # tiered log whose settings are not known yet begins below its first segment.
        return {
            name: log.log_start_offset
            for name, log in logs.items()
            if log.log_start_offset != log.segments[0].base_offset or log.is_tiered
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


Deletion = tuple[int, str, bool]
"""(due in monotonic ms, path, whether it is a directory)."""


class DeletionQueue:
    """Paths to delete later. Due times are monotonic, in ms. The queue is bounded by the number of files that exist."""

    __slots__ = ("_clock", "_disk", "_items", "_note")

    def __init__(self, disk: Disk, clock: Clock, note: Callable[[str], None]) -> None:
        self._disk = disk
        self._clock = clock
        self._note = note
        self._items: list[Deletion] = []

    def add_files(self, paths: Sequence[str], delay_ms: int) -> None:
        due = self._clock.monotonic_ms() + delay_ms
        self._items += [(due, path, False) for path in paths]

    def add_directory(self, path: str, delay_ms: int) -> None:
        self._items.append((self._clock.monotonic_ms() + delay_ms, path, True))

    def follow(self, source: str, target: str) -> None:
        """Adjust the paths of queued files after their directory was renamed."""
        prefix = source + "/"
        self._items = [
            (due, target + path[len(source) :] if path.startswith(prefix) else path, is_directory)
            for due, path, is_directory in self._items
        ]

    def take_due(self, monotonic_ms: int | None) -> list[Deletion]:
        """Remove and return the items that are due (None: all items), for `remove`."""
        due = [item for item in self._items if monotonic_ms is None or item[0] <= monotonic_ms]
        if due:
            self._items = [
                item for item in self._items if monotonic_ms is not None and item[0] > monotonic_ms
            ]
        return due

    def put_back(self, items: Sequence[Deletion]) -> None:
        """Queue what `remove` has left. It is due already."""
        self._items += items

    def remove(self, items: Sequence[Deletion]) -> list[Deletion]:
        """Delete the items. Blocks; may run in any thread. A file that cannot be removed is logged and skipped. Returns those
        that lacked descriptors, memory or room only: file systems that copy on write need room for a removal."""
        left = []
        for item in items:
            _, path, is_directory = item
            try:
                if is_directory:
                    self._disk.remove_tree(path)
                else:
                    self._disk.remove(path)
            except FileNotFoundError:
                # The partition's directory was deleted before.
                continue
            except (OSError, MemoryError) as error:
                if passes(error) or is_full(error):
                    left.append(item)
                else:
                    self._note(f"{path} could not be removed: {error}")
        return left
