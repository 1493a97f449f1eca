"""Asks a node over a connection of its own what the client library cannot ask for.

Such a connection is encrypted and authenticated as those of the library are: by the properties of the cluster's address.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from kafkacompat.console.core.exchange import MAX_RESPONSE_BYTES, BadResponse, framed, parsed
from kafkacompat.console.core.snapshot import NodeSeen
from kafkacompat.security.sasl_client import SASL_VERSIONS, AuthenticationFailed, ClientSecurity
from kafkacompat.wire.apis import response_class
from kafkacompat.wire.frames import FRAME_SIZE
from kafkacompat.wire.message import Message

NODE_TIMEOUT_S = 2.0
PIECE_BYTES = 64 * 1024
LOGINS_MAX = 8
"""Threads at once, those included whose connection was given up while they wait for a server that issues tickets."""
_LOGINS = trio.CapacityLimiter(LOGINS_MAX)
FAILURES = (OSError, ValueError, AuthenticationFailed, trio.TooSlowError, trio.BrokenResourceError)
"""What a node that does not answer raises. Some addresses that a node may advertise raise ValueError."""


@asynccontextmanager
async def connected(node: NodeSeen, security: ClientSecurity) -> AsyncIterator[trio.abc.Stream]:
    """A connection to the node, for `answer_to`. The caller bounds the time. Raises one of FAILURES."""
    async with await trio.open_tcp_stream(node.host, node.port) as tcp:
        stream: trio.abc.Stream = tcp
        if security.context is not None:
            stream = trio.SSLStream(tcp, security.context, server_hostname=node.host, https_compatible=True)
        async with stream:
            await _authenticate(stream, node.host, security)
            yield stream


async def answer_to(stream: trio.abc.Stream, request: bytearray) -> bytes:
    """Send a request with its length in front. Return the answer without its length."""
    await stream.send_all(request)
    (length,) = FRAME_SIZE.unpack(await _exactly(stream, FRAME_SIZE.size))
    if not 0 < length <= MAX_RESPONSE_BYTES:
        raise BadResponse(f"an answer of {length} bytes")
    return await _exactly(stream, length)


def reason_of(error: BaseException) -> str:
    """What a person is told of one of FAILURES."""
    if isinstance(error, trio.TooSlowError):
        return "no answer in time"
    told = error.__cause__ or error if isinstance(error, trio.BrokenResourceError) else error
    if isinstance(told, ssl.SSLCertVerificationError):
        return f"its certificate is refused: {told.verify_message}"
    return str(told) or "the connection ended"


async def _authenticate(stream: trio.abc.Stream, host: str, security: ClientSecurity) -> None:
    authenticator = security.authenticator(host)
    if authenticator is None:
        return
    response: Message | None = None
    while True:
        # A step may derive a key from a password, or fetch a token.
        request = await trio.to_thread.run_sync(
            authenticator.step, response, abandon_on_cancel=True, limiter=_LOGINS
        )
        if request is None:
            return
        assert request.API_KEY is not None
        version = SASL_VERSIONS[type(request)]
        answer = await answer_to(stream, framed(request, version))
        response = parsed(response_class(request.API_KEY), version, answer)


async def _exactly(stream: trio.abc.Stream, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        piece = await stream.receive_some(min(PIECE_BYTES, count - len(data)))
        if not piece:
            raise BadResponse("the connection ended")
        data += piece
    return bytes(data)
