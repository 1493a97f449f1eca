"""Work in steps: in turn, one at a time, so many at once, and what fails."""

from __future__ import annotations

import weakref
from collections.abc import Generator
from typing import Any

import pytest

from kafkacompat._tests.doubles import HandTime, HandWorkers
from kafkacompat.deferred import Deferred
from kafkacompat.stepping.jobs import STEPS_S, Stepping, all_steps, driven
from kafkacompat.tasks import Overloaded, Pace


class Body:
    """Takes much memory."""


class Machinery(HandTime):
    """Timers and workers that act when told to."""

    def __init__(self) -> None:
        super().__init__()
        self.workers = HandWorkers()
        self.submit = self.workers.submit

    def fire(self) -> None:
        assert self.waiting == [0], "one step at a time"
        self.fire_next()


def steps(name: str, count: int, done: list[str]) -> Generator[None, Any, str]:
    for index in range(count):
        done.append(f"{name}{index}")
        yield None
    return name


def test_work_is_done_in_turn_one_step_each_time() -> None:
    machinery, done = Machinery(), list[str]()
    stepping = Stepping(machinery, machinery, 2, 2)
    answers = [stepping.submit(steps(name, 2, done)) for name in "abc"]
    assert done == []
    while machinery.pending():
        before = len(done)
        machinery.fire()
        assert len(done) <= before + 1
    assert done == ["a0", "b0", "a1", "b1", "c0", "c1"]
    assert [answer.result() for answer in answers] == ["a", "b", "c"]


def test_too_much_work_is_refused() -> None:
    machinery = Machinery()
    stepping = Stepping(machinery, machinery, 1, 1)
    answers = [stepping.submit(steps(name, 1, [])) for name in "abc"]
    assert [answer.done for answer in answers] == [False, False, True]
    with pytest.raises(Overloaded):
        answers[2].result()


def test_jobs_and_what_comes_later_are_waited_for() -> None:
    machinery = Machinery()
    stepping = Stepping(machinery, machinery, 1, 0)
    later: Deferred[int] = Deferred()

    def work() -> Generator[Any, Any, int]:
        first = yield lambda: 3
        second = yield later
        try:
            yield lambda: 1 // 0
        except ZeroDivisionError:
            return first + second  # type: ignore[no-any-return]
        return 0

    answer = stepping.submit(work())
    machinery.fire()
    job, given = machinery.workers.submitted.pop()
    given.resolve(job())
    machinery.fire()
    assert not machinery.pending()
    later.resolve(4)
    machinery.fire()
    _, given = machinery.workers.submitted.pop()
    given.fail(ZeroDivisionError())
    machinery.fire()
    assert answer.result() == 7
    later_done: Deferred[int] = Deferred.of(4)
    later = later_done
    assert all_steps(work()) == 7


def test_work_that_fails_makes_room_for_the_next() -> None:
    machinery = Machinery()
    stepping = Stepping(machinery, machinery, 1, 1)

    def failing() -> Generator[None, Any, None]:
        yield None
        raise ValueError("a bug")

    failed, done = stepping.submit(failing()), stepping.submit(steps("b", 1, []))
    while machinery.pending():
        machinery.fire()
    with pytest.raises(ValueError, match="a bug"):
        failed.result()
    assert done.result() == "b"


def test_an_error_that_is_kept_does_not_keep_what_the_steps_had() -> None:
    """It leads to the frames that it has left, and these to it. Garbage collection comes seldom."""
    machinery = Machinery()
    stepping = Stepping(machinery, machinery, 1, 0)
    bodies: list[weakref.ref[Body]] = []

    def inner() -> Generator[Any, Any, None]:
        body = Body()
        bodies.append(weakref.ref(body))
        yield machinery_fails
        raise AssertionError(body)

    def outer() -> Generator[Any, Any, None]:
        body = Body()
        bodies.append(weakref.ref(body))
        yield from inner()

    def machinery_fails() -> None:
        raise ValueError("no")

    failing = stepping.submit(outer())
    machinery.fire()
    machinery.workers.run()
    machinery.fire()
    with pytest.raises(ValueError, match="no"):
        failing.result()
    assert [each() for each in bodies] == [None, None]


def test_with_a_clock_small_steps_are_done_together() -> None:
    machinery, done = Machinery(), list[str]()
    now_s = 0.0

    def monotonic() -> float:
        nonlocal now_s
        now_s += STEPS_S / 4
        return now_s

    stepping = Stepping(machinery, machinery, 10, 0, monotonic)
    stepping.submit(steps("a", 8, done))
    machinery.fire()
    assert len(done) == 4
    while machinery.pending():
        machinery.fire()
    assert len(done) == 8


def test_work_that_is_driven_waits_for_what_comes_later_only() -> None:
    later: Deferred[int] = Deferred()
    refused: Deferred[int] = Deferred()

    def work() -> Generator[Any, Any, int]:
        yield None
        given = yield later
        try:
            yield refused
        except ValueError:
            given += yield lambda: 1
        return given + 1

    value = driven(work())
    later.resolve(5)
    assert not value.done
    refused.fail(ValueError())
    assert value.result() == 7

    def fails() -> Generator[Any, Any, int]:
        yield None
        raise KeyError

    with pytest.raises(KeyError):
        driven(fails()).result()


def test_a_step_is_over_when_as_much_is_done_whichever_loop_did_it() -> None:
    pace = Pace(10)
    assert [pace.is_over(4), pace.is_over(4), pace.is_over(4)] == [False, False, True]
    assert [pace.is_over() for _ in range(10)] == [False] * 9 + [True]
