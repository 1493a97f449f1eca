"""The clock of a test: it stands, moves from timer to timer, and waits until the nodes are at rest."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
import trio

from kafkacompat.net.workers import worker_pools
from kafkacompat.ports import WorkerPools
from kafkacompat.tasks import Tasks
from kafkacompat.testing import clock as clock_module
from kafkacompat.testing.clock import NodeTime, NotAtRest, TestClock

MINUTE_MS = 60_000
TIMEOUT_S = 60


class Loop:
    """A loop in a thread, as a node has one."""

    def __init__(self, clock: TestClock) -> None:
        self.clock = clock
        self.time: NodeTime
        self.workers: WorkerPools
        self.tasks: Tasks
        self.happened: list[tuple[str, int]] = []
        self._token: trio.lowlevel.TrioToken
        self._scope = trio.CancelScope()

    def note(self, what: str) -> None:
        self.happened.append((what, self.clock.monotonic_ms()))

    def spin(self) -> None:
        """Never rest, as a loop whose clients go on sending."""

        async def spin() -> None:
            while True:
                await trio.lowlevel.checkpoint()

        trio.lowlevel.spawn_system_task(spin)

    def call(self, function: Callable[[], Any]) -> Any:
        answer: Future[Any] = Future()
        self._token.run_sync_soon(lambda: answer.set_result(function()))
        return answer.result(TIMEOUT_S)

    async def run(self, ready: threading.Event) -> None:
        self._token = trio.lowlevel.current_trio_token()
        with self._scope:
            async with trio.open_nursery() as nursery:
                self.time = NodeTime(self.clock, "node 1")
                self.workers = self.time.counted(worker_pools(nursery))
                self.tasks = Tasks(self.time.work_timers)
                await nursery.start(self.time.run)
                await nursery.start(self.time.live)
                ready.set()
                await trio.sleep_forever()

    def end(self) -> None:
        with suppress(trio.RunFinishedError):
            self._token.run_sync_soon(self._scope.cancel)


@contextmanager
def running(clock: TestClock, count: int = 1) -> Iterator[list[Loop]]:
    loops = [Loop(clock) for _ in range(count)]
    threads = []
    for loop in loops:
        ready = threading.Event()
        threads.append(threading.Thread(target=trio.run, args=(loop.run, ready)))
        threads[-1].start()
        assert ready.wait(TIMEOUT_S)
    try:
        yield loops
    finally:
        for loop, thread in zip(loops, threads, strict=True):
            loop.end()
            thread.join(TIMEOUT_S)


def test_it_stands_and_goes_on_from_there() -> None:
    clock = TestClock()
    clock.freeze()
    at_ms, wall_ms = clock.monotonic_ms(), clock.now_ms()
    clock.advance(minutes=10)
    assert (clock.monotonic_ms(), clock.now_ms()) == (at_ms + 10 * MINUTE_MS, wall_ms + 10 * MINUTE_MS)
    assert clock.is_frozen
    clock.resume()
    assert not clock.is_frozen
    assert clock.now_ms() >= wall_ms + 10 * MINUTE_MS


def test_seconds_are_the_same_time() -> None:
    clock = TestClock()
    before_ms = clock.monotonic_ms()
    assert before_ms / 1000 <= clock.monotonic_s() <= clock.monotonic_ms() / 1000 + 0.001
    clock.freeze()
    clock.advance(hours=1)
    assert clock.monotonic_s() == clock.monotonic_ms() / 1000 >= (before_ms + 3_600_000) / 1000


def test_work_goes_on_while_it_stands() -> None:
    clock = TestClock()
    with running(clock) as (loop,):
        clock.freeze()
        over = threading.Event()
        loop.call(lambda: loop.time.timers.call_after(1, lambda: loop.note("a timeout")))
        loop.call(lambda: loop.time.work_timers.call_after(1, over.set))
        assert over.wait(TIMEOUT_S)
        assert loop.happened == []
        clock.advance(seconds=1)
        assert [what for what, _ in loop.happened] == ["a timeout"]


def test_timers_fire_at_their_own_times_and_in_order() -> None:
    clock = TestClock()
    clock.freeze()
    with running(clock) as (loop,):
        start_ms = clock.monotonic_ms()
        timers = loop.time.timers

        def again() -> None:
            loop.note("again")
            timers.call_after(1_000, again)

        loop.call(lambda: timers.call_after(2_500, lambda: loop.note("once")))
        loop.call(lambda: timers.call_after(1_000, again))
        clock.advance(3)
        assert [(what, at_ms - start_ms) for what, at_ms in loop.happened] == [
            ("again", 1000),
            ("again", 2000),
            ("once", 2500),
            ("again", 3000),
        ]


def test_what_follows_from_a_timer_happens_before_time_goes_on() -> None:
    """Jobs in threads, tasks that pause, timers without a delay."""
    clock = TestClock()
    clock.freeze()
    with running(clock) as (loop,):
        start_ms = clock.monotonic_ms()
        gate = threading.Event()

        async def follows() -> None:
            await loop.workers.files.submit(lambda: gate.wait(0.05))
            loop.note("a job")
            await loop.tasks.sleep(0)
            loop.note("later")
            await loop.workers.log_sync.at("/d").submit(lambda: None)
            loop.note("another job")

        loop.call(
            lambda: loop.time.timers.call_after(1_000, lambda: loop.tasks.start("what follows", follows()))
        )
        loop.call(lambda: loop.time.timers.call_after(1_001, lambda: loop.note("the next timer")))
        clock.advance(minutes=1)
        assert [(what, at_ms - start_ms) for what, at_ms in loop.happened] == [
            ("a job", 1000),
            ("later", 1000),
            ("another job", 1000),
            ("the next timer", 1001),
        ]


def test_loops_that_share_a_clock_move_together() -> None:
    clock = TestClock()
    clock.freeze()
    with running(clock, 3) as loops:
        start_ms = clock.monotonic_ms()
        heard: list[tuple[int, int]] = []

        def tick(number: int, loop: Loop) -> None:
            heard.append((clock.monotonic_ms() - start_ms, number))
            loop.time.timers.call_after(1_000, partial(tick, number, loop))

        for number, loop in enumerate(loops):
            loop.call(partial(loop.time.timers.call_after, 10 * number, partial(tick, number, loop)))
        clock.advance(seconds=2)
        assert heard == [(0, 0), (10, 1), (20, 2), (1000, 0), (1010, 1), (1020, 2), (2000, 0)]


def test_a_long_advance_lets_every_sweep_have_its_turn() -> None:
    clock = TestClock()
    clock.freeze()
    with running(clock) as (loop,):
        start_ms = clock.monotonic_ms()

        async def sweep() -> None:
            while True:
                await loop.tasks.sleep(5 * MINUTE_MS)
                loop.note("a sweep")

        loop.call(lambda: loop.tasks.start("sweeps", sweep()))
        day_ms = 24 * 60 * MINUTE_MS
        loop.call(lambda: loop.time.timers.call_after(3 * day_ms + 7, lambda: loop.note("a timeout")))
        clock.advance(days=7)
        assert clock.monotonic_ms() - start_ms == 7 * day_ms
        assert [at_ms - start_ms for what, at_ms in loop.happened if what == "a timeout"] == [3 * day_ms + 7]
        swept = [at_ms - start_ms for what, at_ms in loop.happened if what == "a sweep"]
        # Work has gone on a little before the clock is moved.
        assert [round(at_ms / (5 * MINUTE_MS)) for at_ms in swept[:3]] == [1, 2, 3]
        assert swept[-1] == 7 * day_ms
        assert max(after - before for before, after in pairwise(swept)) < day_ms / 3


def test_at_a_time() -> None:
    clock = TestClock()
    new_year = datetime(2040, 1, 1, tzinfo=UTC)
    clock.at(new_year)
    assert clock.now() == new_year
    assert clock.is_frozen
    at_ms = clock.monotonic_ms()
    clock.at(new_year - timedelta(days=400))
    assert clock.now() == new_year - timedelta(days=400)
    assert clock.monotonic_ms() == at_ms
    clock.at(0)
    assert clock.now_ms() == 0
    with pytest.raises(ValueError, match="forwards"):
        clock.advance(-1)


class Patience:
    """In place of the real time for which the clock waits: it is over when the test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._over: Future[None] = Future()
        self._wait = clock_module.wait_for_futures
        monkeypatch.setattr(clock_module, "wait_for_futures", self._wait_or_give_up)

    def is_over(self) -> None:
        self._over.set_result(None)

    def _wait_or_give_up(self, answers: list[Future[None]], timeout: float) -> None:
        """Of one node, or of none."""
        if answers:
            self._wait([*answers, self._over], timeout, FIRST_COMPLETED)


