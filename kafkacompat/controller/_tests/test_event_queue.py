"""Commands that wait for others: at most so many, and those that are refused are counted."""

from __future__ import annotations

from functools import partial

import pytest

from kafkacompat._tests.doubles import HandTime
from kafkacompat.api.request_context import ControllerTimedOut
from kafkacompat.controller import event_queue as module
from kafkacompat.controller._tests.harness import Harness
from kafkacompat.controller.event_queue import COMMAND_COST, EventQueue
from kafkacompat.deferred import Deferred
from kafkacompat.tasks import TURN_COST, Tasks, Work


def long() -> Work[Deferred[str]]:
    yield TURN_COST
    return Deferred.of("long")


def test_commands_beyond_the_bound_are_refused_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_WAITING", 2)
    time = HandTime()
    queue = EventQueue(Tasks(time))
    answers = [queue.submit_steps(long) for _ in range(3)]
    for _ in range(2):
        with pytest.raises(ControllerTimedOut):
            queue.submit(lambda: Deferred.of("short"))
    assert queue.timed_out == 2
    while not all(answer.done for answer in answers):
        time.fire_next()
    assert queue.submit(lambda: Deferred.of("short")).result() == "short"
    assert queue.timed_out == 2


@pytest.mark.parametrize("step_cost", [0, 1, TURN_COST // 2, TURN_COST - 1])
def test_commands_that_have_waited_are_run_a_few_in_each_turn_and_in_order(step_cost: int) -> None:
    time = HandTime()
    queue = EventQueue(Tasks(time))
    seen: list[int] = []

    def short(number: int) -> Deferred[int]:
        seen.append(number)
        return Deferred.of(number)

    def steps(number: int) -> Work[Deferred[int]]:
        yield step_cost
        return short(number)

    def ask(number: int) -> Deferred[int]:
        if step_cost:
            return queue.submit_steps(partial(steps, number))
        return queue.submit(partial(short, number))

    first = queue.submit_steps(long)
    answers = [ask(number) for number in range(100)]
    assert time.step()
    assert first.done
    answers.append(ask(100))
    most = TURN_COST // (COMMAND_COST + step_cost) + 1
    assert len(seen) <= most
    while len(seen) < 101:
        before = len(seen)
        assert time.step()
        assert len(seen) - before <= most
    assert seen == list(range(101)) == [answer.result() for answer in answers]
    assert not queue.is_busy
    assert queue.submit(lambda: short(101)).done
    assert not time.waiting


def test_a_command_in_steps_that_one_which_waited_begins_is_not_overtaken() -> None:
    time = HandTime()
    queue = EventQueue(Tasks(time))
    seen: list[str] = []

    def short(name: str) -> Deferred[str]:
        seen.append(name)
        return Deferred.of(name)

    def begun() -> Work[Deferred[str]]:
        yield TURN_COST
        return short("begun")

    def begins() -> Deferred[str]:
        queue.submit_steps(begun).unheeded("begun")
        queue.submit(lambda: short("after it")).unheeded("after it")
        return short("begins")

    queue.submit_steps(long).unheeded("long")
    queue.submit(begins).unheeded("begins")
    while time.step():
        pass
    assert seen == ["begins", "begun", "after it"]
    assert not queue.is_busy


def test_refused_heartbeats_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = Harness().start()
    epoch = harness.serve()
    assert harness.controller.timed_out_heartbeats == 0
    monkeypatch.setattr(module, "MAX_WAITING", 0)
    harness.controller.event_queue.submit_steps(long)
    with pytest.raises(ControllerTimedOut):
        harness.beat(epoch)
    assert harness.controller.timed_out_heartbeats == 1
