"""OffsetDelete (key 47): existing topics go to the group coordinator, unknown topics are refused here. KIP-496."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkacompat.api.access import RightToTopics, access_of
from kafkacompat.api.handler import Handler, top_level_error
from kafkacompat.api.pieces import PIECE, in_pieces, named_in, put_together
from kafkacompat.security.acl import AclOperation
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.offset_delete_request import OffsetDeleteRequest, OffsetDeleteRequestTopic
from kafkacompat.wire.messages.offset_delete_response import (
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from kafkacompat.api.context import Node
    from kafkacompat.api.request_context import RequestContext


def offset_delete(node: Node, context: RequestContext, request: OffsetDeleteRequest) -> Awaitable[Any]:
    if named_in(request.topics) > PIECE:
        return in_pieces(offset_delete, node, context, request)
    good: list[OffsetDeleteRequestTopic] = []
    refused: dict[str, list[OffsetDeleteResponsePartition]] = {}
    readable = RightToTopics(access_of(node, context), AclOperation.READ)
    for topic in request.topics:
        known, code = node.image.topics.get(topic.name), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if not readable.holds(topic.name):
            known, code = None, ErrorCode.TOPIC_AUTHORIZATION_FAILED
        present = [
            each
            for each in topic.partitions
            if known is not None and each.partition_index in known.partitions
        ]
        absent = [
            OffsetDeleteResponsePartition(partition_index=each.partition_index, error_code=code)
            for each in topic.partitions
            if known is None or each.partition_index not in known.partitions
        ]
        if absent or known is None:
            refused.setdefault(topic.name, []).extend(absent)
        if present:
            good.append(OffsetDeleteRequestTopic(name=topic.name, partitions=present))
    asked = OffsetDeleteRequest(group_id=request.group_id, topics=good)
    return node.groups.offset_delete(asked, context).then(lambda response: _merged(response, refused))


def _merged(
    response: OffsetDeleteResponse, refused: dict[str, list[OffsetDeleteResponsePartition]]
) -> OffsetDeleteResponse:
    if response.error_code:
        return response
    if refused:
        topics: dict[Any, OffsetDeleteResponseTopic] = {}
        unknown = (
            OffsetDeleteResponseTopic(name=name, partitions=partitions)
            for name, partitions in refused.items()
        )
        put_together(topics, unknown)
        put_together(topics, response.topics)
        response.topics = list(topics.values())
    return response


HANDLER = Handler(
    function=offset_delete,
    error_response=top_level_error(OffsetDeleteResponse),
    asks_coordinators=True,
)
