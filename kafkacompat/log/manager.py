"""Every partition's log in every log directory: ports.LogManager.

Duty: load at start, create, delete, checkpoint, flush, retain, stop cleanly. Must not know: images, leaders, timers: the
shell calls the periodic functions and moves the blocking parts (marked so) to worker threads. The metadata log lives in one
of these directories too, but belongs to raft/, and is passed over here.
A directory that fails with OSError is taken offline; its partitions are then unknown here until the next start. A partition may
have a future log in another directory beside its current one (future.py).
"""

from __future__ import annotations

import contextlib
import errno
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from kafkacompat.ids import NO_EPOCH, TopicPartition, Uuid
from kafkacompat.log.checkpoint import CheckpointCorrupt
from kafkacompat.log.checkpointing import FILES, Checkpoints
from kafkacompat.log.deletion import DeletionQueue
from kafkacompat.log.directory import (
    DELETE_SUFFIX,
    STRAY_SUFFIX,
    LogDirectory,
    marked_name,
    partition_directory,
)
from kafkacompat.log.future import FutureLogs
from kafkacompat.log.index_cache import IndexCache
from kafkacompat.log.loading import LoadTask, agreed_epoch, is_of_the_directory, look_into
from kafkacompat.log.log import PartitionLog
from kafkacompat.log.mending import IndexMender
from kafkacompat.log.opening import LogOpener, TopicUnknown
from kafkacompat.log.predecessors import Predecessors, Retirement, age_of, suffix_of_second
from kafkacompat.log.preparation import Preparation
from kafkacompat.log.rolling import RolledLogs
from kafkacompat.log.soundness import DAMAGE
from kafkacompat.ports import HalfDone, LogDirStatus, LogRefused, SyncFailed
from kafkacompat.wire.errors import ErrorCode

if TYPE_CHECKING:
    from kafkacompat.config import LogConfig
    from kafkacompat.deferred import Deferred
    from kafkacompat.ports import Clock, Disk, Log, Plan

Note = Callable[[str], None]
NOTE_AGAIN_MS = 10_000
FULL_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM})
"""No room, no leave: what is written is intact and can be read, and writing may work again later. Kafka gives the directory up,
and with its only directory itself; here that is done only where other brokers can take over (`spares_full`). A sync that fails with
one of these is another thing: what it covered is lost."""
EXPECTED_DAMAGE = (OSError, CheckpointCorrupt, *DAMAGE)
"""What opening a partition may end in without being a bug of ours."""
SHORTAGES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
"""Of the process, not of a directory."""


