"""A connection to another node, for this node's own requests: pipelined, plain TCP, every frame bounded.

Must not know messages: it sends whole requests and gives back whole responses by correlation id. The owner opens it in a
nursery of its own and bounds waits with trio's timeouts.
"""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import trio

from kafkacompat.deferred import Deferred
from kafkacompat.net.receive_buffer import ReceiveBuffer
from kafkacompat.net.runtime import wait_for
from kafkacompat.ports import Buffer

RESPONSE_BYTES_MAX = 100 * 1024 * 1024
REQUESTS_IN_FLIGHT_MAX = 128

_CORRELATION_ID = struct.Struct(">i")


class ConnectionLost(Exception):
    """The other side closed, or broke the protocol; requests in flight may or may not have been handled."""


class Client:
    """Made by `connect`. Requests leave in the order of their calls."""

    def __init__(self, stream: trio.SocketStream, max_response_bytes: int) -> None:
        self._stream = stream
        self._buffer = ReceiveBuffer(max_response_bytes)
        self._replies: dict[int, Deferred[bytes]] = {}
        self._sending = trio.Lock()
        self._lost: Exception | None = None

    async def call(self, correlation_id: int, request: Sequence[Buffer]) -> bytes:
        """Send a request (its parts, size prefix included); the response without its size prefix.

        ConnectionLost when it will not come. ValueError for a correlation id in use or too many requests in flight.
        After a cancelled call the connection goes on; its response is dropped.
        """
        if correlation_id in self._replies:
            raise ValueError(f"correlation id {correlation_id} is in use")
        if len(self._replies) >= REQUESTS_IN_FLIGHT_MAX:
            raise ValueError(f"{REQUESTS_IN_FLIGHT_MAX} requests are in flight already")
        if self._lost is not None:
            raise ConnectionLost(str(self._lost)) from self._lost
        reply: Deferred[bytes] = Deferred()
        self._replies[correlation_id] = reply
        await self.send(request)
        return await wait_for(reply)

    async def send(self, request: Sequence[Buffer]) -> None:
        """Send a request that gets no response."""
        try:
            async with self._sending:
                await self._stream.send_all(b"".join(request))
        except trio.Cancelled:
            # Part of a request may have left: what follows would be read as its rest.
            self._fail(ConnectionLost("a request was cancelled while it was being sent"))
            raise
        except (trio.BrokenResourceError, trio.ClosedResourceError, OSError) as error:
            self._fail(error)
            raise ConnectionLost(str(error)) from error

    async def receive(self) -> None:
        """Receive responses until the connection is lost (`connect` runs this)."""
        sock = self._stream.socket
        try:
            while self._lost is None:
                room = self._buffer.room(hold=False)
                assert room is not None  # nothing is held
                received = await sock.recv_into(room)
                if not received:
                    raise ConnectionLost("the other side closed the connection")
                self._buffer.received(received)
                while (frame := self._buffer.next_frame()) is not None:
                    self._deliver(bytes(frame))
        except trio.Cancelled:
            self._fail(ConnectionLost("closed"))
            raise
        except Exception as error:
            self._fail(error)

    def _deliver(self, response: bytes) -> None:
        if len(response) < 4:
            raise ConnectionLost("a response has no correlation id")
        correlation_id: int = _CORRELATION_ID.unpack_from(response)[0]
        reply = self._replies.pop(correlation_id, None)
        if reply is None:
            raise ConnectionLost(
                f"a response came with correlation id {correlation_id}, which nobody waits for"
            )
        reply.resolve(response)

    def _fail(self, error: Exception) -> None:
        if self._lost is None:
            self._lost = error
        replies, self._replies = self._replies, {}
        for reply in replies.values():
            lost = ConnectionLost(str(error) or type(error).__name__)
            lost.__cause__ = error
            reply.fail(lost)


@asynccontextmanager
async def connect(
    host: str, port: int, max_response_bytes: int = RESPONSE_BYTES_MAX
) -> AsyncIterator[Client]:
    """A client connected to host and port; OSError when nobody answers there. Closed at the end of the block."""
    stream = await trio.open_tcp_stream(host, port)
    async with stream, trio.open_nursery() as nursery:
        client = Client(stream, max_response_bytes)
        nursery.start_soon(client.receive)
        try:
            yield client
        finally:
            nursery.cancel_scope.cancel()
