"""Requests that wait together: one that cannot be answered affects neither the others nor the caller that wakes them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from types import SimpleNamespace
from typing import Any
from weakref import WeakSet

import pytest

from kafkacompat._tests.doubles import HandTime
from kafkacompat.partition.delayed_operations import (
    LOOK_US,
    DelayedOperation,
    DelayedOperationPurgatory,
    TurnBudget,
)
from kafkacompat.partition.purgatories import Wakeups
from kafkacompat.wire.errors import ErrorCode

KEY = ("t", 0)


class Asked(DelayedOperation):
    __slots__ = ("problem",)

    def __init__(self, problem: Exception | None = None) -> None:
        super().__init__()
        self.problem = problem

    def expire(self) -> None:
        if self.problem is not None:
            raise self.problem
        self.answer.resolve("here")


def parked(time: HandTime, *delays_ms: int) -> tuple[DelayedOperationPurgatory[Asked], list[Asked]]:
    """Parked requests, of which the second cannot be answered."""
    waits: DelayedOperationPurgatory[Asked] = DelayedOperationPurgatory(time, time, TurnBudget(time))
    asked = [Asked(KeyError("of the second") if index == 1 else None) for index in range(len(delays_ms))]
    for each, delay_ms in zip(asked, delays_ms, strict=True):
        waits.park(each, [KEY], delay_ms)
    return waits, asked


def outcome(asked: Asked) -> str:
    try:
        return str(asked.answer.result())
    except KeyError:
        return "failed"


def answer(waiter: Asked, moved: object) -> None:
    waiter.expire()


def test_one_that_cannot_be_answered_when_its_partition_moves(faults: Any) -> None:
    waits, asked = parked(HandTime(), 10, 10, 10)
    waits.for_each_on(KEY, answer, None)
    assert [outcome(each) for each in asked] == ["here", "failed", "here"]
    assert faults.take() == [asked[1].problem]
    assert not asked[1].parked


@pytest.mark.parametrize("last_ms", [10, 20])
def test_one_that_cannot_be_answered_when_its_time_is_up(last_ms: int, faults: Any) -> None:
    time = HandTime()
    waits, asked = parked(time, 10, 10, last_ms)
    time.advance(30)
    assert [outcome(each) for each in asked] == ["here", "failed", "here"]
    assert faults.take() == [asked[1].problem]
    assert len(waits) == 0


class Records:
    """What a request is answered with."""


def test_what_a_request_was_answered_with_is_not_kept_until_its_deadline() -> None:
    """A client may allow days. What it got is records, or a part of a file that is deleted meanwhile."""
    waits, asked = parked(HandTime(), *[1_000_000] * 10)
    kept: WeakSet[Records] = WeakSet()
    for each in asked[2:]:
        records = Records()
        kept.add(records)
        waits.remove(each)
        each.answer.resolve(records)
    del each, records, asked[2:]
    assert len(kept) == 0
    assert waits.all() == asked


def test_an_append_does_not_fail_with_the_requests_that_it_wakes(faults: Any) -> None:
    wakeups = Wakeups({}, lambda key: ErrorCode.NOT_LEADER_OR_FOLLOWER, HandTime(), HandTime())
    told: list[object] = []
    core: Any = SimpleNamespace(topic_partition=KEY)
    problem = KeyError("of a watcher")

    def broken(_: object) -> None:
        raise problem

    for watch in (wakeups.watch, wakeups.watch_appends):
        watch(broken)
        watch(told.append)
    wakeups.hold()
    wakeups.advanced(core)
    wakeups.appended(core)
    wakeups.release()
    assert told == [core, core]
    assert faults.take() == [problem, problem]


class Costly(Asked):
    """Its answer costs what it is told."""

    __slots__ = ("us",)

    def __init__(self, us: int) -> None:
        super().__init__()
        self.us = us

    def expire(self) -> None:
        super().expire()
        self.cost_us = self.us


TURN_US = 400
A_QUARTER_US = TURN_US // 4


def of_a_node(
    time: HandTime, count: int, us: int, lists: int = 1, delay_ms: int = 10_000
) -> tuple[list[DelayedOperationPurgatory[Costly]], list[Costly]]:
    """Lists that share a budget. The first one has requests whose answers cost `us` each."""
    budget = TurnBudget(time, TURN_US)
    waits: list[DelayedOperationPurgatory[Costly]] = [
        DelayedOperationPurgatory(time, time, budget) for _ in range(lists)
    ]
    asked = [Costly(us) for _ in range(count)]
    for each in asked:
        waits[0].park(each, [KEY], delay_ms)
    return waits, asked


def finishing(waits: DelayedOperationPurgatory[Costly]) -> Callable[[Costly, object], None]:
    def finish(waiter: Costly, moved: object) -> None:
        waits.remove(waiter)
        waiter.expire()

    return finish


def answered(asked: list[Costly]) -> list[bool]:
    return [each.answer.done for each in asked]


def test_what_one_turn_answers_costs_no_more_than_its_budget_however_many_wait() -> None:
    time = HandTime()
    (waits,), asked = of_a_node(time, 13, A_QUARTER_US)
    waits.for_each_on(KEY, finishing(waits), "core")
    # A quarter of each later turn is left for requests that are woken then.
    for count in (4, 7, 10, 13):
        assert answered(asked) == [True] * count + [False] * (13 - count)
        time.step()
    assert len(waits) == 0
    assert waits.by_key == {}


def test_a_few_answers_that_cost_much_take_a_turn_each() -> None:
    time = HandTime()
    (waits,), asked = of_a_node(time, 3, 10 * TURN_US)
    waits.for_each_on(KEY, finishing(waits), "core")
    for count in (1, 2, 3):
        assert sum(answered(asked)) == count
        time.step()


def test_what_is_woken_now_does_not_wait_for_what_is_left_over() -> None:
    time = HandTime()
    (waits, others), _ = of_a_node(time, 100, A_QUARTER_US, lists=2)
    waits.for_each_on(KEY, finishing(waits), "core")
    time.step()
    single = Costly(1)
    others.park(single, [KEY], 10_000)
    others.for_each_on(KEY, finishing(others), "core")
    assert single.answer.done


def test_all_keys_and_all_lists_share_a_turn() -> None:
    """One request may change many partitions, for which requests of several kinds wait."""
    time = HandTime()
    lists, _ = of_a_node(time, 0, 0, lists=3)
    asked = [Costly(A_QUARTER_US) for _ in range(30)]
    for index, each in enumerate(asked):
        lists[index % 3].park(each, [index], 10_000)
    for index in range(30):
        lists[index % 3].for_each_on(index, finishing(lists[index % 3]), "core")
    assert sum(answered(asked)) == 4
    turns = 0
    while not all(answered(asked)):
        before = sum(answered(asked))
        assert time.step()
        assert 0 < sum(answered(asked)) - before <= 4
        turns += 1
    assert turns > 6


def test_looks_count_too() -> None:
    """Requests that ask for more bytes than there are get no answer, however often a partition moves."""
    time = HandTime()
    (waits,), _ = of_a_node(time, TURN_US, 0)
    looked: list[Costly] = []
    waits.for_each_on(KEY, lambda waiter, _: looked.append(waiter), "core")
    assert len(looked) == -(-TURN_US // LOOK_US)
    while time.step():
        pass
    assert len(looked) == TURN_US


def test_what_moves_again_while_very_many_are_looked_at_is_looked_at_once_more_for_all() -> None:
    time = HandTime()
    (waits,), asked = of_a_node(time, 8, 0)
    looked: list[tuple[int, str]] = []

    def look(waiter: Costly, moved: str) -> None:
        looked.append((asked.index(waiter), moved))
        waiter.cost_us = TURN_US // 3

    waits.for_each_on(KEY, look, "core")
    for _ in range(5):
        waits.for_each_on(KEY, look, "core")
    waits.for_each_on(KEY, look, "other")
    waits.for_each_on(KEY, look, "other")
    waits.remove(asked[7])
    while time.step():
        assert len(looked) < 40
    of_core = [index for index, moved in looked if moved == "core"]
    assert of_core == [*range(7), *range(7)]
    assert [index for index, moved in looked if moved == "other"] == [*range(7)]


def test_what_one_turn_answers_at_a_deadline_costs_no_more_than_its_budget() -> None:
    time = HandTime()
    (waits,), asked = of_a_node(time, 10, A_QUARTER_US, delay_ms=10)
    for count in (4, 7, 10):
        time.fire_next()
        assert sum(answered(asked)) == waits.expirations == count
    assert [each.answer.result() for each in asked] == ["here"] * 10
    late = Costly(1)
    waits.park(late, [KEY], 10)
    time.advance(10)
    assert late.answer.done


def test_deadlines_and_what_moves_take_turns() -> None:
    time = HandTime()
    (waits,), due = of_a_node(time, 40, A_QUARTER_US, delay_ms=10)
    woken = [Costly(A_QUARTER_US) for _ in range(40)]
    for each in woken:
        waits.park(each, ["other"], 10_000)
    waits.for_each_on("other", finishing(waits), "core")
    time.ms += 10
    for _ in range(6):
        time.step()
    assert any(answered(due))
    assert not all(answered(due))
    assert not all(answered(woken))
    while time.step():
        pass
    assert all(answered(due + woken))


@pytest.mark.parametrize("mover", range(8))
def test_what_moves_while_it_is_looked_at_is_looked_at_by_all_however_little_the_turn_has_left(
    mover: int,
) -> None:
    """An answer may append to the same partition. Nobody who was looked at before must miss that."""
    time = HandTime()
    (waits,), asked = of_a_node(time, 8, 0)
    end = 0
    seen = [-1] * 8

    def look(waiter: Costly, moved: str) -> None:
        nonlocal end
        index = asked.index(waiter)
        seen[index] = end
        waiter.cost_us = TURN_US // 6
        if index == mover and not end:
            end = 1
            waits.for_each_on(KEY, look, moved)

    waits.for_each_on(KEY, look, "core")
    while time.step():
        pass
    assert seen == [1] * 8


@pytest.mark.parametrize("at", [0, 1], ids=["the first", "an earlier one"])
def test_parked_requests_end_although_a_timer_could_not_be_set_for_want_of_memory(
    at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    time = HandTime()
    waits, _ = parked(time)
    delays_ms = (30, 20, 40)
    asked = [Asked() for _ in delays_ms]
    for index, (each, delay_ms) in enumerate(zip(asked, delays_ms, strict=True)):
        with monkeypatch.context() as patched:
            if index == at:
                patched.setattr(time, "call_at", lacks_memory)
            with suppress(MemoryError):
                waits.park(each, [KEY], delay_ms)
    time.advance(50)
    assert [outcome(each) for each in asked] == ["here"] * 3


def lacks_memory(*_: object) -> Any:
    raise MemoryError
