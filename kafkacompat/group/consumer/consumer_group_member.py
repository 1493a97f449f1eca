"""A member of a consumer group (KIP-848): what it has told of itself, and its current assignment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import IntEnum
from typing import TYPE_CHECKING, TypeAlias

from kafkacompat.dataclass import dataclass
from kafkacompat.group.sizes import size_of_modern_member, size_of_protocols

if TYPE_CHECKING:
    from kafkacompat.ids import Uuid


OwnedPartitions: TypeAlias = "Mapping[Uuid, Mapping[int, int]]"
"""Topic id -> partition -> the member epoch at which the partition was assigned. Never changed in place."""

LEAVE_GROUP_STATIC_MEMBER_EPOCH = -2
"""Of a static member that has left for a while and keeps its assignment."""


class MemberState(IntEnum):
    """The values are those of the records."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    """It has to revoke partitions before it may go on to the next epoch."""
    UNRELEASED_PARTITIONS = 2
    """It waits for partitions that others still own."""
    UNKNOWN = 127
    """Written by a newer broker."""

    @classmethod
    def _missing_(cls, value: object) -> MemberState:
        return cls.UNKNOWN


@dataclass(frozen=True, slots=True)
class ClassicMemberMetadata:
    """Of a member that still uses the classic protocol."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    """(name, metadata) pairs in its order of preference."""


@dataclass(frozen=True, slots=True, weakref_slot=True)
class ConsumerGroupMember:
    """Two members are equal if no record is needed to turn one into the other."""

    member_id: str
    member_epoch: int = 0
    previous_member_epoch: int = -1
    state: MemberState = MemberState.STABLE
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    client_id: str = ""
    client_host: str = ""
    """With the leading slash of Java's InetAddress."""
    subscribed_topic_names: frozenset[str] = frozenset()
    subscribed_topic_regex: str | None = ""
    server_assignor: str | None = None
    assigned: OwnedPartitions = field(default_factory=dict)
    pending_revocation: OwnedPartitions = field(default_factory=dict)
    classic: ClassicMemberMetadata | None = None

    def size(self) -> int:
        names = (
            self.member_id,
            self.instance_id,
            self.rack_id,
            self.client_id,
            self.client_host,
            self.server_assignor,
            self.subscribed_topic_regex,
        )
        size = size_of_modern_member(names, self.subscribed_topic_names)
        return size if self.classic is None else size + size_of_protocols(self.classic.protocols)

    def takes_as_much_as(self, other: ConsumerGroupMember) -> bool:
        return (
            self.subscribed_topic_names is other.subscribed_topic_names
            and self.classic is other.classic
            and self.subscribed_topic_regex is other.subscribed_topic_regex
            and self.client_id is other.client_id
            and self.instance_id is other.instance_id
            and self.rack_id is other.rack_id
        )

    @property
    def uses_classic_protocol(self) -> bool:
        return self.classic is not None

    @property
    def regex(self) -> str | None:
        """None without a subscription by regular expression. An empty one ends it."""
        return self.subscribed_topic_regex or None

    @property
    def revocation_timeout_ms(self) -> int | None:
        return self.rebalance_timeout_ms if self.state is MemberState.UNREVOKED_PARTITIONS else None

    def is_reconciled_to(self, target_epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.member_epoch == target_epoch

    def assignment_epoch(self, topic_id: Uuid, partition: int) -> int | None:
        """The epoch at which the partition was assigned. None if the member neither has it nor still has to revoke it."""
        epoch = self.assigned.get(topic_id, {}).get(partition)
        return self.pending_revocation.get(topic_id, {}).get(partition) if epoch is None else epoch
