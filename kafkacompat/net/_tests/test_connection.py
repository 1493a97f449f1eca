"""Order, bounds and endings of a connection, over real loopback sockets."""

from __future__ import annotations

import os
import struct
from contextlib import suppress
from pathlib import Path

import pytest
import trio

from kafkacompat.deferred import Deferred
from kafkacompat.net import output_queue
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
    until,
)
from kafkacompat.net.receive_buffer import INITIAL_BYTES, ReceiveBuffer
from kafkacompat.net.replies import REPLIES_WAITING_MAX, REPLY_BYTES_MAX, SENT_AT_ONCE_BYTES
from kafkacompat.net.server import Server
from kafkacompat.net.settings import NetworkSettings
from kafkacompat.ports import FileSlice
from kafkacompat.ports.dispatcher import CloseConnection, ReplyPart


@pytest.fixture(autouse=True, params=["in the clear", "over TLS"])
def transport(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "over TLS":
        monkeypatch.setitem(TLS, "PLAINTEXT", Terms())


IN_THE_CLEAR = pytest.mark.parametrize("transport", ["in the clear"], indirect=True)
"""For tests that use the plain socket or count its calls. test_tls has similar tests."""


async def test_requests_are_answered_in_order_however_they_are_torn() -> None:
    """Frames cut at any position, and many in one segment."""
    dispatcher = ScriptedDispatcher()
    bodies = [b"request %d " % number + b"x" * (number * 37) for number in range(60)]
    stream_bytes = b"".join(map(framed, bodies))
    async with serving(dispatcher) as server:
        stream = await dial(server)
        for cut in range(0, len(stream_bytes), 1013):
            await stream.send_all(stream_bytes[cut : cut + 1013])
            await trio.sleep(0)
        assert [await receive_frame(stream) for _ in bodies] == bodies
    assert dispatcher.requests == bodies


async def test_a_frame_that_begins_after_full_buffers_is_waited_for() -> None:
    """The buffer is filled to its end by whole requests, and is empty when half of the next one comes."""
    dispatcher = ScriptedDispatcher()
    body = b"x" * 1020
    count = INITIAL_BYTES // len(framed(body))
    assert count * len(framed(body)) == INITIAL_BYTES
    async with serving(dispatcher) as server:
        stream = await dial(server)
        for _ in range(3):
            await stream.send_all(framed(b"alone"))
            assert await receive_frame(stream) == b"alone"
            await stream.send_all(framed(body) * count + framed(body)[:500])
            for _ in range(count):
                assert await receive_frame(stream) == body
            await stream.send_all(framed(body)[500:])
            assert await receive_frame(stream) == body


async def test_a_frame_larger_than_the_buffer_arrives_whole() -> None:
    dispatcher = ScriptedDispatcher()
    large = os.urandom(3 * 1024 * 1024)
    async with serving(dispatcher) as server:
        stream = await dial(server)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stream.send_all, framed(b"small") + framed(large) + framed(b"after"))
            assert await receive_frame(stream) == b"small"
            assert await receive_frame(stream) == large
            assert await receive_frame(stream) == b"after"


async def test_a_blocking_request_holds_later_ones_back() -> None:
    """As in Kafka, one parked request blocks everything pipelined behind it."""
    dispatcher = ScriptedDispatcher()
    async with serving(dispatcher) as server:
        stream = await dial(server)
        await stream.send_all(framed(b"one") + framed(b"park") + framed(b"two") + framed(b"three"))
        assert await receive_frame(stream) == b"one"
        await until(lambda: b"park" in dispatcher.pending)
        assert dispatcher.requests == [b"one", b"park"]
        dispatcher.resolve(b"park")
        assert await receive_frame(stream) == b"done park"
        assert await receive_frame(stream) == b"two"
        assert await receive_frame(stream) == b"three"


async def test_a_waiting_produce_holds_back_replies_but_not_requests() -> None:
    dispatcher = ScriptedDispatcher()
    async with serving(dispatcher) as server:
        stream = await dial(server)
        await stream.send_all(b"".join(map(framed, [b"later 1", b"later 2", b"two", b"later 3", b"last"])))
        await until(lambda: len(dispatcher.requests) == 5)
        dispatcher.resolve(b"later 2")
        dispatcher.resolve(b"later 3")
        served = server._connections[1]
        await until(lambda: not served.in_line)
        assert served.requests_in_flight == 5
        dispatcher.resolve(b"later 1")
        replies = [await receive_frame(stream) for _ in range(5)]
    assert replies == [b"done later 1", b"done later 2", b"two", b"done later 3", b"last"]


