"""The consumer protocol inside the classic one: what members put into JoinGroup, and get from SyncGroup.

A classic group reads only the topics that its members subscribe to: their place is the same in all versions of
ConsumerProtocolSubscription. A consumer group reads all of it, and writes it for its classic members. Follows Kafka's
ConsumerProtocol.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from kafkacompat.group.consumer.assignor import Assignment
from kafkacompat.group.topics import Topics
from kafkacompat.wire.codec import decode, encode
from kafkacompat.wire.errors import WireError
from kafkacompat.wire.messages.consumer_protocol_assignment import ConsumerProtocolAssignment, TopicPartition
from kafkacompat.wire.messages.consumer_protocol_subscription import ConsumerProtocolSubscription

_HEAD = struct.Struct(">hi")
_LENGTH = struct.Struct(">h")

DISTINCT_KEPT = 16
"""The most recent distinct subscriptions that the next ones are compared with."""


class MalformedSubscription(Exception):
    """The bytes are not a consumer protocol subscription."""


DISTINCT_BYTES_MAX = 524_288
"""Bytes of subscriptions decoded for one generation of a group. Equal subscriptions count once."""
DISTINCT_TOPICS_MAX = 30_000
"""Topics in them. They are read within one step of the loop, at 0.4 us each."""


def topics_of_all(subscriptions: Iterable[bytes]) -> frozenset[str]:
    """The topics that all members subscribe to together. Raises MalformedSubscription, also if there is too much to
    decode.

    With thousands of members most subscriptions are equal, except for the bytes after the topics.
    """
    topics: set[str] = set()
    read: list[bytes] = []
    left, topics_left = DISTINCT_BYTES_MAX, DISTINCT_TOPICS_MAX
    for metadata in subscriptions:
        if metadata[:1] < b"\x80" and any(metadata.startswith(known, _LENGTH.size) for known in read):
            continue
        left -= len(metadata)
        if left < 0:
            raise MalformedSubscription(f"more than {DISTINCT_BYTES_MAX} bytes of subscriptions")
        named = subscribed_topics(metadata, topics_left)
        topics_left -= len(named)
        topics.update(named)
        end = _HEAD.size + sum(_LENGTH.size + len(name.encode()) for name in named)
        if len(read) < DISTINCT_KEPT:
            read.append(metadata[_LENGTH.size : end])
    return frozenset(topics)


def subscribed_topics(metadata: bytes, most: int = DISTINCT_TOPICS_MAX) -> list[str]:
    """Topic names in the client's order. Raises MalformedSubscription if the bytes are invalid, or have more topics than
    `most`."""
    try:
        version, count = _HEAD.unpack_from(metadata, 0)
        if version < 0 or not 0 <= count <= most:
            raise MalformedSubscription(f"version {version}, {count} topics")
        position = _HEAD.size
        topics = []
        for _ in range(count):
            (length,) = _LENGTH.unpack_from(metadata, position)
            position += _LENGTH.size
            name = bytes(metadata[position : position + length])
            if length < 0 or len(name) != length:
                raise MalformedSubscription(f"a topic name of {length} bytes")
            topics.append(name.decode("utf-8"))
            position += length
    except (struct.error, UnicodeDecodeError) as error:
        raise MalformedSubscription(str(error)) from error
    return topics


HIGHEST_VERSION = 3
"""A newer version is read as this one, because later fields come at the end."""


class CustomAssignor(Exception):
    """An assignment has user data, which only the assignor of the client understands."""


def version_of(metadata: bytes) -> int:
    """Raises WireError."""
    if len(metadata) < 2:
        raise WireError("a consumer protocol without a version")
    version = int.from_bytes(metadata[:2], "big", signed=True)
    if version < 0:
        raise WireError(f"consumer protocol version {version}")
    return min(version, HIGHEST_VERSION)


METADATA_BYTES_MAX = 524_288
"""What a classic member of a consumer group may tell of its subscription. It is read at once. Kafka too refuses what does not
fit into a record, with UNKNOWN_SERVER_ERROR."""
METADATA_NAMES_MAX = 20_000
"""Topics in it. Each takes the loop for some microseconds, in one step."""


def are_too_many(metadata: bytes) -> bool:
    """Whether it names more topics. It may be malformed."""
    return len(metadata) >= _HEAD.size and _HEAD.unpack_from(metadata)[1] > METADATA_NAMES_MAX


def subscription_of(metadata: bytes) -> ConsumerProtocolSubscription:
    """Raises WireError."""
    return decode(ConsumerProtocolSubscription, version_of(metadata), metadata[2:])


def assigned_partitions(assignment: bytes, topics: Topics) -> Assignment:
    """By topic id. Topics that no longer exist are left out. Raises WireError or CustomAssignor."""
    decoded = decode(ConsumerProtocolAssignment, version_of(assignment), assignment[2:])
    if decoded.user_data:
        raise CustomAssignor
    found: Assignment = {}
    for each in decoded.assigned_partitions:
        topic = topics.by_name.get(each.topic)
        if topic is not None:
            found[topic.id] = found.get(topic.id, frozenset()) | frozenset(each.partitions)
    return found


def assignment_bytes(assigned: Assignment, topics: Topics, version: int) -> bytes:
    """In the version in which the member wrote its subscription."""
    named = [
        TopicPartition(topic=topic.name, partitions=sorted(partitions))
        for topic_id, partitions in assigned.items()
        if (topic := topics.by_id.get(topic_id)) is not None
    ]
    message = ConsumerProtocolAssignment(assigned_partitions=named, user_data=None)
    return version.to_bytes(2, "big") + encode(message, version)
