"""Cleaning of one log with the same bytes on both brokers: MB per second, memory, and the latency of producers
meanwhile.

Batches are generated once from a fixed seed and kept in .cache/bench. Each broker gets them in a topic that is not
compacted yet. So a change of cleanup.policy starts the cleaning, and the cleaner's checkpoint shows its end. The
module uses processes, clients and the names of Kafka's files, and nothing inside the brokers.
"""

from __future__ import annotations

import json
import random
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from benchmarks.client import warm_memory
from benchmarks.measure import CLIENT_TIMEOUT_S, create_topic, running
from benchmarks.raw import Stream, error_of_produce, produce_frame
from interop_tests.compaction.keyed import active_base, cleaned_to
from interop_tests.harness.broker import CHECKOUT, BrokerProcess
from interop_tests.harness.records import BatchPlan
from interop_tests.harness.waiting import wait_until

Figures = dict[str, float]
BATCH_BYTES = 16_384
"""The default of the Java producer's batch.size."""
SEGMENT_BYTES, WARM_SEGMENT_BYTES = 16 << 20, 2 << 20
LIMIT_S = 120.0
EAGER = {"log.cleaner.backoff.ms": "20", "log.initial.task.delay.ms": "100"}
IN_FLIGHT = 5
SAMPLE_S = 0.02
POLL_S = 0.005
PRODUCE_RATE = 400


