"""The idle time of the event loop, from its waits."""

from __future__ import annotations

import pytest
import trio

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


def test_a_look_at_the_sockets_is_no_wait() -> None:
    world = World()
    world.waits.before_io_wait(0)
    world.now_s += 1
    world.waits.after_io_wait(0)
    assert world.waits.read() == (0, 0)


async def test_trio_tells_of_its_waits() -> None:
    waits = LoopWaits()
    trio.lowlevel.add_instrument(waits)
    try:
        await trio.sleep(0.02)
        assert 0 < waits.read().since_start <= 1
        assert waits._waited_s >= 0.015
    finally:
        trio.lowlevel.remove_instrument(waits)
