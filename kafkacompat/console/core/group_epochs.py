"""ConsumerGroupDescribe (KIP-848) for epochs and subscriptions, which the client library does not tell. No sockets."""

from __future__ import annotations

from collections.abc import Sequence

from kafkacompat.console.core.exchange import BadResponse, framed, parsed
from kafkacompat.console.core.snapshot import MAX_MEMBERS_SHOWN, GroupEpochs, MemberEpoch
from kafkacompat.wire.messages.api_versions_request import ApiVersionsRequest
from kafkacompat.wire.messages.api_versions_response import ApiVersionsResponse
from kafkacompat.wire.messages.consumer_group_describe_request import ConsumerGroupDescribeRequest
from kafkacompat.wire.messages.consumer_group_describe_response import ConsumerGroupDescribeResponse
from kafkacompat.wire.tables import ApiKey

API_VERSIONS_VERSION = 0
MEMBER_KINDS = {0: "classic", 1: "consumer"}
"""Version 0 of ConsumerGroupDescribe does not tell the type of a member (-1)."""


def versions_request() -> bytearray:
    """Return the request for the versions that the broker supports, with its length in front."""
    return framed(ApiVersionsRequest(), API_VERSIONS_VERSION)


def describe_version(payload: bytes) -> int:
    """Return the version of ConsumerGroupDescribe to use after this answer. BadResponse if the broker has none."""
    answer = parsed(ApiVersionsResponse, API_VERSIONS_VERSION, payload)
    for entry in answer.api_keys:
        if entry.api_key == ApiKey.CONSUMER_GROUP_DESCRIBE:
            version = min(entry.max_version, ConsumerGroupDescribeRequest.MAX_VERSION)
            if version >= max(entry.min_version, ConsumerGroupDescribeRequest.MIN_VERSION):
                return version
    raise BadResponse("the broker does not describe groups of the consumer protocol")


def describe_request(groups: Sequence[str], version: int) -> bytearray:
    """Return the request about these groups, with its length in front."""
    return framed(ConsumerGroupDescribeRequest(group_ids=list(groups)), version)


def parse_epochs(payload: bytes, version: int) -> dict[str, GroupEpochs]:
    """Return the groups of a coordinator's answer (payload without the length). Groups with an error are left out."""
    response = parsed(ConsumerGroupDescribeResponse, version, payload)
    return {
        group.group_id: GroupEpochs(
            group.group_epoch,
            group.assignment_epoch,
            {
                member.member_id: MemberEpoch(
                    member.member_epoch,
                    MEMBER_KINDS.get(member.member_type, ""),
                    tuple(sorted(member.subscribed_topic_names or ())),
                    member.subscribed_topic_regex or "",
                )
                for member in sorted(group.members, key=lambda each: each.member_id)[:MAX_MEMBERS_SHOWN]
            },
        )
        for group in response.groups
        if group.error_code == 0
    }
