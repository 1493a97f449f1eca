"""Coroutines that wait for values and times, carried out in steps."""

from __future__ import annotations

import gc
import weakref
from contextlib import suppress
from typing import Any

import pytest

from kafkacompat._tests.doubles import HandTime
from kafkacompat.deferred import Deferred
from kafkacompat.tasks import (
    TURN_COST,
    Cancelled,
    Limit,
    Overloaded,
    Pace,
    Tasks,
    Work,
    at_once,
    in_turns,
    pause,
    sorted_in_steps,
)


class TaskRunner:
    def __init__(self) -> None:
        self.time = HandTime()
        self.tasks = Tasks(self.time)
        self.seen: list[Any] = []

    def turn(self) -> None:
        assert self.time.step()

    async def note(self, value: Deferred[Any], before: str = "", after: str = "") -> Any:
        try:
            found = await value
            self.seen.append(found)
            return found
        finally:
            self.seen.append(after)


@pytest.fixture
def runner() -> TaskRunner:
    return TaskRunner()


def test_a_task_runs_until_it_waits_and_goes_on_where_the_value_is_given(runner: TaskRunner) -> None:
    value: Deferred[int] = Deferred()
    task = runner.tasks.run("waiting", runner.note(value, after="end"))
    assert [each.what for each in runner.tasks] == ["waiting"]
    assert task.waits_for is value
    value.resolve(3)
    assert runner.seen == [3, "end"]
    assert task.result() == 3
    assert not list(runner.tasks)
    assert not runner.time.waiting


