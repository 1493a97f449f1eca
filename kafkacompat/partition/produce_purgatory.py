"""Appends that wait until enough replicas have them: acks=all.

Each partition of a request is decided separately. The request is answered when all are decided, or at its timeout.
Requests, and how followers fetch, are unknown here. A new leader or epoch ends the wait of its partition with
NOT_LEADER_OR_FOLLOWER; the appended records stay.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kafkacompat.deferred import Deferred
from kafkacompat.ids import TopicPartition
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

PARTITION_US = 3
"""Of an answer, also its encoding."""
Errors = Mapping[TopicPartition, ErrorCode]


class DelayedProduce(DelayedOperation):
    """The appends of one request, which wait until the high watermark has passed them, or for the timeout."""

    __slots__ = ("ends", "epochs", "errors")

    answer: Deferred[Errors]

    def __init__(self, ends: Mapping[TopicPartition, int]) -> None:
        super().__init__()
        self.ends = dict(ends)
        self.epochs: dict[TopicPartition, int] = {}
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
    """`cores` is the manager's table, by (topic, partition)."""

    def __init__(
        self,
        cores: Mapping[tuple[str, int], Partition],
        clock: Clock,
        timers: Timers,
        budget: TurnBudget,
    ) -> None:
        self._cores = cores
        self._parked: DelayedOperationPurgatory[DelayedProduce] = DelayedOperationPurgatory(
            clock, timers, budget
        )

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
        for partition, end in ends.items():
            core = self._cores.get(partition)
            if (
                core is not None
                and core.is_leader
                and core.log.high_watermark >= end
                and core.may_have_min_isr()
            ):
                continue
            if waiter is None:
                waiter = DelayedProduce(ends)
            if core is not None:
                waiter.epochs[partition] = core.leader_epoch
        if waiter is None:
            return None
        for partition in ends:
            self._settle(waiter, partition)
        if waiter.is_decided or timeout_ms <= 0 or self._parked.is_full():
            waiter.expire()
        else:
            self._parked.park(waiter, ends, timeout_ms)
        return waiter.answer

    def advanced(self, core: Partition) -> None:
        """Called when a high watermark moved, or a role changed or ended."""
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
        if core is None or core.check_leader(waiter.epochs.get(partition, -1)) is not NONE:
            errors[partition] = ErrorCode.NOT_LEADER_OR_FOLLOWER
        elif core.log.high_watermark >= waiter.ends[partition]:
            errors[partition] = (
                NONE if core.may_have_min_isr() else ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
            )
