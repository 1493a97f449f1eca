"""One partition's change record: target ISR, eligible leaders (KIP-966) and election, in the order that Kafka's builder keeps.

Pure. Knows a partition and who is acceptable as its leader, not why the change is asked.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

from kafkacompat.controller.features import leader_epoch_bump_on_isr_shrink
from kafkacompat.controller.image import PartitionImage
from kafkacompat.ids import NO_LEADER, Uuid
from kafkacompat.wire.messages.partition_change_record import PartitionChangeRecord

NO_LEADER_CHANGE = -2
RECOVERING = 1


class Election(Enum):
    ONLINE = "online"
    """A live member of the ISR or, when that is empty, an eligible leader replica."""
    PREFERRED = "preferred"
    UNCLEAN = "unclean"


@dataclass(slots=True)
class PartitionChange:
    """What is wanted of a partition; `record` says what must be written for it, None for nothing."""

    partition: PartitionImage
    topic_id: Uuid
    index: int
    is_acceptable: Callable[[int], bool]
    metadata_version: int
    min_insync_replicas: int
    """Effective: not above the number of replicas."""
    elr_enabled: bool
    target_isr: tuple[int, ...]
    election: Election = Election.ONLINE
    unclean_replicas: frozenset[int] = frozenset()
    """Replicas that lost their page cache: never eligible."""
    _target_elr: tuple[int, ...] = field(default=(), init=False)

    def record(self) -> PartitionChangeRecord | None:
        partition = self.partition
        record = PartitionChangeRecord(topic_id=self.topic_id, partition_id=self.index)
        self._target_elr = self._eligible()
        self._elect(record)
        self._state_elr(record)
        if record.isr is None and (self.target_isr or self.elr_enabled) and self.target_isr != partition.isr:
            record.isr = list(self.target_isr)
        if (
            leader_epoch_bump_on_isr_shrink(self.metadata_version)
            and record.leader == NO_LEADER_CHANGE
            and record.isr is not None
            and not set(partition.isr) <= set(record.isr)
        ):
            record.leader = partition.leader
        self._state_last_known_leader(record)
        return None if self._is_nothing(record) else record

    def _eligible(self) -> tuple[int, ...]:
        partition = self.partition
        if not self.elr_enabled:
            return partition.eligible_leader_replicas
        if len(self.target_isr) >= self.min_insync_replicas:
            return ()
        candidates = {*partition.eligible_leader_replicas, *partition.isr}
        return tuple(sorted(candidates - set(self.target_isr) - self.unclean_replicas))

    def _is_valid(self, replica: int) -> bool:
        in_reach = replica in self.target_isr or (not self.target_isr and replica in self._target_elr)
        return in_reach and self.is_acceptable(replica)

    def _new_leader(self) -> tuple[int, bool]:
        """(replica or NO_LEADER, whether the election is unclean)."""
        partition = self.partition
        replicas = partition.replicas
        if self.election is Election.PREFERRED and self._is_valid(replicas[0]):
            return replicas[0], False
        if self._is_valid(partition.leader):
            return partition.leader, False
        for replica in replicas:
            if self._is_valid(replica):
                return replica, False
        last_known = partition.last_known_elr
        if (
            self.elr_enabled
            and not self._target_elr
            and not self.target_isr
            and len(last_known) == 1
            and self.is_acceptable(last_known[0])
        ):
            return last_known[0], True
        if self.election is Election.UNCLEAN:
            for replica in replicas:
                if self.is_acceptable(replica):
                    return replica, True
        return NO_LEADER, False

    def _elect(self, record: PartitionChangeRecord) -> None:
        leader, unclean = self._new_leader()
        if leader == self.partition.leader:
            return
        if leader in self._target_elr:
            self.target_isr = (leader,)
            self._target_elr = tuple(each for each in self._target_elr if each != leader)
        record.leader = leader
        if unclean:
            record.isr = [leader]
            if not self.partition.leader_recovering:
                record.leader_recovery_state = RECOVERING

    def _state_elr(self, record: PartitionChangeRecord) -> None:
        if record.isr is not None or not self.elr_enabled:
            self._target_elr = ()
        if self._target_elr != self.partition.eligible_leader_replicas:
            record.eligible_leader_replicas = list(self._target_elr)

    def _state_last_known_leader(self, record: PartitionChangeRecord) -> None:
        if not self.elr_enabled:
            return
        partition = self.partition
        if record.isr is not None and not record.isr and partition.last_known_elr != (partition.leader,):
            record.last_known_elr = [partition.leader]
        elif partition.last_known_elr and (
            record.leader >= 0 or (partition.leader != NO_LEADER and record.leader != NO_LEADER)
        ):
            record.last_known_elr = []

    @staticmethod
    def _is_nothing(record: PartitionChangeRecord) -> bool:
        return (
            record.isr is None
            and record.leader == NO_LEADER_CHANGE
            and record.replicas is None
            and record.removing_replicas is None
            and record.adding_replicas is None
            and record.leader_recovery_state == -1
            and record.eligible_leader_replicas is None
            and record.last_known_elr is None
            and record.directories is None
        )
