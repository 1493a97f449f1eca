"""A throttled connection: its response leaves, no further request is dispatched until the throttle time is over, and it stays."""

from __future__ import annotations

import pytest
import trio

from kafkacompat._tests.doubles import HandTime
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
from kafkacompat.net.receive_buffer import INITIAL_BYTES
from kafkacompat.net.settings import NetworkSettings
from kafkacompat.ports.dispatcher import Reply

FOREVER_MS = 10**9


@pytest.fixture(autouse=True, params=["in the clear", "over TLS"])
def transport(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "over TLS":
        monkeypatch.setitem(TLS, "PLAINTEXT", Terms())


def throttling(throttle_ms: int) -> ScriptedDispatcher:
    """Throttles a connection for each request that says so."""
    dispatcher = ScriptedDispatcher()

    def throttle(frame: memoryview) -> Reply:
        tell = dispatcher.connections[-1].on_throttled
        assert tell is not None
        tell(throttle_ms)
        return [framed(bytes(frame))]

    dispatcher.answers[b"throttle"] = throttle
    return dispatcher


async def test_the_response_leaves_and_the_next_request_waits() -> None:
    dispatcher = throttling(FOREVER_MS)
    async with serving(dispatcher) as server:
        stream = await dial(server)
        await stream.send_all(framed(b"throttle") + framed(b"next"))
        assert await receive_frame(stream) == b"throttle"
        connection = server._connections[1]
        await until(lambda: not connection.in_line)
        assert dispatcher.requests == [b"throttle"]
        connection.unmute()
        assert await receive_frame(stream) == b"next"


async def test_a_muted_connection_is_idle() -> None:
    """As in Kafka. Otherwise a client that is gone, with a request that is not read, would keep its connection for the
    throttle time, which may be weeks."""
    dispatcher = throttling(FOREVER_MS)
    clock = HandTime()
    async with serving(dispatcher, NetworkSettings(connections_max_idle_ms=20), clock=clock) as server:
        gone, present = await dial(server), await dial(server)
        for stream in (gone, present):
            await stream.send_all(framed(b"throttle") + framed(b"next"))
            assert await receive_frame(stream) == b"throttle"
        await gone.aclose()
        await until(lambda: all(each._buffer.has_frame() for each in server._connections.values()))
        assert server.connection_count == 2

        def all_closed() -> bool:
            clock.ms += 1000  # the end of `gone` may be read only now, and counts as activity
            return not server.connection_count

        await until(all_closed)
        await expect_closed(present)
        assert dispatcher.requests == [b"throttle", b"throttle"]


async def test_the_throttle_ends_by_itself() -> None:
    dispatcher = throttling(1)
    async with serving(dispatcher) as server:
        stream = await dial(server)
        for _ in range(3):
            await stream.send_all(framed(b"throttle") + framed(b"next"))
            assert [await receive_frame(stream) for _ in range(2)] == [b"throttle", b"next"]


async def test_the_longest_of_several_throttles_counts() -> None:
    dispatcher = throttling(FOREVER_MS)
    async with serving(dispatcher) as server:
        stream = await dial(server)
        await stream.send_all(framed(b"throttle") + framed(b"next"))
        await receive_frame(stream)
        connection = server._connections[1]
        until_ms = connection.muted_until_ms
        server._throttle(connection, 1)
        assert connection.muted_until_ms == until_ms


async def test_others_are_served_meanwhile() -> None:
    async with serving(throttling(FOREVER_MS)) as server:
        muted, other = await dial(server), await dial(server)
        await muted.send_all(framed(b"throttle") + framed(b"next"))
        await receive_frame(muted)
        await other.send_all(framed(b"hello"))
        assert await receive_frame(other) == b"hello"


async def test_a_muted_client_takes_no_memory() -> None:
    """Requests behind the throttle stay in the socket, as soon as the buffer is full."""
    async with serving(throttling(FOREVER_MS)) as server:
        stream = await dial(server)
        await stream.send_all(framed(b"throttle"))
        await receive_frame(stream)
        connection = server._connections[1]
        with trio.move_on_after(0.2):
            await stream.send_all(framed(b"x" * 10_000_000))
        assert len(connection._buffer._buffer) <= 2 * INITIAL_BYTES


async def test_a_muted_client_that_has_left_takes_no_memory() -> None:
    """Its timer knows the connection for up to a minute."""
    async with serving(throttling(FOREVER_MS)) as server:
        stream = await dial(server)
        await stream.send_all(framed(b"throttle " + bytes(1_500_000)))
        await receive_frame(stream)
        connection = server._connections[1]
        await stream.aclose()
        await until(lambda: connection.closed)
        assert len(connection._buffer._buffer) == 0


async def test_a_drain_does_not_wait_for_a_throttle() -> None:
    dispatcher = throttling(FOREVER_MS)
    async with serving(dispatcher) as server:
        stream = await dial(server)
        await stream.send_all(framed(b"throttle") + framed(b"next"))
        assert await receive_frame(stream) == b"throttle"
        await until(lambda: bool(server._connections[1]._buffer.has_frame()))
        await server.drain(5_000)
        assert await receive_frame(stream) == b"next"
        await expect_closed(stream)


async def test_connections_over_the_creation_rate_wait() -> None:
    """With a window of a quarter of a second and one window before, one connection per window is free."""
    settings = NetworkSettings(max_connection_creation_rate=4, quota_windows=2, quota_window_ms=250)
    dispatcher = ScriptedDispatcher()
    async with serving(dispatcher, settings) as server:
        began_s = trio.current_time()
        streams = []
        for number in range(4):
            streams.append(stream := await dial(server))
            await stream.send_all(framed(b"%d" % number))
            assert await receive_frame(stream) == b"%d" % number
        assert trio.current_time() - began_s > 0.4
        assert server.connection_count == 4


async def test_a_drain_does_not_wait_for_connections_over_the_rate() -> None:
    settings = NetworkSettings(max_connection_creation_rate=0, quota_window_ms=FOREVER_MS)
    async with serving(ScriptedDispatcher(), settings) as server:
        stream = await trio.open_tcp_stream("127.0.0.1", server.listeners[0].port)
        await until(lambda: bool(server.acceptors.throttled_until_ms))
        assert server.connection_count == 0
        await server.drain(5_000)
        await expect_closed(stream)
