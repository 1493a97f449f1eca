"""What waits for replicas, and what a changed partition wakes: produces with acks=all, DeleteRecords, and fetches.

A change (high watermark, end, role) is passed on at once, or after all appends of one request. Fetches wait in fetch.py,
which watches the changes. Requests, and how followers fetch, are unknown here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sized
from typing import TYPE_CHECKING

from kafkacompat.deferred import Deferred
from kafkacompat.faults import report
from kafkacompat.ids import NO_EPOCH, TopicPartition, Uuid
from kafkacompat.partition.delayed_operations import (
    ANSWER_US,
    DelayedOperation,
    DelayedOperationPurgatory,
    TurnBudget,
)
from kafkacompat.wire.errors import NONE, ErrorCode

if TYPE_CHECKING:
    from kafkacompat.partition.partition import Partition
    from kafkacompat.ports import Clock, Timers

Key = tuple[str, int]
Watcher = Callable[["Partition"], None]
EVER = (None,)
"""A watcher that waits for everything."""

PARTITION_US = 3
"""Of an answer, also its encoding."""


class Wakeups:
    def __init__(
        self, cores: Mapping[Key, Partition], absent: Callable[[Key], ErrorCode], clock: Clock, timers: Timers
    ) -> None:
        """`cores` is the manager's table. `absent` says why a partition is not in it."""
        self.clock, self.timers = clock, timers
        """How long requests wait."""
        self.budget = TurnBudget(timers)
        """Of all who are woken."""
        self.produces = ProducePurgatory(cores, absent, clock, timers, self.budget)
        self.deletions = DeleteRecordsPurgatory(cores, absent, clock, timers, self.budget)
        self._watchers: list[tuple[Watcher, tuple[Sized, ...]]] = []
        self._who_wait: list[Sized] = [self.produces.waiting]
        """While all of it is empty nobody waits for an advance."""
        self._append_watchers: list[Watcher] = []
        self._held: dict[Key, Partition] | None = None
        self._held_appends: dict[Key, Partition] = {}

    def watch(self, watcher: Watcher, *among: Sized) -> None:
        """Add a callback for an advanced high watermark, and for a changed or ended role. It is not called while all that is in
        `among` is empty: then nobody waits."""
        self._watchers.append((watcher, among))
        self._who_wait += among or (EVER,)

    def watch_appends(self, watcher: Watcher) -> None:
        """Add a callback for a moved end or log start of a partition with followers, and for a changed or ended role."""
        self._append_watchers.append(watcher)

    def hold(self) -> dict[Key, Partition]:
        """Collect changes until `release`. A fetch that waits for several partitions of one produce then gets them all
        at once.

        Returns the partitions whose change `advanced` would tell, to which the caller may add its own.
        """
        held: dict[Key, Partition] = {}
        self._held = held
        return held

    def release(self) -> None:
        held, self._held = self._held, None
        if held and any(self._who_wait):
            self._wake(held.values())
        if self._held_appends:
            appends, self._held_appends = self._held_appends, {}
            for core in appends.values():
                self.appended(core)

    def advanced(self, core: Partition) -> None:
        """The high watermark advanced, or the role changed: requests that wait for it may be complete."""
        if self._held is not None:
            self._held[core.topic_partition] = core
            return
        self._wake((core,))

    def _wake(self, cores: Iterable[Partition]) -> None:
        produces = self.produces
        watchers = [watcher for watcher, among in self._watchers if not among or any(among)]
        if not watchers and not produces.waiting:
            return
        for core in cores:
            if produces.waiting:
                produces.advanced(core)
            for watcher in watchers:
                try:
                    watcher(core)
                except Exception as error:  # the append itself has succeeded
                    report(f"waking those who wait for {core.topic_partition}", error)

    def appended(self, core: Partition) -> None:
        """The end or the log start of a partition with followers moved."""
        if self._held is not None:
            self._held_appends[core.topic_partition] = core
            return
        for watcher in self._append_watchers:
            try:
                watcher(core)
            except Exception as error:
                report(f"waking those who follow {core.topic_partition}", error)

    def follower_moved(self, core: Partition) -> None:
        """A follower has reported its log start."""
        if self.deletions:
            self.deletions.moved(core)

    def role_changed(self, core: Partition) -> None:
        """Leader or epoch changed, or the partition is gone: all requests that wait for it are due."""
        self.advanced(core)
        self.appended(core)
        self.follower_moved(core)


Errors = Mapping[TopicPartition, ErrorCode]


