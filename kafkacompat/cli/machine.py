"""What this machine gives the process: processors, memory, ports, and the machine's name.

Affinity and cgroups bound the processors, cgroups and the machine the memory. It needs nothing but Python: the suites ask
before anything is installed.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafkacompat.config import EndPoint

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
            allowed = min(allowed, int(quota[0]) // int(quota[1]))
    return max(1, allowed)


def memory_bytes(cgroup: Path = CGROUP, meminfo: Path = MEMINFO, own: Path = OWN_CGROUPS) -> int | None:
    """Return the bytes that may be used, or None where the system does not say."""
    found = []
    for group in _groups(cgroup, own, "memory"):
        limit = _words(group / "memory.max") or _words(group / "memory.limit_in_bytes")
        if limit and limit[0] != "max":
            found.append(int(limit[0]))
    words = _words(meminfo)
    if "MemTotal:" in words:
        found.append(int(words[words.index("MemTotal:") + 1]) * KIB)
    return min(found, default=None)


def machine_name() -> str:
    return socket.gethostname()


def refused_listener(endpoints: Iterable[EndPoint]) -> tuple[EndPoint, str] | None:
    """Return the first address on which this process cannot listen, and why. A name that is not known here is left to
    the node."""
    for each in endpoints:
        try:
            found = socket.getaddrinfo(
                each.host or None, each.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )
        except OSError:
            continue
        for family, kind, protocol, _, address in found:
            try:
                with socket.socket(family, kind, protocol) as probe:
                    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    if family == socket.AF_INET6:
                        probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                    probe.bind(address)
            except OSError as error:
                if error.errno in (errno.EADDRINUSE, errno.EACCES):
                    return each, error.strerror or str(error)
    return None


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
