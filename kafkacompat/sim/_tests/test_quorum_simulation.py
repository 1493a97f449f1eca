"""The metadata quorum under a thousand seeds: no oracle objects, every danger occurred, and planted bugs are found.

KAFKACOMPAT_SOAK=1 runs twenty times as many seeds. A failure names its seed: `python -m kafkacompat.sim --seed N --trace`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import fields

import pytest

from kafkacompat.raft.roles import QuorumViolation
from kafkacompat.sim._tests.mutants import MUTANTS, SEEN_AT, Plant
from kafkacompat.sim._tests.soak import Soak, run_seeds, seeds_from
from kafkacompat.sim.disk import DiskMisuse
from kafkacompat.sim.options import MIN_EVENTS, MIN_FAULTS
from kafkacompat.sim.quorum_oracles import Breach
from kafkacompat.sim.quorum_simulation import Counters, QuorumSimulation

SEEDS = 1000


FINDINGS = (Breach, QuorumViolation, DiskMisuse, ValueError)
"""What an oracle, an invariant of the core or the simulated disk raises; anything else is a fault of the planted bug itself."""


@pytest.fixture(scope="module")
def soak() -> Soak[Counters]:
    return run_seeds(SEEDS, "", Counters(), lambda seed: QuorumSimulation(seed).run())


def test_no_seed_fails(soak: Soak[Counters]) -> None:
    assert not soak.failures, "\n".join(soak.failures[:10])


def test_every_run_was_long_and_hard_enough(soak: Soak[Counters]) -> None:
    assert soak.fewest_events >= MIN_EVENTS >= 2000
    assert soak.fewest_faults >= MIN_FAULTS >= 20


@pytest.mark.parametrize("name", [each.name for each in fields(Counters)])
def test_every_danger_occurred(soak: Soak[Counters], name: str) -> None:
    """Elections, truncations, snapshots fetched, lost unsynced bytes, partitions, crashes ...: a count of none is a blind spot."""
    assert getattr(soak.total, name) > 0


@pytest.mark.parametrize("seed", [0, 1, 77])
def test_one_seed_twice_is_one_run(seed: int) -> None:
    first, second = QuorumSimulation(seed), QuorumSimulation(seed)
    assert first.run() == second.run()
    assert first.trace_hash == second.trace_hash != 0


def test_a_seed_is_the_same_run_in_another_process() -> None:
    """Hash seeds must not reach behaviour (design rule 8)."""
    hashes = set()
    for hash_seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-m", "kafkacompat.sim", "--seed", "5", "--hash"],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )
        hashes.add(done.stdout.splitlines()[0])
    assert len(hashes) == 1


@pytest.mark.parametrize("plant", MUTANTS, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_found(plant: Plant) -> None:
    """First by the seed that showed it when it was planted, else by any."""
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
