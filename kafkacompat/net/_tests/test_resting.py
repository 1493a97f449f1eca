"""A connection that rests answers a request that comes alone in the same way as in a turn: the same bytes, calls and counts,
however the requests are cut, whatever comes between them, and however it ends."""

from __future__ import annotations

import random
import struct
from typing import Any

import pytest

from kafkacompat.net import connection as module
from kafkacompat.net._tests.helpers import ScriptedDispatcher, framed
from kafkacompat.net.connection import Connection
from kafkacompat.net.poller import READ, WRITE
from kafkacompat.net.receive_buffer import INITIAL_BYTES
from kafkacompat.net.settings import NetworkSettings
from kafkacompat.ports import FileSlice
from kafkacompat.ports.dispatcher import CloseConnection, ConnectionInfo, Reply

Step = tuple[Any, ...]
FRAME_BYTES_MAX = 200_000
OTHER_BYTES_MAX = 3000
WORDS = [b"park", b"later", b"silent", b"mute", b"parts", b"large"] + [b"usual"] * 14
ENDINGS = [b"garbage", b"last", b"bug", b"drain", b"close"]


class Socket:
    def __init__(self) -> None:
        self.inbox = b""
        self.has_end = self.has_failed = self.is_closed = False
        self.sent = b""
        self.room = 1 << 30

    def fileno(self) -> int:
        return 7

    def recv_into(self, buffer: memoryview) -> int:
        if self.has_failed:
            raise ConnectionResetError
        count = min(len(buffer), len(self.inbox))
        if not count and not self.has_end:
            raise BlockingIOError
        buffer[:count], self.inbox = self.inbox[:count], self.inbox[count:]
        return count

    def send(self, data: Any, flags: int = 0) -> int:
        count = min(self.room, len(data))
        if not count:
            raise BlockingIOError
        self.room -= count
        self.sent += bytes(data[:count])
        return count

    def sendmsg(self, buffers: Any, *_: Any) -> int:
        return self.send(b"".join(map(bytes, buffers)))

    def setsockopt(self, *_: Any) -> None: ...

    def close(self) -> None:
        self.is_closed = True


class World:
    """The host of one connection. It gives turns, and tells of events until nothing is left to do."""

    def __init__(self, other_bytes_max: int = OTHER_BYTES_MAX) -> None:
        self.clock: Any = self
        self.workers: Any = None
        self.memory = None
        self.settings = NetworkSettings()
        self.dispatcher = ScriptedDispatcher()
        self.in_line = False
        self.watched = 0
        self.socket = Socket()
        info = ConnectionInfo(1, "PLAINTEXT", "127.0.0.1", 5)
        self.connection = Connection(self.socket, info, self, FRAME_BYTES_MAX, other_bytes_max)
        self.connection.start()
        self.dispatcher.answers |= {
            b"mute": self._mute,
            b"parts": lambda frame: [b"one ", b"other"],
            b"large": lambda frame: [b"x" * 70_000],
            b"last": self._last,
            b"bug": self._bug,
            b"drain": self._drain,
            b"close": self._close,
        }

    def monotonic_ms(self) -> int:
        return 0

    def take_turn_soon(self, connection: Connection) -> None:
        self.in_line = True

    def watch(self, fd: int, connection: Connection, before: int, now: int) -> None:
        self.watched = now

    def closed(self, connection: Connection) -> None: ...

    def _mute(self, frame: memoryview) -> Reply:
        self.connection.mute(5)
        return [framed(b"muted")]

    def _last(self, frame: memoryview) -> Reply:
        raise CloseConnection("told to", [b"good-bye"])

    def _bug(self, frame: memoryview) -> Reply:
        raise ZeroDivisionError

    def _drain(self, frame: memoryview) -> Reply:
        self.connection.drain()
        return [b"drained"]

    def _close(self, frame: memoryview) -> Reply:
        self.connection.close()
        return [b"never"]

    def take(self, step: Step) -> None:
        name, *arguments = step
        if name == "bytes":
            self.socket.inbox += arguments[0]
        elif name == "room":
            self.socket.room = arguments[0]
        elif name == "end":
            self.socket.has_end = True
        elif name == "failure":
            self.socket.has_failed = True
        elif name == "resolve":
            pending = list(self.dispatcher.pending)
            if pending:
                self.dispatcher.resolve(pending[arguments[0] % len(pending)])
        else:
            getattr(self.connection, name)(*arguments)
        self._settle()

    def _settle(self) -> None:
        for _ in range(100):
            sock = self.socket
            if self.in_line:
                self.in_line = False
                self.connection.turn()
            elif self.watched & READ and (sock.inbox or sock.has_end or sock.has_failed):
                self.connection.readable()
            elif self.watched & WRITE and sock.room:
                self.connection.writable()
            else:
                return

    def seen(self) -> Any:
        made, counts = self.connection, self.connection._replies.counts
        return (
            self.socket.sent,
            self.socket.is_closed,
            self.watched,
            self.dispatcher.requests,
            len(self.dispatcher.closed),
            (made.requests_in_flight, made.unsent_bytes),
            [getattr(counts, name) for name in ("received_bytes", "sent_bytes", "requests", "responses")],
        )


def some_bytes(draw: random.Random) -> bytes:
    data = b""
    for number in range(draw.choice([1, 1, 1, 2, 3, 20])):
        word = draw.choice(ENDINGS if draw.random() < 0.01 else WORDS)
        body = b"%s %d %d " % (word, number, draw.randrange(1 << 30)) + b"." * draw.choice([0, 7, 1000, 2900])
        if draw.random() < 0.1:
            body = b"\0\0" + b"." * draw.choice([4000, 8186, 30_000, 140_000])
        size = draw.choice([-1, 3001, 1 << 30]) if draw.random() < 0.005 else len(body)
        data += struct.pack(">i", size) + body
    return data


