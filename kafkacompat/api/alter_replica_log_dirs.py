"""AlterReplicaLogDirs (key 34): move replicas of this broker from one log directory to another. KIP-113.

An answer without an error means that the move has begun. DescribeLogDirs shows its progress.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkacompat.api.handler import Handler
from kafkacompat.ids import TopicPartition
from kafkacompat.tasks import TURN_COST, Pace, Work
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.alter_replica_log_dirs_response import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)

if TYPE_CHECKING:
    from kafkacompat.api.context import Node
    from kafkacompat.api.request_context import RequestContext
    from kafkacompat.wire.messages.alter_replica_log_dirs_request import AlterReplicaLogDirsRequest

ASKED_A_STEP = 20
"""Replicas per step. Each may need a new directory and new files."""
OPENED_LIKE_REPLICAS = 2
"""The cost of a replica whose log this request opens."""
WALKED_A_STEP = 2_000
"""Elements per step that are only read from the request or written to the response."""


def handle(
    node: Node, context: RequestContext, request: AlterReplicaLogDirsRequest
) -> Work[AlterReplicaLogDirsResponse]:
    results: dict[TopicPartition, ErrorCode] = {}
    asked, walked = Pace(ASKED_A_STEP), Pace(WALKED_A_STEP)
    for directory in request.dirs:
        if walked.is_over():
            yield TURN_COST
        for topic in directory.topics:
            if walked.is_over():
                yield TURN_COST
            for index in topic.partitions:
                if asked.is_over(OPENED_LIKE_REPLICAS if node.partitions.opens_logs else 1):
                    yield TURN_COST
                name = TopicPartition(topic.name, index)
                if node.directories is None:
                    results[name] = ErrorCode.LOG_DIR_NOT_FOUND
                else:
                    results[name] = node.directories.alter(name, directory.path)
    return (yield from _response(results, walked))


def error_response(
    request: AlterReplicaLogDirsRequest, error: ErrorCode, version: int
) -> AlterReplicaLogDirsResponse:
    """Return the error for every named partition, also for those named twice."""
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirTopicResult(
                topic_name=topic.name,
                partitions=[
                    AlterReplicaLogDirPartitionResult(partition_index=index, error_code=error)
                    for index in topic.partitions
                ],
            )
            for directory in request.dirs
            for topic in directory.topics
        ]
    )


def _response(results: dict[TopicPartition, ErrorCode], walked: Pace) -> Work[AlterReplicaLogDirsResponse]:
    topics: dict[str, AlterReplicaLogDirTopicResult] = {}
    for name, error in results.items():
        if walked.is_over():
            yield TURN_COST
        topic = topics.setdefault(name.topic, AlterReplicaLogDirTopicResult(topic_name=name.topic))
        topic.partitions.append(
            AlterReplicaLogDirPartitionResult(partition_index=name.partition, error_code=error)
        )
    return AlterReplicaLogDirsResponse(results=list(topics.values()))


HANDLER = Handler(handle, error_response)
