"""Asks each node for the sizes of its logs, over a plain connection: the client library has no such request.

The sizes of nodes that do not answer, or that require TLS or a login, stay unknown. The rest of the page does not
depend on them.
"""

from __future__ import annotations

from collections.abc import Iterable

import trio

from kafkacompat.console.core.log_directories import (
    MAX_RESPONSE_BYTES,
    BadResponse,
    parse_response,
    sizes_request,
)
from kafkacompat.console.core.snapshot import NodeSeen, ReplicaSize
from kafkacompat.wire.frames import FRAME_SIZE

NODE_TIMEOUT_S = 2.0
PIECE_BYTES = 64 * 1024


async def sizes_of(nodes: Iterable[NodeSeen]) -> tuple[tuple[ReplicaSize, ...] | None, str]:
    """Return (sizes of all nodes that answered, "" or the reason why some did not), or (None, reason) if no node answered."""
    answers: dict[int, list[ReplicaSize]] = {}
    errors: list[str] = []

    async def ask(node: NodeSeen) -> None:
        try:
            with trio.fail_after(NODE_TIMEOUT_S):
                answers[node.node_id] = await _ask_node(node)
        except (OSError, UnicodeError, BadResponse, trio.TooSlowError, trio.BrokenResourceError) as error:
            errors.append(f"node {node.node_id}: {error or type(error).__name__}")

    async with trio.open_nursery() as nursery:
        for node in nodes:
            nursery.start_soon(ask, node)
    told = tuple(size for sizes in answers.values() for size in sizes)
    return (told if answers else None), "; ".join(sorted(errors))


async def _ask_node(node: NodeSeen) -> list[ReplicaSize]:
    stream = await trio.open_tcp_stream(node.host, node.port)
    async with stream:
        await stream.send_all(sizes_request())
        (length,) = FRAME_SIZE.unpack(await _exactly(stream, FRAME_SIZE.size))
        if not 0 < length <= MAX_RESPONSE_BYTES:
            raise BadResponse(f"an answer of {length} bytes")
        answer = await _exactly(stream, length)
    # A node may have tens of thousands of logs. Parsing that many here would block the loop.
    return await trio.to_thread.run_sync(parse_response, answer, node.node_id)


async def _exactly(stream: trio.SocketStream, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        piece = await stream.receive_some(min(PIECE_BYTES, count - len(data)))
        if not piece:
            raise BadResponse("the connection ended")
        data += piece
    return bytes(data)
