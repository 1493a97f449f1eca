"""The work done for one client, or for many at once, before the loop and the others get their turn. Time is the
declared duration of each step: a fake clock that only the steps advance."""

from __future__ import annotations

import heapq
import socket
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
import trio

from kafkacompat.net import acceptors, connection, poller, runtime, server
from kafkacompat.net._tests.helpers import (
    DEADLINE_S,
    LOOPBACK,
    ScriptedDispatcher,
    dial,
    framed,
    receive_frame,
    serving,
    until,
)
from kafkacompat.net.replies import REPLY_BYTES_MAX
from kafkacompat.net.runtime import SystemClock, Timer, TrioTimers
from kafkacompat.net.server import Server
from kafkacompat.ports.dispatcher import ConnectionInfo

CLIENTS = 200
STEP_S = 0.0004
"""The duration of a request, a close, or whatever a test counts."""


class Steps:
    """The clock, and the number of steps between two turns of the loop's other tasks."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.done = 0
        self.most = 0
        self.turns = 0

    def step(self) -> None:
        self.now_s += STEP_S
        self.done += 1

    async def count(self) -> None:
        """A task of the loop like any other."""
        while True:
            before = self.done
            await trio.lowlevel.checkpoint()
            self.most = max(self.most, self.done - before)
            self.turns += 1

    async def more_turns(self) -> None:
        last = self.turns
        while self.turns < last + 2:
            await trio.lowlevel.checkpoint()


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Steps:
    counted = Steps()
    for module in (acceptors, connection, poller, runtime, server):
        monkeypatch.setattr(module, "monotonic", lambda: counted.now_s)
    return counted


@asynccontextmanager
async def counting(steps: Steps) -> AsyncIterator[None]:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(steps.count)
        await steps.more_turns()
        yield
        await steps.more_turns()  # the last steps count too
        nursery.cancel_scope.cancel()


SHARE = int(poller.BUSY_S / STEP_S) + 1
"""Steps until one share of the loop's time is used."""
BETWEEN_TURNS_MAX = 2 * 2 * (SHARE + int(connection.TURN_S / STEP_S) + 1)
"""The poller's share and the turn-taker's, each with the turn in which it ends. trio runs its tasks in random order,
so each may get two turns between two of another task."""


class Stepping(ScriptedDispatcher):
    def __init__(self, steps: Steps) -> None:
        super().__init__()
        self.steps = steps
        self.then: Callable[[], None] = lambda: None

    def dispatch(self, connection: ConnectionInfo, frame: memoryview) -> object:  # type: ignore[override]
        self.steps.step()
        answer = super().dispatch(connection, frame)
        self.then()
        return answer

    def connection_closed(self, connection: ConnectionInfo) -> None:
        self.steps.step()
        super().connection_closed(connection)


def client(served: Server) -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", served.listeners[0].port), timeout=DEADLINE_S)
    sock.setblocking(False)
    return sock


async def many(served: Server, count: int = CLIENTS) -> list[socket.socket]:
    clients = []
    for number in range(count):
        clients.append(client(served))
        if number % 20 == 19:
            await until(lambda: served.connection_count == len(clients))
    await until(lambda: served.connection_count == count)
    return clients


async def test_a_client_with_thousands_of_requests_does_not_hold_up_one_with_a_single_request(
    steps: Steps,
) -> None:
    dispatcher = Stepping(steps)
    async with serving(dispatcher) as served:
        greedy, modest = await many(served, 2)
        for sock in (greedy, modest):
            sock.send(framed(b"first"))
        await until(lambda: len(dispatcher.requests) == 2)
        dispatcher.requests.clear()
        count = 3000

        def send_one() -> None:
            if len(dispatcher.requests) == 100:
                modest.send(framed(b"one"))

        dispatcher.then = send_one
        stream = trio.SocketStream(trio.socket.from_stdlib_socket(greedy))
        async with counting(steps), trio.open_nursery() as nursery:
            nursery.start_soon(stream.send_all, framed(b"many") * count)
            assert await receive_frame(stream) == b"first"
            for _ in range(count):
                assert await receive_frame(stream) == b"many"
        before = dispatcher.requests.index(b"one") - 100
        assert before <= BETWEEN_TURNS_MAX
        assert steps.most <= BETWEEN_TURNS_MAX
        modest.close()


async def test_when_all_clients_send_at_once_the_loop_has_its_turns(steps: Steps) -> None:
    dispatcher = Stepping(steps)
    async with serving(dispatcher) as served:
        clients = await many(served)
        async with counting(steps):
            for sock in clients:
                sock.send(framed(b"hello") * 5)
            await until(lambda: len(dispatcher.requests) == 5 * CLIENTS)
        assert steps.most <= BETWEEN_TURNS_MAX
        assert {bytes(sock.recv(1000)) for sock in clients} == {framed(b"hello") * 5}
        for sock in clients:
            sock.close()


async def test_when_all_replies_come_at_once_the_loop_has_its_turns(steps: Steps) -> None:
    """Replies that waited together each give their connection a turn, which does more work."""
    dispatcher = Stepping(steps)
    async with serving(dispatcher) as served:
        clients = await many(served)
        for number, sock in enumerate(clients):
            sock.send(framed(b"later %d" % number))
        await until(lambda: len(dispatcher.pending) == CLIENTS)
        for sock in clients:
            sock.send(framed(b"park %d" % sock.fileno()) + framed(b"behind") * 3)
        await until(lambda: len(dispatcher.pending) == 2 * CLIENTS)
        async with counting(steps):
            for request in list(dispatcher.pending):
                dispatcher.resolve(request)
            await until(lambda: dispatcher.requests.count(b"behind") == 3 * CLIENTS)
        assert steps.most <= BETWEEN_TURNS_MAX
        for sock in clients:
            sock.close()


