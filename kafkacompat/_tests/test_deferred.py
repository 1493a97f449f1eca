"""A deferred value: those that follow another one, and who is told when a callback raises."""

from __future__ import annotations

from typing import Any

import pytest

from kafkacompat.deferred import Deferred


def test_and_then_waits_for_both() -> None:
    first: Deferred[int] = Deferred()
    second: Deferred[str] = Deferred()
    seen: list[int] = []

    def go_on(value: int) -> Deferred[str]:
        seen.append(value)
        return second

    both = first.and_then(go_on)
    assert (seen, both.done) == ([], False)
    first.resolve(7)
    assert (seen, both.done) == ([7], False)
    second.resolve("there")
    assert both.result() == "there"


def test_and_then_fails_with_whichever_fails() -> None:
    failed: Deferred[int] = Deferred()
    failed.fail(KeyError("first"))
    later: Deferred[str] = Deferred()
    later.fail(KeyError("second"))

    def raises(_: int) -> Deferred[str]:
        raise KeyError("between")

    for chain, word in (
        (failed.and_then(lambda _: later), "first"),
        (Deferred.of(1).and_then(raises), "between"),
        (Deferred.of(1).and_then(lambda _: later), "second"),
    ):
        with pytest.raises(KeyError, match=word):
            chain.result()


def _raise(error: BaseException) -> None:
    raise error


def test_a_callback_that_raises_is_reported_and_the_others_get_the_value(faults: Any) -> None:
    value: Deferred[int] = Deferred()
    seen: list[int] = []
    first, third = KeyError("first"), KeyError("third")
    value.on_done(lambda _: _raise(first))
    value.on_done(lambda done: seen.append(done.result()))
    value.on_done(lambda _: _raise(third))
    following = value.then(lambda number: number + 1)
    value.on_done(lambda done: seen.append(done.result()))
    value.resolve(7)  # whoever gives the value is not told of it
    assert (seen, following.result()) == ([7, 7], 8)
    assert faults.take() == [first, third]


def test_so_is_one_that_waits_for_a_failure(faults: Any) -> None:
    value: Deferred[int] = Deferred()
    seen: list[bool] = []
    problem = KeyError("callback")
    value.on_done(lambda _: _raise(problem))
    value.on_done(lambda done: seen.append(done.done))
    value.fail(ValueError("the value"))
    assert seen == [True]
    assert faults.take() == [problem]


def test_an_exception_that_ends_the_process_passes_through_callbacks() -> None:
    value: Deferred[int] = Deferred()
    value.on_done(lambda _: _raise(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        value.resolve(7)


def test_a_callback_registered_late_raises_to_whoever_registers_it() -> None:
    with pytest.raises(KeyError):
        Deferred.of(7).on_done(lambda _: _raise(KeyError("mine")))


def test_a_failure_that_nobody_waits_for_is_reported_unless_it_is_expected(faults: Any) -> None:
    late: Deferred[int] = Deferred()
    late.unheeded("late")
    late.fail(KeyError("late"))
    early: Deferred[int] = Deferred()
    early.fail(ValueError("early"))
    early.unheeded("early", KeyError)
    assert [str(error) for error in faults.take()] == ["'late'", "early"]
    expected: Deferred[int] = Deferred()
    expected.unheeded("expected", ValueError, KeyError)
    expected.fail(KeyError("told already"))
    Deferred.of(1).unheeded("no failure")
    assert not faults.take()
