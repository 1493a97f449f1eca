"""OffsetForLeaderEpoch (key 23, versions 2-4): where a leader epoch ended, for clients that look for truncation.

An epoch that the log does not know is answered -1/-1 without an error. KIP-101, KIP-320.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkacompat.api.handler import Handler, Slices
from kafkacompat.ids import TopicPartition
from kafkacompat.wire.messages.offset_for_leader_epoch_response import (
    EpochEndOffset,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)

if TYPE_CHECKING:
    from kafkacompat.api.context import Node
    from kafkacompat.api.request_context import RequestContext
    from kafkacompat.wire.errors import ErrorCode
    from kafkacompat.wire.messages.offset_for_leader_epoch_request import (
        OffsetForLeaderEpochRequest,
        OffsetForLeaderTopic,
    )


def handle(
    node: Node, context: RequestContext, request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse:
    topics = []
    for topic in request.topics:
        answers = []
        for one in topic.partitions:
            error, epoch, end_offset = node.partitions.end_offset_for_epoch(
                TopicPartition(topic.topic, one.partition), one.current_leader_epoch, one.leader_epoch
            )
            answers.append(
                EpochEndOffset(
                    error_code=error, partition=one.partition, leader_epoch=epoch, end_offset=end_offset
                )
            )
        topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=answers))
    return OffsetForLeaderEpochResponse(topics=topics)


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


def _of_both(one: OffsetForLeaderTopic, other: OffsetForLeaderTopic) -> OffsetForLeaderTopic:
    """A topic that is named twice, for the partitions of both."""
    one.partitions.extend(other.partitions)
    return one


HANDLER = Handler(
    handle,
    error_response,
    slices=Slices("topics", "topics", 200, lambda topic: topic.topic, of_both=_of_both),
)