@dataclass(frozen=True, slots=True)
class Mixture:
    """Records with values of about `size` bytes and keys of 12 bytes, drawn evenly from `keys` keys."""

    size: int
    keys: int
    codec: str
    megabytes: int

    @property
    def title(self) -> str:
        return f"{self.megabytes} MB of {self.size} B, {self.keys:,} keys, {self.codec}"

    def batches(self, share: int = 1) -> Iterator[bytes]:
        """The batches of the log, or the first 1/`share` of them."""
        path = (
            CHECKOUT / ".cache" / "bench" / f"{self.size}-{self.keys}-{self.codec}-{self.megabytes}.batches"
        )
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            part = path.with_suffix(".part")
            with open(part, "wb") as file:
                for batch in self._make():
                    file.write(struct.pack(">i", len(batch)) + batch)
            part.rename(path)
        left = path.stat().st_size // share
        with open(path, "rb") as file:
            while left > 0 and (head := file.read(4)):
                batch = file.read(int.from_bytes(head, "big"))
                left -= len(batch) + 4
                yield batch

    def _make(self) -> Iterator[bytes]:
        chance = random.Random(1)
        # The lengths differ a little, as in real data. Half of the text is compressible.
        values = [
            (chance.randbytes(self.size // 2).hex().encode())[: self.size - chance.randrange(7)]
            for _ in range(64)
        ]
        each = max(BATCH_BYTES // (self.size + 24), 1)
        for number in range(self.megabytes * 1_000_000 // (each * (self.size + 24))):
            keys = [b"key-%08d" % chance.randrange(self.keys) for _ in range(each)]
            picked = [values[chance.randrange(64)] for _ in range(each)]
            yield BatchPlan(
                picked, keys, self.codec, base_timestamp_ms=int(time.time() * 1000) + number
            ).encode()


def fill(
    broker: BrokerProcess, topic: str, mixture: Mixture, share: int = 1, segment_bytes: int = SEGMENT_BYTES
) -> int:
    """Create the topic and produce the log into it. Returns the bytes below its active segment."""
    settings = {"segment.bytes": str(segment_bytes), "retention.ms": "-1"}
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1, config=settings)])[topic].result(LIMIT_S)
    wait_until(lambda: _has_leader(admin, topic), f"{topic} has a leader", LIMIT_S)
    stream = Stream(broker.bootstrap)
    waiting = 0

    def take() -> None:
        error = error_of_produce(stream.reply(), topic)
        if error:
            raise RuntimeError(f"filling the log was answered by error {error}")

    for batch in mixture.batches(share):
        stream.send(produce_frame(topic, [0], -1, batch))
        waiting += 1
        if waiting == IN_FLIGHT:
            take()
            waiting -= 1
    for _ in range(waiting):
        take()
    segments = sorted((broker.data_dir / f"{topic}-0").glob("*.log"))
    return sum(path.stat().st_size for path in segments[:-1])


def _has_leader(admin: AdminClient, topic: str) -> bool:
    try:
        end = admin.list_offsets({TopicPartition(topic, 0): OffsetSpec.latest()}, request_timeout=5.0)
        next(iter(end.values())).result(5)
    except KafkaException:
        return False
    return True


def clean(broker: BrokerProcess, *topics: str) -> float:
    """Have the logs compacted. Returns the seconds until all are clean."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    entry = ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.SET)
    resources = [ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry]) for topic in topics]
    started = time.perf_counter()
    for future in admin.incremental_alter_configs(resources).values():
        future.result(LIMIT_S)
    left = list(topics)
    while left:
        left = [
            topic
            for topic in left
            if cleaned_to(broker.data_dir, topic) != active_base(broker.data_dir, topic)
        ]
        if time.perf_counter() - started > LIMIT_S:
            raise TimeoutError(f"{left} were not cleaned in {LIMIT_S} s")
        time.sleep(POLL_S)
    return time.perf_counter() - started


@contextmanager
def peak_memory_mb(pid: int) -> Iterator[list[float]]:
    """The maximum resident memory of a process and its children at one time, in MB. Read the item of the list after
    the block."""
    peak = [0.0]
    done = threading.Event()
    process = psutil.Process(pid)

    def watch() -> None:
        while not done.wait(SAMPLE_S):
            held = process.memory_info().rss
            for child in process.children():
                try:
                    held += child.memory_info().rss
                except psutil.NoSuchProcess:
                    continue
            peak[0] = max(peak[0], held / 1e6)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield peak
    finally:
        done.set()
        watcher.join()


def cleaning(mixture: Mixture) -> Callable[[str], Figures]:
    def run(kind: str) -> Figures:
        with running(kind, EAGER) as broker:
            fill(broker, "warm", mixture, share=4, segment_bytes=WARM_SEGMENT_BYTES)
            clean(broker, "warm")
            size = fill(broker, "bench", mixture)
            warm_memory(str(broker.root), size)
            with peak_memory_mb(broker.pid) as peak:
                took = clean(broker, "bench")
            return {"compaction MB/s": size / took / 1e6, "peak memory with the cleaner MB": peak[0]}

    return run


def producing_while_cleaning(mixture: Mixture, logs: int) -> Callable[[str], Figures]:
    """A producer with a fixed rate on another topic, before and while several logs are cleaned one after the other."""

    def run(kind: str) -> Figures:
        topics = [f"kept-{number}" for number in range(logs)]
        with running(kind, EAGER) as broker:
            create_topic(broker, "bench", 1)
            fill(broker, "warm", mixture, share=4, segment_bytes=WARM_SEGMENT_BYTES)
            clean(broker, "warm")
            for topic in topics:
                fill(broker, topic, mixture)
            with paced_producer(broker) as before:
                time.sleep(8)
            with paced_producer(broker) as meanwhile:
                clean(broker, *topics)
            return {
                "produce p50 ms, no cleaning": before["p50_ms"],
                "produce p99 ms, no cleaning": before["p99_ms"],
                "produce p50 ms, cleaning": meanwhile["p50_ms"],
                "produce p99 ms, cleaning": meanwhile["p99_ms"],
                "produce p99.9 ms, cleaning": meanwhile["p999_ms"],
            }

    return run


@contextmanager
def paced_producer(broker: BrokerProcess) -> Iterator[Figures]:
    """Runs paced_produce of benchmarks.client during the block. Its figures are available after the block."""
    job = {
        "bootstrap": broker.bootstrap,
        "work": "paced_produce",
        "topic": "bench",
        "size": 200,
        "rate": PRODUCE_RATE,
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.client", json.dumps(job)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=Path(__file__).resolve().parents[1],
    )
    figures: Figures = {}
    try:
        assert process.stdout is not None
        process.stdout.readline()
        yield figures
        out, _ = process.communicate(timeout=CLIENT_TIMEOUT_S)
        if process.returncode != 0:
            raise RuntimeError(f"the producer failed on {broker.kind}")
        figures.update(json.loads(out.splitlines()[-1]))
    finally:
        process.kill()
        process.wait()


MIXTURES = (
    Mixture(1000, 1000, "none", 200),
    Mixture(1000, 1_000_000, "none", 200),
    Mixture(100, 1000, "none", 100),
    Mixture(100, 1_000_000, "none", 100),
    Mixture(1000, 1000, "zstd", 200),
    Mixture(100, 100_000, "lz4", 100),
)
