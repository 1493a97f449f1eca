"""Every partition's log in every log directory: ports.LogManager.

LogManager creates, deletes and closes logs. homes.py maps logs to directories, start.py loads them, moves.py moves
them between directories. Images, leaders and timers are unknown here: the shell calls the periodic functions and runs
the blocking parts (marked so) in worker threads.
"""

from __future__ import annotations

import contextlib
import errno
from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from kafkacompat.ids import TopicPartition, Uuid
from kafkacompat.log.checkpointing import FILES
from kafkacompat.log.directory import (
    DELETE_SUFFIX,
    STRAY_SUFFIX,
    LogDirectory,
    partition_directory,
)
from kafkacompat.log.log import PartitionLog
from kafkacompat.log.moves import MovingLogs
from kafkacompat.log.preparation import Preparation
from kafkacompat.log.soundness import DAMAGE
from kafkacompat.ports import LogRefused
from kafkacompat.wire.errors import ErrorCode

if TYPE_CHECKING:
    from kafkacompat.config import LogConfig
    from kafkacompat.deferred import Deferred
    from kafkacompat.ports import Log, Plan

Note = Callable[[str], None]


class LogManager(MovingLogs):
    """All logs of a node."""

    def get_or_create(
        self,
        topic_partition: TopicPartition,
        topic_id: Uuid,
        config: LogConfig,
        directory_id: Uuid | None = None,
        *,
        is_new: bool = True,
    ) -> PartitionLog:
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
        """Rename a directory that has the name of a log about to be created. It belongs to another topic, or was left
        incomplete, when the disk took no writes."""
        path = f"{directory.path}/{partition_directory(name)}"
        if self._disk.exists(path):
            target = directory.marked(name, STRAY_SUFFIX)
            self._note(f"{path} is of no replica here: it is {target} from now on")
            self._disk.rename(path, target)

    def _make_whole(
        self, directory: LogDirectory, name: TopicPartition, topic_id: Uuid, config: LogConfig
    ) -> PartitionLog:
        """Create a log, and remove its files if that fails. The creation is retried, and each retry would leave a
        stray directory."""
        try:
            return self._make(directory, name, topic_id, config)
        except OSError:
            path = f"{directory.path}/{partition_directory(name)}"
            target = directory.marked(name, DELETE_SUFFIX)
            with contextlib.suppress(OSError):
                self._disk.rename(path, target)
                self.doomed.add_directory(target, 0)
            raise

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
        counts = Counter(directory.path for directory in self._home.values())
        return min(online, key=lambda directory: counts[directory.path])

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
        self.doomed.add_directory(prepared.path, 0)

    def may_have(self, topic_partition: TopicPartition) -> bool:
        """Whether the log is here, or may be in an offline directory."""
        return (
            topic_partition in self.logs
            or topic_partition in self._refused
            or len(self._online()) < len(self.directories)
        )

    def withhold(self, name: TopicPartition, reason: str) -> None:
        """Stop serving an opened log until the next start."""
        log, directory = self.logs.pop(name), self._home.pop(name)
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
                self._note(f"{path}, which could not be opened, is {target} from now on")
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