@pytest.mark.parametrize("at", [0, 1, 2])
def test_turns_go_on_after_one_that_could_not_be_planned_for_want_of_memory(
    runner: TaskRunner, at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All tasks of a node take turns, so none would ever go on from a pause."""

    async def pauses(name: str) -> None:
        await pause()
        runner.seen.append(name)

    planned = runner.time.call_after
    left = [at]

    def lacks_memory(*arguments: Any) -> Any:
        left[0] -= 1
        if left[0] == -1:
            raise MemoryError
        return planned(*arguments)

    monkeypatch.setattr(runner.time, "call_after", lacks_memory)
    for name in ("first", "second", "third"):
        with suppress(MemoryError):
            runner.tasks.start(name, pauses(name))
            while runner.time.step():
                pass
    while True:
        with suppress(MemoryError):
            if not runner.time.step():
                break
    runner.tasks.start("fourth", pauses("fourth"))
    while runner.time.step():
        pass
    assert runner.seen == ["first", "second", "third", "fourth"]
    assert not list(runner.tasks)


def test_a_value_that_is_there_is_not_waited_for(runner: TaskRunner) -> None:
    assert runner.tasks.run("waiting", runner.note(Deferred.of(3))).result() == 3


def test_a_failure_is_raised_where_the_value_is_awaited_and_goes_on_to_whoever_waits(
    runner: TaskRunner,
) -> None:
    async def failing() -> None:
        await runner.note(value)

    value: Deferred[int] = Deferred()
    task = runner.tasks.run("failing", failing())
    value.fail(KeyError("x"))
    with pytest.raises(KeyError):
        task.result()


def test_the_failure_of_a_task_that_nobody_waits_for_is_reported(runner: TaskRunner, faults: Any) -> None:
    value: Deferred[int] = Deferred()
    runner.tasks.start("failing", runner.note(value))
    error = KeyError("x")
    value.fail(error)
    assert faults.take() == [error]


def test_short_pauses_cost_no_turn_and_long_ones_one_each(runner: TaskRunner) -> None:
    async def work() -> None:
        for number in range(4):
            runner.seen.append(number)
            await pause(TURN_COST // 2)

    runner.tasks.start("work", work())
    assert runner.seen == [0, 1]
    runner.turn()
    assert runner.seen == [0, 1, 2, 3]
    runner.turn()
    assert not runner.time.waiting


def test_tasks_that_pause_take_turns(runner: TaskRunner) -> None:
    async def work(name: str, pieces: int) -> None:
        for _ in range(pieces):
            await pause()
            runner.seen.append(name)

    runner.tasks.start("a", work("a", 3))
    runner.tasks.start("b", work("b", 1))
    for turns in range(1, 5):
        runner.turn()
        assert len(runner.seen) == turns
    assert runner.seen == ["a", "b", "a", "a"]
    assert not runner.time.waiting
    runner.tasks.start("c", work("c", 1))
    runner.turn()
    assert runner.seen[-1] == "c"


def test_a_sleep_ends_at_its_time(runner: TaskRunner) -> None:
    task = runner.tasks.run("sleeping", runner.note(runner.tasks.sleep(50)))
    runner.time.advance(49)
    assert not task.done
    runner.time.advance(1)
    assert task.done


def test_a_cancelled_task_ends_at_its_await_and_leaves_no_timer(runner: TaskRunner) -> None:
    task = runner.tasks.run("sleeping", runner.note(runner.tasks.sleep(50), after="end"))
    task.cancel()
    task.cancel()
    assert runner.seen == ["end"]
    assert not runner.time.waiting
    assert not list(runner.tasks)
    with pytest.raises(Cancelled):
        task.result()


def test_a_value_that_others_wait_for_is_not_abandoned_by_a_cancelled_task(runner: TaskRunner) -> None:
    value: Deferred[int] = Deferred()
    value.when_abandoned = lambda: runner.seen.append("abandoned")
    tasks = [runner.tasks.run("waiting", runner.note(value)) for _ in range(2)]
    tasks[0].cancel()
    assert "abandoned" not in runner.seen
    tasks[1].cancel()
    assert "abandoned" in runner.seen
    value.resolve(3)
    assert 3 not in runner.seen


def test_a_task_may_be_cancelled_by_another_that_waits_for_the_same_value(runner: TaskRunner) -> None:
    value: Deferred[int] = Deferred()

    async def first() -> None:
        await value
        second.cancel()

    runner.tasks.start("first", first())
    second = runner.tasks.run("second", runner.note(value, after="end"))
    value.resolve(3)
    assert runner.seen == ["end"]


def test_a_paused_task_that_is_cancelled_does_not_go_on(runner: TaskRunner) -> None:
    async def work() -> None:
        await pause()
        runner.seen.append("more")

    runner.tasks.start("work", work()).cancel()
    runner.time.advance(0)
    assert not runner.seen


def test_a_task_that_cancels_itself_ends_at_its_next_await(runner: TaskRunner) -> None:
    async def work() -> None:
        await Deferred.of(None)
        (task,) = runner.tasks
        task.cancel()
        runner.seen.append("until here")
        await runner.tasks.sleep(1)
        runner.seen.append("no further")

    runner.tasks.start("work", work())
    assert runner.seen == ["until here"]
    assert not list(runner.tasks)
    runner.time.advance(10)
    assert runner.seen == ["until here"]


@pytest.mark.parametrize("waits_for", ["a time", "a place", "parts"])
def test_what_a_task_waits_for_that_was_cancelled_while_it_ran_is_let_go(
    runner: TaskRunner, waits_for: str
) -> None:
    limit = Limit(1)
    end: Deferred[None] = Deferred()

    async def limited() -> None:
        async with limit:
            await end

    async def work() -> None:
        await value
        task.cancel()
        if waits_for == "a time":
            await runner.tasks.sleep(50)
        elif waits_for == "a place":
            await limited()
        else:
            await runner.tasks.all("part", [runner.note(Deferred(), after="end")])

    runner.tasks.start("holding the place", limited())
    value: Deferred[None] = Deferred()
    task = runner.tasks.run("work", work())
    value.resolve(None)
    assert task.done
    assert [each.what for each in runner.tasks] == ["holding the place"]
    assert not runner.time.waiting
    end.resolve(None)
    assert runner.tasks.run("the next", limited()).done


def test_an_error_in_the_end_of_a_cancelled_task_is_reported(runner: TaskRunner, faults: Any) -> None:
    async def work() -> None:
        try:
            await runner.tasks.sleep(1)
        finally:
            raise KeyError("x")

    runner.tasks.start("work", work()).cancel()
    assert [type(error) for error in faults.take()] == [KeyError]
    assert not list(runner.tasks)


def test_all_gives_the_values_in_order(runner: TaskRunner) -> None:
    values: list[Deferred[Any]] = [Deferred(), Deferred(), Deferred.of(3)]
    task = runner.tasks.all("each", [runner.note(each) for each in values])
    values[1].resolve(2)
    assert not task.done
    values[0].resolve(1)
    assert task.result() == [1, 2, 3]
    assert runner.tasks.all("none", []).result() == []


@pytest.mark.parametrize("failing", [0, 1, 2])
def test_the_first_of_all_that_fails_ends_the_others(runner: TaskRunner, failing: int) -> None:
    values: list[Deferred[Any]] = [Deferred(), Deferred(), Deferred()]
    task = runner.tasks.all("each", [runner.note(each) for each in values])
    values[failing].fail(KeyError(failing))
    with pytest.raises(KeyError):
        task.result()
    assert not list(runner.tasks)


def test_the_first_of_all_may_fail_before_the_others_have_begun(runner: TaskRunner) -> None:
    async def fail() -> None:
        raise KeyError

    task = runner.tasks.all("each", [fail(), runner.note(Deferred(), after="begun")])
    with pytest.raises(KeyError):
        task.result()
    assert not runner.seen
    assert not list(runner.tasks)


def test_all_end_with_whoever_waits_for_them(runner: TaskRunner) -> None:
    async def wait(depth: int) -> None:
        if depth:
            await runner.tasks.all("each", [wait(depth - 1), wait(depth - 1)])
        await runner.tasks.sleep(depth)

    runner.tasks.start("all", wait(2)).cancel()
    assert not list(runner.tasks)
    assert not runner.time.waiting


def test_tasks_that_are_dropped_with_their_node_do_nothing_more(runner: TaskRunner, faults: Any) -> None:
    async def wait() -> None:
        await runner.tasks.all("each", [runner.note(Deferred(), after="end"), runner.note(Deferred())])
        runner.seen.append("more")

    runner.tasks.start("all", wait())
    del runner.tasks
    gc.collect()
    assert "more" not in runner.seen
    assert not faults.take()


def counted(seen: list[Any], pieces: int, cost: int) -> Work[str]:
    for number in range(pieces):
        seen.append(number)
        yield cost
    return "counted"


def test_a_work_pauses_where_it_has_cost_enough(runner: TaskRunner) -> None:
    async def work() -> str:
        return await in_turns(counted(runner.seen, 5, TURN_COST // 2))

    task = runner.tasks.run("work", work())
    assert runner.seen == [0, 1]
    runner.turn()
    assert runner.seen == [0, 1, 2, 3]
    runner.turn()
    assert task.result() == "counted"
    assert not runner.time.waiting


def test_a_work_ends_with_its_task(runner: TaskRunner) -> None:
    def work() -> Work[None]:
        try:
            yield TURN_COST
        finally:
            runner.seen.append("end")

    async def carried_out() -> None:
        await in_turns(work())

    task = runner.tasks.run("work", carried_out())
    task.cancel()
    assert runner.seen == ["end"]


class Body:
    """Takes much memory."""


def test_an_error_that_is_kept_does_not_keep_what_the_task_had(runner: TaskRunner) -> None:
    """It leads to the frames that it has left, and these to it. Garbage collection comes seldom."""
    bodies: list[weakref.ref[Body]] = []
    value: Deferred[None] = Deferred()

    async def inner() -> None:
        body = Body()
        bodies.append(weakref.ref(body))
        await value
        raise AssertionError(body)

    async def outer() -> None:
        body = Body()
        bodies.append(weakref.ref(body))
        await inner()
        raise AssertionError(body)

    failing = runner.tasks.run("failing", outer())
    value.fail(ValueError("no"))
    with pytest.raises(ValueError, match="no"):
        failing.result()
    assert [each() for each in bodies] == [None, None]


def test_a_coroutine_at_once_awaits_only_what_is_there() -> None:
    async def adds(value: Deferred[int]) -> int:
        await pause()
        return 1 + await value

    assert at_once(adds(Deferred.of(2))) == 3
    with pytest.raises(RuntimeError, match="not there"):
        at_once(adds(Deferred()))


def test_a_work_at_once_takes_no_turn() -> None:
    seen: list[Any] = []
    assert at_once(counted(seen, 3, TURN_COST)) == "counted"
    assert seen == [0, 1, 2]


def test_one_pace_counts_through_several_loops() -> None:
    pace = Pace(3)
    assert [pace.is_over() for _ in range(4)] == [False, False, True, False]
    assert pace.is_over(5)


def test_a_limit_gives_its_places_in_order_and_refuses_those_beyond(runner: TaskRunner) -> None:
    limit = Limit(1, 2)
    ends: list[Deferred[None]] = [Deferred() for _ in range(3)]

    async def limited(number: int) -> None:
        async with limit:
            runner.seen.append(number)
            await ends[number]

    tasks = [runner.tasks.run("limited", limited(number)) for number in range(3)]
    assert runner.seen == [0]
    refused = runner.tasks.run("limited", limited(0))
    with pytest.raises(Overloaded):
        refused.result()
    ends[0].resolve(None)
    assert runner.seen == [0]
    runner.turn()
    assert runner.seen == [0, 1]
    ends[1].fail(KeyError("x"))
    runner.turn()
    assert runner.seen == [0, 1, 2]
    ends[2].resolve(None)
    assert all(task.done for task in tasks)
    assert runner.tasks.run("limited", limited(0)).done
    assert runner.seen == [0, 1, 2, 0]


def test_a_limit_that_grows_lets_in_at_once_and_one_that_shrinks_ends_nothing(runner: TaskRunner) -> None:
    limit = Limit(1)
    ends: list[Deferred[None]] = [Deferred() for _ in range(5)]

    async def limited(number: int) -> None:
        async with limit:
            runner.seen.append(number)
            await ends[number]

    for number in range(5):
        runner.tasks.start("limited", limited(number))
    limit.resize(3)
    runner.turn()
    runner.turn()
    assert runner.seen == [0, 1, 2]
    limit.resize(1)
    for number in (0, 1):
        ends[number].resolve(None)
        assert not runner.time.step()
    ends[2].resolve(None)
    runner.turn()
    assert runner.seen == [0, 1, 2, 3]


@pytest.mark.parametrize("has_a_place", [False, True])
def test_whoever_is_cancelled_before_its_turn_leaves_the_place_to_the_next(
    runner: TaskRunner, has_a_place: bool
) -> None:
    limit = Limit(1)
    end: Deferred[None] = Deferred()

    async def limited(number: int, end: Deferred[None]) -> None:
        async with limit:
            runner.seen.append(number)
            await end

    tasks = [runner.tasks.run("limited", limited(number, end)) for number in range(3)]
    if not has_a_place:
        tasks[1].cancel()
    end.resolve(None)
    if has_a_place:
        tasks[1].cancel()
    while runner.time.step():
        pass
    assert runner.seen == [0, 2]
    assert tasks[2].done


@pytest.mark.parametrize("count", [0, 1, 2_000, 2_001, 10_000])
def test_a_long_list_is_sorted_in_steps(count: int) -> None:
    compared = 0

    class Item(int):
        def __lt__(self, other: Any) -> bool:
            nonlocal compared
            compared += 1
            return int.__lt__(self, other)

    items = [Item(7_919 * each % 10_007) for each in range(count)]
    assert at_once(sorted_in_steps(items)) == sorted(int(each) for each in items)
    before, most = compared, 0
    for _ in sorted_in_steps(items):
        most, before = max(most, compared - before), compared
    assert max(most, compared - before) <= 30_000
    assert most or count <= 2_000
