"""DeleteRecords (key 21, versions 0-2): moves the start of logs. KIP-107.

Duty: shapes; what may be deleted is partition/lookup's. A partition named twice is handled once, by its last mention.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kafkacompat.api.handler import Handler, LongHandling
from kafkacompat.api.long_requests import partitions_asked
from kafkacompat.ids import TopicPartition
from kafkacompat.stepping.jobs import Pace, all_steps
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
    from kafkacompat.stepping.jobs import Steps
    from kafkacompat.wire.messages.delete_records_request import DeleteRecordsRequest

NO_LOW_WATERMARK = -1
DELETED_A_STEP = 200
NAMED_A_STEP = 5_000
"""Topics and partitions, half a microsecond each."""
Answers = Mapping[TopicPartition, tuple[ErrorCode, int]]


def handle(
    node: Node, context: RequestContext, request: DeleteRecordsRequest
) -> Deferred[DeleteRecordsResponse]:
    topics: dict[str, DeleteRecordsTopicResult] = {}

    def respond(answers: Answers) -> DeleteRecordsResponse:
        _add(topics, answers)
        return DeleteRecordsResponse(topics=list(topics.values()))

    return node.partitions.delete_records(all_steps(_offsets(request)), request.timeout_ms).then(respond)


def in_steps(
    node: Node, context: RequestContext, request: DeleteRecordsRequest
) -> Steps[DeleteRecordsResponse]:
    """Each step's partitions wait for their followers by themselves, all of them at once."""
    asked = list((yield from _offsets(request)).items())
    waits = []
    for start in range(0, len(asked), DELETED_A_STEP):
        yield None
        piece = dict(asked[start : start + DELETED_A_STEP])
        waits.append(node.partitions.delete_records(piece, request.timeout_ms))
    topics: dict[str, DeleteRecordsTopicResult] = {}
    for wait in waits:
        answers = yield wait
        _add(topics, answers)
    return DeleteRecordsResponse(topics=list(topics.values()))


def _offsets(request: DeleteRecordsRequest) -> Steps[dict[TopicPartition, int]]:
    offsets: dict[TopicPartition, int] = {}
    pace = Pace(NAMED_A_STEP)
    for topic in request.topics:
        for one in topic.partitions:
            offsets[TopicPartition(topic.name, one.partition_index)] = one.offset
            if pace.is_over():
                yield None
        if pace.is_over():  # many may name no partition
            yield None
    return offsets


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
