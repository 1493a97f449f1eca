"""A raw connection to a broker: frames, headers, correlation ids, and calls with dicts as bodies.

Headers are encoded by hand here, and bodies by `schema`. Nothing of `kafkacompat/client` or `kafkacompat/wire` is used: a
mistake that a broker of ours shares with our own codec would pass unseen. A closed or reset connection raises `ConnectionClosed`.
Silence within the time limit raises `Silence`. So a test can distinguish a refusal from a missing response.
"""

from __future__ import annotations

import contextlib
import itertools
import select
import socket
import struct
import time
from typing import Any

from interop_tests.harness.schema import Reader, message

API_VERSIONS = 18


class ConnectionClosed(Exception):
    """The broker closed or reset the connection."""


class Silence(Exception):
    """The broker sent nothing within the time allowed."""


def encode_request_header(
    api_key: int,
    version: int,
    correlation_id: int,
    client_id: str | None,
    flexible: bool,
    tags: bytes = b"\x00",
) -> bytes:
    """Request header version 1, or version 2 with tags if flexible. The tags are the count and the contents, already
    encoded."""
    client = None if client_id is None else client_id.encode()
    header = struct.pack(">hhih", api_key, version, correlation_id, -1 if client is None else len(client))
    return header + (client or b"") + (tags if flexible else b"")


def frame(payload: bytes) -> bytes:
    """The payload with its length in front."""
    return struct.pack(">i", len(payload)) + payload


class Connection:
    """One TCP connection. Requests may be pipelined with send and receive. call sends one request and waits for its
    response."""

    def __init__(
        self,
        bootstrap: str,
        timeout_s: float = 20.0,
        client_id: str | None = "interop",
        sender: str | None = None,
    ) -> None:
        """`sender`: the local address of the connection."""
        host, _, port = bootstrap.rpartition(":")
        self.bootstrap = bootstrap
        self.timeout_s = timeout_s
        self.client_id = client_id
        self.socket = socket.create_connection(
            (host, int(port)), timeout=timeout_s, source_address=None if sender is None else (sender, 0)
        )
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._correlation_ids = itertools.count(1)
        self._received = bytearray()
        """Of the next response."""

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    # bytes

    def send_bytes(self, data: bytes) -> None:
        """Send raw bytes, framed or not."""
        try:
            self.socket.sendall(data)
        except (ConnectionError, BrokenPipeError) as error:
            raise ConnectionClosed(str(error)) from error

    def _receive_until(self, size: int, deadline: float) -> None:
        """Receive until this much of the next frame is there. What has come stays for the next call."""
        while len(self._received) < size:
            # What is there is taken even if this process was not given its turn before the deadline.
            left = max(deadline - time.monotonic(), 0)
            if not select.select([self.socket], [], [], left)[0]:
                raise Silence(f"{len(self._received)} of {size} bytes came")
            try:
                part = self.socket.recv(size - len(self._received))
            except ConnectionError as error:
                raise ConnectionClosed(str(error)) from error
            if not part:
                raise ConnectionClosed(f"after {len(self._received)} of {size} bytes")
            self._received += part

    def receive_frame(self, timeout_s: float | None = None) -> bytes:
        """The next response without its length."""
        deadline = time.monotonic() + (self.timeout_s if timeout_s is None else timeout_s)
        self._receive_until(4, deadline)
        (size,) = struct.unpack_from(">i", self._received)
        assert 0 <= size < 1 << 28, f"the broker sent a frame of {size} bytes"
        self._receive_until(4 + size, deadline)
        frame, self._received = bytes(self._received[4:]), bytearray()
        return frame

    def is_silent(self, seconds: float) -> bool:
        """True if the broker sends nothing and does not close the connection within this time."""
        return not select.select([self.socket], [], [], seconds)[0]

    def is_closed_by_peer(self, timeout_s: float = 30.0) -> bool:
        """True if the broker closes the connection within this time. If it sends anything first, AssertionError."""
        if not select.select([self.socket], [], [], timeout_s)[0]:
            return False
        with contextlib.suppress(ConnectionError):
            data = self.socket.recv(4096)
            assert data == b"", f"the broker answered {data[:64]!r} before closing"
        return True

    # messages

    def encode(
        self,
        api: str,
        version: int,
        body: dict[str, Any],
        correlation_id: int | None = None,
        header_tags: bytes = b"\x00",
    ) -> tuple[int, bytes]:
        """(correlation id, request without its length)."""
        definition = message(api + "Request")
        number = next(self._correlation_ids) if correlation_id is None else correlation_id
        flexible = definition.flexible(version)
        header = encode_request_header(definition.key, version, number, self.client_id, flexible, header_tags)
        return number, header + definition.encode(body, version)

    def send(self, api: str, version: int, body: dict[str, Any], correlation_id: int | None = None) -> int:
        """Send a request and return its correlation id without waiting for the response."""
        number, request = self.encode(api, version, body, correlation_id)
        self.send_bytes(frame(request))
        return number

    def receive(
        self, api: str, version: int, correlation_id: int, timeout_s: float | None = None
    ) -> dict[str, Any]:
        """The next response. It must have this correlation id and use every byte of its frame."""
        return decode_response(self.receive_frame(timeout_s), api, version, correlation_id)

    def call(
        self, api: str, version: int, body: dict[str, Any], timeout_s: float | None = None
    ) -> dict[str, Any]:
        """Send a request and return its response."""
        return self.receive(api, version, self.send(api, version, body), timeout_s)


def decode_response(payload: bytes, api: str, version: int, correlation_id: int) -> dict[str, Any]:
    """Decode a response without its length to a dict. ApiVersions responses have header version 0 in every version."""
    definition = message(api + "Response")
    reader = Reader(payload)
    answered = reader.fixed(">i")
    assert answered == correlation_id, f"reply to {answered} where {correlation_id} was asked"
    if definition.flexible(version) and definition.key != API_VERSIONS:
        tags = reader.uvarint()
        assert tags == 0, f"{tags} tags in a response header"
    return definition.decode(payload[reader.position :], version)
