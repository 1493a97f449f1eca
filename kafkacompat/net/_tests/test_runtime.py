"""Timers, waits and random numbers."""

from __future__ import annotations

import resource
from functools import partial

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from kafkacompat.deferred import Deferred
from kafkacompat.ids import uuid_to_text
from kafkacompat.net import runtime
from kafkacompat.net.runtime import (
    CANCELLED_TIMERS_KEPT,
    SystemRandom,
    TrioClock,
    TrioTimers,
    carry_out,
    later,
    raise_descriptor_limit,
    wait_for,
)


async def test_timers_fire_in_order_and_never_early(autojump_clock: trio.testing.MockClock) -> None:
    clock = TrioClock(1_000_000)
    timers = TrioTimers(clock)
    fired: list[tuple[str, int]] = []

    def note(name: str) -> None:
        fired.append((name, clock.monotonic_ms()))

    async with trio.open_nursery() as nursery:
        await nursery.start(timers.run)
        start_ms = clock.monotonic_ms()
        timers.call_after(50, lambda: note("b"))
        timers.call_after(50, lambda: note("c"))
        cancelled = timers.call_after(20, lambda: note("never"))
        await trio.testing.wait_all_tasks_blocked()
        timers.call_after(10, lambda: (note("a"), timers.call_after(100, lambda: note("d"))))  # type: ignore[arg-type,return-value]
        cancelled.cancel()
        cancelled.cancel()
        assert len(timers) == 3
        await trio.sleep(1)
        nursery.cancel_scope.cancel()
    assert [name for name, _ in fired] == ["a", "b", "c", "d"]
    for (_, at_ms), due_ms in zip(fired, (10, 50, 50, 110), strict=True):
        assert due_ms <= at_ms - start_ms <= due_ms + 2
    assert len(timers) == 0


async def test_a_timer_that_fails_does_not_stop_the_others(autojump_clock: trio.testing.MockClock) -> None:
    errors: list[Exception] = []
    timers = TrioTimers(TrioClock(0), errors.append)
    fired: list[int] = []
    async with trio.open_nursery() as nursery:
        await nursery.start(timers.run)
        timers.call_after(1, lambda: [][0])
        timers.call_after(1, lambda: fired.append(1))
        await trio.sleep(0.1)
        nursery.cancel_scope.cancel()
    assert fired == [1]
    assert isinstance(errors[0], IndexError)


async def test_cancelled_timers_do_not_pile_up() -> None:
    timers = TrioTimers(TrioClock(0))
    for _ in range(10_000):
        timers.call_after(1_000_000, lambda: None).cancel()
    assert len(timers) == 0
    assert len(timers._heap) <= CANCELLED_TIMERS_KEPT + 1


class Wakes(trio.abc.Instrument):
    """How often the timers' task had its turn."""

    count = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        if task.name.endswith("TrioTimers.run"):
            self.count += 1


async def test_a_postponed_timer_fires_once_at_its_later_time(autojump_clock: trio.testing.MockClock) -> None:
    clock = TrioClock(0)
    timers = TrioTimers(clock)
    fired: list[tuple[str, int]] = []

    def note(name: str) -> None:
        fired.append((name, clock.monotonic_ms()))

    async with trio.open_nursery() as nursery:
        await nursery.start(timers.run)
        start_ms = clock.monotonic_ms()
        first = timers.call_after(10, lambda: note("first"))
        timers.call_after(50, lambda: note("second"))
        cancelled = timers.call_after(15, lambda: note("never"))
        for to_ms in (30, 70):
            first.postpone(start_ms + to_ms)
            cancelled.postpone(start_ms + to_ms)
        cancelled.cancel()
        assert len(timers) == 2
        await trio.sleep(1)
        first.postpone(clock.monotonic_ms() + 10)
        await trio.sleep(1)
        nursery.cancel_scope.cancel()
    assert [name for name, _ in fired] == ["second", "first"]
    for (_, at_ms), due_ms in zip(fired, (50, 70), strict=True):
        assert due_ms <= at_ms - start_ms <= due_ms + 2
    assert len(timers) == 0


