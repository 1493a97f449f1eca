"""The watchdog of the event loop: what it detects, and what is not a stall."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

import pytest
import trio
import trio.testing

from interop_tests.harness import stalls as harness
from kafkacompat.cli.log_format import TextFormatter
from kafkacompat.net import watchdog as module
from kafkacompat.net.watchdog import (
    AFTERWARDS,
    UNSEEN,
    LoopRest,
    LoopWatchdog,
    Moment,
    Sign,
    Stall,
    kept_from_running,
    step_began,
)

TIMEOUT_S = 30
STACK = f"""\
  File "{module._PACKAGE}net/server.py", line 5, in run
    self.turn()
  File "{module._PACKAGE}log/log_segment.py", line 7, in append
    os.pwritev(fd, data)
  File "/lib/os.py", line 9, in pwritev
    sleep(1)"""
TRIES = 20


class Loop:
    """A loop whose thread is the test: it answers when the test lets it."""

    def __init__(self) -> None:
        self.signs: list[Sign] = []
        self.asked = threading.Semaphore(0)
        self.has_ended = False

    def ask(self, sign: Sign) -> None:
        if self.has_ended:
            raise RuntimeError("the loop has ended")
        self.signs.append(sign)
        self.asked.release()

    def answer(self) -> None:
        assert self.asked.acquire(timeout=TIMEOUT_S)
        self.signs.pop(0)()


class Stalls:
    def __init__(self) -> None:
        self.seen: list[tuple[float, float, str]] = []
        self.came = threading.Semaphore(0)

    def __call__(self, wall_s: float, cpu_s: float, stack: str) -> None:
        self.seen.append((wall_s, cpu_s, stack))
        self.came.release()


def test_a_loop_that_computes_is_told_with_its_stack_and_its_cpu_time() -> None:
    """On a busy machine the watching thread may see nothing of a stall, hence the tries."""
    loop, stalls = Loop(), Stalls()
    watchdog = LoopWatchdog(
        loop.ask, LoopRest(), on_stall=stalls, interval_s=0.001, limit_s=0.01, waited_s=lambda: 0.0
    )
    watchdog.start()
    for _ in range(TRIES):
        assert loop.asked.acquire(timeout=TIMEOUT_S)
        for _ in range(5_000_000):
            pass
        loop.signs.pop(0)()
        assert stalls.came.acquire(timeout=TIMEOUT_S)
        wall_s, cpu_s, stack = stalls.seen[-1]
        if "test_a_loop_that_computes_is_told" in stack:
            break
    watchdog.stop()
    assert "test_a_loop_that_computes_is_told" in stack
    assert wall_s >= 0.01
    assert 0 < cpu_s <= wall_s + 0.01
    assert watchdog.stalls == len(stalls.seen)
    assert watchdog.longest_s >= wall_s


def test_a_call_that_keeps_the_lock_is_told_when_it_is_over() -> None:
    """The sum is one call. The watching thread hardly ever gets a question between the answer and the sum, hence the tries."""
    loop, stalls = Loop(), Stalls()
    watchdog = LoopWatchdog(
        loop.ask, LoopRest(), on_stall=stalls, interval_s=0.001, limit_s=0.01, waited_s=lambda: 0.0
    )
    watchdog.start()
    for _ in range(TRIES):
        loop.answer()
        sum(range(5_000_000))
        if loop.signs:
            loop.answer()
        assert stalls.came.acquire(timeout=TIMEOUT_S)
        wall_s, cpu_s, stack = stalls.seen[-1]
        if stack.startswith(f"{AFTERWARDS}\n"):
            break
    watchdog.stop()
    assert stack.startswith(f"{AFTERWARDS}\n")
    assert "test_a_call_that_keeps_the_lock" in stack
    assert wall_s >= 0.01
    assert 0 < cpu_s <= wall_s
    assert watchdog.longest_s >= wall_s


ANSWERED = Moment(wall_s=10.0, loop_cpu_s=3.0, waited_s=1.0)


@pytest.mark.parametrize(
    ("woke", "stall"),
    [
        pytest.param(Moment(10.05, 3.05, 1.0), None, id="in time"),
        pytest.param(Moment(10.14, 3.14, 1.0), None, id="a little late"),
        pytest.param(Moment(10.55, 3.50, 1.0), Stall(0.5, 0.5), id="the loop computed"),
        pytest.param(Moment(10.55, 3.54, 1.0), Stall(0.5, 0.5), id="and computed in the pause too"),
        pytest.param(Moment(10.55, 3.01, 1.0), Stall(0.5, 0.01), id="another thread had the lock"),
        pytest.param(Moment(10.55, 3.50, 1.45), None, id="no processor was free for the watching thread"),
        pytest.param(Moment(10.55, 3.50, 1.35), Stall(0.5, 0.5), id="for a part of the time"),
    ],
)
def test_a_watchdog_that_wakes_late_was_kept_from_running_unless_no_processor_was_free(
    woke: Moment, stall: Stall | None
) -> None:
    found = kept_from_running(ANSWERED, woke, interval_s=0.05, limit_s=0.1)
    assert found == (stall if stall is None else pytest.approx(stall))


@pytest.mark.parametrize(
    ("began_s", "woke", "began"),
    [
        pytest.param(10.02, Moment(10.1, 3.07, 1.0), (10.02, 3.0), id="it may have computed all the time"),
        pytest.param(10.08, Moment(10.1, 3.07, 1.0), (10.08, 3.05), id="most was computed before the step"),
        pytest.param(9.5, Moment(10.1, 3.07, 1.0), (10.0, 3.0), id="it has answered in this step"),
        pytest.param(10.2, Moment(10.1, 3.07, 1.0), (10.1, 3.07), id="it began right now"),
    ],
)
def test_a_stall_begins_with_the_step(began_s: float, woke: Moment, began: tuple[float, float]) -> None:
    assert step_began(ANSWERED, woke, began_s) == pytest.approx(began)


class Times:
    """In place of the module `time`: only the test lets time pass."""

    CLOCK_PROCESS_CPUTIME_ID = 0

    def __init__(self) -> None:
        self.now_s = 100.0

    def monotonic(self) -> float:
        return self.now_s

    def clock_gettime(self, _clock: int) -> float:
        return 0.0

    def sleep(self, _seconds: float) -> None:
        """Let the test's thread run."""
        threading.Event().wait(0.0001)


