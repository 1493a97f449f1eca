"""OffsetForLeaderEpoch (key 23): the end offset of a leader epoch, for clients that detect truncation.

For an epoch that the log does not know, the answer is -1/-1 without an error. KIP-101, KIP-320.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkacompat.api.handler import Handler
from kafkacompat.api.list_offsets import lookup_cost
from kafkacompat.ids import TopicPartition
from kafkacompat.tasks import TURN_COST, Pace, Work
from kafkacompat.wire.messages.offset_for_leader_epoch_response import (
    EpochEndOffset,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)

if TYPE_CHECKING:
    from kafkacompat.api.context import Node
    from kafkacompat.api.request_context import RequestContext
    from kafkacompat.wire.errors import ErrorCode
    from kafkacompat.wire.messages.offset_for_leader_epoch_request import OffsetForLeaderEpochRequest

LOOKED_UP_A_STEP = 200
"""Partitions and topics per step. One takes several microseconds."""


def handle(
    node: Node, context: RequestContext, request: OffsetForLeaderEpochRequest
) -> Work[OffsetForLeaderEpochResponse]:
    """A topic that is named twice is answered once, with the partitions of both mentions."""
    pace = Pace(LOOKED_UP_A_STEP)
    results: dict[str, OffsetForLeaderTopicResult] = {}
    for topic in request.topics:
        result = results.setdefault(topic.topic, OffsetForLeaderTopicResult(topic=topic.topic))
        for one in topic.partitions:
            error, epoch, end_offset = node.partitions.end_offset_for_epoch(
                TopicPartition(topic.topic, one.partition), one.current_leader_epoch, one.leader_epoch
            )
            result.partitions.append(
                EpochEndOffset(
                    error_code=error, partition=one.partition, leader_epoch=epoch, end_offset=end_offset
                )
            )
            if pace.is_over(lookup_cost(node)):
                yield TURN_COST
        if pace.is_over():  # many topics may have no partitions
            yield TURN_COST
    return OffsetForLeaderEpochResponse(topics=list(results.values()))


def error_response(
    request: OffsetForLeaderEpochRequest, code: ErrorCode, version: int
) -> OffsetForLeaderEpochResponse:
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[
                    EpochEndOffset(error_code=code, partition=one.partition) for one in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


HANDLER = Handler(handle, error_response)
