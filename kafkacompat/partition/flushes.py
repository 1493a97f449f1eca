"""flush.messages: syncs that produce requests wait for. One at a time per partition, in a worker, without blocking the
loop.

Kafka syncs inside the append. Here the append stays in the loop's thread, and the produce request that reached the
limit is answered after a sync that covers it. The client gets the same guarantee, and no other request waits. Requests
are unknown here. A failed sync gives KAFKA_STORAGE_ERROR.
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
    from kafkacompat.partition.partition import Partition
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
        except OSError as error:
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