def test_the_time_that_it_takes_to_tell_a_stall_is_not_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a slow disk delays the log, for one."""
    times, loop = Times(), Loop()
    monkeypatch.setattr(module, "time", times)
    told: list[float] = []

    def tell_slowly(wall_s: float, _cpu_s: float, _stack: str) -> None:
        told.append(wall_s)
        times.now_s += 5

    watching = LoopWatchdog(
        loop.ask, LoopRest(), on_stall=tell_slowly, interval_s=0.001, limit_s=1, waited_s=lambda: 0.0
    )
    watching.start()
    assert loop.asked.acquire(timeout=TIMEOUT_S)
    times.now_s += 2
    loop.signs.pop(0)()
    loop.answer()
    watching.stop()
    assert told == [2]
    assert watching.stalls == 1


def test_a_stall_is_measured_from_the_begin_of_the_step(monkeypatch: pytest.MonkeyPatch) -> None:
    times, loop, rest, looks, stalls = Times(), Loop(), LoopRest(), Looks(), Stalls()
    monkeypatch.setattr(module, "time", times)
    rest.before_io_wait(1.0)
    watching = LoopWatchdog(loop.ask, rest, on_stall=stalls, interval_s=0.001, limit_s=1, waited_s=looks)
    watching.start()
    looks.wait_for(2)
    times.now_s += 0.1
    rest.after_io_wait(1.0)
    times.now_s += 0.7
    assert loop.asked.acquire(timeout=TIMEOUT_S)
    times.now_s += 0.4
    loop.signs.pop(0)()
    assert stalls.came.acquire(timeout=TIMEOUT_S)
    watching.stop()
    assert stalls.seen[0][0] == pytest.approx(1.1)


def test_a_loop_that_answers_is_not_told() -> None:
    loop, stalls = Loop(), Stalls()
    watchdog = LoopWatchdog(loop.ask, LoopRest(), on_stall=stalls, interval_s=0.001, limit_s=TIMEOUT_S)
    watchdog.start()
    for _ in range(20):
        loop.answer()
    watchdog.stop()
    assert stalls.seen == []
    assert watchdog.stalls == 0


class Looks:
    """Reads of the watching thread's times: one at the start, and one a look."""

    def __init__(self) -> None:
        self.taken = threading.Semaphore(0)

    def __call__(self) -> float:
        self.taken.release()
        return 0.0

    def wait_for(self, count: int) -> None:
        for _ in range(count):
            assert self.taken.acquire(timeout=TIMEOUT_S)


