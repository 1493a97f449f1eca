"""Syncs of logs that requests and followers wait for: flush.messages (Flushes), and new logs (NewLogSyncs).

They run in workers of the log directory, so that neither the loop nor another directory waits for a disk. A failed sync
gives KAFKA_STORAGE_ERROR. Requests and images are unknown here.
"""

from __future__ import annotations

import logging
import posixpath
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from kafkacompat.deferred import Deferred
from kafkacompat.faults import report
from kafkacompat.log.flush import make_durable
from kafkacompat.partition.delayed_operations import (
    ANSWER_US,
    DelayedOperation,
    DelayedOperationPurgatory,
)
from kafkacompat.partition.purgatories import PARTITION_US
from kafkacompat.ports import LogRefused, passes
from kafkacompat.records.batch import BatchCorrupt
from kafkacompat.wire.errors import ErrorCode

if TYPE_CHECKING:
    from kafkacompat.ids import TopicPartition
    from kafkacompat.partition.delayed_operations import TurnBudget
    from kafkacompat.partition.partition import Partition
    from kafkacompat.partition.purgatories import Errors
    from kafkacompat.partition.services import PartitionServices
    from kafkacompat.ports import LogFlush

logger = logging.getLogger(__name__)

Key = tuple[str, int]

ANCHORED_AT_ONCE = 64
"""Logs in one job. With a journaling file system the first sync writes the data of all of them, and the others have
little to do."""
RETRY_MS = 1000
"""Delay after a job that could not start."""
LEAST_MS = 1000
"""A produce request that gives replicas less time than this waits so long for a sync: it may have asked for no replicas."""


class DelayedFlush(DelayedOperation):
    """A request that waits for syncs, or for the timeout."""

    __slots__ = ("left", "pending")

    answer: Deferred[Errors]

    def __init__(self, pending: Mapping[TopicPartition, Deferred[ErrorCode]]) -> None:
        super().__init__()
        self.pending = pending
        self.left = len(pending)

    @property
    def awaited(self) -> int:
        return self.left

    def expire(self) -> None:
        self.cost_us = ANSWER_US + PARTITION_US * len(self.pending)
        self.answer.resolve(
            {
                name: flush.result() if flush.done else ErrorCode.REQUEST_TIMED_OUT
                for name, flush in self.pending.items()
            }
        )


class Flushes:
    """flush.messages: syncs that produce requests wait for, one at a time per partition. That is a core here, because a topic
    that was made anew has the name of a deleted one, which may still be synced.

    Kafka syncs inside the append. Here the append stays in the loop's thread, and the produce request that reached the
    limit is answered after a sync that covers it. The client gets the same guarantee, and no other request waits.
    """

    def __init__(
        self,
        services: PartitionServices,
        cores: Mapping[Key, Partition],
        new_log_syncs: Mapping[TopicPartition, Deferred[ErrorCode]],
        budget: TurnBudget,
    ) -> None:
        """`cores` is the manager's table. `new_log_syncs` has the syncs of new logs, which produce requests wait for as well. A
        sync started here covers the same files. `budget`: of all who are woken."""
        self._services = services
        self._cores = cores
        self._new_log_syncs = new_log_syncs
        self._running: dict[Partition, Deferred[ErrorCode]] = {}
        self.awaited = self._running, new_log_syncs
        """While both are empty `when_flushed` has nothing to wait for."""
        self._next: dict[Partition, Deferred[ErrorCode]] = {}
        """Syncs requested while one runs. Such a sync starts after it, and so covers everything appended until then."""
        self._parked: DelayedOperationPurgatory[DelayedFlush] = DelayedOperationPurgatory(
            services.clock, services.timers, budget
        )
        """By sync. A disk may stand still while clients send their requests again and again."""
        self._watched: set[Deferred[ErrorCode]] = set()
        """Syncs that tell `_flushed`."""

    def appended(self, core: Partition, records: int) -> None:
        """Count records towards the limit. Past it, a sync starts."""
        core.unflushed += records
        if core.unflushed < core.log.config.flush_messages:
            return
        core.unflushed = 0
        if core in self._running:
            if core not in self._next:
                self._next[core] = Deferred()
        else:
            answer: Deferred[ErrorCode] = Deferred()
            self._running[core] = answer
            self._services.tasks.start(f"flush of {core.topic_partition}", self._flush(core, answer))

    async def _flush(self, core: Partition, answer: Deferred[ErrorCode]) -> None:
        """Sync the partition's log as long as somebody asks for it."""
        while True:
            try:
                error = await self._sync(core)
            except Exception as bug:
                report(f"flush of {core.topic_partition}", bug)
                error = ErrorCode.KAFKA_STORAGE_ERROR
            del self._running[core]
            following = self._next.pop(core, None)
            if following is None:
                answer.resolve(error)
                return
            self._running[core] = following
            answer.resolve(error)
            answer = following

    async def _sync(self, core: Partition) -> ErrorCode:
        while True:
            log = core.log
            workers = self._services.workers.log_sync.at(posixpath.dirname(log.directory))
            flush: LogFlush | None = None
            failure: Exception | None = None
            try:
                if not self._services.logs.has(log):
                    # Under its paths another topic may have files, and a sync completes those of the indexes first.
                    raise LogRefused(ErrorCode.KAFKA_STORAGE_ERROR, "the log is not served any more")
                flush = log.begin_flush()
            except Exception as error:
                failure = error
            try:
                # Also if it could not begin: the produce request does not wait for the answer yet.
                await workers.submit(_nothing if flush is None else flush.run)
            except Exception as error:  # a disk error, or too many jobs: the sync is a guarantee
                failure = failure or error
            if core.log is not log:
                continue  # moved to another directory, where its records must be durable
            if flush is not None and failure is None:
                log.finish_flush(flush)
                return ErrorCode.NONE
            if isinstance(failure, OSError):
                self._services.logs.log_failed(log, failure)
            elif isinstance(failure, (LogRefused, BatchCorrupt)) or passes(failure):
                logger.error("flush of %s failed: %s", core.topic_partition, failure)
            elif failure is not None:
                report(f"flush of {core.topic_partition}", failure)
            return ErrorCode.KAFKA_STORAGE_ERROR

    def when_flushed(
        self, partitions: Iterable[TopicPartition], timeout_ms: int, *, is_replicated: bool
    ) -> Deferred[Errors] | None:
        """The result (NONE or an error) of each partition with a sync to wait for. None if no partition has one. A sync that
        takes longer than the timeout is not waited for: REQUEST_TIMED_OUT.

        `is_replicated`: the request waits for high watermarks as well. Those do not move before a new log is durable, and
        their wait ends when another node leads.
        """
        if not any(self.awaited):
            return None
        pending: dict[TopicPartition, Deferred[ErrorCode]] = {}
        for name in partitions:
            core = self._cores.get(name)
            if core is None:  # its directory has failed since the append, in the same request
                core = next((each for each in reversed(self._running) if each.topic_partition == name), None)
            flush = None if core is None else self._next.get(core) or self._running.get(core)
            if flush is None and not is_replicated:
                flush = self._new_log_syncs.get(name)
            if flush is not None:
                pending[name] = flush
        if not pending:
            return None
        waiter = DelayedFlush(pending)
        if self._parked.is_full():
            waiter.expire()
        else:
            for flush in pending.values():
                if flush not in self._watched:
                    self._watched.add(flush)
                    flush.on_done(self._flushed)
            self._parked.park(waiter, pending.values(), max(timeout_ms, LEAST_MS))
        return waiter.answer

    def _flushed(self, flush: Deferred[ErrorCode]) -> None:
        self._watched.discard(flush)
        self._parked.for_each_on(flush, self._look_again, None)

    def _look_again(self, waiter: DelayedFlush, _: None) -> None:
        waiter.left -= 1
        if waiter.left == 0:
            self._parked.remove(waiter)
            waiter.expire()


