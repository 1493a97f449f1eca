"""What the collector of garbage still looks at."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from kafkacompat.server.process_wide import (
    collect_seldom,
    freeze_long_lived,
    keep_long_lived,
    while_importing,
)


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    thresholds = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*thresholds)


class Ring:
    """Garbage that only the collector finds."""

    def __init__(self) -> None:
        self.itself = self


def rings() -> int:
    return sum(type(each) is Ring for each in gc.get_objects())


def test_the_collector_runs_less_often() -> None:
    gc.set_threshold(700, 10, 10)
    collect_seldom()
    assert gc.get_threshold() > (700, 10, 10)


def test_what_lives_long_is_out_of_the_collectors_sight() -> None:
    Ring()
    freeze_long_lived()
    assert gc.get_freeze_count() > 1000
    gc.unfreeze()
    assert rings() == 0, "the garbage of the start is freed first"


def test_what_is_kept_is_not_looked_at_again() -> None:
    Ring()
    keep_long_lived()
    gc.collect()
    gc.unfreeze()
    assert rings() == 1


def test_no_pass_looks_at_what_is_imported() -> None:
    passes: list[str] = []

    def began(phase: str, info: dict[str, int]) -> None:
        passes.append(phase)

    gc.set_threshold(10)
    gc.callbacks.append(began)
    try:
        with while_importing():
            passes.clear()
            kept: list[list[object]] = [[] for _ in range(10_000)]
            assert not passes
    finally:
        gc.callbacks.remove(began)
    assert gc.isenabled()
    assert gc.get_freeze_count() > len(kept)


def test_garbage_is_looked_for_after_an_import_that_fails() -> None:
    with pytest.raises(ImportError), while_importing():
        raise ImportError
    assert gc.isenabled()


def test_a_pass_looks_at_no_more_than_takes_a_moment() -> None:
    """A request of hundreds of thousands of elements makes a million objects, and keeps them for a while."""
    collect_seldom()
    gc.collect()
    looked_at: list[int] = []

    def began(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            looked_at.append(
                sum(len(gc.get_objects(generation)) for generation in range(info["generation"] + 1))
            )

    gc.callbacks.append(began)
    try:
        kept: list[list[object]] = [[] for _ in range(1_200_000)]
    finally:
        gc.callbacks.remove(began)
    assert len(kept) == 1_200_000
    assert len(looked_at) >= 19
    assert max(looked_at) < 130_000
