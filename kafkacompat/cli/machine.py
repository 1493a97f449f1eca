"""What this machine gives the process: processors, memory, ports, and the machine's name.

Affinity and cgroups bound the processors, cgroups and the machine the memory.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterable
from pathlib import Path

from kafkacompat.config import EndPoint

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
        allowed = min(allowed, int(quota[0]) // int(quota[1]))
    return max(1, allowed)


def memory_bytes(cgroup: Path = CGROUP, meminfo: Path = MEMINFO) -> int | None:
    """Return the bytes that may be used, or None where the system does not say."""
    found = []
    limit = _words(cgroup / "memory.max")
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


def _words(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except OSError:
        return []