def _nothing() -> None:
    pass


class NewLogSyncs:
    """Makes new logs durable, many in one job: the file with the topic id, the directory, and its name in the log
    directory.

    Before that a power loss would leave records that belong to no topic. So nothing in such a log is committed (the log
    itself keeps its high watermark), produce requests wait, and a follower does not fetch yet. Each job is for one log
    directory, and a slow one does not delay others. Bounded by the partitions of the image. Uses one worker of each log
    directory at a time.
    """

    def __init__(
        self,
        services: PartitionServices,
        serves: Callable[[Partition], bool],
        made_durable: Callable[[Partition], None],
    ) -> None:
        """`made_durable` is called with each served partition whose log is now durable."""
        self._services = services
        self._serves = serves
        self._made_durable = made_durable
        self._waiting: dict[str, dict[Partition, Deferred[ErrorCode]]] = {}
        """By log directory. An entry stays while a task makes logs of that directory durable."""
        self.answers: dict[TopicPartition, Deferred[ErrorCode]] = {}
        """The results that produce requests wait for."""

    def add(self, core: Partition) -> None:
        if core.log.is_durable:
            return
        core.is_being_made_durable = True
        place = posixpath.dirname(core.log.directory)
        waiting = self._waiting.get(place)
        if waiting is not None and core in waiting:
            return
        if waiting is None:
            waiting = self._waiting[place] = {}
            # If it ended, no new log of the directory would ever be durable.
            self._services.start_or_halt(f"making new logs in {place} durable", self._make_durable(place))
        answer: Deferred[ErrorCode] = Deferred()
        waiting[core] = self.answers[core.topic_partition] = answer

    async def _make_durable(self, place: str) -> None:
        waiting = self._waiting[place]
        delay_ms = 0  # one job covers all logs of the same image
        while True:
            await self._services.tasks.sleep(delay_ms)
            if not waiting:
                del self._waiting[place]
                return
            delay_ms = await self._make_some_durable(place, waiting)

    async def _make_some_durable(self, place: str, waiting: dict[Partition, Deferred[ErrorCode]]) -> int:
        """Returns the delay before the next job."""
        batch = list(islice(waiting.items(), ANCHORED_AT_ONCE))
        for core, _ in batch:
            del waiting[core]
        logs = [core.log for core, _ in batch]
        flushes = [log.begin_making_durable() for log in logs]
        try:
            failures = await self._services.workers.log_sync.at(place).submit(partial(make_durable, flushes))
        except Exception as error:
            if not passes(error):
                report("making new logs durable", error)
            logger.error("no worker made new logs durable: %s", error)
            for core, answer in batch:
                later = waiting.setdefault(core, answer)
                if later is not answer:  # it was added again meanwhile
                    later.pass_to(answer)
            return RETRY_MS
        delay_ms = 0
        for (core, answer), log, flush, failure in zip(batch, logs, flushes, failures, strict=True):
            code = ErrorCode.NONE
            core.is_being_made_durable = False
            if failure is None:
                log.finish_flush(flush)
                if core.log is log and self._serves(core):
                    self._made_durable(core)
            else:
                self._services.logs.log_failed(log, failure)
                code = ErrorCode.KAFKA_STORAGE_ERROR
            if self.answers.get(core.topic_partition) is answer:
                del self.answers[core.topic_partition]
            if failure is not None and self._serves(core):
                delay_ms = RETRY_MS
                self.add(core)
            answer.resolve(code)
        return delay_ms
