"""The error of a whole request for the state of share-partitions: every share-partition has it, with Kafka's text."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kafkacompat.wire.errors import error_text

if TYPE_CHECKING:
    from kafkacompat.wire.errors import ErrorCode


def refused_partitions(
    request: Any, code: ErrorCode, topic: Callable[..., Any], partition: Callable[..., Any]
) -> list[Any]:
    return [
        topic(
            topic_id=each.topic_id,
            partitions=[
                partition(partition=one.partition, error_code=code, error_message=error_text(code))
                for one in each.partitions
            ],
        )
        for each in request.topics
    ]
