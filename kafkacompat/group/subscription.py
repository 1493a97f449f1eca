"""The one thing a broker reads in a classic consumer's metadata: which topics it subscribes to.

Duty: decode the topics of ConsumerProtocolSubscription, whose first version is a prefix of all later ones. Must not know:
groups. Everything after the topics is the clients' own affair.
"""

from __future__ import annotations

import struct

_HEAD = struct.Struct(">hi")
_LENGTH = struct.Struct(">h")


class MalformedSubscription(Exception):
    """The bytes are not a consumer protocol subscription."""


def subscribed_topics(metadata: bytes) -> list[str]:
    """Topic names in the client's order; MalformedSubscription when the bytes do not hold them."""
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
