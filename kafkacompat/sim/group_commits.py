"""The part that simulated clients of groups share: the topic that they read, and their commits."""

from __future__ import annotations

from typing import Any

from kafkacompat.deferred import Deferred
from kafkacompat.ids import Uuid
from kafkacompat.net.channels import ChannelError
from kafkacompat.sim.clients import Client
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

TOPIC = "t0"
HEARTBEAT_MS, AWAY_MS = 150, 1_500
GROUP_SESSION_MS = 800


class GroupClient(Client):
    """A client that knows its topic from Metadata."""

    def topic(self) -> tuple[Uuid, int] | None:
        """Return the topic's id and number of partitions. None while they are unknown."""
        indexes = [place.key for place in self.places.values() if place.topic == TOPIC]
        return (indexes[0][0], len(indexes)) if indexes else None


def commit_request(
    group_id: str, topic_id: Uuid, numbers: dict[int, int], generation: int, member_id: str
) -> OffsetCommitRequest:
    partitions = [
        OffsetCommitRequestPartition(partition_index=partition, committed_offset=number)
        for partition, number in numbers.items()
    ]
    return OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        topics=[OffsetCommitRequestTopic(name=TOPIC, topic_id=topic_id, partitions=partitions)],
    )


def commit_error(done: Deferred[Any]) -> ErrorCode:
    """Return the first error of any partition, or NONE. Without an answer, REQUEST_TIMED_OUT."""
    try:
        rows = [row for topic in done.result().topics for row in topic.partitions]
    except ChannelError:
        return ErrorCode.REQUEST_TIMED_OUT
    return ErrorCode(next((row.error_code for row in rows if row.error_code), 0))
