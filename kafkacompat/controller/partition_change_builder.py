"""One partition's change record: assignment, ISR, eligible leader replicas (KIP-966), election, leader recovery state.

If the target ISR completes a reassignment, the same record completes it, whatever the change was for. The steps and
their order are those of Kafka's PartitionChangeBuilder. Pure.

`generate_leader_and_isr_updates` has the new leaders and ISRs when one broker's state changes (generateLeaderAndIsrUpdates). The
image does not contain the broker's change yet, so the caller passes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from enum import Enum

from kafkacompat.controller.controller_result import RECORD_COST, SCANNED_A_STEP
from kafkacompat.controller.features import (
    directories_supported,
    elr_enabled,
    leader_epoch_bump_on_isr_shrink,
    metadata_version,
    partition_version,
)
from kafkacompat.controller.image import (
    MetadataImage,
    PartitionRegistration,
    TopicImage,
    default_dir,
    has_online_dir,
)
from kafkacompat.controller.records import MetadataRecord
from kafkacompat.controller.settings import ControllerSettings
from kafkacompat.dataclass import dataclass
from kafkacompat.ids import NO_LEADER, Uuid
from kafkacompat.tasks import TURN_COST, Work, sorted_in_steps
from kafkacompat.wire.messages.partition_change_record import PartitionChangeRecord

NO_LEADER_CHANGE = -2
RECOVERED, RECOVERING = 0, 1


class Election(Enum):
    ONLINE = "online"
    """A live member of the ISR or, if that is empty, an eligible leader replica."""
    PREFERRED = "preferred"
    UNCLEAN = "unclean"


def completed_reassignment(
    replicas: tuple[int, ...], removing: tuple[int, ...], adding: tuple[int, ...], isr: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """(replicas, ISR) once every added replica and at least one remaining one are in sync. None if the reassignment is
    not complete or there is none.

    If more replicas are removed than added, all remaining ones must be in sync. Otherwise the partition would have
    fewer in-sync replicas than before.
    """
    if not removing and not adding:
        return None
    left = tuple(replica for replica in replicas if replica not in removing)
    isr_left = tuple(replica for replica in isr if replica not in removing)
    if not left or not isr_left or not set(adding) <= set(isr_left):
        return None
    if len(adding) < len(removing) and not set(left) <= set(isr_left):
        return None
    return left, isr_left


@dataclass(slots=True)
class PartitionChangeBuilder:
    """The requested changes of a partition. Set the fields, then call `build` once for the record."""

    partition: PartitionRegistration
    topic_id: Uuid
    index: int
    is_acceptable_leader: Callable[[int], bool]
    metadata_version: int
    min_isr: int
    """The effective value, not above the number of replicas."""
    elr_enabled: bool
    default_dir: Callable[[int], Uuid]
    """The directory of the partition on a broker that is added."""
    target_isr: tuple[int, ...]
    election: Election = Election.ONLINE
    unclean_shutdown_replicas: frozenset[int] = frozenset()
    """Replicas that lost their page cache: never eligible."""
    target_replicas: tuple[int, ...] | None = None
    """None keeps the partition's value. The same for the next two fields."""
    target_removing: tuple[int, ...] | None = None
    target_adding: tuple[int, ...] | None = None
    target_directories: Mapping[int, Uuid] | None = None
    """Directories by broker id that replace the partition's."""
    target_recovering: bool | None = None
    """Whether the leader recovers from an unclean election. None keeps the partition's value."""
    _target_elr: tuple[int, ...] = field(default=(), init=False)

    def build(self) -> MetadataRecord | None:
        """The record, or None if nothing changes."""
        partition = self.partition
        record = PartitionChangeRecord(topic_id=self.topic_id, partition_id=self.index)
        self._complete_reassignment_if_needed()
        self._target_elr = self._new_target_elr()
        self._try_election(record)
        if record.leader == NO_LEADER_CHANGE and not set(partition.replicas) <= set(self._replicas):
            # A new leader epoch fences the removed replica.
            record.leader = partition.leader
        self._maybe_update_record_elr(record)
        if record.isr is None and (self.target_isr or self.elr_enabled) and self.target_isr != partition.isr:
            record.isr = list(self.target_isr)
        if (
            leader_epoch_bump_on_isr_shrink(self.metadata_version)
            and record.leader == NO_LEADER_CHANGE
            and record.isr is not None
            and not set(partition.isr) <= set(record.isr)
        ):
            record.leader = partition.leader
        self._maybe_update_last_known_leader(record)
        self._set_assignment_changes(record)
        if (
            self.target_recovering is not None
            and self.target_recovering is not self.partition.leader_recovering
        ):
            record.leader_recovery_state = RECOVERING if self.target_recovering else RECOVERED
        if self._change_record_is_no_op(record):
            return None
        return MetadataRecord(record, partition_version(self.metadata_version))

    @property
    def _replicas(self) -> tuple[int, ...]:
        return self.partition.replicas if self.target_replicas is None else self.target_replicas

    @property
    def _removing(self) -> tuple[int, ...]:
        return self.partition.removing_replicas if self.target_removing is None else self.target_removing

    @property
    def _adding(self) -> tuple[int, ...]:
        return self.partition.adding_replicas if self.target_adding is None else self.target_adding

    def _complete_reassignment_if_needed(self) -> None:
        completed = completed_reassignment(self._replicas, self._removing, self._adding, self.target_isr)
        if completed is not None:
            self.target_replicas, self.target_isr = completed
            self.target_removing = self.target_adding = ()

    def _new_target_elr(self) -> tuple[int, ...]:
        partition = self.partition
        if not self.elr_enabled:
            # These are from when the feature was enabled. Only if the ISR is still empty was nothing committed without
            # them.
            return () if partition.isr else self._staying(partition.eligible_leader_replicas)
        if len(self.target_isr) >= self.min_isr:
            return ()
        # Apache Kafka 4.3.0 keeps replicas that are moved away. Such a replica would be elected as soon as it is moved
        # back, with an empty log.
        candidates = {*partition.eligible_leader_replicas, *partition.isr} - set(self.target_isr)
        return self._staying(candidates)

    def _staying(self, candidates: Iterable[int]) -> tuple[int, ...]:
        return tuple(sorted(set(candidates) & set(self._replicas) - self.unclean_shutdown_replicas))

    def _is_valid_new_leader(self, replica: int) -> bool:
        in_reach = replica in self.target_isr or (not self.target_isr and replica in self._target_elr)
        return in_reach and self.is_acceptable_leader(replica)

    def _new_leader(self) -> tuple[int, bool]:
        """(replica or NO_LEADER, whether the election is unclean)."""
        partition = self.partition
        replicas = self._replicas
        if self.election is Election.PREFERRED and self._is_valid_new_leader(replicas[0]):
            return replicas[0], False
        if self._is_valid_new_leader(partition.leader):
            return partition.leader, False
        for replica in replicas:
            if self._is_valid_new_leader(replica):
                return replica, False
        last_known = partition.last_known_elr
        if (
            not self._target_elr
            and not self.target_isr
            and not (partition.isr and not self.elr_enabled)
            and len(last_known) == 1
            # Apache Kafka 4.3.0 does not check this. The replica would lead a partition whose log it no longer has.
            and last_known[0] in replicas
            and self.is_acceptable_leader(last_known[0])
        ):
            return last_known[0], True
        if self.election is Election.UNCLEAN:
            for replica in replicas:
                if self.is_acceptable_leader(replica):
                    return replica, True
        return NO_LEADER, False

    def _try_election(self, record: PartitionChangeRecord) -> None:
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

    def _maybe_update_record_elr(self, record: PartitionChangeRecord) -> None:
        if record.isr is not None or (self.target_isr and not self.elr_enabled):
            self._target_elr = ()
        if self._target_elr != self.partition.eligible_leader_replicas:
            record.eligible_leader_replicas = list(self._target_elr)

    def _maybe_update_last_known_leader(self, record: PartitionChangeRecord) -> None:
        partition = self.partition
        if record.leader >= 0:
            if partition.last_known_elr:
                record.last_known_elr = []
        elif self.elr_enabled and not partition.last_known_elr:
            if partition.leader != NO_LEADER:
                if record.leader == NO_LEADER:
                    record.last_known_elr = [partition.leader]
            elif record.isr == [] and len(partition.isr) == 1:
                # It led while the feature was off, when the last ISR member stays. Apache Kafka 4.3.0 does not record
                # it.
                record.last_known_elr = list(partition.isr)

    def _set_assignment_changes(self, record: PartitionChangeRecord) -> None:
        partition = self.partition
        if self._replicas != partition.replicas or self.target_directories is not None:
            known = dict(zip(partition.replicas, partition.directories, strict=True))
            known.update(self.target_directories or {})
            directories = [
                known[replica] if replica in known else self.default_dir(replica)
                for replica in self._replicas
            ]
            if directories_supported(self.metadata_version) and tuple(directories) != partition.directories:
                record.directories = directories
        if self._replicas != partition.replicas:
            record.replicas = list(self._replicas)
        if self._removing != partition.removing_replicas:
            record.removing_replicas = list(self._removing)
        if self._adding != partition.adding_replicas:
            record.adding_replicas = list(self._adding)

    @staticmethod
    def _change_record_is_no_op(record: PartitionChangeRecord) -> bool:
        return record == PartitionChangeRecord(topic_id=record.topic_id, partition_id=record.partition_id)


