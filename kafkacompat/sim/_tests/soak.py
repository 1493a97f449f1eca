"""Many seeds of one simulation, summed up for the tests of a module."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

SOAK_FACTOR = 20


class CountedRun(Protocol):
    """What a run counts: its own dangers besides these."""

    events: int
    faults: int

    def add(self, other: Any) -> None: ...


C = TypeVar("C", bound=CountedRun)


@dataclass
class Soak(Generic[C]):
    total: C
    failures: list[str] = field(default_factory=list)
    fewest_events: int = 1 << 60
    fewest_faults: int = 1 << 60


def run_seeds(seeds: int, option: str, total: C, run: Callable[[int], C]) -> Soak[C]:
    """Run every seed below `seeds`, twenty times as many with KAFKACOMPAT_SOAK=1. `option` is what the command of
    kafkacompat.sim needs before --seed to show a failure again."""
    result = Soak(total)
    for seed in range(seeds * (SOAK_FACTOR if os.environ.get("KAFKACOMPAT_SOAK") else 1)):
        try:
            counters = run(seed)
        except Exception as error:
            # Whatever it is: the report names the seed, which shows it again.
            result.failures.append(f"{option}--seed {seed}: {type(error).__name__}: {error}")
            continue
        result.total.add(counters)
        result.fewest_events = min(result.fewest_events, counters.events)
        result.fewest_faults = min(result.fewest_faults, counters.faults)
    return result


def seeds_from(first: int, seeds: int) -> Iterator[int]:
    """All below `seeds`, `first` first: the one that showed a planted bug when it was planted."""
    yield first
    yield from (each for each in range(seeds) if each != first)
