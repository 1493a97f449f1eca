"""One broker under one load: figures of the client, and the CPU and memory of the broker's process.

It uses processes and clocks, and nothing inside the brokers. Figures are a dict of names to floats.
"""

from __future__ import annotations

import json
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import psutil
from confluent_kafka.admin import AdminClient, NewTopic

from interop_tests.harness.broker import APACHE, KAFKACOMPAT, BrokerProcess

KINDS = (KAFKACOMPAT, APACHE)
CLIENT_TIMEOUT_S = 200
TOPIC_TIMEOUT_S = 60.0
CPUCLOCK_SCHED = 2
"""In Linux' id of a process's CPU clock (clock_getcpuclockid): all of its threads, also of those that have ended."""
WARM_THEN_MEASURED = ("warm", "bench")
"""Topics of a load that runs twice. The second run is measured, because a JVM compiles its code during the first."""


@contextmanager
def running(
    kind: str, settings: dict[str, str] | None = None, plugins: Sequence[Path] = ()
) -> Iterator[BrokerProcess]:
    """A new broker with an empty directory. `plugins` are for Apache Kafka."""
    root = Path(tempfile.mkdtemp(prefix=f"bench-{kind}-"))
    broker = BrokerProcess(kind, root, settings)
    broker.plugins = plugins
    try:
        yield broker.start()
    finally:
        broker.kill()
        shutil.rmtree(root, ignore_errors=True)


def memory_mb(broker: BrokerProcess) -> float:
    """The resident set of the broker's process in MB."""
    return float(psutil.Process(broker.pid).memory_info().rss) / 1e6


def cpu_seconds(broker: BrokerProcess) -> float:
    return cpu_of([broker.pid])


def cpu_of(pids: Iterable[int]) -> float:
    """To the nanosecond. The times of /proc have steps of 10 ms, which is a percent of a burst."""
    return sum(time.clock_gettime(~pid << 3 | CPUCLOCK_SCHED) for pid in pids)


def create_topic(
    broker: Target,
    name: str,
    partitions: int,
    replication_factor: int = 1,
    settings: dict[str, str] | None = None,
) -> float:
    """Create a topic. Returns the seconds until it exists."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    new = NewTopic(name, partitions, replication_factor, config=settings or {})
    started = time.perf_counter()
    made = admin.create_topics([new], operation_timeout=TOPIC_TIMEOUT_S)
    made[name].result(TOPIC_TIMEOUT_S)
    return time.perf_counter() - started


def client(broker: BrokerProcess, *, expected_bytes: int = 0, **job: Any) -> dict[str, float]:
    """The figures of `run_client`, and the broker's CPU during that time."""
    before = cpu_seconds(broker)
    figures = run_client(broker, expected_bytes=expected_bytes, **job)
    figures["broker_cpu_s"] = cpu_seconds(broker) - before
    return figures


def one_record_burst(broker: BrokerProcess, in_flight: int, count: int) -> dict[str, float]:
    """Produce requests of one record of 100 B, to the topic "bench"."""
    job = {"topic": "bench", "size": 100, "acks": "all", "in_flight": in_flight}
    figures = client(broker, work="raw_produce", requests=count, **job)
    return {
        "requests/s": figures["requests_per_s"],
        "broker CPU us/request": figures["broker_cpu_s"] / count * 1e6,
    }


def one_record_requests(broker: BrokerProcess, in_flight: int, count: int) -> dict[str, float]:
    """The figures of `one_record_burst` on a new topic. As many requests before them warm up."""
    create_topic(broker, "bench", 1)
    one_record_burst(broker, in_flight, count)
    return one_record_burst(broker, in_flight, count)


class Target(Protocol):
    """The address and topic for a client."""

    @property
    def kind(self) -> str: ...

    @property
    def bootstrap(self) -> str: ...

    @property
    def root(self) -> Path: ...


def run_client(target: Target, *, expected_bytes: int = 0, **job: Any) -> dict[str, float]:
    """Run benchmarks.client in a separate process. Returns its figures.

    `expected_bytes` is the number of bytes that the brokers will write: see benchmarks.client.warm_memory.
    """
    job |= {"warm_bytes": expected_bytes * 5 // 4, "warm_folder": str(target.root)}
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.client", json.dumps({"bootstrap": target.bootstrap, **job})],
        capture_output=True,
        text=True,
        timeout=CLIENT_TIMEOUT_S,
        cwd=Path(__file__).resolve().parents[1],
    )
    if done.returncode != 0:
        raise RuntimeError(f"{job['work']} failed on {target.kind}: {done.stderr[-2000:]}")
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


def first_answer_s(broker: BrokerProcess) -> float:
    """Start the stopped broker and poll with ApiVersions every 5 ms. Returns the seconds from exec to the first
    answer."""
    started = time.perf_counter()
    command = broker._apache_command() if broker.kind == APACHE else broker._kafkacompat_command()
    started = time.perf_counter()
    with open(broker.log_path, "ab") as log:
        broker.process = subprocess.Popen(command, stdout=log, stderr=log, cwd=broker.root)
    while time.perf_counter() - started < TOPIC_TIMEOUT_S:
        if answers(broker.port):
            return time.perf_counter() - started
        time.sleep(0.005)
    raise TimeoutError(f"{broker.kind} gave no answer: {broker.log_text()[-2000:]}")


def answers(port: int) -> bool:
    """True if ApiVersions version 0 is answered on the port."""
    body = struct.pack(">hhih", 18, 0, 1, -1)
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1.0) as probe:
            probe.sendall(struct.pack(">i", len(body)) + body)
            return len(probe.recv(10)) == 10
    except OSError:
        return False
