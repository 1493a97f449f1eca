"""A client that reads slowly: what its full socket delays is sent when there is room, in the poller's own turns."""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from kafkacompat._tests.doubles import HandTime, HandWorkers
from kafkacompat.net import connection as module
from kafkacompat.net._tests.helpers import (
    TLS,
    ScriptedDispatcher,
    Stream,
    Terms,
    dial,
    expect_closed,
    framed,
    receive_exactly,
    receive_frame,
    serving,
    socket_of,
    until,
)
from kafkacompat.net._tests.test_connection import IN_THE_CLEAR, CountingFile
from kafkacompat.net.connection import Connection
from kafkacompat.net.output_queue import (
    COPIED_BYTES_MAX,
    GATHERED_PARTS_MAX,
    JOINED_BYTES_MAX,
    PART_BYTES,
    PROBED_BYTES,
    Flushed,
    OutputQueue,
)
from kafkacompat.net.poller import READ, WRITE
from kafkacompat.net.replies import Replies
from kafkacompat.net.send_buffer import FULL_BYTES, enlarged
from kafkacompat.net.server import Server
from kafkacompat.net.settings import NetworkSettings
from kafkacompat.ports import FileSlice
from kafkacompat.ports.dispatcher import ConnectionInfo, Reply

LARGE = 16 * 1024 * 1024
"""More than the sockets of both ends can hold."""


@pytest.fixture(autouse=True, params=["in the clear", "over TLS"])
def transport(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "over TLS":
        monkeypatch.setitem(TLS, "PLAINTEXT", Terms())


def large_replies(size: int = LARGE) -> tuple[ScriptedDispatcher, bytes]:
    dispatcher = ScriptedDispatcher()
    reply = framed(os.urandom(size))
    dispatcher.answers[b"much"] = lambda frame: [reply]
    return dispatcher, reply


async def fill(server: Server, stream: Stream, request: bytes = b"much") -> Connection:
    """Request more than the sockets hold. Returns the server's end when it waits for room."""
    port = socket_of(stream).getsockname()[1]
    await stream.send_all(framed(request))
    found: list[Connection] = []

    def waits() -> bool:
        found[:] = [each for each in server._connections.values() if each.info.client_port == port]
        return bool(found) and bool(found[0]._watched & WRITE)

    await until(waits)
    return found[0]


async def test_a_slow_reader_gets_everything_in_order_and_is_read_meanwhile() -> None:
    dispatcher, reply = large_replies()
    async with serving(dispatcher) as server:
        stream = await dial(server)
        served = await fill(server, stream)
        assert served._watched == READ | WRITE
        held_bytes = served.unsent_bytes
        await stream.send_all(framed(b"next"))
        assert await receive_exactly(stream, len(reply)) == reply
        assert held_bytes > len(reply) // 2
        assert await receive_frame(stream) == b"next"
        await until(lambda: served._watched == READ)
        assert served.unsent_bytes == 0


def send_buffer_bytes(served: Connection) -> int:
    with socket.socket(fileno=os.dup(served._fd)) as same:
        return same.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)


def set_and_told(size: int) -> int:
    """What the system tells of a send buffer that is set to this size. It has its own bound, and Linux tells twice as much."""
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, size)
        return other.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)


async def test_a_socket_that_was_full_once_has_a_larger_send_buffer() -> None:
    dispatcher, reply = large_replies()
    async with serving(dispatcher) as server:
        stream = await dial(server)
        served = await fill(server, stream)
        assert send_buffer_bytes(served) == set_and_told(FULL_BYTES)
        assert await receive_exactly(stream, len(reply)) == reply


async def test_a_send_buffer_whose_size_is_set_stays_as_it_is() -> None:
    dispatcher, reply = large_replies()
    async with serving(dispatcher, NetworkSettings(socket_send_buffer_grows=False)) as server:
        stream = await dial(server)
        served = await fill(server, stream)
        assert send_buffer_bytes(served) == set_and_told(server.settings.socket_send_buffer_bytes)
        assert await receive_exactly(stream, len(reply)) == reply


def test_a_system_that_refuses_a_larger_send_buffer_keeps_the_smaller() -> None:
    class Refusing(Calls):
        def setsockopt(self, level: int, option: int, value: int) -> None:
            raise OSError(errno.ENOBUFS, "No buffer space available")

    assert not enlarged(Refusing(b"", 0))


