"""The exchanges of nodes, live, for a browser: what `kafkacompat watch` shows, by the same token of the nodes, masked as there.

/api/watch is a stream of server-sent events. Their data is JSON: {"watching": place}, {"place", "problem": text} of a node,
{"lost": count}, or an exchange as the node tells it. An exchange that is long comes without its request and its response.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import trio
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from kafkacompat.client.watching import follow, watch_target, watch_token
from kafkacompat.console.failure import ConsoleError
from kafkacompat.failure import CommandFailed
from kafkacompat.security.http_fetch import HttpAddress

OPTION = "--watch-token-file"
BROWSERS_MAX = 2
"""A node lets itself be watched by a few (exchanges/watching.py)."""
SHOWN_BYTES_MAX = 64 << 10
PROXIED = ("forwarded", "x-forwarded-for", "via")
AGAIN_MS = 3_000
"""After the end of the stream a browser asks again."""


@dataclass(frozen=True, slots=True)
class Nodes:
    """Those that are watched."""

    addresses: tuple[HttpAddress, ...]
    token: str


def watched_nodes(addresses: Sequence[HttpAddress], token_file: str) -> Nodes:
    """By the options of the command. Raises ConsoleError."""
    if not addresses:
        raise ConsoleError(f"{OPTION} needs --metrics, which names the nodes")
    for each in addresses:
        if each.scheme != "http":
            raise ConsoleError(f"{OPTION}: {each.place} cannot be watched: a URL begins with http://")
    try:
        return Nodes(tuple(addresses), watch_token(token_file, OPTION))
    except CommandFailed as problem:
        raise ConsoleError(str(problem)) from None


class NotWatched(Exception):
    """The text says why, to a browser."""


class WatchingBrowsers:
    """Who watches by this console."""

    def __init__(self, nodes: Nodes | None) -> None:
        self._nodes = nodes
        self._places = trio.CapacityLimiter(BROWSERS_MAX)

    def stream(self, request: Request) -> EventStream:
        """Raises NotWatched."""
        if self._nodes is None:
            raise NotWatched(f"this console shows no requests: it was started without {OPTION}")
        if any(name in request.headers for name in PROXIED):
            raise NotWatched("requests are shown to browsers on this machine only, and not through a proxy")
        if self._places.available_tokens < 1:
            raise NotWatched(f"{BROWSERS_MAX} browsers watch already")
        return EventStream(self._nodes, request.query_params.multi_items(), self._places)


class EventStream:
    """The answer to one browser, until it leaves or no node tells anything any more."""

    def __init__(self, nodes: Nodes, wanted: Iterable[tuple[str, str]], places: trio.CapacityLimiter) -> None:
        """`wanted` are the parameters of the request, which the nodes judge. It takes one of the `places` while it lasts."""
        self._nodes = nodes
        self._target = watch_target(wanted)
        self._places = places
        self._sending = trio.Lock()
        self._send: Send

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._send = send
        async with self._places:
            await send(
                {
                    "type": "http.response.start",
                    "status": 200,
                    "headers": [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-store")],
                }
            )
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_until_gone, receive, nursery.cancel_scope)
                await self._piece(f"retry: {AGAIN_MS}\n\n".encode())
                async with trio.open_nursery() as followers:
                    for address in self._nodes.addresses:
                        followers.start_soon(self._follow, address)
                await send({"type": "http.response.body", "body": b"", "more_body": False})
                nursery.cancel_scope.cancel()

    async def _follow(self, address: HttpAddress) -> None:
        try:
            begun = partial(self._event, {"watching": address.place})
            await follow(address, self._target, self._nodes.token, begun, self._tell)
        except CommandFailed as problem:
            await self._event({"place": address.place, "problem": str(problem)})

    async def _tell(self, line: bytes, told: dict[str, Any]) -> None:
        if len(line) > SHOWN_BYTES_MAX and "lost" not in told:
            await self._event({**told, "request": None, "response": None, "too_long": len(line)})
        else:
            await self._piece(b"data: " + line + b"\n\n")

    async def _event(self, data: dict[str, Any]) -> None:
        await self._piece(b"data: " + json.dumps(data).encode() + b"\n\n")

    async def _piece(self, body: bytes) -> None:
        async with self._sending:
            await self._send({"type": "http.response.body", "body": body, "more_body": True})


async def _until_gone(receive: Receive, scope: trio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()
