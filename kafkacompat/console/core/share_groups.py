"""The requests about share groups (KIP-932), which the client library does not know, and their answers. No sockets."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kafkacompat.console.core.snapshot import (
    MAX_MEMBERS_SHOWN,
    GroupEpochs,
    MemberEpoch,
    MemberSeen,
    ShareGroupSeen,
    ShareStand,
)
from kafkacompat.wire.messages.describe_share_group_offsets_request import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from kafkacompat.wire.messages.describe_share_group_offsets_response import DescribeShareGroupOffsetsResponse
from kafkacompat.wire.messages.list_groups_request import ListGroupsRequest
from kafkacompat.wire.messages.list_groups_response import ListGroupsResponse
from kafkacompat.wire.messages.share_group_describe_request import ShareGroupDescribeRequest
from kafkacompat.wire.messages.share_group_describe_response import Member, ShareGroupDescribeResponse
from kafkacompat.wire.tables import ApiKey

LIST_VERSION = 5
"""The first version of ListGroups that can ask for a type."""
UNKNOWN = -1


def has_share_groups(serves: Callable[[int, int], bool]) -> bool:
    """Whether a broker can be asked about them. `serves(key, version)` tells what it supports."""
    return (
        serves(ApiKey.LIST_GROUPS, LIST_VERSION)
        and serves(ApiKey.SHARE_GROUP_DESCRIBE, ShareGroupDescribeRequest.MIN_VERSION)
        and serves(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, DescribeShareGroupOffsetsRequest.MIN_VERSION)
    )


def list_request(kind: str) -> ListGroupsRequest:
    return ListGroupsRequest(types_filter=[kind])


def listed_groups(answer: ListGroupsResponse, kind: str) -> list[str]:
    """Return the ids of the groups of a kind that the node coordinates."""
    return sorted(group.group_id for group in answer.groups if group.group_type.lower() == kind)


def describe_request(groups: Sequence[str]) -> ShareGroupDescribeRequest:
    return ShareGroupDescribeRequest(group_ids=list(groups))


def offsets_request(groups: Sequence[str]) -> DescribeShareGroupOffsetsRequest:
    asked = [DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=None) for group in groups]
    return DescribeShareGroupOffsetsRequest(groups=asked)


def groups_in(
    described: ShareGroupDescribeResponse, offsets: DescribeShareGroupOffsetsResponse, coordinator: int
) -> list[ShareGroupSeen]:
    """Return the groups of both answers. Groups with an error are left out."""
    stands = _stands(offsets)
    found = []
    for group in described.groups:
        if group.error_code:
            continue
        shown = sorted(group.members, key=lambda each: each.member_id)[:MAX_MEMBERS_SHOWN]
        epochs = {
            member.member_id: MemberEpoch(
                member.member_epoch, topics=tuple(sorted(member.subscribed_topic_names))
            )
            for member in shown
        }
        found.append(
            ShareGroupSeen(
                group.group_id,
                group.group_state.lower(),
                len(group.members),
                coordinator,
                GroupEpochs(group.group_epoch, group.assignment_epoch, epochs),
                stands.get(group.group_id),
                group.assignor_name,
                tuple(_member(member) for member in shown),
            )
        )
    return found


def _stands(answer: DescribeShareGroupOffsetsResponse) -> dict[str, dict[tuple[str, int], ShareStand]]:
    return {
        group.group_id: {
            (topic.topic_name, each.partition_index): ShareStand(
                None if each.error_code or each.start_offset == UNKNOWN else each.start_offset,
                None if each.error_code or each.lag == UNKNOWN else each.lag,
            )
            for topic in group.topics
            for each in topic.partitions
        }
        for group in answer.groups
        if not group.error_code
    }


def _member(member: Member) -> MemberSeen:
    return MemberSeen(
        member.member_id,
        member.client_id,
        member.client_host,
        assigned=tuple(
            sorted(
                (topic.topic_name, number)
                for topic in member.assignment.topic_partitions
                for number in topic.partitions
            )
        ),
    )
