"""Exactly once while nodes die: an idempotent producer, two copiers in one group, and nodes killed with -9 one after
another.

A run has three nodes. Every 4 to 7 s, when all replicas are in sync, one node is killed and started again 1 to 4 s
later. A seed determines the kills. A run returns one line, which a test or the user of this program judges:

python -m interop_tests.cluster.chaos [--client librdkafka] [--kind kafkacompat] [--seed N] [--seconds 100] [--setting
NAME=VALUE] [--debug WORDS] [--log FOLDER] [--out FILE]
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from interop_tests.cluster.clusters import Cluster
from interop_tests.cluster.copiers import COPIERS
from interop_tests.cluster.workload import closing_consumer
from interop_tests.harness.broker import KAFKACOMPAT
from interop_tests.harness.waiting import wait_until

PROJECT = Path(__file__).resolve().parents[2]
PARTITIONS = 6
COPIER_COUNT = 2
RECORDS_A_SECOND = 470
TICK_S = 0.02
KILL_EVERY_S = (4.0, 7.0)
DOWN_S = (1.0, 4.0)
SETTLED_S = 8.0
"""How long records are written after the last node is back."""
STUCK_S = 20.0
"""If a copier commits nothing for this time although there are records to copy, it is stuck. It equals a transaction's
timeout."""
END_TIMEOUT_S = 60.0
SLOW_S = 4.0
"""The files of a run with a longer pause are kept for analysis."""


@dataclass
class Chaos:
    """The result of one run."""

    client: str
    seed: int
    kills: int = 0
    written: int = 0
    copied: int = 0
    stuck: int = 0
    """Copiers that were stuck."""
    fenced: int = 0
    """Copiers whose producers failed permanently."""
    doubled: int = 0
    lost: int = 0
    longest_s: float = 0.0
    """The longest time in which a copier committed nothing, or the producer got no acknowledgement."""
    gap_s: float = 0.0
    """The same after the last kill."""
    notes: list[str] = field(default_factory=list)

    @property
    def is_well(self) -> bool:
        return not (self.stuck or self.fenced or self.doubled or self.lost)

    def __str__(self) -> str:
        line = (
            f"{self.client} seed {self.seed}: kills {self.kills} records {self.written} copied {self.copied} "
            f"stuck {self.stuck} fenced {self.fenced} doubled {self.doubled} lost {self.lost} "
            f"longest {self.longest_s:.1f} s gap after the last kill {self.gap_s:.1f} s"
        )
        return "; ".join([line, *self.notes])


class Pulse:
    """The moments of success."""

    def __init__(self) -> None:
        self.beats = [time.monotonic()]

    def beat(self) -> None:
        self.beats.append(time.monotonic())

    def longest(self, since: float, until: float) -> float:
        """The longest pause that ended in this time or still lasts."""
        inside = [since, *(each for each in self.beats if since < each < until), until]
        return max(later - earlier for earlier, later in itertools.pairwise(inside))


class Writer:
    """Writes numbers at a steady rate, each once."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.pulse = Pulse()
        self.acknowledged: set[int] = set()
        self.faults: list[str] = []
        self._bootstrap = bootstrap
        self._topic = topic
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Wait until every record is acknowledged."""
        self._ended.set()
        self._thread.join(2 * END_TIMEOUT_S)
        if self._thread.is_alive():
            self.faults.append("the writer hangs")

    def _run(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "enable.idempotence": True,
                "linger.ms": 5,
                "log_level": 0,
            }
        )
        started, sent = time.monotonic(), 0

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                self.faults.append(f"not written: {error}")
                return
            self.acknowledged.add(int(message.value() or b""))
            self.pulse.beat()

        while not self._ended.wait(TICK_S):
            due = int((time.monotonic() - started) * RECORDS_A_SECOND)
            while sent < due:
                producer.produce(
                    self._topic, b"%d" % sent, partition=sent % PARTITIONS, on_delivery=delivered
                )
                sent += 1
            producer.poll(0)
        if producer.flush(END_TIMEOUT_S):
            self.faults.append("the writer could not write everything")


class CopierProcess:
    """A process of copiers/, with its output."""

    def __init__(self, command: list[str], log: Path) -> None:
        self.pulse = Pulse()
        self.copied = 0
        self.failures = 0
        self.ready = threading.Event()
        self._log = open(log, "wb")  # noqa: SIM115
        self._process = subprocess.Popen(
            command, cwd=PROJECT, stdout=subprocess.PIPE, stderr=self._log, text=True
        )
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def close(self) -> None:
        self._process.kill()
        self._process.wait(10)
        self._thread.join(10)
        self._log.close()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._log.write(f"{time.strftime('%H:%M:%S', time.gmtime())} {line}".encode())
            self._log.flush()
            match line.split():
                case ["ready"]:
                    self.pulse.beat()
                    self.ready.set()
                case ["committed", number]:
                    self.copied += int(number)
                    self.pulse.beat()
                case ["failed", *_]:
                    self.failures += 1


class Reader:
    """Reads a topic with read_committed from its beginning, and counts how often each number appears."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.found: Counter[int] = Counter()
        self._bootstrap = bootstrap
        self._topic = topic

    def read(self, is_enough: Callable[[], bool], timeout_s: float) -> None:
        """Read until there are enough records, or no record arrives for a while."""
        with closing_consumer(self._bootstrap, **{"isolation.level": "read_committed"}) as consumer:
            consumer.assign([TopicPartition(self._topic, each, 0) for each in range(PARTITIONS)])
            self.found.clear()
            latest = time.monotonic()
            while not is_enough() and time.monotonic() - latest < timeout_s:
                if self._take(consumer):
                    latest = time.monotonic()

    def _take(self, consumer: Consumer) -> bool:
        values = [each.value() for each in consumer.consume(2000, 0.5) if each.error() is None]
        self.found.update(int(value or b"") for value in values)
        return bool(values)


