"""Waiting in the place of trio's loop: requests need no turn of the loop, and nothing that the loop waits for is kept waiting."""

from __future__ import annotations

import errno
import os
import random
import re
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from time import monotonic

import pytest
import trio

import kafkacompat
from kafkacompat.deferred import Deferred
from kafkacompat.net import poller as module
from kafkacompat.net.loop_wait import LoopWait, descriptor_of_the_loop
from kafkacompat.net.poller import READ, EpollSet, Poller
from kafkacompat.net.runtime import SystemClock, TrioTimers, wait_for
from kafkacompat.net.watchdog import LoopRest
from kafkacompat.net.workers import worker_pools

PATIENCE_S = 20


class Echo:
    """Answers each byte, and then does what the test says."""

    def __init__(self, poller: Poller, then: Callable[[], None] = lambda: None) -> None:
        self.near, self.far = socket.socketpair()
        self.near.setblocking(False)
        self.far.setblocking(False)
        self.then = then
        self.served = 0
        poller.add(self.near.fileno(), self, READ)

    def readable(self) -> None:
        data = self.near.recv(1)
        if data:
            self.served += 1
            self.near.send(data)
            self.then()

    def writable(self) -> None:
        raise AssertionError("not waited for")


class Turns(trio.abc.Instrument):
    """How often the loop has looked for events."""

    def __init__(self) -> None:
        self.count = 0

    def before_io_wait(self, timeout: float) -> None:
        self.count += 1


@asynccontextmanager
async def running(*pollers: Poller) -> AsyncIterator[trio.Nursery]:
    with trio.fail_after(PATIENCE_S):
        async with trio.open_nursery() as nursery:
            for poller in pollers:
                nursery.start_soon(poller.run)
            yield nursery
            nursery.cancel_scope.cancel()
    for poller in pollers:
        poller.close()


def a_poller(wait: LoopWait) -> Poller:
    return Poller(lambda until_s: None, lambda: None, wait=wait)


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await trio.sleep(0.001)


async def until_in_place(wait: LoopWait, poller: Poller) -> None:
    await until(lambda: wait.owner is poller)


@asynccontextmanager
async def one_after_the_other(wait: LoopWait, first: Poller, second: Poller) -> AsyncIterator[None]:
    """Both run. The second one began while the first one waited, and waits in its place."""
    async with running(first) as nursery:
        await until_in_place(wait, first)
        nursery.start_soon(second.run)
        await until_in_place(wait, second)
        yield
    second.close()


def asking(echo: Echo, count: int, pause_s: float = 0.0) -> threading.Thread:
    """A client in a thread, which waits for each answer."""

    def ask() -> None:
        echo.far.settimeout(PATIENCE_S)
        for _ in range(count):
            echo.far.send(b"x")
            assert echo.far.recv(1) == b"x"
            if pause_s:
                threading.Event().wait(pause_s)

    thread = threading.Thread(target=ask)
    thread.start()
    return thread


async def test_requests_are_served_without_turns_of_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BUSY_S", 60.0)  # a busy machine's pauses end no turn of the poller
    wait = LoopWait(LoopRest())
    poller = a_poller(wait)
    echo = Echo(poller)
    async with running(poller):
        await until_in_place(wait, poller)
        done = trio.Event()
        token = trio.lowlevel.current_trio_token()
        turns = Turns()
        trio.lowlevel.add_instrument(turns)

        def ask() -> None:
            asking(echo, 500, 0.0005).join()
            token.run_sync_soon(done.set)

        threading.Thread(target=ask).start()
        await done.wait()
        trio.lowlevel.remove_instrument(turns)
    assert echo.served == 500
    assert turns.count < 50


async def test_a_request_that_takes_long_is_no_reason_for_a_turn_of_the_loop() -> None:
    """A busy machine takes the processor from any request."""
    wait = LoopWait(LoopRest())
    poller = a_poller(wait)
    echo = Echo(poller, then=lambda: time.sleep(2 * module.BUSY_S))
    async with running(poller):
        await until_in_place(wait, poller)
        turns = Turns()
        trio.lowlevel.add_instrument(turns)
        await trio.to_thread.run_sync(asking(echo, 50).join)
        trio.lowlevel.remove_instrument(turns)
    assert echo.served == 50
    assert turns.count < 20


