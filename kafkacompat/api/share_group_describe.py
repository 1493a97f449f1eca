"""ShareGroupDescribe (key 77): share groups with their members' assignments (KIP-932)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkacompat.api.described_groups import SLICES, as_sender_sees
from kafkacompat.api.handler import Handler
from kafkacompat.api.share_requests import serves_share_groups
from kafkacompat.wire.messages.share_group_describe_response import (
    DescribedGroup,
    ShareGroupDescribeResponse,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterator

    from kafkacompat.api.context import Node
    from kafkacompat.api.request_context import RequestContext
    from kafkacompat.wire.errors import ErrorCode
    from kafkacompat.wire.messages.share_group_describe_request import ShareGroupDescribeRequest


def share_group_describe(
    node: Node, context: RequestContext, request: ShareGroupDescribeRequest
) -> Awaitable[ShareGroupDescribeResponse]:
    answer = node.groups.share.describe(request, context)
    return as_sender_sees(node, context, request, answer, DescribedGroup, _topics_of)


def _topics_of(group: DescribedGroup) -> Iterator[str]:
    for member in group.members:
        for topic in member.assignment.topic_partitions:
            yield topic.topic_name


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
    slices=SLICES,
    asks_coordinators=True,
)