def test_a_node_that_does_not_rest_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    Patience(monkeypatch).is_over()
    clock = TestClock()
    with running(clock) as (loop,):
        gate = threading.Event()
        loop.call(lambda: loop.workers.cleaning.submit(gate.wait))
        with pytest.raises(NotAtRest, match=r"node 1 has jobs in threads \(1 of cleaning\)"):
            clock.advance(1)
        monkeypatch.undo()
        gate.set()
        clock.advance(1)


def test_a_clock_that_has_given_up_moves_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    patience = Patience(monkeypatch)
    clock = TestClock()
    clock.freeze()
    with running(clock) as (loop,):
        gate, ended, at_ms = threading.Event(), threading.Event(), clock.monotonic_ms()

        def begin() -> None:
            loop.workers.cleaning.submit(gate.wait).on_done(lambda _: loop.time.soon(ended.set))
            patience.is_over()

        loop.call(lambda: loop.time.timers.call_after(10, begin))
        with pytest.raises(NotAtRest):
            clock.advance(1)
        monkeypatch.undo()
        gate.set()
        assert ended.wait(TIMEOUT_S)
        clock.settle()
        assert clock.monotonic_ms() == at_ms + 10
        clock.advance(1)
        assert loop.call(lambda: clock.monotonic_ms()) == at_ms + 1_010


