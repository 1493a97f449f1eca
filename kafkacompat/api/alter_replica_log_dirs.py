"""AlterReplicaLogDirs (key 34, versions 1-2): replicas of this broker move from one of its directories to another. KIP-113.

An answer without error says that the move has begun; DescribeLogDirs shows how far it is. Must not know how a replica is moved.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkacompat.api.handler import Handler
from kafkacompat.ids import TopicPartition
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


def handle(
    node: Node, context: RequestContext, request: AlterReplicaLogDirsRequest
) -> AlterReplicaLogDirsResponse:
    results: dict[TopicPartition, ErrorCode] = {}
    for directory in request.dirs:
        for topic in directory.topics:
            for index in topic.partitions:
                name = TopicPartition(topic.name, index)
                if node.directories is None:
                    results[name] = ErrorCode.LOG_DIR_NOT_FOUND
                else:
                    results[name] = node.directories.alter(name, directory.path)
    return _response(results)


def error_response(
    request: AlterReplicaLogDirsRequest, error: ErrorCode, version: int
) -> AlterReplicaLogDirsResponse:
    return _response(
        {
            TopicPartition(topic.name, index): error
            for directory in request.dirs
            for topic in directory.topics
            for index in topic.partitions
        }
    )


def _response(results: dict[TopicPartition, ErrorCode]) -> AlterReplicaLogDirsResponse:
    topics: dict[str, AlterReplicaLogDirTopicResult] = {}
    for name, error in results.items():
        topic = topics.setdefault(name.topic, AlterReplicaLogDirTopicResult(topic_name=name.topic))
        topic.partitions.append(
            AlterReplicaLogDirPartitionResult(partition_index=name.partition, error_code=error)
        )
    return AlterReplicaLogDirsResponse(results=list(topics.values()))


HANDLER = Handler(handle, error_response)
