"""How long a suite of 200 typical tests takes, by where its Kafka comes from.

python -m benchmarks.suites [--ways WAY...] [--rounds N] [--one-in N] [--plain-clients]

Ways: in the process of the tests, or `Kafka(process=True)`, for each test or shared and reset between two; as
`kafkacompat start`, for each test or shared; Apache Kafka, shared or for each test. The suite runs on one core, and its Kafka
with it. With an Apache Kafka for each test 10 of the 200 tests run, evenly chosen, and the times are 20 times theirs. With
`--one-in 40` 5 tests of each way run, to see that it works. With `--plain-clients` no client has the settings that the
documents advise for tests. CPU seconds are those of all processes. On a busy machine they say
more than the seconds that have passed. Afterwards it measures starts and resets.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

EACH, SHARED = "-each", "-shared"
WAYS = (
    "in-process-each",
    "in-process-shared",
    "process-each",
    "process-shared",
    "started-each",
    "started-shared",
    "apache-shared",
    "apache-each",
)
RESET = ("in-process-shared", "process-shared")
SUITE = Path(__file__).with_name("typical_suite")
SLOWEST_ONE_IN = 20
PR_SET_CHILD_SUBREAPER = 36
TIMEOUT_S = 1800.0
REPEATED = 50


@dataclass(frozen=True, slots=True)
class SuiteKafka:
    bootstrap: str
    clean: Callable[[], None] = lambda: None
    """Called after each test that shares it."""


@contextlib.contextmanager
def running(way: str) -> Iterator[SuiteKafka]:
    """A Kafka of this way, until the block ends."""
    if way.startswith(("in-process", "process")):
        from kafkacompat.testing.kafka import Kafka

        with Kafka(process=way.startswith("process")) as kafka:
            yield SuiteKafka(kafka.bootstrap_servers, kafka.reset)
    elif way.startswith("started"):
        from kafkacompat.testing import running_broker

        with running_broker() as broker:
            yield SuiteKafka(broker.bootstrap_servers)
    else:
        from interop_tests.harness.broker import APACHE, BrokerProcess

        with tempfile.TemporaryDirectory() as folder:
            node = BrokerProcess(APACHE, Path(folder) / "node", {"group.initial.rebalance.delay.ms": "0"})
            try:
                yield SuiteKafka(node.start().bootstrap)
            finally:
                node.kill()


class PeakMemory:
    """The largest sum of the resident sets of a process and its children."""

    def __init__(self, pid: int) -> None:
        self.bytes = 0
        self._process = psutil.Process(pid)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._ended.wait(0.1):
            with contextlib.suppress(psutil.Error):
                family = [self._process, *self._process.children(recursive=True)]
                self.bytes = max(self.bytes, sum(each.memory_info().rss for each in family))

    def stop(self) -> int:
        self._ended.set()
        self._thread.join()
        return self.bytes


@dataclass(frozen=True, slots=True)
class Measured:
    """Of 200 tests."""

    seconds: float
    cpu_seconds: float
    bytes: int
    tests: int
    """That ran."""


def measured(way: str, one_in: int, *, plain_clients: bool) -> Measured:
    command = ["taskset", "-c", "0", sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    command += ["--override-ini", "addopts=", str(SUITE)]
    environment = os.environ | {"SUITE_KAFKA": way, "SUITE_ONE_IN": str(one_in)}
    if plain_clients:
        environment["SUITE_PLAIN_CLIENTS"] = "1"
    began_s, began_cpu_s = time.monotonic(), cpu_of_children_s()
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        memory = PeakMemory(process.pid)
        said, _ = process.communicate(timeout=TIMEOUT_S)
    took_s, peak = time.monotonic() - began_s, memory.stop()
    assert process.returncode == 0, said[-3000:]
    count = int(said.rsplit(" passed", 1)[0].split()[-1])
    return Measured(took_s * one_in, (cpu_of_children_s() - began_cpu_s) * one_in, peak, count)


def cpu_of_children_s() -> float:
    """CPU time of all descendants that have ended. Those whose parent has ended are children of this process (`main`)."""
    with contextlib.suppress(ChildProcessError):
        while True:
            os.waitpid(-1, 0)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def distribution(values: list[float]) -> str:
    ordered = sorted(value * 1000 for value in values)
    at = [ordered[0], statistics.median(ordered), ordered[int(len(ordered) * 0.9)], ordered[-1]]
    return "min {:.1f}, median {:.1f}, p90 {:.1f}, max {:.1f} ms".format(*at)


def starts(way: str, count: int) -> list[float]:
    took: list[float] = []
    for _ in range(count):
        began_s = time.monotonic()
        with running(way):
            took.append(time.monotonic() - began_s)
    return took


def resets(way: str) -> list[float]:
    took: list[float] = []
    with running(way) as kafka:
        for _ in range(REPEATED):
            began_s = time.monotonic()
            kafka.clean()
            took.append(time.monotonic() - began_s)
    return took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--one-in", type=int, metavar="N")
    parser.add_argument("--plain-clients", action="store_true")
    arguments = parser.parse_args()
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    print("| Kafka of 200 tests on one core | seconds (median) | CPU seconds (median) | memory MB | tests |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for way in arguments.ways:
        one_in = arguments.one_in or (SLOWEST_ONE_IN if way == "apache-each" else 1)
        rounds = [
            measured(way, one_in, plain_clients=arguments.plain_clients) for _ in range(arguments.rounds)
        ]
        seconds = statistics.median(each.seconds for each in rounds)
        cpu_seconds = statistics.median(each.cpu_seconds for each in rounds)
        peak_mb = max(each.bytes for each in rounds) / 1e6
        print(
            f"| {way} | {seconds:.1f} | {cpu_seconds:.1f} | {peak_mb:.0f} | {rounds[0].tests} |", flush=True
        )
    for way in arguments.ways:
        if not way.endswith(EACH):
            continue
        starts(way, 1)
        count = 5 if way == "apache-each" else REPEATED
        print(f"{count} starts, {way.removesuffix(EACH)}: {distribution(starts(way, count))}", flush=True)
    for way in arguments.ways:
        if way in RESET:
            print(f"{REPEATED} resets, {way.removesuffix(SHARED)}: {distribution(resets(way))}", flush=True)


if __name__ == "__main__":
    main()
