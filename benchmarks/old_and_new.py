"""`python -m benchmarks.old_and_new OLD_CHECKOUT`: what a change cost the plain path. The version of another checkout and
this one run at once and serve the same client in turns of a second. Each figure is told for both with their ratio.

The other checkout needs no environment of its own: this interpreter runs it, so both have the same libraries.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

from benchmarks.measure import client, cpu_of, create_topic, one_record_burst, run_client
from benchmarks.raw import LZ4
from benchmarks.turns import REQUESTS, TOPIC, Figures, medians, ratios, taken
from interop_tests.cluster.clusters import Cluster
from interop_tests.harness.broker import KAFKACOMPAT, BrokerProcess

THIS_CHECKOUT = Path(__file__).resolve().parents[1]
BATCHES, BATCH_BYTES = 1_000, 64_000
PARTITIONS, SMALL_REQUESTS = 12, 400
FETCHES, FETCH_BYTES = 500, 1 << 20
T = TypeVar("T")


class VersionOf(BrokerProcess):
    """A node of the code in a checkout."""

    def __init__(self, checkout: Path, root: Path) -> None:
        super().__init__(KAFKACOMPAT, root)
        self.checkout = checkout

    def _kafkacompat_command(self) -> list[str]:
        # -m finds the package in the folder where the process starts, and a node starts in its own.
        begin = (
            f"import sys; sys.path.insert(0, {str(self.checkout)!r}); from kafkacompat.__main__ import main; "
        )
        arguments = super()._kafkacompat_command()[3:]
        return [sys.executable, "-c", begin + "sys.exit(main())", *arguments]


@contextmanager
def serving(checkout: Path) -> Iterator[BrokerProcess]:
    root = Path(tempfile.mkdtemp(prefix="bench-version-"))
    broker = VersionOf(checkout, root)
    try:
        yield broker.start()
    finally:
        broker.kill()
        shutil.rmtree(root, ignore_errors=True)


def batches(broker: BrokerProcess) -> Figures:
    """Batches of 64 kB, produced and then read again and again."""
    job = {"size": 100, "batch_bytes": BATCH_BYTES, "acks": "all", "in_flight": 5}
    made = client(broker, work="raw_produce", topic=TOPIC, requests=BATCHES, **job)
    records = round(made["records_per_s"] / made["requests_per_s"]) * BATCHES
    fetch = {"size": 100, "batch_bytes": BATCH_BYTES, "max_bytes": FETCH_BYTES, "records": records}
    read = client(broker, work="raw_fetch", topic=TOPIC, requests=FETCHES, **fetch)
    return {
        "produce MB/s": made["mb_per_s"],
        "produce broker CPU s/GB": made["broker_cpu_s"] / made["megabytes"] * 1e3,
        "consume MB/s": read["mb_per_s"],
        "consume broker CPU s/GB": read["broker_cpu_s"] / read["megabytes"] * 1e3,
    }


def small_batches(broker: BrokerProcess, codec: int) -> Figures:
    """Requests with a batch of 16 kB for each of 12 partitions, as Kafka's producer sends them by default."""
    job = {"size": 1_000, "batch_bytes": 16_000, "acks": "all", "in_flight": 5, "partitions": PARTITIONS}
    made = client(broker, work="raw_produce", topic=TOPIC, requests=SMALL_REQUESTS, codec=codec, **job)
    return {"broker CPU us/batch": made["broker_cpu_s"] / SMALL_REQUESTS / PARTITIONS * 1e6}


def paced(broker: BrokerProcess, rate: int) -> Figures:
    """Requests of one record that do not follow each other closely, so that the broker sleeps before each."""
    job = {"topic": TOPIC, "size": 100, "rate": rate, "requests": rate}
    made = client(broker, work="raw_paced", **job)
    return {"broker CPU us/request": made["broker_cpu_s"] / rate * 1e6}


class Led(NamedTuple):
    """The first of three nodes, which leads the topic's partition. The others follow it."""

    kind: str
    bootstrap: str
    root: Path
    pids: tuple[int, ...]


@contextmanager
def following(checkout: Path) -> Iterator[Led]:
    """Three nodes of the code in a checkout."""
    root = Path(tempfile.mkdtemp(prefix="bench-versions-"))
    cluster = Cluster(KAFKACOMPAT, root)
    try:
        for node in cluster.nodes.values():
            node.environment["PYTHONPATH"] = str(checkout)
        cluster.start()
        cluster.create_topic(TOPIC, assignment=[[1, 2, 3]])
        cluster.wait_until_replicated()
        pids = tuple(node.pid for node in cluster.nodes.values())
        yield Led(KAFKACOMPAT, cluster.nodes[1].bootstrap, root, pids)
    finally:
        cluster.close()
        shutil.rmtree(root, ignore_errors=True)


def paced_with_followers(led: Led, rate: int) -> Figures:
    """Requests with one batch of 15 kB, as Kafka's producer sends them at a fixed rate."""
    before = cpu_of(led.pids)
    run_client(led, work="raw_paced", topic=TOPIC, size=15_000, rate=rate, requests=2 * rate)
    return {"CPU of three nodes us/request": (cpu_of(led.pids) - before) / 2 / rate * 1e6}


WITH_FOLLOWERS: dict[str, Callable[[Led], Figures]] = {
    "3 nodes, 300 requests a second": partial(paced_with_followers, rate=300),
}
LOADS: dict[str, Callable[[BrokerProcess], Figures]] = {
    "one-record requests, 1 in flight": partial(one_record_burst, in_flight=1, count=REQUESTS),
    "one-record requests, 5 in flight": partial(one_record_burst, in_flight=5, count=REQUESTS),
    "one-record requests, 2,000 a second": partial(paced, rate=2_000),
    "one-record requests, 500 a second": partial(paced, rate=500),
    "64 kB batches": batches,
    "12 batches of 16 kB a request": partial(small_batches, codec=0),
    "12 batches of 16 kB a request, lz4": partial(small_batches, codec=LZ4),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("old", type=Path, help="another checkout of kafkacompat")
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--only", default="", help="loads whose name holds this text")
    options = parser.parse_args()
    old = options.old.resolve()
    if not (old / "kafkacompat").is_dir():
        parser.error(f"{old} has no kafkacompat folder")
    for name, load in LOADS.items():
        if options.only not in name:
            continue
        with serving(old) as before, serving(THIS_CHECKOUT) as after:
            for broker in (before, after):
                create_topic(broker, TOPIC, PARTITIONS)
            compare(name, load, before, after, options.turns)
    for name, shared in WITH_FOLLOWERS.items():
        if options.only not in name:
            continue
        with following(old) as leader, following(THIS_CHECKOUT) as other:
            compare(name, shared, leader, other, options.turns)


def compare(name: str, load: Callable[[T], Figures], before: T, after: T, count: int) -> None:
    for each in (before, after):
        load(each)  # warms up
    turns = taken({"old": partial(load, before), "new": partial(load, after)}, count)
    was, now = medians(turns, "old"), medians(turns, "new")
    for figure, ratio in ratios(turns, "new", "old").items():
        print(
            f"{name}: {figure}: old {was[figure]:.4g}, new {now[figure]:.4g}, ratio {ratio:.3f}", flush=True
        )


if __name__ == "__main__":
    main()
