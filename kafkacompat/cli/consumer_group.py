"""What `kafkacompat groups describe` shows of a group of the consumer rebalance protocol (KIP-848)."""

from __future__ import annotations

from kafkacompat.cli.client import Cluster, check
from kafkacompat.cli.output import table_lines
from kafkacompat.ids import uuid_to_text
from kafkacompat.wire.apis import ApiKey
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.consumer_group_describe_request import ConsumerGroupDescribeRequest
from kafkacompat.wire.messages.consumer_group_describe_response import (
    Assignment,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
    TopicPartitions,
)

OTHER_TYPE = (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION)
"""The answers for a group of another type, and of a broker whose group.coordinator.rebalance.protocols lacks consumer."""
MEMBER_TYPES = {0: "classic", 1: "consumer"}
"""Version 0 of ConsumerGroupDescribe does not tell the type (-1)."""
NONE = "-"
MEMBER_COLUMNS = (
    "member",
    "epoch",
    "type",
    "instance",
    "client",
    "host",
    "subscribed",
    "regex",
    "assigned",
    "target",
)


def described_consumer_group(cluster: Cluster, group: str) -> DescribedGroup | None:
    """Return the group, or None if the broker knows no group of this protocol by that name."""
    if not cluster.any().serves(ApiKey.CONSUMER_GROUP_DESCRIBE, ConsumerGroupDescribeRequest.MIN_VERSION):
        return None
    answer = cluster.coordinator_call(
        group,
        ConsumerGroupDescribeRequest(group_ids=[group]),
        ConsumerGroupDescribeResponse,
        lambda answer: answer.groups[0].error_code,
    )
    (found,) = answer.groups
    if found.error_code in OTHER_TYPE:
        return None
    check(found.error_code, f"group {group}", found.error_message)
    return found


def consumer_group_lines(group: DescribedGroup) -> list[str]:
    """Return the epochs of the group, and a table of its members with their current and target assignment."""
    lines = [
        f"type consumer, group epoch {group.group_epoch}, "
        f"target assignment epoch {group.assignment_epoch}, assignor {group.assignor_name or NONE}"
    ]
    if group.members:
        members = sorted(group.members, key=lambda member: member.member_id)
        lines += table_lines(MEMBER_COLUMNS, map(_member_row, members))
    return lines


def owners_of(group: DescribedGroup) -> dict[tuple[str, int], str]:
    """Return the member that has each partition in its current assignment."""
    return {
        (_topic_of(topic), number): member.member_id
        for member in group.members
        for topic in member.assignment.topic_partitions
        for number in topic.partitions
    }


def _member_row(member: Member) -> tuple[object, ...]:
    return (
        member.member_id,
        member.member_epoch,
        MEMBER_TYPES.get(member.member_type, NONE),
        member.instance_id or NONE,
        member.client_id or NONE,
        member.client_host or NONE,
        # Apache Kafka answers an empty list for a member that subscribes by regex only.
        ",".join(sorted(member.subscribed_topic_names or ())) or NONE,
        member.subscribed_topic_regex or NONE,
        _partitions(member.assignment),
        _partitions(member.target_assignment),
    )


def _partitions(assignment: Assignment) -> str:
    """Return the assignment in the form of kafka-consumer-groups.sh: topic:0,1;another:0."""
    topics = sorted((_topic_of(topic), sorted(topic.partitions)) for topic in assignment.topic_partitions)
    return ";".join(f"{name}:{','.join(map(str, numbers))}" for name, numbers in topics) or NONE


def _topic_of(topic: TopicPartitions) -> str:
    return topic.topic_name or uuid_to_text(topic.topic_id)
