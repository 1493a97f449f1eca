"""One listener for the metrics of all brokers of a machine. A scrape asks each of them on a port of the loopback interface."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping

import trio

from kafkacompat.metrics.endpoint import rendered
from kafkacompat.metrics.http import END_OF_HEAD, whole_body
from kafkacompat.metrics.merging import BROKERS, merged

LOOPBACK = "127.0.0.1"
ASKED_S = 10.0
"""Time for a broker to answer. One that does not, or ends within its answer, is left out."""
TEXT_BYTES_MAX = 128 * 1024 * 1024


class AllBrokers:
    """What the listener shows. `ports`: the metrics port of each broker by node id, None while it does not run."""

    def __init__(self, ports: Callable[[], Mapping[int, int | None]]) -> None:
        self._ports = ports

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        texts = {
            node_id: body
            for node_id, (status, body) in (await self._ask("/metrics")).items()
            if status == 200
        }
        up = {node_id: node_id in texts for node_id in sorted(self._ports())}
        for piece in rendered(BROKERS.of(up)):
            yield piece
        for piece in merged(texts):
            yield piece

    async def why_not_ready(self) -> str | None:
        answers = await self._ask("/ready")
        for node_id in sorted(self._ports()):
            status, text = answers.get(node_id, (0, "it does not answer"))
            if status != 200:
                return f"broker {node_id}: {text.strip()}"
        return None

    async def _ask(self, path: str) -> dict[int, tuple[int, str]]:
        """Ask all at the same time. Return the status and body of those that answered."""
        found: dict[int, tuple[int, str]] = {}

        async def ask_one(node_id: int, port: int) -> None:
            with trio.move_on_after(ASKED_S):
                answer = await asked(port, path)
                if answer is not None:
                    found[node_id] = answer

        async with trio.open_nursery() as nursery:
            for node_id, port in self._ports().items():
                if port is not None:
                    nursery.start_soon(ask_one, node_id, port)
        return found


async def asked(port: int, path: str) -> tuple[int, str] | None:
    """Return the status and the body of a broker's answer, or None if there is no whole one.

    The last number of a part may be another."""
    try:
        stream = await trio.open_tcp_stream(LOOPBACK, port)
        async with stream:
            await stream.send_all(f"GET {path} HTTP/1.1\r\nHost: {LOOPBACK}\r\n\r\n".encode())
            received = bytearray()
            async for data in stream:
                received += data
                if len(received) > TEXT_BYTES_MAX:
                    return None
    except (OSError, trio.BrokenResourceError):
        return None
    head, found, rest = bytes(received).partition(END_OF_HEAD)
    body = whole_body(head, rest) if found else None
    if body is None:
        return None
    return int(head.split(b" ", 2)[1]), body.decode("utf-8", "replace")
