"""A leader's knowledge of its followers, and the ISR that it has proposed to the controller.

A pure core: logs, requests and other partitions are unknown here. Times are milliseconds of one monotonic clock.
Follows Kafka's Replica, the partition states of KIP-497 (a pending change counts where that is safer) and KIP-903 (a
restarted follower joins only with its newest broker epoch). Setting: replica.lag.time.max.ms.
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
"""For this long after becoming leader, this node answers its followers' fetches early. acks=all waits until they know
their role."""
UNKNOWN_BROKER_EPOCH = -1
"""Used by followers that send no broker epoch, and towards the controller for a follower that has not fetched yet. The
controller then skips the check."""


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
        """The follower fetches at `offset`. It is caught up now if it has everything, or was at its last fetch if it
        now has everything from then."""
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
    """The brokers in the metadata, and which of them are about to follow. One object per node; `brokers` is replaced
    with each image."""

    __slots__ = ("_expected_until_ms", "brokers", "lag_time_max_ms")

    def __init__(self, lag_time_max_ms: int = 30_000) -> None:
        self.brokers: Mapping[int, BrokerRegistration] = {}
        self.lag_time_max_ms = lag_time_max_ms
        self._expected_until_ms: dict[int, int] = {}

    def expect(self, broker_id: int, now_ms: int) -> None:
        """This node has become leader of a partition that the broker must follow but does not know of yet."""
        self._expected_until_ms[broker_id] = now_ms + EXPECTED_MS

    def is_expected(self, broker_id: int, now_ms: int) -> bool:
        """Whether the broker may want to fetch more partitions than its present fetch has."""
        return self._expected_until_ms.get(broker_id, LONG_AGO_MS) > now_ms

    def is_alive(self, broker_id: int) -> bool:
        broker = self.brokers.get(broker_id)
        return broker is not None and not broker.fenced

    def is_outlived(self, broker_id: int, broker_epoch: int) -> bool:
        """Whether a fetch with this broker epoch is from an earlier process of a live broker."""
        if broker_epoch == UNKNOWN_BROKER_EPOCH:
            return False
        broker = self.brokers.get(broker_id)
        return broker is not None and not broker.fenced and broker.epoch > broker_epoch

    def is_replica_isr_eligible(self, broker_id: int, follower: Replica) -> bool:
        """Whether a replica may join the ISR: its broker is unfenced, not shutting down, and fetching with its newest
        epoch."""
        broker = self.brokers.get(broker_id)
        if broker is None or broker.fenced or broker.in_controlled_shutdown or not follower.has_fetched:
            return False
        return follower.broker_epoch in (UNKNOWN_BROKER_EPOCH, broker.epoch)


class PendingPartitionChange:
    """An ISR change that the controller was asked for. Compared by identity."""

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
        """The proposed ISR."""
        self.maximal = maximal
        """All replicas in the ISR before or after the change. The high watermark waits for them."""
        self.members = members
        """(broker id, broker epoch) of the proposed ISR. The sender fills in the leader's own epoch."""
        self.leader_epoch = leader_epoch
        self.partition_epoch = partition_epoch
        """The partition epoch that the proposal is based on."""


class Altered(Enum):
    """The outcome of a proposal."""

    OUTDATED = "something newer has decided meanwhile"
    COMMITTED = "the set is as the controller says; the high watermark may move"
    REJECTED = "not applied, and never will be: the set is what it was"
    AWAITING = "what the controller holds is unknown here: the metadata will tell"
    RETRY = "to be asked again"


REJECTIONS = frozenset({ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA})
"""With these errors the controller confirms our epoch but has not applied the change."""
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