async def test_the_loop_has_its_turn_for_whatever_it_waits_for() -> None:
    """Timers, sockets of tasks, threads, and tasks that wake each other, while requests come."""
    wait = LoopWait(LoopRest())
    poller = a_poller(wait)
    echoes = [Echo(poller) for _ in range(3)]
    chance = random.Random(7)
    done = {"sleeps": 0, "threads": 0, "sockets": 0, "yields": 0, "events": 0}

    async def sleeps() -> None:
        for _ in range(40):
            await trio.sleep(chance.random() * 0.004)
            done["sleeps"] += 1

    async def threads() -> None:
        for _ in range(20):
            await trio.to_thread.run_sync(lambda: None)
            done["threads"] += 1

    async def sockets() -> None:
        near, far = trio.socket.socketpair()
        with near, far:
            for _ in range(40):
                await far.send(b"x")
                assert await near.recv(1) == b"x"
                done["sockets"] += 1

    async def yields() -> None:
        for _ in range(200):
            await trio.lowlevel.checkpoint()
            done["yields"] += 1

    ping, pong = trio.open_memory_channel[None](0)

    async def sends() -> None:
        for _ in range(200):
            await ping.send(None)

    async def receives() -> None:
        for _ in range(200):
            await pong.receive()
            done["events"] += 1

    async with running(poller) as nursery:
        await until_in_place(wait, poller)
        clients = [
            asking(echo, 200, pause_s) for echo, pause_s in zip(echoes, (0, 0.0003, 0.001), strict=True)
        ]
        for task in (sleeps, sleeps, threads, sockets, yields, yields, yields, sends, receives):
            nursery.start_soon(task)
        wanted = {"sleeps": 80, "threads": 20, "sockets": 40, "yields": 600, "events": 200}
        await until(lambda: done == wanted)
        for client in clients:
            await trio.to_thread.run_sync(client.join)
    assert [echo.served for echo in echoes] == [200] * 3


async def test_a_task_that_is_ready_in_the_same_turn_is_not_forgotten() -> None:
    """Tasks that were taken out of the loop's queue together run in any order."""
    wait = LoopWait(LoopRest())
    poller = a_poller(wait)
    steps = [0] * 4

    async def step(which: int) -> None:
        for _ in range(300):
            await trio.lowlevel.checkpoint()
            steps[which] += 1

    async with running(poller) as nursery:
        await until_in_place(wait, poller)
        for which in range(4):
            nursery.start_soon(step, which)
        await until(lambda: steps == [300] * 4)


async def test_a_task_that_a_turn_wakes_goes_on() -> None:
    wait = LoopWait(LoopRest())
    poller = a_poller(wait)
    woken = trio.Event()
    echo = Echo(poller, then=woken.set)
    async with running(poller):
        await until_in_place(wait, poller)
        client = asking(echo, 1)
        await woken.wait()
        client.join()


async def test_a_timer_that_a_turn_sets_is_not_overslept() -> None:
    """It is earlier than the deadline that was there before."""
    timers = TrioTimers(SystemClock())
    wait = LoopWait(LoopRest(), timers)
    poller = a_poller(wait)
    fired = trio.Event()
    echo = Echo(poller, then=lambda: (timers.call_after(5, fired.set), None)[1])
    async with running(poller) as nursery:
        await nursery.start(timers.run)
        await until_in_place(wait, poller)
        client = asking(echo, 1)
        await fired.wait()
        client.join()


class Gaps(EpollSet):
    """Requests that follow each other closely: nothing is ready at every other look."""

    def __init__(self) -> None:
        super().__init__()
        self.shows = False

    def ready(self) -> list[tuple[int, int]]:
        self.shows = not self.shows
        return super().ready() if self.shows else []


