"""DescribeProducers (key 61, version 0): who has written to a partition lately, from its leader's log. KIP-664."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkacompat.api.handler import Handler, Slices
from kafkacompat.api.topic_names import is_legal_topic_name
from kafkacompat.ids import TopicPartition
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.describe_producers_response import (
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)

if TYPE_CHECKING:
    from kafkacompat.api.context import Node
    from kafkacompat.api.request_context import RequestContext
    from kafkacompat.wire.messages.describe_producers_request import DescribeProducersRequest


def handle(
    node: Node, context: RequestContext, request: DescribeProducersRequest
) -> DescribeProducersResponse:
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=topic.name,
                partitions=[
                    _describe(node, TopicPartition(topic.name, index))
                    for index in dict.fromkeys(topic.partition_indexes)
                ],
            )
            for topic in request.topics
        ]
    )


def _describe(node: Node, partition: TopicPartition) -> PartitionResponse:
    if not is_legal_topic_name(partition.topic):
        return PartitionResponse(
            partition_index=partition.partition, error_code=ErrorCode.INVALID_TOPIC_EXCEPTION
        )
    log = node.partitions.log(partition)
    if log is None:
        error = node.partitions.leader_error(partition)
        return PartitionResponse(partition_index=partition.partition, error_code=error)
    return PartitionResponse(
        partition_index=partition.partition,
        active_producers=[
            ProducerState(
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                last_sequence=producer.last_sequence,
                last_timestamp=producer.last_timestamp_ms,
                coordinator_epoch=producer.coordinator_epoch,
                current_txn_start_offset=producer.current_transaction_first_offset,
            )
            for producer in log.active_producers()
        ],
    )


def error_response(
    request: DescribeProducersRequest, code: ErrorCode, version: int
) -> DescribeProducersResponse:
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=topic.name,
                partitions=[
                    PartitionResponse(partition_index=index, error_code=code)
                    for index in topic.partition_indexes
                ],
            )
            for topic in request.topics
        ]
    )


HANDLER = Handler(
    handle,
    error_response,
    slices=Slices("topics", "topics", 10, lambda topic: (topic.name, tuple(topic.partition_indexes))),
)