def test_a_clock_whose_move_is_interrupted_moves_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """By Ctrl-C, or by the time limit of a test. The node lives on."""
    clock = TestClock()
    clock.freeze()
    with running(clock) as (loop,):
        gate, ended, at_ms = threading.Event(), threading.Event(), clock.monotonic_ms()
        begun = threading.Event()

        def begin() -> None:
            loop.workers.cleaning.submit(gate.wait).on_done(lambda _: loop.time.soon(ended.set))
            begun.set()

        wait, looks = clock_module.wait_for_futures, 0

        def wait_or_interrupt(*given: Any, **named: Any) -> Any:
            nonlocal looks
            looks += 1
            if looks == 1:
                return wait(*given, **named)
            assert begun.wait(TIMEOUT_S)
            raise KeyboardInterrupt

        loop.call(lambda: loop.time.timers.call_after(10, begin))
        monkeypatch.setattr(clock_module, "wait_for_futures", wait_or_interrupt)
        with pytest.raises(KeyboardInterrupt):
            clock.advance(1)
        monkeypatch.undo()
        gate.set()
        assert ended.wait(TIMEOUT_S)
        clock.settle()
        assert clock.monotonic_ms() == at_ms + 10
        clock.advance(1)
        assert loop.call(lambda: clock.monotonic_ms()) == at_ms + 1_010


@pytest.mark.parametrize("count", [1, 2])
def test_loops_that_never_rest_keep_no_clock_from_moving(count: int) -> None:
    clock = TestClock()
    with running(clock, count) as loops:
        for loop in loops:
            loop.call(loop.spin)
            loop.call(partial(loop.time.timers.call_after, 1_000, partial(loop.note, "a timeout")))
        mover = threading.Thread(target=clock.advance, args=(2,), daemon=True)
        mover.start()
        mover.join(TIMEOUT_S)
        assert not mover.is_alive()
        assert [len(loop.happened) for loop in loops] == [1] * count


def test_loops_in_which_a_little_happens_at_each_look_keep_no_clock_from_moving(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    look = NodeTime.look

    def look_while_a_client_sends(node: NodeTime, step: Callable[[], bool] | None = None) -> Future[None]:
        node.turns += 1
        return look(node, step)

    monkeypatch.setattr(NodeTime, "look", look_while_a_client_sends)
    clock = TestClock()
    with running(clock, 2) as loops:
        for loop in loops:
            loop.call(partial(loop.time.timers.call_after, 1_000, partial(loop.note, "a timeout")))
        mover = threading.Thread(target=clock.advance, args=(2,), daemon=True)
        mover.start()
        mover.join(TIMEOUT_S)
        assert not mover.is_alive()
        assert [len(loop.happened) for loop in loops] == [1, 1]


def test_a_loop_that_ends_meanwhile_is_not_waited_for() -> None:
    clock = TestClock()
    with running(clock) as (loop,):
        loop.call(lambda: loop.time.timers.call_after(1_000, loop._scope.cancel))
        clock.advance(minutes=1)
    clock.advance(minutes=1)


def test_a_loop_that_is_paused_is_not_waited_for() -> None:
    clock = TestClock()
    clock.freeze()
    with running(clock, 2) as (loop, paused):
        gate = threading.Event()

        def stand() -> None:
            paused.time.stands_still = True
            gate.wait(TIMEOUT_S)
            paused.time.stands_still = False
            paused.time.wake_timers()

        paused.call(lambda: paused.time.timers.call_after(1_000, lambda: paused.note("late")))
        loop.call(lambda: loop.time.timers.call_after(1_000, lambda: loop.note("in time")))
        paused._token.run_sync_soon(stand)
        while not paused.time.stands_still:
            threading.Event().wait(0.001)
        clock.advance(seconds=2)
        assert [what for what, _ in loop.happened] == ["in time"]
        assert paused.happened == []
        gate.set()
        while paused.time.stands_still:
            threading.Event().wait(0.001)
        clock.settle()
        assert [what for what, _ in paused.happened] == ["late"]
