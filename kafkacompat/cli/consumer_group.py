"""What `kafkacompat groups describe` shows of a group of the consumer rebalance protocol (KIP-848)."""

from __future__ import annotations

from kafkacompat.cli.described_group import NONE, assigned, assigned_text, described_group, group_lines
from kafkacompat.client.blocking import Cluster
from kafkacompat.wire.apis import ApiKey
from kafkacompat.wire.messages.consumer_group_describe_request import ConsumerGroupDescribeRequest
from kafkacompat.wire.messages.consumer_group_describe_response import (
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
)

MEMBER_TYPES = {0: "classic", 1: "consumer"}
"""Version 0 of ConsumerGroupDescribe does not tell the type (-1)."""
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
    request = ConsumerGroupDescribeRequest(group_ids=[group])
    return described_group(
        cluster, group, ApiKey.CONSUMER_GROUP_DESCRIBE, request, ConsumerGroupDescribeResponse
    )


def consumer_group_lines(group: DescribedGroup) -> list[str]:
    """Return the epochs of the group, and a table of its members with their current and target assignment."""
    return group_lines("consumer", group, MEMBER_COLUMNS, _member_row)


def owners_of(group: DescribedGroup) -> dict[tuple[str, int], str]:
    """Return the member that has each partition in its current assignment."""
    return {
        partition: member.member_id for member in group.members for partition in assigned(member.assignment)
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
        assigned_text(member.assignment),
        assigned_text(member.target_assignment),
    )