class LogManager:
    """One thread, but for what is said to block."""

    def __init__(
        self,
        disk: Disk,
        directories: Sequence[tuple[str, Uuid]],
        default_config: LogConfig,
        clock: Clock,
        *,
        randrange: Callable[[int], int] | None = None,
        note: Note = lambda text: None,
    ) -> None:
        """`directories`: absolute path and directory id of each entry of log.dirs, existing already. `note` takes lines for
        the node's log. `default_config` holds until a partition's own is known (`PartitionLog.config` may be set).
        """
        self._disk = disk
        self._clock = clock
        self._note = note
        self.default_config = default_config
        self.directories = [LogDirectory(disk, path, directory_id) for path, directory_id in directories]
        self.logs: dict[TopicPartition, PartitionLog] = {}
        self._home: dict[TopicPartition, LogDirectory] = {}
        self.doomed = DeletionQueue(disk, clock, note)
        self.mender = IndexMender(disk, note)
        self.rolled = RolledLogs()
        self._opener = LogOpener(
            disk,
            clock,
            self.doomed.add_files,
            randrange,
            note,
            IndexCache(),
            self.mender.report,
            self.rolled.add,
        )
        self.futures = FutureLogs(disk, self._opener, self.doomed)
        self.predecessors = Predecessors(disk)
        self.checkpoints = Checkpoints(self)
        self._refused: dict[TopicPartition, tuple[LogDirectory, str]] = {}
        """Partitions that lie here and cannot be opened, or are withheld, with the paths of their files."""
        self._rivals: list[tuple[PartitionLog, LogDirectory]] = []
        """Found at the start beside a log of the same name and another topic id."""
        self._rival_futures: list[tuple[PartitionLog, LogDirectory]] = []
        self.preferred: dict[TopicPartition, LogDirectory] = {}
        """Where logs that are yet to be made were asked to lie (AlterReplicaLogDirs). In memory only, as in Kafka."""
        self.cordoned: frozenset[Uuid] = frozenset()
        """Directories that get no new log of their own accord (cordoned.log.dirs)."""
        self.spares_full: Callable[[], bool] = lambda: True
        """Whether a directory that takes no writes goes on being read, for nobody else has what is in it."""
        self.on_offline: Callable[[Sequence[TopicPartition]], None] = lambda names: None
        """Told which partitions a failed directory took along."""
        self.on_directory_failed: Callable[[LogDirectory], None] = lambda directory: None
        """Told once of each directory that failed, after `on_offline`."""
        self.on_stale: Callable[[], None] = self.checkpoint_now
        """Told when checkpoints may say too much: a log went, or was cut back. They are to be written anew soon."""
        self.closed = False
        self.previous_broker_epoch = -1
        """Of the clean stop before this start; -1 when there was none in every directory."""

    # -- start and stop

    def load_all(self) -> dict[TopicPartition, PartitionLog]:
        """Open every partition found, one after another; for threads see `begin_load`. Blocks."""
        tasks = self.begin_load()
        for task in tasks:
            task.run()
        self.finish_load(tasks)
        return self.logs

    def begin_load(self) -> list[LoadTask]:
        """A task for each partition directory; also takes the clean marks and lists what is to be deleted."""
        tasks: list[LoadTask] = []
        epochs: list[int] = []
        for directory in self._online():
            try:
                found = look_into(self._disk, directory, self._open_found, self._note)
            except OSError as error:
                self.fail_directory(directory, error)
                continue
            tasks += found.tasks
            epochs.append(found.broker_epoch)
            for path in found.doomed:
                self.doomed.add_directory(path, self.default_config.file_delete_delay_ms)
        self.previous_broker_epoch = agreed_epoch(epochs)
        return tasks

    def finish_load(self, tasks: Iterable[LoadTask]) -> None:
        """Take over what the tasks opened; a directory that refused one goes offline. What lacks room is offline alone: others can
        be read."""
        for task in tasks:
            if isinstance(task.result, PartitionLog) and task.directory.online:
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

    def _take_current(self, log: PartitionLog, directory: LogDirectory) -> None:
        """Two of one topic are left by a crash in a change of places, or by a directory that came back. Kafka does not start then.
        Each holds what it has said it holds, so the one that has come further is the partition's. What the other one has alone is
        kept: it may be asked for."""
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
        self, log: PartitionLog, home: LogDirectory, other: PartitionLog, origin: LogDirectory
    ) -> None:
        """Of two logs of a partition the other one goes, which may have on its disk what this one has in the page cache alone."""
        suffix = suffix_of_second(other, log)
        log.is_anchored = False
        try:
            log.flush()
        except OSError as error:
            other.release()
            self.fail_directory(home, error)
        else:
            self._let_go(other, origin, suffix)

    def _take_future(self, log: PartitionLog, directory: LogDirectory) -> None:
        """A second one was not wanted any more when its directory failed, or the power went."""
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
        """Leave a partition alone that cannot be opened. The controller must not count on what this broker had when it stopped."""
        self.previous_broker_epoch = NO_EPOCH
        task.directory.has_unopened = True
        if not task.is_future:
            self._refused[task.name] = task.directory, task.path
        cause = reason if isinstance(reason, EXPECTED_DAMAGE) else "".join(traceback.format_exception(reason))
        self._note(f"{task.path} cannot be opened and is offline, the other partitions are served: {cause}")

    def _set_unknown_aside(self, task: LoadTask, unknown: TopicUnknown) -> None:
        """A crash left a directory before its topic's id was durable, or the file was lost since. Nobody can tell whose records
        these are, so they are nobody's; and the controller must not count on what this broker had when it stopped."""
        if not task.directory.online:
            return
        suffix = DELETE_SUFFIX if unknown.is_empty else STRAY_SUFFIX
        target = self._set_aside(task.directory, task.path, task.name, suffix)
        if target is not None and unknown.is_empty:
            self.doomed.add_directory(target, 0)
        elif target is not None:
            self._note(
                f"{task.path} does not tell its topic's id ({unknown}): it is kept as {target}, a stray"
            )
            self.previous_broker_epoch = NO_EPOCH

    def checkpoint_now(self) -> None:
        """Every checkpoint in which something has moved. Blocks."""
        self._carry_out(self.checkpoints.plan(*FILES))

    def _carry_out(self, plan: Plan | None) -> None:
        if plan is not None:
            plan.run()
            plan.finish()

    def settle_rivals(self, topic_ids: Callable[[str], Uuid | None]) -> None:
        """Directories have logs of one name: one of them could not let go of a deleted topic's. The metadata's topic stays, and of
        two logs of it the one that has come further."""
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
        self, rivals: list[tuple[PartitionLog, LogDirectory]], topic_ids: Callable[[str], Uuid | None]
    ) -> Iterator[tuple[PartitionLog, LogDirectory]]:
        """The others are strays."""
        found = list(rivals)
        rivals.clear()
        for log, directory in found:
            if not directory.online:
                continue
            if topic_ids(log.topic_partition.topic) == log.topic_id:
                yield log, directory
            else:
                self._let_go(log, directory, STRAY_SUFFIX)

    def _open_found(self, task: LoadTask) -> PartitionLog:
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

    def _make(
        self, directory: LogDirectory, name: TopicPartition, topic_id: Uuid, config: LogConfig
    ) -> PartitionLog:
        path = f"{directory.path}/{partition_directory(name)}"
        if not self.may_make(name):
            raise LogRefused(
                ErrorCode.KAFKA_STORAGE_ERROR, f"the checkpoints still speak of another log of {name}"
            )
        log = self._opener.open_log(path, name, topic_id, config, clean=True)
        self._adopt(log, directory)
        self.preferred.pop(name, None)
        return log

    def shut_down(self, broker_epoch: int) -> None:
        """Flush and close all logs, write the checkpoints and, per directory where all went well, the clean mark. Blocks."""
        self.closed = True
        for log in self.predecessors.successors():
            self._retire_now(log)
        self.doomed.remove(self.doomed.take_due(None))
        for directory in self.directories:
            if directory.online:
                try:
                    self._close_directory(directory, broker_epoch)
                except OSError as error:
                    directory.failure = error
                    self._note(f"{directory.path} was not closed cleanly: {error}")
        self.logs.clear()
        self._home.clear()
        self.futures.logs.clear()

    def _retire_now(self, log: PartitionLog) -> None:
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

    # -- partitions

    def get(self, topic_partition: TopicPartition) -> PartitionLog | None:
        return self.logs.get(topic_partition)

    def get_or_create(
        self,
        topic_partition: TopicPartition,
        topic_id: Uuid,
        config: LogConfig,
        directory_id: Uuid | None = None,
        *,
        is_new: bool = True,
    ) -> PartitionLog:
        """The partition's log; a new one goes into the given directory if it is online, else into the one with the fewest
        partitions.

        Raises LogRefused KAFKA_STORAGE_ERROR when no directory serves, INCONSISTENT_TOPIC_ID when another topic of this
        name left the log. One that is not new is not made while a directory is offline: it may lie there.
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

    def _make_whole(
        self, directory: LogDirectory, name: TopicPartition, topic_id: Uuid, config: LogConfig
    ) -> PartitionLog:
        """Leaves nothing of a log that could not be made: it is tried again, and each try would leave a stray."""
        try:
            return self._make(directory, name, topic_id, config)
        except OSError:
            path = f"{directory.path}/{partition_directory(name)}"
            target = f"{directory.path}/{marked_name(name, DELETE_SUFFIX)}"
            with contextlib.suppress(OSError):
                self._disk.rename(path, target)
                self.doomed.add_directory(target, 0)
            raise

    def _has_copy(self, directory: LogDirectory, name: TopicPartition, topic_id: Uuid) -> bool:
        """Whether a future log lies there whose current one is gone with its directory: no directory has two of one partition.
        That of another topic goes."""
        if self.futures.home(name) is not directory:
            return False
        if self.futures.logs[name].topic_id == topic_id:
            return True
        self.discard_future(name)
        return False

    def _clear_the_way(self, directory: LogDirectory, name: TopicPartition) -> None:
        """What lies under the name of a log that is about to be made is another topic's, or half of one: it could not be renamed,
        or not be made, when the disk took no writes."""
        path = f"{directory.path}/{partition_directory(name)}"
        if self._disk.exists(path):
            target = f"{directory.path}/{marked_name(name, STRAY_SUFFIX)}"
            self._note(f"{path} is of no replica here: it is {target} from now on")
            self._disk.rename(path, target)

    def may_have(self, topic_partition: TopicPartition) -> bool:
        """Whether the log is here, or may lie in a directory that is offline."""
        return (
            topic_partition in self.logs
            or topic_partition in self._refused
            or len(self._online()) < len(self.directories)
        )

    def withhold(self, name: TopicPartition, reason: str) -> None:
        """Leave alone until the next start what was opened and is not to be served."""
        log, directory = self.logs.pop(name), self._home.pop(name)
        log.release()
        directory.has_unopened = True
        self._refused[name] = directory, log.directory
        self._note(f"{log.directory} is not served: {reason}")

    def refused_in(self, directory: LogDirectory) -> list[TopicPartition]:
        """Those of a directory that could not be opened."""
        return [name for name, (home, _) in self._refused.items() if home is directory]

    def set_refused_aside(self, is_wanted: Callable[[TopicPartition], bool]) -> None:
        """Those that could not be opened and are of no replica here."""
        for name in [name for name in self._refused if not is_wanted(name)]:
            self._set_refused_aside(name)

    def _set_refused_aside(self, name: TopicPartition) -> None:
        """Another log is about to come by its name, or none at all."""
        directory, path = self._refused.pop(name, (None, ""))
        if directory is not None and directory.online:
            target = self._set_aside(directory, path, name, STRAY_SUFFIX)
            if target is not None:
                self._note(f"{path}, which could not be opened, is {target} from now on")
            self.on_stale()

    def may_make(self, topic_partition: TopicPartition) -> bool:
        """False while the checkpoints speak of a log of that name that has gone, or cannot be opened: `clear_names` first."""
        return topic_partition not in self._refused and not self.checkpoints.are_stale(topic_partition)

    def clear_names(self, names: Iterable[TopicPartition]) -> Plan | None:
        """What has logs of these names made; None when nothing stands in their way."""
        names = list(names)
        for name in names:
            self._set_refused_aside(name)
        return self.checkpoints.without(names)

    def when_true(self, log: Log) -> Deferred[None]:
        """There once no checkpoint says more of a log than is true: it was cut back."""
        return self.checkpoints.when_true(log)

    def prepare(
        self, topic_partition: TopicPartition, topic_id: Uuid, directory_id: Uuid | None = None
    ) -> Preparation:
        """What makes the files of a new log aside; run it in a thread, then `place` or `discard` it. LogRefused."""
        directory = self._directory_for_new(directory_id, topic_partition)
        return Preparation(self._disk, directory, topic_partition, topic_id)

    def place(self, prepared: Preparation, config: LogConfig) -> bool:
        """The prepared files become the partition's log. If they cannot they go, and `get_or_create` is to make it."""
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
        """Its partition went, or its log was wanted sooner."""
        self.doomed.add_directory(prepared.path, 0)

    def directory_of(self, topic_partition: TopicPartition) -> LogDirectory | None:
        return self._home.get(topic_partition)

    def delete_later(self, topic_partition: TopicPartition) -> None:
        """Rename the directory now, remove it after file.delete.delay.ms. What cannot be renamed is a stray at the next start."""
        self.discard_future(topic_partition)
        self._retire(topic_partition, DELETE_SUFFIX)

    def mark_stray(self, topic_partition: TopicPartition) -> None:
        """The metadata knows nothing of this log: rename its directory to `-stray` and drop it from service."""
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
        """What it is called then; None when the disk refuses, and the directory may be offline."""
        target = f"{directory.path}/{marked_name(name, suffix)}"
        try:
            self._disk.rename(path, target)
        except OSError as error:
            self.directory_failed(directory, error)
            return None
        return target

    # -- moves between directories

    def begin_future(self, name: TopicPartition, directory: LogDirectory) -> PartitionLog:
        """An empty log in another directory that is to take the place of this one. LogRefused KAFKA_STORAGE_ERROR."""
        if len(self._online()) < len(self.directories):
            # There may be a future log of it in the one that is offline.
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

    def promote_future(self, name: TopicPartition) -> PartitionLog:
        """The future log becomes the current one. The log that was keeps its name until `retire_predecessor`.

        Raises LogRefused KAFKA_STORAGE_ERROR: nothing has changed, but that the directory to blame may be offline.
        """
        home, current, origin = self.futures.home(name), self.logs.get(name), self._home.get(name)
        assert home is not None
        if current is not None:
            # Not later: under a name that is not durable it would not move.
            self.futures.logs[name].set_high_watermark(current.high_watermark)
        try:
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
        """The log that another one had before this one, which is durable by now, is to go after file.delete.delay.ms. None when
        there is none, or its directory refuses: `predecessors` tells which."""
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
        return Retirement(self, self._disk, directory, path, old.config.file_delete_delay_ms)

    def discard_future(self, name: TopicPartition) -> None:
        """It is not wanted any more."""
        home = self.futures.home(name)
        if home is None:
            return
        try:
            self.futures.discard(name)
        except OSError as error:
            self.directory_failed(home, error)
        self.on_stale()

    def future_failed(self, name: TopicPartition, error: OSError) -> None:
        """As `partition_failed`, of its future log."""
        directory = self.futures.home(name)
        if directory is not None:
            self.directory_failed(directory, error)

    def log_dirs(self) -> list[LogDirStatus]:
        result = []
        for directory in self.directories:
            total = usable = -1
            if directory.online:
                try:
                    total, usable = self._disk.usage(directory.path)
                except OSError as error:
                    self.directory_failed(directory, error)
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

    def partition_failed(self, topic_partition: TopicPartition, error: OSError) -> None:
        """An operation on a partition's files failed: see `directory_failed`."""
        directory = self._home.get(topic_partition)
        if directory is not None:
            self.directory_failed(directory, error)

    def log_failed(self, log: Log, error: OSError) -> None:
        """As `partition_failed`, while the log is that partition's: that the files of a deleted topic are gone says nothing of the
        directory, nor of the topic made anew."""
        if self.get(log.topic_partition) is log:
            self.partition_failed(log.topic_partition, error)

    def log_damaged(self, log: Log, damage: Exception, consequence: str) -> None:
        """What lies in one of its files is no batch or no index: nothing that the directory is to blame for."""
        self._note(f"{log.topic_partition} is damaged on disk, {consequence}: {damage}")

    def directory_failed(self, directory: LogDirectory, error: OSError) -> None:
        """Take the directory offline, unless the error says nothing about what is in it: a full disk can still be read.

        After a failed sync there are bytes which may not be on the disk, after a change that stopped half way others than are known
        here: the next start looks at them again.
        """
        if not self.is_short(error):
            self.fail_directory(directory, error)
            return
        now_ms = self._clock.monotonic_ms()
        if directory.noted_ms is None or now_ms - directory.noted_ms >= NOTE_AGAIN_MS:
            directory.noted_ms = now_ms
            self._note(f"log directory {directory.path} takes no writes: {error}")

    def is_short(self, error: BaseException | None) -> bool:
        """Whether what was refused may be done later: it takes no directory offline."""
        if not isinstance(error, OSError) or isinstance(error, (SyncFailed, HalfDone)):
            return False
        return error.errno in SHORTAGES or (error.errno in FULL_ERRORS and self.spares_full())

    def fail_directory(self, directory: LogDirectory, error: OSError) -> None:
        """Take a directory offline with all its partitions, until the next start."""
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
            # It may have what this one has not made durable.
            self.predecessors.forget(name)
        self.checkpoints.look()
        if lost:
            self.on_offline(lost)
        if fails_now:
            self.on_directory_failed(directory)

    def _adopt(self, log: PartitionLog, directory: LogDirectory) -> None:
        self.logs[log.topic_partition] = log
        self._home[log.topic_partition] = directory
        if log.recovery_point < log.segments[-1].base_offset:
            # A kill came before they were synced.
            self.rolled.add(log)

    def _online(self) -> list[LogDirectory]:
        return [directory for directory in self.directories if directory.online]

    def log_in(self, directory: LogDirectory, name: TopicPartition) -> PartitionLog | None:
        """The current log, the future one or the one before it, whichever lies there."""
        if self._home.get(name) is directory:
            return self.logs[name]
        if self.predecessors.home(name) is directory:
            return self.predecessors.get(name)
        return self.futures.logs[name] if self.futures.home(name) is directory else None

    def has(self, log: Log) -> bool:
        name = log.topic_partition
        return self.logs.get(name) is log or self.futures.logs.get(name) is log

    def logs_in(self, directory: LogDirectory) -> dict[TopicPartition, PartitionLog]:
        """Every current log that lies in a directory; a copy."""
        return {name: log for name, log in self.logs.items() if self._home[name] is directory}

    def every_log_in(self, directory: LogDirectory) -> dict[TopicPartition, PartitionLog]:
        """Future logs as well, and those before the current ones: the checkpoints speak of all, and no directory has two of one
        partition."""
        return self.predecessors.within(directory) | self.logs_in(directory) | self.futures.within(directory)

    def directory_at(self, path: str) -> LogDirectory | None:
        """Of log.dirs, online or not."""
        return next((each for each in self.directories if each.path == path), None)

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
        # The controller gives a broker whose directories are all cordoned nothing; what comes all the same has to lie somewhere.
        online = [each for each in online if each.directory_id not in self.cordoned] or online
        if len(online) == 1:
            return online[0]
        counts = Counter(directory.path for directory in self._home.values())
        return min(online, key=lambda directory: counts[directory.path])
