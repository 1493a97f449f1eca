"""Metrics that Apache Kafka's node does not have: event loop, worker threads, index cache; and those of every process.

The standard names of a process (`process_resident_memory_bytes` and others) are those of prometheus-client. Its own
collector walks over all descriptors, which takes 7 ms for 10,000 of them, and the loop waits.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from kafkacompat.metrics.families import Families, Metrics, counter, gauge, gauges


class Stalls(Protocol):
    """What the loop's watchdog counts."""

    stalls: int
    longest_s: float


IO = "/proc/self/io"
NUMBERS = {"rchar", "wchar", "syscr", "syscw", "read_bytes", "write_bytes", "cancelled_write_bytes"}
SERVERS = {"broker": "kafkaserver", "controller": "controllerserver"}

DISK: Metrics[Mapping[str, int]] = Metrics(
    "Disks, under the names of the node's roles: `kafkaserver`, `controllerserver`",
    gauge(
        "kafka_server_{server}_linux_disk_read_bytes",
        "Bytes that the process has read from disks.",
        lambda numbers: numbers["read_bytes"],
    ),
    gauge(
        "kafka_server_{server}_linux_disk_write_bytes",
        "Bytes that the process has written to disks.",
        lambda numbers: numbers["write_bytes"],
    ),
    gauge(
        "kafka_server_{server}_linux_disk_cancelled_write_bytes",
        "Bytes that the process need not write, because it has truncated the files.",
        lambda numbers: numbers["cancelled_write_bytes"],
    ),
    gauge(
        "kafka_server_{server}_linux_disk_rchar",
        "Bytes that the process has read, from memory too (KIP-1301).",
        lambda numbers: numbers["rchar"],
    ),
    gauge(
        "kafka_server_{server}_linux_disk_wchar",
        "Bytes that the process has written, to memory too.",
        lambda numbers: numbers["wchar"],
    ),
    gauge(
        "kafka_server_{server}_linux_disk_syscr",
        "System calls that read.",
        lambda numbers: numbers["syscr"],
    ),
    gauge(
        "kafka_server_{server}_linux_disk_syscw",
        "System calls that write.",
        lambda numbers: numbers["syscw"],
    ),
)


def disk_families(roles: Iterable[str], path: str = IO) -> Families:
    """None where the system does not tell."""
    try:
        with open(path, encoding="ascii") as file:
            numbers = {kind: int(number) for kind, number in (line.split(": ") for line in file)}
        if not numbers.keys() >= NUMBERS:
            return
    except (OSError, ValueError):
        return
    for role in roles:
        yield from DISK.of(numbers, server=SERVERS[role])


class NodeReading(NamedTuple):
    started_ms: int
    """By the wall clock."""
    stalls: Stalls | None
    """None until the node serves."""
    loads: Sequence[tuple[str, int, int]]
    """(duty, running, waiting) of each pool of workers."""
    index_bytes: int | None
    """None without the broker role."""
    connections_left: int | None
    """None without a limit of open files."""


NODE: Metrics[NodeReading] = Metrics(
    "The node",
    gauge(
        "kafka_server_app_info_start_time_ms",
        "When the node was started, ms.",
        lambda node: node.started_ms,
    ),
    counter(
        "kafkacompat_loop_stalls",
        "Times that the event loop did not answer for 100 ms or longer.",
        lambda node: None if node.stalls is None else node.stalls.stalls,
    ),
    gauge(
        "kafkacompat_loop_stall_longest_seconds",
        "The longest of these times since the start of the node.",
        lambda node: None if node.stalls is None else node.stalls.longest_s,
    ),
    gauges(
        "kafkacompat_worker_jobs_running",
        "Jobs that worker threads carry out now.",
        ("duty",),
        lambda node: (({"duty": duty}, running) for duty, running, _ in node.loads),
    ),
    gauges(
        "kafkacompat_worker_jobs_waiting",
        "Jobs that wait for a worker thread.",
        ("duty",),
        lambda node: (({"duty": duty}, waiting) for duty, _, waiting in node.loads),
    ),
    gauge(
        "kafkacompat_index_cache_bytes",
        "Index pages that are kept in memory, in bytes.",
        lambda node: node.index_bytes,
    ),
    gauge(
        "kafkacompat_connections_left",
        "More connections of clients that the limit of open files allows now. The rest is kept for the node and its logs.",
        lambda node: node.connections_left,
    ),
)


class ProcessReading(NamedTuple):
    virtual_bytes: int
    resident_bytes: int
    started_s: float
    """Since 1970."""
    cpu_s: float
    open_descriptors: int
    descriptors_max: int


PROCESS: Metrics[ProcessReading] = Metrics(
    "The process",
    gauge("process_virtual_memory_bytes", "Virtual memory size in bytes.", lambda its: its.virtual_bytes),
    gauge("process_resident_memory_bytes", "Resident memory size in bytes.", lambda its: its.resident_bytes),
    gauge(
        "process_start_time_seconds",
        "Start time of the process since unix epoch in seconds.",
        lambda its: its.started_s,
    ),
    counter("process_cpu_seconds", "Total user and system CPU time spent in seconds.", lambda its: its.cpu_s),
    gauge("process_open_fds", "Number of open file descriptors.", lambda its: its.open_descriptors),
    gauge("process_max_fds", "Maximum number of open file descriptors.", lambda its: its.descriptors_max),
)

STAT, BOOT, DESCRIPTORS = "/proc/self/stat", "/proc/stat", "/proc/self/fd"


def process_reading() -> ProcessReading | None:
    """None where the system does not tell."""
    try:
        with open(STAT, "rb") as file:
            # The name before them may have any character. The first one is the third of proc(5).
            fields = file.read().rpartition(b")")[2].split()
        ticks = os.sysconf("SC_CLK_TCK")
        return ProcessReading(
            virtual_bytes=int(fields[20]),
            resident_bytes=int(fields[21]) * resource.getpagesize(),
            started_s=_boot_s() + int(fields[19]) / ticks,
            cpu_s=(int(fields[11]) + int(fields[12])) / ticks,
            open_descriptors=_open_descriptors(),
            descriptors_max=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        )
    except (OSError, ValueError, IndexError):
        return None


def _boot_s() -> int:
    with open(BOOT, "rb") as file:
        return next((int(line.split()[1]) for line in file if line.startswith(b"btime ")), 0)


def _open_descriptors() -> int:
    """Linux has their number as the size of the directory since 6.2, and 0 before."""
    return os.stat(DESCRIPTORS).st_size or len(os.listdir(DESCRIPTORS))


def process_families(node: NodeReading) -> Families:
    reading = process_reading()
    if reading is not None:
        yield from PROCESS.of(reading)
    yield None
    yield from NODE.of(node)
