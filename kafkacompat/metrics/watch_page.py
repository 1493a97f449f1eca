"""/watch of the listener for scrapers: the exchanges of a node, live, a JSON object a line.

Only clients on this machine that have the token get it. A line is made when its watcher takes it, and all lines of a watcher
together take at most a tenth of the loop's time. What comes faster is lost, and the watcher is told how much.
"""

from __future__ import annotations

import hmac
import ipaddress
import json
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import parse_qs

import trio

from kafkacompat.exchanges.watching import BadSelection, Selection, Waiting, selection_of
from kafkacompat.metrics.http import HttpError, Request, answer, answer_head, chunk

if TYPE_CHECKING:
    from kafkacompat.exchanges.watching import Entry, Watchers

CONTENT_TYPE = "application/x-ndjson"
PARAMETERS_MAX = 100
REST = 9
"""Times as long as it has taken to make a line, the next one waits."""
ALIVE_S = 5.0
"""A watcher that sees nothing gets an empty line after this time."""


class Watched(Protocol):
    """A node that may be watched."""

    @property
    def watchers(self) -> Watchers: ...

    def why_not(self) -> str | None:
        """Why it cannot be watched now."""
        ...

    def shown(self, entry: Entry, selection: Selection) -> dict[str, Any] | None:
        """None if the watcher does not want it."""
        ...


class WatchPage:
    def __init__(self, token: str, watched: Watched) -> None:
        self._token = token.encode()
        self._watched = watched

    async def answer(self, stream: trio.SocketStream, request: Request) -> None:
        """Answer until the client leaves. A refusal is one line."""
        try:
            waiting, wake = self._waiting(stream, request)
        except HttpError as refused:
            with trio.move_on_after(ALIVE_S):
                await stream.send_all(answer(refused.status, refused.text))
            return
        watchers = self._watched.watchers
        watchers.add(waiting)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(until_gone, stream, nursery.cancel_scope)
                await self._tell(stream, request, waiting, wake)
        except* (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # the client is gone
        finally:
            watchers.remove(waiting)

    def _waiting(self, stream: trio.SocketStream, request: Request) -> tuple[Waiting, list[trio.Event]]:
        """Raises HttpError."""
        if not is_from_here(stream):
            raise HttpError(403, "/watch is only for clients on the machine of the node")
        scheme, _, given = (request.authorization or "").partition(" ")
        is_known = hmac.compare_digest(given.strip().encode("latin-1", "replace"), self._token)
        if scheme.lower() != "bearer" or not is_known:
            raise HttpError(401, "/watch needs the token of watch.token.file: Authorization: Bearer TOKEN")
        if request.method != "GET":
            raise HttpError(405, "GET is served")
        try:
            parameters = parse_qs(request.query, keep_blank_values=True, max_num_fields=PARAMETERS_MAX)
            selection = selection_of(parameters)
        except BadSelection as problem:
            raise HttpError(400, str(problem)) from None
        except ValueError:
            raise HttpError(400, f"at most {PARAMETERS_MAX} parameters are read") from None
        reason = self._watched.why_not()
        if reason is None and self._watched.watchers.is_full:
            reason = "as many watch as may"
        if reason is not None:
            raise HttpError(503, reason)
        wake = [trio.Event()]
        return Waiting(selection, lambda: wake[0].set()), wake

    async def _tell(
        self, stream: trio.SocketStream, request: Request, waiting: Waiting, wake: list[trio.Event]
    ) -> None:
        async def send(line: bytes) -> None:
            await stream.send_all(chunk(line) if request.takes_chunks else line)

        await stream.send_all(answer_head(200, CONTENT_TYPE, None, in_chunks=request.takes_chunks))
        await send(b"\n")
        while True:
            if not waiting:
                wake[0] = trio.Event()
                with trio.move_on_after(ALIVE_S) as alive:
                    await wake[0].wait()
                if alive.cancelled_caught:
                    await send(b"\n")
                continue
            lost = waiting.take_lost()
            if lost:
                await send(b'{"lost": %d}\n' % lost)
            started_s = monotonic()
            told = self._watched.shown(waiting.take(), waiting.selection)
            line = None if told is None else json.dumps(told).encode() + b"\n"
            await trio.sleep((monotonic() - started_s) * REST)
            if line is not None:
                await send(line)


def is_from_here(stream: trio.SocketStream) -> bool:
    """Whether the client is on the machine of the node. False for one that has gone."""
    try:
        host = stream.socket.getpeername()[0]
    except OSError:  # it has reset the connection
        return False
    return is_loopback(host)


def is_loopback(host: str) -> bool:
    address = ipaddress.ip_address(host)
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


async def until_gone(stream: trio.SocketStream, scope: trio.CancelScope) -> None:
    """What a watcher still sends is not read as anything."""
    with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
        while await stream.receive_some(4096):
            pass
    scope.cancel()
