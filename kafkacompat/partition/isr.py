"""What a leader knows of its followers, and the in-sync set it has asked the controller for.

A pure core: it knows no log, request or other partition; times are milliseconds of one monotonic clock. Follows Kafka's
Replica and the partition states of KIP-497 (a change that is on its way counts where that is the safer reading) and KIP-903
(a follower that has been restarted joins only in its newest life). Setting: replica.lag.time.max.ms.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING

from kafkacompat.wire.errors import ErrorCode

if TYPE_CHECKING:
    from kafkacompat.controller.image import BrokerRegistration

LONG_AGO_MS = -(2**60)
EXPECTED_MS = 2000
"""How long after this node took a lead its followers' fetches are answered soon: acks=all waits for them to learn of it."""
UNKNOWN_BROKER_EPOCH = -1
"""Sent by followers that state none, and to the controller for one that has not fetched yet: it checks nothing then."""


class Replica:
    """One follower of a led partition, in one leader epoch. `log_end_offset` is -1 until it has fetched."""

    __slots__ = (
        "broker_epoch",
        "has_fetched",
        "last_caught_up_ms",
        "last_fetch_leader_end",
        "last_fetch_ms",
        "log_end_offset",
        "log_start_offset",
    )

    def __init__(self, last_caught_up_ms: int = LONG_AGO_MS) -> None:
        self.log_end_offset = -1
        self.log_start_offset = -1
        self.last_fetch_leader_end = 0
        self.last_fetch_ms = last_caught_up_ms
        self.last_caught_up_ms = last_caught_up_ms
        self.has_fetched = False
        self.broker_epoch = UNKNOWN_BROKER_EPOCH

    def update_fetch_state(
        self, offset: int, log_start_offset: int, leader_end: int, broker_epoch: int, now_ms: int
    ) -> None:
        """It asks for what begins at offset. It was caught up now, or at its last fetch when it has by now what was there then."""
        if offset >= leader_end:
            self.last_caught_up_ms = now_ms
        elif offset >= self.last_fetch_leader_end and self.last_fetch_ms > self.last_caught_up_ms:
            self.last_caught_up_ms = self.last_fetch_ms
        self.log_end_offset = offset
        self.log_start_offset = log_start_offset
        if leader_end > self.last_fetch_leader_end:
            self.last_fetch_leader_end = leader_end
        self.last_fetch_ms = now_ms
        self.broker_epoch = broker_epoch
        self.has_fetched = True

    def is_caught_up(self, leader_end: int, now_ms: int, lag_time_max_ms: int) -> bool:
        return self.log_end_offset == leader_end or now_ms - self.last_caught_up_ms <= lag_time_max_ms


class Standing:
    """What the metadata says of brokers, and who is about to follow. One object a node; `brokers` is replaced with each image."""

    __slots__ = ("_expected_until_ms", "brokers", "lag_time_max_ms")

    def __init__(self, lag_time_max_ms: int = 30_000) -> None:
        self.brokers: Mapping[int, BrokerRegistration] = {}
        self.lag_time_max_ms = lag_time_max_ms
        self._expected_until_ms: dict[int, int] = {}

    def expect(self, broker_id: int, now_ms: int) -> None:
        """This node has begun to lead a partition that the broker is to follow, and does not know yet that it does."""
        self._expected_until_ms[broker_id] = now_ms + EXPECTED_MS

    def is_expected(self, broker_id: int, now_ms: int) -> bool:
        """Whether it may want to ask for more partitions than its fetch on the way does."""
        return self._expected_until_ms.get(broker_id, LONG_AGO_MS) > now_ms

    def is_alive(self, broker_id: int) -> bool:
        broker = self.brokers.get(broker_id)
        return broker is not None and not broker.fenced

    def is_outlived(self, broker_id: int, broker_epoch: int) -> bool:
        """Whether a fetch that states this epoch comes from an earlier life of a broker that is alive."""
        if broker_epoch == UNKNOWN_BROKER_EPOCH:
            return False
        broker = self.brokers.get(broker_id)
        return broker is not None and not broker.fenced and broker.epoch > broker_epoch

    def is_replica_isr_eligible(self, broker_id: int, follower: Replica) -> bool:
        """Whether it may enter the ISR: alive, staying, and fetching in its newest life."""
        broker = self.brokers.get(broker_id)
        if broker is None or broker.fenced or broker.in_controlled_shutdown or not follower.has_fetched:
            return False
        return follower.broker_epoch in (UNKNOWN_BROKER_EPOCH, broker.epoch)


class PendingPartitionChange:
    """A change of the in-sync set that the controller has been asked for. Compared by identity: each is itself only."""

    __slots__ = ("isr", "leader_epoch", "maximal", "members", "partition_epoch")

    def __init__(
        self,
        isr: tuple[int, ...],
        maximal: tuple[int, ...],
        members: tuple[tuple[int, int], ...],
        leader_epoch: int,
        partition_epoch: int,
    ) -> None:
        self.isr = isr
        """As proposed."""
        self.maximal = maximal
        """Everybody who is in the set before or after: whom the high watermark waits for."""
        self.members = members
        """(broker id, broker epoch) of the proposed set; the leader's own epoch is left to whoever sends it."""
        self.leader_epoch = leader_epoch
        self.partition_epoch = partition_epoch
        """What the proposal builds on."""


class Altered(Enum):
    """What came of a proposal."""

    OUTDATED = "something newer has decided meanwhile"
    COMMITTED = "the set is as the controller says; the high watermark may move"
    REJECTED = "not applied, and never will be: the set is what it was"
    AWAITING = "what the controller holds is unknown here: the metadata will tell"
    RETRY = "to be asked again"


REJECTIONS = frozenset({ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA})
"""The controller says by them that our epoch is right and that it did not apply the change."""
AWAITED = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
    }
)
