"""How many seeds run: always the first ones, then by CPU time. Each seed is in one share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pytest

from kafkacompat.sim._tests import test_cluster_simulation, test_quorum_simulation
from kafkacompat.sim._tests.seeds import (
    SHARES,
    SOAK_FACTOR,
    Kind,
    run_first,
    run_share,
    seeds_from,
    tell_of_another,
)
from kafkacompat.sim._tests.test_shaped_simulations import SHAPES

PAGE = Path(__file__).resolve().parents[3] / "docs" / "testing.md"


@dataclass
class Tally:
    events: int = 10
    faults: int = 2

    def add(self, other: Tally) -> None:
        self.events += other.events
        self.faults += other.faults


def kind_of(
    run: Callable[[int], Tally], at_least: int = 0, budget_s: float = 0.0, first: int = 0, rare: str = ""
) -> Kind:
    def both(seed: int) -> tuple[Tally, Tally]:
        tally = run(seed)
        return tally, tally

    return Kind("tallies", "--tally ", both, 10, 2, budget_s, at_least, first, frozenset({rare}))


def seconds() -> Callable[[], float]:
    """A clock that advances by one second at each reading."""
    ticks = count()
    return lambda: float(next(ticks))


@pytest.fixture(autouse=True)
def _no_soak(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KAFKACOMPAT_SOAK", raising=False)


def seeds_of(share: int, at_least: int, budget_s: float) -> list[int]:
    ran: list[int] = []

    def run(seed: int) -> Tally:
        ran.append(seed)
        return Tally()

    assert run_share(kind_of(run, at_least, budget_s), share, seconds()).seeds == len(ran)
    return ran


def test_the_first_seeds_run_on_the_slowest_machine_each_in_one_share() -> None:
    ran = [seed for share in range(SHARES) for seed in seeds_of(share, at_least=3 * SHARES + 1, budget_s=0.0)]
    assert sorted(ran) == list(range(3 * SHARES + 1))


def test_more_seeds_run_for_as_long_as_the_budget_lasts(monkeypatch: pytest.MonkeyPatch) -> None:
    assert seeds_of(2, at_least=0, budget_s=4.0 * SHARES) == [2, 2 + SHARES, 2 + 2 * SHARES]
    monkeypatch.setenv("KAFKACOMPAT_SOAK", "1")
    assert len(seeds_of(2, at_least=0, budget_s=4.0 * SHARES)) == 4 * SOAK_FACTOR - 1


def test_a_failure_and_a_run_that_was_too_easy_name_their_seed() -> None:
    def run(seed: int) -> Tally:
        if seed == 1:
            raise KeyError("lost")
        return Tally(events=9 if seed == 1 + SHARES else 10, faults=1 if seed == 1 + 2 * SHARES else 2)

    assert run_share(kind_of(run, at_least=4 * SHARES), 1, seconds()).failures == [
        "--tally --seed 1: KeyError: 'lost'",
        f"--tally --seed {1 + SHARES}: too easy, 9 events and 2 faults",
        f"--tally --seed {1 + 2 * SHARES}: too easy, 10 events and 1 faults",
    ]


def test_the_shares_begin_behind_the_very_first_seeds() -> None:
    ran: list[int] = []

    def run(seed: int) -> Tally:
        ran.append(seed)
        return Tally()

    kind = kind_of(run, at_least=2 * SHARES, first=5)
    assert run_first(kind, Tally(1, 1), 100).seeds == 5
    for share in range(SHARES):
        run_share(kind, share, seconds())
    assert sorted(ran) == list(range(2 * SHARES))


def test_seeds_run_until_everything_occurred_and_what_never_does_is_named() -> None:
    def found(run: Callable[[int], Tally], first: int = 0, rare: str = "") -> tuple[int, int, list[str]]:
        ran = run_first(kind_of(run, first=first, rare=rare), Tally(0, 0), 10)
        return ran.seeds, ran.until, ran.missing

    assert found(lambda seed: Tally(10, seed // 3)) == (4, 4, [])
    assert found(lambda seed: Tally(10, seed // 3), first=6) == (6, 4, [])
    assert found(lambda seed: Tally(10, 0)) == (10, 10, ["faults"])
    assert found(lambda seed: Tally(10, 0), rare="faults") == (1, 1, [])


def test_a_failure_among_the_very_first_seeds_is_named_and_the_others_run() -> None:
    def run(seed: int) -> Tally:
        if seed == 1:
            raise KeyError("lost")
        return Tally()

    ran = run_first(kind_of(run, first=3), Tally(0, 0), 10)
    assert (ran.seeds, ran.failures) == (3, ["--tally --seed 1: KeyError: 'lost'"])


def test_the_seed_that_showed_a_bug_is_the_first_to_look_for_it() -> None:
    assert list(seeds_from(2, 4)) == [2, 0, 1, 3]
    assert list(seeds_from((7, 1), 4)) == [7, 1, 0, 2, 3]


def test_a_seed_that_is_not_known_is_told() -> None:
    told: list[tuple[str, float]] = []
    for found in (None, 7, 1, 3):
        tell_of_another(lambda *what: told.append(what), "a_bug", (7, 1), found)
    assert told == [("seed that finds a_bug instead of seed 7 or 1", 3)]


def test_the_page_on_tests_has_the_numbers_of_seeds_of_each_simulation() -> None:
    shaped = [shape.kind for shape in SHAPES]
    kinds = [test_cluster_simulation.KIND, *shaped, test_quorum_simulation.KIND]
    rows = [f"| {kind.name} | {kind.first} | {kind.at_least} | {kind.budget_s:.0f} |" for kind in kinds]
    assert "\n".join(rows) in PAGE.read_text(encoding="utf-8")
