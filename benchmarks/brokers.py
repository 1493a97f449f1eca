"""`python -m benchmarks.brokers [--brokers N]`: one broker beside N on this machine, run by `kafkacompat start --brokers`.

The load is the same for both: N clients, each with partitions of its own, which encode a request once and send it again and
again, so that they take little of the processors. In each round both serve in turn, each with a new folder. What
sixteen brokers would need is computed, not measured.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
from confluent_kafka.admin import AdminClient, NewTopic

from interop_tests.cli.command import output_of
from interop_tests.cli.machine import Machine
from interop_tests.cli.running_cluster import base_port

Figures = dict[str, float]
TOPIC_TIMEOUT_S = 60.0
CLIENT_TIMEOUT_S = 300.0
SETTLE_S = 10.0
"""After the start: what comes in the background has come."""
IDLE_S = 20.0
PARTITIONS = 12
COMPUTED = 16
LOADS: dict[str, dict[str, Any]] = {
    "12 x 16 kB batches a request, acks=all": {
        "work": "raw_produce",
        "size": 1_000,
        "batch_bytes": 16_000,
        "in_flight": 5,
        "partitions": PARTITIONS,
        "requests": 2_000,
    },
    "64 kB batches, acks=all": {
        "work": "raw_produce",
        "size": 100,
        "batch_bytes": 64_000,
        "in_flight": 5,
        "requests": 4_000,
    },
    "one-record requests, 5 in flight": {
        "work": "raw_produce",
        "size": 100,
        "in_flight": 5,
        "requests": 20_000,
    },
}


@contextmanager
def serving(number: int) -> Iterator[Machine]:
    root = Path(tempfile.mkdtemp(prefix="bench-brokers-"))
    machine = Machine(root, base_port())
    try:
        output_of("format", "--standalone", str(machine.file))
        machine.start("--brokers", str(number))
        time.sleep(SETTLE_S)
        yield machine
    finally:
        machine.clean_up()
        shutil.rmtree(root, ignore_errors=True)


def processes_of(machine: Machine) -> list[psutil.Process]:
    """The one that was started, and those of the brokers."""
    assert machine.process is not None
    first = psutil.Process(machine.process.pid)
    return [first, *first.children(recursive=True)]


def cpu_seconds(machine: Machine) -> float:
    return float(sum(sum(each.cpu_times()[:2]) for each in processes_of(machine)))


def create(machine: Machine, name: str, broker: int, partitions: int) -> None:
    """A topic of which one broker leads all partitions."""
    admin = AdminClient({"bootstrap.servers": machine.bootstrap})
    made = admin.create_topics(
        [NewTopic(name, partitions, replica_assignment=[[broker]] * partitions)],
        operation_timeout=TOPIC_TIMEOUT_S,
    )
    made[name].result(TOPIC_TIMEOUT_S)


def loaded(machine: Machine, brokers: int, clients: int, title: str) -> Figures:
    """All clients at once. Each has a topic that one broker leads; the brokers take turns."""
    load = LOADS[title]
    jobs = []
    for place in range(clients):
        broker = place % brokers
        topic = f"bench-{list(LOADS).index(title)}-{place}"
        create(machine, topic, broker + 1, load.get("partitions", 1))
        jobs.append(
            {**load, "topic": topic, "acks": "all", "bootstrap": f"127.0.0.1:{machine.port + broker}"}
        )
    before = cpu_seconds(machine)
    running = [
        subprocess.Popen(
            [sys.executable, "-m", "benchmarks.client", json.dumps(job)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for job in jobs
    ]
    made = []
    for each in running:
        said, errors = each.communicate(timeout=CLIENT_TIMEOUT_S)
        if each.returncode:
            raise RuntimeError(errors)
        made.append(json.loads(said.splitlines()[-1]))
    used = cpu_seconds(machine) - before
    megabytes = sum(each["megabytes"] for each in made)
    # From the first request of any client to the last answer of any.
    took = max(each["began_s"] + each["seconds"] for each in made) - min(each["began_s"] for each in made)
    return {
        "MB/s": megabytes / took,
        "requests/s": load["requests"] * clients / took,
        "brokers' CPU s/GB": used / megabytes * 1e3,
    }


def idle(machine: Machine) -> Figures:
    sizes = [each.memory_info().rss / 1e6 for each in processes_of(machine)]
    before = cpu_seconds(machine)
    time.sleep(IDLE_S)
    return {
        "idle memory MB": sum(sizes),
        "idle memory of the first process MB": sizes[0],
        "idle CPU % of a core": (cpu_seconds(machine) - before) / IDLE_S * 100,
    }


def measured(number: int, clients: int) -> dict[str, Figures]:
    with serving(number) as machine:
        found = {"idle": idle(machine)}
        for title in LOADS:
            found[title] = loaded(machine, number, clients, title)
        return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--brokers", type=int, default=2, help="compared with one (default 2)")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each (default 3)")
    arguments = parser.parse_args()
    rounds: dict[int, list[dict[str, Figures]]] = {1: [], arguments.brokers: []}
    for turn in range(arguments.rounds):
        for number in list(rounds)[:: 1 if turn % 2 == 0 else -1]:
            print(f"round {turn + 1}/{arguments.rounds}, {number} brokers", file=sys.stderr, flush=True)
            rounds[number].append(measured(number, arguments.brokers))
    print(
        f"medians (minimum to maximum) of {arguments.rounds} rounds: 1 broker, {arguments.brokers} brokers, ratio"
    )
    for title, figures in rounds[1][0].items():
        for figure in figures:
            values = {number: [each[title][figure] for each in found] for number, found in rounds.items()}
            one, many = (statistics.median(each) for each in values.values())
            told = ", ".join(
                f"{statistics.median(each):.4g} ({min(each):.4g} to {max(each):.4g})"
                for each in values.values()
            )
            print(f"{title}: {figure}: {told}, {many / one:.2f}" if one else f"{title}: {figure}: {told}")
    for figure in ("idle memory MB", "idle CPU % of a core"):
        one, many = (statistics.median(each["idle"][figure] for each in found) for found in rounds.values())
        further = (many - one) / max(1, arguments.brokers - 1)
        print(f"computed for {COMPUTED} brokers: {figure} {one + further * (COMPUTED - 1):.4g}")


if __name__ == "__main__":
    main()