async def test_a_client_of_small_replies_keeps_its_send_buffer() -> None:
    async with serving(ScriptedDispatcher()) as server:
        stream = await dial(server)
        for _ in range(20):
            await stream.send_all(framed(bytes(10_000)))
            await receive_frame(stream)
        (served,) = server._connections.values()
        assert send_buffer_bytes(served) == set_and_told(server.settings.socket_send_buffer_bytes)


async def test_a_full_socket_costs_the_loop_nothing_while_it_stays_full() -> None:
    dispatcher, _ = large_replies()
    async with serving(dispatcher) as server:
        stream = await dial(server)
        served = await fill(server, stream)
        await until(lambda: not server._poller._set.ready())
        held_bytes = served.unsent_bytes
        for _ in range(20):
            await trio.sleep(0)
            assert not server._poller._set.ready()
        assert served.unsent_bytes == held_bytes


async def test_a_client_that_leaves_while_its_socket_is_full_is_noticed() -> None:
    dispatcher, _ = large_replies()
    async with serving(dispatcher) as server:
        stream = await dial(server)
        await fill(server, stream)
        socket_of(stream).setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        await stream.aclose()
        await until(lambda: len(dispatcher.closed) == 1)
        assert server.connection_count == 0
        assert not server._poller._readers


async def test_a_reset_is_noticed_when_only_room_is_waited_for() -> None:
    """A draining connection does not read any more, but its client's reset must still end it."""
    dispatcher, _ = large_replies()
    async with serving(dispatcher) as server:
        stream = await dial(server)
        served = await fill(server, stream)
        served.drain()
        assert served._watched == WRITE
        socket_of(stream).setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        await stream.aclose()
        await until(lambda: served.closed)


async def test_a_connection_closed_while_it_waits_is_forgotten() -> None:
    dispatcher, _ = large_replies()
    async with serving(dispatcher) as server:
        stream, other = await dial(server), await dial(server)
        served = await fill(server, stream)
        served.close()
        served.writable()
        served.readable()
        assert served._fd not in server._poller._readers
        await other.send_all(framed(b"hello"))
        assert await receive_frame(other) == b"hello"
    assert dispatcher.closed[0] == served.info


async def test_drain_sends_what_a_full_socket_holds_back() -> None:
    dispatcher, reply = large_replies()
    async with serving(dispatcher) as server:
        stream = await dial(server)
        await fill(server, stream)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(server.drain, 15_000)
            assert await receive_exactly(stream, len(reply)) == reply
            await expect_closed(stream)


async def test_drain_does_not_wait_longer_for_a_client_that_does_not_read() -> None:
    dispatcher, _ = large_replies()
    async with serving(dispatcher) as server:
        stream = await dial(server)
        served = await fill(server, stream)
        await server.drain(10)
        assert served.closed
        assert len(dispatcher.closed) == 1


async def test_a_client_that_reads_nothing_for_too_long_is_closed() -> None:
    """As in Kafka, an unsent reply does not keep its connection open."""
    dispatcher, _ = large_replies()
    clock = HandTime()
    async with serving(dispatcher, NetworkSettings(connections_max_idle_ms=20), clock=clock) as server:
        stream = await dial(server)
        served = await fill(server, stream)
        clock.ms += 20
        await until(lambda: served.closed)


async def test_many_full_sockets_each_get_their_own() -> None:
    number = 30
    dispatcher, reply = large_replies(4 * 1024 * 1024)
    async with serving(dispatcher) as server:
        streams = [await dial(server) for _ in range(number)]
        served = [await fill(server, stream) for stream in streams]
        other = await dial(server)
        await other.send_all(framed(b"hello"))
        assert await receive_frame(other) == b"hello"
        whole: list[int] = []

        async def read(which: int) -> None:
            assert await receive_exactly(streams[which], len(reply)) == reply
            whole.append(which)

        async with trio.open_nursery() as nursery:
            for which in range(number):
                nursery.start_soon(read, which)
        assert len(whole) == number
        await until(lambda: all(each._watched == READ for each in served))


