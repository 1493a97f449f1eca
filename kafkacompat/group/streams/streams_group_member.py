"""A member of a streams group (KIP-1071): what it has told of itself, and its current assignment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from enum import IntEnum

from kafkacompat.dataclass import dataclass
from kafkacompat.group.consumer.consumer_group_member import LEAVE_GROUP_STATIC_MEMBER_EPOCH
from kafkacompat.group.sizes import size_of_modern_member
from kafkacompat.group.streams.tasks_tuple import NOTHING_ASSIGNED, TasksTupleWithEpochs


class MemberState(IntEnum):
    """The values are those of the records."""

    STABLE = 1
    UNREVOKED_TASKS = 2
    """It has to revoke tasks before it may go on to the next epoch."""
    UNRELEASED_TASKS = 3
    """It waits for tasks that others still have."""
    UNKNOWN = 127
    """Written by a newer broker."""

    @classmethod
    def _missing_(cls, value: object) -> MemberState:
        return cls.UNKNOWN


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where the process answers interactive queries."""

    host: str
    port: int


@dataclass(frozen=True, slots=True, weakref_slot=True)
class StreamsGroupMember:
    """Two members are equal if no record is needed to turn one into the other."""

    member_id: str
    member_epoch: int = 0
    previous_member_epoch: int = 0
    state: MemberState = MemberState.STABLE
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    """With the leading slash of Java's InetAddress."""
    rebalance_timeout_ms: int = -1
    topology_epoch: int = -1
    process_id: str = ""
    """Members of one process share its state directory."""
    user_endpoint: Endpoint | None = None
    client_tags: Mapping[str, str] = field(default_factory=dict)
    """Never changed in place."""
    assigned: TasksTupleWithEpochs = NOTHING_ASSIGNED
    pending_revocation: TasksTupleWithEpochs = NOTHING_ASSIGNED

    def size(self) -> int:
        names = (
            self.member_id,
            self.instance_id,
            self.rack_id,
            self.client_id,
            self.client_host,
            self.process_id,
            None if self.user_endpoint is None else self.user_endpoint.host,
        )
        return size_of_modern_member(names, [*self.client_tags, *self.client_tags.values()])

    def takes_as_much_as(self, other: StreamsGroupMember) -> bool:
        return (
            self.client_tags is other.client_tags
            and self.process_id is other.process_id
            and self.user_endpoint is other.user_endpoint
            and self.client_id is other.client_id
            and self.instance_id is other.instance_id
            and self.rack_id is other.rack_id
        )

    @property
    def subscribed_topic_names(self) -> frozenset[str]:
        """The topology of the group says from which topics it reads."""
        return frozenset()

    @property
    def revocation_timeout_ms(self) -> int | None:
        return self.rebalance_timeout_ms if self.state is MemberState.UNREVOKED_TASKS else None

    def is_reconciled_to(self, target_epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.member_epoch == target_epoch

    def left_for_a_while(self) -> StreamsGroupMember:
        """A static member keeps its tasks for who joins next with its instance id. No epoch counts for them any more."""
        active = {
            subtopology_id: dict.fromkeys(epochs, 0)
            for subtopology_id, epochs in self.assigned.active.items()
        }
        return replace(
            self,
            member_epoch=LEAVE_GROUP_STATIC_MEMBER_EPOCH,
            assigned=replace(self.assigned, active=active),
            pending_revocation=NOTHING_ASSIGNED,
        )
