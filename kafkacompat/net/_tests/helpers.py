"""A dispatcher whose every answer the test decides, and servers around it."""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import trio

from kafkacompat.config import EndPoint
from kafkacompat.deferred import Deferred
from kafkacompat.net.runtime import SystemClock
from kafkacompat.net.server import Server
from kafkacompat.net.settings import NetworkSettings
from kafkacompat.net.workers import worker_pools
from kafkacompat.ports.dispatcher import ConnectionInfo, Pending, Reply
from kafkacompat.wire.errors import WireError

LOOPBACK = EndPoint("PLAINTEXT", "127.0.0.1", 0, "PLAINTEXT")
DEADLINE_S = 20
"""After this a test that hangs fails."""

Answer = Reply | Pending | None


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


class ScriptedDispatcher:
    """Echoes, unless the request's first word has an answer of its own in `answers`."""

    def __init__(self) -> None:
        self.requests: list[bytes] = []
        self.closed: list[ConnectionInfo] = []
        self.connections: list[ConnectionInfo] = []
        self.pending: dict[bytes, Deferred[Reply | None]] = {}
        self.answers: dict[bytes, Callable[[memoryview], Answer]] = {
            b"silent": lambda frame: None,
            b"garbage": self._refuse,
            b"park": lambda frame: self._pend(frame, blocks=True),
            b"later": lambda frame: self._pend(frame, blocks=False),
        }

    def dispatch(self, connection: ConnectionInfo, frame: memoryview) -> Answer:
        request = bytes(frame)
        self.requests.append(request)
        if connection not in self.connections:
            self.connections.append(connection)
        answer = self.answers.get(request.split(b" ", 1)[0])
        return [framed(request)] if answer is None else answer(frame)

    def connection_closed(self, connection: ConnectionInfo) -> None:
        self.closed.append(connection)

    def resolve(self, request: bytes) -> None:
        self.pending.pop(request).resolve([framed(b"done " + request)])

    def _pend(self, frame: memoryview, blocks: bool) -> Pending:
        reply: Deferred[Reply | None] = Deferred()
        self.pending[bytes(frame)] = reply
        return Pending(reply, blocks)

    def _refuse(self, frame: memoryview) -> Answer:
        raise WireError("garbage")


@asynccontextmanager
async def serving(
    dispatcher: ScriptedDispatcher, settings: NetworkSettings | None = None, *, clock: object = None
) -> AsyncIterator[Server]:
    with trio.fail_after(DEADLINE_S):
        async with trio.open_nursery() as nursery:
            server = Server(
                dispatcher,
                settings or NetworkSettings(),
                clock or SystemClock(),  # type: ignore[arg-type]
                worker_pools(nursery).replies,
            )
            await server.bind([LOOPBACK])
            await nursery.start(server.run)
            yield server
            nursery.cancel_scope.cancel()


async def dial(server: Server) -> trio.SocketStream:
    return await trio.open_tcp_stream("127.0.0.1", server.listeners[0].port)


async def receive_exactly(stream: trio.SocketStream, count: int) -> bytes:
    received = bytearray()
    while len(received) < count:
        chunk = await stream.receive_some(count - len(received))
        assert chunk, f"closed after {len(received)} of {count} bytes"
        received += chunk
    return bytes(received)


async def receive_frame(stream: trio.SocketStream) -> bytes:
    (size,) = struct.unpack(">i", await receive_exactly(stream, 4))
    return await receive_exactly(stream, size)


async def expect_closed(stream: trio.SocketStream) -> None:
    with suppress(trio.BrokenResourceError):
        assert await stream.receive_some(1) == b""


async def until(condition: Callable[[], bool]) -> None:
    """Let the loop go round until the condition holds; the test's deadline bounds it."""
    while not condition():
        await trio.sleep(0)
        await trio.to_thread.run_sync(lambda: None)
