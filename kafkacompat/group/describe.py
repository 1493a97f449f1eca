"""DescribeGroups and ListGroups over one shard.

Duty: show classic groups as they stand. Must not know: wire versions, authorisation, other shards. Groups of kinds that are
carried but not served are not shown: a client that saw one could not do anything with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkacompat.group.classic_group import ClassicGroup, ClassicGroupState
from kafkacompat.group.records import GroupKind
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.describe_groups_response import DescribedGroup, DescribedGroupMember
from kafkacompat.wire.messages.list_groups_response import ListedGroup

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from kafkacompat.group.machine import GroupMachine


def describe_group(machine: GroupMachine, group_id: str, absent_is_error: bool) -> DescribedGroup:
    """What is not a classic group is described as Dead, with GROUP_ID_NOT_FOUND where the caller knows it."""
    group = machine.groups.get(group_id)
    if group is None:
        carried = machine.carried.get(group_id)
        reason = "not found" if carried is None else "is not a classic group"
        return dead_group(group_id, absent_is_error, f"Group {group_id} {reason}.")
    stable = group.state is ClassicGroupState.STABLE
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol_name or "") if stable else "",
        members=_members(group, stable),
    )


def dead_group(group_id: str, absent_is_error: bool, message: str) -> DescribedGroup:
    described = DescribedGroup(group_id=group_id, group_state=ClassicGroupState.DEAD.value)
    if absent_is_error:
        described.error_code = ErrorCode.GROUP_ID_NOT_FOUND
        described.error_message = message
    return described


def _members(group: ClassicGroup, with_metadata: bool) -> list[DescribedGroupMember]:
    name = group.protocol_name or ""
    return [
        DescribedGroupMember(
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            member_metadata=member.metadata(name) if with_metadata else b"",
            member_assignment=member.assignment,
        )
        for member in group.members.values()
    ]


def list_groups(
    machine: GroupMachine, states: AbstractSet[str], types: AbstractSet[str]
) -> list[ListedGroup]:
    """Filters in lower case; an empty one lets everything through."""
    if types and GroupKind.CLASSIC.value not in types:
        return []
    return [
        ListedGroup(
            group_id=group.group_id,
            protocol_type=group.protocol_type or "",
            group_state=group.state.value,
            group_type=GroupKind.CLASSIC.value,
        )
        for group in machine.groups.values()
        if not states or group.state.value.lower() in states
    ]
