"""Asks a node over a plain connection what the client library cannot ask for.

Nodes that require TLS or a login do not answer. The rest of the page does not depend on it.
"""

from __future__ import annotations

import trio

from kafkacompat.console.core.exchange import MAX_RESPONSE_BYTES, BadResponse
from kafkacompat.wire.frames import FRAME_SIZE

NODE_TIMEOUT_S = 2.0
PIECE_BYTES = 64 * 1024
FAILURES = (OSError, UnicodeError, BadResponse, trio.TooSlowError, trio.BrokenResourceError)
"""What a node that does not answer raises. Some addresses that a node may advertise raise UnicodeError."""


async def answer_to(stream: trio.SocketStream, request: bytearray) -> bytes:
    """Send a request with its length in front. Return the answer without its length."""
    await stream.send_all(request)
    (length,) = FRAME_SIZE.unpack(await _exactly(stream, FRAME_SIZE.size))
    if not 0 < length <= MAX_RESPONSE_BYTES:
        raise BadResponse(f"an answer of {length} bytes")
    return await _exactly(stream, length)


async def _exactly(stream: trio.SocketStream, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        piece = await stream.receive_some(min(PIECE_BYTES, count - len(data)))
        if not piece:
            raise BadResponse("the connection ended")
        data += piece
    return bytes(data)