def test_a_loop_that_waits_for_events_is_not_woken() -> None:
    loop, stalls, rest, looks = Loop(), Stalls(), LoopRest(), Looks()
    rest.before_io_wait(1.0)
    watchdog = LoopWatchdog(
        loop.ask, rest, on_stall=stalls, interval_s=0.001, limit_s=TIMEOUT_S, waited_s=looks
    )
    watchdog.start()
    looks.wait_for(20)
    assert not loop.signs
    rest.after_io_wait(1.0)
    loop.answer()
    watchdog.stop()
    assert stalls.seen == []


def test_a_call_that_keeps_the_lock_while_the_loop_waits_is_told() -> None:
    loop, stalls, rest, looks = Loop(), Stalls(), LoopRest(), Looks()
    rest.before_io_wait(1.0)
    watchdog = LoopWatchdog(loop.ask, rest, on_stall=stalls, interval_s=0.001, limit_s=0.01, waited_s=looks)
    watchdog.start()
    looks.wait_for(3)
    sum(range(5_000_000))
    assert stalls.came.acquire(timeout=TIMEOUT_S)
    watchdog.stop()
    assert stalls.seen[0][2].startswith(f"{AFTERWARDS}\n")


async def test_a_loop_rests_while_it_waits_and_not_while_it_has_something_to_do() -> None:
    rest = LoopRest()
    seen: list[bool] = []
    trio.lowlevel.add_instrument(rest)
    looked = trio.Event()
    token = trio.lowlevel.current_trio_token()

    def look() -> None:
        while not rest.is_resting:
            pass
        seen.append(True)
        token.run_sync_soon(looked.set)

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    with trio.fail_after(TIMEOUT_S):
        await looked.wait()
    seen.append(rest.is_resting)
    await trio.lowlevel.checkpoint()
    trio.lowlevel.remove_instrument(rest)
    rest.before_io_wait(0)
    seen.append(rest.is_resting)
    assert seen == [True, False, False]


def test_a_lack_of_memory_does_not_end_the_watching() -> None:
    loop, looks = Loop(), Looks()
    results = [False, True, True]

    def waited_s() -> float:
        if results and results.pop(0):
            raise MemoryError
        return looks()

    watchdog = LoopWatchdog(loop.ask, LoopRest(), interval_s=0.001, limit_s=TIMEOUT_S, waited_s=waited_s)
    watchdog.start()
    looks.wait_for(3)
    loop.answer()
    watchdog.stop()


