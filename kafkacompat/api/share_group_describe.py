"""ShareGroupDescribe (key 77, version 1): share groups with their members' assignments (KIP-932)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkacompat.api.access import RightToTopics, access_of
from kafkacompat.api.handler import Handler, Slices
from kafkacompat.api.operations import group_operations
from kafkacompat.api.share_requests import serves_share_groups
from kafkacompat.security.acl import AclOperation
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.share_group_describe_response import (
    DescribedGroup,
    ShareGroupDescribeResponse,
)

if TYPE_CHECKING:
    from kafkacompat.api.context import Node
    from kafkacompat.api.request_context import RequestContext
    from kafkacompat.deferred import Deferred
    from kafkacompat.wire.messages.share_group_describe_request import ShareGroupDescribeRequest


def share_group_describe(
    node: Node, context: RequestContext, request: ShareGroupDescribeRequest
) -> ShareGroupDescribeResponse | Deferred[Any]:
    answer = node.groups.share.describe(request, context)
    access = access_of(node, context)
    if access is None and not request.include_authorized_operations:
        return answer

    def with_rights(response: ShareGroupDescribeResponse) -> ShareGroupDescribeResponse:
        if request.include_authorized_operations:
            for group in response.groups:
                if not group.error_code:
                    group.authorized_operations = group_operations(access, group.group_id)
        rights = RightToTopics(access, AclOperation.DESCRIBE)
        response.groups = [
            group if _is_visible(group, rights) else _hidden(group) for group in response.groups
        ]
        return response

    return answer.then(with_rights)


def _is_visible(group: DescribedGroup, rights: RightToTopics) -> bool:
    """Whether the sender may describe all topics that the group's members have."""
    return all(
        rights.holds(each.topic_name)
        for member in group.members
        for each in member.assignment.topic_partitions
    )


def _hidden(group: DescribedGroup) -> DescribedGroup:
    return DescribedGroup(
        group_id=group.group_id,
        error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        error_message="The group has described topic(s) that the client is not authorized to describe.",
    )


def _error_response(
    request: ShareGroupDescribeRequest, code: ErrorCode, version: int
) -> ShareGroupDescribeResponse:
    return ShareGroupDescribeResponse(
        groups=[DescribedGroup(group_id=group_id, error_code=code) for group_id in request.group_ids]
    )


HANDLER = Handler(
    is_served=serves_share_groups,
    function=share_group_describe,
    error_response=_error_response,
    # Kafka answers a group as often as it is named.
    slices=Slices("group_ids", "groups", 20, lambda _: object()),
)
