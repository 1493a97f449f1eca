"""Answers of Produce: the result of a partition, and when the response may be sent after replication and syncs.

KIP-951 (current leader).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from kafkacompat.api.handler import NoResponse
from kafkacompat.deferred import Deferred, gather
from kafkacompat.ids import TopicPartition
from kafkacompat.wire.errors import NONE, ErrorCode
from kafkacompat.wire.messages.produce_response import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    PartitionProduceResponse,
    ProduceResponse,
)

if TYPE_CHECKING:
    from kafkacompat.api.context import Node
    from kafkacompat.partition.service import ProduceResult
    from kafkacompat.records.plain_produce import PlainProduce
    from kafkacompat.wire.messages.produce_request import ProduceRequest, TopicProduceData

FIRST_VERSION_WITH_TOPIC_IDS = 13
FIRST_VERSION_WITH_CURRENT_LEADER = 10
FIRST_VERSION_WITH_ZSTD = 7
ALL_REPLICAS = -1
ACKS = (0, 1, ALL_REPLICAS)
ADMIN_CLIENT_ID = "__admin_client"
"""As in Kafka, only this client id may write to internal topics."""
Answer: TypeAlias = ProduceResponse | Deferred[ProduceResponse] | NoResponse


def name_of(node: Node, topic: TopicProduceData, version: int) -> str | None:
    if version < FIRST_VERSION_WITH_TOPIC_IDS:
        return topic.name
    image = node.image.topics_by_id.get(topic.topic_id)
    return None if image is None else image.name


def answer_of(index: int, result: ProduceResult, version: int) -> tuple[PartitionProduceResponse, int]:
    """Return a partition's result and the leader id that it names, or -1."""
    answer = PartitionProduceResponse(
        index=index,
        error_code=result.error,
        base_offset=result.base_offset,
        log_append_time_ms=result.log_append_time_ms,
        log_start_offset=result.log_start_offset,
    )
    if result.error is NONE:
        return answer, -1
    answer.error_message = result.error_message
    answer.record_errors = [
        BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=message)
        for index, message in result.record_errors
    ]
    if result.leader_id < 0 or version < FIRST_VERSION_WITH_CURRENT_LEADER:
        return answer, -1
    answer.current_leader = LeaderIdAndEpoch(leader_id=result.leader_id, leader_epoch=result.leader_epoch)
    return answer, result.leader_id


def waits_for(
    node: Node, request: ProduceRequest | PlainProduce, ends: Mapping[TopicPartition, int]
) -> list[Deferred[Mapping[TopicPartition, ErrorCode]]]:
    """Return the waits for replication (acks=all) and for flush.messages of the records that were just appended."""
    waits = []
    if request.acks == ALL_REPLICAS:
        replicated = node.partitions.when_replicated(ends, request.timeout_ms)
        if replicated is not None:
            waits.append(replicated)
    flushed = node.partitions.when_flushed(ends)
    if flushed is not None:
        waits.append(flushed)
    return waits


def when_let_go(
    waits: Sequence[Deferred[Mapping[TopicPartition, ErrorCode]]],
    response: ProduceResponse,
    appended: Mapping[TopicPartition, PartitionProduceResponse],
) -> Deferred[ProduceResponse]:
    """Return the response when all waits are over. Fails if one of them fails."""

    def settle(outcomes: list[Mapping[TopicPartition, ErrorCode]]) -> ProduceResponse:
        for errors in outcomes:
            for partition, error in errors.items():
                if error is not NONE:
                    appended[partition].error_code = error
        return response

    return gather(waits).then(settle)
