"""A resolver that does not answer delays nothing: not the clients, not a start, not the end."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import trio
import trio.testing

from kafkacompat.config import ConfigError, EndPoint
from kafkacompat.net import acceptors, resolving
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
from kafkacompat.net.acceptors import bind
from kafkacompat.net.dialing import probe
from kafkacompat.net.settings import NetworkSettings
from kafkacompat.ports import ProbeResult

SLOW = "slow.example.org"


class Resolver:
    """Answers for SLOW when the test allows it; the system answers for all others."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.asked = 0
        self.answer = "127.0.0.1"
        self._real = socket.getaddrinfo

    def getaddrinfo(self, host: Any, port: Any, *arguments: Any, **named: Any) -> Any:
        flags = named.get("flags", arguments[3] if len(arguments) > 3 else 0)
        if host not in (SLOW, SLOW.encode()) or flags & socket.AI_NUMERICHOST:
            return self._real(host, port, *arguments, **named)
        assert threading.current_thread() is not threading.main_thread(), "asked in the loop's thread"
        self.asked += 1
        assert self.gate.wait(DEADLINE_S)
        if not self.answer:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return self._real(self.answer, port, *arguments, **named)


@pytest.fixture
def resolver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Resolver]:
    fake = Resolver()
    monkeypatch.setattr(socket, "getaddrinfo", fake.getaddrinfo)
    yield fake
    fake.gate.set()


async def test_changed_overrides_are_resolved_while_clients_are_served(resolver: Resolver) -> None:
    async with serving(ScriptedDispatcher(), NetworkSettings(max_connections_per_ip=2)) as server:
        first = await dial(server)
        overrides = {SLOW: 1}
        server.update_settings(
            replace(server.settings, max_connections_per_ip=3, max_connections_per_ip_overrides=overrides)
        )
        await until(lambda: resolver.asked == 1)
        second, third = await dial(server), await dial(server)
        for stream in (first, second, third):
            await stream.send_all(framed(b"hello"))
            assert await receive_frame(stream) == b"hello"
        await expect_closed(await dial(server))
        # Equal overrides are not resolved again.
        server.update_settings(replace(server.settings, max_connections=9))
        resolver.gate.set()
        await until(lambda: bool(server.acceptors.counts.settings.max_connections_per_ip_overrides))
        assert server.acceptors.counts.settings.max_connections_per_ip_overrides == {"127.0.0.1": 1}
        assert server.acceptors.counts.settings.max_connections == 9
        await third.aclose()
        await second.aclose()
        await until(lambda: server.connection_count == 1)
        await expect_closed(await dial(server))


async def test_an_unknown_host_leaves_the_overrides_and_takes_the_other_bounds(
    resolver: Resolver, caplog: pytest.LogCaptureFixture
) -> None:
    resolver.gate.set()
    resolver.answer = ""
    async with serving(
        ScriptedDispatcher(), NetworkSettings(max_connections_per_ip_overrides={"10.0.0.1": 7})
    ) as server:
        server.update_settings(
            replace(server.settings, max_connections=5, max_connections_per_ip_overrides={SLOW: 1})
        )
        await until(lambda: bool(caplog.messages))
        assert SLOW in caplog.messages[0]
        assert server.acceptors.counts.settings.max_connections == 5
        assert server.acceptors.counts.settings.max_connections_per_ip_overrides == {"10.0.0.1": 7}


async def test_overrides_of_a_host_that_is_unknown_for_a_moment_count_later(
    resolver: Resolver, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acceptors, "RETRY_S", 0)
    resolver.gate.set()
    resolver.answer = ""
    async with serving(ScriptedDispatcher()) as server:
        server.update_settings(replace(server.settings, max_connections_per_ip_overrides={SLOW: 1}))
        await until(lambda: bool(caplog.messages))
        resolver.answer = "127.0.0.1"
        await until(lambda: bool(server.acceptors.counts.settings.max_connections_per_ip_overrides))
        assert server.acceptors.counts.settings.max_connections_per_ip_overrides == {"127.0.0.1": 1}


