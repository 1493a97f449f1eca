"""What a listener counts: bytes, requests and responses, software of clients, connections that had to wait."""

from __future__ import annotations

from math import isnan

import pytest

from kafkacompat.net._tests.helpers import (
    TLS,
    ScriptedDispatcher,
    Terms,
    dial,
    framed,
    receive_frame,
    serving,
    until,
)
from kafkacompat.net.listener_meter import NAME_MAX, SOFTWARE_MAX, UNKNOWN, ListenerMeter
from kafkacompat.net.memory_pool import MemoryPool
from kafkacompat.net.settings import NetworkSettings
from kafkacompat.ports.dispatcher import ConnectionInfo


@pytest.fixture(params=["in the clear", "over TLS"])
def transport(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "over TLS":
        monkeypatch.setitem(TLS, "PLAINTEXT", Terms())


@pytest.mark.usefixtures("transport")
async def test_bytes_requests_and_responses_are_counted() -> None:
    """Those that get no response, and those whose response comes later."""
    dispatcher = ScriptedDispatcher()
    async with serving(dispatcher) as server:
        stream = await dial(server)
        sent = framed(b"hello") + framed(b"silent") + framed(b"park a") + framed(b"later b")
        await stream.send_all(sent)
        answered = framed(await receive_frame(stream))
        await until(lambda: b"park a" in dispatcher.pending)
        dispatcher.resolve(b"park a")
        answered += framed(await receive_frame(stream))
        await until(lambda: b"later b" in dispatcher.pending)
        dispatcher.resolve(b"later b")
        answered += framed(await receive_frame(stream))
        # A client may have an answer before the server counts it, and a rate needs some time.
        await until(lambda: server.listener_readings()["PLAINTEXT"].received_bytes[1] > 0)
        await until(lambda: server.listener_readings()["PLAINTEXT"].responses[0] == 3)
        reading = server.listener_readings()["PLAINTEXT"]
        assert (reading.received_bytes[0], reading.sent_bytes[0]) == (len(sent), len(answered))
        assert (reading.requests[0], reading.responses[0]) == (4, 3)
        await stream.aclose()


async def test_bytes_that_a_full_socket_delays_are_counted_when_they_are_sent() -> None:
    dispatcher = ScriptedDispatcher()
    large = framed(bytes(8 << 20))
    dispatcher.answers[b"large"] = lambda frame: [large]
    async with serving(dispatcher) as server:
        stream = await dial(server)
        await stream.send_all(framed(b"large"))
        await until(lambda: any(each.unsent_bytes for each in server._connections.values()))
        (served,) = server._connections.values()
        counts = server.listener_readings()["PLAINTEXT"]
        assert counts.sent_bytes[0] == len(large) - served.unsent_bytes
        await receive_frame(stream)
        assert server.listener_readings()["PLAINTEXT"].sent_bytes[0] == len(large)
        await stream.aclose()


def test_rates_are_of_the_last_half_minute() -> None:
    meter = ListenerMeter(1_000)
    meter.received_bytes, meter.sent_bytes, meter.requests, meter.responses = 1_000, 500, 20, 10
    reading = meter.read(0, 11_000)
    assert reading.received_bytes == (1_000, 100)
    assert reading.sent_bytes == (500, 50)
    assert reading.requests == (20, 2)
    assert reading.responses == (10, 1)
    meter.read(0, 41_000)
    assert meter.read(0, 71_500).received_bytes == (1_000, 0)


def connection(meter: ListenerMeter) -> ConnectionInfo:
    info = ConnectionInfo(1, "PLAINTEXT", "127.0.0.1", 5)
    info.meter = meter
    return info


def test_connections_are_counted_by_the_software_of_the_client() -> None:
    meter = ListenerMeter(0)
    one, two, silent = (connection(meter) for _ in range(3))
    one.tell_software("lib 1")
    one.tell_software("lib 1")
    two.tell_software("lib 1")
    assert meter.read(3, 0).software == {("lib", "1"): 2, UNKNOWN: 1}
    two.tell_software("lib 2")
    assert meter.read(3, 0).software == {("lib", "1"): 1, ("lib", "2"): 1, UNKNOWN: 1}
    for each in (one, two, silent):
        meter.gone(each.client_software, 0)
    assert meter.read(0, 0).software == {}
    assert meter.closed.count == 3


def test_of_very_many_kinds_of_software_those_with_the_most_connections_are_shown() -> None:
    meter = ListenerMeter(0)
    connection(meter).tell_software("rare 0")
    for number in range(SOFTWARE_MAX):
        for _ in range(2):
            connection(meter).tell_software(f"lib {number}")
    shown = meter.read(2 * SOFTWARE_MAX + 1, 0).software
    assert len(shown) == SOFTWARE_MAX
    assert set(shown.values()) == {2}


def test_of_very_long_names_and_versions_the_beginning_is_shown() -> None:
    meter, name, version = ListenerMeter(0), "n" * NAME_MAX, "1" * NAME_MAX
    for end in ("", "x", "y" * 30_000):
        connection(meter).tell_software(f"{name}{end} {version}{end}")
    assert meter.read(3, 0).software == {(name, version): 3}


def test_throttle_times_are_means_of_the_last_minute() -> None:
    meter = ListenerMeter(0)
    assert isnan(meter.read(0, 0).accept_throttle_ms)
    for throttle_ms in (100, 300):
        meter.accept_throttles.note(throttle_ms, 1_000)
    meter.address_throttles.note(70, 1_000)
    reading = meter.read(0, 2_000)
    assert (reading.accept_throttle_ms, reading.address_throttle_ms) == (200, 70)
    assert isnan(meter.read(0, 62_000).accept_throttle_ms)


async def test_connections_over_the_rates_are_told_apart() -> None:
    settings = NetworkSettings(max_connection_creation_rate=1, quota_windows=1, quota_window_ms=1_000)
    async with serving(ScriptedDispatcher(), settings) as server:
        streams = [await dial(server) for _ in range(3)]
        await until(lambda: server.listener_readings()["PLAINTEXT"].accept_throttle_ms > 0)
        assert isnan(server.listener_readings()["PLAINTEXT"].address_throttle_ms)
        for each in streams:
            await each.aclose()
    async with serving(
        ScriptedDispatcher(), NetworkSettings(quota_windows=1, quota_window_ms=1_000)
    ) as server:
        server.newcomers.take({None: 1})
        streams = [await dial(server) for _ in range(3)]
        await until(lambda: server.listener_readings()["PLAINTEXT"].address_throttle_ms > 0)
        assert isnan(server.listener_readings()["PLAINTEXT"].accept_throttle_ms)
        for each in streams:
            await each.aclose()


def test_a_pool_tells_what_is_left_and_what_is_used() -> None:
    pool = MemoryPool(1_000)
    assert pool.read() == (1_000, 0)
    assert pool.take(1_200), "it may be overdrawn by one request"
    assert pool.read() == (-200, 1_200)


def test_the_sizes_of_responses_are_of_the_last_minute() -> None:
    meter = ListenerMeter(0)
    reading = meter.read(0, 1_000)
    assert isnan(reading.response_bytes)
    assert isnan(reading.largest_response_bytes)
    meter.sent_bytes, meter.responses, meter.largest_response = 900, 3, 700
    reading = meter.read(0, 2_000)
    assert (reading.response_bytes, reading.largest_response_bytes) == (300, 700)
    meter.sent_bytes, meter.responses, meter.largest_response = 1000, 4, 100
    reading = meter.read(0, 3_000)
    assert (reading.response_bytes, reading.largest_response_bytes) == (250, 700)
    assert meter.read(0, 62_000).largest_response_bytes == 100
    assert isnan(meter.read(0, 64_000).largest_response_bytes)


def test_authentications_anew_are_timed_and_those_who_cannot_are_counted() -> None:
    meter = ListenerMeter(0)
    meter.authenticated(1_000)
    meter.authenticated(1_000, may_again=True)
    meter.authenticated(5_000, may_again=True, began_ms=4_970)
    meter.authenticated(5_000, may_again=True, began_ms=4_990)
    reading = meter.read(0, 6_000)
    assert (reading.authenticated[0], reading.authenticated_again[0]) == (2, 2)
    assert reading.authenticated_once == 1
    assert reading.reauthentication_ms == (20, 30)


def test_sessions_that_have_ended_are_counted() -> None:
    meter = ListenerMeter(0)
    assert meter.read(1, 0).expired == 0
    meter.session_ended()
    assert meter.read(1, 0).expired == 1
