"""Every partition's log in every log directory: ports.LogManager.

It finds the logs of a start, creates, moves, deletes and closes logs, and knows which directory each is in. A directory that
fails with OSError goes offline. Its partitions are then unknown here until the next start. A partition may have a future log
in another directory beside its current one (future_logs.py, KIP-113). Of two logs of one partition the one that is further ahead
stays. Files that may have records are never removed. The metadata log is also in one of these directories. It belongs to
raft/ and is ignored here. Images, leaders and timers are unknown here: the shell calls the periodic functions and runs the
blocking parts (marked so) in worker threads.
"""

from __future__ import annotations

import contextlib
import errno
import posixpath
import traceback
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from kafkacompat.ids import NO_EPOCH, TopicPartition, Uuid
from kafkacompat.log.checkpoint import CheckpointCorrupt
from kafkacompat.log.directory import (
    DELETE_SUFFIX,
    FILES,
    STRAY_SUFFIX,
    Checkpoints,
    DeletionQueue,
    LogDirectory,
    partition_directory,
    random_text,
)
from kafkacompat.log.future_logs import FutureLogs, Predecessors, Retirement, age_of, suffix_of_second
from kafkacompat.log.index_cache import UNLIMITED, IndexCache
from kafkacompat.log.index_rebuild import IndexRebuilds
from kafkacompat.log.log_loader import DAMAGE
from kafkacompat.log.opening import (
    Found,
    LoadTask,
    LogOpener,
    Preparation,
    TopicUnknown,
    agreed_epoch,
    is_of_the_directory,
    look_into,
)
from kafkacompat.log.producer_state import PRODUCER_IDS_MAX
from kafkacompat.log.unified_log import LogServices, UnifiedLog
from kafkacompat.meters import Histogram
from kafkacompat.ports import HalfDone, LogDirStatus, LogRefused, SyncFailed, passes
from kafkacompat.wire.errors import ErrorCode

if TYPE_CHECKING:
    from kafkacompat.config import LogConfig
    from kafkacompat.deferred import Deferred
    from kafkacompat.ports import Clock, Disk, Log, Plan

Note = Callable[[str], None]
NOTE_AGAIN_MS = 10_000
FULL_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM})
"""No space or no permission. The data already written is intact and readable, and writes may work again later. Kafka
takes the directory offline, and stops if it was the only one. This node does so only if other brokers can take over
(`spares_full` of LogManager). A sync that fails with one of these errors is different: the data it covered is lost."""
EXPECTED_DAMAGE = (OSError, CheckpointCorrupt, *DAMAGE)
"""The errors that opening a partition may raise without a bug in kafkacompat."""


