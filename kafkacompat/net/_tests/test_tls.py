"""Listeners with TLS: handshakes that succeed, fail, stop and take too long, and errors that only an encrypting socket
can make.

The behaviour of every connection, also over TLS, is in test_connection and test_full_socket.
"""

from __future__ import annotations

import logging
import os
import random
import socket
import ssl
import struct
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import trio

from kafkacompat._tests.doubles import HandTime
from kafkacompat.net import tls_connection, tls_socket
from kafkacompat.net._tests import helpers
from kafkacompat.net._tests.helpers import (
    CLIENT_CONTEXT,
    ROOT,
    SERVER_CONTEXT,
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
from kafkacompat.net._tests.test_connection import CountingFile
from kafkacompat.net.output_queue import COPIED_BYTES_MAX
from kafkacompat.net.server import Server
from kafkacompat.net.settings import NetworkSettings
from kafkacompat.net.tls_connection import HANDSHAKE_MS_MAX, Handshakes, TlsConnection
from kafkacompat.net.tls_socket import TlsSocket
from kafkacompat.ports import FileSlice
from kafkacompat.ports.dispatcher import ConnectionInfo, Principal
from kafkacompat.ports.network import Unidentified
from kafkacompat.security.ssl_factory import client_context, ssl_settings

RECORD = 16 * 1024


@pytest.fixture(autouse=True)
def secured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TLS, "PLAINTEXT", Terms())


async def dial_in_the_clear(server: Server) -> trio.SocketStream:
    return await trio.open_tcp_stream("127.0.0.1", server.listeners[0].port)


class Client:
    """One side of TLS whose bytes the test transfers."""

    def __init__(self, context: ssl.SSLContext = CLIENT_CONTEXT) -> None:
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.incoming, self.outgoing, server_hostname="localhost")

    def shake_hands(self) -> bytes:
        """Its next bytes to send."""
        with suppress(ssl.SSLWantReadError):
            self.tls.do_handshake()
        return self.outgoing.read()

    def encrypted(self, data: bytes) -> bytes:
        self.tls.write(data)
        return self.outgoing.read()

    async def finish(self, stream: trio.SocketStream) -> bytes:
        """The handshake except its last flight, which is left to the test."""
        await stream.send_all(self.shake_hands())
        while True:
            self.incoming.write(await stream.receive_some())
            said = self.shake_hands()
            if said:
                return said

    async def receive(self, stream: trio.SocketStream, count: int) -> bytes:
        received = b""
        while len(received) < count:
            try:
                received += self.tls.read(count - len(received))
            except ssl.SSLWantReadError:
                data = await stream.receive_some()
                assert data, "closed"
                self.incoming.write(data)
        return received


async def test_a_client_with_a_certificate_is_known_and_others_are_not() -> None:
    dispatcher = ScriptedDispatcher()
    alice = ROOT.issue("alice", ())
    properties = {
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": ROOT.pem(),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": alice.key_pem(),
        "ssl.keystore.certificate.chain": alice.chain_pem(),
    }
    async with serving(dispatcher) as server:
        for context in (CLIENT_CONTEXT, client_context(ssl_settings(properties))):
            stream = await dial(server, context)
            await stream.send_all(framed(b"hello"))
            assert await receive_frame(stream) == b"hello"
    anonymous, known = (info.principal for info in dispatcher.connections)
    assert anonymous == Principal("User", "ANONYMOUS")
    assert int(known.name) > 100


