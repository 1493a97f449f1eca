"""DescribeProducers (key 61): the active producers of a partition, from the log of this node's replica. KIP-664.

Followers answer too: `kafka-transactions find-hanging --broker-id` asks a broker about all its replicas.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkacompat.api.handler import Handler
from kafkacompat.api.topics import is_legal_topic_name
from kafkacompat.ids import TopicPartition
from kafkacompat.tasks import TURN_COST, Pace, Work
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

DESCRIBED_A_STEP = 500
"""Topics, partitions and producers per step. One takes one to three microseconds."""
REPEATED_A_STEP = 50_000
"""Partitions per step that were named before. One takes less than a tenth of a microsecond."""
OPENED_LIKE_PRODUCERS = 50
"""The cost of a partition whose log this request opens."""


def handle(
    node: Node, context: RequestContext, request: DescribeProducersRequest
) -> Work[DescribeProducersResponse]:
    """A partition that the request names twice is answered once: each may have many thousands of producers."""
    pace, repeats = Pace(DESCRIBED_A_STEP), Pace(REPEATED_A_STEP)
    topics: dict[str, TopicResponse] = {}
    known: dict[str, set[int]] = {}
    for topic in request.topics:
        told = topics.setdefault(topic.name, TopicResponse(name=topic.name))
        of_topic = known.setdefault(topic.name, set())
        for index in topic.partition_indexes:
            if index in of_topic:
                if repeats.is_over():
                    yield TURN_COST
                continue
            of_topic.add(index)
            described = yield from _describe(node, TopicPartition(topic.name, index), pace)
            told.partitions.append(described)
        if pace.is_over():
            yield TURN_COST
    return DescribeProducersResponse(topics=list(topics.values()))


def _describe(node: Node, partition: TopicPartition, pace: Pace) -> Work[PartitionResponse]:
    if pace.is_over(OPENED_LIKE_PRODUCERS if node.partitions.opens_logs else 1):
        yield TURN_COST
    if not is_legal_topic_name(partition.topic):
        return PartitionResponse(
            partition_index=partition.partition, error_code=ErrorCode.INVALID_TOPIC_EXCEPTION
        )
    error = node.partitions.replica_error(partition)
    if error is not ErrorCode.NONE:
        return PartitionResponse(partition_index=partition.partition, error_code=error)
    producers: list[ProducerState] = []
    for producer in node.partitions.active_producers(partition):
        producers.append(
            ProducerState(
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                last_sequence=producer.last_sequence,
                last_timestamp=producer.last_timestamp_ms,
                coordinator_epoch=producer.coordinator_epoch,
                current_txn_start_offset=producer.current_transaction_first_offset,
            )
        )
        if pace.is_over():
            yield TURN_COST
    return PartitionResponse(partition_index=partition.partition, active_producers=producers)


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


HANDLER = Handler(handle, error_response)
