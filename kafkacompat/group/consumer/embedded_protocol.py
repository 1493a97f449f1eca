"""The consumer protocol inside the classic one: what members put into JoinGroup, and get from SyncGroup.

It is opaque to a classic group. A consumer group reads it, and writes it for its classic members. Follows Kafka's
ConsumerProtocol.
"""

from __future__ import annotations

from kafkacompat.group.consumer.assignor import Assignment
from kafkacompat.group.topics import Topics
from kafkacompat.wire.codec import decode, encode
from kafkacompat.wire.errors import WireError
from kafkacompat.wire.messages.consumer_protocol_assignment import (
    ConsumerProtocolAssignment,
    TopicPartition,
)
from kafkacompat.wire.messages.consumer_protocol_subscription import ConsumerProtocolSubscription

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