def test_one_turn_sends_no_more_than_its_bound() -> None:
    """A client that reads as fast as the broker sends leaves turns for the others."""

    class Narrow:
        sent = b""

        def send(self, data: bytes, flags: int = 0) -> int:
            self.sent += bytes(data[:10])
            return min(10, len(data))

        def sendmsg(self, buffers: list[bytes], ancillary: list[object], flags: int) -> int:
            return self.send(b"".join(buffers))

    sock = Narrow()
    output = OutputQueue(sock)  # type: ignore[arg-type]
    reply = bytes(range(95))
    output.add([reply])
    assert output.flush(25) is Flushed.TURN_OVER
    assert sock.sent == reply[:30]
    assert output.flush(1000) is Flushed.EMPTY
    assert sock.sent == reply


def test_one_turn_sends_a_bounded_number_of_small_parts(tmp_path: Path) -> None:
    """An answer to a fetch has a slice of each of thousands of partitions."""

    class Whole:
        sent = b""

        def sendmsg(self, buffers: list[bytes], ancillary: list[object], flags: int) -> int:
            data = b"".join(buffers)
            self.sent += data
            return len(data)

    path = tmp_path / "log"
    path.write_bytes(b"0123456789")
    sock, file = Whole(), CountingFile(path)
    output = OutputQueue(sock)  # type: ignore[arg-type]
    for _ in range(1_000):
        output.add([b"head", FileSlice(file, 3, 2)])
    budget_bytes, flushes = 20 * PART_BYTES, 0
    while output.flush(budget_bytes) is Flushed.TURN_OVER:
        flushes += 1
        assert file.read_bytes <= 2 * GATHERED_PARTS_MAX
        file.read_bytes = 0
    assert flushes > 10
    assert sock.sent == b"head34" * 1_000


@IN_THE_CLEAR
async def test_a_slice_is_looked_for_in_the_cache_again_when_its_socket_was_full_for_long(
    tmp_path: Path,
) -> None:
    records = os.urandom(LARGE)
    path = tmp_path / "segment"
    path.write_bytes(records)
    file = CountingFile(path)
    dispatcher = ScriptedDispatcher()
    dispatcher.answers[b"much"] = lambda frame: [struct.pack(">i", LARGE), FileSlice(file, 0, LARGE)]  # type: ignore[arg-type]
    clock = HandTime()
    async with serving(dispatcher, clock=clock) as server:
        stream = await dial(server)
        served = await fill(server, stream)
        asked = file.read_bytes
        clock.ms += module.WARMTH_TRUSTED_MS
        file.cold = True
        watched: list[int] = []

        token = trio.lowlevel.current_trio_token()

        def submit(job: Callable[[], object]) -> object:
            def run() -> object:
                # After the turn in which it began, and before its end is told.
                token.run_sync_soon(lambda: watched.append(served._watched))
                return job()

            return submit_before(run)

        submit_before = server.workers.submit
        server.workers.submit = submit  # type: ignore[method-assign, assignment]
        assert await receive_frame(stream) == records
        assert watched
        assert set(watched) == {READ}  # a socket with room must not wake the loop during a wait for the disk
        assert file.read_bytes == asked
    file.close()


@IN_THE_CLEAR
async def test_a_slice_leaves_in_calls_as_large_as_the_socket_takes(tmp_path: Path) -> None:
    """The stretches of the page cache checks do not cut what is sent."""
    length = 4 * PROBED_BYTES
    records = os.urandom(length)
    path = tmp_path / "segment"
    path.write_bytes(records)
    file = CountingFile(path)
    taken: list[int] = []

    def send_to(fileno: int, position: int, wanted: int) -> int:
        taken.append(wanted)
        return os.sendfile(fileno, file._fd, position, wanted)

    file.send_to = send_to  # type: ignore[method-assign]
    dispatcher = ScriptedDispatcher()
    dispatcher.answers[b"much"] = lambda frame: [struct.pack(">i", length), FileSlice(file, 0, length)]  # type: ignore[arg-type]
    async with serving(dispatcher) as server:
        stream = await dial(server)
        await stream.send_all(framed(b"much"))
        assert await receive_frame(stream) == records
        assert taken[0] == length
        assert file.read_bytes == 5
    file.close()


