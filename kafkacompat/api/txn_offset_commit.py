"""TxnOffsetCommit (key 28): existing topics go to the group coordinator, unknown topics are refused
here.

KIP-98, KIP-447, KIP-890, KIP-1319 (topic ids from version 6).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from kafkacompat.api.access import RightToTopics, access_of
from kafkacompat.api.handler import Handler
from kafkacompat.api.pieces import COMMITTED_PIECE, in_pieces, named_by, named_in, with_refused
from kafkacompat.group.service import transactional_commit_refusal
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


FIRST_VERSION_WITH_TOPIC_IDS = 6
Refused: TypeAlias = "dict[tuple[str, bytes], TxnOffsetCommitResponseTopic]"
"""By topic name and id."""


def handle(
    node: Node, context: RequestContext, request: TxnOffsetCommitRequest
) -> TxnOffsetCommitResponse | Awaitable[Any]:
    if named_in(request.topics) > COMMITTED_PIECE:
        return in_pieces(handle, node, context, request, COMMITTED_PIECE)
    by_id = context.api_version >= FIRST_VERSION_WITH_TOPIC_IDS
    image = node.image
    good: list[TxnOffsetCommitRequestTopic] = []
    refused: Refused = {}
    readable = RightToTopics(access_of(node, context), AclOperation.READ)
    for topic in request.topics:
        known = image.topics_by_id.get(topic.topic_id) if by_id else image.topics.get(topic.name)
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if by_id and known is None:
            code = ErrorCode.UNKNOWN_TOPIC_ID
        elif not readable.holds(topic.name if known is None else known.name):
            known, code = None, ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if known is not None:
            topic.name, topic.topic_id = known.name, known.id
        present = () if known is None else known.partitions
        absent = [each for each in topic.partitions if each.partition_index not in present]
        if absent or known is None:
            refused.setdefault(
                (topic.name, topic.topic_id),
                TxnOffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=[]),
            ).partitions += [
                TxnOffsetCommitResponsePartition(partition_index=each.partition_index, error_code=code)
                for each in absent
            ]
            topic.partitions = [each for each in topic.partitions if each.partition_index in present]
        if topic.partitions:
            good.append(topic)
    if not good:
        return named_by(with_refused(TxnOffsetCommitResponse(), refused), by_id)
    request.topics = good
    answer = node.groups.transactional_offset_commit(request, context)
    return answer.then(lambda response: named_by(with_refused(response, refused), by_id))


def error_response(request: TxnOffsetCommitRequest, code: ErrorCode, version: int) -> TxnOffsetCommitResponse:
    response = transactional_commit_refusal(request, code)
    return named_by(response, version >= FIRST_VERSION_WITH_TOPIC_IDS)


HANDLER = Handler(handle, error_response, asks_coordinators=True)
