"""Requests that wait together: one that cannot be answered affects neither the others nor the caller that wakes them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kafkacompat._tests.doubles import HandTime
from kafkacompat.partition.delayed_operations import DelayedOperation, DelayedOperationPurgatory
from kafkacompat.partition.wakeups import Wakeups

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
    waits: DelayedOperationPurgatory[Asked] = DelayedOperationPurgatory(time, time)
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


def test_whoever_appends_does_not_hear_of_those_who_are_woken(faults: Any) -> None:
    wakeups = Wakeups({}, HandTime(), HandTime())
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


def test_very_many_are_answered_a_few_a_turn_in_the_order_in_which_they_came() -> None:
    time = HandTime()
    waits: DelayedOperationPurgatory[Asked] = DelayedOperationPurgatory(time, time, acted_at_once=3)
    asked = [Asked() for _ in range(10)]
    for each in asked:
        waits.park(each, [KEY], 10_000)

    def finish(waiter: Asked, moved: object) -> None:
        waits.remove(waiter)
        waiter.expire()

    waits.for_each_on(KEY, finish, "core")
    for answered in (3, 6, 9, 10):
        assert [each.answer.done for each in asked] == [True] * answered + [False] * (10 - answered)
        time.step()
    assert len(waits) == 0
    assert waits.by_key == {}


def test_what_moves_again_while_very_many_are_looked_at_is_looked_at_once_more_for_all() -> None:
    time = HandTime()
    waits: DelayedOperationPurgatory[Asked] = DelayedOperationPurgatory(time, time, acted_at_once=3)
    asked = [Asked() for _ in range(8)]
    for each in asked:
        waits.park(each, [KEY], 10_000)
    looked: list[tuple[int, str]] = []

    def look(waiter: Asked, moved: str) -> None:
        looked.append((asked.index(waiter), moved))

    waits.for_each_on(KEY, look, "core")
    for _ in range(5):
        waits.for_each_on(KEY, look, "core")
    waits.for_each_on(KEY, look, "other")
    waits.remove(asked[7])
    while time.step():
        assert len(looked) < 40
    of_core = [index for index, moved in looked if moved == "core"]
    assert of_core == [*range(7), *range(7)]
    assert [index for index, moved in looked if moved == "other"] == [*range(7)]


def test_very_many_whose_time_is_up_are_answered_a_few_a_turn() -> None:
    time = HandTime()
    waits: DelayedOperationPurgatory[Asked] = DelayedOperationPurgatory(time, time, acted_at_once=3)
    asked = [Asked() for _ in range(7)]
    for each in asked:
        waits.park(each, [KEY], 10)
    for answered in (3, 6, 7):
        time.fire_next()
        assert sum(each.answer.done for each in asked) == waits.expirations == answered
    assert [each.answer.result() for each in asked] == ["here"] * 7
