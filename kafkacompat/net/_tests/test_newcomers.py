"""connection_creation_rate: a connection over the rate of its address is held unserved, then closed, and counts nowhere."""

from __future__ import annotations

import socket
import threading
from typing import Any

import pytest
import trio

from kafkacompat.net import acceptors
from kafkacompat.net._tests.helpers import (
    DEADLINE_S,
    ScriptedDispatcher,
    dial,
    expect_closed,
    framed,
    receive_frame,
    serving,
    until,
)
from kafkacompat.net.acceptors import Newcomers
from kafkacompat.net.runtime import SystemClock
from kafkacompat.net.settings import NetworkSettings

SECOND = NetworkSettings(quota_windows=2, quota_window_ms=1000)
"""Of a rate of one, one connection in a second is let in."""
OWN = "127.0.0.1"


class StandingClock(SystemClock):
    """Whoever is held stays held."""

    def monotonic_ms(self) -> int:
        return 1000


async def answered(stream: Any) -> bool:
    await stream.send_all(framed(b"hello"))
    return await receive_frame(stream) == b"hello"


async def test_a_connection_over_the_rate_is_held_and_then_closed() -> None:
    """A window has 200 ms. Three connections in one window are over the rate."""
    settings = NetworkSettings(quota_windows=2, quota_window_ms=200)
    dispatcher = ScriptedDispatcher()
    async with serving(dispatcher, settings) as server:
        server.newcomers.take({OWN: 1})
        stream = await dial(server)
        await stream.send_all(framed(b"hello"))
        await expect_closed(stream)
        assert dispatcher.requests == []
        assert server.connection_count == server.newcomers.held_count == 0


async def test_a_held_connection_counts_nowhere() -> None:
    settings = NetworkSettings(
        quota_windows=2, quota_window_ms=1000, max_connections_per_ip=2, max_connection_creation_rate=2
    )
    async with serving(ScriptedDispatcher(), settings, clock=StandingClock()) as server:
        server.newcomers.take({OWN: 1})
        first = await dial(server)
        assert await answered(first)
        held = [await dial(server) for _ in range(5)]
        await until(lambda: server.newcomers.held_count == 5)
        server.newcomers.take({})
        second = await dial(server)
        assert await answered(second)
        assert server.newcomers.held_count == len(held)
        assert server.connection_count == 2
        await first.aclose()
        await second.aclose()


async def test_a_default_and_its_removal_apply_at_once() -> None:
    async with serving(ScriptedDispatcher(), SECOND, clock=StandingClock()) as server:
        server.newcomers.take({None: 1})
        assert await answered(await dial(server))
        held = await dial(server)
        await until(lambda: server.newcomers.held_count == 1)
        server.newcomers.take({None: 1, OWN: 2})
        assert await answered(await dial(server))
        server.newcomers.take({})
        assert await answered(await dial(server))
        assert server.newcomers.held_count == 1
        await server.drain(5_000)
        await expect_closed(held)


async def test_no_more_are_held_than_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acceptors, "HELD_MAX", 2)
    async with serving(ScriptedDispatcher(), SECOND, clock=StandingClock()) as server:
        server.newcomers.take({OWN: 1})
        assert await answered(await dial(server))
        streams = [await dial(server) for _ in range(3)]
        await expect_closed(streams[0])
        assert server.newcomers.held_count == 2


async def test_a_host_is_resolved_beside_the_loop(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    gate = threading.Event()
    real = socket.getaddrinfo
    answers: list[str] = []

    def getaddrinfo(host: Any, port: Any, *arguments: Any, **named: Any) -> Any:
        flags = named.get("flags", arguments[3] if len(arguments) > 3 else 0)
        if host not in ("a.host", b"a.host") or flags & socket.AI_NUMERICHOST:
            return real(host, port, *arguments, **named)
        assert threading.current_thread() is not threading.main_thread()
        assert gate.wait(DEADLINE_S)
        if not answers:
            raise socket.gaierror(socket.EAI_NONAME, "unknown")
        return real(answers[0], port, *arguments, **named)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    monkeypatch.setattr(acceptors, "RETRY_S", 0)
    async with serving(ScriptedDispatcher(), SECOND, clock=StandingClock()) as server:
        server.newcomers.take({"a.host": 1})
        assert await answered(await dial(server))
        gate.set()
        await until(lambda: bool(caplog.messages))
        assert "a.host" in caplog.messages[0]
        answers.append(OWN)
        await until(lambda: bool(server.newcomers._found))
        assert await answered(await dial(server))
        held = await dial(server)
        await until(lambda: server.newcomers.held_count == 1)
        await held.aclose()


HERE = "0:0:0:0:0:0:0:1"
"""The address ::1, as of a client."""


def test_a_quota_of_an_address_counts_more_than_one_of_its_host() -> None:
    table = Newcomers(SystemClock(), 2, 1000)
    table._found = {"a.host": (HERE,)}

    def held_ms(address: str) -> int:
        return sum(table.throttle_ms(address, 0) for _ in range(2))

    table.take({"a.host": 1, "0:0::1": 100})
    assert held_ms(HERE) == 0
    table.take({"a.host": 1})
    assert held_ms(HERE) > 0
    table.take({"::ffff:10.0.0.1": 1})
    assert held_ms("10.0.0.1") > 0
    assert held_ms(HERE) == 0
    assert table._found == {}


async def test_the_time_of_holding_is_kept() -> None:
    with trio.fail_after(DEADLINE_S):
        async with trio.open_nursery() as nursery:
            clock = SystemClock()
            table = Newcomers(clock, 2, 1000)
            nursery.start_soon(table.run)
            ours, theirs = socket.socketpair()
            began_ms = clock.monotonic_ms()
            table.hold(theirs, began_ms + 50)
            ours.setblocking(False)
            await trio.lowlevel.wait_readable(ours)
            assert ours.recv(1) == b""
            assert clock.monotonic_ms() - began_ms >= 50
            ours.close()
            nursery.cancel_scope.cancel()
