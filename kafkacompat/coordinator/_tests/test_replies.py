"""Whoever asks a shard is answered exactly once, in the order in which things happen, whatever becomes of the operation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kafkacompat.coordinator._tests.test_shard import Heard, Result, UnstartedShard, loaded
from kafkacompat.coordinator.core import Caller, CoordinatorResult, OperationRefused
from kafkacompat.coordinator.shard import REPLIES_AT_ONCE
from kafkacompat.deferred import Deferred
from kafkacompat.wire.errors import ErrorCode as E


class Asked:
    """What the callers of a world's shard hear, in order."""

    def __init__(self, world: UnstartedShard) -> None:
        self.world = world
        self.heard: list[tuple[str, Any]] = []

    def ask(self, name: str, operation: Callable[[Caller, int], Any]) -> Any:
        answer = self.world.shard.ask(operation)
        answer.on_done(lambda done: self.heard.append((name, self._told(done))))
        return answer

    @staticmethod
    def _told(done: Deferred[Any]) -> Any:
        try:
            return done.result().said
        except OperationRefused as refusal:
            return refusal.code

    def park(self, name: str) -> None:
        def operation(caller: Caller, now_ms: int) -> Result:
            self.world.machine.parked.append(caller)
            return CoordinatorResult((), None)

        self.ask(name, operation)

    def answer_parked(self, said: str, *records: str, **options: Any) -> Result:
        parked, self.world.machine.parked = self.world.machine.parked, []
        replies = [(caller, Heard(said)) for caller in parked]
        return CoordinatorResult(records, None, replies=replies, **options)  # type: ignore[arg-type]


def replied(caller: Caller, said: str, *records: str, **options: Any) -> Result:
    return CoordinatorResult(records, None, replies=((caller, Heard(said)),), **options)  # type: ignore[arg-type]


@pytest.fixture
def asked() -> Asked:
    return Asked(loaded("a"))


def during_a_write(asked: Asked, act: Callable[[], object]) -> None:
    """Act while another operation's record is in the log and not replayed yet."""
    operations = asked.world.shard._operations
    operations.submit(lambda: Deferred.of(operations.exclusively(act)))


def test_replies_are_sent_after_the_replay_and_in_their_order(asked: Asked) -> None:
    for name in ("one", "two"):
        asked.park(name)
    said = asked.world.machine.said
    (first, second), asked.world.machine.parked = asked.world.machine.parked, []
    written = asked.world.shard.write(
        lambda _: replied(second, f"{said} before", "record").after([(first, Heard("first"))])  # type: ignore[list-item]
    )
    written.unheeded("test")
    assert asked.heard == [("one", "first"), ("two", "['a'] before")]
    assert said == ["a", "record"]


def test_a_reply_does_not_wait_for_the_commit_but_what_committed_gives_does(asked: Asked) -> None:
    asked.world.partitions.held = True
    asked.park("parked")

    def operation(caller: Caller, now_ms: int) -> Result:
        return asked.answer_parked(
            "at once", "record", committed=lambda code, at_ms: replied(caller, code.name)
        )

    asked.ask("own", operation)
    assert asked.heard == [("parked", "at once")]
    asked.world.partitions.release()
    assert asked.heard == [("parked", "at once"), ("own", "NONE")]


@pytest.mark.parametrize("error", [E.REQUEST_TIMED_OUT, E.NOT_LEADER_OR_FOLLOWER])
def test_what_is_not_committed_is_answered_once(asked: Asked, error: E) -> None:
    asked.world.partitions.held = True
    asked.ask(
        "own",
        lambda caller, now_ms: CoordinatorResult(
            ("record",), None, committed=lambda code, at_ms: replied(caller, code.name)
        ),
    )
    assert not asked.heard
    asked.world.partitions.release(error)
    assert len(asked.heard) == 1
    assert asked.heard[0][1] != "NONE"


