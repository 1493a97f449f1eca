"""How many workers a suite gets: one for each processor that this process may use, as far as the memory goes.

    python interop_tests/harness/processors.py [--extra N] [--gigabytes-each G]

Prints the number. Affinity and cgroups bound the processors, cgroups and the machine the memory. It needs nothing but Python,
because the Makefile asks before anything is installed.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")
MEMINFO = Path("/proc/meminfo")
KIB = 1024


def processors(cgroup: Path = CGROUP) -> int:
    """At least 1. A quota of half a processor counts as one."""
    try:
        allowed = len(os.sched_getaffinity(0))
    except AttributeError:  # only Linux has it
        allowed = os.cpu_count() or 1
    quota = _words(cgroup / "cpu.max")
    if len(quota) == 2 and quota[0] != "max":
        allowed = min(allowed, round(int(quota[0]) / int(quota[1])))
    return max(1, allowed)


def memory(cgroup: Path = CGROUP, meminfo: Path = MEMINFO) -> int | None:
    """Bytes that may be used, or None where the system does not say."""
    found = []
    limit = _words(cgroup / "memory.max")
    if limit and limit[0] != "max":
        found.append(int(limit[0]))
    words = _words(meminfo)
    if "MemTotal:" in words:
        found.append(int(words[words.index("MemTotal:") + 1]) * KIB)
    return min(found, default=None)


def workers(allowed: int, available: int | None, bytes_each: int) -> int:
    """At least 1."""
    if available is not None:
        allowed = min(allowed, available // bytes_each)
    return max(1, allowed)


def _words(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except OSError:
        return []


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--extra", type=int, default=0, help="workers beyond one for each processor")
    parser.add_argument("--gigabytes-each", type=float, default=1.0, help="memory of one worker")
    given = parser.parse_args()
    print(workers(processors() + given.extra, memory(), int(given.gigabytes_each * KIB**3)))