async def test_a_request_without_reply_leaves_no_gap() -> None:
    dispatcher = ScriptedDispatcher()
    async with serving(dispatcher) as server:
        stream = await dial(server)
        await stream.send_all(b"".join(map(framed, [b"a", b"silent", b"silent", b"b"])))
        assert [await receive_frame(stream), await receive_frame(stream)] == [b"a", b"b"]


async def test_requests_of_a_client_that_has_left_are_still_dispatched() -> None:
    dispatcher = ScriptedDispatcher()
    async with serving(dispatcher) as server:
        stream = await dial(server)
        await stream.send_all(framed(b"silent") * 500)
        await stream.aclose()
        await until(lambda: len(dispatcher.closed) == 1)
    assert len(dispatcher.requests) == 500


@pytest.mark.parametrize("is_late", [False, True])
async def test_the_last_reply_leaves_behind_the_others_before_the_connection_is_closed(is_late: bool) -> None:
    dispatcher = ScriptedDispatcher()
    end = CloseConnection("refused", [framed(b"good-bye")])

    def at_once(frame: memoryview) -> None:
        raise end

    if not is_late:
        dispatcher.answers[b"bad"] = at_once
    else:
        dispatcher.answers[b"bad"] = dispatcher.answers[b"park"]
    async with serving(dispatcher) as server:
        stream = await dial(server)
        await stream.send_all(framed(b"later") + framed(b"bad") + framed(b"behind"))
        await until(lambda: b"bad" in dispatcher.requests)
        dispatcher.resolve(b"later")
        assert await receive_frame(stream) == b"done later"
        if is_late:
            dispatcher.pending.pop(b"bad").fail(end)
        assert await receive_frame(stream) == b"good-bye"
        await expect_closed(stream)
    assert dispatcher.requests == [b"later", b"bad"]


@pytest.mark.parametrize("size", [-1, -(2**31), 1025, 2**31 - 1])
async def test_a_size_out_of_bounds_closes_after_earlier_replies(size: int) -> None:
    """Without an answer, and without allocating the announced size."""
    dispatcher = ScriptedDispatcher()
    async with serving(dispatcher, NetworkSettings(socket_request_max_bytes=1024)) as server:
        stream = await dial(server)
        await stream.send_all(framed(b"later") + struct.pack(">i", size))
        await until(lambda: b"later" in dispatcher.pending)
        dispatcher.resolve(b"later")
        assert await receive_frame(stream) == b"done later"
        await expect_closed(stream)
        await until(lambda: len(dispatcher.closed) == 1)


async def test_garbage_closes_its_connection_and_no_other() -> None:
    dispatcher = ScriptedDispatcher()
    async with serving(dispatcher) as server:
        good, bad = await dial(server), await dial(server)
        await bad.send_all(framed(b"garbage") + framed(b"never"))
        await expect_closed(bad)
        await good.send_all(framed(b"hello"))
        assert await receive_frame(good) == b"hello"
    assert b"never" not in dispatcher.requests


async def test_an_error_of_our_own_closes_its_connection_and_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    dispatcher = ScriptedDispatcher()

    def broken(frame: memoryview) -> None:
        raise KeyError("bug")

    dispatcher.answers[b"broken"] = broken
    async with serving(dispatcher) as server:
        bad, good = await dial(server), await dial(server)
        await bad.send_all(framed(b"broken"))
        await expect_closed(bad)
        await good.send_all(framed(b"hello"))
        assert await receive_frame(good) == b"hello"
    assert "KeyError" in caplog.text