def test_what_the_log_refuses_is_answered_once(asked: Asked) -> None:
    asked.park("parked")
    asked.world.partitions.refusal = E.NOT_ENOUGH_REPLICAS

    def operation(caller: Caller, now_ms: int) -> Result:
        return asked.answer_parked(
            "at once", "record", committed=lambda code, at_ms: replied(caller, code.name)
        )

    asked.ask("own", operation)
    assert asked.heard == [("parked", "at once"), ("own", "COORDINATOR_NOT_AVAILABLE")]


def test_what_cannot_be_encoded_answers_whoever_is_parked(asked: Asked) -> None:
    asked.park("parked")
    with pytest.raises(ValueError, match="unspeakable"):
        asked.ask("own", lambda caller, now_ms: asked.answer_parked("at once", "unspeakable"))
    assert asked.heard == [("parked", "at once")]


def test_what_cannot_be_replayed_answers_whoever_is_parked(
    asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> None:
        raise KeyError("a bug")

    monkeypatch.setattr(asked.world.machine, "replay", broken)
    asked.park("parked")
    with pytest.raises(KeyError):
        asked.ask("own", lambda caller, now_ms: asked.answer_parked("at once", "record"))
    assert asked.heard == [("parked", "at once")]


def test_an_operation_that_raises_leaves_what_is_parked(asked: Asked) -> None:
    asked.park("parked")

    def operation(caller: Caller, now_ms: int) -> Result:
        raise OperationRefused(E.ILLEGAL_GENERATION)

    with pytest.raises(OperationRefused):
        asked.ask("own", operation)
    assert not asked.heard
    asked.world.shard.close()
    assert asked.heard == [("parked", "unloaded")]


@pytest.mark.parametrize("moves", [False, True], ids=["is refused", "meets an unloaded shard"])
def test_an_operation_that_waited_for_its_turn_answers_its_caller(asked: Asked, moves: bool) -> None:
    def refused(caller: Caller, now_ms: int) -> Result:
        raise OperationRefused(E.ILLEGAL_GENERATION)

    def act() -> None:
        asked.ask("waited", refused)
        if moves:
            asked.world.shard.close()

    during_a_write(asked, act)
    assert asked.heard == [("waited", E.NOT_COORDINATOR if moves else E.ILLEGAL_GENERATION)]


def test_an_unload_answers_all_that_is_parked_once(asked: Asked) -> None:
    for name in ("one", "two"):
        asked.park(name)
    asked.world.shard.close()
    asked.world.time.advance(0)
    assert asked.heard == [("one", "unloaded"), ("two", "unloaded")]


def test_what_is_being_committed_is_answered_once_when_the_shard_unloads(asked: Asked) -> None:
    asked.world.partitions.held = True

    def operation(caller: Caller, now_ms: int) -> Result:
        return CoordinatorResult(
            ("record",),
            None,
            committed=lambda code, at_ms: replied(caller, code.name, "one more record"),
        )

    asked.ask("own", operation)
    asked.world.shard.close()
    assert not asked.heard
    asked.world.partitions.release(E.NOT_LEADER_OR_FOLLOWER)
    assert asked.heard == [("own", "NOT_COORDINATOR")]


def test_a_second_answer_is_reported_and_the_next_caller_is_answered(asked: Asked, faults: Any) -> None:
    def operation(caller: Caller, now_ms: int) -> Result:
        asked.world.machine.parked.insert(0, caller)
        return replied(caller, "first")

    asked.ask("own", operation)
    asked.park("parked")
    asked.world.shard.write(lambda _: asked.answer_parked("all")).unheeded("test")
    assert asked.heard == [("own", "first"), ("parked", "all")]
    (fault,) = faults.take()
    assert isinstance(fault, RuntimeError)


def test_very_many_replies_are_sent_in_steps_and_in_order(asked: Asked) -> None:
    names = [str(number) for number in range(REPLIES_AT_ONCE * 3)]
    for name in names:
        asked.park(name)
    asked.world.shard.write(lambda _: asked.answer_parked("all")).unheeded("test")
    assert 0 < len(asked.heard) < len(names)
    while asked.world.time.step():
        pass
    assert [name for name, _ in asked.heard] == names


def test_a_caller_that_asks_again_at_its_answer_sees_the_state_after_the_operation(asked: Asked) -> None:
    seen: list[list[str]] = []

    def again(done: Deferred[Any]) -> None:
        asked.world.shard.ask(
            lambda caller, now_ms: seen.append(list(asked.world.machine.said)) or replied(caller, "seen")  # type: ignore[func-returns-value]
        ).unheeded("test")

    asked.ask("own", lambda caller, now_ms: replied(caller, "own", "record")).on_done(again)
    assert seen == [["a", "record"]]


def broken(*_: Any) -> Any:
    raise KeyError("a bug")


def test_an_undoing_that_raises_answers_whoever_is_parked(asked: Asked) -> None:
    asked.park("parked")
    asked.world.partitions.refusal = E.NOT_ENOUGH_REPLICAS
    with pytest.raises(KeyError):
        asked.ask("own", lambda caller, now_ms: asked.answer_parked("at once", "record", refused=broken))
    assert asked.heard == [("parked", "at once")]


@pytest.mark.parametrize("records", [("record",), ()])
def test_what_raises_after_the_commit_answers_whoever_is_parked(
    asked: Asked, records: tuple[str, ...]
) -> None:
    asked.park("parked")
    with pytest.raises(KeyError):
        asked.ask("own", lambda caller, now_ms: asked.answer_parked("at once", *records, committed=broken))
    assert asked.heard == [("parked", "at once")]


@pytest.mark.parametrize("records", [("record",), ()])
def test_what_raises_after_the_answer_is_told_as_it_is(asked: Asked, records: tuple[str, ...]) -> None:
    with pytest.raises(KeyError, match="a bug"):
        asked.world.shard.ask(lambda caller, now_ms: replied(caller, "at once", *records, committed=broken))
    assert asked.world.shard._asking == {}


def told(answer: Deferred[Any]) -> str:
    try:
        answer.result()
    except Exception as error:
        return type(error).__name__
    return "answered"


@pytest.mark.parametrize("where", ["a request", "a timer", "what a commit is followed by"])
def test_an_operation_that_raises_loses_nobody_whom_it_has_taken_from_the_state(
    asked: Asked, where: str
) -> None:
    shard, machine = asked.world.shard, asked.world.machine

    def park(caller: Caller, now_ms: int) -> Result:
        machine.parked.append(caller)
        return CoordinatorResult((), None)

    answers = [shard.ask(park) for _ in range(3)]

    def takes_two_and_raises(*_: object) -> Any:
        replies = [(machine.parked.pop(), Heard("never")) for _ in range(2)]
        raise KeyError(len(replies))

    if where == "a request":
        with pytest.raises(KeyError):
            shard.ask(takes_two_and_raises)
    elif where == "a timer":
        shard.timers.schedule(("raises",), 10, takes_two_and_raises)
        with pytest.raises(KeyError):
            asked.world.time.advance(10)
    else:
        with pytest.raises(KeyError):
            shard.write(lambda _: CoordinatorResult(("record",), None, committed=takes_two_and_raises))
    assert [answer.done for answer in answers] == [False, True, True]
    assert [told(answer) for answer in answers[1:]] == ["KeyError"] * 2
    shard.write(lambda _: asked.answer_parked("at last")).unheeded("test")
    assert answers[0].result().said == "at last"
    assert shard._asking == {}


@pytest.mark.parametrize("error", [E.NONE, E.NOT_LEADER_OR_FOLLOWER])
def test_an_asker_gets_the_failure_of_what_follows_a_later_commit(
    asked: Asked, faults: Any, error: E
) -> None:
    asked.world.partitions.held = True

    def operation(caller: Caller, now_ms: int) -> Result:
        return CoordinatorResult(
            ("record",), None, committed=lambda code, at_ms: replied(caller, str(broken()))
        )

    answer = asked.world.shard.ask(operation)
    assert not answer.done
    asked.world.partitions.release(error)
    assert told(answer) == "KeyError"
    assert asked.world.shard._asking == {}
    assert [type(fault) for fault in faults.take()] == [KeyError]