class Calls:
    """A socket that accepts a limited number of bytes per call, and a file whose slices go to it."""

    def __init__(self, data: bytes, taken_at_once: int) -> None:
        self.path = "segment"
        self.data, self.taken_at_once = data, taken_at_once
        self.cold = False
        self.sent = b""
        self.calls: list[str] = []

    def fileno(self) -> int:
        return -1

    def _take(self, call: str, data: bytes) -> int:
        self.calls.append(call)
        self.sent += data[: self.taken_at_once]
        return min(len(data), self.taken_at_once)

    def send(self, data: bytes, flags: int = 0) -> int:
        return self._take("send", bytes(data))

    def sendmsg(self, buffers: list[bytes], ancillary: list[object], flags: int) -> int:
        return self._take("sendmsg", b"".join(buffers))

    def send_to(self, fileno: int, position: int, length: int) -> int:
        if fileno != self.fileno():
            self.calls.append("warm")
            self.cold = False
            return length
        return self._take("sendfile", self.data[position : position + length])

    def try_read(self, position: int, length: int) -> bytes | None:
        return None if self.cold else self.data[position : position + length]


def output_of(calls: Calls, *lengths: int) -> tuple[OutputQueue, bytes]:
    """A reply with slices of these lengths from the file's start, each with bytes before it, and the expected bytes."""
    output = OutputQueue(calls)  # type: ignore[arg-type]
    parts: list[bytes | FileSlice] = []
    for length in lengths:
        parts += [b"before", FileSlice(calls, 0, length)]  # type: ignore[arg-type]
    parts.append(b"end")
    output.add(parts)  # type: ignore[arg-type]
    whole = b"".join(part if isinstance(part, bytes) else calls.data[: part.length] for part in parts)
    return output, whole


def test_small_slices_leave_in_one_call_with_what_is_around_them() -> None:
    calls = Calls(os.urandom(COPIED_BYTES_MAX), 10**6)
    output, whole = output_of(calls, 100, COPIED_BYTES_MAX)
    assert output.flush(10**6) is Flushed.EMPTY
    assert (calls.calls, calls.sent) == (["sendmsg"], whole)


def test_a_slice_too_large_to_be_copied_leaves_by_sendfile() -> None:
    calls = Calls(os.urandom(COPIED_BYTES_MAX + 1), 10**6)
    output, whole = output_of(calls, COPIED_BYTES_MAX + 1)
    assert output.flush(10**6) is Flushed.EMPTY
    assert (calls.calls, calls.sent) == (["send", "sendfile", "send"], whole)


def test_a_small_slice_that_is_partly_sent_goes_on_where_it_stopped() -> None:
    calls = Calls(os.urandom(100), 45)
    output, whole = output_of(calls, 100, 70)
    while output.flush(10**6) is Flushed.FULL:
        assert output.queued_bytes == len(whole) - len(calls.sent)
    assert calls.sent == whole
    assert output.queued_bytes == 0


def test_a_socket_that_takes_less_of_a_slice_is_full_and_not_asked_again() -> None:
    calls = Calls(os.urandom(COPIED_BYTES_MAX + 2), COPIED_BYTES_MAX + 1)
    output, whole = output_of(calls, COPIED_BYTES_MAX + 2)
    assert output.flush(10**6) is Flushed.FULL
    assert calls.calls == ["send", "sendfile"]
    assert output.flush(10**6) is Flushed.EMPTY
    assert (calls.calls, calls.sent) == (["send", "sendfile", "sendfile", "send"], whole)


def test_a_small_slice_that_is_not_in_the_cache_is_waited_for() -> None:
    calls = Calls(os.urandom(100), 10**6)
    calls.cold = True
    output, whole = output_of(calls, 100)
    assert output.flush(10**6) is Flushed.COLD
    assert calls.sent == b"before"
    workers = HandWorkers()
    warmed = output.warm_next(workers)
    assert not warmed.done
    workers.run_all()
    assert warmed.done
    assert output.flush(10**6) is Flushed.EMPTY
    assert (calls.calls, calls.sent) == (["send", "warm", "sendmsg"], whole)


@pytest.mark.parametrize("taken_at_once", [1, 150, 10**6])
def test_a_small_reply_with_slices_is_one_piece_when_it_is_alone(taken_at_once: int) -> None:
    calls = Calls(os.urandom(COPIED_BYTES_MAX), taken_at_once)
    replies, reply = replies_and_reply(calls, 100, COPIED_BYTES_MAX)
    whole = b"".join(part.read() if isinstance(part, FileSlice) else bytes(part) for part in reply)
    assert replies.send_alone(reply)
    assert calls.sent == whole[:taken_at_once]
    assert replies.send() is Flushed.EMPTY
    assert calls.sent == whole
    assert (replies.counts.sent_bytes, replies.counts.responses) == (len(whole), 1)
    assert replies.counts.largest_response == len(whole)


