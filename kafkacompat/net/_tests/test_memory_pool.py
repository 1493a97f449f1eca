"""queued.max.request.bytes: nobody is read while others' requests take all the memory, and everybody is in the end."""

from __future__ import annotations

import struct
from typing import Any

import pytest
import trio

from kafkacompat.net._tests.helpers import (
    TLS,
    ScriptedDispatcher,
    Terms,
    dial,
    expect_closed,
    framed,
    receive_frame,
    serving,
    until,
)
from kafkacompat.net.connection import UNPOOLED_BYTES
from kafkacompat.net.memory_pool import MemoryPool, MemoryUser
from kafkacompat.net.server import Server
from kafkacompat.net.settings import NetworkSettings

POOL_BYTES = 100_000
SETTINGS = NetworkSettings(
    queued_max_request_bytes=POOL_BYTES, socket_request_max_bytes=POOL_BYTES, quota_window_ms=10**9
)
LARGE = b"large " + b"x" * (POOL_BYTES - 6)


@pytest.fixture(autouse=True, params=["in the clear", "over TLS"])
def transport(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "over TLS":
        monkeypatch.setitem(TLS, "PLAINTEXT", Terms())


def available(server: Server) -> int:
    assert server.memory is not None
    return server.memory.available_bytes


async def begin_large(server: Server, size: int = POOL_BYTES) -> Any:
    """A client that has sent the beginning of a large request, which has its memory."""
    before = available(server)
    stream = await dial(server)
    await stream.send_all(framed(LARGE)[:100] if size == POOL_BYTES else struct.pack(">i", size) + b"x")
    await until(lambda: available(server) == before - size)
    return stream


async def waits(server: Server, stream: Any, count: int = 1) -> None:
    """The client has sent a request, and it is not received."""
    await stream.send_all(framed(b"hello"))
    await until(lambda: server.memory is not None and server.memory.waiting_count == count)


async def test_nobody_is_read_until_the_memory_is_given_back() -> None:
    dispatcher = ScriptedDispatcher()
    async with serving(dispatcher, SETTINGS) as server:
        others = [await dial(server) for _ in range(3)]
        large = await begin_large(server)
        for count, other in enumerate(others, 1):
            await waits(server, other, count)
        assert dispatcher.requests == []
        await large.send_all(framed(LARGE)[100:])
        assert await receive_frame(large) == LARGE
        for other in others:
            assert await receive_frame(other) == b"hello"
        assert dispatcher.requests == [LARGE] + [b"hello"] * 3
        assert available(server) == POOL_BYTES


async def test_a_client_that_goes_away_gives_its_memory_back() -> None:
    async with serving(ScriptedDispatcher(), SETTINGS) as server:
        large, other = await begin_large(server), await dial(server)
        await waits(server, other)
        await large.aclose()
        assert await receive_frame(other) == b"hello"
        assert available(server) == POOL_BYTES


async def test_the_pool_may_be_overdrawn_by_one_request() -> None:
    async with serving(ScriptedDispatcher(), SETTINGS) as server:
        first = await begin_large(server, POOL_BYTES - 1)
        second = await begin_large(server)
        assert available(server) == 1 - POOL_BYTES
        third = await dial(server)
        await waits(server, third)
        await first.aclose()
        await until(lambda: available(server) == 0)
        assert server.memory is not None
        assert server.memory.waiting_count == 1
        await second.aclose()
        assert await receive_frame(third) == b"hello"


async def test_large_requests_of_many_clients_are_all_answered() -> None:
    async with serving(ScriptedDispatcher(), SETTINGS) as server:

        async def ask() -> None:
            stream = await dial(server)
            for _ in range(5):
                await stream.send_all(framed(LARGE))
                assert await receive_frame(stream) == LARGE

        async with trio.open_nursery() as nursery:
            for _ in range(8):
                nursery.start_soon(ask)
        assert available(server) == POOL_BYTES


async def test_a_request_behind_one_that_waits_takes_no_memory() -> None:
    """The first request may wait for one of another client, which needs memory."""
    dispatcher = ScriptedDispatcher()
    async with serving(dispatcher, SETTINGS) as server:
        parked, pending, other = [await dial(server) for _ in range(3)]
        for stream, request in ((parked, b"park"), (pending, b"later")):
            await stream.send_all(framed(request) + framed(LARGE)[:50_000])
        await until(lambda: len(dispatcher.pending) == 2)
        await other.send_all(framed(LARGE))
        assert await receive_frame(other) == LARGE
        for each in server._connections.values():
            assert len(each._buffer) <= UNPOOLED_BYTES
        for stream, request in ((parked, b"park"), (pending, b"later")):
            dispatcher.resolve(request)
            assert await receive_frame(stream) == b"done " + request
            await until(lambda: available(server) == 0)
            await stream.send_all(framed(LARGE)[50_000:])
            assert await receive_frame(stream) == LARGE
        assert available(server) == POOL_BYTES


async def test_a_muted_client_takes_no_memory_until_it_is_unmuted() -> None:
    async with serving(ScriptedDispatcher(), SETTINGS) as server:
        stream, other = await dial(server), await dial(server)
        await stream.send_all(framed(b"hello"))
        assert await receive_frame(stream) == b"hello"
        connection = server._connections[1]
        server._throttle(connection, 10**9)
        await stream.send_all(framed(LARGE)[:100])
        await other.send_all(framed(LARGE))
        assert await receive_frame(other) == LARGE
        assert available(server) == POOL_BYTES
        connection.unmute()
        await until(lambda: available(server) == 0)
        await stream.aclose()
        await until(lambda: available(server) == POOL_BYTES)


async def test_a_drain_does_not_wait_for_memory() -> None:
    async with serving(ScriptedDispatcher(), SETTINGS) as server:
        large, other = await begin_large(server), await dial(server)
        await waits(server, other)
        await server.drain(20_000)
        await expect_closed(large)
        assert available(server) == POOL_BYTES


def test_waiting_connections_are_woken_once_and_in_order() -> None:
    pool = MemoryPool(10)
    woken: list[int] = []
    users = [MemoryUser(pool, lambda number=number: woken.append(number)) for number in range(4)]  # type: ignore[misc]
    assert users[0].take(10)
    assert [user.take(1) for user in users[1:]] == [False] * 3
    users[2].close()
    users[0].release()
    users[0].release()
    assert woken == [1, 3]
    assert pool.available_bytes == 10
    assert pool.waiting_count == 0
