"""A dispatcher whose answers the test decides, and servers around it."""

from __future__ import annotations

import ssl
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import trio

from kafkacompat._tests.certificates import Authority
from kafkacompat.config import EndPoint
from kafkacompat.deferred import Deferred
from kafkacompat.net.runtime import SystemClock, TrioTimers
from kafkacompat.net.server import Server, Throttles
from kafkacompat.net.settings import NetworkSettings
from kafkacompat.net.workers import worker_pools
from kafkacompat.ports.dispatcher import ConnectionInfo, Pending, Principal, Reply
from kafkacompat.security.ssl_factory import client_context, server_context, ssl_settings
from kafkacompat.wire.errors import WireError

ROOT = Authority()
SERVER_CONTEXT = server_context(
    ssl_settings(
        {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.key": (OWN := ROOT.issue()).key_pem(),
            "ssl.keystore.certificate.chain": OWN.chain_pem(),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.certificates": ROOT.pem(),
            "ssl.client.auth": "requested",
        }
    )
)
CLIENT_CONTEXT = client_context(
    ssl_settings({"ssl.truststore.type": "PEM", "ssl.truststore.certificates": ROOT.pem()})
)
LOOPBACK = EndPoint("PLAINTEXT", "127.0.0.1", 0, "PLAINTEXT")
DEADLINE_S = 20
"""A hanging test fails after this time."""

Answer = Reply | Pending | None


class Terms:
    """The client's principal is the length of its certificate, which shows whether it was sent."""

    def __init__(self, context: ssl.SSLContext = SERVER_CONTEXT) -> None:
        self.context = context
        self.certificate_end_s = 1_900_000_000.0

    def identify(self, connection: ConnectionInfo, certificate: bytes | None) -> None:
        if certificate is not None:
            connection.principal = Principal("User", f"{len(certificate)}")


TLS: dict[str, Terms] = {}
"""The TLS terms of listeners made by `serving`. A test that must run over TLS sets them."""


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


class ScriptedDispatcher:
    """Echoes requests, unless `answers` has an answer for the request's first word."""

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
            time: Any = clock or SystemClock()
            timers = TrioTimers(time)
            await nursery.start(timers.run)
            server = Server(
                dispatcher,
                settings or NetworkSettings(),
                time,
                worker_pools(nursery).replies,
                dict(TLS),
                throttles=Throttles(time, timers),
            )
            await server.bind([LOOPBACK])
            await nursery.start(server.run)
            yield server
            nursery.cancel_scope.cancel()


Stream = trio.SocketStream | trio.SSLStream[trio.SocketStream]


async def dial(server: Server, context: ssl.SSLContext = CLIENT_CONTEXT) -> Any:
    """A stream, over TLS if the listener has it."""
    stream = await trio.open_tcp_stream("127.0.0.1", server.listeners[0].port)
    if not server._tls:
        return stream
    secured = trio.SSLStream(stream, context, server_hostname="localhost")
    await secured.do_handshake()
    return secured


def socket_of(stream: Stream) -> trio.socket.SocketType:
    """The socket underneath."""
    return (stream if isinstance(stream, trio.SocketStream) else stream.transport_stream).socket


async def receive_exactly(stream: Stream, count: int) -> bytes:
    received = bytearray()
    while len(received) < count:
        chunk = await stream.receive_some(count - len(received))
        assert chunk, f"closed after {len(received)} of {count} bytes"
        received += chunk
    return bytes(received)


async def receive_frame(stream: Stream) -> bytes:
    (size,) = struct.unpack(">i", await receive_exactly(stream, 4))
    return await receive_exactly(stream, size)


async def expect_closed(stream: Stream) -> None:
    with suppress(trio.BrokenResourceError):
        assert await stream.receive_some(1) == b""


async def until(condition: Callable[[], bool]) -> None:
    """Let the loop run until the condition holds. The test's deadline bounds it."""
    while not condition():
        await trio.sleep(0)
        await trio.to_thread.run_sync(lambda: None)
