"""Metrics that Apache Kafka's node does not have: event loop, worker threads, index cache; and those of every process.

The standard names of a process (`process_resident_memory_bytes` and others) come from prometheus-client.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from prometheus_client.process_collector import ProcessCollector

from kafkacompat.metrics.families import Families, Family, counter, gauge, gauges


class Stalls(Protocol):
    """What the loop's watchdog counts."""

    stalls: int
    longest_s: float


IO = "/proc/self/io"
SERVERS = {"broker": "kafkaserver", "controller": "controllerserver"}


def disk_families(roles: Iterable[str], path: str = IO) -> Families:
    """What the process has read from disks and written to them, under the names of its roles. None where the system
    does not tell."""
    try:
        with open(path, encoding="ascii") as file:
            told = dict(line.split(": ") for line in file)
        numbers = {kind: int(told[f"{kind}_bytes"]) for kind in ("read", "write")}
    except (OSError, ValueError, KeyError):
        return
    for role in roles:
        for kind, number in numbers.items():
            name = f"kafka_server_{SERVERS[role]}_linux_disk_{kind}_bytes"
            yield gauge(name, "Bytes that the process has read from or written to disks.", number)


def start_families(started_ms: int) -> Families:
    """`started_ms`: of the wall clock."""
    yield gauge("kafka_server_app_info_start_time_ms", "When the node was started, ms.", started_ms)


def process_families(
    stalls: Stalls | None,
    loads: Sequence[tuple[str, int, int]],
    index_bytes: int | None,
    connections_left: int | None,
) -> Families:
    """`stalls`: None until the node serves. `loads`: (duty, running, waiting) of each pool of workers. `index_bytes`: None without
    the broker role. `connections_left`: None without a limit of open files."""
    for metric in ProcessCollector(registry=None).collect():
        samples = [(each.labels, each.value) for each in metric.samples]
        yield Family(metric.name, metric.type, metric.documentation, samples)
    yield None
    if stalls is not None:
        yield counter(
            "kafkacompat_loop_stalls",
            "Times that the event loop did not answer for 100 ms or longer.",
            stalls.stalls,
        )
        yield gauge(
            "kafkacompat_loop_stall_longest_seconds",
            "The longest of these times since the start of the node.",
            stalls.longest_s,
        )
    yield gauges(
        "kafkacompat_worker_jobs_running",
        "Jobs that worker threads carry out now.",
        (({"duty": duty}, running) for duty, running, _ in loads),
    )
    yield gauges(
        "kafkacompat_worker_jobs_waiting",
        "Jobs that wait for a worker thread.",
        (({"duty": duty}, waiting) for duty, _, waiting in loads),
    )
    if index_bytes is not None:
        yield gauge(
            "kafkacompat_index_cache_bytes", "Index pages that are kept in memory, in bytes.", index_bytes
        )
    if connections_left is not None:
        yield gauge(
            "kafkacompat_connections_left",
            "More connections of clients that the limit of open files allows now. The rest is kept for the node and its logs.",
            connections_left,
        )