def some_steps(draw: random.Random) -> list[Step]:
    steps: list[Step] = []
    for _ in range(draw.randint(3, 30)):
        kind = draw.random()
        if kind < 0.6:
            data = some_bytes(draw)
            while data:
                cut = len(data) if draw.random() < 0.6 else draw.choice([1, 4, 512, 8192])
                steps.append(("bytes", data[:cut]))
                data = data[cut:]
        elif kind < 0.8:
            steps.append(("resolve", draw.randrange(6)))
        elif kind < 0.9:
            steps.append(("room", draw.choice([0, 1, 10, 66_000, 1 << 30, 1 << 30])))
        else:
            steps.append(
                draw.choice(
                    [("unmute",)] * 3
                    + [("shrink",)] * 2
                    + [("mute", 9), ("limit_frames", FRAME_BYTES_MAX, 50), ("drain",), ("end",), ("failure",)]
                )
            )
    return [*steps, ("room", 1 << 30), ("unmute",), *[("resolve", 0)] * 8]


def test_resting_changes_nothing_but_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "monotonic", lambda: 0.0)  # a turn that ends by its time would show
    alone = 0
    answer_alone = Connection._answer_alone

    def counted(connection: Connection) -> bool:
        nonlocal alone
        alone += 1
        return answer_alone(connection)

    for seed in range(400):
        steps = some_steps(random.Random(seed))
        resting, never = World(), World()
        for number, step in enumerate(steps):
            monkeypatch.setattr(Connection, "_answer_alone", counted)
            resting.take(step)
            monkeypatch.setattr(Connection, "_answer_alone", lambda connection: False)
            never.take(step)
            assert resting.seen() == never.seen(), f"seed {seed}, step {number}"
    assert alone > 300


@pytest.mark.parametrize("rests", [True, False])
def test_without_memory_to_send_a_reply_the_connection_is_closed(
    rests: bool, caplog: pytest.LogCaptureFixture
) -> None:
    class Lacking:
        def try_read(self, position: int, length: int) -> bytes:
            raise MemoryError

    world = World()
    file: Any = Lacking()
    world.dispatcher.answers[b"lacks"] = lambda frame: [b"head", FileSlice(file, 0, 100)]
    world.take(("bytes", framed(b"usual 1")))
    world.connection._rests = rests
    world.take(("bytes", framed(b"lacks")))
    assert world.socket.is_closed
    assert "MemoryError" in caplog.text


def test_a_connection_rests_again_after_a_reply_that_was_waited_for() -> None:
    world = World()
    world.take(("bytes", framed(b"usual 1")))
    assert world.connection._rests
    for _ in range(2):
        world.take(("bytes", framed(b"park 1")))
        assert not world.connection._rests
        world.take(("resolve", 0))
        assert world.connection._rests
    world.take(("bytes", framed(b"park 1")))
    world.take(("bytes", framed(b"usual 2") + framed(b"usual 3")[:5]))
    world.take(("resolve", 0))
    assert not world.connection._rests
    world.take(("bytes", framed(b"usual 3")[5:]))
    assert world.connection._rests
    assert world.dispatcher.requests[-2:] == [b"usual 2", b"usual 3"]


def test_a_request_that_comes_in_pieces_is_answered_without_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(FRAME_BYTES_MAX)
    request = framed(b"usual " + b"." * 150_000)
    for _ in range(2):  # the buffer has grown then
        world.take(("bytes", request))
    assert world.connection._rests
    monkeypatch.setattr(Connection, "turn", None)
    for cut in (5, 100_000, 140_000, len(request)):
        world.take(("bytes", request[:cut]))
        assert world.connection._rests
        world.take(("bytes", request[cut:]))
        assert world.connection._rests
    assert world.dispatcher.requests == [request[4:]] * 6


def test_a_begun_request_that_is_too_large_by_a_new_bound_ends_the_connection() -> None:
    world = World()
    world.take(("bytes", framed(b"usual 1")))
    request = framed(b"usual " + b"." * 2000)
    world.take(("bytes", request[:1000]))
    world.take(("limit_frames", FRAME_BYTES_MAX, 50))
    world.take(("bytes", request[1000:]))
    assert world.socket.is_closed
    assert world.dispatcher.requests == [b"usual 1"]


def test_a_connection_does_not_rest_while_another_reply_is_waited_for() -> None:
    world = World()
    world.take(("bytes", framed(b"later 1")))
    world.take(("bytes", framed(b"park 2")))
    world.take(("resolve", 1))
    assert not world.connection._rests
    world.take(("resolve", 0))
    world.take(("bytes", framed(b"usual 3")))
    assert world.connection._rests


def test_a_connection_that_is_muted_does_not_rest_after_its_reply() -> None:
    world = World()
    world.take(("bytes", framed(b"park 1")))
    world.take(("mute", 9))
    world.take(("resolve", 0))
    assert not world.connection._rests
    world.take(("bytes", framed(b"usual 2")))
    assert world.dispatcher.requests == [b"park 1"]
    world.take(("unmute",))
    assert world.dispatcher.requests == [b"park 1", b"usual 2"]


def test_a_request_that_fills_the_buffer_ends_reading_while_it_waits() -> None:
    world = World(FRAME_BYTES_MAX)
    body = b"park " + b"." * (INITIAL_BYTES - 9)
    world.take(("bytes", framed(b"usual 1")))
    world.take(("bytes", framed(body)))
    assert world.dispatcher.requests == [b"usual 1", body]
    assert not world.watched & READ
    world.take(("resolve", 0))
    assert world.watched == READ