@dataclass(frozen=True, slots=True)
class BrokerChange:
    """The change of one broker, NO_LEADER for none. Only one field is set."""

    to_remove: int = NO_LEADER
    """The broker leaves leaderships and ISRs."""
    to_add: int = NO_LEADER
    """The broker may lead although it is fenced in the image."""
    unclean_shutdown: int = NO_LEADER
    """Like `to_remove`, and the broker may have lost its page cache."""


NO_CHANGE = BrokerChange()


def partition_change(
    image: MetadataImage,
    settings: ControllerSettings,
    topic: TopicImage,
    index: int,
    brokers: BrokerChange = NO_CHANGE,
) -> PartitionChangeBuilder:
    """A builder that keeps the partition as it is, without the removed broker in its ISR. The caller sets further
    changes on it."""
    partition = topic.partitions[index]
    gone = {brokers.to_remove, brokers.unclean_shutdown} - {NO_LEADER}
    isr = partition.isr
    return PartitionChangeBuilder(
        partition=partition,
        topic_id=topic.id,
        index=index,
        is_acceptable_leader=_leader_acceptor(image, partition, brokers),
        metadata_version=metadata_version(image.features),
        min_isr=settings.min_insync_replicas(image, topic.name),
        elr_enabled=elr_enabled(image.features),
        target_isr=tuple(replica for replica in isr if replica not in gone) if gone else isr,
        unclean_shutdown_replicas=frozenset({brokers.unclean_shutdown} - {NO_LEADER}),
        default_dir=lambda broker_id: default_dir(image, broker_id),
    )