def kills_in_turn(
    cluster: Cluster, chance: random.Random, seconds: float, told: Callable[[str], None]
) -> Iterator[float]:
    """The time of each kill. At the end every node is started again."""
    end = time.monotonic() + seconds
    next_kill = time.monotonic() + chance.uniform(*KILL_EVERY_S)
    while next_kill < end:
        time.sleep(max(0.0, next_kill - time.monotonic()))
        node = cluster.nodes[chance.choice(sorted(cluster.nodes))]
        down_s = chance.uniform(*DOWN_S)
        node.kill()
        killed = time.monotonic()
        told(f"node {node.node_id} is killed for {down_s:.1f} s")
        yield killed
        time.sleep(down_s)
        node.start()
        next_kill = killed + chance.uniform(*KILL_EVERY_S)
        # A busy machine takes longer to start a node, and two nodes must not be down at the same time.
        cluster.wait_until_whole()
        told("all are there")


def run(
    client: str, seed: int, seconds: float, root: Path, kind: str = KAFKACOMPAT, more: Sequence[str] = ()
) -> Chaos:
    """One run with its files below `root`. The copiers get the arguments in `more`."""
    found = Chaos(client, seed)
    chance = random.Random(seed)
    root.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        cluster = Cluster(kind, root / "cluster").start()
        stack.callback(cluster.close)
        for topic in ("source", "target"):
            cluster.create_topic(topic, PARTITIONS)
        copiers = []
        for number in range(COPIER_COUNT):
            words = [cluster.bootstrap, "source", "target", "copiers", f"copier-{number}", *more]
            copiers.append(CopierProcess([*COPIERS[client](), *words], root / f"copier-{number}.log"))
            stack.callback(copiers[-1].close)
        wait_until(lambda: all(each.ready.is_set() for each in copiers), "the copiers are ready", 60)
        writer = Writer(cluster.bootstrap, "source")
        wait_until(lambda: all(each.copied for each in copiers), "the copiers copy", 60)
        began = last_kill = time.monotonic()
        with open(root / "kills.log", "w") as log:

            def told(text: str) -> None:
                print(time.strftime("%H:%M:%S", time.gmtime()), text, file=log, flush=True)

            for killed in kills_in_turn(cluster, chance, seconds, told):
                last_kill = killed
                found.kills += 1
        time.sleep(min(SETTLED_S, seconds / 2))
        ended = time.monotonic()
        writer.stop()
        found.notes += sorted(set(writer.faults))
        found.fenced = sum(each.has_ended for each in copiers)
        for pulse in (writer.pulse, *(each.pulse for each in copiers)):
            found.longest_s = max(found.longest_s, pulse.longest(began, ended))
            found.gap_s = max(found.gap_s, pulse.longest(last_kill, ended))
        found.stuck = sum(
            each.pulse.longest(began, ended) > STUCK_S for each in copiers if not each.has_ended
        )
        judge(cluster, writer, found)
        failures = sum(each.failures for each in copiers)
        if failures:
            found.notes.append(f"{failures} calls failed")
    return found


def judge(cluster: Cluster, writer: Writer, found: Chaos) -> None:
    """Every acknowledged record is in the source once, and every record of the source is in the target once."""
    source, target = Reader(cluster.bootstrap, "source"), Reader(cluster.bootstrap, "target")
    source.read(lambda: source.found.keys() >= writer.acknowledged, 10.0)
    target.read(lambda: target.found.keys() >= source.found.keys(), END_TIMEOUT_S)
    found.written = len(writer.acknowledged)
    found.copied = len(target.found)
    found.doubled = sum(each > 1 for found in (source.found, target.found) for each in found.values())
    found.lost = len(writer.acknowledged - source.found.keys())
    behind = len(source.found.keys() - target.found.keys())
    if behind and not found.stuck and not found.fenced:
        # The copiers do not report a failure, but records are missing.
        found.lost += behind
    elif behind:
        found.notes.append(f"{behind} not copied")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--client", choices=sorted(COPIERS), default="librdkafka")
    parser.add_argument("--kind", default=KAFKACOMPAT)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 20))
    parser.add_argument("--seconds", type=float, default=100.0)
    parser.add_argument("--log", type=Path, help="keep the files of a run that was not well here")
    parser.add_argument("--debug", help="what librdkafka is to log, eos,broker,cgrp say")
    parser.add_argument(
        "--setting", action="append", default=[], metavar="NAME=VALUE", help="of librdkafka in the copiers"
    )
    parser.add_argument("--out", type=Path, help="append the line here")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="chaos-") as folder:
        root = Path(folder) / "run"
        more = [f"debug={arguments.debug}"] if arguments.debug else []
        more += arguments.setting
        found = None
        try:
            found = run(arguments.client, arguments.seed, arguments.seconds, root, arguments.kind, more)
        finally:
            if arguments.log is not None and not (found and found.is_well and found.longest_s < SLOW_S):
                shutil.move(root, arguments.log / f"{arguments.client}-{arguments.seed}")
        print(found)
        if arguments.out is not None:
            with open(arguments.out, "a") as out:
                print(found, file=out)
    return 0 if found.is_well else 1


if __name__ == "__main__":
    sys.exit(main())
