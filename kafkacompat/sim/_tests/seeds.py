"""Which seeds a test of the simulation runs: the first ones always, and then as many as its CPU time allows.

A seed is the same run wherever and whenever it runs. How many of them run is the only thing that a slow machine changes, and each
share of the seeds tells it at the end of the tests.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, fields
from itertools import count
from typing import Any, Protocol, TypeVar

SHARES = 8
"""So many tests share the seeds of one simulation, so that all workers of pytest take part."""

SOAK_FACTOR = 60
"""So much more CPU time have the shares with KAFKACOMPAT_SOAK."""


class CountedRun(Protocol):
    """What a run counts: its own dangers besides these."""

    events: int
    faults: int

    def add(self, other: Any) -> None: ...


C = TypeVar("C", bound=CountedRun)


@dataclass(frozen=True)
class Kind:
    """One of the simulations."""

    name: str
    option: str
    """What the command of kafkacompat.sim needs before --seed to show a run of this kind."""
    run: Callable[[int], CountedRun]
    fewest_events: int
    fewest_faults: int
    budget_s: float
    """CPU seconds of all shares together."""
    at_least: int
    """The first seeds, which run however long they take."""


@dataclass
class Share:
    """What the seeds of one share came to."""

    seeds: int = 0
    cpu_s: float = 0.0
    failures: list[str] = field(default_factory=list)


def run_share(kind: Kind, share: int, clock: Callable[[], float] = time.process_time) -> Share:
    """Run seeds `share`, `share + SHARES` and so on: those of the first `at_least`, then whatever the budget allows."""
    budget_s = kind.budget_s / SHARES * (SOAK_FACTOR if os.environ.get("KAFKACOMPAT_SOAK") else 1)
    result, began = Share(), clock()
    for seed in count(share, SHARES):
        result.cpu_s = clock() - began
        if seed >= kind.at_least and result.cpu_s >= budget_s:
            return result
        result.seeds += 1
        failure = failure_of(kind, seed)
        if failure is not None:
            result.failures.append(failure)
    raise AssertionError("seeds do not end")


def failure_of(kind: Kind, seed: int) -> str | None:
    """What is wrong with a seed's run, after the options that show it again."""
    name = f"{kind.option}--seed {seed}"
    try:
        counters = kind.run(seed)
    except Exception as error:
        # Whatever it is: the report names the seed, which shows it again.
        return f"{name}: {type(error).__name__}: {error}"
    if counters.events < kind.fewest_events or counters.faults < kind.fewest_faults:
        return f"{name}: too easy, {counters.events} events and {counters.faults} faults"
    return None


def run_until_all_occurred(total: C, run: Callable[[int], C], most: int) -> tuple[int, list[str]]:
    """Run seeds from 0 on until each counter of `total` is above zero. How many that took, and which are at zero after `most`."""
    for seeds in range(1, most + 1):
        total.add(run(seeds - 1))
        if not missing(total):
            return seeds, []
    return most, missing(total)


def missing(total: Any) -> list[str]:
    return [each.name for each in fields(total) if not getattr(total, each.name)]


def seeds_from(first: int, seeds: int) -> Iterator[int]:
    """All below `seeds`, `first` first: the one that showed a planted bug when it was planted."""
    yield first
    yield from (each for each in range(seeds) if each != first)


def listed(failures: Iterable[str]) -> str:
    """The first ten, a line each."""
    return "\n".join(list(failures)[:10])