def _leader_acceptor(
    image: MetadataImage, partition: PartitionRegistration, brokers: BrokerChange
) -> Callable[[int], bool]:
    """A function that is True for a broker that is unfenced, not shutting down, and has the partition's directory
    online."""

    def is_acceptable(replica: int) -> bool:
        broker = image.brokers.get(replica)
        if broker is None or replica in (brokers.to_remove, brokers.unclean_shutdown):
            return False
        if broker.in_controlled_shutdown or (broker.fenced and replica != brokers.to_add):
            return False
        if replica not in partition.replicas:
            return True
        return has_online_dir(broker, partition.directories[partition.replicas.index(replica)])

    return is_acceptable


def generate_leader_and_isr_updates(
    image: MetadataImage,
    settings: ControllerSettings,
    brokers: BrokerChange,
    concerned: Callable[[PartitionRegistration], bool],
) -> Work[list[MetadataRecord]]:
    """ISR, eligible leaders and leader of every partition concerned, by topic name and index."""
    records: list[MetadataRecord] = []
    cost = 0
    for name in (yield from sorted_in_steps(image.topics)):
        topic = image.topics[name]
        election: Election | None = None
        for index in sorted(topic.partitions):
            cost += 1
            if cost >= SCANNED_A_STEP:
                cost = 0
                yield TURN_COST
            if not concerned(topic.partitions[index]):
                continue
            cost += RECORD_COST
            if election is None:
                election = Election.UNCLEAN if settings.unclean_election(image, name) else Election.ONLINE
            builder = partition_change(image, settings, topic, index, brokers)
            builder.election = election
            record = builder.build()
            if record is not None:
                records.append(record)
    return records
