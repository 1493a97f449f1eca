"""ConsumerGroupDescribe over one shard (KIP-848)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkacompat.group.consumer.consumer_group import NO_PARTITIONS, ConsumerGroup
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.consumer_group_describe_response import (
    Assignment,
    DescribedGroup,
    Member,
    TopicPartitions,
)

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Mapping

    from kafkacompat.group.consumer.member import ConsumerGroupMember
    from kafkacompat.group.group_metadata_manager import GroupMetadataManager
    from kafkacompat.group.topics import Topics
    from kafkacompat.ids import Uuid

MEMBERS_A_STEP = 100
MEMBER_COST = 10
"""Cost of one member with few partitions, in microseconds."""
CLASSIC_MEMBER, CONSUMER_MEMBER = 0, 1


def describe_consumer_group(
    machine: GroupMetadataManager, group_id: str
) -> Generator[int, None, DescribedGroup]:
    """The group as it is at the first step; the steps report their cost."""
    group = machine.groups.get(group_id)
    if not isinstance(group, ConsumerGroup):
        reason = "is not a consumer group" if group_id in machine.groups else "not found"
        return DescribedGroup(
            group_id=group_id,
            error_code=ErrorCode.GROUP_ID_NOT_FOUND,
            error_message=f"Group {group_id} {reason}.",
        )
    env = machine.env
    described = DescribedGroup(
        group_id=group_id,
        group_state=group.state_name,
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.preferred_assignor() or env.settings.consumer.assignors[0],
    )
    topics = env.topics
    members = [
        (member, group.targets.get(member.member_id, NO_PARTITIONS)) for member in group.members.values()
    ]
    for start in range(0, len(members), MEMBERS_A_STEP):
        some = members[start : start + MEMBERS_A_STEP]
        described.members += [_member(topics, member, target) for member, target in some]
        yield len(some) * MEMBER_COST
    return described


def _member(topics: Topics, member: ConsumerGroupMember, target: Mapping[Uuid, Iterable[int]]) -> Member:
    current: dict[Uuid, set[int]] = {}
    for owned in (member.assigned, member.pending_revocation):
        for topic_id, partitions in owned.items():
            current.setdefault(topic_id, set()).update(partitions)
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.subscribed_topic_names),
        subscribed_topic_regex=member.subscribed_topic_regex,
        assignment=_named(topics, current),
        target_assignment=_named(topics, target),
        member_type=CLASSIC_MEMBER if member.uses_classic_protocol else CONSUMER_MEMBER,
    )


def _named(topics: Topics, assignment: Mapping[Uuid, Iterable[int]]) -> Assignment:
    """Topics that no longer exist are left out."""
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, topic_name=topic.name, partitions=sorted(partitions))
            for topic_id, partitions in assignment.items()
            if (topic := topics.by_id.get(topic_id)) is not None
        ]
    )
