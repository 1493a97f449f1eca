"""/watch at the one listener for metrics of a machine with several brokers: what each of them tells, line by line.

The brokers ask for the token themselves. A broker that starts again is asked again, at its new port.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress

import trio

from kafkacompat.metrics.http import (
    END_OF_HEAD,
    HEAD_BYTES_MAX,
    HttpError,
    Request,
    answer,
    answer_head,
    chunk,
)
from kafkacompat.metrics.watch_page import ALIVE_S, CONTENT_TYPE, is_from_here, until_gone

LOOPBACK = "127.0.0.1"
ASKED_S = 10.0
"""Time for a broker to begin its answer."""
LOOK_INTERVAL_S = 0.5
LINE_BYTES_MAX = 4 << 20
"""A broker that tells a longer one is asked again."""

Ports = Callable[[], Mapping[int, int | None]]
Send = Callable[[bytes], Awaitable[None]]


class BrokersWatchPage:
    """`ports`: the metrics port of each broker by node id, None while it does not run."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports

    async def answer(self, stream: trio.SocketStream, request: Request) -> None:
        """Answer until the client leaves. A refusal is that of a broker."""
        try:
            if not is_from_here(stream):
                raise HttpError(403, "/watch is only for clients on the machine of the node")
            await self._refuse_if_all_do(request)
        except HttpError as problem:
            with trio.move_on_after(ALIVE_S):
                await stream.send_all(answer(problem.status, problem.text))
            return
        sending = trio.Lock()

        async def send(lines: bytes) -> None:
            async with sending:
                await stream.send_all(chunk(lines) if request.takes_chunks else lines)

        try:
            await stream.send_all(answer_head(200, CONTENT_TYPE, None, in_chunks=request.takes_chunks))
            await send(b"\n")
            async with trio.open_nursery() as nursery:
                nursery.start_soon(until_gone, stream, nursery.cancel_scope)
                await self._follow_all(request, send, nursery)
        except* (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # the client is gone

    async def _refuse_if_all_do(self, request: Request) -> None:
        """Raises HttpError."""
        refusal = HttpError(503, "no broker serves yet")
        for _, port in sorted(self._ports().items()):
            if port is not None:
                try:
                    async with await _opened(port, request):
                        return
                except HttpError as problem:
                    refusal = problem
                except (OSError, trio.TooSlowError):
                    pass  # it ends, or begins
        raise refusal

    async def _follow_all(self, request: Request, send: Send, nursery: trio.Nursery) -> None:
        """Those that run, and those that begin later. Does not end."""
        followed: set[int] = set()

        async def follow(node_id: int, port: int) -> None:
            with suppress(HttpError, OSError, trio.TooSlowError):
                async with await _opened(port, request) as told:
                    await told.relay(send)
            await trio.sleep(LOOK_INTERVAL_S)
            followed.remove(node_id)

        while True:
            for node_id, port in sorted(self._ports().items()):
                if port is not None and node_id not in followed:
                    followed.add(node_id)
                    nursery.start_soon(follow, node_id, port)
            await trio.sleep(LOOK_INTERVAL_S)


class _Told:
    """What a broker tells, after the head of its answer."""

    def __init__(self, stream: trio.SocketStream, received: bytes) -> None:
        self._stream = stream
        self._received = received

    async def __aenter__(self) -> _Told:
        return self

    async def __aexit__(self, *_: object) -> None:
        await trio.aclose_forcefully(self._stream)

    async def relay(self, send: Send) -> None:
        """Send whole lines until the broker ends. Raises what `send` raises."""
        while len(self._received) <= LINE_BYTES_MAX:
            lines, end, rest = self._received.rpartition(b"\n")
            if end:
                self._received = rest
                await send(lines + end)
            try:
                data = await self._stream.receive_some(64 << 10)
            except trio.BrokenResourceError:
                return
            if not data:
                return
            self._received += data


async def _opened(port: int, request: Request) -> _Told:
    """Ask a broker as the client has asked. Raises HttpError if it refuses, OSError, TooSlowError."""
    with trio.fail_after(ASKED_S):
        stream = await trio.open_tcp_stream(LOOPBACK, port)
        try:
            query = f"?{request.query}" if request.query else ""
            lines = [f"{request.method} {request.path}{query} HTTP/1.0"]
            if request.authorization is not None:
                lines.append(f"Authorization: {request.authorization}")
            await stream.send_all("\r\n".join([*lines, "", ""]).encode("latin-1"))
            received = b""
            while END_OF_HEAD not in received:
                data = await stream.receive_some(4096)
                if not data or len(received) > HEAD_BYTES_MAX:
                    raise ConnectionError("the broker gives no answer")
                received += data
            head, _, received = received.partition(END_OF_HEAD)
            status = int(head.split(b" ", 2)[1])
            if status != 200:
                while data := await stream.receive_some(4096):
                    received += data
                raise HttpError(status, received.decode("utf-8", "replace").strip())
        except BaseException as error:
            await trio.aclose_forcefully(stream)
            if isinstance(error, trio.BrokenResourceError):
                raise ConnectionError("the broker has gone") from None
            raise
        return _Told(stream, received)
