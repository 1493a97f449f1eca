"""The requests about share groups (KIP-932), which the client library does not know, and their answers. No sockets."""

from __future__ import annotations

from collections.abc import Sequence

from kafkacompat.console.core.exchange import framed, parsed
from kafkacompat.console.core.snapshot import (
    MAX_MEMBERS_SHOWN,
    SHARE,
    GroupEpochs,
    MemberEpoch,
    MemberSeen,
    ShareGroupSeen,
    ShareStand,
)
from kafkacompat.wire.messages.api_versions_response import ApiVersionsResponse
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
DESCRIBE_VERSION = 1
UNKNOWN = -1


def offsets_version(payload: bytes) -> int | None:
    """Return the version of DescribeShareGroupOffsets to use after an answer to ApiVersions 0. None if the broker has no
    share groups."""
    answer = parsed(ApiVersionsResponse, 0, payload)
    served = {entry.api_key: (entry.min_version, entry.max_version) for entry in answer.api_keys}
    for key, version in ((ApiKey.LIST_GROUPS, LIST_VERSION), (ApiKey.SHARE_GROUP_DESCRIBE, DESCRIBE_VERSION)):
        lowest, highest = served.get(key, (0, -1))
        if not lowest <= version <= highest:
            return None
    lowest, highest = served.get(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, (0, -1))
    version = min(highest, DescribeShareGroupOffsetsRequest.MAX_VERSION)
    return version if version >= lowest else None


def list_request() -> bytearray:
    return framed(ListGroupsRequest(types_filter=[SHARE]), LIST_VERSION)


def parse_list(payload: bytes) -> list[str]:
    """Return the ids of the share groups that the node coordinates."""
    answer = parsed(ListGroupsResponse, LIST_VERSION, payload)
    return sorted(group.group_id for group in answer.groups if group.group_type.lower() == SHARE)


def describe_request(groups: Sequence[str]) -> bytearray:
    return framed(ShareGroupDescribeRequest(group_ids=list(groups)), DESCRIBE_VERSION)


def offsets_request(groups: Sequence[str], version: int) -> bytearray:
    asked = [DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=None) for group in groups]
    return framed(DescribeShareGroupOffsetsRequest(groups=asked), version)


def parse_groups(described: bytes, offsets: bytes, version: int, coordinator: int) -> list[ShareGroupSeen]:
    """Return the groups of both answers. Groups with an error are left out."""
    stands = _stands(offsets, version)
    answer = parsed(ShareGroupDescribeResponse, DESCRIBE_VERSION, described)
    found = []
    for group in answer.groups:
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


def _stands(payload: bytes, version: int) -> dict[str, dict[tuple[str, int], ShareStand]]:
    answer = parsed(DescribeShareGroupOffsetsResponse, version, payload)
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
