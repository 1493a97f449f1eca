"""The listener for scrapers and probes: /metrics, /live and /ready over HTTP, on trio.

It is served in the node's own loop, so /live says that the loop turns. A scrape is rendered in pieces, and the loop serves others
between two of them. Bounds: connections, scrapes, bytes of a request, time of a connection. What waits for its client makes
room for others, so that clients which send or take nothing keep neither probes nor scrapers away.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping
from contextlib import aclosing, contextmanager, suppress
from functools import partial
from typing import Protocol

import trio
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample as TextSample

from kafkacompat.addresses import host_and_port
from kafkacompat.faults import report
from kafkacompat.metrics.families import COUNTER, Families, Family
from kafkacompat.metrics.http import (
    END_OF_HEAD,
    HEAD_BYTES_MAX,
    HttpError,
    Request,
    answer,
    answer_head,
    chunk,
    parse_head,
)

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
OWN_PATHS = ("/metrics", "/live", "/ready")
SAMPLES_A_PIECE = 100
"""Samples that one piece holds: about 10 microseconds each, to read and to write."""
HEADER_LINES = 2
"""HELP and TYPE, which Prometheus wants once for a name."""


def rendered(families: Iterable[Family | None]) -> Iterator[bytes]:
    """Pieces of the text, in order. b'' is a pause. A family without samples is left out."""
    for family in families:
        if family is None:
            yield b""
        else:
            yield from _rendered(family)


def _rendered(family: Family) -> Iterator[bytes]:
    name = f"{family.name}_total" if family.kind == COUNTER else family.name
    piece: list[TextSample] = []
    is_first = True
    for sample in family.samples:
        if sample is None:
            yield b""
            continue
        labels, value = sample
        piece.append(TextSample(name, dict(labels), float(value)))
        if len(piece) >= SAMPLES_A_PIECE:
            yield _text(family, piece, is_first)
            piece, is_first = [], False
    if piece:
        yield _text(family, piece, is_first)


def _text(family: Family, samples: list[TextSample], with_header: bool) -> bytes:
    metric = Metric(family.name, family.text, family.kind)
    metric.samples = samples
    try:
        text = generate_latest(_One(metric))
    except UnicodeEncodeError:
        metric.samples = [each._replace(labels=_encodable(each.labels)) for each in samples]
        text = generate_latest(_One(metric))
    return text if with_header else text.split(b"\n", HEADER_LINES)[HEADER_LINES]


def _encodable(labels: Mapping[str, str]) -> dict[str, str]:
    """The name of a directory may have bytes that are not UTF-8. Escaped as in the log."""
    return {name: value.encode("utf-8", "backslashreplace").decode() for name, value in labels.items()}


class _One(Collector):
    """What generate_latest wants: a collector of one metric."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric

    def collect(self) -> Iterator[Metric]:
        yield self._metric


CONNECTIONS_MAX = 64
"""At a time. For one more, the one that has waited longest for its client is closed, or the new one if none waits."""
SCRAPES_MAX = 16
"""At a time. For one more, the one whose client has taken nothing for longest is ended, or the new one is refused."""
ACCEPT_PAUSE_S = 1.0
"""After an accept that failed, mostly for lack of descriptors or memory."""
HEAD_S = 5.0
"""Time for a client to send its request."""
ANSWER_S = 30.0
"""Time for a client to take the answer."""
TAKEN_S = 2.0
"""Time for a client to close its side after the answer."""
SENT_FROM_BYTES = 32 * 1024
"""Pieces are gathered up to this size before they are sent."""

_log = logging.getLogger(__name__)

Waits = dict[trio.CancelScope, None]
"""What waits for clients, the longest wait first. A scope is cancelled to end its wait."""


class Node(Protocol):
    """A node whose endpoint this is."""

    def families(self) -> Families:
        """The metrics of now."""
        ...

    def why_not_ready(self) -> str | None:
        """None while the node serves clients, or as a controller knows its leader."""
        ...


class Shown(Protocol):
    """What the endpoint shows."""

    def pieces(self) -> AsyncGenerator[bytes, None]:
        """The text of a scrape. b'' is a pause."""
        ...

    async def why_not_ready(self) -> str | None: ...


class Page(Protocol):
    """What has a path of its own."""

    async def answer(self, stream: trio.SocketStream, request: Request) -> None:
        """Answer for as long as it takes. It bounds its own time."""
        ...


class OneNode:
    """Shows a node."""

    def __init__(self, node: Node) -> None:
        self._node = node

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        for piece in rendered(self._node.families()):
            yield piece

    async def why_not_ready(self) -> str | None:
        return self._node.why_not_ready()


