"""The reconciliation of one member: its next assignment on the way to the target (KIP-848).

A partition that goes to another member is first revoked by its owner and then released. Follows Kafka's
CurrentAssignmentBuilder.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kafkacompat.coordinator.core import OperationRefused
from kafkacompat.dataclass import dataclass
from kafkacompat.group.consumer.consumer_group_member import ConsumerGroupMember, MemberState, OwnedPartitions
from kafkacompat.wire.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable
    from collections.abc import Set as AbstractSet

    from kafkacompat.group.consumer.assignor import Assignment
    from kafkacompat.ids import Uuid


NOTHING: Mapping[int, int] = {}
NO_PARTITIONS: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """What a member is reconciled with."""

    target_epoch: int
    target: Assignment
    subscribed: AbstractSet[Uuid]
    """Of the topics that the member has or gets, those that it subscribes to now. It may subscribe to all topics of the
    cluster, so the others are left out."""
    subscribes_to_any: bool
    """Whether any topic exists that the member subscribes to. Only looked at if the subscription has changed."""
    has_subscription_changed: bool
    partition_epoch: Callable[[Uuid, int], int]
    """The epoch of a partition's owner, -1 if it is free."""
    owned: Sequence[Any] | None
    """The partitions that the request says the member has, None if it says nothing."""

    def next_of(self, member: ConsumerGroupMember) -> ConsumerGroupMember:
        """The member after this step, or the same if it cannot go on. Raises OperationRefused FENCED_MEMBER_EPOCH."""
        if member.state is MemberState.STABLE:
            if member.member_epoch != self.target_epoch:
                return self._towards_target(member, member.member_epoch)
            return self._without_unsubscribed(member) if self.has_subscription_changed else member
        if member.state is MemberState.UNREVOKED_PARTITIONS:
            if self._owns_any(member.pending_revocation):
                return self._without_unsubscribed(member) if self.has_subscription_changed else member
            return self._towards_target(member, member.member_epoch)
        if member.state is MemberState.UNRELEASED_PARTITIONS:
            return self._towards_target(member, member.member_epoch)
        if self.owned is None or self.owned:
            raise OperationRefused(
                ErrorCode.FENCED_MEMBER_EPOCH,
                "The consumer group member is in a unknown state. "
                "The member must abandon all its partitions and rejoin.",
            )
        return self._towards_target(member, self.target_epoch)

    def _owns_any(self, revoked: OwnedPartitions) -> bool:
        """Also if the request does not say what the member owns."""
        if self.owned is None:
            return True
        return any(
            not revoked[topic.topic_id].keys().isdisjoint(topic.partitions)
            for topic in self.owned
            if topic.topic_id in revoked
        )

    def _without_unsubscribed(self, member: ConsumerGroupMember) -> ConsumerGroupMember:
        """Revoke the topics that the member no longer subscribes to. The epoch stays, and a member that subscribes to
        nothing any more is not heard with the previous one."""
        gone = {topic_id for topic_id in member.assigned if topic_id not in self.subscribed}
        if not gone and (self.subscribes_to_any or member.pending_revocation):
            return member
        assigned = {topic_id: each for topic_id, each in member.assigned.items() if topic_id not in gone}
        pending = dict(member.pending_revocation)
        for topic_id in gone:
            pending[topic_id] = {**pending.get(topic_id, NOTHING), **member.assigned[topic_id]}
        if pending and self._owns_any(pending):
            return replace(
                member,
                state=MemberState.UNREVOKED_PARTITIONS,
                previous_member_epoch=member.member_epoch,
                assigned=assigned,
                pending_revocation=pending,
            )
        return replace(member, previous_member_epoch=member.member_epoch, assigned=assigned)

    def _towards_target(self, member: ConsumerGroupMember, epoch: int) -> ConsumerGroupMember:
        assigned: dict[Uuid, Mapping[int, int]] = {}
        revoked: dict[Uuid, dict[int, int]] = {}
        added: dict[Uuid, list[int]] = {}
        has_unreleased = False
        for topic_id in {**self.target, **member.assigned}:
            wanted = (
                self.target.get(topic_id, NO_PARTITIONS) if topic_id in self.subscribed else NO_PARTITIONS
            )
            present = member.assigned.get(topic_id, NOTHING)
            kept = NOTHING
            if present:
                kept = {partition: at for partition, at in present.items() if partition in wanted}
                if kept:
                    assigned[topic_id] = kept
            if len(kept) < len(present):
                revoked[topic_id] = {
                    partition: at for partition, at in present.items() if partition not in wanted
                }
            if len(kept) == len(wanted):
                continue
            own = member.pending_revocation.get(topic_id, NOTHING)
            free = [
                partition
                for partition in wanted
                if partition not in kept
                and (self.partition_epoch(topic_id, partition) == -1 or partition in own)
            ]
            has_unreleased = has_unreleased or len(kept) + len(free) < len(wanted)
            if free:
                added[topic_id] = free
        if revoked and self._owns_any(revoked):
            return replace(
                member,
                state=MemberState.UNREVOKED_PARTITIONS,
                previous_member_epoch=member.member_epoch,
                member_epoch=epoch,
                assigned=assigned,
                pending_revocation=revoked,
            )
        for topic_id, partitions in added.items():
            given = dict.fromkeys(partitions, self.target_epoch)
            kept = assigned.get(topic_id, NOTHING)
            assigned[topic_id] = {**kept, **given} if kept else given
        return replace(
            member,
            state=MemberState.UNRELEASED_PARTITIONS if has_unreleased else MemberState.STABLE,
            previous_member_epoch=member.member_epoch,
            member_epoch=self.target_epoch,
            assigned=assigned,
            pending_revocation={},
        )
