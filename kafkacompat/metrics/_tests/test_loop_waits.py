"""The idle time of the event loop, from its waits."""

from __future__ import annotations

import pytest

from kafkacompat.metrics.loop_waits import RECENT_S, LoopWaits


class World:
    def __init__(self) -> None:
        self.now_s = 100.0
        self.waits = LoopWaits(lambda: self.now_s)

    def turn(self, wait_s: float, work_s: float) -> None:
        self.waits.before_io_wait(1)
        self.now_s += wait_s
        self.waits.after_io_wait(1)
        self.now_s += work_s


def test_a_loop_that_was_just_started_is_idle() -> None:
    assert World().waits.read() == (1, 1)


def test_idle_is_the_share_of_waits() -> None:
    world = World()
    for _ in range(10):
        world.turn(0.75, 0.25)
    assert world.waits.read() == pytest.approx((0.75, 0.75))


def test_the_recent_share_forgets_and_the_other_one_does_not() -> None:
    world = World()
    for _ in range(100):
        world.turn(1, 0)
        world.waits.read()
    for _ in range(100):
        world.turn(0, 1)
        world.waits.read()
    recently, since_start = world.waits.read()
    assert recently == 0
    assert since_start == pytest.approx(0.5)


def test_many_scrapers_do_not_shorten_the_measured_time() -> None:
    world = World()
    for _ in range(int(40 * RECENT_S)):
        world.turn(0.05, 0.05)
        world.waits.read()
    assert world.waits.read().recently == pytest.approx(0.5, abs=0.01)
    assert len(world.waits._readings) <= RECENT_S + 2
