"""StreamsGroupDescribe (key 89): streams groups with their topology and their members' tasks (KIP-1071)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkacompat.api.described_groups import SLICES, as_sender_sees
from kafkacompat.api.handler import Handler
from kafkacompat.api.streams_group_heartbeat import serves_streams_groups
from kafkacompat.wire.messages.streams_group_describe_response import (
    DescribedGroup,
    StreamsGroupDescribeResponse,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterator

    from kafkacompat.api.context import Node
    from kafkacompat.api.request_context import RequestContext
    from kafkacompat.wire.errors import ErrorCode
    from kafkacompat.wire.messages.streams_group_describe_request import StreamsGroupDescribeRequest


HIDDEN = "The described group uses topics that the client is not authorized to describe."


def streams_group_describe(
    node: Node, context: RequestContext, request: StreamsGroupDescribeRequest
) -> Awaitable[StreamsGroupDescribeResponse]:
    answer = node.groups.streams.describe(request, context)
    return as_sender_sees(node, context, request, answer, DescribedGroup, _topics_of, HIDDEN)


def _topics_of(group: DescribedGroup) -> Iterator[str]:
    if group.topology is None:
        return
    for subtopology in group.topology.subtopologies or ():
        yield from subtopology.source_topics
        yield from subtopology.repartition_sink_topics
        for topic in (*subtopology.repartition_source_topics, *subtopology.state_changelog_topics):
            yield topic.name


def _error_response(
    request: StreamsGroupDescribeRequest, code: ErrorCode, version: int
) -> StreamsGroupDescribeResponse:
    return StreamsGroupDescribeResponse(
        groups=[DescribedGroup(group_id=group_id, error_code=code) for group_id in request.group_ids]
    )


HANDLER = Handler(
    is_served=serves_streams_groups,
    function=streams_group_describe,
    error_response=_error_response,
    slices=SLICES,
    asks_coordinators=True,
)
