"""The seeds that a test of the simulation runs: always the first ones, and then as many as its CPU time allows.

A seed gives the same run on any machine. Only the number of seeds depends on the machine's speed. Each share of the
seeds reports that number at the end of the tests.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, fields
from itertools import count
from typing import Any, Protocol, TypeVar

from kafkacompat.sim.cluster_life import NodeFailed
from kafkacompat.sim.quorum_oracles import Breach

SHARES = 8
"""The number of tests that share the seeds of one simulation, so that all pytest workers take part."""

SOAK_FACTOR = 60
"""KAFKACOMPAT_SOAK multiplies the CPU time of the shares by this factor."""


class CountedRun(Protocol):
    """The counts that every run has. Each simulation adds its own dangers."""

    events: int
    faults: int

    def add(self, other: Any) -> None: ...


C = TypeVar("C", bound=CountedRun)


@dataclass(frozen=True)
class Kind:
    """One of the simulations."""

    name: str
    option: str
    """The option of kafkacompat.sim, before --seed, that selects this simulation."""
    run: Callable[[int], CountedRun]
    fewest_events: int
    fewest_faults: int
    budget_s: float
    """CPU seconds of all shares together."""
    at_least: int
    """The number of first seeds, which always run."""


@dataclass
class Share:
    """The results of one share's seeds."""

    seeds: int = 0
    cpu_s: float = 0.0
    failures: list[str] = field(default_factory=list)


def run_share(kind: Kind, share: int, clock: Callable[[], float] = time.process_time) -> Share:
    """Run seeds `share`, `share + SHARES` and so on: those below `at_least`, then as many as the budget allows."""
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
    """Return the error of a seed's run, after the options that reproduce it."""
    name = f"{kind.option}--seed {seed}"
    try:
        counters = kind.run(seed)
    except Exception as error:
        # Any error: the report names the seed, which reproduces it.
        return f"{name}: {type(error).__name__}: {error}"
    if counters.events < kind.fewest_events or counters.faults < kind.fewest_faults:
        return f"{name}: too easy, {counters.events} events and {counters.faults} faults"
    return None


def run_until_all_occurred(total: C, run: Callable[[int], C], most: int) -> tuple[int, list[str]]:
    """Run seeds from 0 on until each counter of `total` is above zero. Return the number of runs, and the counters at
    zero after `most`."""
    for seeds in range(1, most + 1):
        total.add(run(seeds - 1))
        if not missing(total):
            return seeds, []
    return most, missing(total)


def trace_hashes(kind: Kind, seed: int, processes: int = 2) -> set[str]:
    """The hashes of a seed's trace in so many processes, each with another order of sets and dicts of strings."""
    command = [sys.executable, "-m", "kafkacompat.sim", *kind.option.split(), "--seed", str(seed), "--hash"]
    hashes = set()
    for hash_seed in range(1, processes + 1):
        environment = {**os.environ, "PYTHONHASHSEED": str(hash_seed)}
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=120, check=True
        )
        hashes.add(done.stdout.splitlines()[0])
    return hashes


def missing(total: Any) -> list[str]:
    return [each.name for each in fields(total) if not getattr(total, each.name)]


def is_found(run: Callable[[int], Any], seen_at: int, seeds: int) -> bool:
    """Whether a seed finds the planted bug: first the one that found it when it was planted, then any other."""
    for seed in seeds_from(seen_at, seeds):
        try:
            run(seed)
        except (Breach, NodeFailed):
            return True
    return False


def seeds_from(first: int, seeds: int) -> Iterator[int]:
    """Yield all seeds below `seeds`, starting with `first`, the one that found a planted bug when it was planted."""
    yield first
    yield from (each for each in range(seeds) if each != first)


def listed(failures: Iterable[str]) -> str:
    """Return the first ten failures, one per line."""
    return "\n".join(list(failures)[:10])
