"""The seeds that the tests of a simulation run: always the first ones, and then as many as their CPU time allows.

No seed runs twice. One test runs the very first ones, in which every danger must occur. The shares run what follows. A seed
gives the same run on any machine. Only the number of seeds depends on the machine's speed. It is reported at the end of the
tests.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, fields
from itertools import count
from typing import Any, Protocol

from kafkacompat.sim.breach import Breach
from kafkacompat.sim.machine import NodeFailed

SHARES = 8
"""The number of tests that share the seeds of one simulation, so that all pytest workers take part."""

SOAK_FACTOR = 60
"""KAFKACOMPAT_SOAK multiplies the CPU time of the shares by this factor."""


class CountedRun(Protocol):
    """The counts that every run has. Each simulation adds its own dangers."""

    events: int
    faults: int

    def add(self, other: Any) -> None: ...


@dataclass(frozen=True)
class Kind:
    """One of the simulations."""

    name: str
    option: str
    """The option of kafkacompat.sim, before --seed, that selects this simulation."""
    run: Callable[[int], tuple[CountedRun, Any]]
    """Run a seed. Returns its counters, and those of the dangers that must occur."""
    fewest_events: int
    fewest_faults: int
    budget_s: float
    """CPU seconds of all shares together."""
    at_least: int
    """The number of first seeds, which always run."""
    first: int = 0
    """The number of those that are run for the dangers."""
    rare: frozenset[str] = frozenset()
    """Dangers that may not occur in hundreds of seeds."""


@dataclass
class Share:
    """The results of one share's seeds."""

    seeds: int = 0
    cpu_s: float = 0.0
    failures: list[str] = field(default_factory=list)


@dataclass
class First(Share):
    """The results of the very first seeds."""

    until: int = 0
    """The number of seeds until every danger had occurred."""
    missing: list[str] = field(default_factory=list)


def run_first(kind: Kind, total: Any, most: int, clock: Callable[[], float] = time.process_time) -> First:
    """Run the seeds below `kind.first`, and more while a counter of `total` is zero, up to `most`."""
    result, began = First(missing=missing(total)), clock()
    for seed in range(most):
        if seed >= kind.first and kind.rare.issuperset(result.missing):
            break
        result.seeds += 1
        dangers, failure = outcome_of(kind, seed)
        if failure is not None:
            result.failures.append(failure)
        if dangers is not None and not kind.rare.issuperset(result.missing):
            total.add(dangers)
            result.missing, result.until = missing(total), seed + 1
    result.missing = [each for each in result.missing if each not in kind.rare]
    result.cpu_s = clock() - began
    return result


def run_share(kind: Kind, share: int, clock: Callable[[], float] = time.process_time) -> Share:
    """Of the seeds behind the very first ones, every eighth: those below `at_least`, then as many as the budget allows."""
    budget_s = kind.budget_s / SHARES * (SOAK_FACTOR if os.environ.get("KAFKACOMPAT_SOAK") else 1)
    result, began = Share(), clock()
    for seed in count(kind.first + share, SHARES):
        result.cpu_s = clock() - began
        if seed >= kind.at_least and result.cpu_s >= budget_s:
            return result
        result.seeds += 1
        _, failure = outcome_of(kind, seed)
        if failure is not None:
            result.failures.append(failure)
    raise AssertionError("seeds do not end")


def outcome_of(kind: Kind, seed: int) -> tuple[Any, str | None]:
    """Return a seed's dangers, and its error after the options that reproduce it."""
    name = f"{kind.option}--seed {seed}"
    try:
        counters, dangers = kind.run(seed)
    except Exception as error:
        # Any error: the report names the seed, which reproduces it.
        return None, f"{name}: {type(error).__name__}: {error}"
    if counters.events < kind.fewest_events or counters.faults < kind.fewest_faults:
        return dangers, f"{name}: too easy, {counters.events} events and {counters.faults} faults"
    return dangers, None


def hash_of(trace_hash: int, events: int) -> str:
    """As the command prints it."""
    assert trace_hash
    return f"trace hash {trace_hash:08x} after {events} events"


def trace_hashes(kind: Kind, seed: int, processes: int = 1) -> set[str]:
    """The hashes of a seed's trace in so many processes, each with another order of sets and dicts of strings. This process
    has run other seeds before, and has an order of its own."""
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
    """The counters that are zero, also those that a counter has by name."""
    counts = {each.name: getattr(total, each.name) for each in fields(total)}
    by_name = [each for each in counts.values() if isinstance(each, dict)]
    return [name for each in (counts, *by_name) for name, count in each.items() if not count]


SeenAt = int | tuple[int, ...]
"""The seeds in which a planted bug was seen, the last one first. A change of the broker may hide a bug from one of them, but
rarely from all."""


def finding_seed(
    run: Callable[[int], Any],
    seen_at: SeenAt,
    seeds: int,
    may_find: Callable[[int], bool] = lambda seed: True,
) -> int | None:
    """The seed that finds the planted bug: first those that found it before, then any other. None if none does.

    `may_find`: whether the bug can show itself in a seed, by its options. The others need not be run."""
    for seed in seeds_from(seen_at, seeds, may_find):
        try:
            run(seed)
        except (Breach, NodeFailed):
            return seed
    return None


def tell_of_another(
    tell: Callable[[str, float], None], name: str, seen_at: SeenAt, found: int | None
) -> None:
    """The seeds before another one cost CPU time in each run of the tests: it belongs in the table of the planted bugs."""
    known = seen_at if isinstance(seen_at, tuple) else (seen_at,)
    if found is not None and found not in known:
        tell(f"seed that finds {name} instead of seed {' or '.join(map(str, known))}", found)


def seeds_from(
    seen_at: SeenAt, seeds: int, may_find: Callable[[int], bool] = lambda seed: True
) -> Iterator[int]:
    """Yield those of the seeds below `seeds` that may find a planted bug, starting with those that found it before."""
    known = seen_at if isinstance(seen_at, tuple) else (seen_at,)
    yield from known
    yield from (each for each in range(seeds) if each not in known and may_find(each))


def listed(failures: Iterable[str]) -> str:
    """Return the first ten failures, one per line."""
    return "\n".join(list(failures)[:10])
