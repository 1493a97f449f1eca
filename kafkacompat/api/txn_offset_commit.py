"""TxnOffsetCommit (key 28): existing topics go to the group coordinator, unknown topics are refused
here.

KIP-98, KIP-447, KIP-890.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkacompat.api.access import RightToTopics, access_of
from kafkacompat.api.handler import Handler
from kafkacompat.api.pieces import COMMITTED_PIECE, in_pieces, named_in, put_together
from kafkacompat.security.acl import AclOperation
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.txn_offset_commit_response import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from kafkacompat.api.context import Node
    from kafkacompat.api.request_context import RequestContext
    from kafkacompat.wire.messages.txn_offset_commit_request import (
        TxnOffsetCommitRequest,
        TxnOffsetCommitRequestTopic,
    )


def handle(
    node: Node, context: RequestContext, request: TxnOffsetCommitRequest
) -> TxnOffsetCommitResponse | Awaitable[Any]:
    if named_in(request.topics) > COMMITTED_PIECE:
        return in_pieces(handle, node, context, request, COMMITTED_PIECE)
    good: list[TxnOffsetCommitRequestTopic] = []
    refused: dict[str, list[TxnOffsetCommitResponsePartition]] = {}
    readable = RightToTopics(access_of(node, context), AclOperation.READ)
    for topic in request.topics:
        known, code = node.image.topics.get(topic.name), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if not readable.holds(topic.name):
            known, code = None, ErrorCode.TOPIC_AUTHORIZATION_FAILED
        present = () if known is None else known.partitions
        absent = [each for each in topic.partitions if each.partition_index not in present]
        if absent or known is None:
            refused.setdefault(topic.name, []).extend(
                TxnOffsetCommitResponsePartition(partition_index=each.partition_index, error_code=code)
                for each in absent
            )
            topic.partitions = [each for each in topic.partitions if each.partition_index in present]
        if topic.partitions:
            good.append(topic)
    if not good:
        return _merged(TxnOffsetCommitResponse(), refused)
    request.topics = good
    answer = node.groups.transactional_offset_commit(request, context)
    return answer.then(lambda response: _merged(response, refused))


def _merged(
    response: TxnOffsetCommitResponse, refused: dict[str, list[TxnOffsetCommitResponsePartition]]
) -> TxnOffsetCommitResponse:
    """Merge the refusals into the response. A topic with refused partitions then appears once, with all its
    partitions.

    Without refusals, a topic appears as often as the request names it.
    """
    if refused:
        topics: dict[Any, TxnOffsetCommitResponseTopic] = {}
        unknown = (
            TxnOffsetCommitResponseTopic(name=name, partitions=partitions)
            for name, partitions in refused.items()
        )
        put_together(topics, unknown)
        put_together(topics, response.topics)
        response.topics = list(topics.values())
    return response


def error_response(request: TxnOffsetCommitRequest, code: ErrorCode, version: int) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    TxnOffsetCommitResponsePartition(partition_index=each.partition_index, error_code=code)
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


HANDLER = Handler(handle, error_response, asks_coordinators=True)
