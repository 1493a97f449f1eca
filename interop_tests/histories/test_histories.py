"""Two short histories of three real processes with all workloads: one with kills and pauses, one with disconnections
and full disks.

`make soak` runs each for minutes, and with several seeds.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from interop_tests.harness.chance import seeded_chance
from interop_tests.histories.planted import NAMES, python_path_with
from interop_tests.histories.run import Options, run

SOAK = bool(os.environ.get("KAFKACOMPAT_SOAK"))
RUNS = 5 if SOAK else 1
SECONDS = 180.0 if SOAK else 7.0
FAULTS = {"processes": ("kill", "kill-all", "pause"), "machines": ("cut", "mute", "deaf", "disk")}
SEEN = ("records acknowledged", "records polled", "records consumed in transactions", "commits", "faults")


@pytest.mark.needs_control
@pytest.mark.parametrize("number", range(RUNS))
@pytest.mark.parametrize("faults", FAULTS.values(), ids=FAULTS)
def test_a_history_of_real_processes_is_well(
    faults: tuple[str, ...], number: int, kind: str, tmp_path: Path
) -> None:
    del number
    seed = seeded_chance().randrange(1 << 20)
    found = run(Options(seed, SECONDS, faults=faults, kind=kind), tmp_path)
    print(f"seed {seed}\n{found}")
    assert found.is_well, f"seed {seed}, {tmp_path}\n{found}"
    for name in SEEN:
        assert found.seen[name], f"nothing to judge: {name}"


@pytest.mark.parametrize("name", NAMES)
def test_a_bug_can_be_planted_in_a_process(name: str, tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": python_path_with(name, tmp_path)}
    program = "import sys; print('interop_tests.histories.planted' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=60
    )
    assert (done.stdout, done.stderr) == ("True\n", "")
