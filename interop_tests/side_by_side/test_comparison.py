"""What a comparison finds, counts and tells, with sides that are made up."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from interop_tests.side_by_side.area import AREAS, Area, KeptBrokers, area_of
from interop_tests.side_by_side.comparison import Comparison
from interop_tests.side_by_side.differing import Told, differing

KAFKA, OURS = "kafka", "ours"


def found(theirs: object, ours: object) -> list[str]:
    return [each.partition(":")[0] for each in differing(theirs, ours)]


def test_differences_are_named_by_their_path() -> None:
    assert found({"a": [1, {"b": 2}]}, {"a": [1, {"b": 3}]}) == [".a[1].b"]
    assert found([1, 2], [1]) == [""]
    assert found({"a": 1}, {"b": 1}) == [""]
    assert found((1, "x"), (1, "y")) == ["[1]"]
    message = Told("Response", (("code", 0), ("names", ("a", "b"))))
    assert found(message, message._replace(fields=(("code", 3), ("names", ("a", "c"))))) == [
        ".code",
        ".names[1]",
    ]
    assert found(message, message._replace(kind="Request")) == [""]
    assert found(message, message) == []


def test_a_comparison_counts_answers_and_tells_where_they_differ() -> None:
    comparison = Comparison([KAFKA, OURS], "talk")
    assert comparison.answered("one", [1, 1])
    assert not comparison.answered("two", [{"code": 0}, {"code": 7}])
    assert comparison.asked == 2
    assert comparison.told == ["talk: two\n  answer.code: Kafka 0\n      ours 7"]


def test_a_random_talk_ends_with_the_first_difference_and_shows_the_answers_before_it() -> None:
    def talk(comparison: Comparison) -> None:
        for number in range(9):
            comparison.answered(f"request {number}", [0, int(number == 3)])

    comparison = Comparison([KAFKA, OURS], "seed7", stops_at_first=True)
    comparison.hold(talk)
    assert comparison.asked == 4
    (told,) = comparison.told
    assert "request 2\n    0" in told
    assert told.endswith("seed7: request 3\n  answer: Kafka 0\n      ours 1")


def test_a_failed_expectation_of_a_talk_is_a_difference() -> None:
    def talk(comparison: Comparison) -> None:
        raise AssertionError("Kafka refuses it")

    comparison = Comparison([KAFKA, OURS], "talk")
    comparison.hold(talk)
    assert comparison.told == ["talk: AssertionError('Kafka refuses it')"]


class MadeUp:
    def __init__(self, differing_seed: int, is_bound: bool = False) -> None:
        self.started: list[Path] = []
        self._differing = differing_seed
        self.area = Area("made-up", self._start, self._talk, is_bound_to_seed=is_bound)

    @contextmanager
    def _start(
        self, folder: Path, kinds: Sequence[str] = (), *, seed: int | None = None, only: Sequence[str] = ()
    ) -> Iterator[list[str]]:
        self.started.append(folder)
        yield [KAFKA, OURS]

    def _talk(self, comparison: Comparison, seed: int, requests: int) -> None:
        for number in range(requests):
            comparison.answered(f"request {number}", [0, int(seed == self._differing)])


def test_brokers_are_kept_until_they_differ(tmp_path: Path) -> None:
    made_up = MadeUp(differing_seed=2)
    brokers = KeptBrokers(made_up.area, tmp_path)
    told = [brokers.seed(seed, 5).told for seed in range(5)]
    assert [bool(each) for each in told] == [False, False, True, False, False]
    assert len(made_up.started) == 2
    assert len({*made_up.started}) == 2


def test_brokers_that_are_bound_to_a_seed_are_new_for_each(tmp_path: Path) -> None:
    made_up = MadeUp(differing_seed=-1, is_bound=True)
    brokers = KeptBrokers(made_up.area, tmp_path)
    assert [brokers.seed(seed, 1).told for seed in range(3)] == [[], [], []]
    assert len(made_up.started) == 3


@pytest.mark.parametrize("name", AREAS)
def test_each_area_is_found_by_its_name(name: str) -> None:
    assert area_of(name).name == name
