"""Fetchers: each fetches from one leader, over one channel, its share of the partitions that this node follows.

The shell around following.py: it sends and waits, and asks for the leader's offsets when a fetch was out of range. One
request is in flight at a time. Imported only by a node that follows something. Settings: num.replica.fetchers,
replica.socket.timeout.ms.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Protocol

from kafkacompat.faults import report
from kafkacompat.meters import RateOfTotal
from kafkacompat.partition.following import (
    Fetched,
    FollowerFetches,
    PartitionFetchState,
    parts_below_start,
    take_earliest,
    take_latest,
)
from kafkacompat.partition.list_offsets import EARLIEST_LOCAL, LATEST
from kafkacompat.ports import LogRefused
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkacompat.deferred import Deferred
    from kafkacompat.partition.partition import Partition
    from kafkacompat.ports import Clock, TimerHandle, Timers
    from kafkacompat.stepping.jobs import Steps

logger = logging.getLogger(__name__)


class Channel(Protocol):
    """The parts of net.channels.Channel that are used here."""

    def request(self, message: Any, timeout_ms: int) -> Deferred[Any]: ...

    def close(self) -> None: ...


class FetcherHost(Protocol):
    """The owner of a fetcher, which it calls."""

    def fetched(self, outcome: Fetched) -> None: ...

    def storage_failed(self, core: Partition, error: OSError) -> None: ...

    def when_true(self, core: Partition) -> Deferred[None]:
        """Resolve when no checkpoint has an offset that is too high for the log."""
        ...

    def idle(self, fetcher: ReplicaFetcher) -> None:
        """The fetcher follows nothing any more and may be closed."""
        ...


class ReplicaFetcher:
    def __init__(
        self,
        node_id: int,
        leader_id: int,
        address: tuple[str, int],
        channel: Channel,
        fetches: FollowerFetches,
        host: FetcherHost,
        clock: Clock,
        timers: Timers,
        *,
        timeout_ms: int,
        backoff_ms: int,
    ) -> None:
        self.leader_id = leader_id
        self.address = address
        self.fetches = fetches
        self._node_id = node_id
        self._channel = channel
        self._host = host
        self._clock = clock
        self._timers = timers
        self._timeout_ms = timeout_ms
        self._backoff_ms = backoff_ms
        self._requests = 0
        """Fetches that were sent."""
        self._rate = RateOfTotal(clock.monotonic_ms())
        self._busy = False
        """A request is in flight."""
        self._closed = False
        self._unreachable = False
        self._timer: TimerHandle | None = None
        self._timer_at_ms = 0

    def add(self, core: Partition) -> None:
        """Fetch the partition with the next request, after all partitions of the same image were added."""
        self.fetches.add(core)
        self._wake_at(self._clock.monotonic_ms())

    def remove(self, core: Partition) -> None:
        self.fetches.remove(core)
        if not self.fetches.partitions:
            self._wake_at(self._clock.monotonic_ms())

    def cores(self) -> list[Partition]:
        return [followed.core for followed in self.fetches.partitions.values()]

    def fetch_rate(self) -> float:
        """Fetches a second, in the last 30 s or more."""
        return self._rate.read(self._clock.monotonic_ms(), self._requests)

    def close(self) -> None:
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._channel.close()

    def _wake_at(self, at_ms: int) -> None:
        if self._timer is not None:
            if self._timer_at_ms <= at_ms:
                return
            self._timer.cancel()
        self._timer_at_ms = at_ms
        self._timer = self._timers.call_at(at_ms, self._wake)

    def _wake(self) -> None:
        self._timer = None
        self._guarded(self._next)

    def _guarded(self, call: Callable[[], None]) -> None:
        """Call it, and fetch again after any error. A fetcher that stayed busy would never follow the leader again."""
        try:
            call()
        except Exception as error:
            report(f"fetching from node {self.leader_id}", error)
            now_ms = self._clock.monotonic_ms()
            self.fetches.lost(now_ms)
            self._busy = False
            if not self._closed:
                self._wake_at(now_ms + self._backoff_ms)

    def _next(self) -> None:
        if self._closed:
            return
        if not self.fetches.partitions:
            self._host.idle(self)
            return
        if self._busy:
            return
        request = self.fetches.build(self._clock.monotonic_ms())
        if request is not None:
            self._busy = True
            self._requests += 1
            self._channel.request(request, self._timeout_ms).on_done(
                lambda done: self._guarded(lambda: self._answered(done))
            )
            return
        due_ms = self.fetches.next_due_ms()
        if due_ms is not None:
            self._wake_at(due_ms)

    def _answered(self, done: Deferred[Any]) -> None:
        if self._closed:
            return
        try:
            response = done.result()
        except Exception as error:
            if not self._unreachable:
                self._unreachable = True
                logger.warning("node %d is not to be had to fetch from: %s", self.leader_id, error)
            self.fetches.lost(self._clock.monotonic_ms())
            self._done()
            return
        if self._unreachable:
            self._unreachable = False
            logger.info("node %d is to be had again", self.leader_id)
        outcome = Fetched.nothing()
        self._take(self.fetches.take_in_steps(response, self._clock.monotonic_ms(), outcome), outcome)

    def _take(self, steps: Steps[None], outcome: Fetched) -> None:
        """Run the next step of applying a response."""
        if not self._closed and next(steps, steps) is None:
            self._timers.call_after(0, lambda: self._guarded(lambda: self._take(steps, outcome)))
            return
        for note in outcome.notes:
            logger.info("fetching from node %d: %s", self.leader_id, note)
        self._host.fetched(outcome)
        for core, failure in outcome.broken:
            self._host.storage_failed(core, failure)
        if self._closed:
            return
        for followed, problem in outcome.failed:
            self._tell_failed(followed, problem)
        for followed in outcome.truncated:
            self._resume_when_true(followed)
        if outcome.out_of_range:
            self._ask_offsets(outcome.out_of_range, LATEST)
        else:
            self._done()

    def _tell_failed(self, followed: PartitionFetchState, problem: Exception) -> None:
        logger.error("%s is not followed until its leader changes", followed.name, exc_info=problem)

    def _resume_when_true(self, followed: PartitionFetchState) -> None:
        """Continue with a truncated log when its checkpoints are correct. From then on its fetches count as
        replicated, so a start must not use the old checkpoint offset."""

        def resume(_: Deferred[None]) -> None:
            self.fetches.resolved(followed)
            if not self._closed:
                self._wake_at(self._clock.monotonic_ms())

        self._host.when_true(followed.core).on_done(resume)

    def _done(self) -> None:
        self._busy = False
        self._next()

    # Offsets out of the leader's range.

    def _ask_offsets(self, asked: list[PartitionFetchState], timestamp: int) -> None:
        topics: dict[str, ListOffsetsTopic] = {}
        for followed in asked:
            name = followed.name
            topic = topics.setdefault(name.topic, ListOffsetsTopic(name=name.topic))
            topic.partitions.append(
                ListOffsetsPartition(
                    partition_index=name.partition,
                    current_leader_epoch=followed.current_leader_epoch,
                    timestamp=timestamp,
                )
            )
        request = ListOffsetsRequest(replica_id=self._node_id, topics=list(topics.values()))
        self._channel.request(request, self._timeout_ms).on_done(
            lambda done: self._guarded(lambda: self._offsets_answered(asked, timestamp, done))
        )

    def _offsets_answered(
        self, asked: list[PartitionFetchState], timestamp: int, done: Deferred[Any]
    ) -> None:
        if self._closed:
            return
        later_ms = self._clock.monotonic_ms() + self._backoff_ms
        waiting: dict[tuple[str, int], PartitionFetchState] = {followed.name: followed for followed in asked}
        unsettled: list[PartitionFetchState] = []
        try:
            answers = [
                ((topic.name, answer.partition_index), answer)
                for topic in done.result().topics
                for answer in topic.partitions
            ]
        except Exception as error:
            logger.warning("node %d does not tell its offsets: %s", self.leader_id, error)
            answers = []
        for name, answer in answers:
            followed = waiting.pop(name, None)
            if followed is None or self.fetches.current(followed) is not followed:
                continue
            if answer.error_code != ErrorCode.NONE:
                self._refused(followed, answer.error_code, later_ms)
            elif self._settle(followed, timestamp, answer.offset, later_ms):
                self._resume_when_true(followed)
            elif followed.resolving:
                unsettled.append(followed)
        for followed in waiting.values():
            self.fetches.resolved(followed, later_ms)
        if unsettled:
            self._ask_offsets(unsettled, EARLIEST_LOCAL)
        else:
            self._done()

    def _refused(self, followed: PartitionFetchState, error_code: int, later_ms: int) -> None:
        logger.info("node %d tells no offsets of %s: error %d", self.leader_id, followed.name, error_code)
        if error_code == ErrorCode.FENCED_LEADER_EPOCH:
            followed.failed = True
        self.fetches.resolved(followed, later_ms)

    def _settle(self, followed: PartitionFetchState, timestamp: int, offset: int, later_ms: int) -> bool:
        """Apply the leader's offset. Returns False if the leader's log start is needed too, or the log failed."""
        core = followed.core
        end = core.log.log_end_offset
        try:
            if timestamp == LATEST:
                followed.begins_anew = followed.begins_anew or parts_below_start(core.log, offset)
                if followed.begins_anew or not take_latest(core, offset):
                    return False
            else:
                begins_anew, followed.begins_anew = followed.begins_anew, False
                take_earliest(core, offset, anew=begins_anew)
        except OSError as failure:
            self._host.storage_failed(core, failure)
            if core.log.log_end_offset != end:
                return True  # truncated before the disk refused the rest
            self.fetches.resolved(followed, later_ms)
            return False
        except LogRefused as refused:
            logger.warning("%s: %s", followed.name, refused)
            self.fetches.resolved(followed, later_ms)
            return False
        except Exception as problem:
            followed.failed = True
            self.fetches.resolved(followed, later_ms)
            self._tell_failed(followed, problem)
            return False
        if core.log.log_end_offset != end:
            logger.warning(
                "%s: the log ended at %d, out of the leader's range, and ends at %d now",
                followed.name,
                end,
                core.log.log_end_offset,
            )
        return True