async def test_nobody_is_served_who_cannot_be_told_from_a_certificate(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    class Refusing(Terms):
        def identify(self, connection: ConnectionInfo, certificate: bytes | None) -> None:
            raise Unidentified("no rule fits")

    monkeypatch.setitem(TLS, "PLAINTEXT", Refusing())
    dispatcher = ScriptedDispatcher()
    async with serving(dispatcher) as server:
        stream = await dial(server)
        with suppress(trio.BrokenResourceError):
            await stream.send_all(framed(b"hello"))
            assert not await stream.receive_some()
        await until(lambda: server.connection_count == 0)
    assert not dispatcher.requests
    assert "127.0.0.1" in caplog.text
    assert "no rule fits" in caplog.text


@pytest.mark.parametrize(
    "sent", [framed(b"hello"), b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\xff\xff" + bytes(70_000)]
)
async def test_a_client_that_does_not_speak_tls_is_refused_with_a_reason(
    sent: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    dispatcher = ScriptedDispatcher()
    async with serving(dispatcher) as server:
        stream = await dial_in_the_clear(server)
        await stream.send_all(sent)
        await until(lambda: len(dispatcher.closed) == 1)
        other = await dial(server)
        await other.send_all(framed(b"hello"))
        assert await receive_frame(other) == b"hello"
    assert not any(request != b"hello" for request in dispatcher.requests)
    assert "TLS handshake failed: " in caplog.text


async def test_a_client_that_trusts_another_authority_is_refused_and_the_reason_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    async with serving(ScriptedDispatcher()) as server:
        stream = await dial_in_the_clear(server)
        client = Client(client_context(ssl_settings({})))
        with pytest.raises(ssl.SSLCertVerificationError):
            await client.finish(stream)
        await stream.send_all(client.outgoing.read())
        await until(lambda: server.connection_count == 0)
    assert "TLS handshake failed: tlsv1 alert unknown ca" in caplog.text


async def test_a_client_that_stops_in_the_handshake_holds_up_nobody_and_is_closed_in_time() -> None:
    clock = HandTime()
    async with serving(ScriptedDispatcher(), clock=clock) as server:
        stopped = [await dial_in_the_clear(server) for _ in range(60)]
        hello = Client().shake_hands()
        for number, stream in enumerate(stopped):
            await stream.send_all(hello[: len(hello) * number // 40])
        working = await dial(server)
        await working.send_all(framed(b"hello"))
        assert await receive_frame(working) == b"hello"
        clock.ms += HANDSHAKE_MS_MAX - 1
        late = await dial_in_the_clear(server)
        await until(lambda: server.connection_count == 62)
        clock.ms += 1
        newest = await dial(server)
        for stream in stopped:
            with suppress(trio.BrokenResourceError):
                while await stream.receive_some():
                    pass
        await until(lambda: server.connection_count == 3)
        for stream in (working, newest):
            await stream.send_all(framed(b"hello"))
            assert await receive_frame(stream) == b"hello"
        await late.aclose()


async def test_a_handshake_has_a_bound_of_bytes(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    hello = Client().shake_hands()
    monkeypatch.setattr(tls_connection, "HANDSHAKE_BYTES_MAX", len(hello) - 1)
    async with serving(ScriptedDispatcher()) as server:
        stream = await dial_in_the_clear(server)
        await stream.send_all(hello)
        await until(lambda: server.connection_count == 0 and "TLS handshake failed" in caplog.text)
    assert f"it takes more than {len(hello) - 1} bytes" in caplog.text


async def test_a_connection_for_which_there_is_no_memory_is_closed_and_the_next_one_is_served(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    problems = [MemoryError(), ssl.SSLError(1, "failed to allocate BIO")]

    class Context:
        def wrap_bio(self, *arguments: Any) -> ssl.SSLObject:
            if problems:
                raise problems.pop()
            return SERVER_CONTEXT.wrap_bio(*arguments)

    context: Any = Context()
    monkeypatch.setitem(TLS, "PLAINTEXT", Terms(context))
    async with serving(ScriptedDispatcher()) as server:
        while problems:
            await expect_closed(await dial_in_the_clear(server))
        stream = await dial(server)
        await stream.send_all(framed(b"one"))
        assert await receive_frame(stream) == b"one"
        assert (server.connection_count, server.acceptors.counts.total) == (1, 1)


async def test_between_two_steps_of_handshakes_everybody_else_has_a_turn() -> None:
    done: list[object] = []

    class Stepping:
        def shake_hands(self) -> None:
            done.append(self)

    handshakes = Handshakes(HandTime())
    for _ in range(100):
        handshakes.go_on_soon(Stepping())  # type: ignore[arg-type]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(handshakes.run)
        before = 0
        while len(done) < 100:
            await trio.lowlevel.checkpoint()
            # The loop's tasks get their turns in any order.
            assert len(done) <= before + 2
            before = len(done)
        nursery.cancel_scope.cancel()


async def test_a_request_right_behind_the_handshake_is_read_without_news_from_the_socket() -> None:
    """The last flight of TLS 1.3 and the first request arrive in one segment."""
    dispatcher = ScriptedDispatcher()
    async with serving(dispatcher) as server:
        stream, client = await dial_in_the_clear(server), Client()
        last = await client.finish(stream)
        await stream.send_all(last + client.encrypted(framed(b"hello")))
        assert await client.receive(stream, 9) == framed(b"hello")


async def test_records_that_are_larger_than_the_room_wait_in_openssl_until_there_is_some() -> None:
    dispatcher = ScriptedDispatcher()
    bodies = [b"%05d" % number + b"x" * 1000 for number in range(200)]
    async with serving(dispatcher) as server:
        stream = await dial(server)
        await stream.send_all(framed(b"park") + b"".join(map(framed, bodies)))
        await until(lambda: b"park" in dispatcher.pending)
        for _ in range(20):
            await trio.sleep(0)
        assert dispatcher.requests == [b"park"]
        dispatcher.resolve(b"park")
        assert await receive_frame(stream) == b"done park"
        assert [await receive_frame(stream) for _ in bodies] == bodies


class AllThere:
    """A socket whose bytes have all arrived."""

    def __init__(self) -> None:
        self.arrived = self.sent = b""
        self.calls = 0

    def recv_into(self, room: memoryview) -> int:
        self.calls += 1
        count = min(len(room), len(self.arrived))
        if not count:
            raise BlockingIOError
        room[:count], self.arrived = self.arrived[:count], self.arrived[count:]
        return count

    def send(self, data: memoryview, flags: int = 0) -> int:
        self.sent += data
        return len(data)

    def fileno(self) -> int:
        return -1


def secured_pair() -> tuple[AllThere, TlsSocket, Client]:
    below, client = AllThere(), Client()
    served = TlsSocket(below, helpers.SERVER_CONTEXT)  # type: ignore[arg-type]
    while not served.is_secured:
        below.arrived += client.shake_hands()
        served.shake_hands(tls_socket.HANDSHAKE_BYTES_MAX)
        client.incoming.write(below.sent)
        below.sent = b""
    return below, served, client


@pytest.mark.parametrize("size", [1, 1000, 16_000, 30_000])
def test_a_socket_that_gave_all_it_had_is_not_asked_again(size: int) -> None:
    """That would be a system call and three exceptions for each request."""
    below, served, client = secured_pair()
    room = memoryview(bytearray(64 * 1024))
    for _ in range(3):
        client.tls.write(bytes(size))
        below.arrived, below.calls = client.outgoing.read(), 0
        assert served.recv_into(room) == size
        assert not served.has_more
        assert below.calls == 1
    with pytest.raises(BlockingIOError):
        served.recv_into(room)


def test_tiny_records_are_read_a_piece_at_a_time() -> None:
    """A record of one byte takes as long as one of a kilobyte, and a call has room for a hundred thousand of them."""
    below, served, client = secured_pair()
    data = bytes(number % 251 for number in range(20_000))
    for at in range(len(data)):
        client.tls.write(data[at : at + 1])
    below.arrived = client.outgoing.read()
    found = b""
    room = memoryview(bytearray(128 * 1024))
    while below.arrived:
        before = len(below.arrived)
        count = served.recv_into(room)
        found += room[:count]
        assert before - len(below.arrived) <= tls_socket.RECEIVED_AT_ONCE_BYTES
    assert found == data


def test_the_rest_of_a_large_frame_is_read_a_part_at_a_time() -> None:
    """All of it may have arrived, or arrive as quickly as it is read."""
    below, served, client = secured_pair()
    most = tls_socket.DECRYPTED_AT_ONCE_BYTES
    data = bytes(number % 251 for number in range(3 * most + 1))
    for at in range(0, len(data), RECORD):
        client.tls.write(data[at : at + RECORD])
    below.arrived = client.outgoing.read()
    room, found = memoryview(bytearray(len(data))), b""
    while below.arrived or served.has_more:
        count = served.recv_into(room)
        assert count <= most
        found += room[:count]
    assert found == data


def test_messages_of_tls_s_own_without_data_end_the_connection() -> None:
    """A client may update its keys again and again, at a hundred times the cost of data."""
    below, served, _ = secured_pair()

    class Updates:
        def read(self, count: int, room: memoryview) -> int:
            served._incoming.read()
            raise ssl.SSLWantReadError

        def pending(self) -> int:
            return 0

    served._tls = Updates()  # type: ignore[assignment]
    room = memoryview(bytearray(128 * 1024))
    below.arrived = bytes(tls_socket.RECORD_BYTES_MAX)
    with pytest.raises(BlockingIOError):
        served.recv_into(room)
    below.arrived = bytes(4 * tls_socket.RECEIVED_AT_ONCE_BYTES)
    with pytest.raises(ConnectionAbortedError, match="TLS's own"):
        served.recv_into(room)
    assert len(below.arrived) == 3 * tls_socket.RECEIVED_AT_ONCE_BYTES


async def test_bytes_behind_a_parked_request_are_bounded_over_tls() -> None:
    dispatcher = ScriptedDispatcher()
    async with serving(dispatcher, NetworkSettings(socket_receive_buffer_bytes=8192)) as server:
        stream = await dial(server)
        stream.transport_stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)
        await stream.send_all(framed(b"park"))
        await until(lambda: b"park" in dispatcher.pending)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stream.send_all, framed(b"y" * 1000) * 2000)
            served = server._connections[1]
            assert isinstance(served, TlsConnection)
            await until(lambda: not served._watched)
            held = len(served._buffer) + served._tls._incoming.pending + served._tls._tls.pending()
            assert held <= served._buffer.capacity + tls_socket.RECORD_BYTES_MAX
            dispatcher.resolve(b"park")
            assert await receive_frame(stream) == b"done park"
            for _ in range(2000):
                assert await receive_frame(stream) == b"y" * 1000


@pytest.mark.parametrize("is_cold", [False, True])
async def test_slices_are_read_from_the_page_cache_and_encrypted(tmp_path: Path, is_cold: bool) -> None:
    records = os.urandom(3_000_000)
    (tmp_path / "segment").write_bytes(records)

    class Fetched(CountingFile):
        def send_to(self, fileno: int, position: int, length: int) -> int:
            """A worker's read, to the null device."""
            self.cold = False
            return super().send_to(fileno, position, length)

    file = Fetched(tmp_path / "segment", is_cold)
    begin, length = 17, len(records) - 40
    dispatcher = ScriptedDispatcher()

    def fetch(frame: memoryview) -> list[object]:
        head = struct.pack(">i", length + 8 + 100) + b"head"
        return [head, FileSlice(file, 3, 100), FileSlice(file, begin, length), b"tail"]  # type: ignore[arg-type]

    dispatcher.answers[b"fetch"] = fetch  # type: ignore[assignment]
    async with serving(dispatcher) as server:
        stream = await dial(server)
        await stream.send_all(framed(b"fetch") + framed(b"next") + framed(b"fetch"))
        expected = b"head" + records[3:103] + records[begin : begin + length] + b"tail"
        assert await receive_frame(stream) == expected
        assert await receive_frame(stream) == b"next"
        assert await receive_frame(stream) == expected
    assert bool(file.sent) == is_cold
    # A piece that waits for the socket is not read again.
    assert file.read_bytes < 2 * (length + 100 + 2 * COPIED_BYTES_MAX)
    file.close()


async def test_a_slice_that_left_the_page_cache_again_is_read_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "segment").write_bytes(bytes(100_000))

    class NeverThere(CountingFile):
        def read_cold(self, position: int, length: int) -> bytes:
            return os.pread(self._fd, length, position)

    file = NeverThere(tmp_path / "segment", cold=True)
    dispatcher = ScriptedDispatcher()
    dispatcher.answers[b"fetch"] = lambda frame: [struct.pack(">i", 100_000), FileSlice(file, 0, 100_000)]  # type: ignore[arg-type]
    async with serving(dispatcher) as server:
        stream = await dial(server)
        await stream.send_all(framed(b"fetch"))
        assert await receive_frame(stream) == bytes(100_000)
    file.close()


async def test_the_end_is_said_so_that_nobody_takes_a_cut_for_it() -> None:
    dispatcher = ScriptedDispatcher()
    async with serving(dispatcher) as server:
        stream = await dial(server)
        await stream.send_all(framed(b"garbage"))
        # Without close_notify this would be a BrokenResourceError.
        assert await stream.receive_some() == b""


@pytest.mark.parametrize("says_so", [True, False])
async def test_requests_of_a_client_that_has_left_are_still_dispatched_over_tls(says_so: bool) -> None:
    dispatcher = ScriptedDispatcher()
    async with serving(dispatcher) as server:
        stream, client = await dial_in_the_clear(server), Client()
        data = await client.finish(stream) + client.encrypted(framed(b"silent") * 500)
        if says_so:
            with pytest.raises(ssl.SSLWantReadError):
                client.tls.unwrap()
            data += client.outgoing.read()
        await stream.send_all(data)
        await stream.send_eof()
        await until(lambda: len(dispatcher.closed) == 1)
        await stream.aclose()
    assert len(dispatcher.requests) == 500


async def test_a_record_that_was_changed_ends_its_connection() -> None:
    dispatcher = ScriptedDispatcher()
    async with serving(dispatcher) as server:
        stream, client = await dial_in_the_clear(server), Client()
        await stream.send_all(await client.finish(stream) + client.encrypted(framed(b"hello")))
        assert await client.receive(stream, 9) == framed(b"hello")
        changed = bytearray(client.encrypted(framed(b"never")))
        changed[-1] ^= 1
        await stream.send_all(bytes(changed))
        await until(lambda: len(dispatcher.closed) == 1)
    assert dispatcher.requests == [b"hello"]


async def test_a_node_that_stops_does_not_wait_for_handshakes() -> None:
    async with serving(ScriptedDispatcher()) as server:
        stream = await dial_in_the_clear(server)
        await until(lambda: server.connection_count == 1)
        await server.drain(60_000)
        await expect_closed(stream)


def test_a_socket_that_takes_little_gets_all_of_it_in_order() -> None:
    """`send` continues the piece that it has encrypted, whatever it is given."""
    here, there = socket.socketpair()
    here.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    for each in (here, there):
        each.setblocking(False)
    served, client = TlsSocket(here, TLS["PLAINTEXT"].context), Client()
    there.send(client.shake_hands())
    while not served.is_secured:
        served.shake_hands(1000)
        client.incoming.write(there.recv(1 << 20))
        if said := client.shake_hands():
            there.send(said)
    data = os.urandom(300_000)
    sent, received, waits = 0, b"", 0
    while len(received) < len(data):
        try:
            rest = memoryview(data)[sent:]
            sent += served.sendmsg([rest[:5], rest[5:]], []) if len(rest) > 5 else served.finish()
        except BlockingIOError:
            waits += 1
        try:
            client.incoming.write(there.recv(1 << 20))
            while True:
                received += client.tls.read(RECORD)
        except (ssl.SSLWantReadError, BlockingIOError):
            continue
    assert received == data
    assert waits > 3
    for each in (here, there):
        each.close()


@pytest.mark.parametrize("seed", range(8))
def test_random_and_cut_handshakes_end_their_connection_and_nothing_else(seed: int) -> None:
    chance = random.Random(seed)
    ends = [_mangled_handshake(chance) for _ in range(25)]
    assert None in ends
    assert any(ends)


def _mangled_handshake(chance: random.Random) -> str | None:
    """The reason why the listener's side refused it. None if it still waits, or the client has refused."""
    here, there = socket.socketpair()
    with here, there:
        for each in (here, there):
            each.setblocking(False)
        served, client = TlsSocket(here, TLS["PLAINTEXT"].context), Client()
        for _ in range(3):
            with suppress(ssl.SSLError):
                said = bytearray(client.shake_hands() or b"x")
            for _ in range(chance.randrange(3)):
                said[chance.randrange(len(said))] = chance.randrange(256)
            there.send(said[: chance.randint(1, len(said)) if chance.random() < 0.3 else len(said)])
            try:
                served.shake_hands(10_000)
            except ConnectionError as error:
                return str(error)
            with suppress(BlockingIOError):
                client.incoming.write(there.recv(1 << 20))
    return None


async def test_handshakes_are_counted_as_authentications() -> None:
    async with serving(ScriptedDispatcher()) as server:
        stream = await dial(server)
        bad = await dial_in_the_clear(server)
        await bad.send_all(framed(b"no TLS at all"))
        gone = await dial_in_the_clear(server)
        await gone.aclose()
        await until(lambda: server.connection_count == 1)
        reading = server.listener_readings()["PLAINTEXT"]
        assert reading.created[0] == 3
        assert reading.authenticated[0] == 1
        assert reading.not_authenticated[0] == 1, "who goes away has not failed"
        await stream.aclose()
        await bad.aclose()
