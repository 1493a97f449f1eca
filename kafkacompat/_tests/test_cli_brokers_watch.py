"""/watch of a machine with several brokers, which are pages of their own here."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import cast

import trio

from kafkacompat.cli.brokers_watch import BrokersWatchPage
from kafkacompat.metrics.endpoint import MetricsEndpoint, Shown
from kafkacompat.metrics.http import Request, answer, answer_head
from kafkacompat.metrics.watch_page import until_gone

LIMIT_S = 20
REQUEST = b"GET /watch?api=Produce HTTP/1.0\r\nAuthorization: Bearer right\r\n\r\n"


class Broker:
    """Tells its lines to who has the token."""

    def __init__(self, *lines: bytes) -> None:
        self.lines = lines
        self.asked: list[str] = []
        self.ends = trio.Event()
        self.watched = 0

    async def answer(self, stream: trio.SocketStream, request: Request) -> None:
        self.asked.append(request.query)
        if request.authorization != "Bearer right":
            await stream.send_all(answer(401, "the token is wrong"))
            return
        self.watched += 1
        try:
            await stream.send_all(answer_head(200, "application/x-ndjson", None))
            for line in self.lines:
                await stream.send_all(line)
            with trio.move_on_after(LIMIT_S):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._until_end, nursery.cancel_scope)
                    nursery.start_soon(until_gone, stream, nursery.cancel_scope)
        finally:
            self.watched -= 1

    async def _until_end(self, scope: trio.CancelScope) -> None:
        await self.ends.wait()
        scope.cancel()


async def served(nursery: trio.Nursery, page: object) -> int:
    endpoint = MetricsEndpoint(cast("Shown", None), {"/watch": cast("Broker", page)})
    port = await endpoint.bind("127.0.0.1", 0)
    nursery.start_soon(endpoint.run)
    return port


class Client:
    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self.received = b""

    async def until(self, holds: Callable[[bytes], bool]) -> bytes:
        while not holds(self.received):
            data = await self._stream.receive_some(4096)
            assert data, self.received
            self.received += data
        return self.received

    async def all(self) -> bytes:
        async for data in self._stream:
            self.received += data
        return self.received


@asynccontextmanager
async def client(port: int, request: bytes = REQUEST) -> AsyncIterator[Client]:
    async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
        await stream.send_all(request)
        yield Client(stream)


async def test_all_brokers_are_watched_by_one_address() -> None:
    first, second = Broker(b'{"node": 1}\n{"no', b'de": 11}\n'), Broker(b'{"node": 2}\n')
    with trio.fail_after(LIMIT_S):
        async with trio.open_nursery() as nursery:
            ports = {1: await served(nursery, first), 2: await served(nursery, second), 3: None}
            machine = await served(nursery, BrokersWatchPage(lambda: ports))
            async with client(machine) as watching:
                found = await watching.until(lambda text: text.count(b"node") == 3 and text.endswith(b"\n"))
            head, _, body = found.partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200 OK")
            assert {*body.splitlines()} == {b"", b'{"node": 1}', b'{"node": 11}', b'{"node": 2}'}
            assert {*first.asked, *second.asked} == {"api=Produce"}
            while first.watched or second.watched:
                await trio.sleep(0)  # until the brokers notice that the client has gone
            nursery.cancel_scope.cancel()


async def test_a_broker_that_starts_again_or_later_is_watched_too() -> None:
    first, again, later = Broker(b"1\n"), Broker(b"again\n"), Broker(b"later\n")
    with trio.fail_after(LIMIT_S):
        async with trio.open_nursery() as nursery:
            ports: dict[int, int | None] = {1: await served(nursery, first)}
            machine = await served(nursery, BrokersWatchPage(lambda: ports))
            async with client(machine) as watching:
                await watching.until(lambda text: text.endswith(b"1\n"))
                ports[1] = await served(nursery, again)
                ports[2] = await served(nursery, later)
                first.ends.set()
                await watching.until(lambda text: b"again\n" in text and b"later\n" in text)
            nursery.cancel_scope.cancel()


async def test_a_refusal_is_that_of_a_broker() -> None:
    with trio.fail_after(LIMIT_S):
        async with trio.open_nursery() as nursery:
            ports = {1: None, 2: await served(nursery, Broker())}
            machine = await served(nursery, BrokersWatchPage(lambda: ports))
            async with client(machine, REQUEST.replace(b"right", b"wrong")) as refused:
                found = await refused.all()
            assert found.startswith(b"HTTP/1.1 401 Unauthorized")
            assert b"the token is wrong" in found
            del ports[2]
            async with client(machine) as refused:
                assert b"no broker serves yet" in await refused.all()
            nursery.cancel_scope.cancel()