@pytest.mark.parametrize("first", [b"", b"hello"], ids=["its first request", "a later one"])
async def test_a_lack_of_memory_closes_its_connection_and_no_other(
    first: bytes, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def lacks(buffer: ReceiveBuffer, capacity: int, keep: int) -> None:
        raise MemoryError

    async with serving(ScriptedDispatcher()) as server:
        large, other = await dial(server), await dial(server)
        if first:
            await large.send_all(framed(first))
            assert await receive_frame(large) == first
        with monkeypatch.context() as patch:
            patch.setattr(ReceiveBuffer, "_replace", lacks)
            with suppress(trio.BrokenResourceError):
                await large.send_all(framed(bytes(100_000)))
            await until(lambda: server.connection_count == 1)
        await other.send_all(framed(b"hello"))
        assert await receive_frame(other) == b"hello"
    assert "MemoryError" in caplog.text


async def test_an_error_in_cleaning_up_leaves_other_connections_alone(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    dispatcher = ScriptedDispatcher()
    async with serving(dispatcher) as server:
        monkeypatch.setattr(dispatcher, "connection_closed", lambda info: {}["bug"])
        leaving, staying = await dial(server), await dial(server)
        await leaving.send_all(framed(b"hello"))
        assert await receive_frame(leaving) == b"hello"
        await leaving.aclose()
        await until(lambda: server.connection_count == 1)
        await staying.send_all(framed(b"hello"))
        assert await receive_frame(staying) == b"hello"
        assert "KeyError" in caplog.text


async def test_a_reply_that_fails_closes_after_those_before_it() -> None:
    """A produce with acks=0 that fails later."""
    dispatcher = ScriptedDispatcher()
    async with serving(dispatcher) as server:
        stream = await dial(server)
        await stream.send_all(framed(b"later 1") + framed(b"later 2") + framed(b"unsent"))
        await until(lambda: len(dispatcher.requests) == 3)
        dispatcher.pending[b"later 2"].fail(CloseConnection("acks=0 failed"))
        dispatcher.resolve(b"later 1")
        assert await receive_frame(stream) == b"done later 1"
        await expect_closed(stream)


async def test_a_client_that_leaves_while_its_request_is_parked_is_noticed() -> None:
    dispatcher = ScriptedDispatcher()
    async with serving(dispatcher) as server:
        stream = await dial(server)
        await stream.send_all(framed(b"park"))
        await until(lambda: b"park" in dispatcher.pending)
        await stream.aclose()
        await until(lambda: len(dispatcher.closed) == 1)
        dispatcher.resolve(b"park")
        await until(lambda: server.connection_count == 0)


@IN_THE_CLEAR
async def test_bytes_behind_a_parked_request_are_bounded() -> None:
    """TCP holds the client back once its buffer and the kernel's are full. Nothing is lost."""
    dispatcher = ScriptedDispatcher()
    settings = NetworkSettings(socket_receive_buffer_bytes=8192)
    bodies = [b"%06d" % number + b"y" * 4000 for number in range(2000)]
    async with serving(dispatcher, settings) as server:
        stream = await dial(server)
        await stream.send_all(framed(b"park"))
        sent = 0
        with trio.move_on_after(0.3):
            for body in bodies:
                await stream.send_all(framed(body))
                sent += 1
        assert sent < len(bodies)
        served = server._connections[1]
        assert served._buffer.capacity == INITIAL_BYTES
        assert dispatcher.requests == [b"park"]
        dispatcher.resolve(b"park")
        assert await receive_frame(stream) == b"done park"
        assert [await receive_frame(stream) for _ in range(sent)] == bodies[:sent]


async def test_a_client_that_does_not_read_stops_being_served() -> None:
    dispatcher = ScriptedDispatcher()
    reply = framed(b"z" * 100_000)
    dispatcher.answers[b"much"] = lambda frame: [reply]
    async with serving(dispatcher) as server:
        stream = await dial(server)
        count = 400
        await stream.send_all(framed(b"much") * count)
        await until(lambda: bool(dispatcher.connections))
        served = server._connections[1]
        await until(lambda: served.unsent_bytes >= REPLY_BYTES_MAX)
        for _ in range(50):
            await trio.sleep(0)
        assert served.unsent_bytes < REPLY_BYTES_MAX + len(reply)
        assert len(dispatcher.requests) < count
        other = await dial(server)
        await other.send_all(framed(b"hello"))
        assert await receive_frame(other) == b"hello"
        for _ in range(count):
            assert await receive_exactly(stream, len(reply)) == reply
    assert len(dispatcher.requests) == count + 1


async def test_replies_in_line_are_bounded() -> None:
    dispatcher = ScriptedDispatcher()
    bodies = [b"later %d" % number for number in range(REPLIES_WAITING_MAX + 10)]
    async with serving(dispatcher) as server:
        stream = await dial(server)
        await stream.send_all(b"".join(map(framed, bodies)))
        await until(lambda: len(dispatcher.requests) == REPLIES_WAITING_MAX)
        for body in bodies:
            await until(lambda body=body: body in dispatcher.pending)  # type: ignore[misc]
            assert len(dispatcher.pending) <= REPLIES_WAITING_MAX
            dispatcher.resolve(body)
            assert await receive_frame(stream) == b"done " + body


class CountingFile:
    """A file that counts what goes through Python and can act as if it were not in the page cache."""

    def __init__(self, path: Path, cold: bool = False) -> None:
        self.path = str(path)
        self._fd = os.open(path, os.O_RDONLY)
        self.cold = cold
        self.read_bytes = 0
        self.sent: list[tuple[int, int, int]] = []

    def try_read(self, position: int, length: int) -> bytes | None:
        if self.cold:
            return None
        self.read_bytes += length
        return os.pread(self._fd, length, position)

    def read_cold(self, position: int, length: int) -> bytes:
        raise AssertionError("record bytes must not pass through Python")

    def send_to(self, fileno: int, position: int, length: int) -> int:
        sent = os.sendfile(fileno, self._fd, position, length)
        self.sent.append((fileno, position, sent))
        return sent

    def close(self) -> None:
        os.close(self._fd)


@IN_THE_CLEAR
@pytest.mark.parametrize("cold", [False, True])
async def test_slices_leave_by_sendfile_and_no_record_byte_passes_through_python(
    tmp_path: Path, cold: bool
) -> None:
    records = os.urandom(3_000_000)
    path = tmp_path / "segment"
    path.write_bytes(records)
    file = CountingFile(path, cold)
    begin, length = 17, len(records) - 40
    dispatcher = ScriptedDispatcher()

    def fetch(frame: memoryview) -> list[object]:
        head = struct.pack(">i", length + 8) + b"head"
        return [head, FileSlice(file, begin, length), memoryview(b"tail"), FileSlice(file, 0, 0)]  # type: ignore[arg-type]

    dispatcher.answers[b"fetch"] = fetch  # type: ignore[assignment]
    async with serving(dispatcher) as server:
        stream = await dial(server)
        await stream.send_all(framed(b"fetch") + framed(b"next") + framed(b"fetch"))
        expected = b"head" + records[begin : begin + length] + b"tail"
        assert await receive_frame(stream) == expected
        assert await receive_frame(stream) == b"next"
        assert await receive_frame(stream) == expected
    file.close()
    stretches = 2 * (length // output_queue.PROBED_BYTES + 1)
    assert file.read_bytes <= 2 * stretches
    assert sum(sent for _, _, sent in file.sent) == 2 * length * (2 if cold else 1)


async def test_a_file_shorter_than_promised_closes_the_connection(tmp_path: Path) -> None:
    path = tmp_path / "segment"
    path.write_bytes(b"short")
    file = CountingFile(path)
    dispatcher = ScriptedDispatcher()
    dispatcher.answers[b"fetch"] = lambda frame: [struct.pack(">i", 100), FileSlice(file, 0, 100)]  # type: ignore[arg-type]
    async with serving(dispatcher) as server:
        stream = await dial(server)
        await stream.send_all(framed(b"fetch"))
        assert await receive_exactly(stream, 9) == struct.pack(">i", 100) + b"short"
        await expect_closed(stream)
    file.close()


async def test_a_busy_connection_lets_others_have_their_turn() -> None:
    dispatcher = ScriptedDispatcher()
    async with serving(dispatcher) as server:
        busy, quiet = await dial(server), await dial(server)
        async with trio.open_nursery() as nursery:

            async def flood() -> None:
                while True:
                    await busy.send_all(framed(b"silent") * 20_000)

            nursery.start_soon(flood)
            await until(lambda: len(dispatcher.requests) > 1000)
            for number in range(20):
                await quiet.send_all(framed(b"%d" % number))
                assert await receive_frame(quiet) == b"%d" % number
            nursery.cancel_scope.cancel()


async def test_a_deferred_that_is_done_already_is_answered_at_once() -> None:
    from kafkacompat.ports.dispatcher import Pending

    dispatcher = ScriptedDispatcher()
    dispatcher.answers[b"ready"] = lambda frame: Pending(Deferred.of([framed(b"now")]), True)
    dispatcher.answers[b"nothing"] = lambda frame: Pending(Deferred.of(None), False)
    async with serving(dispatcher) as server:
        stream = await dial(server)
        await stream.send_all(framed(b"ready") + framed(b"nothing") + framed(b"end"))
        assert [await receive_frame(stream), await receive_frame(stream)] == [b"now", b"end"]


def waking(dispatcher: ScriptedDispatcher, parked: bytes) -> None:
    """`wake` answers the parked request before its own answer."""

    def wake(frame: memoryview) -> list[ReplyPart]:
        dispatcher.resolve(parked)
        return [framed(bytes(frame))]

    dispatcher.answers[b"wake"] = wake


async def parked_and_woken(
    server: Server, dispatcher: ScriptedDispatcher, sent: bytes = framed(b"park")
) -> tuple[Stream, Stream]:
    """A connection that has sent these bytes and waits for `park`, and the one that then sends `wake`."""
    waiting, other = await dial(server), await dial(server)
    await waiting.send_all(sent)
    await until(lambda: b"park" in dispatcher.pending)
    await other.send_all(framed(b"wake"))
    return waiting, other


async def test_requests_that_a_request_wakes_are_answered_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[bytes] = []
    flush, send_alone = output_queue.OutputQueue.flush, output_queue.OutputQueue.send_alone

    def traced(self: output_queue.OutputQueue, budget_bytes: int) -> output_queue.Flushed:
        sent.extend(bytes(part)[4:] for part in self._parts if not isinstance(part, FileSlice))
        return flush(self, budget_bytes)

    def traced_alone(self: output_queue.OutputQueue, part: bytes) -> int:
        sent.append(bytes(part)[4:])
        return send_alone(self, part)

    monkeypatch.setattr(output_queue.OutputQueue, "flush", traced)
    monkeypatch.setattr(output_queue.OutputQueue, "send_alone", traced_alone)
    dispatcher = ScriptedDispatcher()
    waking(dispatcher, b"park")
    async with serving(dispatcher) as server:
        waiting, other = await parked_and_woken(server, dispatcher)
        assert await receive_frame(other) == b"wake"
        assert await receive_frame(waiting) == b"done park"
        assert sent == [b"done park", b"wake"]
        await waiting.send_all(framed(b"next"))
        assert await receive_frame(waiting) == b"next"


async def test_a_reply_given_at_once_waits_for_those_before_it_and_is_followed_by_those_behind() -> None:
    dispatcher = ScriptedDispatcher()
    waking(dispatcher, b"park")
    async with serving(dispatcher) as server:
        waiting, other = await parked_and_woken(
            server, dispatcher, framed(b"later") + framed(b"park") + framed(b"behind")
        )
        assert await receive_frame(other) == b"wake"
        await until(lambda: b"behind" in dispatcher.requests)
        dispatcher.resolve(b"later")
        replies = [await receive_frame(waiting) for _ in range(3)]
        assert replies == [b"done later", b"done park", b"behind"]


async def test_a_reply_that_cannot_be_sent_at_once_harms_only_its_own_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    flush, send_alone = output_queue.OutputQueue.flush, output_queue.OutputQueue.send_alone
    failed: list[output_queue.OutputQueue] = []

    def failing(self: output_queue.OutputQueue, budget_bytes: int) -> output_queue.Flushed:
        if self._parts and b"done park" in bytes(self._parts[0]):  # type: ignore[arg-type]
            failed.append(self)
            raise ConnectionResetError("gone")
        return flush(self, budget_bytes)

    def failing_alone(self: output_queue.OutputQueue, part: bytes) -> int:
        if b"done park" in bytes(part):
            failed.append(self)
            raise ConnectionResetError("gone")
        return send_alone(self, part)

    monkeypatch.setattr(output_queue.OutputQueue, "flush", failing)
    monkeypatch.setattr(output_queue.OutputQueue, "send_alone", failing_alone)
    dispatcher = ScriptedDispatcher()
    waking(dispatcher, b"park")
    async with serving(dispatcher) as server:
        waiting, other = await parked_and_woken(server, dispatcher)
        assert await receive_frame(other) == b"wake"
        await expect_closed(waiting)
        assert len(dispatcher.closed) == 1
        assert len(failed) == 2, "at once, and in the connection's own turn"


async def test_a_long_reply_leaves_in_its_connections_own_turn() -> None:
    dispatcher = ScriptedDispatcher()
    unsent: list[int] = []
    long = framed(bytes(SENT_AT_ONCE_BYTES))

    def wake(frame: memoryview) -> list[ReplyPart]:
        dispatcher.pending.pop(b"park").resolve([long])
        unsent.extend(each.unsent_bytes for each in server._connections.values())
        return [framed(bytes(frame))]

    dispatcher.answers[b"wake"] = wake
    async with serving(dispatcher) as server:
        waiting, other = await parked_and_woken(server, dispatcher)
        assert await receive_frame(waiting) == long[4:]
        assert await receive_frame(other) == b"wake"
        assert unsent == [len(long), 0]


async def test_an_error_of_our_own_in_a_reply_given_at_once_closes_its_connection(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The client must not be left with half of that reply."""
    dispatcher = ScriptedDispatcher()

    def wake(frame: memoryview) -> list[ReplyPart]:
        dispatcher.pending.pop(b"park").resolve([framed(b"half"), None])  # type: ignore[list-item]
        return [framed(bytes(frame))]

    dispatcher.answers[b"wake"] = wake
    async with serving(dispatcher) as server:
        waiting, other = await parked_and_woken(server, dispatcher)
        assert await receive_frame(other) == b"wake"
        await expect_closed(waiting)
    assert "an error of the broker's own" in caplog.text
