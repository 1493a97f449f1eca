"""ConsumerGroupDescribe (key 69): consumer groups with their members' assignments (KIP-848)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkacompat.api.consumer_group_heartbeat import serves_consumer_groups
from kafkacompat.api.described_groups import SLICES, as_sender_sees
from kafkacompat.api.handler import Handler
from kafkacompat.wire.messages.consumer_group_describe_response import (
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterator

    from kafkacompat.api.context import Node
    from kafkacompat.api.request_context import RequestContext
    from kafkacompat.wire.errors import ErrorCode
    from kafkacompat.wire.messages.consumer_group_describe_request import ConsumerGroupDescribeRequest


def consumer_group_describe(
    node: Node, context: RequestContext, request: ConsumerGroupDescribeRequest
) -> Awaitable[ConsumerGroupDescribeResponse]:
    answer = node.groups.consumer_group_describe(request, context)
    return as_sender_sees(node, context, request, answer, DescribedGroup, _topics_of)


def _topics_of(group: DescribedGroup) -> Iterator[str]:
    for member in group.members:
        for assignment in (member.assignment, member.target_assignment):
            for topic in assignment.topic_partitions:
                yield topic.topic_name


def _error_response(
    request: ConsumerGroupDescribeRequest, code: ErrorCode, version: int
) -> ConsumerGroupDescribeResponse:
    return ConsumerGroupDescribeResponse(
        groups=[DescribedGroup(group_id=group_id, error_code=code) for group_id in request.group_ids]
    )


HANDLER = Handler(
    is_served=serves_consumer_groups,
    function=consumer_group_describe,
    error_response=_error_response,
    slices=SLICES,
    asks_coordinators=True,
)
