"""Kills a broker with -9 during a cleaning: after a chosen rename, with a small C library, or while it writes."""

from __future__ import annotations

import time
from pathlib import Path

from interop_tests.compaction.keyed import WAIT_S
from interop_tests.harness.broker import BrokerProcess
from interop_tests.harness.preload import preload_library
from interop_tests.harness.waiting import wait_until

SOURCE = Path(__file__).with_name("kill_at_rename.c")
SLOW_PACE, FAST_PACE = "4000000.0", "1.0E9"
"""Limits of the cleaner in bytes per second: one makes a cleaning of some megabytes slow enough to hit, the other does
not limit it."""


def environment(rename: int) -> dict[str, str]:
    """The environment of a process that ends directly after this number of renames of swap files."""
    return {"LD_PRELOAD": str(preload_library(SOURCE)), "KILL_AT_RENAME": str(rename)}


def kill_during_a_cleaning(broker: BrokerProcess, topic: str, delay_s: float) -> bool:
    """Kill the broker this long after it began a cleaned segment. Returns whether it was cleaning at that moment, from
    the files it left."""
    folder = broker.data_dir / f"{topic}-0"
    wait_until(lambda: any(folder.glob("*.cleaned")), f"{topic} is being cleaned", WAIT_S, 0.005)
    time.sleep(delay_s)
    broker.kill()
    return any(path.suffix in (".cleaned", ".swap") for path in folder.iterdir())
