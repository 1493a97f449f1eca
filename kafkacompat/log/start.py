"""The logs that a start finds: opened, or renamed if their topic is unknown. Two logs of one name are settled.

Of two logs of one partition the one that is further ahead stays. Files that may have records are never removed.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from kafkacompat.ids import NO_EPOCH, TopicPartition, Uuid
from kafkacompat.log.directory import (
    DELETE_SUFFIX,
    STRAY_SUFFIX,
    LogDirectory,
)
from kafkacompat.log.homes import EXPECTED_DAMAGE, LogHomes
from kafkacompat.log.loading import LoadTask, agreed_epoch, is_of_the_directory, look_into
from kafkacompat.log.log import PartitionLog
from kafkacompat.log.opening import TopicUnknown
from kafkacompat.log.predecessors import age_of, suffix_of_second

if TYPE_CHECKING:
    pass

Note = Callable[[str], None]


class StartingLogs(LogHomes):
    """LogHomes with the loading of logs at a start."""

    def load_all(self) -> dict[TopicPartition, PartitionLog]:
        """Open every partition found, one after another. For threads see `begin_load`. Blocks."""
        tasks = self.begin_load()
        for task in tasks:
            task.run()
        self.finish_load(tasks)
        return self.logs

    def begin_load(self) -> list[LoadTask]:
        """A task for each partition directory. Also takes the clean-shutdown marks and lists what is to be deleted."""
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

    def finish_load(self, tasks: Iterable[LoadTask]) -> None:
        """Take over what the tasks opened. A directory that refused a log goes offline. A log refused for lack of
        space is offline alone, because others can be read."""
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
        self, log: PartitionLog, home: LogDirectory, other: PartitionLog, origin: LogDirectory
    ) -> None:
        """Keep `log` and retire `other`. `log` is flushed first, because `other` may have on its disk what `log` has
        in the page cache only."""
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
            self.doomed.add_directory(target, 0)
        elif target is not None:
            self._note(
                f"{task.path} does not tell its topic's id ({unknown}): it is kept as {target}, a stray"
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
        self, rivals: list[tuple[PartitionLog, LogDirectory]], topic_ids: Callable[[str], Uuid | None]
    ) -> Iterator[tuple[PartitionLog, LogDirectory]]:
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
