"""DescribeTopicPartitions (key 75, version 0): partitions page by page, with the eligible leader replicas. KIP-966.

Topics come by name; a page holds at most max.request.partition.size.limit partitions; the cursor names the first
partition of the next one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkacompat.api.handler import Handler
from kafkacompat.api.operations import TOPIC_OPERATIONS
from kafkacompat.api.partition_state import leader_for, offline_replicas
from kafkacompat.api.topic_names import is_legal_topic_name
from kafkacompat.ids import INTERNAL_TOPICS
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.describe_topic_partitions_response import (
    Cursor,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)

if TYPE_CHECKING:
    from kafkacompat.api.context import Node, RequestContext
    from kafkacompat.controller.image import MetadataImage, PartitionImage
    from kafkacompat.wire.messages.describe_topic_partitions_request import DescribeTopicPartitionsRequest

LIMIT = "max.request.partition.size.limit"


def handle(
    node: Node, context: RequestContext, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse:
    image, cursor = node.image, request.cursor
    every = not request.topics
    names = sorted(image.topics if every else {topic.name for topic in request.topics})
    first_partition = 0
    if cursor is not None:
        if cursor.partition_index < 0 or not (every or cursor.topic_name in names):
            return error_response(request, ErrorCode.INVALID_REQUEST, context.api_version)
        names = [name for name in names if name >= cursor.topic_name]
        if names and names[0] == cursor.topic_name:
            first_partition = cursor.partition_index
    left = min(max(request.response_partition_limit, 1), node.dynamic.int(LIMIT))
    response = DescribeTopicPartitionsResponse()
    for name in names:
        if left <= 0:
            response.next_cursor = Cursor(topic_name=name, partition_index=0)
            break
        topic = image.topics.get(name)
        if topic is None:
            response.topics.append(_missing(name))
            continue
        described = [
            _partition(image, index, topic.partitions[index], context.listener_name)
            for index in range(first_partition, min(first_partition + left, len(topic.partitions)))
        ]
        response.topics.append(
            DescribeTopicPartitionsResponseTopic(
                name=name,
                topic_id=topic.id,
                is_internal=name in INTERNAL_TOPICS,
                partitions=described,
                topic_authorized_operations=TOPIC_OPERATIONS,
            )
        )
        end = first_partition + len(described)
        if described and end < len(topic.partitions):
            response.next_cursor = Cursor(topic_name=name, partition_index=end)
            break
        left -= len(described)
        first_partition = 0
    return response


def _missing(name: str) -> DescribeTopicPartitionsResponseTopic:
    legal = is_legal_topic_name(name)
    return DescribeTopicPartitionsResponseTopic(
        error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if legal else ErrorCode.INVALID_TOPIC_EXCEPTION,
        name=name,
        is_internal=name in INTERNAL_TOPICS,
        topic_authorized_operations=TOPIC_OPERATIONS,
    )


def _partition(
    image: MetadataImage, index: int, partition: PartitionImage, listener_name: str
) -> DescribeTopicPartitionsResponsePartition:
    error, leader = leader_for(image, partition, listener_name, True)
    return DescribeTopicPartitionsResponsePartition(
        error_code=error,
        partition_index=index,
        leader_id=leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        eligible_leader_replicas=list(partition.eligible_leader_replicas),
        last_known_elr=list(partition.last_known_elr),
        offline_replicas=offline_replicas(image, partition, listener_name),
    )


def error_response(
    request: DescribeTopicPartitionsRequest, code: ErrorCode, version: int
) -> DescribeTopicPartitionsResponse:
    return DescribeTopicPartitionsResponse(
        topics=[
            DescribeTopicPartitionsResponseTopic(error_code=code, name=topic.name) for topic in request.topics
        ]
    )


HANDLER = Handler(75, 0, 0, handle, error_response, waits_for_opening=True)
