"""Commands that wait for others: at most so many, and those that are refused are counted."""

from __future__ import annotations

import pytest

from kafkacompat._tests.doubles import HandTime
from kafkacompat.api.request_context import ControllerTimedOut
from kafkacompat.controller import turns as module
from kafkacompat.controller._tests.harness import Harness
from kafkacompat.controller.turns import Turns
from kafkacompat.deferred import Deferred
from kafkacompat.tasks import TURN_COST, Tasks, Work


def long() -> Work[Deferred[str]]:
    yield TURN_COST
    return Deferred.of("long")


def test_commands_beyond_the_bound_are_refused_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_WAITING", 2)
    time = HandTime()
    turns = Turns(Tasks(time))
    answers = [turns.take_steps(long) for _ in range(3)]
    for _ in range(2):
        with pytest.raises(ControllerTimedOut):
            turns.take(lambda: Deferred.of("short"))
    assert turns.timed_out == 2
    while not all(answer.done for answer in answers):
        time.fire_next()
    assert turns.take(lambda: Deferred.of("short")).result() == "short"
    assert turns.timed_out == 2


def test_refused_heartbeats_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = Harness().start()
    epoch = harness.serve()
    assert harness.controller.timed_out_heartbeats == 0
    monkeypatch.setattr(module, "MAX_WAITING", 0)
    harness.controller._turns.take_steps(long)
    with pytest.raises(ControllerTimedOut):
        harness.beat(epoch)
    assert harness.controller.timed_out_heartbeats == 1