class DelayedProduce(DelayedOperation):
    """The appends of one request, which wait until the high watermark has passed them, or for the timeout."""

    __slots__ = ("began", "ends", "errors")

    answer: Deferred[Errors]

    def __init__(self, ends: Mapping[TopicPartition, int]) -> None:
        super().__init__()
        self.ends = dict(ends)
        self.began: dict[TopicPartition, tuple[Uuid, int]] = {}
        """Topic ids, and leader epochs in which the wait began."""
        self.errors: dict[TopicPartition, ErrorCode] = {}

    @property
    def is_decided(self) -> bool:
        return len(self.errors) == len(self.ends)

    @property
    def awaited(self) -> int:
        """Partitions."""
        return len(self.ends) - len(self.errors)

    def expire(self) -> None:
        self.cost_us = ANSWER_US + PARTITION_US * len(self.ends)
        self.answer.resolve(
            {partition: self.errors.get(partition, ErrorCode.REQUEST_TIMED_OUT) for partition in self.ends}
        )


class ProducePurgatory:
    """Appends that wait until enough replicas have them: acks=all.

    Each partition of a request is decided separately. The request is answered when all are decided, or at its timeout.
    Another leader ends the wait of its partition with NOT_LEADER_OR_FOLLOWER; the appended records stay. A failed log directory
    and a deleted topic end it too. A new epoch of this leader does not: nothing is truncated, and a producer that is refused
    appends the same records again. But it does if the topic becomes a mirror, which gives up what its source does not have.
    Many requests are looked at in later turns. So it also does if another one has led in between, or if the topic was made
    again.
    """

    def __init__(
        self,
        cores: Mapping[Key, Partition],
        absent: Callable[[Key], ErrorCode],
        clock: Clock,
        timers: Timers,
        budget: TurnBudget,
    ) -> None:
        self._cores = cores
        self._absent = absent
        self._parked: DelayedOperationPurgatory[DelayedProduce] = DelayedOperationPurgatory(
            clock, timers, budget
        )
        self.waiting = self._parked.by_key

    @property
    def sizes(self) -> tuple[int, int]:
        return self._parked.sizes

    @property
    def expirations(self) -> int:
        """Partitions whose replication took longer than a request's timeout."""
        return self._parked.expirations

    def when_replicated(self, ends: Mapping[TopicPartition, int], timeout_ms: int) -> Deferred[Errors] | None:
        """None if each high watermark has already reached its end offset. Otherwise a later result with an error per
        partition."""
        waiter: DelayedProduce | None = None
        cores = self._cores
        are_behind = True
        for partition, end in ends.items():
            core = cores.get(partition)
            is_behind = core is not None and core.is_leader and core.log.high_watermark < end
            if (
                core is not None
                and not is_behind
                and core.is_leader
                and (core.alone or core.may_have_min_isr())
            ):
                are_behind = False
                continue
            if waiter is None:
                waiter = DelayedProduce(ends)
            if core is not None:
                waiter.began[partition] = core.topic_id, core.leader_epoch
            if not is_behind:
                are_behind = False
        if waiter is None:
            return None
        if not are_behind:  # seldom is anything decided before the wait
            for partition in ends:
                self._settle(waiter, partition)
        if waiter.is_decided or timeout_ms <= 0 or self._parked.is_full():
            waiter.expire()
        else:
            self._parked.park(waiter, ends, timeout_ms)
        return waiter.answer

    def advanced(self, core: Partition) -> None:
        """Called when a high watermark moved, or a role changed or ended. Without waiting requests it does nothing."""
        if self.waiting:
            self._parked.for_each_on(core.topic_partition, self._look_again, core)

    def _look_again(self, waiter: DelayedProduce, moved: Partition) -> None:
        # Check only the partition that moved: a request may wait for thousands, which move one after another.
        self._settle(waiter, moved.topic_partition)
        if waiter.is_decided:
            self._parked.remove(waiter)
            waiter.expire()

    def _settle(self, waiter: DelayedProduce, partition: TopicPartition) -> None:
        """Record the outcome of one partition if it is decided."""
        errors = waiter.errors
        if partition in errors:
            return
        core = self._cores.get(partition)
        if core is None:
            errors[partition] = self._absent(partition)
            return
        topic_id, leader_epoch = waiter.began.get(partition, (core.topic_id, core.leader_epoch))
        if topic_id != core.topic_id:
            errors[partition] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif not core.has_led_since(leader_epoch):
            errors[partition] = ErrorCode.NOT_LEADER_OR_FOLLOWER
        elif core.log.high_watermark >= waiter.ends[partition]:
            errors[partition] = (
                NONE if core.may_have_min_isr() else ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
            )


