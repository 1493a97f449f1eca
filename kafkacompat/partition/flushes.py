"""flush.messages: syncs that produces wait for. One at a time for a partition, in a worker; the loop goes on.

Kafka syncs inside the append. Here the append stays in the loop's thread and the produce that crossed the limit is
answered when a sync that covers it is done: the promise to the client is the same, and nobody else waits. Knows
nothing of requests; a failed sync is KAFKA_STORAGE_ERROR.
"""

from __future__ import annotations

import logging
import posixpath
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from kafkacompat.deferred import Deferred
from kafkacompat.wire.errors import ErrorCode

if TYPE_CHECKING:
    from kafkacompat.ids import TopicPartition
    from kafkacompat.partition.core import PartitionCore
    from kafkacompat.ports import Log, LogFlush, PlacedWorkers

logger = logging.getLogger(__name__)


def _raise(error: OSError) -> None:
    raise error


class Flushes:
    def __init__(
        self,
        workers: PlacedWorkers,
        failed: Callable[[Log, OSError], None],
        anchoring: Mapping[TopicPartition, Deferred[ErrorCode]],
    ) -> None:
        """`failed` is told of syncs that the disk refused; `anchoring`: syncs of new logs, which produces wait for as well. A sync
        that is begun here covers the same."""
        self._anchoring = anchoring
        self._workers = workers
        self._failed = failed
        self._running: dict[TopicPartition, Deferred[ErrorCode]] = {}
        self._next: dict[TopicPartition, tuple[PartitionCore, Deferred[ErrorCode]]] = {}
        """Asked for while one runs: begins when that is done, and so covers everything appended till then. Of the core that
        asked last: the one that runs may be of a deleted topic of the same name."""

    def appended(self, core: PartitionCore, records: int) -> None:
        """Count records towards the limit; past it, a sync begins."""
        core.unflushed += records
        if core.unflushed < core.log.config.flush_messages:
            return
        core.unflushed = 0
        if core.topic_partition in self._running:
            _, answer = self._next.get(core.topic_partition) or (core, Deferred())
            self._next[core.topic_partition] = core, answer
        else:
            self._start(core, Deferred())

    def _start(self, core: PartitionCore, answer: Deferred[ErrorCode]) -> None:
        self._running[core.topic_partition] = answer
        log = core.log
        flush: LogFlush | None = None
        try:
            flush = log.begin_flush()
            job = flush.run
        except OSError as error:
            # Not answered here: the produce that is to wait for it has not asked yet.
            job = partial(_raise, error)
        workers = self._workers.at(posixpath.dirname(log.directory))
        workers.submit(job).on_done(partial(self._finished, core, log, flush, answer))

    def _finished(
        self,
        core: PartitionCore,
        log: Log,
        flush: LogFlush | None,
        answer: Deferred[ErrorCode],
        done: Deferred[None],
    ) -> None:
        if core.log is not log:
            # It has moved to another directory: its records are to be durable there.
            self._start(core, answer)
            return
        error = ErrorCode.NONE
        try:
            done.result()
        except Exception as failure:  # of the disk, or too many jobs: what is promised is a sync
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
        """NONE or the error of each partition that has a sync to wait for; None when none has."""
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
