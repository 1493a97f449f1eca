"""The log directory of each log of this node, and what happens when a directory fails.

A directory that fails with OSError goes offline. Its partitions are then unknown here until the next start. A
partition may have a future log in another directory beside its current one (future.py). The metadata log is also in
one of these directories. It belongs to raft/ and is ignored here.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from kafkacompat.ids import TopicPartition, Uuid
from kafkacompat.log.checkpoint import CheckpointCorrupt
from kafkacompat.log.checkpointing import FILES, Checkpoints
from kafkacompat.log.deletion import DeletionQueue
from kafkacompat.log.directory import (
    DELETE_SUFFIX,
    STRAY_SUFFIX,
    LogDirectory,
    random_text,
)
from kafkacompat.log.future import FutureLogs
from kafkacompat.log.index_cache import IndexCache
from kafkacompat.log.log import PartitionLog
from kafkacompat.log.mending import IndexMender
from kafkacompat.log.opening import LogOpener
from kafkacompat.log.predecessors import Predecessors
from kafkacompat.log.producer_state import PRODUCER_IDS_MAX
from kafkacompat.log.rolled import RolledLogs
from kafkacompat.log.soundness import DAMAGE
from kafkacompat.meters import Histogram
from kafkacompat.ports import HalfDone, LogDirStatus, SyncFailed, passes

if TYPE_CHECKING:
    from kafkacompat.config import LogConfig
    from kafkacompat.ports import Clock, Disk, Log, Plan

Note = Callable[[str], None]
NOTE_AGAIN_MS = 10_000
FULL_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM})
"""No space or no permission. The data already written is intact and readable, and writes may work again later. Kafka
takes the directory offline, and stops if it was the only one. This node does so only if other brokers can take over
(`spares_full`). A sync that fails with one of these errors is different: the data it covered is lost."""
EXPECTED_DAMAGE = (OSError, CheckpointCorrupt, *DAMAGE)
"""The errors that opening a partition may raise without a bug in kafkacompat."""


class LogHomes:
    """The logs of a node by directory. Used in one thread, except for the methods that block."""

    def __init__(
        self,
        disk: Disk,
        directories: Sequence[tuple[str, Uuid]],
        default_config: LogConfig,
        clock: Clock,
        *,
        randrange: Callable[[int], int] | None = None,
        note: Note = lambda text: None,
        unique_text: Callable[[], str] = random_text,
        producer_ids_max: int = PRODUCER_IDS_MAX,
    ) -> None:
        """`directories` has the absolute path and directory id of each entry of log.dirs. The directories must exist.
        `unique_text` is that of each `LogDirectory`. `producer_ids_max` bounds what each log remembers.
        `note` takes lines for the node's log. `default_config` applies until a partition's own config is known
        (`PartitionLog.config` may be set)."""
        self._disk = disk
        self._clock = clock
        self._note = note
        self.default_config = default_config
        self.directories = [
            LogDirectory(disk, path, directory_id, unique_text) for path, directory_id in directories
        ]
        self.logs: dict[TopicPartition, PartitionLog] = {}
        self._home: dict[TopicPartition, LogDirectory] = {}
        self.doomed = DeletionQueue(disk, clock, note)
        self.mender = IndexMender(disk, note)
        self.rolled = RolledLogs()
        self._index_cache = IndexCache()
        self.open_files = self._index_cache.open_files
        self.flush_times_ms = Histogram()
        """Of the flushes of all logs (LogFlushStats)."""
        self._opener = LogOpener(
            disk,
            clock,
            self.doomed.add_files,
            randrange,
            note,
            self._index_cache,
            self.mender.report,
            self.rolled.add,
            self.flush_times_ms,
            producer_ids_max,
        )
        self.futures = FutureLogs(disk, self._opener, self.doomed)
        self.predecessors = Predecessors(disk)
        self.checkpoints = Checkpoints(self)
        self._refused: dict[TopicPartition, tuple[LogDirectory, str]] = {}
        """Partitions in these directories that cannot be opened or are withheld, with their directory and the path of
        their files."""
        self._rivals: list[tuple[PartitionLog, LogDirectory]] = []
        """Logs that a start found beside another log of the same name but with another topic id."""
        self._rival_futures: list[tuple[PartitionLog, LogDirectory]] = []
        self.preferred: dict[TopicPartition, LogDirectory] = {}
        """The directories requested for logs that do not exist yet (AlterReplicaLogDirs). In memory only, as in Kafka."""
        self.cordoned: frozenset[Uuid] = frozenset()
        """Directories that get a new log only if a request names them (cordoned.log.dirs)."""
        self.spares_full: Callable[[], bool] = lambda: True
        """Whether a directory that takes no writes stays readable, because no other broker has its data."""
        self.on_offline: Callable[[Sequence[TopicPartition]], None] = lambda names: None
        """Called with the partitions of a failed directory."""
        self.on_directory_failed: Callable[[LogDirectory], None] = lambda directory: None
        """Called once for each failed directory, after `on_offline`."""
        self.on_stale: Callable[[], None] = self.checkpoint_now
        """Called when checkpoints may have offsets that are too high, after a log was deleted or truncated. They must
        be written soon."""
        self.closed = False
        self.previous_broker_epoch = -1
        """The broker epoch of the clean stop before this start. -1 unless every directory was stopped cleanly."""

    def index_bytes(self) -> int:
        """Bytes of the index pages that are in memory."""
        return self._index_cache.size_bytes()

    def get(self, topic_partition: TopicPartition) -> PartitionLog | None:
        return self.logs.get(topic_partition)

    def directory_of(self, topic_partition: TopicPartition) -> LogDirectory | None:
        return self._home.get(topic_partition)

    def directory_at(self, path: str) -> LogDirectory | None:
        """The entry of log.dirs with this path, online or not."""
        return next((each for each in self.directories if each.path == path), None)

    def log_in(self, directory: LogDirectory, name: TopicPartition) -> PartitionLog | None:
        """The partition's log in this directory: the current, the future or the previous one."""
        if self._home.get(name) is directory:
            return self.logs[name]
        if self.predecessors.home(name) is directory:
            return self.predecessors.get(name)
        return self.futures.logs[name] if self.futures.home(name) is directory else None

    def has(self, log: Log) -> bool:
        name = log.topic_partition
        return self.logs.get(name) is log or self.futures.logs.get(name) is log

    def logs_in(self, directory: LogDirectory) -> dict[TopicPartition, PartitionLog]:
        """The current logs in a directory, as a new dict."""
        return {name: log for name, log in self.logs.items() if self._home[name] is directory}

    def every_log_in(self, directory: LogDirectory) -> dict[TopicPartition, PartitionLog]:
        """All logs in a directory: current, future and previous ones. The checkpoints cover all of them. No directory
        has two logs of one partition."""
        return self.predecessors.within(directory) | self.logs_in(directory) | self.futures.within(directory)

    def refused_in(self, directory: LogDirectory) -> list[TopicPartition]:
        """The partitions in a directory whose logs could not be opened."""
        return [name for name, (home, _) in self._refused.items() if home is directory]

    def space(self, directory: LogDirectory) -> tuple[int, int]:
        """Total and usable bytes of the directory's file system. -1 and -1 if it is offline, or fails now."""
        if directory.online:
            try:
                return self._disk.usage(directory.path)
            except OSError as error:
                self.directory_failed(directory, error)
        return -1, -1

    def log_dirs(self) -> list[LogDirStatus]:
        result = []
        for directory in self.directories:
            total, usable = self.space(directory)
            result.append(
                LogDirStatus(
                    directory.path,
                    directory.directory_id,
                    directory.online,
                    total,
                    usable,
                    self.logs_in(directory),
                    self.futures.within(directory),
                )
            )
        return result

    def _online(self) -> list[LogDirectory]:
        return [directory for directory in self.directories if directory.online]

    def _adopt(self, log: PartitionLog, directory: LogDirectory) -> None:
        self.logs[log.topic_partition] = log
        self._home[log.topic_partition] = directory
        if log.recovery_point < log.segments[-1].base_offset:
            # The process was killed before these segments were synced.
            self.rolled.add(log)

    def may_make(self, topic_partition: TopicPartition) -> bool:
        """False if the partition's log cannot be opened, or if the checkpoints still have entries of a deleted log of
        that name. Call `clear_names` first."""
        return topic_partition not in self._refused and not self.checkpoints.are_stale(topic_partition)

    def checkpoint_now(self) -> None:
        """Write every checkpoint with a changed offset. Blocks."""
        self._carry_out(self.checkpoints.plan(*FILES))

    def _carry_out(self, plan: Plan | None) -> None:
        if plan is not None:
            plan.run()
            plan.finish()

    def mark_stray(self, topic_partition: TopicPartition) -> None:
        """Rename a log that is not in the metadata to `-stray` and stop serving it."""
        self._retire(topic_partition, STRAY_SUFFIX)

    def _retire(self, topic_partition: TopicPartition, suffix: str) -> None:
        log = self.logs.pop(topic_partition, None)
        directory = self._home.pop(topic_partition, None)
        if log is None or directory is None:
            return
        self._let_go(log, directory, suffix)
        before, origin = self.predecessors.get(topic_partition), self.predecessors.home(topic_partition)
        if before is not None and origin is not None:
            self.predecessors.forget(topic_partition)
            self._let_go(before, origin, suffix)
        self.on_stale()

    def _let_go(self, log: PartitionLog, directory: LogDirectory, suffix: str) -> None:
        log.release()
        target = self._set_aside(directory, log.directory, log.topic_partition, suffix)
        if target is not None and suffix == DELETE_SUFFIX:
            self.doomed.add_directory(target, log.config.file_delete_delay_ms)

    def _set_aside(self, directory: LogDirectory, path: str, name: TopicPartition, suffix: str) -> str | None:
        """Rename a directory. Returns its new path, or None if the disk refuses. The log directory may then be
        offline."""
        target = directory.marked(name, suffix)
        try:
            self._disk.rename(path, target)
        except OSError as error:
            self.directory_failed(directory, error)
            return None
        return target

    def partition_failed(self, topic_partition: TopicPartition, error: OSError) -> None:
        """Handle a failed operation on a partition's files: see `directory_failed`."""
        directory = self._home.get(topic_partition)
        if directory is not None:
            self.directory_failed(directory, error)

    def log_failed(self, log: Log, error: OSError) -> None:
        """Like `partition_failed`, if `log` is still the partition's log. Missing files of a deleted topic prove
        nothing about the directory, nor about a new topic of that name."""
        if self.get(log.topic_partition) is log:
            self.partition_failed(log.topic_partition, error)

    def log_damaged(self, log: Log, damage: Exception, consequence: str) -> None:
        """Log that a file of the log has an invalid batch or index. The directory stays online."""
        self._note(f"{log.topic_partition} is damaged on disk, {consequence}: {damage}")

    def directory_failed(self, directory: LogDirectory, error: OSError) -> None:
        """Take the directory offline, unless the error leaves its data readable: a full disk can still be read.

        A failed sync may have lost bytes, and a change that stopped half way leaves other files than memory says. Both
        take the directory offline, and the next start checks it.
        """
        if not self.is_short(error):
            self.fail_directory(directory, error)
            return
        now_ms = self._clock.monotonic_ms()
        if directory.noted_ms is None or now_ms - directory.noted_ms >= NOTE_AGAIN_MS:
            directory.noted_ms = now_ms
            self._note(f"log directory {directory.path} takes no writes: {error}")

    def is_short(self, error: BaseException | None) -> bool:
        """Whether the refused operation may succeed later. Such an error takes no directory offline."""
        if not isinstance(error, OSError) or isinstance(error, (SyncFailed, HalfDone)):
            return False
        return passes(error) or (error.errno in FULL_ERRORS and self.spares_full())

    def fail_directory(self, directory: LogDirectory, error: OSError) -> None:
        """Take a directory with all its partitions offline until the next start."""
        fails_now = directory.failure is None
        if fails_now:
            directory.failure = error
            self._note(f"log directory {directory.path} is offline: {error}")
        for log in self.futures.within(directory).values():
            log.release()
            self.futures.forget(log.topic_partition)
        for name in self.predecessors.within(directory):
            self.predecessors.forget(name)
        lost = list(self.logs_in(directory))
        for name in lost:
            self.logs.pop(name).release()
            del self._home[name]
            # The previous log may have records that the current one has not made durable.
            self.predecessors.forget(name)
        self.checkpoints.look()
        if lost:
            self.on_offline(lost)
        if fails_now:
            self.on_directory_failed(directory)