async def test_the_loop_is_watched_as_soon_as_there_is_a_thread(
    monkeypatch: pytest.MonkeyPatch,
    autojump_clock: trio.testing.MockClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    loop = Loop()
    loop.has_ended = True
    start = threading.Thread.start
    problems: list[Exception] = [MemoryError(), RuntimeError("can't start new thread")]

    def started(thread: threading.Thread) -> None:
        if problems:
            raise problems.pop()
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", started)
    watchdog = LoopWatchdog(loop.ask, LoopRest(), interval_s=0.001)
    await watchdog.begin()
    assert watchdog._thread is not None
    watchdog._thread.join(TIMEOUT_S)
    assert not watchdog._thread.is_alive()
    assert [each for each in caplog.messages if "can't start new thread" in each] == caplog.messages
    assert len(caplog.messages) == 1


def test_the_end_of_the_loop_ends_the_watching() -> None:
    loop = Loop()
    watchdog = LoopWatchdog(loop.ask, LoopRest(), interval_s=0.001)
    loop.has_ended = True
    watchdog.start()
    assert watchdog._thread is not None
    watchdog._thread.join(TIMEOUT_S)
    assert not watchdog._thread.is_alive()


def test_a_stop_during_a_stall_ends_the_watching() -> None:
    loop, stalls = Loop(), Stalls()
    watchdog = LoopWatchdog(loop.ask, LoopRest(), on_stall=stalls, interval_s=0.001, limit_s=0.001)
    watchdog.start()
    assert loop.asked.acquire(timeout=TIMEOUT_S)
    watchdog.stop()
    assert watchdog._thread is not None
    watchdog._thread.join(TIMEOUT_S)
    assert not watchdog._thread.is_alive()
    assert stalls.seen == []


def test_the_log_names_how_long_and_where(caplog) -> None:
    module._log_stall(0.25, 0.2, UNSEEN)
    assert "stood still for 250 ms, computing for 200 ms of it, in:\n" in caplog.text
    assert UNSEEN in caplog.text


@pytest.mark.parametrize(
    ("stack", "place"),
    [
        (UNSEEN, UNSEEN),
        (f"{AFTERWARDS}\n{STACK}", "append (log_segment.py:7)"),
        (STACK, "append (log_segment.py:7)"),
        (STACK.partition("  File")[0] + '  File "/lib/json.py", line 3, in loads', "loads (json.py:3)"),
    ],
)
def test_a_terminal_gets_one_line_that_names_the_place(
    stack: str, place: str, caplog: pytest.LogCaptureFixture
) -> None:
    module._log_stall(0.25, 0.2, stack)
    (record,) = caplog.records
    (line,) = TextFormatter(is_brief=True).format(record).splitlines()
    assert f"stood still for 250 ms, computing for 200 ms of it, in {place} (-v or" in line
    assert stack.splitlines()[-1] in TextFormatter().format(record)


def test_the_interop_tests_read_what_is_logged(tmp_path: Path) -> None:
    """Otherwise they would find no stall, whatever a node does."""
    log = tmp_path / "log"
    handler = logging.FileHandler(log)
    handler.setFormatter(TextFormatter())
    reader = harness.Stalls()
    reader.watch(log)
    logger = logging.getLogger(module.__name__)
    logger.addHandler(handler)
    try:
        module._log_stall(0.25, 0.2, STACK)
        module._log_stall(12.5, 0.0, UNSEEN)
        logger.warning("another entry")
    finally:
        logger.removeHandler(handler)
        handler.close()
    name = module.__name__
    first, second = reader.new()
    assert (first.wall_ms, first.computing_ms, first.stack) == (250, 200, f"{STACK} ({name})\n")
    assert (second.wall_ms, second.computing_ms, second.stack) == (12500, 0, f"{UNSEEN} ({name})\n")


async def test_trio_answers() -> None:
    stalls = Stalls()
    answered = trio.Event()
    token = trio.lowlevel.current_trio_token()

    def ask(sign: Sign) -> None:
        def answer() -> None:
            sign()
            answered.set()

        token.run_sync_soon(answer)

    watchdog = LoopWatchdog(ask, LoopRest(), on_stall=stalls, interval_s=0.001, limit_s=TIMEOUT_S)
    watchdog.start()
    with trio.fail_after(TIMEOUT_S):
        await answered.wait()
    watchdog.stop()
    assert stalls.seen == []
