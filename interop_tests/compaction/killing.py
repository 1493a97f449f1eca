"""A broker that is killed by itself at a chosen rename of a swap: a small C library, preloaded."""

from __future__ import annotations

from pathlib import Path

from interop_tests.harness.preload import preload_library

SOURCE = Path(__file__).with_name("kill_at_rename.c")


def environment(rename: int) -> dict[str, str]:
    """For the process that is to end right after so many renames of files of a swap."""
    return {"LD_PRELOAD": str(preload_library(SOURCE)), "KILL_AT_RENAME": str(rename)}
