"""A part that is made when somebody first asks for it."""

from __future__ import annotations

import sys

import pytest

from kafkacompat._tests.doubles import HandTime, HandWorkers
from kafkacompat.deferred import Deferred
from kafkacompat.late import Late, NotMade
from kafkacompat.tasks import Tasks

MODULE = "kafkacompat.wire.constructs"
"""Any module."""


class LatePart:
    def __init__(self, module: str = MODULE) -> None:
        self.workers = HandWorkers()
        self.parts: list[str] = []
        self.problem: Exception | None = None
        self.late: Late[str] = Late(module, self._make, self.workers, Tasks(HandTime()))

    def _make(self) -> str:
        if self.problem is not None:
            raise self.problem
        self.parts.append(f"part {len(self.parts)}")
        return self.parts[-1]


def test_nothing_is_imported_or_made_until_somebody_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    late_part = LatePart()
    assert late_part.late.made is None
    late_part.late.ready()
    assert MODULE not in sys.modules, "the worker imports it"
    late_part.workers.run()
    assert MODULE in sys.modules
    assert late_part.late.made == "part 0"


def test_all_who_wait_get_the_same_part() -> None:
    late_part = LatePart()
    asked = [late_part.late.ready() for _ in range(3)]
    assert not any(each.done for each in asked)
    late_part.workers.run()
    assert [each.result() for each in asked] == ["part 0"] * 3
    assert late_part.late.ready().result() == late_part.late.now() == "part 0"


def test_a_start_may_have_it_at_once() -> None:
    late_part = LatePart()
    assert late_part.late.now() == "part 0"
    assert not late_part.workers.submitted


def test_a_caller_may_have_a_part_at_once_while_a_worker_imports_it() -> None:
    late_part = LatePart()
    asked = late_part.late.ready()
    assert late_part.late.now() == "part 0"
    late_part.workers.run()
    assert asked.result() == "part 0"


def test_a_part_that_cannot_be_made_fails_for_those_who_wait_and_is_tried_again() -> None:
    late_part = LatePart()
    late_part.problem = ValueError("no")
    asked, held = late_part.late.ready(), late_part.late.hold(lambda: Deferred.of("answer"))
    late_part.workers.run()
    for each in (asked, held):
        with pytest.raises(NotMade, match="no") as told:
            each.result()
        assert told.value.reason is late_part.problem
    late_part.problem = None
    again = late_part.late.ready()
    late_part.workers.run()
    assert again.result() == "part 0"


def test_a_module_that_is_not_there_fails() -> None:
    late_part = LatePart("kafkacompat.nowhere")
    asked = late_part.late.ready()
    late_part.workers.run()
    with pytest.raises(NotMade, match="nowhere"):
        asked.result()


def test_an_answer_is_held_until_the_part_is_there() -> None:
    late_part = LatePart()
    given: Deferred[str] = Deferred()
    asked: list[str] = []

    def answer() -> Deferred[str]:
        asked.append(late_part.late.now())
        return given

    held = late_part.late.hold(answer)
    assert not asked
    late_part.workers.run()
    assert asked == ["part 0"]
    assert not held.done
    given.resolve("answer")
    assert held.result() == "answer"
    assert late_part.late.hold(answer) is given


def test_an_answer_that_nobody_wants_is_not_asked_for() -> None:
    late_part = LatePart()
    asked: list[str] = []

    def answer() -> Deferred[str]:
        asked.append("asked")
        return Deferred()

    late_part.late.hold(answer).abandon()
    late_part.workers.run()
    assert not asked


def test_the_giver_of_an_answer_hears_that_nobody_wants_it_any_more() -> None:
    late_part = LatePart()
    given: Deferred[str] = Deferred()
    told: list[bool] = []
    given.when_abandoned = lambda: told.append(True)
    held = late_part.late.hold(lambda: given)
    late_part.workers.run()
    held.abandon()
    assert told == [True]


def test_an_answer_that_cannot_be_given_fails() -> None:
    late_part = LatePart()

    def answer() -> Deferred[str]:
        raise ValueError("no")

    held = late_part.late.hold(answer)
    late_part.workers.run()
    with pytest.raises(ValueError, match="no"):
        held.result()
