"""DeleteRecords: advances the leader's log start, and answers when every live replica has followed.

Each partition is waited for separately. Followers learn the new start from a fetch response and report theirs with the
next fetch. Requests and fetches are unknown here. At the timeout the remaining partitions get REQUEST_TIMED_OUT; their
records stay deleted.
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
from kafkacompat.wire.errors import ErrorCode

if TYPE_CHECKING:
    from kafkacompat.partition.partition import Partition
    from kafkacompat.ports import Clock, Timers

PARTITION_US = 3
"""Of an answer, also its encoding."""
Outcome = tuple[ErrorCode, int]
"""(error, low watermark or -1)."""


class DelayedDeleteRecords(DelayedOperation):
    """`required` is the log start that each waiting partition needs on every live replica."""

    __slots__ = ("epochs", "outcomes", "required")

    answer: Deferred[Mapping[TopicPartition, Outcome]]

    def __init__(self, outcomes: dict[TopicPartition, Outcome]) -> None:
        super().__init__()
        self.outcomes = outcomes
        self.required: dict[TopicPartition, int] = {}
        self.epochs: dict[TopicPartition, int] = {}

    def expire(self) -> None:
        self.cost_us = ANSWER_US + PARTITION_US * (len(self.outcomes) + len(self.required))
        for partition in self.required:
            self.outcomes[partition] = ErrorCode.REQUEST_TIMED_OUT, -1
        self.answer.resolve(self.outcomes)


class DeleteRecordsPurgatory:
    """`cores` is the manager's table, by (topic, partition)."""

    def __init__(
        self,
        cores: Mapping[tuple[str, int], Partition],
        clock: Clock,
        timers: Timers,
        budget: TurnBudget,
    ) -> None:
        self._cores = cores
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
        for partition, offset in required.items():
            waiter.required[partition] = offset
            waiter.epochs[partition] = self._cores[partition].leader_epoch
        for partition in required:
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
        if core is None or core.check_leader(waiter.epochs[partition]) is not ErrorCode.NONE:
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
