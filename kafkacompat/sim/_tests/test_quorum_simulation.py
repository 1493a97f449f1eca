"""The metadata quorum with hundreds of seeds: no oracle fails, every danger occurs, and planted bugs are found.

CPU time decides how many seeds run (`seeds.py`), with KAFKACOMPAT_SOAK sixty times as many. A failure names its seed:
`python -m kafkacompat.sim --seed N --trace`.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kafkacompat.raft.roles import QuorumViolation
from kafkacompat.sim._tests.mutants import MUTANTS, SEEN_AT, Plant
from kafkacompat.sim._tests.seeds import (
    SHARES,
    Kind,
    hash_of,
    listed,
    run_first,
    run_share,
    seeds_from,
    trace_hashes,
)
from kafkacompat.sim.breach import Breach
from kafkacompat.sim.counters import QuorumCounters
from kafkacompat.sim.quorum_disk import DiskMisuse
from kafkacompat.sim.quorum_options import MIN_EVENTS, MIN_FAULTS
from kafkacompat.sim.quorum_simulation import QuorumSimulation

SEEDS = 1000
"""Maximum number of seeds until every danger has occurred, or a planted bug is found."""


def run(seed: int) -> tuple[QuorumCounters, QuorumCounters]:
    counters = QuorumSimulation(seed).run()
    return counters, counters


KIND = Kind(
    name="quorums",
    option="",
    run=run,
    fewest_events=MIN_EVENTS,
    fewest_faults=MIN_FAULTS,
    budget_s=40.0,
    at_least=200,
    first=16,
)

FINDINGS = (Breach, QuorumViolation, DiskMisuse, ValueError)
"""Exceptions of an oracle, an invariant of the core, or the simulated disk. Any other exception is an error in the
planted bug itself."""


@pytest.mark.costly
@pytest.mark.parametrize("share", range(SHARES))
def test_no_seed_fails(share: int, tell: Callable[[str, float], None]) -> None:
    ran = run_share(KIND, share)
    tell("seeds of quorums", ran.seeds)
    tell("CPU seconds that quorums took", ran.cpu_s)
    assert not ran.failures, listed(ran.failures)


def test_every_danger_occurs(tell: Callable[[str, float], None]) -> None:
    """Elections, truncations, fetched snapshots, lost unsynced bytes, partitions, crashes ...: a count of zero shows a
    blind spot."""
    ran = run_first(KIND, QuorumCounters(), SEEDS)
    tell("seeds of quorums", ran.seeds)
    tell("CPU seconds that quorums took", ran.cpu_s)
    tell("seeds until quorums met every danger", ran.until)
    assert not ran.failures, listed(ran.failures)
    assert not ran.missing


@pytest.mark.parametrize("seed", [0, 77])
def test_one_seed_twice_is_one_run(seed: int) -> None:
    first, second = QuorumSimulation(seed), QuorumSimulation(seed)
    assert first.run() == second.run()
    assert first.trace_hash == second.trace_hash != 0


def test_a_seed_is_one_run_in_this_process_and_in_another() -> None:
    """Neither hash seeds nor earlier runs may change the behaviour."""
    simulation = QuorumSimulation(5)
    simulation.run()
    assert trace_hashes(KIND, 5) == {hash_of(simulation.trace_hash, simulation.events)}


@pytest.mark.costly
@pytest.mark.parametrize("plant", MUTANTS, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_found(plant: Plant) -> None:
    """First by the seed that found it when it was planted, otherwise by any seed."""
    with pytest.MonkeyPatch.context() as patch:
        plant(patch)
        for seed in seeds_from(SEEN_AT.get(plant.__name__, 0), SEEDS):
            try:
                QuorumSimulation(seed).run()
            except FINDINGS:
                return
    pytest.fail(f"{plant.__name__} survives {SEEDS} seeds")


def test_the_command_shows_one_failure_alone(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from kafkacompat.sim.__main__ import main
    from kafkacompat.sim._tests.mutants import watermark_of_a_minority

    assert main(["--seed", "3"]) == 0
    assert "1 seeds, 0 failed" in capsys.readouterr().out
    watermark_of_a_minority(monkeypatch)
    assert main(["--seed", "0", "--trace"]) == 1
    shown = capsys.readouterr().out
    assert "seed 0: Breach: durable on a majority" in shown
    assert "AdvanceHighWatermark" in shown
