"""DescribeGroups and ListGroups over one shard.

They show classic, consumer and share groups. Groups of unsupported kinds, whose records are only kept, are not shown,
because a client could do nothing with them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkacompat.group.carried_group import CarriedGroup
from kafkacompat.group.classic.classic_group import ClassicGroupState
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.describe_groups_response import DescribedGroup, DescribedGroupMember
from kafkacompat.wire.messages.list_groups_response import ListedGroup

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence
    from collections.abc import Set as AbstractSet

    from kafkacompat.group.group_metadata_manager import GroupMetadataManager


TOLD_A_STEP = 500
"""Groups or members handled in one step."""
LOWERED_A_STEP = 4_000
"""Names of a filter handled in one step, at a quarter of a microsecond each."""
TOLD_COST = 3
"""Cost of one group or member, in microseconds."""


def describe_group(
    machine: GroupMetadataManager, group_id: str, absent_is_error: bool
) -> Generator[int, None, DescribedGroup]:
    """Describe the group as it is at the first step; the steps report their cost. A name without a classic group is
    described as Dead, with GROUP_ID_NOT_FOUND if the client's version knows it."""
    group = machine.env.classic_group(group_id)
    if group is None:
        reason = "is not a classic group" if group_id in machine.groups else "not found"
        return dead_group(group_id, absent_is_error, f"Group {group_id} {reason}.")
    stable = group.state is ClassicGroupState.STABLE
    name = group.protocol_name or ""
    described = DescribedGroup(
        group_id=group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=name if stable else "",
    )
    members = [
        (member, member.metadata(name) if stable else b"", member.assignment)
        for member in group.members.values()
    ]
    for start in range(0, len(members), TOLD_A_STEP):
        some = members[start : start + TOLD_A_STEP]
        described.members += [
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=metadata,
                member_assignment=assignment,
            )
            for member, metadata, assignment in some
        ]
        yield len(some) * TOLD_COST
    return described


def dead_group(group_id: str, absent_is_error: bool, message: str) -> DescribedGroup:
    described = DescribedGroup(group_id=group_id, group_state=ClassicGroupState.DEAD.value)
    if absent_is_error:
        described.error_code = ErrorCode.GROUP_ID_NOT_FOUND
        described.error_message = message
    return described


def lowered(names: Sequence[str]) -> Generator[int, None, frozenset[str]]:
    """A filter in lower case, in steps that report their cost. A request may have hundreds of thousands of names."""
    found: set[str] = set()
    for start in range(0, len(names), LOWERED_A_STEP):
        found.update([name.lower() for name in names[start : start + LOWERED_A_STEP]])
        yield LOWERED_A_STEP // 4
    return frozenset(found)


def list_groups(
    machine: GroupMetadataManager, states: AbstractSet[str], types: AbstractSet[str]
) -> Generator[int, None, list[ListedGroup]]:
    """List groups in steps that report their cost. Filters are in lower case. An empty filter accepts everything."""
    listed: list[ListedGroup] = []
    groups = list(machine.groups.values())
    for start in range(0, len(groups), TOLD_A_STEP):
        some = groups[start : start + TOLD_A_STEP]
        listed += [
            ListedGroup(
                group_id=group.group_id,
                protocol_type=group.listed_protocol_type,
                group_state=group.state_name,
                group_type=group.kind.value,
            )
            for group in some
            if not isinstance(group, CarriedGroup)
            and (not types or group.kind.value in types)
            and (not states or group.state_name.lower() in states)
        ]
        yield len(some) * TOLD_COST
    return listed
