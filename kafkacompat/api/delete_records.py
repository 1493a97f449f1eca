"""DeleteRecords (key 21, versions 0-2): moves the start of logs. KIP-107.

Duty: shapes; what may be deleted is partition/lookup's. A partition named twice is handled once, by its last mention.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kafkacompat.api.handler import Handler
from kafkacompat.ids import TopicPartition
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.delete_records_response import (
    DeleteRecordsPartitionResult,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

if TYPE_CHECKING:
    from kafkacompat.api.context import Node, RequestContext
    from kafkacompat.deferred import Deferred
    from kafkacompat.wire.messages.delete_records_request import DeleteRecordsRequest

NO_LOW_WATERMARK = -1


def handle(
    node: Node, context: RequestContext, request: DeleteRecordsRequest
) -> Deferred[DeleteRecordsResponse]:
    offsets = {
        TopicPartition(topic.name, one.partition_index): one.offset
        for topic in request.topics
        for one in topic.partitions
    }

    def respond(answers: Mapping[TopicPartition, tuple[ErrorCode, int]]) -> DeleteRecordsResponse:
        topics: dict[str, DeleteRecordsTopicResult] = {}
        for (name, index), (error, low_watermark) in answers.items():
            topic = topics.setdefault(name, DeleteRecordsTopicResult(name=name))
            topic.partitions.append(
                DeleteRecordsPartitionResult(
                    partition_index=index, low_watermark=low_watermark, error_code=error
                )
            )
        return DeleteRecordsResponse(topics=list(topics.values()))

    return node.partitions.delete_records(offsets, request.timeout_ms).then(respond)


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


HANDLER = Handler(21, 0, 2, handle, error_response)
