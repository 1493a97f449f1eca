"""The only part of a classic consumer's metadata that a broker reads: the topics it subscribes to.

It decodes the topics of ConsumerProtocolSubscription, whose first version is a prefix of all later ones. The bytes
after the topics are for the clients only.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

_HEAD = struct.Struct(">hi")
_LENGTH = struct.Struct(">h")

DISTINCT_KEPT = 16
"""The most recent distinct subscriptions that the next ones are compared with."""


class MalformedSubscription(Exception):
    """The bytes are not a consumer protocol subscription."""


DISTINCT_BYTES_MAX = 524_288
"""Bytes of subscriptions decoded for one generation of a group. Equal subscriptions count once."""


def topics_of_all(subscriptions: Iterable[bytes]) -> frozenset[str]:
    """The topics that all members subscribe to together. Raises MalformedSubscription, also if there are too many
    bytes to decode.

    With thousands of members most subscriptions are equal, except for the bytes after the topics.
    """
    topics: set[str] = set()
    read: list[bytes] = []
    left = DISTINCT_BYTES_MAX
    for metadata in subscriptions:
        if metadata[:1] < b"\x80" and any(metadata.startswith(known, _LENGTH.size) for known in read):
            continue
        left -= len(metadata)
        if left < 0:
            raise MalformedSubscription(f"more than {DISTINCT_BYTES_MAX} bytes of subscriptions")
        named = subscribed_topics(metadata)
        topics.update(named)
        end = _HEAD.size + sum(_LENGTH.size + len(name.encode()) for name in named)
        if len(read) < DISTINCT_KEPT:
            read.append(metadata[_LENGTH.size : end])
    return frozenset(topics)


def subscribed_topics(metadata: bytes) -> list[str]:
    """Topic names in the client's order. Raises MalformedSubscription if the bytes are invalid."""
    try:
        version, count = _HEAD.unpack_from(metadata, 0)
        if version < 0 or count < 0 or count > len(metadata):
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