@pytest.mark.parametrize("kind", ["task", "timer"])
async def test_requests_without_end_keep_nothing_of_the_loop_waiting(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Each is there before the poller sleeps."""
    monkeypatch.setattr(module, "BUSY_S", 60.0)
    monkeypatch.setattr(module, "REWARDED_MIN", 0)
    monkeypatch.setattr(module, "SPIN_S", 1.0)
    requests_max = 50_000
    timers = TrioTimers(SystemClock())
    wait = LoopWait(LoopRest(), timers)
    poller = Poller(lambda until_s: None, lambda: None, Gaps(), wait)
    happened = trio.Event()

    def then() -> None:
        echo.far.recv(1)
        if echo.served == 1:
            if kind == "task":
                happened.set()
            else:
                timers.call_after(1, happened.set)
        if echo.served < requests_max:
            echo.far.send(b"x")

    echo = Echo(poller, then)
    async with running(poller) as nursery:
        await nursery.start(timers.run)
        await until_in_place(wait, poller)
        echo.far.send(b"x")
        await happened.wait()
        assert 1 <= echo.served < requests_max


async def test_timers_fire_without_turns_of_the_loop() -> None:
    timers = TrioTimers(SystemClock())
    wait = LoopWait(LoopRest(), timers)
    poller = a_poller(wait)
    fired = 0
    all_fired = trio.Event()

    def fire() -> None:
        nonlocal fired
        fired += 1
        if fired < 100:
            timers.call_after(1, fire)
        else:
            all_fired.set()

    async with running(poller) as nursery:
        await nursery.start(timers.run)
        await until_in_place(wait, poller)
        turns = Turns()
        trio.lowlevel.add_instrument(turns)
        timers.call_after(1, fire)
        await all_fired.wait()
        trio.lowlevel.remove_instrument(turns)
    assert fired == 100
    assert turns.count < 20


@pytest.mark.parametrize("first", ["timers", "poller"])
async def test_timers_fire_whoever_waits(first: str) -> None:
    """They are set before, while and after a poller waits in the loop's place."""
    timers = TrioTimers(SystemClock())
    wait = LoopWait(LoopRest(), timers)
    poller = a_poller(wait)
    fired: list[str] = []

    def soon(name: str, delay_ms: int) -> None:
        timers.call_after(delay_ms, lambda: fired.append(name))

    soon("before", 5)
    place = trio.CancelScope()

    async def run() -> None:
        with place:
            await poller.run()

    with trio.fail_after(PATIENCE_S):
        async with trio.open_nursery() as nursery:
            if first == "timers":
                await nursery.start(timers.run)
            nursery.start_soon(run)
            await until_in_place(wait, poller)
            if first == "poller":
                await nursery.start(timers.run)
            soon("while", 10)
            await until(lambda: fired == ["before", "while"])
            soon("beyond", 30)
            place.cancel()
            await until(lambda: wait.owner is None)
            soon("after", 60)
            await until(lambda: fired == ["before", "while", "beyond", "after"])
            nursery.cancel_scope.cancel()
    poller.close()


async def test_timers_without_end_keep_nothing_waiting() -> None:
    """As those of a long work that pauses again and again."""
    timers = TrioTimers(SystemClock())
    wait = LoopWait(LoopRest(), timers)
    poller = a_poller(wait)
    echo = Echo(poller)
    fired = slept = 0
    is_over = False

    def fire() -> None:
        nonlocal fired
        fired += 1
        if not is_over:
            timers.call_after(-1, fire)

    async def sleeps() -> None:
        nonlocal slept
        for _ in range(20):
            await trio.sleep(0.001)
            await trio.lowlevel.checkpoint()
            slept += 1

    async with running(poller) as nursery:
        await nursery.start(timers.run)
        await until_in_place(wait, poller)
        timers.call_after(0, fire)
        nursery.start_soon(sleeps)
        await trio.to_thread.run_sync(asking(echo, 20).join)
        await until(lambda: slept == 20)
        fired_then = fired
        await until(lambda: fired > fired_then)
        is_over = True
    assert echo.served == 20


async def test_jobs_of_workers_end_without_turns_of_the_loop() -> None:
    wait = LoopWait(LoopRest())
    poller = a_poller(wait)
    all_ended = trio.Event()
    ended = 0

    def next_one(_: Deferred[None] | None = None) -> None:
        nonlocal ended
        if ended < 50:
            ended += 1
            pool.submit(lambda: None).on_done(next_one)
        else:
            all_ended.set()

    async with running(poller) as nursery:
        pool = worker_pools(nursery, bell=wait.bell).files
        await until_in_place(wait, poller)
        turns = Turns()
        trio.lowlevel.add_instrument(turns)
        next_one()
        await all_ended.wait()
        trio.lowlevel.remove_instrument(turns)
    assert turns.count < 20


async def test_no_job_of_a_worker_is_lost_while_pollers_come_and_go() -> None:
    wait = LoopWait(LoopRest())
    descriptors = len(os.listdir("/dev/fd"))
    with trio.fail_after(PATIENCE_S):
        async with trio.open_nursery() as nursery:
            pool = worker_pools(nursery, bell=wait.bell).files

            async def jobs() -> None:
                for number in range(300):
                    assert await wait_for(pool.submit(lambda number=number: number)) == number  # type: ignore[misc]

            async def wait_in_place(poller: Poller, scope: trio.CancelScope) -> None:
                try:
                    with scope:
                        await poller.run()
                finally:
                    poller.close()

            async def come_and_go() -> None:
                while True:
                    pollers = [a_poller(wait), a_poller(wait)]
                    scopes = [trio.CancelScope(), trio.CancelScope()]
                    for poller, scope in zip(pollers, scopes, strict=True):
                        nursery.start_soon(wait_in_place, poller, scope)
                        await until_in_place(wait, poller)
                    for scope in scopes:
                        scope.cancel()
                    await until(lambda: wait.owner is None)

            nursery.start_soon(come_and_go)
            async with trio.open_nursery() as inner:
                for _ in range(4):
                    inner.start_soon(jobs)
            nursery.cancel_scope.cancel()
    assert len(os.listdir("/dev/fd")) == descriptors


async def test_what_the_bell_tells_may_remove_another_guest() -> None:
    """Such as the end of a job that closes a channel, told as the place is given up."""
    wait = LoopWait(LoopRest())
    poller = a_poller(wait)
    near, far = socket.socketpair()

    class Other:
        def readable(self) -> None: ...

        def writable(self) -> None: ...

        def dismissed(self) -> None:
            told.append("dismissed")

    def tell() -> None:
        told.append("rung")
        if near.fileno() in poller._guests:
            poller.remove(near.fileno())

    told: list[str] = []
    with near, far:
        async with running(poller):
            await until_in_place(wait, poller)
            poller.add_guest(near.fileno(), Other())
            wait.bell.tells.append(tell)
    assert "rung" in told
    assert not poller._guests


def test_only_the_timers_move_deadlines_between_turns_of_the_loop() -> None:
    """A wait in the loop's place asks for the loop's deadline once a turn. The timers are lent to it."""
    package = Path(kafkacompat.__file__).parent
    moves = re.compile(r"\.(relative_)?deadline [+-]?= ")
    found = [
        str(path.relative_to(package))
        for path in package.rglob("*.py")
        if "_tests" not in path.parts and "trio" in (text := path.read_text()) and moves.search(text)
    ]
    # The supervisor is a process of its own, without a poller.
    assert sorted(found) == ["cli/supervisor.py", "net/runtime.py"]


async def test_the_poller_that_waits_lets_the_others_serve_without_turns_of_the_loop() -> None:
    wait = LoopWait(LoopRest())
    first, second = a_poller(wait), a_poller(wait)
    echoes = [Echo(first), Echo(second)]
    async with one_after_the_other(wait, first, second):
        await trio.to_thread.run_sync(asking(echoes[0], 1).join)
        turns = Turns()
        trio.lowlevel.add_instrument(turns)
        for client in [asking(echo, 100, 0.0005) for echo in echoes]:
            await trio.to_thread.run_sync(client.join)
        trio.lowlevel.remove_instrument(turns)
    assert [echo.served for echo in echoes] == [101, 100]
    assert turns.count < 20


async def test_a_poller_that_cannot_be_a_guest_serves_in_turns_of_the_loop_and_says_so_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    wait = LoopWait(LoopRest())
    first, second = a_poller(wait), a_poller(wait)
    echo = Echo(first)

    def refused(self: Poller, fd: int, guest: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Poller, "add_guest", refused)
    async with one_after_the_other(wait, first, second):
        await trio.to_thread.run_sync(asking(echo, 20, 0.001).join)
    assert echo.served == 20
    assert [each.message for each in caplog.records] == [
        f"the loop wakes for each request, a set cannot be waited for: [Errno {errno.ENOSPC}] {os.strerror(errno.ENOSPC)}"
    ]


async def test_the_last_poller_that_begins_waits_and_the_others_go_on_after_it() -> None:
    wait = LoopWait(LoopRest())
    first, second = a_poller(wait), a_poller(wait)
    echoes = [Echo(first), Echo(second)]
    async with running(first) as nursery:
        await until_in_place(wait, first)
        later = trio.CancelScope()

        async def run() -> None:
            with later:
                await second.run()

        nursery.start_soon(run)
        await until_in_place(wait, second)
        for client in [asking(echo, 100, 0.0002) for echo in echoes]:
            await trio.to_thread.run_sync(client.join)
        later.cancel()
        await until(lambda: wait.owner is None)
        await trio.to_thread.run_sync(asking(echoes[0], 10).join)
    second.close()
    assert [echo.served for echo in echoes] == [110, 100]


@pytest.mark.parametrize("reversed_by", [0.0, 1.0])
async def test_a_poller_that_begins_is_not_waited_for_by_the_one_before(
    monkeypatch: pytest.MonkeyPatch, reversed_by: float
) -> None:
    """In whatever order the loop carries out the two."""
    wait = LoopWait(LoopRest())
    first, second = a_poller(wait), a_poller(wait)
    served = trio.Event()
    echo = Echo(second, then=served.set)
    async with running(first) as nursery:
        await until_in_place(wait, first)
        monkeypatch.setattr(trio._core._run._r, "random", lambda: reversed_by)
        echo.far.send(b"x")
        nursery.start_soon(second.run)
        await served.wait()
        assert wait.owner is second
    second.close()


async def test_the_watchdog_need_not_ask_a_poller_that_waits() -> None:
    rest = LoopRest()
    wait = LoopWait(rest)
    poller = a_poller(wait)
    seen = threading.Event()
    go_on = trio.Event()
    token = trio.lowlevel.current_trio_token()

    def look() -> None:
        while not rest.is_resting:
            pass
        seen.set()
        token.run_sync_soon(go_on.set)

    async with running(poller):
        await until_in_place(wait, poller)
        threading.Thread(target=look).start()
        await go_on.wait()
        assert not rest.is_resting
    assert seen.is_set()


async def test_the_watchdog_knows_when_a_step_of_a_poller_began() -> None:
    wait = LoopWait(LoopRest())
    poller = a_poller(wait)
    times: list[float] = []

    def note() -> None:
        times.extend((wait.rest.began_s, monotonic()))

    echo = Echo(poller, note)
    async with running(poller):
        await until_in_place(wait, poller)

        def ask() -> None:
            for _ in range(5):
                asking(echo, 1).join()
                while not wait.rest.is_resting:  # so the next step is another one
                    time.sleep(0)

        await trio.to_thread.run_sync(ask)
    assert len(times) == 10
    assert times == sorted(times)


async def test_where_the_system_does_not_tell_the_loops_set_the_loop_waits(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def nothing() -> int | None:
        return await descriptor_of_the_loop(str(tmp_path))

    monkeypatch.setattr(module, "descriptor_of_the_loop", nothing)
    wait = LoopWait(LoopRest())
    poller = a_poller(wait)
    echo = Echo(poller)
    async with running(poller):
        await trio.to_thread.run_sync(asking(echo, 20).join)
    assert wait.owner is None
    assert echo.served == 20


async def test_without_another_descriptor_the_loops_set_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused() -> tuple[socket.socket, socket.socket]:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr("kafkacompat.net.loop_wait.socket.socketpair", refused)
    assert await descriptor_of_the_loop() is None


async def test_the_loops_set_is_found_among_others_and_is_the_one_that_wakes() -> None:
    pollers = [Poller(lambda until_s: None, lambda: None) for _ in range(3)]
    found = await descriptor_of_the_loop()
    if not os.path.isdir("/proc/self/fdinfo"):
        assert found is None
        return
    assert found is not None
    assert found not in [poller._set.fileno() for poller in pollers]
    assert os.readlink(f"/proc/self/fd/{found}") == "anon_inode:[eventpoll]"
    for poller in pollers:
        poller.close()
