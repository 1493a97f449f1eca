"""How long a suite of 200 typical tests takes, by where its Kafka comes from: python -m benchmarks.suites [--ways WAY...]

Ways: in the process of the tests, for each test or shared and reset between two; as a process, for each test or shared;
Apache Kafka, shared or for each test. The suite runs on one core, and its Kafka with it. With an Apache Kafka for each
test a tenth of the tests run, evenly chosen, and the time is ten times theirs. Afterwards it measures starts and resets.
"""

from __future__ import annotations

import argparse
import contextlib
import os
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

EACH = "-each"
WAYS = (
    "in-process-each",
    "in-process-shared",
    "process-each",
    "process-shared",
    "apache-shared",
    "apache-each",
)
SUITE = Path(__file__).with_name("typical_suite")
SLOWEST_TENTH = 10
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
    if way.startswith("in-process"):
        from kafkacompat.testing.kafka import Kafka

        with Kafka() as kafka:
            yield SuiteKafka(kafka.bootstrap_servers, kafka.reset)
    elif way.startswith("process"):
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


def measured(way: str) -> tuple[float, int, int]:
    """Seconds of 200 tests, tests that ran, and bytes at most."""
    one_in = SLOWEST_TENTH if way == "apache-each" else 1
    command = ["taskset", "-c", "0", sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    command += ["--override-ini", "addopts=", str(SUITE)]
    environment = os.environ | {"SUITE_KAFKA": way, "SUITE_ONE_IN": str(one_in)}
    began_s = time.monotonic()
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        memory = PeakMemory(process.pid)
        said, _ = process.communicate(timeout=TIMEOUT_S)
    took_s, peak = time.monotonic() - began_s, memory.stop()
    assert process.returncode == 0, said[-3000:]
    count = int(said.rsplit(" passed", 1)[0].split()[-1])
    return took_s * one_in, count, peak


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


def resets(count: int) -> list[float]:
    took: list[float] = []
    with running("in-process-shared") as kafka:
        for _ in range(count):
            began_s = time.monotonic()
            kafka.clean()
            took.append(time.monotonic() - began_s)
    return took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS)
    parser.add_argument("--rounds", type=int, default=1)
    arguments = parser.parse_args()
    print(
        "| Kafka of 200 tests on one core | seconds (median) | memory MB | tests |\n| --- | ---: | ---: | ---: |"
    )
    for way in arguments.ways:
        rounds = [measured(way) for _ in range(arguments.rounds)]
        seconds = statistics.median(each[0] for each in rounds)
        print(
            f"| {way} | {seconds:.1f} | {max(each[2] for each in rounds) / 1e6:.0f} | {rounds[0][1]} |",
            flush=True,
        )
    running_once = [
        way for way in ("in-process-each", "process-each", "apache-each") if way in arguments.ways
    ]
    for way in running_once:
        starts(way, 1)
        count = 5 if way == "apache-each" else REPEATED
        print(f"{count} starts, {way.removesuffix(EACH)}: {distribution(starts(way, count))}", flush=True)
    if "in-process-shared" in arguments.ways:
        print(f"{REPEATED} resets: {distribution(resets(REPEATED))}")


if __name__ == "__main__":
    main()