async def test_a_timer_may_be_postponed_by_one_that_is_due_at_the_same_time(
    autojump_clock: trio.testing.MockClock,
) -> None:
    clock = TrioClock(0)
    timers = TrioTimers(clock)
    fired: list[int] = []
    async with trio.open_nursery() as nursery:
        await nursery.start(timers.run)
        due_ms = clock.monotonic_ms() + 10
        timers.call_at(due_ms, lambda: other.postpone(due_ms + 40))
        other = timers.call_at(due_ms, lambda: fired.append(clock.monotonic_ms()))
        await trio.sleep(1)
        nursery.cancel_scope.cancel()
    assert len(fired) == 1
    assert due_ms + 40 <= fired[0] <= due_ms + 42


async def test_many_postponed_timers_wake_the_loop_once(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sessions of members whose heartbeats come evenly."""
    monkeypatch.setattr(runtime, "monotonic", lambda: 0.0)
    clock = TrioClock(0)
    timers = TrioTimers(clock)
    fired: list[int] = []
    async with trio.open_nursery() as nursery:
        await nursery.start(timers.run)
        start_ms = clock.monotonic_ms()
        sessions = [timers.call_after(1_000 + each, partial(fired.append, each)) for each in range(100)]
        for each, timer in enumerate(sessions):
            timer.postpone(start_ms + 5_000 + each)
        await trio.testing.wait_all_tasks_blocked()
        wakes = Wakes()
        trio.lowlevel.add_instrument(wakes)
        await trio.sleep(4)
        assert wakes.count == 1
        trio.lowlevel.remove_instrument(wakes)
        assert fired == []
        await trio.sleep(2)
        nursery.cancel_scope.cancel()
    assert fired == list(range(100))


async def test_nothing_wakes_while_no_timer_is_due(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime, "monotonic", lambda: 0.0)
    timers = TrioTimers(TrioClock(0))
    async with trio.open_nursery() as nursery:
        await nursery.start(timers.run)
        for delay_ms in range(100, 200):
            timers.call_after(3_600_000 + delay_ms, lambda: None).cancel()
        timers.call_after(3_600_000, lambda: None)
        await trio.testing.wait_all_tasks_blocked()
        wakes = Wakes()
        trio.lowlevel.add_instrument(wakes)
        await trio.sleep(3599)
        assert wakes.count == 0
        await trio.sleep(2)
        assert wakes.count == 1
        trio.lowlevel.remove_instrument(wakes)
        nursery.cancel_scope.cancel()


async def test_waiting_may_be_given_up() -> None:
    deferred: Deferred[int] = Deferred()
    with trio.move_on_after(0) as scope:
        await wait_for(deferred)
    assert scope.cancelled_caught
    deferred.resolve(1)
    assert await wait_for(deferred) == 1


def test_random_uuids_fit_everywhere() -> None:
    random = SystemRandom()
    uuids = {random.uuid() for _ in range(2000)}
    assert len(uuids) == 2000
    assert not any(uuid_to_text(uuid).startswith("-") for uuid in uuids)


@given(stop=st.integers(1, 2**70))
def test_randrange_stays_in_range(stop: int) -> None:
    assert 0 <= SystemRandom().randrange(stop) < stop


def test_the_limit_of_open_files_is_raised_as_far_as_it_goes() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(64, hard) if hard > 0 else 64, hard))
        raise_descriptor_limit()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_a_coroutine_that_waits_for_deferred_values_is_carried_out() -> None:
    first: Deferred[int] = Deferred()
    second: Deferred[int] = Deferred()

    async def steps() -> int:
        try:
            await second
        except KeyError:
            return await first + await Deferred.of(1)
        return 0

    values: list[int] = []

    async def run() -> None:
        values.append(await carry_out(steps()))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        await trio.testing.wait_all_tasks_blocked()
        second.fail(KeyError())
        await trio.testing.wait_all_tasks_blocked()
        assert values == []
        first.resolve(41)
    assert values == [42]


async def test_a_coroutine_that_is_called_off_ends_where_it_waits() -> None:
    never: Deferred[None] = Deferred()
    ended: list[str] = []

    async def steps() -> None:
        try:
            await never
        finally:
            ended.append("in order")

    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(carry_out, steps())
            await trio.testing.wait_all_tasks_blocked()
            scope.cancel()
    assert ended == ["in order"]
    never.resolve(None)


async def test_the_value_of_a_coroutine_of_the_loop_comes_later(nursery: trio.Nursery) -> None:
    async def gives() -> int:
        await trio.lowlevel.checkpoint()
        return 7

    async def fails() -> int:
        raise OSError("no such thing")

    assert await wait_for(later(nursery, gives)) == 7
    with pytest.raises(OSError, match="no such thing"):
        await wait_for(later(nursery, fails))
