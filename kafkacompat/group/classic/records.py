"""The record of a classic group, from which it is restored."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkacompat.group.classic.classic_group_member import EMPTY_ASSIGNMENT
from kafkacompat.group.records import GroupMetadataRecord
from kafkacompat.wire.messages.group_metadata_value import GroupMetadataValue, MemberMetadata

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkacompat.group.classic.classic_group import ClassicGroup


def group_metadata_record(group: ClassicGroup, assignments: Mapping[str, bytes]) -> GroupMetadataRecord:
    """The group's record, from which it can be restored, with these assignments by member id."""
    name = group.protocol_name or ""
    return GroupMetadataRecord(
        group.group_id,
        GroupMetadataValue(
            protocol_type=group.protocol_type or "",
            generation=group.generation_id,
            protocol=group.protocol_name,
            leader=group.leader_id,
            current_state_timestamp=group.current_state_timestamp_ms,
            members=[
                MemberMetadata(
                    member_id=member.member_id,
                    group_instance_id=member.group_instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    rebalance_timeout=member.rebalance_timeout_ms,
                    session_timeout=member.session_timeout_ms,
                    subscription=member.metadata(name),
                    assignment=assignments.get(member.member_id, EMPTY_ASSIGNMENT),
                )
                for member in group.members.values()
            ],
        ),
    )


def empty_group_record(group_id: str, now_ms: int) -> GroupMetadataRecord:
    """A new group that has had no generation yet."""
    return GroupMetadataRecord(
        group_id,
        GroupMetadataValue(
            protocol_type="",
            generation=0,
            protocol=None,
            leader=None,
            current_state_timestamp=now_ms,
            members=[],
        ),
    )
