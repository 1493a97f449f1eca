"""The part that simulated clients of groups share: the topics that they read, and their commits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kafkacompat.deferred import Deferred
from kafkacompat.ids import Uuid
from kafkacompat.net.channels import ChannelError
from kafkacompat.sim.clients import Client
from kafkacompat.sim.committed_metadata import Key
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
    """A client that knows its topics from Metadata."""

    def topic(self) -> tuple[Uuid, int] | None:
        """Return the id and number of partitions of the topic that is always there. None while they are unknown."""
        return self.layout([TOPIC]).get(TOPIC)

    def layout(self, topics: Iterable[str]) -> dict[str, tuple[Uuid, int]]:
        """Return the id and number of partitions of those of these topics that are known."""
        wanted, found = set(topics), dict[str, tuple[Uuid, int]]()
        for place in self.places.values():
            if place.topic in wanted and not self.env.metadata.is_deleted(place.key):
                count = found[place.topic][1] if place.topic in found else 0
                found[place.topic] = place.topic_id, count + 1
        return found


def by_topic(keys: Iterable[Key]) -> dict[Uuid, list[int]]:
    """Partitions by their topics' ids, in order."""
    topics: dict[Uuid, list[int]] = {}
    for topic_id, index in sorted(keys):
        topics.setdefault(topic_id, []).append(index)
    return topics


def commit_request(
    group_id: str,
    numbers: Mapping[Key, int],
    generation: int,
    member_id: str,
    instance_id: str | None = None,
) -> OffsetCommitRequest:
    """Topics are told by their ids."""
    topics = [
        OffsetCommitRequestTopic(
            topic_id=topic_id,
            partitions=[
                OffsetCommitRequestPartition(partition_index=index, committed_offset=numbers[topic_id, index])
                for index in indexes
            ],
        )
        for topic_id, indexes in by_topic(numbers).items()
    ]
    return OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        group_instance_id=instance_id,
        topics=topics,
    )


def commit_errors(done: Deferred[Any], keys: Iterable[Key]) -> dict[Key, ErrorCode]:
    """Return the error of each partition. Without an answer, REQUEST_TIMED_OUT."""
    try:
        topics = done.result().topics
    except ChannelError:
        return dict.fromkeys(keys, ErrorCode.REQUEST_TIMED_OUT)
    return {
        (topic.topic_id, row.partition_index): ErrorCode(row.error_code)
        for topic in topics
        for row in topic.partitions
    }


def commit_error(done: Deferred[Any]) -> ErrorCode:
    """Return the first error of any partition, or NONE. Without an answer, REQUEST_TIMED_OUT."""
    try:
        rows = [row for topic in done.result().topics for row in topic.partitions]
    except ChannelError:
        return ErrorCode.REQUEST_TIMED_OUT
    return ErrorCode(next((row.error_code for row in rows if row.error_code), 0))
