"""DescribeLogDirs version 1 (KIP-113) as bytes: the one request for sizes that the client library does not offer.

Version 1 is served by every broker since Kafka 2.0 and has neither tags nor compact arrays. Knows no socket.
"""

from __future__ import annotations

import struct

from kafkacompat.console.core.snapshot import ReplicaSize

API_KEY = 35
API_VERSION = 1
CORRELATION_ID = 1
CLIENT_ID = b"kafkacompat-console"
ALL_TOPICS = -1
MAX_RESPONSE_BYTES = 16 * 1024 * 1024
MAX_ENTRIES = 200_000


class BadResponse(ValueError):
    """The answer does not follow the format, or refuses."""


def request_frame() -> bytes:
    """The request for all topics, with its length in front."""
    body = struct.pack(">hhih", API_KEY, API_VERSION, CORRELATION_ID, len(CLIENT_ID)) + CLIENT_ID
    body += struct.pack(">i", ALL_TOPICS)
    return struct.pack(">i", len(body)) + body


def parse_response(payload: bytes, node_id: int) -> list[ReplicaSize]:
    """The sizes that a node tells (payload without the length). Logs on their way to another directory count too."""
    reader = _Reader(payload)
    if reader.number("i") != CORRELATION_ID:
        raise BadResponse("an answer to another request")
    reader.number("i")  # the throttle time
    sizes: list[ReplicaSize] = []
    for _ in range(reader.count()):
        error = reader.number("h")
        reader.text()  # the directory
        for _ in range(reader.count()):
            topic = reader.text()
            for _ in range(reader.count()):
                partition, size, _lag, _future = (reader.number(code) for code in "iqqb")
                sizes.append(ReplicaSize(node_id, topic, partition, size))
        if error:
            raise BadResponse(f"error {error}")
    return sizes


class _Reader:
    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def number(self, code: str) -> int:
        try:
            (value,) = struct.unpack_from(">" + code, self._data, self._at)
        except struct.error:
            raise BadResponse("the answer is cut short") from None
        self._at += struct.calcsize(">" + code)
        return int(value)

    def count(self) -> int:
        value = self.number("i")
        if not 0 <= value <= MAX_ENTRIES:
            raise BadResponse(f"an array of {value}")
        return value

    def text(self) -> str:
        length = self.number("h")
        if length < 0 or self._at + length > len(self._data):
            raise BadResponse("the answer is cut short")
        self._at += length
        return self._data[self._at - length : self._at].decode("utf-8", "replace")
