"""The idle time of the event loop, from what the system counts of its thread."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkacompat.meters import RATE_MS
from kafkacompat.metrics import network
from kafkacompat.metrics.network import LoopIdle
from kafkacompat.net.watchdog import waited_s


class TimedLoop:
    def __init__(self) -> None:
        self.now_s = 100.0
        self.worked_s = 7.0
        self.idle = LoopIdle(lambda: self.now_s, lambda: self.worked_s)

    def turn(self, wait_s: float, work_s: float) -> None:
        self.now_s += wait_s + work_s
        self.worked_s += work_s


def test_a_loop_that_was_just_started_is_idle() -> None:
    assert TimedLoop().idle.read() == (1, 1)


def test_idle_is_the_share_of_time_without_work() -> None:
    timed = TimedLoop()
    for _ in range(10):
        timed.turn(0.75, 0.25)
    assert timed.idle.read() == pytest.approx((0.75, 0.75))


def test_the_recent_share_forgets_and_the_other_one_does_not() -> None:
    timed = TimedLoop()
    for work_s in (0, 1):
        for _ in range(100):
            timed.turn(1 - work_s, work_s)
            timed.idle.read()
    assert timed.idle.read() == pytest.approx((0, 0.5))


def test_many_scrapers_do_not_shorten_the_measured_time() -> None:
    timed = TimedLoop()
    for _ in range(RATE_MS // 25):
        timed.turn(0.05, 0.05)
        timed.idle.read()
    assert timed.idle.read().recently == pytest.approx(0.5, abs=0.01)


def test_clocks_that_differ_a_little_give_no_impossible_share() -> None:
    timed = TimedLoop()
    timed.now_s += 1
    timed.worked_s += 1.001
    assert timed.idle.read() == (0, 0)


def test_work_of_this_thread_is_counted() -> None:
    idle = LoopIdle()
    sum(range(100_000))
    assert 0 <= idle.read().since_start < 1


def test_the_time_without_a_free_processor_is_read(tmp_path: Path) -> None:
    told = tmp_path / "schedstat"
    told.write_text("7000000000 2500000000 31\n")
    assert waited_s(str(told)) == 2.5


@pytest.mark.parametrize("text", ["", "0", "a b c"])
def test_a_system_that_does_not_tell_it_counts_nothing(tmp_path: Path, text: str) -> None:
    told = tmp_path / "schedstat"
    assert waited_s(str(told)) == 0
    told.write_text(text)
    assert waited_s(str(told)) == 0


def test_a_loop_that_waits_for_a_processor_is_not_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "thread_time", lambda: 1.0)
    monkeypatch.setattr(network, "waited_s", lambda: now_s)
    now_s = 0.0
    idle = LoopIdle(lambda: now_s)
    now_s = 10.0
    assert idle.read() == (0, 0)