@pytest.mark.parametrize("kind", ["clients", "drain", "drain's deadline", "idle"])
async def test_when_all_connections_end_at_once_the_loop_has_its_turns(
    steps: Steps, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Clock(SystemClock):
        ahead_ms = 0

        def monotonic_ms(self) -> int:
            return super().monotonic_ms() + Clock.ahead_ms

    dispatcher = Stepping(steps)
    async with serving(dispatcher, clock=Clock()) as served:
        clients = await many(served)
        if kind == "drain's deadline":
            for sock in clients:
                sock.send(framed(b"park %d" % sock.fileno()))
            await until(lambda: len(dispatcher.pending) == CLIENTS)
        async with counting(steps):
            if kind == "clients":
                for sock in clients:
                    sock.close()
            elif kind == "idle":
                Clock.ahead_ms = 3_600_000
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(served._sweep)
                    await until(lambda: not served.connection_count)
                    nursery.cancel_scope.cancel()
            else:
                await served.drain(0)
            await until(lambda: len(dispatcher.closed) == CLIENTS)
        assert steps.most <= BETWEEN_TURNS_MAX
        for sock in clients:
            sock.close()


async def test_when_thousands_connect_at_once_the_loop_has_its_turns(steps: Steps) -> None:
    class Endless:
        """A listening socket that always has another connection, until it is closed."""

        left = 2000

        def accept(self) -> tuple[object, tuple[str, int]]:
            if not self.left:
                raise OSError("closed")
            self.left -= 1
            if self.left % 7 == 0:
                steps.step()
                raise ConnectionAbortedError("gone before it was accepted")
            return self, ("127.0.0.1", 1)

        def fileno(self) -> int:
            return 3 if self.left else -1

    class Listener:
        endpoint = LOOPBACK
        socket = Endless()

    async def always() -> None:
        return

    async with counting(steps):
        await acceptors.accept_forever(Listener(), always, lambda *each: steps.step())  # type: ignore[arg-type]
    assert steps.done >= 1900
    assert steps.most <= 2 * SHARE


async def test_when_thousands_of_timers_are_due_at_once_the_loop_has_its_turns(steps: Steps) -> None:
    timers = TrioTimers(SystemClock())
    fired: list[int] = []

    def fire(number: int) -> None:
        steps.step()
        fired.append(number)

    for number in range(1000):
        timers.call_after(-1, lambda number=number: fire(number))  # type: ignore[misc]
    with trio.fail_after(DEADLINE_S):
        async with trio.open_nursery() as nursery, counting(steps):
            await nursery.start(timers.run)
            await until(lambda: len(fired) == 1000)
            nursery.cancel_scope.cancel()
    assert fired == list(range(1000))
    assert steps.most <= 2 * SHARE


async def test_when_thousands_of_timers_were_postponed_the_loop_has_its_turns(
    steps: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each takes its time when its new place is found."""
    timers = TrioTimers(SystemClock())
    for number in range(1000):
        timers.call_at(number, steps.step).postpone(SystemClock().monotonic_ms() + 3_600_000)
    heap_replace = heapq.heapreplace

    def slow(heap: list[Timer], timer: Timer) -> Timer:
        steps.step()
        return heap_replace(heap, timer)

    monkeypatch.setattr(runtime.heapq, "heapreplace", slow)
    with trio.fail_after(DEADLINE_S):
        async with trio.open_nursery() as nursery, counting(steps):
            await nursery.start(timers.run)
            await until(lambda: steps.done == 1000)
            nursery.cancel_scope.cancel()
    assert steps.most <= 2 * SHARE
    assert len(timers) == 1000


async def test_a_timer_that_is_cancelled_while_those_before_it_fire_does_not(steps: Steps) -> None:
    timers = TrioTimers(SystemClock())
    fired: list[int] = []
    last = timers.call_at(4, lambda: fired.append(0))
    for _ in range(20):
        timers.call_at(2, steps.step)
    timers.call_at(3, last.cancel)
    with trio.fail_after(DEADLINE_S):
        async with trio.open_nursery() as nursery:
            await nursery.start(timers.run)
            await until(lambda: steps.done == 20 and not len(timers))
            nursery.cancel_scope.cancel()
    assert fired == []


async def test_a_client_that_never_reads_is_held_back_and_keeps_little(steps: Steps) -> None:
    """Its replies stay within their bound, and TCP holds back what it continues to send."""
    dispatcher = Stepping(steps)
    reply = framed(b"z" * 50_000)
    dispatcher.answers[b"much"] = lambda frame: [reply]
    async with serving(dispatcher) as served:
        (greedy,) = await many(served, 1)
        flood = framed(b"much") * 20_000
        sent = greedy.send(flood)
        kept = served._connections[1]
        await until(lambda: kept.unsent_bytes >= REPLY_BYTES_MAX)
        while sent < len(flood):
            try:
                sent += greedy.send(flood[sent:])
            except BlockingIOError:
                break
            await trio.sleep(0)
        served_before = len(dispatcher.requests)
        other = await dial(served)
        for _ in range(20):
            await other.send_all(framed(b"hello"))
            assert await receive_frame(other) == b"hello"
        assert len(dispatcher.requests) == served_before + 20
        assert kept.unsent_bytes < REPLY_BYTES_MAX + len(reply)
        assert kept._buffer.capacity <= 128 * 1024
        assert struct.unpack(">i", reply[:4]) == (50_000,)
        greedy.close()