class LogManager:
    """All logs of a node. Used in one thread, except for the methods that block."""

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
        open_files_max: Callable[[], int] = lambda: UNLIMITED,
        spares_full: Callable[[], bool] = lambda: True,
        on_directory_failed: Callable[[LogDirectory], None] = lambda directory: None,
        on_stale: Callable[[], None] | None = None,
        remote_storage: bool = False,
    ) -> None:
        """`directories` has the absolute path and directory id of each entry of log.dirs. The directories must exist.
        `unique_text` is that of each `LogDirectory`. `producer_ids_max` bounds what each log remembers.
        `note` takes lines for the node's log. `default_config` applies until a partition's own config is known
        (`UnifiedLog.config` may be set). `open_files_max` bounds the segments whose files are open.

        `spares_full` tells whether a directory that takes no writes stays readable, because no other broker has its data.
        `on_directory_failed` is called once for each failed directory, after the `on_offline` of `when_offline`.
        `on_stale` is called when checkpoints may have offsets that are too high, after a log was deleted or truncated. They
        must be written soon. Without it, they are written at once.
        `remote_storage` tells whether topics may be tiered."""
        self._disk = disk
        self._clock = clock
        self._note = note
        self.default_config = default_config
        self.directories = [
            LogDirectory(disk, path, directory_id, unique_text) for path, directory_id in directories
        ]
        self.logs: dict[TopicPartition, UnifiedLog] = {}
        self._home: dict[TopicPartition, LogDirectory] = {}
        self._log_counts: Counter[LogDirectory] = Counter()
        """Of `_home`. There may be very many logs, and each new one asks which directory has the fewest."""
        self.deletions = DeletionQueue(disk, clock, note)
        self.index_rebuilds = IndexRebuilds(disk, note, self.has)
        self.rolled = RolledLogs()
        self._index_cache = IndexCache(open_files_max=open_files_max)
        self.flush_times_ms = Histogram()
        """Of the flushes of all logs (LogFlushStats)."""
        self._opener = LogOpener(
            disk,
            clock,
            note,
            self._index_cache,
            LogServices(
                delete_later=self.deletions.add_files,
                rebuild_later=self.index_rebuilds.report,
                randrange=randrange,
                rolled=self.rolled.add,
                flush_times_ms=self.flush_times_ms,
                producer_ids_max=producer_ids_max,
                remote_storage=remote_storage,
            ),
        )
        self.futures = FutureLogs(disk, self._opener, self.deletions)
        self.predecessors = Predecessors(disk)
        self.checkpoints = Checkpoints(self)
        self._refused: dict[TopicPartition, tuple[LogDirectory, str]] = {}
        """Partitions in these directories that cannot be opened or are withheld, with their directory and the path of
        their files."""
        self._found: dict[LogDirectory, Found] = {}
        """What a start has found so far."""
        self._rivals: list[tuple[UnifiedLog, LogDirectory]] = []
        """Logs that a start found beside another log of the same name but with another topic id."""
        self._rival_futures: list[tuple[UnifiedLog, LogDirectory]] = []
        self.preferred: dict[TopicPartition, LogDirectory] = {}
        """The directories requested for logs that do not exist yet (AlterReplicaLogDirs). In memory only, as in Kafka."""
        self.cordoned: frozenset[Uuid] = frozenset()
        """Directories that get a new log only if a request names them (cordoned.log.dirs)."""
        self._spares_full = spares_full
        self._on_directory_failed = on_directory_failed
        self._on_offline: Callable[[Sequence[TopicPartition]], None] = lambda names: None
        self.on_stale: Callable[[], None] = on_stale or self.checkpoint_now
        self.closed = False
        self.previous_broker_epoch = -1
        """The broker epoch of the clean stop before this start. -1 unless every directory was stopped cleanly."""

    def when_offline(self, on_offline: Callable[[Sequence[TopicPartition]], None]) -> None:
        """`on_offline` is called with the partitions of each directory that fails."""
        self._on_offline = on_offline

    def index_bytes(self) -> int:
        """Bytes of the index pages that are in memory."""
        return self._index_cache.size_bytes()

    def get(self, topic_partition: TopicPartition) -> UnifiedLog | None:
        return self.logs.get(topic_partition)

    def directory_of(self, topic_partition: TopicPartition) -> LogDirectory | None:
        return self._home.get(topic_partition)

    def directory_at(self, path: str) -> LogDirectory | None:
        """The entry of log.dirs with this path, online or not."""
        return next((each for each in self.directories if each.path == path), None)

    def log_in(self, directory: LogDirectory, name: TopicPartition) -> UnifiedLog | None:
        """The partition's log in this directory: the current, the future or the previous one."""
        if self._home.get(name) is directory:
            return self.logs[name]
        if self.predecessors.home(name) is directory:
            return self.predecessors.get(name)
        return self.futures.logs[name] if self.futures.home(name) is directory else None

    def has(self, log: Log) -> bool:
        name = log.topic_partition
        return self.logs.get(name) is log or self.futures.logs.get(name) is log

    def logs_in(self, directory: LogDirectory) -> dict[TopicPartition, UnifiedLog]:
        """The current logs in a directory, as a new dict."""
        return {name: log for name, log in self.logs.items() if self._home[name] is directory}

    def every_log_in(self, directory: LogDirectory) -> dict[TopicPartition, UnifiedLog]:
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

    def _adopt(self, log: UnifiedLog, directory: LogDirectory) -> None:
        self._leave_home(log.topic_partition)
        self.logs[log.topic_partition] = log
        self._home[log.topic_partition] = directory
        self._log_counts[directory] += 1
        if log.recovery_point < log.segments[-1].base_offset:
            # The process was killed before these segments were synced.
            self.rolled.add(log)

    def _leave_home(self, name: TopicPartition) -> LogDirectory | None:
        directory = self._home.pop(name, None)
        if directory is not None:
            self._log_counts[directory] -= 1
        return directory

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
        directory = self._leave_home(topic_partition)
        if log is None or directory is None:
            return
        self._let_go(log, directory, suffix)
        before, origin = self.predecessors.get(topic_partition), self.predecessors.home(topic_partition)
        if before is not None and origin is not None:
            self.predecessors.forget(topic_partition)
            self._let_go(before, origin, suffix)
        self.on_stale()

    def _let_go(self, log: UnifiedLog, directory: LogDirectory, suffix: str) -> None:
        log.release()
        target = self._set_aside(directory, log.directory, log.topic_partition, suffix)
        if target is not None and suffix == DELETE_SUFFIX:
            self.deletions.add_directory(target, log.config.file_delete_delay_ms)

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
        return passes(error) or (error.errno in FULL_ERRORS and self._spares_full())

    def fail_directory(self, directory: LogDirectory, error: OSError) -> None:
        """Take a directory with all its partitions offline until the next start."""
        fails_now = directory.failure is None
        if fails_now:
            directory.failure = error
            self._note(f"Stopping serving logs in dir {directory.path}: {error}")
        for log in self.futures.within(directory).values():
            log.release()
            self.futures.forget(log.topic_partition)
        for name in self.predecessors.within(directory):
            self.predecessors.forget(name)
        lost = list(self.logs_in(directory))
        for name in lost:
            self.logs.pop(name).release()
            self._leave_home(name)
            # The previous log may have records that the current one has not made durable.
            self.predecessors.forget(name)
        self.checkpoints.look()
        if lost:
            self._on_offline(lost)
        if fails_now:
            self._on_directory_failed(directory)

    # The logs that a start finds.

    def load_all(self) -> dict[TopicPartition, UnifiedLog]:
        """Open every partition found, one after another. For threads see `begin_load`. Blocks."""
        tasks = self.begin_load()
        for task in tasks:
            task.run()
        self.finish_load(tasks)
        return self.logs

    def begin_load(self, *, waits: bool = False) -> list[LoadTask]:
        """A task for each partition directory. Also takes the clean-shutdown marks and lists what is to be deleted.

        With `waits`, an OSError that passes is raised: call again later, for the directories that are left.
        """
        for directory in self._online():
            if directory in self._found:
                continue
            try:
                self._found[directory] = look_into(self._disk, directory, self._open_found, self._note)
            except OSError as error:
                if waits and passes(error):
                    raise
                self.fail_directory(directory, error)
        found = list(self._found.values())
        self._found.clear()
        for each in found:
            for path in each.to_be_deleted:
                self.deletions.add_directory(path, self.default_config.file_delete_delay_ms)
        self.previous_broker_epoch = agreed_epoch([each.broker_epoch for each in found])
        return [task for each in found for task in each.tasks]

    def _open_found(self, task: LoadTask) -> UnifiedLog:
        return self._opener.open_log(
            task.path,
            task.name,
            None,
            self.default_config,
            clean=task.clean,
            recovery_point=task.recovery_point,
            log_start_offset=task.log_start,
            high_watermark=task.high_watermark,
        )

    def finish_load(self, tasks: Iterable[LoadTask]) -> None:
        """Take over what the tasks opened. A directory that refused a log goes offline. A log refused for lack of
        space is offline alone, because others can be read."""
        for task in tasks:
            if isinstance(task.result, UnifiedLog) and task.directory.online:
                if task.is_future:
                    self._take_future(task.result, task.directory)
                    continue
                if task.has_lost:
                    self.previous_broker_epoch = NO_EPOCH
                if task.cleaned_to <= task.result.log_end_offset:
                    task.result.cleaned_to = task.cleaned_to
                self._take_current(task.result, task.directory)
            elif isinstance(task.result, TopicUnknown):
                self._set_unknown_aside(task, task.result)
            elif isinstance(task.result, Exception):
                if is_of_the_directory(task.result) and not self.is_short(task.result):
                    self.fail_directory(task.directory, task.result)
                elif task.directory.online:
                    self._refuse(task, task.result)
        self._carry_out(self.checkpoints.after_load())

    def _take_current(self, log: UnifiedLog, directory: LogDirectory) -> None:
        """Take a current log. A crash during a directory swap, or a directory that came back, may leave two logs of
        one topic. Kafka does not start then. Here the log that is further ahead becomes the partition's, because both
        have what they acknowledged. Records that only the other one has are kept for inspection."""
        name = log.topic_partition
        other, home = self.logs.get(name), self._home.get(name)
        if other is None or home is None:
            self._adopt(log, directory)
        elif log.topic_id != other.topic_id:
            self._rivals.append((log, directory))
        else:
            loser, origin = log, directory
            if age_of(log) > age_of(other):
                loser, origin = other, home
                self._adopt(log, directory)
            self._note(
                f"{name} lies in both {home.path} and {directory.path}: {self.logs[name].directory} is taken, "
                f"{loser.directory} ends at offset {loser.log_end_offset} in epoch {loser.latest_epoch()}"
            )
            self._settle_on(self.logs[name], self._home[name], loser, origin)

    def _settle_on(
        self, log: UnifiedLog, home: LogDirectory, other: UnifiedLog, origin: LogDirectory
    ) -> None:
        """Keep `log` and retire `other`. `log` is flushed first, because `other` may have on its disk what `log` has
        in the page cache only."""
        suffix = suffix_of_second(other, log)
        log.is_durable = False
        try:
            log.flush()
        except OSError as error:
            other.release()
            self.fail_directory(home, error)
        else:
            self._let_go(other, origin, suffix)

    def _take_future(self, log: UnifiedLog, directory: LogDirectory) -> None:
        """Take a future log. A second one was obsolete when its directory failed or the power was lost."""
        name = log.topic_partition
        other, home = self.futures.logs.get(name), self.futures.home(name)
        if other is None or home is None:
            self.futures.adopt(log, directory)
            return
        if log.topic_id != other.topic_id:
            self._rival_futures.append((log, directory))
            return
        winner, loser, origin = other, log, directory
        if age_of(log) > age_of(other):
            winner, loser, origin = log, other, home
            self.futures.adopt(log, directory)
        self._note(f"{name} has future logs in both {home.path} and {directory.path}: {loser.directory} goes")
        self._let_go(loser, origin, suffix_of_second(loser, winner))

    def _refuse(self, task: LoadTask, reason: Exception) -> None:
        """Leave a partition alone that cannot be opened. The broker epoch is dropped, so that the controller does not
        rely on the data from before the stop."""
        self.previous_broker_epoch = NO_EPOCH
        task.directory.has_unopened = True
        if not task.is_future:
            self._refused[task.name] = task.directory, task.path
        cause = reason if isinstance(reason, EXPECTED_DAMAGE) else "".join(traceback.format_exception(reason))
        self._note(f"{task.path} cannot be opened and is offline, the other partitions are served: {cause}")

    def _set_unknown_aside(self, task: LoadTask, unknown: TopicUnknown) -> None:
        """Rename a log without a topic id. A crash came before the id was durable, or the file was lost later. Its
        records cannot be assigned to a topic. The controller must not rely on the data from before the stop."""
        if not task.directory.online:
            return
        suffix = DELETE_SUFFIX if unknown.is_empty else STRAY_SUFFIX
        target = self._set_aside(task.directory, task.path, task.name, suffix)
        if target is not None and unknown.is_empty:
            self.deletions.add_directory(target, 0)
        elif target is not None:
            self._note(
                f"Found stray log dir {task.path}: its topic id is not known ({unknown}). It is renamed to {target}"
            )
            self.previous_broker_epoch = NO_EPOCH

    def settle_rivals(self, topic_ids: Callable[[str], Uuid | None]) -> None:
        """Settle logs of the same name in several directories, left when a deleted topic's log could not be renamed.
        The log of the topic in the metadata stays. Of two logs of that topic, the one further ahead stays."""
        for log, directory in self._of_present_topics(self._rivals, topic_ids):
            name = log.topic_partition
            if name in self.logs and self.logs[name].topic_id != log.topic_id:
                self.mark_stray(name)
            self._take_current(log, directory)
        for log, directory in self._of_present_topics(self._rival_futures, topic_ids):
            name, home = log.topic_partition, self.futures.home(log.topic_partition)
            if home is not None and self.futures.logs[name].topic_id != log.topic_id:
                try:
                    self.futures.set_aside(name)
                except OSError as error:
                    self.directory_failed(home, error)
            self._take_future(log, directory)

    def _of_present_topics(
        self, rivals: list[tuple[UnifiedLog, LogDirectory]], topic_ids: Callable[[str], Uuid | None]
    ) -> Iterator[tuple[UnifiedLog, LogDirectory]]:
        """The logs whose topic is in the metadata. The others are renamed to strays."""
        found = list(rivals)
        rivals.clear()
        for log, directory in found:
            if not directory.online:
                continue
            if topic_ids(log.topic_partition.topic) == log.topic_id:
                yield log, directory
            else:
                self._let_go(log, directory, STRAY_SUFFIX)

    # Making, deleting and closing logs.

    def get_or_create(
        self,
        topic_partition: TopicPartition,
        topic_id: Uuid,
        config: LogConfig,
        directory_id: Uuid | None = None,
        *,
        is_new: bool = True,
    ) -> UnifiedLog:
        """The partition's log. A new log goes into the given directory if that is online, otherwise into the directory
        with the fewest partitions.

        Raises LogRefused: KAFKA_STORAGE_ERROR if no directory is online, INCONSISTENT_TOPIC_ID if the log belongs to
        another topic of this name. With is_new False no log is created while a directory is offline, because the log
        may be there.
        """
        log = self.logs.get(topic_partition)
        if log is not None:
            if log.topic_id != topic_id:
                raise LogRefused(
                    ErrorCode.INCONSISTENT_TOPIC_ID, f"{topic_partition} is kept under another topic id"
                )
            return log
        if not is_new and self.may_have(topic_partition):
            where = (
                "could not be opened"
                if topic_partition in self._refused
                else "may lie in an offline directory"
            )
            raise LogRefused(ErrorCode.KAFKA_STORAGE_ERROR, f"{topic_partition} {where}")
        self._set_refused_aside(topic_partition)
        directory = self._directory_for_new(directory_id, topic_partition)
        try:
            self._clear_the_way(directory, topic_partition)
            if self._has_copy(directory, topic_partition, topic_id):
                return self.promote_future(topic_partition)
            return self._make_whole(directory, topic_partition, topic_id, config)
        except OSError as error:
            self.directory_failed(directory, error)
            raise LogRefused(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error

    def _has_copy(self, directory: LogDirectory, name: TopicPartition, topic_id: Uuid) -> bool:
        """Whether the directory has a future log of the topic whose current log is in a failed directory. A directory
        never has two logs of one partition. A future log of another topic is discarded."""
        if self.futures.home(name) is not directory:
            return False
        if self.futures.logs[name].topic_id == topic_id:
            return True
        self.discard_future(name)
        return False

    def _clear_the_way(self, directory: LogDirectory, name: TopicPartition) -> None:
        """Rename a directory that has the name of a log about to be created or moved here. It belongs to another topic, or was
        left incomplete, when the disk took no writes."""
        path = f"{directory.path}/{partition_directory(name)}"
        if self._disk.exists(path):
            target = directory.marked(name, STRAY_SUFFIX)
            self._note(f"Found stray log dir {path}: it is of no replica here. It is renamed to {target}")
            self._disk.rename(path, target)

    def _make_whole(
        self, directory: LogDirectory, name: TopicPartition, topic_id: Uuid, config: LogConfig
    ) -> UnifiedLog:
        """Create a log, and remove its files if that fails. The creation is retried, and each retry would leave a
        stray directory."""
        try:
            return self._make(directory, name, topic_id, config)
        except OSError:
            path = f"{directory.path}/{partition_directory(name)}"
            target = directory.marked(name, DELETE_SUFFIX)
            with contextlib.suppress(OSError):
                self._disk.rename(path, target)
                self.deletions.add_directory(target, 0)
            raise

    def _make(
        self, directory: LogDirectory, name: TopicPartition, topic_id: Uuid, config: LogConfig
    ) -> UnifiedLog:
        path = f"{directory.path}/{partition_directory(name)}"
        if not self.may_make(name):
            raise LogRefused(
                ErrorCode.KAFKA_STORAGE_ERROR, f"the checkpoints still speak of another log of {name}"
            )
        log = self._opener.open_log(path, name, topic_id, config, clean=True)
        self._adopt(log, directory)
        self.preferred.pop(name, None)
        return log

    def _directory_for_new(self, directory_id: Uuid | None, name: TopicPartition) -> LogDirectory:
        online = self._online()
        if not online:
            raise LogRefused(ErrorCode.KAFKA_STORAGE_ERROR, "no log directory is online")
        preferred = self.preferred.get(name)
        if preferred is not None and preferred.online:
            return preferred
        for directory in online:
            if directory.directory_id == directory_id:
                return directory
        # The controller places no replica on a broker whose directories are all cordoned. A replica that arrives
        # anyway needs a directory.
        online = [each for each in online if each.directory_id not in self.cordoned] or online
        if len(online) == 1:
            return online[0]
        return min(online, key=lambda directory: self._log_counts[directory])

    def prepare(
        self, topic_partition: TopicPartition, topic_id: Uuid, directory_id: Uuid | None = None
    ) -> Preparation:
        """Prepare the files of a new log in the background: `run` the result in a thread, then `place` or `discard`
        it. Raises LogRefused."""
        directory = self._directory_for_new(directory_id, topic_partition)
        return Preparation(self._disk, directory, topic_partition, topic_id)

    def place(self, prepared: Preparation, config: LogConfig) -> bool:
        """Make the prepared files the partition's log. If that fails, the files are removed and `get_or_create` must
        create the log."""
        name, directory = prepared.topic_partition, prepared.directory
        path = f"{directory.path}/{partition_directory(name)}"
        try:
            if (
                not prepared.made
                or name in self.logs
                or self.futures.home(name) is directory
                or not directory.online
                or self._disk.exists(path)
                or not self.may_make(name)
            ):
                raise OSError(errno.EEXIST, "the prepared log has no place", path)
            self._disk.rename(prepared.path, path)
            self._make_whole(directory, name, prepared.topic_id, config)
        except OSError:
            self.discard(prepared)
            return False
        return True

    def discard(self, prepared: Preparation) -> None:
        """Remove prepared files. The partition was deleted, or its log was needed earlier."""
        self.deletions.add_directory(prepared.path, 0)

    def may_have(self, topic_partition: TopicPartition) -> bool:
        """Whether the log is here, or may be in an offline directory."""
        return (
            topic_partition in self.logs
            or topic_partition in self._refused
            or len(self._online()) < len(self.directories)
        )

    def withhold(self, name: TopicPartition, reason: str) -> None:
        """Stop serving an opened log until the next start."""
        log, directory = self.logs.pop(name), self._leave_home(name)
        assert directory is not None
        log.release()
        directory.has_unopened = True
        self._refused[name] = directory, log.directory
        self._note(f"{log.directory} is not served: {reason}")

    def set_refused_aside(self, is_wanted: Callable[[TopicPartition], bool]) -> None:
        """Rename logs that could not be opened and for which no replica is wanted here."""
        for name in [name for name in self._refused if not is_wanted(name)]:
            self._set_refused_aside(name)

    def _set_refused_aside(self, name: TopicPartition) -> None:
        """Rename a log that could not be opened, because its name is needed for another log or no longer needed."""
        directory, path = self._refused.pop(name, (None, ""))
        if directory is not None and directory.online:
            target = self._set_aside(directory, path, name, STRAY_SUFFIX)
            if target is not None:
                self._note(f"{path}, which could not be opened, is renamed to {target}")
            self.on_stale()

    def clear_names(self, names: Iterable[TopicPartition]) -> Plan | None:
        """Prepare these names for new logs. Returns the checkpoints to write first, or None if there are none."""
        names = list(names)
        for name in names:
            self._set_refused_aside(name)
        return self.checkpoints.without(names)

    def when_true(self, log: Log) -> Deferred[None]:
        """See Checkpoints.when_true. For logs that were truncated."""
        return self.checkpoints.when_true(log)

    def delete_later(self, topic_partition: TopicPartition) -> None:
        """Rename the log's directory now and remove it after file.delete.delay.ms. If the rename fails, the next start
        treats the directory as a stray."""
        self.discard_future(topic_partition)
        self._retire(topic_partition, DELETE_SUFFIX)

    def shut_down(self, broker_epoch: int) -> None:
        """Flush and close all logs and write the checkpoints. Each directory where everything succeeded gets the
        clean-shutdown mark. Blocks."""
        self.closed = True
        for log in self.predecessors.successors():
            self._retire_now(log)
        self.deletions.remove(self.deletions.take_due(None))
        for directory in self.directories:
            if directory.online:
                try:
                    self._close_directory(directory, broker_epoch)
                except OSError as error:
                    directory.failure = error
                    self._note(f"{directory.path} was not closed cleanly: {error}")
        self.logs.clear()
        self._home.clear()
        self._log_counts.clear()
        self.futures.logs.clear()

    def _retire_now(self, log: UnifiedLog) -> None:
        try:
            log.flush()
        except OSError as error:
            self.log_failed(log, error)
        else:
            self._carry_out(self.retire_predecessor(log))

    def _close_directory(self, directory: LogDirectory, broker_epoch: int) -> None:
        is_clean = not directory.has_unopened
        for log in self.every_log_in(directory).values():
            try:
                log.close()
            except (LogRefused, *DAMAGE) as damage:
                is_clean = False
                log.release()
                self._note(f"{directory.path} was not closed cleanly: {log.topic_partition}: {damage}")
        for file in FILES:
            offsets = self.checkpoints.true_of(directory, file)
            if not directory.holds(file, offsets):
                directory.write_now(file, offsets)
        if is_clean:
            directory.mark_clean(broker_epoch)

    # Moving a log to another directory: a future log replaces the current one.

    def begin_future(self, name: TopicPartition, directory: LogDirectory) -> UnifiedLog:
        """Create an empty log in another directory that will replace this one. Raises LogRefused KAFKA_STORAGE_ERROR."""
        if len(self._online()) < len(self.directories):
            # The offline directory may have a future log of the partition.
            raise LogRefused(ErrorCode.KAFKA_STORAGE_ERROR, "a log directory is offline")
        if not self.may_make(name):
            self.on_stale()
            raise LogRefused(
                ErrorCode.KAFKA_STORAGE_ERROR, f"the checkpoints still speak of an earlier log of {name}"
            )
        if self.predecessors.get(name) is not None:
            raise LogRefused(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"{name} has changed its directory and is not durable there yet",
            )
        try:
            return self.futures.begin(self.logs[name], directory)
        except OSError as error:
            self.directory_failed(directory, error)
            raise LogRefused(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error

    def promote_future(self, name: TopicPartition) -> UnifiedLog:
        """Make the future log the current one. The previous log keeps its name until `retire_predecessor`.

        Raises LogRefused KAFKA_STORAGE_ERROR. Then nothing has changed, except that the failing directory may be
        offline.
        """
        home, current, origin = self.futures.home(name), self.logs.get(name), self._home.get(name)
        assert home is not None
        if current is not None:
            # Set it now: under a name that is not durable the high watermark does not move.
            self.futures.logs[name].set_high_watermark(current.high_watermark)
        try:
            self._clear_the_way(home, name)
            log = self.futures.promote(name)
        except OSError as error:
            self.directory_failed(home, error)
            raise LogRefused(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        if current is not None and origin is not None:
            current.release()
            self.predecessors.add(current, origin, log)
        self._adopt(log, home)
        self.on_stale()
        return log

    def retire_predecessor(self, log: Log) -> Plan | None:
        """Start deleting the log that `log` has replaced. `log` must be durable. Returns None if there is no previous
        log, or if its directory refuses; `predecessors` tells which."""
        name = log.topic_partition
        directory, old = self.predecessors.home(name), self.predecessors.get(name)
        if directory is None or old is None or not self.predecessors.is_before(log):
            return None
        try:
            path = self.predecessors.rename(name)
        except OSError as error:
            self.directory_failed(directory, error)
            return None
        self.on_stale()
        return Retirement(
            self._disk,
            directory,
            path,
            old.config.file_delete_delay_ms,
            self.deletions,
            self.directory_failed,
        )

    def discard_future(self, name: TopicPartition) -> None:
        """Delete the partition's future log, which is no longer needed."""
        home = self.futures.home(name)
        if home is None:
            return
        try:
            self.futures.discard(name)
        except OSError as error:
            self.directory_failed(home, error)
        self.on_stale()

    def future_failed(self, name: TopicPartition, error: OSError) -> None:
        """Like `partition_failed`, for the partition's future log."""
        directory = self.futures.home(name)
        if directory is not None:
            self.directory_failed(directory, error)


class RolledLogs:
    """The waiting logs of each log directory, each once. Bounded by the number of logs."""

    __slots__ = ("_asked", "_told", "_waiting")

    def __init__(self) -> None:
        self._waiting: dict[str, OrderedDict[UnifiedLog, None]] = {}
        self._told: Callable[[str], None] = lambda place: None
        self._asked: set[str] = set()
        """The directories with which `_told` was called, and of which nothing was taken since."""

    def watch(self, told: Callable[[str], None]) -> None:
        """`told` is called with a directory when a log of it waits. Whoever is told may fail, or leave some of the logs."""
        self._told = told
        for place in list(self._waiting):
            self._asked.add(place)
            told(place)

    def waits(self, place: str) -> bool:
        """Whether a log of the directory waits."""
        return place in self._waiting

    def add(self, log: UnifiedLog) -> None:
        place = posixpath.dirname(log.directory)
        self._waiting.setdefault(place, OrderedDict())[log] = None
        if place not in self._asked:
            self._asked.add(place)
            self._told(place)

    def pop(self, place: str) -> UnifiedLog | None:
        """Remove and return the next log of a directory. None if there is none."""
        self._asked.discard(place)
        waiting = self._waiting.get(place)
        if waiting is None:
            return None
        log, _ = waiting.popitem(last=False)
        if not waiting:
            del self._waiting[place]
        return log