class MetricsEndpoint:
    """`bind`, then `run` in a task; it ends when it is cancelled."""

    def __init__(self, shown: Shown, pages: Mapping[str, Page] | None = None) -> None:
        """`pages`: by their paths."""
        self._shown = shown
        self._pages = pages or {}
        self._listeners: list[trio.SocketListener] = []
        self._connections = 0
        self._scraping = 0
        self._idle: Waits = {}
        """Connections whose client has to send something or to close."""
        self._stalled: Waits = {}
        """Scrapes whose client has to take something."""
        self.scrapes = 0

    async def bind(self, host: str, port: int) -> int:
        """The port that is bound. OSError that names the settings."""
        try:
            self._listeners = await trio.open_tcp_listeners(port, host=host)
        except OSError as error:
            text = error.strerror or str(error)
            raise OSError(
                error.errno,
                f"metrics.listener.host, metrics.listener.port: cannot listen on {host_and_port(host, port)}: {text}",
            ) from error
        bound: int = self._listeners[0].socket.getsockname()[1]
        return bound

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            for listener in self._listeners:
                nursery.start_soon(self._accept, listener, nursery)

    async def _accept(self, listener: trio.SocketListener, nursery: trio.Nursery) -> None:
        """Never ends: no failure to accept must end the node."""
        async with listener:
            has_failed = False
            while True:
                try:
                    stream = await listener.accept()
                except (OSError, MemoryError) as error:
                    if not has_failed:
                        _log.error(
                            "the metrics listener cannot accept connections: %s", str(error) or repr(error)
                        )
                    has_failed = True
                    await trio.sleep(ACCEPT_PAUSE_S)
                else:
                    has_failed = False
                    nursery.start_soon(self._serve, stream)

    async def _serve(self, stream: trio.SocketStream) -> None:
        """Never raises: a client must not end the node."""
        self._connections += 1
        try:
            if self._connections <= CONNECTIONS_MAX or _made_room(self._idle) or _made_room(self._stalled):
                with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                    await self._answer(stream)
        except Exception as error:
            report("answering a scrape", error)
        finally:
            self._connections -= 1
            await trio.aclose_forcefully(stream)

    async def _answer(self, stream: trio.SocketStream) -> None:
        request: Request | None = None
        refused: HttpError | None = None
        with trio.move_on_after(HEAD_S) as scope, _waits(self._idle, scope):
            try:
                request = parse_head(await _head(stream))
            except HttpError as problem:
                refused = problem
        if request is not None and request.path in self._pages:
            await self._pages[request.path].answer(stream, request)
            return
        with trio.move_on_after(ANSWER_S):
            if request is not None:
                await self._answered(stream, request)
            elif refused is not None:
                await stream.send_all(answer(refused.status, refused.text))
            else:
                return
            with trio.move_on_after(TAKEN_S) as scope, _waits(self._idle, scope):
                await _until_taken(stream)

    async def _answered(self, stream: trio.SocketStream, request: Request) -> None:
        whole = partial(answer, with_body=request.method == "GET")
        if request.path == "/metrics":
            if self._scraping >= SCRAPES_MAX and not _made_room(self._stalled):
                await stream.send_all(whole(503, f"{SCRAPES_MAX} scrapes are answered at a time"))
                return
            self.scrapes += 1
            self._scraping += 1
            try:
                with trio.CancelScope() as scope:
                    await self._scraped(stream, request, scope)
            finally:
                self._scraping -= 1
        elif request.path == "/live":
            await stream.send_all(whole(200, "live"))
        elif request.path == "/ready":
            reason = await self._shown.why_not_ready()
            await stream.send_all(whole(200, "ready") if reason is None else whole(503, reason))
        else:
            *paths, last = *OWN_PATHS, *self._pages
            await stream.send_all(whole(404, f"{', '.join(paths)} and {last} are served"))

    async def _scraped(self, stream: trio.SocketStream, request: Request, scope: trio.CancelScope) -> None:
        """`scope`: that of the scrape, which ends it where room is needed."""

        async def send(part: bytes) -> None:
            with _waits(self._stalled, scope):
                await stream.send_all(part)

        in_chunks = request.takes_chunks
        await send(answer_head(200, CONTENT_TYPE, None, in_chunks=in_chunks))
        if request.method == "HEAD":
            return
        held: list[bytes] = []
        size = 0
        async with aclosing(self._shown.pieces()) as pieces:
            async for piece in pieces:
                held.append(piece)
                size += len(piece)
                await trio.lowlevel.checkpoint()
                if size >= SENT_FROM_BYTES:
                    await send(_part(held, in_chunks))
                    held, size = [], 0
        if size:
            await send(_part(held, in_chunks))
        if in_chunks:
            await send(chunk(b""))


@contextmanager
def _waits(waits: Waits, scope: trio.CancelScope) -> Iterator[None]:
    waits[scope] = None
    try:
        yield
    finally:
        waits.pop(scope, None)


def _made_room(waits: Waits) -> bool:
    """Whether one waits for its client. The one that has waited longest does so no more."""
    longest = next(iter(waits), None)
    if longest is None:
        return False
    del waits[longest]
    longest.cancel()
    return True


def _part(pieces: list[bytes], in_chunks: bool) -> bytes:
    part = b"".join(pieces)
    return chunk(part) if in_chunks else part


async def _head(stream: trio.SocketStream) -> bytes:
    """Up to the blank line. HttpError when it does not come."""
    head = bytearray()
    while END_OF_HEAD not in head:
        if len(head) > HEAD_BYTES_MAX:
            raise HttpError(431, f"a request's head may have {HEAD_BYTES_MAX} bytes")
        received = await stream.receive_some(4096)
        if not received:
            raise HttpError(400, "the request ends before its head does")
        head += received
    return bytes(head)


async def _until_taken(stream: trio.SocketStream) -> None:
    """A close with unread bytes resets the connection, and the client may lose the answer."""
    await stream.send_eof()
    while await stream.receive_some(4096):
        pass
