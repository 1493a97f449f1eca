"""Listeners, bounds on connections, idleness, drain."""

from __future__ import annotations

import dataclasses
import errno
import socket

import pytest
import trio
import trio.testing

from kafkacompat._tests.doubles import HandTime
from kafkacompat.config import (
    ConfigError,
    EndPoint,
    ServerConfig,
    defaults_without_file,
    parse_connection_overrides,
)
from kafkacompat.net._tests.helpers import (
    LOOPBACK,
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
from kafkacompat.net.acceptors import SAID_EVERY, accept_forever, bind
from kafkacompat.net.resolving import overrides_by_address
from kafkacompat.net.runtime import SystemClock
from kafkacompat.net.server import Server
from kafkacompat.net.settings import (
    UNLIMITED,
    Admission,
    ConnectionCounts,
    NetworkSettings,
    idle_too_long,
)


def test_idleness_is_a_matter_of_figures() -> None:
    assert not idle_too_long(599_999, 0, 0, 600_000)
    assert idle_too_long(600_000, 0, 0, 600_000)
    assert not idle_too_long(10**9, 0, 1, 600_000)
    assert not idle_too_long(10**9, 0, 0, -1)


@pytest.mark.parametrize("is_encrypted", [False, True])
async def test_idle_connections_are_closed_and_those_with_requests_in_flight_are_not(
    is_encrypted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through the sweeper, with a clock controlled by the test."""
    if is_encrypted:
        monkeypatch.setitem(TLS, "PLAINTEXT", Terms())
    dispatcher = ScriptedDispatcher()
    clock = HandTime()
    async with serving(dispatcher, NetworkSettings(connections_max_idle_ms=20), clock=clock) as server:
        idle, parked = await dial(server), await dial(server)
        await idle.send_all(framed(b"hello"))
        assert await receive_frame(idle) == b"hello"
        await parked.send_all(framed(b"park"))
        await until(lambda: b"park" in dispatcher.pending)
        clock.ms = 1000
        await expect_closed(idle)
        assert server.connection_count == 1
        dispatcher.resolve(b"park")
        assert await receive_frame(parked) == b"done park"
        clock.ms = 2000
        await expect_closed(parked)


async def test_several_listeners_tell_their_names() -> None:
    dispatcher = ScriptedDispatcher()
    async with serving(dispatcher):
        pass
    async with trio.open_nursery() as nursery:
        server = Server(dispatcher, NetworkSettings(), SystemClock(), None)  # type: ignore[arg-type]
        bound = await server.bind([LOOPBACK, EndPoint("SAFE", "127.0.0.1", 0, "SASL_PLAINTEXT")])
        await nursery.start(server.run)
        for listener in bound:
            stream = await trio.open_tcp_stream(listener.host, listener.port)
            await stream.send_all(framed(b"hello"))
            assert await receive_frame(stream) == b"hello"
        nursery.cancel_scope.cancel()
    seen = [(info.listener_name, info.listener_is_sasl, info.client_host) for info in dispatcher.connections]
    assert seen == [("PLAINTEXT", False, "127.0.0.1"), ("SAFE", True, "127.0.0.1")]


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="no IPv6 here")
@pytest.mark.parametrize("host", ["::", "0.0.0.0", ""])
async def test_a_listener_on_all_interfaces_serves_both_kinds_of_address_as_java_does(host: str) -> None:
    dispatcher = ScriptedDispatcher()
    async with serving(dispatcher) as server:
        (bound,) = await server.bind([EndPoint("ALL", host, 0, "PLAINTEXT")])
        for client in ("127.0.0.1", "::1"):
            stream = await trio.open_tcp_stream(client, bound.port)
            await stream.send_all(framed(b"hello"))
            assert await receive_frame(stream) == b"hello"
    assert [info.client_host for info in dispatcher.connections] == ["127.0.0.1", "0:0:0:0:0:0:0:1"]


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="no IPv6 here")
@pytest.mark.parametrize(
    ("host", "other"), [("::1", "127.0.0.1"), ("127.0.0.1", "::1"), ("::ffff:127.0.0.1", "::1")]
)
async def test_a_listener_on_one_address_serves_no_other(host: str, other: str) -> None:
    async with serving(ScriptedDispatcher()) as server:
        (bound,) = await server.bind([EndPoint("ONE", host, 0, "PLAINTEXT")])
        await (await trio.open_tcp_stream(host, bound.port)).aclose()
        with pytest.raises(OSError):
            await trio.open_tcp_stream(other, bound.port)


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="no IPv6 here")
async def test_connections_of_an_ipv6_address_are_bounded_however_the_setting_writes_it() -> None:
    settings = NetworkSettings(max_connections_per_ip_overrides={"::1": 1})
    async with serving(ScriptedDispatcher(), settings) as server:
        (bound,) = await server.bind([EndPoint("SIX", "::1", 0, "PLAINTEXT")])
        first = await trio.open_tcp_stream("::1", bound.port)
        await first.send_all(framed(b"hello"))
        assert await receive_frame(first) == b"hello"
        await expect_closed(await trio.open_tcp_stream("::1", bound.port))


async def test_a_listener_that_is_bound_later_is_served_at_once() -> None:
    dispatcher = ScriptedDispatcher()
    async with serving(dispatcher) as server:
        (late,) = await server.bind([EndPoint("LATE", "127.0.0.1", 0, "PLAINTEXT")])
        stream = await trio.open_tcp_stream(late.host, late.port)
        await stream.send_all(framed(b"hello"))
        assert await receive_frame(stream) == b"hello"
        assert server.listener_readings()["LATE"].present == 1
    assert [info.listener_name for info in dispatcher.connections] == ["LATE"]
    with pytest.raises(OSError):
        await trio.open_tcp_stream(late.host, late.port)


async def test_clients_of_a_held_listener_wait_in_the_backlog() -> None:
    dispatcher = ScriptedDispatcher()
    async with serving(dispatcher) as server:
        server.hold(["LATE"])
        (late,) = await server.bind([EndPoint("LATE", "127.0.0.1", 0, "PLAINTEXT")])
        held = await trio.open_tcp_stream(late.host, late.port)
        await held.send_all(framed(b"held"))
        other = await dial(server)
        await other.send_all(framed(b"other"))
        assert await receive_frame(other) == b"other"
        readings = server.listener_readings()
        assert (readings["LATE"].present, readings["PLAINTEXT"].present) == (0, 1)
        server.hold(())
        assert await receive_frame(held) == b"held"
    assert dispatcher.requests == [b"other", b"held"]


@pytest.mark.parametrize(
    "settings",
    [
        NetworkSettings(sasl_server_max_receive_size=100),
        NetworkSettings(listener_sasl_server_max_receive_size={"SAFE": 100, "OTHER": 7}),
    ],
    ids=["node", "listener"],
)
async def test_a_frame_before_authentication_has_a_bound_of_its_own(settings: NetworkSettings) -> None:
    """sasl.server.max.receive.size applies until the authentication lifts it."""
    dispatcher = ScriptedDispatcher()
    async with trio.open_nursery() as nursery:
        server = Server(dispatcher, settings, SystemClock(), None)  # type: ignore[arg-type]
        (bound,) = await server.bind([EndPoint("SAFE", "127.0.0.1", 0, "SASL_PLAINTEXT")])
        await nursery.start(server.run)
        refused = await trio.open_tcp_stream(bound.host, bound.port)
        await refused.send_all(framed(b"x" * 101))
        await expect_closed(refused)
        stream = await trio.open_tcp_stream(bound.host, bound.port)
        await stream.send_all(framed(b"y" * 100))
        assert await receive_frame(stream) == b"y" * 100
        tell = dispatcher.connections[-1].on_authentication
        assert tell is not None
        tell(True)
        await stream.send_all(framed(b"z" * 101))
        assert await receive_frame(stream) == b"z" * 101
        tell(False)
        await stream.send_all(framed(b"z" * 101))
        await expect_closed(stream)
        nursery.cancel_scope.cancel()


async def test_a_taken_port_is_an_error_that_names_the_setting() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        server = Server(ScriptedDispatcher(), NetworkSettings(), SystemClock(), None)  # type: ignore[arg-type]
        with pytest.raises(
            OSError, match=rf"listeners: .*PLAINTEXT://127\.0\.0\.1:{port}: .*in use"
        ) as raised:
            await server.bind([LOOPBACK, EndPoint("PLAINTEXT", "127.0.0.1", port, "PLAINTEXT")])
    assert raised.value.errno == errno.EADDRINUSE
    assert server.listeners == ()


async def test_an_unknown_host_is_an_error_that_names_the_setting() -> None:
    with pytest.raises(OSError, match=r"listeners: .*no-such-host\.invalid:1"):
        await bind(EndPoint("PLAINTEXT", "no-such-host.invalid", 1, "PLAINTEXT"), NetworkSettings())


async def test_connections_per_address_are_bounded() -> None:
    dispatcher = ScriptedDispatcher()
    async with serving(dispatcher, NetworkSettings(max_connections_per_ip=2)) as server:
        first, second = await dial(server), await dial(server)
        await expect_closed(await dial(server))
        await first.aclose()
        await until(lambda: server.connection_count == 1)
        third = await dial(server)
        for stream in (second, third):
            await stream.send_all(framed(b"hello"))
            assert await receive_frame(stream) == b"hello"


async def test_at_the_total_bound_the_next_connection_waits_for_room() -> None:
    dispatcher = ScriptedDispatcher()
    async with serving(dispatcher, NetworkSettings(max_connections=1)) as server:
        first = await dial(server)
        await first.send_all(framed(b"first"))
        assert await receive_frame(first) == b"first"
        second = await dial(server)  # the kernel's backlog holds it
        await second.send_all(framed(b"second"))
        for _ in range(20):
            await trio.sleep(0)
        assert dispatcher.requests == [b"first"]
        await first.aclose()
        assert await receive_frame(second) == b"second"
        server.update_settings(dataclasses.replace(server.settings, max_connections=2))
        third = await dial(server)
        await third.send_all(framed(b"third"))
        assert await receive_frame(third) == b"third"


async def test_a_connection_over_the_rate_waits_for_room_too() -> None:
    """Connections of another listener take the room while its rate holds it back."""
    dispatcher = ScriptedDispatcher()
    settings = NetworkSettings(
        max_connections=1, listener_max_connection_creation_rate={"PLAINTEXT": 0}, quota_window_ms=50
    )
    async with serving(dispatcher, settings) as server:
        (other,) = await server.bind([EndPoint("OTHER", "127.0.0.1", 0, "PLAINTEXT")])
        late = await dial(server)
        await late.send_all(framed(b"late"))
        await until(lambda: "PLAINTEXT" in server.acceptors.throttled_until_ms)
        first = await trio.open_tcp_stream("127.0.0.1", other.port)
        await first.send_all(framed(b"first"))
        assert await receive_frame(first) == b"first"
        until_ms = server.acceptors.throttled_until_ms["PLAINTEXT"]
        await until(lambda: server.clock.monotonic_ms() > until_ms)
        for _ in range(20):
            await trio.sleep(0)
        await first.send_all(framed(b"again"))
        assert await receive_frame(first) == b"again"
        assert dispatcher.requests == [b"first", b"again"]
        await first.aclose()
        assert await receive_frame(late) == b"late"


def test_the_inter_broker_listener_is_protected_from_the_total_bound() -> None:
    counts = ConnectionCounts(NetworkSettings(max_connections=1, protected_listener="INTERNAL"))
    assert counts.admit("PLAINTEXT", "a") is Admission.ADMITTED
    assert not counts.may_accept("PLAINTEXT")
    assert counts.may_accept("INTERNAL")
    assert counts.admit("INTERNAL", "b") is Admission.PROTECTED
    counts.release("PLAINTEXT", "a")
    counts.release("INTERNAL", "b")
    assert counts.total == 0
    assert counts.by_address == {}


def test_a_listener_has_a_bound_of_its_own() -> None:
    counts = ConnectionCounts(NetworkSettings(listener_max_connections={"PLAINTEXT": 1}))
    counts.admit("PLAINTEXT", "a")
    assert not counts.may_accept("PLAINTEXT")
    assert counts.may_accept("OTHER")


def test_overrides_per_address() -> None:
    overrides = parse_connection_overrides("10.0.0.1:3, localhost:0,[::1]:7")
    assert overrides == {"10.0.0.1": 3, "localhost": 0, "::1": 7}
    counts = ConnectionCounts(NetworkSettings(max_connections_per_ip_overrides=overrides))
    assert counts.admit("PLAINTEXT", "localhost") is Admission.REFUSED
    assert counts.admit("PLAINTEXT", "10.0.0.1") is Admission.ADMITTED
    with pytest.raises(ConfigError, match=r"max\.connections\.per\.ip\.overrides"):
        parse_connection_overrides("10.0.0.1")
    for count in ("1_0", "-1", "2147483648", "9" * 5000):
        with pytest.raises(ConfigError, match=r"max\.connections\.per\.ip\.overrides"):
            parse_connection_overrides(f"10.0.0.1:{count}")


async def test_host_names_in_overrides_are_resolved() -> None:
    overrides = await overrides_by_address({"localhost": 4, "10.0.0.1": 2})
    assert overrides["127.0.0.1"] == 4
    assert overrides["10.0.0.1"] == 2
    with pytest.raises(ConfigError, match=r"no-such-host.*max\.connections\.per\.ip\.overrides"):
        await overrides_by_address({"no-such-host.invalid": 1})


async def test_the_least_recently_used_connection_makes_room_for_another_broker() -> None:
    dispatcher = ScriptedDispatcher()
    clock = HandTime()
    settings = NetworkSettings(max_connections=2, protected_listener="INTERNAL")
    async with trio.open_nursery() as nursery:
        server = Server(dispatcher, settings, clock, None)  # type: ignore[arg-type]
        outer, inner = await server.bind([LOOPBACK, EndPoint("INTERNAL", "127.0.0.1", 0, "PLAINTEXT")])
        await nursery.start(server.run)
        clients = [await trio.open_tcp_stream("127.0.0.1", outer.port) for _ in range(2)]
        for clock.ms, stream in ((1, clients[0]), (2, clients[1]), (3, clients[0])):
            await stream.send_all(framed(b"hello"))
            assert await receive_frame(stream) == b"hello"
        broker = await trio.open_tcp_stream("127.0.0.1", inner.port)
        await broker.send_all(framed(b"broker"))
        assert await receive_frame(broker) == b"broker"
        await expect_closed(clients[1])
        await clients[0].send_all(framed(b"still"))
        assert await receive_frame(clients[0]) == b"still"
        nursery.cancel_scope.cancel()


async def test_a_lowered_total_bound_closes_the_least_recently_used_connections() -> None:
    """Not those of the inter-broker listener, and none because of other bounds."""
    dispatcher = ScriptedDispatcher()
    clock = HandTime()
    async with serving(dispatcher, NetworkSettings(protected_listener="INTERNAL"), clock=clock) as server:
        (inner,) = await server.bind([EndPoint("INTERNAL", "127.0.0.1", 0, "PLAINTEXT")])
        broker = await trio.open_tcp_stream("127.0.0.1", inner.port)
        clients = [await dial(server) for _ in range(3)]
        for clock.ms, stream in (
            (1, broker),
            (2, clients[0]),
            (3, clients[1]),
            (4, clients[2]),
            (5, clients[0]),
        ):
            await stream.send_all(framed(b"hello"))
            assert await receive_frame(stream) == b"hello"
        lowered = dataclasses.replace(
            server.settings, max_connections_per_ip=0, listener_max_connections={"PLAINTEXT": 1}
        )
        server.update_settings(lowered)
        server.update_settings(dataclasses.replace(lowered, max_connections=2))
        await expect_closed(clients[1])
        await expect_closed(clients[2])
        for stream in (broker, clients[0]):
            await stream.send_all(framed(b"still"))
            assert await receive_frame(stream) == b"still"


def test_settings_come_from_the_nodes_configuration() -> None:
    config = ServerConfig.from_properties(
        {
            **defaults_without_file(),
            "max.connections.per.ip.overrides": "127.0.0.1:5",
            "max.connections": "99",
            "listener.name.plaintext.max.connections": "9",
            "listener.name.controller.max.connection.creation.rate": " 7 ",
            "listener.name.controller.sasl.server.max.receive.size": "4096",
            "connections.max.idle.ms": "1234",
        }
    )
    settings = NetworkSettings.from_config(config)
    assert settings == NetworkSettings(
        connections_max_idle_ms=1234,
        max_connections_per_ip_overrides={"127.0.0.1": 5},
        max_connections=99,
        listener_max_connections={"PLAINTEXT": 9, "CONTROLLER": 99},
        listener_max_connection_creation_rate={"PLAINTEXT": UNLIMITED, "CONTROLLER": 7},
        listener_sasl_server_max_receive_size={"PLAINTEXT": 524_288, "CONTROLLER": 4096},
        listeners_of_nodes=frozenset({"CONTROLLER"}),
    )


BROKER_AND_CONTROLLER = {"max.connections": "1", "max.connection.creation.rate": "3"}
TWO_FOR_BROKERS = {
    **BROKER_AND_CONTROLLER,
    "listeners": "PLAINTEXT://localhost:9092,OUTER://localhost:9094,CONTROLLER://localhost:9093",
    "advertised.listeners": "PLAINTEXT://localhost:9092,OUTER://localhost:9094,CONTROLLER://localhost:9093",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OUTER:PLAINTEXT,CONTROLLER:PLAINTEXT",
}


def settings_of(changes: dict[str, str]) -> NetworkSettings:
    return NetworkSettings.from_config(ServerConfig.from_properties({**defaults_without_file(), **changes}))


def test_the_only_listener_of_a_broker_that_is_also_a_controller_is_not_protected() -> None:
    settings = settings_of(BROKER_AND_CONTROLLER)
    counts = ConnectionCounts(settings)
    assert settings.protected_listener is None
    assert counts.admit("PLAINTEXT", "a") is Admission.ADMITTED
    assert not counts.may_accept("PLAINTEXT")


def test_a_protected_listener_has_the_nodes_bounds_for_itself_unless_it_has_its_own() -> None:
    settings = settings_of(TWO_FOR_BROKERS)
    counts = ConnectionCounts(settings)
    assert settings.protected_listener == "PLAINTEXT"
    assert settings.listener_max_connection_creation_rate["PLAINTEXT"] == 3
    counts.admit("OUTER", "a")
    assert counts.may_accept("PLAINTEXT")
    counts.admit("PLAINTEXT", "b")
    assert not counts.may_accept("PLAINTEXT")
    own = settings_of(TWO_FOR_BROKERS | {"listener.name.plaintext.max.connections": "2"})
    counts.settings = own
    assert counts.may_accept("PLAINTEXT")


@pytest.mark.parametrize("size", [102_400, -1])
def test_a_receive_buffer_that_is_set_has_its_size(size: int) -> None:
    config = ServerConfig.from_properties(
        {**defaults_without_file(), "socket.receive.buffer.bytes": str(size)}
    )
    assert NetworkSettings.from_config(config).socket_receive_buffer_bytes == size


@pytest.mark.parametrize("size", [102_400, 5_000_000, -1])
def test_a_send_buffer_that_is_set_does_not_grow(size: int) -> None:
    config = ServerConfig.from_properties({**defaults_without_file(), "socket.send.buffer.bytes": str(size)})
    settings = NetworkSettings.from_config(config)
    assert (settings.socket_send_buffer_bytes, settings.socket_send_buffer_grows) == (size, False)


async def test_drain_answers_what_was_received_and_takes_nothing_more() -> None:
    dispatcher = ScriptedDispatcher()
    async with serving(dispatcher) as server:
        parked, idle = await dial(server), await dial(server)
        await parked.send_all(framed(b"park") + framed(b"behind"))
        await until(lambda: b"park" in dispatcher.pending)
        await until(lambda: server.connection_count == 2)
        port = server.listeners[0].port
        async with trio.open_nursery() as nursery:
            nursery.start_soon(server.drain, 15_000)
            await expect_closed(idle)
            with pytest.raises(OSError):
                await trio.open_tcp_stream("127.0.0.1", port)
            dispatcher.resolve(b"park")
            assert await receive_frame(parked) == b"done park"
            assert await receive_frame(parked) == b"behind"
            await expect_closed(parked)
        assert server.connection_count == 0
    assert len(dispatcher.closed) == 2


async def test_drain_ends_at_its_deadline() -> None:
    dispatcher = ScriptedDispatcher()
    async with serving(dispatcher) as server:
        parked = await dial(server)
        await parked.send_all(framed(b"park"))
        await until(lambda: b"park" in dispatcher.pending)
        await server.drain(10)
        await expect_closed(parked)
    assert len(dispatcher.closed) == 1


async def test_accepting_goes_on_after_running_out_of_descriptors_or_memory(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    class Exhausted:
        """A listening socket without memory, then without a descriptor. Then it accepts one connection, and is closed."""

        def __init__(self) -> None:
            self.results: list[object] = [
                MemoryError(),
                *[OSError(errno.EMFILE, "Too many open files")] * SAID_EVERY,
                OSError(errno.ECONNABORTED, "gone"),
                ("connection", ("::ffff:10.1.2.3", 5, 0, 0)),
                OSError(errno.EBADF, "closed"),
            ]

        def accept(self) -> object:
            result = self.results.pop(0)
            if isinstance(result, Exception):
                raise result
            return result

        def fileno(self) -> int:
            return 3 if self.results else -1

    class Listener:
        endpoint = LOOPBACK
        socket = Exhausted()

    async def always() -> None:
        return

    accepted: list[tuple[object, str, int]] = []
    await accept_forever(Listener(), always, lambda *each: accepted.append(each))  # type: ignore[arg-type]
    assert accepted == [("connection", "10.1.2.3", 5)]
    assert [each.partition(": ")[2] for each in caplog.messages] == [
        "MemoryError()",
        "[Errno 24] Too many open files",
    ]


async def test_accepting_goes_on_after_a_wait_that_the_system_refused(
    autojump_clock: trio.testing.MockClock,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Quiet:
        """A listening socket with a connection after two waits. Then it is closed."""

        def __init__(self) -> None:
            self.results: list[object] = [None, None, ("connection", ("10.1.2.3", 5))]

        def accept(self) -> object:
            result = self.results.pop(0) if self.results else OSError(errno.EBADF, "closed")
            if isinstance(result, OSError):
                raise result
            if result is None:
                raise BlockingIOError
            return result

        def fileno(self) -> int:
            return 3 if self.results else -1

    class Listener:
        endpoint = LOOPBACK
        socket = Quiet()

    waits: list[object] = []

    async def wait_readable(sock: object) -> None:
        waits.append(sock)
        if len(waits) == 1:
            raise OSError(errno.ENOSPC, "too many watches")

    async def always() -> None:
        return

    monkeypatch.setattr(trio.lowlevel, "wait_readable", wait_readable)
    accepted: list[object] = []
    await accept_forever(Listener(), always, lambda *each: accepted.append(each))  # type: ignore[arg-type]
    assert accepted == [("connection", "10.1.2.3", 5)]
    assert "too many watches" in caplog.text


async def test_connections_are_counted_by_listener() -> None:
    async with serving(ScriptedDispatcher()) as server:
        nothing = server.listener_readings()["PLAINTEXT"]
        assert (nothing.present, nothing.created, nothing.closed) == (0, (0, 0), (0, 0))
        first, second = await dial(server), await dial(server)
        await until(lambda: server.connection_count == 2)
        await first.aclose()
        await until(lambda: server.connection_count == 1)
        reading = server.listener_readings()["PLAINTEXT"]
        assert (reading.present, reading.created[0], reading.closed[0]) == (1, 2, 1)
        # Kafka's rate over two samples of 30 s takes the first one as whole.
        assert reading.created[1] == pytest.approx(2 / 30, rel=0.05)
        assert reading.authenticated[0] == reading.not_authenticated[0] == 0
        await second.aclose()


async def test_idle_connections_that_are_closed_are_not_counted_as_ended_sessions() -> None:
    """As in Kafka, expired-connections-killed-count is of clients that do not authenticate again (KIP-368)."""
    async with serving(ScriptedDispatcher(), NetworkSettings(connections_max_idle_ms=20)) as server:
        await expect_closed(await dial(server))
        reading = server.listener_readings()["PLAINTEXT"]
        assert (reading.expired, reading.closed[0], reading.present) == (0, 1, 0)
