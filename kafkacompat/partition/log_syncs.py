"""Syncs of logs that requests and followers wait for: flush.messages (Flushes), and new logs (Anchoring).

They run in workers of the log directory, so that neither the loop nor another directory waits for a disk. A failed sync
gives KAFKA_STORAGE_ERROR. Requests and images are unknown here.
"""

from __future__ import annotations

import logging
import posixpath
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from kafkacompat.deferred import Deferred
from kafkacompat.log.flush import anchor
from kafkacompat.wire.errors import ErrorCode

if TYPE_CHECKING:
    from kafkacompat.ids import TopicPartition
    from kafkacompat.partition.partition import Partition
    from kafkacompat.ports import Log, LogFlush, PlacedWorkers, Timers

logger = logging.getLogger(__name__)

ANCHORED_AT_ONCE = 64
"""Logs in one job. With a journaling file system the first sync writes the data of all of them, and the others have
little to do."""
RETRY_MS = 1000
"""Delay after a job that could not start."""


class Flushes:
    """flush.messages: syncs that produce requests wait for, one at a time per partition.

    Kafka syncs inside the append. Here the append stays in the loop's thread, and the produce request that reached the
    limit is answered after a sync that covers it. The client gets the same guarantee, and no other request waits.
    """

    def __init__(
        self,
        workers: PlacedWorkers,
        failed: Callable[[Log, OSError], None],
        anchoring: Mapping[TopicPartition, Deferred[ErrorCode]],
    ) -> None:
        """`failed` is called with syncs that the disk refused. `anchoring` has the syncs of new logs, which produce
        requests wait for as well. A sync started here covers the same files."""
        self._anchoring = anchoring
        self._workers = workers
        self._failed = failed
        self._running: dict[TopicPartition, Deferred[ErrorCode]] = {}
        self._next: dict[TopicPartition, tuple[Partition, Deferred[ErrorCode]]] = {}
        """Syncs requested while one runs. Such a sync starts after it, and so covers everything appended until then.
        The core is that of the last request, because the running sync may be for a deleted topic of the same name."""

    def appended(self, core: Partition, records: int) -> None:
        """Count records towards the limit. Past it, a sync starts."""
        core.unflushed += records
        if core.unflushed < core.log.config.flush_messages:
            return
        core.unflushed = 0
        if core.topic_partition in self._running:
            _, answer = self._next.get(core.topic_partition) or (core, Deferred())
            self._next[core.topic_partition] = core, answer
        else:
            self._start(core, Deferred())

    def _start(self, core: Partition, answer: Deferred[ErrorCode]) -> None:
        self._running[core.topic_partition] = answer
        log = core.log
        flush: LogFlush | None = None
        try:
            flush = log.begin_flush()
            job = flush.run
        except Exception as error:
            # Not answered here, because the produce request does not wait for it yet.
            job = partial(_raise, error)
        workers = self._workers.at(posixpath.dirname(log.directory))
        workers.submit(job).on_done(partial(self._finished, core, log, flush, answer))

    def _finished(
        self,
        core: Partition,
        log: Log,
        flush: LogFlush | None,
        answer: Deferred[ErrorCode],
        done: Deferred[None],
    ) -> None:
        if core.log is not log:
            # The log has moved to another directory. Its records must be durable there.
            self._start(core, answer)
            return
        error = ErrorCode.NONE
        try:
            done.result()
        except Exception as failure:  # a disk error, or too many jobs: the sync is a guarantee
            error = ErrorCode.KAFKA_STORAGE_ERROR
            if isinstance(failure, OSError):
                self._failed(log, failure)
            else:
                logger.error("flush of %s failed: %s", core.topic_partition, failure)
        else:
            log.finish_flush(flush)
        del self._running[core.topic_partition]
        following = self._next.pop(core.topic_partition, None)
        if following is not None:
            self._start(*following)
        answer.resolve(error)

    def when_flushed(
        self, partitions: Iterable[TopicPartition]
    ) -> Deferred[Mapping[TopicPartition, ErrorCode]] | None:
        """The result (NONE or an error) of each partition with a sync to wait for. None if no partition has one."""
        if not self._running and not self._anchoring:
            return None
        pending: dict[TopicPartition, Deferred[ErrorCode]] = {}
        for name in partitions:
            following = self._next.get(name)
            flush = self._running.get(name) if following is None else following[1]
            if flush is None:
                flush = self._anchoring.get(name)
            if flush is not None:
                pending[name] = flush
        if not pending:
            return None
        errors: dict[TopicPartition, ErrorCode] = {}
        answer: Deferred[Mapping[TopicPartition, ErrorCode]] = Deferred()

        def note(name: TopicPartition, flush: Deferred[ErrorCode]) -> None:
            errors[name] = flush.result()
            if len(errors) == len(pending):
                answer.resolve(errors)

        for name, flush in pending.items():
            flush.on_done(partial(note, name))
        return answer


