"""Reads /watch of a node's metrics listener: its exchanges, live, a JSON object a line."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable
from typing import Any
from urllib.parse import urlencode

import trio

from kafkacompat.failure import CommandFailed
from kafkacompat.security.http_fetch import HttpAddress

CONNECT_S = 5.0
SILENT_S = 30.0
"""A node sends something every few seconds."""
LINE_BYTES_MAX = 4 << 20
TOKEN_CHARACTERS_MAX = 1_024

Tell = Callable[[bytes, dict[str, Any]], Awaitable[None]]
"""Gets a line, and what it says: an exchange, or how many are `lost`."""


def watch_target(wanted: Iterable[tuple[str, str]]) -> str:
    """Path and query. `wanted` are names and values of metrics/watch_page.py."""
    query = urlencode([*wanted])
    return f"/watch?{query}" if query else "/watch"


def watch_token(path: str, option: str) -> str:
    """What stands in the file is not quoted. Raises CommandFailed."""
    try:
        with open(path, encoding="ascii") as file:
            token = file.read(TOKEN_CHARACTERS_MAX).strip()
    except (OSError, UnicodeDecodeError) as problem:
        reason = getattr(problem, "strerror", None) or "it is no ASCII text"
        raise CommandFailed(f"cannot read the file {path} of {option}: {reason}") from None
    if not token or not token.isprintable():
        raise CommandFailed(f"the file {path} of {option} has no token")
    return token


async def follow(
    address: HttpAddress, target: str, token: str, begun: Callable[[], Awaitable[None]], tell: Tell
) -> None:
    """Tell what a node tells, until the caller is cancelled. `begun` is called when it may be watched. Raises CommandFailed."""
    try:
        with trio.fail_after(CONNECT_S):
            stream = await trio.open_tcp_stream(address.host, address.port)
    except (OSError, trio.TooSlowError) as problem:
        raise CommandFailed(f"{address.place} does not answer: {problem or 'timed out'}") from None
    async with stream:
        request = (
            f"GET {target} HTTP/1.0\r\nHost: {address.host}\r\nAuthorization: Bearer {token}\r\n\r\n".encode()
        )
        lines = _Lines(stream, address.place)
        try:
            await stream.send_all(request)
            status = await lines.next()
            while (await lines.next()).strip():
                pass
            if b" 200 " not in status:
                text = (await lines.next()).decode("utf-8", "replace").strip()
                if b" 404 " in status:
                    text = "nobody may watch it (watch.token.file is not set)"
                raise CommandFailed(f"{address.place}: {text}")
            await begun()
            while True:
                line = (await lines.next()).strip()
                if line:
                    await tell(line, json.loads(line))
        except (trio.BrokenResourceError, ValueError):
            raise CommandFailed(f"{address.place}: it tells no exchanges any more") from None


class _Lines:
    def __init__(self, stream: trio.SocketStream, place: str) -> None:
        self._stream = stream
        self._place = place
        self._received = bytearray()

    async def next(self) -> bytes:
        """With its end. Raises CommandFailed."""
        searched = 0
        while (end := self._received.find(b"\n", searched)) < 0:
            searched = len(self._received)
            if searched > LINE_BYTES_MAX:
                raise CommandFailed(f"{self._place}: a line is too long")
            with trio.move_on_after(SILENT_S) as silence:
                data = await self._stream.receive_some(64 << 10)
            if silence.cancelled_caught:
                raise CommandFailed(f"{self._place} has told nothing for {SILENT_S:g} s")
            if not data:
                raise CommandFailed(f"{self._place} has closed the connection")
            self._received += data
        line = bytes(self._received[: end + 1])
        del self._received[: end + 1]
        return line
