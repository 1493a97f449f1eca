"""DeleteRecords (key 21): move the start offset of logs. KIP-107.

partition/purgatories decides what may be deleted. If a partition is named twice, only the last mention counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kafkacompat.api.access import Access, access_of
from kafkacompat.api.handler import Handler, LongHandling
from kafkacompat.api.long_requests import partitions_asked
from kafkacompat.ids import TopicPartition
from kafkacompat.security.acl import AclOperation, ResourceType
from kafkacompat.tasks import TURN_COST, Pace, Work, at_once, in_turns, pause, pieces
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.delete_records_response import (
    DeleteRecordsPartitionResult,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

if TYPE_CHECKING:
    from kafkacompat.api.context import Node
    from kafkacompat.api.request_context import RequestContext
    from kafkacompat.deferred import Deferred
    from kafkacompat.wire.messages.delete_records_request import DeleteRecordsRequest

NO_LOW_WATERMARK = -1
DELETED_A_STEP = 12
"""Partitions per step. It takes up to a millisecond to open the log of a new one."""
NAMED_A_STEP = 5_000
"""Topics and partitions per step. One takes half a microsecond."""
TOLD_US = 1
"""Of one partition in the response."""
Answers = Mapping[TopicPartition, tuple[ErrorCode, int]]


def handle(
    node: Node, context: RequestContext, request: DeleteRecordsRequest
) -> Deferred[DeleteRecordsResponse]:
    topics: dict[str, DeleteRecordsTopicResult] = {}

    offsets, refused = at_once(_offsets(request, access_of(node, context)))

    def respond(answers: Answers) -> DeleteRecordsResponse:
        _add(topics, answers)
        _add(topics, refused)
        return DeleteRecordsResponse(topics=list(topics.values()))

    return node.partitions.delete_records(offsets, request.timeout_ms).then(respond)


async def in_steps(
    node: Node, context: RequestContext, request: DeleteRecordsRequest
) -> DeleteRecordsResponse:
    """Each step waits for the followers of its partitions. The waits of all steps overlap."""
    offsets, refused = await in_turns(_offsets(request, access_of(node, context)))
    asked = list(offsets.items())
    waits = []
    for start in range(0, len(asked), DELETED_A_STEP):
        await pause()
        piece = dict(asked[start : start + DELETED_A_STEP])
        waits.append(node.partitions.delete_records(piece, request.timeout_ms))
    topics: dict[str, DeleteRecordsTopicResult] = {}
    for wait in waits:
        answers = await wait
        _add(topics, answers)
        await pause(len(answers) * TOLD_US)
    for some in pieces(list(refused.items()), NAMED_A_STEP):
        _add(topics, dict(some))
        await pause()
    return DeleteRecordsResponse(topics=list(topics.values()))


def _offsets(
    request: DeleteRecordsRequest, access: Access | None
) -> Work[tuple[dict[TopicPartition, int], dict[TopicPartition, tuple[ErrorCode, int]]]]:
    """Return the requested offsets, and the refusals of partitions whose records the sender may not delete."""
    offsets: dict[TopicPartition, int] = {}
    refused: dict[TopicPartition, tuple[ErrorCode, int]] = {}
    pace = Pace(NAMED_A_STEP)
    for topic in request.topics:
        allowed = access is None or access.allows(AclOperation.DELETE, ResourceType.TOPIC, topic.name)
        for one in topic.partitions:
            partition = TopicPartition(topic.name, one.partition_index)
            if allowed:
                offsets[partition] = one.offset
            else:
                refused[partition] = ErrorCode.TOPIC_AUTHORIZATION_FAILED, NO_LOW_WATERMARK
            if pace.is_over():
                yield TURN_COST
        if pace.is_over():  # many topics may have no partitions
            yield TURN_COST
    return offsets, refused


def _add(topics: dict[str, DeleteRecordsTopicResult], answers: Answers) -> None:
    for (name, index), (error, low_watermark) in answers.items():
        topic = topics.get(name)
        if topic is None:
            topic = topics[name] = DeleteRecordsTopicResult(name=name)
        topic.partitions.append(
            DeleteRecordsPartitionResult(partition_index=index, low_watermark=low_watermark, error_code=error)
        )


def error_response(request: DeleteRecordsRequest, code: ErrorCode, version: int) -> DeleteRecordsResponse:
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[
                    DeleteRecordsPartitionResult(
                        partition_index=one.partition_index, low_watermark=NO_LOW_WATERMARK, error_code=code
                    )
                    for one in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


HANDLER = Handler(
    handle,
    error_response,
    long=LongHandling(partitions_asked, DELETED_A_STEP, in_steps),
    waits_at_will=True,
)
