"""AlterShareGroupOffsets (key 91): the start offsets of an empty share group (KIP-932)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from kafkacompat.api.access import RightToTopics, access_of
from kafkacompat.api.handler import Handler
from kafkacompat.api.pieces import cut
from kafkacompat.api.share_requests import serves_share_groups
from kafkacompat.security.acl import AclOperation
from kafkacompat.tasks import TURN_COST, Pace, Work, in_turns, pause
from kafkacompat.wire.errors import ErrorCode, error_text
from kafkacompat.wire.messages.alter_share_group_offsets_request import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestTopic,
)
from kafkacompat.wire.messages.alter_share_group_offsets_response import (
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)

if TYPE_CHECKING:
    from kafkacompat.api.context import Node
    from kafkacompat.api.request_context import RequestContext

ALTERED_TOGETHER = 20_000
"""Partitions that are altered together or not at all. The group's record of all its states is written in one step."""
SORTED_AT_ONCE = 500
"""Topics and partitions of a request, without a turn of the loop in between."""
Topics = dict[str, AlterShareGroupOffsetsResponseTopic]
"""By name. A topic that is named twice is answered once, with the partitions of both."""


async def alter_share_group_offsets(
    node: Node, context: RequestContext, request: AlterShareGroupOffsetsRequest
) -> AlterShareGroupOffsetsResponse:
    """A request for very many partitions is like several requests, one after another."""
    told: Topics = {}
    readable = RightToTopics(access_of(node, context), AclOperation.READ)
    pace = Pace(SORTED_AT_ONCE)
    pieces: Iterable[list[AlterShareGroupOffsetsRequestTopic]] = (
        cut(request.topics, ALTERED_TOGETHER) if request.topics else ([],)
    )
    for piece in pieces:
        good: list[AlterShareGroupOffsetsRequestTopic] = []
        for topic in piece:
            is_readable = readable.holds(topic.topic_name)
            if is_readable and (topic.partitions or topic.topic_name in node.image.topics):
                good.append(topic)
            elif topic.partitions:  # as in Kafka, a topic that is refused is told by its partitions only
                _put_together(told, [(await in_turns(_refused(node, topic, pace)))])
            if pace.is_over():
                await pause()
        asked = AlterShareGroupOffsetsRequest(group_id=request.group_id, topics=good)
        answer: AlterShareGroupOffsetsResponse = await node.groups.share_offsets.alter(asked, context)
        if answer.error_code:
            return answer
        _put_together(told, answer.responses)
    return AlterShareGroupOffsetsResponse(responses=list(told.values()))


def _refused(
    node: Node, topic: AlterShareGroupOffsetsRequestTopic, pace: Pace
) -> Work[AlterShareGroupOffsetsResponseTopic]:
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    answer = AlterShareGroupOffsetsResponseTopic(topic_name=topic.topic_name)
    known = node.image.topics.get(topic.topic_name)
    if known is not None:
        answer.topic_id = known.id
    for each in topic.partitions:
        answer.partitions.append(
            AlterShareGroupOffsetsResponsePartition(
                partition_index=each.partition_index, error_code=code, error_message=error_text(code)
            )
        )
        if pace.is_over():
            yield TURN_COST
    return answer


def _put_together(told: Topics, more: list[AlterShareGroupOffsetsResponseTopic]) -> None:
    for topic in more:
        known = told.setdefault(topic.topic_name, topic)
        if known is not topic:
            known.partitions += topic.partitions


def _error_response(
    request: AlterShareGroupOffsetsRequest, code: ErrorCode, version: int
) -> AlterShareGroupOffsetsResponse:
    return AlterShareGroupOffsetsResponse(error_code=code, error_message=error_text(code))


HANDLER = Handler(
    is_served=serves_share_groups,
    function=alter_share_group_offsets,
    error_response=_error_response,
    asks_coordinators=True,
)
