"""Makes new logs durable, many in one job: the file with the topic id, the directory, and its name in the log
directory.

Before that a power loss would leave records that belong to no topic. So nothing in such a log is committed (the log
itself keeps its high watermark), produce requests wait, and a follower does not fetch yet. Each job is for one log
directory, and a slow one does not delay others. Requests and images are unknown here.
"""

from __future__ import annotations

import logging
import posixpath
from collections.abc import Callable, Sequence
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


class Anchoring:
    """Bounded by the partitions of the image. Uses one worker of each log directory at a time."""

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
