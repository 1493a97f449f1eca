"""One partition on this node: its leader, leader epoch and followers, the ISR, and the offset up to which its records
are replicated.

A pure core over the partition's Log (a Protocol): it decides, and the manager carries out the decisions and wakes
waiting requests. Requests and other partitions are unknown here. Times are milliseconds of one monotonic clock.
Follows Kafka's leader and ISR rules (KIP-101, KIP-320; KIP-497: a pending change of the ISR counts where that is safer;
KIP-903: a restarted follower joins only with its newest broker epoch; since 4.0 the high watermark does not move while
the ISR is smaller than min.insync.replicas). Setting: replica.lag.time.max.ms.

HostedPartitions calls `become` before anything else in an epoch. After each append or follower fetch the manager calls
`maybe_increment_leader_high_watermark`, and only then wakes requests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from enum import Enum
from typing import TYPE_CHECKING, TypeVar

from kafkacompat.ids import NO_EPOCH, NO_LEADER, TopicPartition, Uuid
from kafkacompat.partition.traffic import TopicTraffic
from kafkacompat.ports import LogRefused, is_full, passes
from kafkacompat.wire.errors import NONE, ErrorCode

if TYPE_CHECKING:
    from kafkacompat.controller.image import BrokerRegistration, PartitionRegistration
    from kafkacompat.partition.fetch_session import CachedPartition
    from kafkacompat.ports import Log

T = TypeVar("T")
LONG_AGO_MS = -(2**60)
EXPECTED_MS = 2000
"""For this long after becoming leader, this node answers its followers' fetches early. acks=all waits until they know
their role."""
UNKNOWN_BROKER_EPOCH = -1
"""Used by followers that send no broker epoch, and towards the controller for a follower that has not fetched yet. The
controller then skips the check."""
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


class Partition:
    """Leader or follower state of one partition. Offsets are absolute."""

    __slots__ = (
        "adding_replicas",
        "alone",
        "epoch_start_offset",
        "followers",
        "is_being_made_durable",
        "is_ending_mirror",
        "is_held_back",
        "is_leader",
        "is_read_only",
        "isr",
        "leader",
        "leader_epoch",
        "led_since_epoch",
        "log",
        "node_id",
        "partition_epoch",
        "pending",
        "replicas",
        "standing",
        "topic_id",
        "topic_partition",
        "traffic",
        "unflushed",
    )

    def __init__(
        self,
        node_id: int,
        topic_partition: TopicPartition,
        topic_id: Uuid,
        log: Log,
        standing: Standing,
        traffic: TopicTraffic | None = None,
    ) -> None:
        self.node_id = node_id
        self.traffic = traffic or TopicTraffic()
        """Counters of the topic."""
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.log = log
        self.standing = standing
        self.leader = NO_LEADER
        self.leader_epoch = NO_EPOCH
        self.partition_epoch = -1
        self.replicas: tuple[int, ...] = ()
        self.adding_replicas: tuple[int, ...] = ()
        """Those of them that a reassignment adds."""
        self.isr: tuple[int, ...] = ()
        """The ISR as committed by the controller."""
        self.pending: PendingPartitionChange | None = None
        self.is_leader = False
        self.alone = False
        """This node leads and the partition has no other replica: appended records count as replicated."""
        self.is_read_only = False
        """This node leads a mirror: records come from its source only."""
        self.is_ending_mirror = False
        """This node leads what was a mirror, and has still to end transactions of its source: `end_mirror`."""
        self.is_being_made_durable = False
        """The log's name and topic id are being made durable. When that is done, the high watermark moves."""
        self.is_held_back = False
        """The log was truncated and a checkpoint offset is still too high: its records do not count as replicated."""
        self.epoch_start_offset = -1
        """The log end offset when this node became leader in leader_epoch. -1 while it is not the leader."""
        self.led_since_epoch = NO_EPOCH
        """The leader epoch in which this node began to lead, or what it led became a mirror. What was produced since is still in
        the log."""
        self.followers: dict[int, Replica] = {}
        """On a leader: all other replicas."""
        self.unflushed = 0
        """Records appended since the last flush, counted only if flush.messages is set."""

    # Roles

    def become(self, image: PartitionRegistration, now_ms: int) -> bool:
        """Take the role that the image gives this node. Returns whether leader or epoch has changed; parked requests
        must then be answered.

        An older image than the last controller answer changes nothing. An image with the same partition epoch leaves a
        pending proposal alone, because the controller may still accept it.
        """
        if image.leader_epoch < self.leader_epoch or image.partition_epoch < self.partition_epoch:
            return False
        changed = image.leader_epoch != self.leader_epoch or image.leader != self.leader
        if changed or image.partition_epoch > self.partition_epoch:
            self.pending = None
        self.isr = image.isr
        self.replicas = image.replicas
        self.adding_replicas = image.adding_replicas
        self.partition_epoch = image.partition_epoch
        if changed:
            self.leader = image.leader
            self.leader_epoch = image.leader_epoch
            has_led, self.is_leader = self.is_leader, image.leader == self.node_id
            self.followers.clear()
            if self.is_leader:
                self.epoch_start_offset = self.log.log_end_offset
                if not has_led or self.log.config.is_mirror:
                    self.led_since_epoch = self.leader_epoch
                self._begin_epoch()
            else:
                self.epoch_start_offset = -1
                self.is_read_only = self.is_ending_mirror = False
        if self.is_leader:
            self._take_followers(new_epoch=changed, now_ms=now_ms)
        self.alone = self.is_leader and not self.followers
        return changed

    def take_config(self) -> bool:
        """The log has other settings. Returns whether its end has moved: what a mirror has brought ends with markers."""
        end = self.log.log_end_offset
        if self.is_leader and self.is_read_only != self.log.config.is_mirror:
            self._begin_epoch()
        return self.log.log_end_offset != end

    def _begin_epoch(self) -> None:
        """From the log's end on, records have this leader epoch, unless they come from the source of a mirror: those keep
        their own (see the package mirror)."""
        log = self.log
        config = log.config
        self.is_read_only = config.is_mirror
        self.is_ending_mirror = False
        if config.is_mirror:
            try:
                log.truncate_to(log.log_end_offset)  # which drops epochs without records
            except OSError as error:
                # They are dropped from memory. The next append writes the file, and a start drops them too.
                if not (passes(error) or is_full(error)):
                    raise
            return
        log.assign_epoch_start(self.leader_epoch, log.log_end_offset)
        if config.mirror_leader_epoch:
            # Until that is done nobody may write here. A refusal may pass, as that of a full disk.
            # HostedPartitions tries again.
            self.is_ending_mirror = True
            with suppress(OSError, LogRefused, MemoryError):
                self.end_mirror()

    def end_mirror(self) -> None:
        """Take records when the transactions of the source are ended, of which this ends some."""
        log = self.log
        self.is_ending_mirror = not log.end_mirror(log.config.mirror_leader_epoch, self.leader_epoch)

    def truncate_mirror(self, truncate: Callable[[], T]) -> T:
        """Truncate the log of a mirror as its source tells. The followers here then have to show anew what they have."""
        try:
            return truncate()
        finally:
            end = self.log.log_end_offset
            self.epoch_start_offset = min(self.epoch_start_offset, end)
            for follower in self.followers.values():
                follower.log_end_offset = min(follower.log_end_offset, end)

    def _take_followers(self, *, new_epoch: bool, now_ms: int) -> None:
        for replica in self.replicas:
            if replica != self.node_id and replica not in self.followers:
                in_sync = new_epoch and replica in self.isr
                self.standing.expect(replica, now_ms)
                self.followers[replica] = Replica(now_ms if in_sync else LONG_AGO_MS)
        for replica in [replica for replica in self.followers if replica not in self.replicas]:
            del self.followers[replica]

    def resign(self) -> None:
        """The partition is no longer on this node."""
        self.is_leader = self.is_read_only = self.is_ending_mirror = self.alone = False
        self.pending = None
        self.followers.clear()

    # Checks

    def check_current_leader_epoch(self, current_leader_epoch: int) -> ErrorCode:
        """Compare the peer's leader epoch with ours. -1 skips the check."""
        if current_leader_epoch == NO_EPOCH or current_leader_epoch == self.leader_epoch:
            return NONE
        if current_leader_epoch < self.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        return ErrorCode.UNKNOWN_LEADER_EPOCH

    def check_leader(self, current_leader_epoch: int) -> ErrorCode:
        """Check the epoch, then the leadership, in Kafka's order."""
        refused = self.check_current_leader_epoch(current_leader_epoch)
        if refused is NONE and not self.is_leader:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return refused

    def has_led_since(self, leader_epoch: int) -> bool:
        """Whether what was appended in an epoch is still in the log: this node leads, and nobody else has led since."""
        return self.is_leader and leader_epoch >= self.led_since_epoch

    def check_replica(self, replica_id: int, current_leader_epoch: int) -> ErrorCode:
        """Check that a replica may fetch: it must be in the assignment."""
        refused = self.check_leader(current_leader_epoch)
        if refused is not NONE or replica_id in self.followers:
            return refused
        if current_leader_epoch == NO_EPOCH:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.UNKNOWN_LEADER_EPOCH

    # The in-sync set

    def maximal_isr(self) -> tuple[int, ...]:
        """All replicas that the controller may count in the ISR, now or after a pending change (KIP-497)."""
        return self.isr if self.pending is None else self.pending.maximal

    def has_min_isr(self) -> bool:
        """Whether the ISR has min.insync.replicas members, or all replicas."""
        have = len(self.isr)
        return have >= len(self.replicas) or have >= self.log.config.min_insync_replicas

    def may_have_min_isr(self) -> bool:
        """Like `has_min_isr`, with a pending change counted in."""
        have = len(self.isr if self.pending is None else self.pending.maximal)
        return have >= len(self.replicas) or have >= self.log.config.min_insync_replicas

    def update_follower_fetch_state(
        self, replica_id: int, offset: int, log_start_offset: int, broker_epoch: int, now_ms: int
    ) -> ErrorCode:
        """A follower fetches at `offset`, so it has everything below. Refused if the fetch is from an earlier broker
        epoch."""
        if self.standing.is_outlived(replica_id, broker_epoch):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        self.followers[replica_id].update_fetch_state(
            offset, log_start_offset, self.log.log_end_offset, broker_epoch, now_ms
        )
        return NONE

    def update_idle_follower_fetch_state(
        self, replica_id: int, asked: CachedPartition, broker_epoch: int, now_ms: int
    ) -> bool:
        """Handle the fetch of a follower that is in sync, at the log end, knows the watermarks and has not diverged.

        Returns False, and records nothing, in all other cases. This path is for followers of thousands of idle
        partitions, which fetch all the time.
        """
        if asked.settled_epoch != self.leader_epoch or not self.is_leader:
            return False
        log = self.log
        end = log.log_end_offset
        if (
            asked.fetch_offset != end
            or asked.told_high_watermark != log.high_watermark
            or asked.told_log_start_offset != log.log_start_offset
        ):
            return False
        follower = self.followers.get(replica_id)
        if (
            follower is None
            or follower.log_end_offset != end
            or follower.broker_epoch != broker_epoch
            or replica_id not in self.isr
        ):
            return False
        follower.last_fetch_ms = follower.last_caught_up_ms = now_ms
        return True

    def has_yet_to_hear_from(self, replica_id: int) -> bool:
        """Whether the replica is a follower that has not fetched in this epoch."""
        follower = self.followers.get(replica_id)
        return follower is not None and not follower.has_fetched

    def maybe_expand_isr(self, replica_id: int) -> PendingPartitionChange | None:
        """Propose to add a follower that has reached the high watermark and the start of this epoch."""
        if self.pending is not None or replica_id in self.isr:
            return None
        follower = self.followers[replica_id]
        reached = follower.log_end_offset
        if reached < self.log.high_watermark or reached < self.epoch_start_offset:
            return None
        if not self.standing.is_replica_isr_eligible(replica_id, follower):
            return None
        isr = (*self.isr, replica_id)
        return self._propose(isr, isr)

    def maybe_shrink_isr(self, now_ms: int) -> PendingPartitionChange | None:
        """Propose the ISR without the replicas that have not caught up for replica.lag.time.max.ms."""
        if self.alone or not self.is_leader or self.pending is not None:
            return None
        end, lag_ms = self.log.log_end_offset, self.standing.lag_time_max_ms
        kept = tuple(
            replica
            for replica in self.isr
            if replica == self.node_id
            or (
                (follower := self.followers.get(replica)) is not None
                and follower.is_caught_up(end, now_ms, lag_ms)
            )
        )
        return None if kept == self.isr else self._propose(kept, self.isr)

    def _propose(self, isr: tuple[int, ...], maximal: tuple[int, ...]) -> PendingPartitionChange:
        members = tuple(
            (
                replica,
                self.followers[replica].broker_epoch if replica in self.followers else UNKNOWN_BROKER_EPOCH,
            )
            for replica in isr
        )
        self.pending = PendingPartitionChange(isr, maximal, members, self.leader_epoch, self.partition_epoch)
        return self.pending

    def handle_alter_partition(
        self,
        proposal: PendingPartitionChange,
        error: ErrorCode,
        leader_epoch: int = NO_EPOCH,
        isr: tuple[int, ...] = (),
        partition_epoch: int = -1,
    ) -> Altered:
        """Take the controller's answer to a proposal: an error, or the partition's new state."""
        if self.pending is not proposal:
            return Altered.OUTDATED
        if error is NONE:
            if leader_epoch != self.leader_epoch or partition_epoch < self.partition_epoch:
                return Altered.AWAITING
            self.pending = None
            self.isr = isr
            self.partition_epoch = partition_epoch
            return Altered.COMMITTED
        if error in REJECTIONS:
            self.pending = None
            return Altered.REJECTED
        return Altered.AWAITING if error in AWAITED else Altered.RETRY

    # Watermarks

    def advance_alone(self) -> bool:
        """`maybe_increment_leader_high_watermark` for a leader without followers."""
        log = self.log
        end = log.log_end_offset
        if end <= log.high_watermark or self.is_held_back:
            return False
        log.set_high_watermark(end)
        return True

    def maybe_increment_leader_high_watermark(self, now_ms: int) -> bool:
        """Move the high watermark to the smallest log end offset of the maximal ISR and of replicas about to join.
        Returns whether it moved."""
        if self.alone:
            return self.advance_alone()
        if not self.is_leader or self.is_held_back:
            return False
        log = self.log
        end = leader_end = log.log_end_offset
        high_watermark = log.high_watermark
        standing, waited_for = self.standing, self.maximal_isr()
        for replica, follower in self.followers.items():
            if follower.log_end_offset < end and (
                replica in waited_for
                or (
                    follower.is_caught_up(leader_end, now_ms, standing.lag_time_max_ms)
                    and standing.is_replica_isr_eligible(replica, follower)
                )
            ):
                end = follower.log_end_offset
                if end <= high_watermark:
                    return False
        if end <= high_watermark or not self.has_min_isr():
            return False
        log.set_high_watermark(end)
        return True

    def low_watermark(self) -> int:
        """On a leader: the first offset that every live replica still has. -1 until all have reported theirs."""
        low = self.log.log_start_offset
        for replica, follower in self.followers.items():
            if follower.log_start_offset < low and self.standing.is_alive(replica):
                low = follower.log_start_offset
        return low

    def offsets_are_available(self) -> bool:
        """False after an election until the high watermark has reached the start of the epoch."""
        return self.log.high_watermark >= self.epoch_start_offset

    def cannot_be_read_yet(self) -> bool:
        """Whether consumers must wait. The log was left by a kill, and until it is durable nothing in it counts as
        committed. An answer with its high watermark would show a log that ends too early. Another sync of the log may
        make it durable first, but the high watermark does not move before that is done."""
        return self.is_being_made_durable and not self.offsets_are_available()


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