def _raise(error: Exception) -> None:
    raise error


class Anchoring:
    """Makes new logs durable, many in one job: the file with the topic id, the directory, and its name in the log
    directory.

    Before that a power loss would leave records that belong to no topic. So nothing in such a log is committed (the log
    itself keeps its high watermark), produce requests wait, and a follower does not fetch yet. Each job is for one log
    directory, and a slow one does not delay others. Bounded by the partitions of the image. Uses one worker of each log
    directory at a time.
    """

    def __init__(
        self,
        workers: PlacedWorkers,
        timers: Timers,
        failed: Callable[[Log, OSError], None],
        serves: Callable[[Partition], bool],
        anchored: Callable[[Partition], None],
    ) -> None:
        """`failed` is called with syncs that the disk refused, `anchored` with each served partition whose log is now
        durable."""
        self._workers = workers
        self._timers = timers
        self._failed = failed
        self._serves = serves
        self._anchored = anchored
        self._waiting: dict[str, dict[Partition, Deferred[ErrorCode]]] = {}
        """By log directory. An entry stays while a job runs or a timer will start one."""
        self.answers: dict[TopicPartition, Deferred[ErrorCode]] = {}
        """The results that produce requests wait for."""

    def add(self, core: Partition) -> None:
        place = posixpath.dirname(core.log.directory)
        waiting = self._waiting.get(place)
        if core.log.is_anchored or (waiting is not None and core in waiting):
            return
        if waiting is None:
            waiting = self._waiting[place] = {}
            # Start later, so that one job covers all logs of the same image.
            self._begin_later(place, 0)
        answer: Deferred[ErrorCode] = Deferred()
        core.is_being_anchored = True
        waiting[core] = self.answers[core.topic_partition] = answer

    def _begin_later(self, place: str, delay_ms: int) -> None:
        self._timers.call_after(delay_ms, partial(self._begin, place))

    def _begin(self, place: str) -> None:
        waiting = self._waiting[place]
        batch = list(islice(waiting.items(), ANCHORED_AT_ONCE))
        if not batch:
            del self._waiting[place]
            return
        for core, _ in batch:
            del waiting[core]
        logs = [core.log for core, _ in batch]
        flushes = [log.begin_anchoring() for log in logs]
        job = self._workers.at(place).submit(partial(anchor, flushes))
        job.on_done(partial(self._ended, place, batch, logs, flushes))

    def _ended(
        self,
        place: str,
        batch: Sequence[tuple[Partition, Deferred[ErrorCode]]],
        logs: Sequence[Log],
        flushes: Sequence[LogFlush],
        done: Deferred[list[OSError | None]],
    ) -> None:
        try:
            failures = done.result()
        except Exception as error:  # too many jobs, or a bug in kafkacompat
            logger.error("no worker made new logs durable: %s", error)
            self._waiting[place].update(batch)
            self._begin_later(place, RETRY_MS)
            return
        delay_ms = 0
        for (core, answer), log, flush, failure in zip(batch, logs, flushes, failures, strict=True):
            code = ErrorCode.NONE
            core.is_being_anchored = False
            if failure is None:
                log.finish_flush(flush)
                if core.log is log and self._serves(core):
                    self._anchored(core)
            else:
                self._failed(log, failure)
                code = ErrorCode.KAFKA_STORAGE_ERROR
            if self.answers.get(core.topic_partition) is answer:
                del self.answers[core.topic_partition]
            if failure is not None and self._serves(core):
                delay_ms = RETRY_MS
                self.add(core)
            answer.resolve(code)
        self._begin_later(place, delay_ms)