async def test_a_text_that_names_no_host_leaves_the_overrides(caplog: pytest.LogCaptureFixture) -> None:
    async with serving(ScriptedDispatcher()) as server:
        server.update_settings(replace(server.settings, max_connections_per_ip_overrides={"kafka..svc": 1}))
        await until(lambda: bool(caplog.messages))
        assert "kafka..svc" in caplog.messages[0]
        stream = await dial(server)
        await stream.send_all(framed(b"hello"))
        assert await receive_frame(stream) == b"hello"


async def test_only_the_newest_overrides_count(resolver: Resolver) -> None:
    async with serving(ScriptedDispatcher()) as server:
        server.update_settings(replace(server.settings, max_connections_per_ip_overrides={SLOW: 1}))
        await until(lambda: resolver.asked == 1)
        server.update_settings(replace(server.settings, max_connections_per_ip_overrides={"10.0.0.2": 2}))
        await until(lambda: bool(server.acceptors.counts.settings.max_connections_per_ip_overrides))
        resolver.gate.set()
        for _ in range(5):
            await trio.to_thread.run_sync(lambda: None)
        assert server.acceptors.counts.settings.max_connections_per_ip_overrides == {"10.0.0.2": 2}


async def test_a_start_that_waits_for_the_resolver_can_be_called_off(resolver: Resolver) -> None:
    with trio.fail_after(DEADLINE_S):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(bind, EndPoint("PLAINTEXT", SLOW, 0, "PLAINTEXT"), NetworkSettings())
            await until(lambda: resolver.asked == 1)
            nursery.cancel_scope.cancel()


async def test_the_resolver_has_so_long(resolver: Resolver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resolving, "RESOLVE_TIMEOUT_S", 0.0)
    with pytest.raises(OSError, match=r"listeners: .*no answer"):
        await bind(EndPoint("PLAINTEXT", SLOW, 0, "PLAINTEXT"), NetworkSettings())
    with pytest.raises(ConfigError, match="no answer"):
        await resolving.overrides_by_address({SLOW: 1})
    assert await probe(SLOW, 9092, 0) is ProbeResult.UNREACHABLE


async def test_the_own_name_is_asked_for_in_a_thread_and_only_where_one_is_needed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[bool] = []
    gate = threading.Event()

    def getfqdn() -> str:
        asked.append(threading.current_thread() is threading.main_thread())
        assert gate.wait(DEADLINE_S)
        return "late.example.org"

    monkeypatch.setattr(socket, "getfqdn", getfqdn)
    monkeypatch.setattr(socket, "gethostname", lambda: "short")
    monkeypatch.setattr(resolving, "OWN_NAME_TIMEOUT_S", 0.0)
    assert await resolving.own_name([EndPoint("A", "h", 1, "PLAINTEXT")]) == ""
    assert asked == []
    assert await resolving.own_name([EndPoint("A", "", 1, "PLAINTEXT")]) == "short"
    gate.set()
    monkeypatch.setattr(resolving, "OWN_NAME_TIMEOUT_S", DEADLINE_S)
    assert await resolving.own_name([EndPoint("A", "", 1, "PLAINTEXT")]) == "late.example.org"
    assert not any(asked)


@pytest.mark.parametrize(
    ("host", "addresses"),
    [
        ("010.020.008.1", ("10.20.8.1",)),
        ("127.1", ("127.0.0.1",)),
        ("4294967295", ("255.255.255.255",)),
        ("[::1]", ("0:0:0:0:0:0:0:1",)),
        ("0x7f.1", None),
        ("0X7F000001", None),
        ("[127.0.0.1]", None),
        ("1.2.3.256", None),
        ("4294967296", None),
        ("9" * 5_000, None),
    ],
)
async def test_addresses_are_read_as_by_java(host: str, addresses: tuple[str, ...] | None) -> None:
    """An administrator who pads numbers with zeros must not limit another address."""
    assert await resolving.addresses_of(host) == addresses
    assert await resolving.address_of(host) == (None if addresses is None else addresses[0])
