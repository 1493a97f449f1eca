"""How many workers a suite gets: one for each processor that this process may use, as far as the memory goes.

    python interop_tests/harness/processors.py [--extra N] [--gigabytes-each G]

Prints the number. Affinity and cgroups bound the processors, cgroups and the machine the memory. It needs nothing but Python,
because the Makefile asks before anything is installed.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")
OWN_CGROUPS = Path("/proc/self/cgroup")
MEMINFO = Path("/proc/meminfo")
KIB = 1024


def processors(cgroup: Path = CGROUP, own: Path = OWN_CGROUPS) -> int:
    """At least 1. A quota of half a processor counts as one."""
    try:
        allowed = len(os.sched_getaffinity(0))
    except AttributeError:  # only Linux has it
        allowed = os.cpu_count() or 1
    for group in _groups(cgroup, own, "cpu"):
        quota = _words(group / "cpu.max")
        quota = quota or [*_words(group / "cpu.cfs_quota_us"), *_words(group / "cpu.cfs_period_us")]
        if len(quota) == 2 and quota[0] not in ("max", "-1"):
            allowed = min(allowed, round(int(quota[0]) / int(quota[1])))
    return max(1, allowed)


def memory(cgroup: Path = CGROUP, meminfo: Path = MEMINFO, own: Path = OWN_CGROUPS) -> int | None:
    """Bytes that may be used, or None where the system does not say."""
    found = []
    for group in _groups(cgroup, own, "memory"):
        limit = _words(group / "memory.max") or _words(group / "memory.limit_in_bytes")
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


def _groups(cgroup: Path, own: Path, controller: str) -> Iterator[Path]:
    """The folders of the groups that this process is in. In a container its own group is the root. Version 1 has a tree of
    groups for each controller."""
    yield cgroup
    yield cgroup / controller
    for line in _lines(own):
        _, names, path = line.split(":", 2)
        if not names or controller in names.split(","):
            group = cgroup / controller if names else cgroup
            for part in filter(None, path.split("/")):
                group /= part
                yield group


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []


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
