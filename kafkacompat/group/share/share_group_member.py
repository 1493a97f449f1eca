"""A member of a share group (KIP-932): what it has told of itself, and its current assignment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING, TypeAlias

from kafkacompat.dataclass import dataclass
from kafkacompat.group.consumer.consumer_group_member import MemberState
from kafkacompat.group.sizes import size_of_modern_member

if TYPE_CHECKING:
    from kafkacompat.ids import Uuid


Partitions: TypeAlias = "Mapping[Uuid, frozenset[int]]"
"""Topic id -> partitions. Never changed in place."""


@dataclass(frozen=True, slots=True)
class ShareGroupMember:
    """Two members are equal if no record is needed to turn one into the other."""

    member_id: str
    member_epoch: int = 0
    previous_member_epoch: int = -1
    state: MemberState = MemberState.STABLE
    """Members of share groups give nothing up before others get it, so it is always this one."""
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    """With the leading slash of Java's InetAddress."""
    subscribed_topic_names: frozenset[str] = frozenset()
    assigned: Partitions = field(default_factory=dict)

    def size(self) -> int:
        names = (self.member_id, self.rack_id, self.client_id, self.client_host)
        return size_of_modern_member(names, self.subscribed_topic_names)

    def takes_as_much_as(self, other: ShareGroupMember) -> bool:
        return (
            self.subscribed_topic_names is other.subscribed_topic_names
            and self.client_id is other.client_id
            and self.rack_id is other.rack_id
        )

    @property
    def instance_id(self) -> None:
        """Share groups have no static members."""

    @property
    def revocation_timeout_ms(self) -> None:
        """It gives nothing up before others get it."""

    def is_reconciled_to(self, target_epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.member_epoch == target_epoch
