"""The memory that groups and their members take, in bytes: texts exactly, objects and places in tables as measured."""

from __future__ import annotations

from collections.abc import Iterable
from sys import getsizeof

GROUP_BYTES = 1_000
CLASSIC_MEMBER_BYTES = 1_500
PENDING_MEMBER_BYTES = 1_500
"""A member id that was handed out: its timer, and places in tables."""
MODERN_MEMBER_BYTES = 2_500
SUBSCRIBED_TOPIC_BYTES = 300
ID_BYTES = 37
"""A dash and a UUID, which follow the client id in a member id."""


def size_of_group(group_id: str, protocol_type: str | None = None) -> int:
    """Without its members and its offsets. `protocol_type`: of a classic group, whose clients choose it."""
    return GROUP_BYTES + getsizeof(group_id) + (getsizeof(protocol_type) if protocol_type else 0)


def size_of_pending_member(client_id: str) -> int:
    return PENDING_MEMBER_BYTES + getsizeof(client_id) + ID_BYTES


def size_of_classic_member(names: Iterable[str | None], protocols: Iterable[tuple[str, bytes]]) -> int:
    """Without its assignment."""
    return CLASSIC_MEMBER_BYTES + sum(map(getsizeof, names)) + size_of_protocols(protocols)


def size_of_protocols(protocols: Iterable[tuple[str, bytes]]) -> int:
    return sum([getsizeof(name) + len(metadata) for name, metadata in protocols])


def size_of_topics(topics: frozenset[str]) -> int:
    return getsizeof(topics) + sum(map(getsizeof, topics))


def size_of_modern_member(names: Iterable[str | None], topics: Iterable[str]) -> int:
    """Without its assignment, of which the client decides nothing."""
    of_topics = sum([getsizeof(name) + SUBSCRIBED_TOPIC_BYTES for name in topics])
    return MODERN_MEMBER_BYTES + sum(map(getsizeof, names)) + of_topics
