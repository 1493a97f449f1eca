"""One partition on this node: who leads it, in which epoch, and up to where its records are replicated.

A pure core over the partition's Log (a Protocol): it decides, the manager carries out and wakes waiters. It knows
neither requests nor other partitions. Follows Kafka's leader and ISR rules (KIP-101, KIP-320; since 4.0 the high
watermark stands still while the ISR is smaller than min.insync.replicas).

Order the manager keeps: `become` before anything else in an epoch; after each append or follower's report
`maybe_advance_high_watermark`, and only then wake-ups.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkacompat.ids import NO_EPOCH, NO_LEADER, TopicPartition, Uuid
from kafkacompat.wire.errors import ErrorCode

if TYPE_CHECKING:
    from kafkacompat.controller.image import PartitionImage
    from kafkacompat.ports import Log


class PartitionCore:
    """Leader or follower state of one partition. Offsets are absolute."""

    __slots__ = (
        "alone",
        "epoch_start_offset",
        "follower_ends",
        "is_leader",
        "isr",
        "leader",
        "leader_epoch",
        "log",
        "node_id",
        "partition_epoch",
        "replicas",
        "topic_id",
        "topic_partition",
        "unflushed",
    )

    def __init__(self, node_id: int, topic_partition: TopicPartition, topic_id: Uuid, log: Log) -> None:
        self.node_id = node_id
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.log = log
        self.leader = NO_LEADER
        self.leader_epoch = NO_EPOCH
        self.partition_epoch = -1
        self.replicas: tuple[int, ...] = ()
        self.isr: tuple[int, ...] = ()
        self.is_leader = False
        self.alone = False
        """The ISR is this node: what it has appended is replicated."""
        self.epoch_start_offset = -1
        """Log end when this node became leader of leader_epoch; -1 while it is not."""
        self.follower_ends: dict[int, int] = {}
        """Log end offset each follower last fetched at, in this epoch."""
        self.unflushed = 0
        """Records appended since the last flush, counted only under flush.messages."""

    def become(self, image: PartitionImage) -> bool:
        """Take the role the image gives this node. True when leader or epoch changed, so that parked requests are due."""
        changed = image.leader_epoch != self.leader_epoch or image.leader != self.leader
        if image.leader_epoch < self.leader_epoch or (
            image.leader_epoch == self.leader_epoch and image.partition_epoch < self.partition_epoch
        ):
            return False
        self.replicas = image.replicas
        self.isr = image.isr
        self.partition_epoch = image.partition_epoch
        if changed:
            self.leader = image.leader
            self.leader_epoch = image.leader_epoch
            self.is_leader = image.leader == self.node_id
            self.follower_ends.clear()
            if self.is_leader:
                self.epoch_start_offset = self.log.log_end_offset
                self.log.assign_epoch_start(image.leader_epoch, self.epoch_start_offset)
            else:
                self.epoch_start_offset = -1
        self.alone = self.is_leader and self.isr == (self.node_id,)
        return changed

    def fence(self, current_leader_epoch: int) -> ErrorCode:
        """The peer's idea of the leader epoch against ours; -1 asks for no check (E14)."""
        if current_leader_epoch == NO_EPOCH or current_leader_epoch == self.leader_epoch:
            return ErrorCode.NONE
        if current_leader_epoch < self.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        return ErrorCode.UNKNOWN_LEADER_EPOCH

    def check_leader(self, current_leader_epoch: int) -> ErrorCode:
        """Epoch first, then leadership, as Kafka checks them."""
        refused = self.fence(current_leader_epoch)
        if refused is ErrorCode.NONE and not self.is_leader:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return refused

    def check_replica(self, replica_id: int, current_leader_epoch: int) -> ErrorCode:
        """Whether a follower of that id may fetch: it has to be in the assignment."""
        refused = self.check_leader(current_leader_epoch)
        if refused is not ErrorCode.NONE or (replica_id in self.replicas and replica_id != self.node_id):
            return refused
        if current_leader_epoch == NO_EPOCH:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.UNKNOWN_LEADER_EPOCH

    def effective_min_isr(self) -> int:
        """min.insync.replicas, but never more than there are replicas."""
        return min(self.log.config.min_insync_replicas, len(self.replicas))

    def has_min_isr(self) -> bool:
        have = len(self.isr)
        return have >= self.log.config.min_insync_replicas or have >= len(self.replicas)

    def observe_follower(self, replica_id: int, end_offset: int) -> None:
        """A follower fetched at end_offset, so it has everything below."""
        self.follower_ends[replica_id] = end_offset

    def maybe_advance_high_watermark(self) -> bool:
        """Move it to the smallest end in the ISR. True when it moved."""
        if not self.is_leader or not self.has_min_isr():
            return False
        log = self.log
        end = log.log_end_offset
        if not self.alone:
            for replica in self.isr:
                if replica != self.node_id:
                    end = min(end, self.follower_ends.get(replica, -1))
        if end <= log.high_watermark:
            return False
        log.set_high_watermark(end)
        return True

    def offsets_are_available(self) -> bool:
        """False right after an election, until the high watermark has caught up with the epoch's start (E23)."""
        return self.log.high_watermark >= self.epoch_start_offset
