"""ShareGroupDescribe over one shard (KIP-932)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkacompat.group.share.share_group import ShareGroup
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.share_group_describe_response import (
    Assignment,
    DescribedGroup,
    Member,
    TopicPartitions,
)

if TYPE_CHECKING:
    from collections.abc import Generator

    from kafkacompat.group.group_metadata_manager import GroupMetadataManager
    from kafkacompat.group.share.member import ShareGroupMember
    from kafkacompat.group.topics import Topics

MEMBERS_A_STEP = 100
MEMBER_COST = 10
"""Cost of one member with few partitions, in microseconds."""


def describe_share_group(
    machine: GroupMetadataManager, group_id: str
) -> Generator[int, None, DescribedGroup]:
    """The group as it is at the first step; the steps report their cost."""
    group = machine.groups.get(group_id)
    if not isinstance(group, ShareGroup):
        reason = "is not a share group" if group_id in machine.groups else "not found"
        return DescribedGroup(
            group_id=group_id,
            error_code=ErrorCode.GROUP_ID_NOT_FOUND,
            error_message=f"Group {group_id} {reason}.",
        )
    topics = machine.env.topics
    described = DescribedGroup(
        group_id=group_id,
        group_state=group.state_name,
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=machine.env.settings.share.assignor,
    )
    members = list(group.members.values())
    for start in range(0, len(members), MEMBERS_A_STEP):
        some = members[start : start + MEMBERS_A_STEP]
        described.members += [_member(topics, member) for member in some]
        yield len(some) * MEMBER_COST
    return described


def _member(topics: Topics, member: ShareGroupMember) -> Member:
    """Topics that no longer exist are left out of the assignment."""
    return Member(
        member_id=member.member_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.subscribed_topic_names),
        assignment=Assignment(
            topic_partitions=[
                TopicPartitions(topic_id=topic_id, topic_name=topic.name, partitions=sorted(partitions))
                for topic_id, partitions in member.assigned.items()
                if (topic := topics.by_id.get(topic_id)) is not None
            ]
        ),
    )
