"""A broker that is ended by kill -9 in the midst of a cleaning: at a chosen rename, by a small C library, or while it writes."""

from __future__ import annotations

import time
from pathlib import Path

from interop_tests.compaction.keyed import WAIT_S
from interop_tests.harness.broker import BrokerProcess
from interop_tests.harness.preload import preload_library
from interop_tests.harness.waiting import wait_until

SOURCE = Path(__file__).with_name("kill_at_rename.c")
SLOW_PACE, FAST_PACE = "4000000.0", "1.0E9"
"""Of the cleaner, in bytes a second: a cleaning of some megabytes takes long enough to be met, or no time."""


def environment(rename: int) -> dict[str, str]:
    """For the process that is to end right after so many renames of files of a swap."""
    return {"LD_PRELOAD": str(preload_library(SOURCE)), "KILL_AT_RENAME": str(rename)}


def kill_during_a_cleaning(broker: BrokerProcess, topic: str, delay_s: float) -> bool:
    """So long after a cleaned segment was begun; whether a cleaning was under way in that moment, by the files that it left."""
    folder = broker.data_dir / f"{topic}-0"
    wait_until(lambda: any(folder.glob("*.cleaned")), f"{topic} is being cleaned", WAIT_S, 0.005)
    time.sleep(delay_s)
    broker.kill()
    return any(path.suffix in (".cleaned", ".swap") for path in folder.iterdir())
