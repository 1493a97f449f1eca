"""Puts an error in the right place of each response."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from kafkacompat.coordinator.core import Refused
from kafkacompat.deferred import Deferred
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.offset_commit_response import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kafkacompat.wire.messages.txn_offset_commit_response import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

if TYPE_CHECKING:
    from kafkacompat.wire.messages.offset_commit_request import OffsetCommitRequest
    from kafkacompat.wire.messages.txn_offset_commit_request import TxnOffsetCommitRequest

T = TypeVar("T")


def commit_refusal(request: OffsetCommitRequest, code: ErrorCode) -> OffsetCommitResponse:
    """A response with the error for every requested partition, because it has no error field above them."""
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponsePartition(partition_index=each.partition_index, error_code=code)
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def transactional_commit_refusal(request: TxnOffsetCommitRequest, code: ErrorCode) -> TxnOffsetCommitResponse:
    """Like `commit_refusal`."""
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    TxnOffsetCommitResponsePartition(partition_index=each.partition_index, error_code=code)
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def or_refused(answer: Deferred[T], refused: Callable[[Refused], T]) -> Deferred[T]:
    """The answer, with a Refused error turned into the response for it."""
    if answer.done:
        try:
            answer.result()
        except Refused as refusal:
            return Deferred.of(refused(refusal))
        return answer
    outcome: Deferred[T] = Deferred()

    def done(finished: Deferred[T]) -> None:
        try:
            value = finished.result()
        except Refused as refusal:
            outcome.resolve(refused(refusal))
        except Exception as error:
            outcome.fail(error)
        else:
            outcome.resolve(value)

    answer.on_done(done)
    return outcome