def test_an_answer_of_one_mebibyte_of_records_leaves_in_one_turn() -> None:
    """Clients ask for as much of a partition by default. A turn for the few bytes after the records would cost a tenth more."""
    calls = Calls(bytes(1 << 20), 10**7)
    replies, reply = replies_and_reply(calls, 1 << 20)
    replies.add(reply)
    assert replies.send() is Flushed.EMPTY
    assert calls.calls == ["send", "sendfile", "send"]


@pytest.mark.parametrize("why", ["cold", "too short", "large slice", "large reply", "many parts"])
def test_another_reply_with_slices_goes_through_the_queue(why: str) -> None:
    calls = Calls(os.urandom(COPIED_BYTES_MAX + 1), 10**6)
    calls.cold = why == "cold"
    lengths = {
        "large slice": [COPIED_BYTES_MAX + 1],
        "large reply": [COPIED_BYTES_MAX] * (JOINED_BYTES_MAX // COPIED_BYTES_MAX),
        "many parts": [1] * (GATHERED_PARTS_MAX // 2),
    }
    replies, reply = replies_and_reply(calls, *lengths.get(why, [100]))
    if why == "too short":
        calls.data = b"too short"
    assert not replies.send_alone(reply)
    assert (calls.calls, calls.sent) == ([], b"")
    assert (replies.counts.sent_bytes, replies.counts.responses, replies.unsent_bytes) == (0, 0, 0)


def replies_and_reply(calls: Calls, *lengths: int) -> tuple[Replies, Reply]:
    """The replies of a connection without any, and one with slices of these lengths."""
    calls.read_cold = lambda position, length: calls.data[position : position + length]  # type: ignore[attr-defined]
    reply: Reply = []
    for length in lengths:
        reply += [b"before", FileSlice(calls, 0, length)]  # type: ignore[arg-type]
    info = ConnectionInfo(1, "PLAINTEXT", "127.0.0.1", 1)
    return Replies(OutputQueue(calls), info), [*reply, bytearray(b"end")]  # type: ignore[arg-type]


@pytest.mark.parametrize("room", [0, 1, 9, 10, 11])
def test_a_reply_alone_is_sent_or_queued_whole(room: int) -> None:
    calls = Calls(b"", room)
    output = OutputQueue(calls)  # type: ignore[arg-type]
    if not room:
        calls.send = blocked  # type: ignore[method-assign]
    assert output.send_alone(b"0123456789") == len(calls.sent)
    assert output.queued_bytes == 10 - len(calls.sent)
    calls = Calls(b"", 4)
    output._socket = calls  # type: ignore[assignment]
    sent_before = 10 - output.queued_bytes
    assert output.flush(10**6) is Flushed.EMPTY
    assert calls.sent == b"0123456789"[sent_before:]
    assert output.queued_bytes == 0


def blocked(data: bytes, flags: int = 0) -> int:
    raise BlockingIOError


async def test_a_client_that_is_gone_when_its_reply_is_sent_ends_only_its_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The reset is met by the call that sends the only reply."""

    def gone(self: OutputQueue, part: bytes) -> int:
        if b"hello" in bytes(part):
            raise ConnectionResetError("gone")
        return send_alone(self, part)

    send_alone = OutputQueue.send_alone
    monkeypatch.setattr(OutputQueue, "send_alone", gone)
    dispatcher = ScriptedDispatcher()
    async with serving(dispatcher) as server:
        stream, other = await dial(server), await dial(server)
        await stream.send_all(framed(b"hello"))
        await expect_closed(stream)
        assert len(dispatcher.closed) == 1
        await other.send_all(framed(b"other"))
        assert await receive_frame(other) == b"other"


async def test_an_error_that_is_not_the_client_s_is_told_when_a_reply_is_alone(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As for a reply in the queue."""

    def short_of_buffers(self: OutputQueue, part: bytes) -> None:
        raise OSError(errno.ENOBUFS, "No buffer space available")

    monkeypatch.setattr(OutputQueue, "send_alone", short_of_buffers)
    async with serving(ScriptedDispatcher()) as server:
        stream = await dial(server)
        await stream.send_all(framed(b"hello"))
        await expect_closed(stream)
    told = [each.getMessage() for each in caplog.records if each.levelname == "ERROR"]
    assert len(told) == 1
    assert "a reply cannot be sent" in told[0]