Outcome = tuple[ErrorCode, int]
"""(error, low watermark or -1)."""


class DelayedDeleteRecords(DelayedOperation):
    """`required` is the log start that each waiting partition needs on every live replica, `began` the topic that it was of."""

    __slots__ = ("began", "outcomes", "required")

    answer: Deferred[Mapping[TopicPartition, Outcome]]

    def __init__(self, outcomes: dict[TopicPartition, Outcome]) -> None:
        super().__init__()
        self.outcomes = outcomes
        self.began: dict[TopicPartition, Uuid] = {}
        self.required: dict[TopicPartition, int] = {}

    def expire(self) -> None:
        self.cost_us = ANSWER_US + PARTITION_US * (len(self.outcomes) + len(self.required))
        for partition in self.required:
            self.outcomes[partition] = ErrorCode.REQUEST_TIMED_OUT, -1
        self.answer.resolve(self.outcomes)


class DeleteRecordsPurgatory:
    """DeleteRecords waits until every live replica has followed the leader's new log start.

    Each partition is waited for separately. Followers learn the new start from a fetch response and report theirs with
    the next fetch. At the timeout the remaining partitions get REQUEST_TIMED_OUT; their records stay deleted. A topic that was
    made again says nothing of the former one.
    """

    def __init__(
        self,
        cores: Mapping[Key, Partition],
        absent: Callable[[Key], ErrorCode],
        clock: Clock,
        timers: Timers,
        budget: TurnBudget,
    ) -> None:
        self._cores = cores
        self._absent = absent
        self._parked: DelayedOperationPurgatory[DelayedDeleteRecords] = DelayedOperationPurgatory(
            clock, timers, budget
        )

    def __bool__(self) -> bool:
        return len(self._parked) > 0

    @property
    def sizes(self) -> tuple[int, int]:
        return self._parked.sizes

    def wait(
        self, outcomes: dict[TopicPartition, Outcome], required: Mapping[TopicPartition, int], timeout_ms: int
    ) -> Deferred[Mapping[TopicPartition, Outcome]]:
        """`outcomes` has the refused partitions, `required` the new log start of each of the others."""
        waiter = DelayedDeleteRecords(outcomes)
        waiter.required.update(required)
        for partition in required:
            core = self._cores.get(partition)
            if core is not None:
                waiter.began[partition] = core.topic_id
            self._settle(waiter, partition)
        if not waiter.required or timeout_ms <= 0 or self._parked.is_full():
            waiter.expire()
        else:
            self._parked.park(waiter, list(waiter.required), timeout_ms)
        return waiter.answer

    def moved(self, core: Partition) -> None:
        """Called when a follower has reported its log start, or the partition's role has changed."""
        self._parked.for_each_on(core.topic_partition, self._look_again, core)

    def _look_again(self, waiter: DelayedDeleteRecords, moved: Partition) -> None:
        # Check only the partition that moved: a request may wait for thousands, which move one after another.
        self._settle(waiter, moved.topic_partition)
        if not waiter.required:
            self._parked.remove(waiter)
            waiter.expire()

    def _settle(self, waiter: DelayedDeleteRecords, partition: TopicPartition) -> None:
        """Record the outcome of one partition if it is decided."""
        offset = waiter.required.get(partition)
        if offset is None:
            return
        core = self._cores.get(partition)
        if core is None:
            outcome = self._absent(partition), -1
        elif waiter.began.get(partition, core.topic_id) != core.topic_id:
            outcome = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1
        elif core.check_leader(NO_EPOCH) is not NONE:
            outcome = ErrorCode.NOT_LEADER_OR_FOLLOWER, -1
        elif (low := core.low_watermark()) >= offset:
            outcome = ErrorCode.NONE, low
        else:
            return
        waiter.outcomes[partition] = outcome
        del waiter.required[partition]


def delete_records_on_leader(core: Partition, offset: int) -> tuple[ErrorCode, int]:
    """Move the log start up to an offset (-1: the high watermark). Returns (error, that offset), with offset -1 on
    error."""
    error = core.check_leader(-1)
    if error is not ErrorCode.NONE:
        return error, -1
    log = core.log
    if "compact" in log.config.cleanup_policy and "delete" not in log.config.cleanup_policy:
        return ErrorCode.POLICY_VIOLATION, -1
    target = log.high_watermark if offset == -1 else offset
    if target < 0 or target > log.high_watermark:
        return ErrorCode.OFFSET_OUT_OF_RANGE, -1
    log.increment_log_start_offset(target)
    return ErrorCode.NONE, target
