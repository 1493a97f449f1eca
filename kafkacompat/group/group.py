"""What a group of any kind does for the shard that has it: checks of offset requests, expiry, deletion, listing."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkacompat.group.records import GroupKind, GroupRecord, OffsetAndMetadata
    from kafkacompat.ids import Uuid


CommitPartitionValidator: TypeAlias = "Callable[[str, Uuid, int], None]"
"""Called with topic name, topic id and partition. Raises OperationRefused if the member may not commit that partition."""


class Group(Protocol):
    @property
    def group_id(self) -> str: ...

    @property
    def kind(self) -> GroupKind: ...

    @property
    def state_name(self) -> str:
        """As in the protocol."""
        ...

    @property
    def listed_protocol_type(self) -> str: ...

    def is_empty(self) -> bool:
        """Whether it has no members, so that it may be deleted or replaced by a group of another kind."""
        ...

    def is_dead(self) -> bool:
        """Whether it is being deleted, or no longer on this broker."""
        ...

    def validate_offset_commit(
        self,
        member_id: str,
        group_instance_id: str | None,
        member_epoch: int,
        is_transactional: bool,
        api_version: int,
    ) -> CommitPartitionValidator | None:
        """Raises OperationRefused. The result checks each partition; None if all of them may be committed. `member_epoch` is the
        generation of a classic member."""
        ...

    def validate_offset_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Raises OperationRefused."""
        ...

    def validate_offset_delete(self) -> None:
        """Raises OperationRefused."""
        ...

    def is_subscribed_to(self, topic: str) -> bool: ...

    def expires_since_ms(self, stored: OffsetAndMetadata) -> int | None:
        """The time from which offsets.retention.minutes counts for an offset, None while it does not expire."""
        ...

    def mark_dead(self, now_ms: int) -> None:
        """Make the group dead while its offsets are removed step by step."""
        ...

    def mark_alive(self) -> None:
        """The group could not be deleted: make it usable again."""
        ...

    def tombstones(self) -> Sequence[GroupRecord]:
        """Records that delete the group, in an order in which every loader accepts them."""
        ...
