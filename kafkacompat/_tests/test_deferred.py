"""A deferred value that follows another deferred value."""

from __future__ import annotations

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
