"""Applies those records of the newer kinds of groups that are alike. Follows the replay of Kafka's GroupMetadataManager."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from kafkacompat.coordinator.core import LoadFailure
from kafkacompat.group.classic.classic_group import ClassicGroup
from kafkacompat.group.modern_group import LEAVE_GROUP_MEMBER_EPOCH, ModernGroup, Subscribers

if TYPE_CHECKING:
    from kafkacompat.group.group import Group
    from kafkacompat.group.modern_records import ModernGroupRecord
    from kafkacompat.memory import Memory

G = TypeVar("G", bound=ModernGroup[Any, Any])

Replays = Mapping[int, Callable[[G, Any, Any], None]]
"""Record type -> what applies a key and a value. The value of a tombstone is None."""


def replay_modern_record(
    groups: dict[str, Group],
    subscribers: Subscribers,
    record: ModernGroupRecord,
    kind: type[G],
    replays: Replays[G],
    group_metadata: int,
    memory: Memory | None = None,
) -> None:
    """Apply a record to a group of this kind, which may replace one that only has offsets. `group_metadata`: the record
    type whose tombstone ends the group.

    Raises LoadFailure for a record that does not fit those before it. A tombstone of nothing is ignored.
    """
    of_any_kind: dict[str, Any] = groups
    group = of_any_kind.get(record.group_id)
    if not isinstance(group, kind):
        if record.value is None:
            return
        is_simple = (
            isinstance(group, ClassicGroup) and group.protocol_type is None and group.generation_id == 0
        )
        if group is not None and not is_simple:
            raise LoadFailure(f"group {record.group_id} is {group.kind.value} and {kind.kind.value} at once")
        group = of_any_kind[record.group_id] = kind(record.group_id, subscribers, memory)
    replays[record.key.API_KEY](group, record.key, record.value)
    if group_metadata == record.key.API_KEY and record.value is None:
        group.forget()
        del groups[record.group_id]


def replay_group_metadata(group: ModernGroup[Any, Any], key: Any, value: Any) -> None:
    if value is not None:
        group.set_group_epoch(value.epoch, value.metadata_hash)
    elif group.members or group.targets or group.assignment_epoch != -1:
        raise LoadFailure(f"the tombstone of group {group.group_id} comes before those of its members")


def replay_target_metadata(group: ModernGroup[Any, Any], key: Any, value: Any) -> None:
    if value is not None:
        group.set_assignment_epoch(value.assignment_epoch, value.assignment_timestamp)
    elif group.targets:
        raise LoadFailure(
            f"the tombstone of group {group.group_id}'s assignment comes before those of its members"
        )
    else:
        group.set_assignment_epoch(-1, 0)


def check_may_leave(group: ModernGroup[Any, Any], member_id: str) -> None:
    """Raises LoadFailure if the tombstone of a member comes before those of its assignments."""
    old = group.members.get(member_id)
    if old is not None and (old.member_epoch != LEAVE_GROUP_MEMBER_EPOCH or member_id in group.targets):
        raise LoadFailure(
            f"the tombstone of member {member_id} of group {group.group_id} comes before those of its assignments"
        )
