"""The load, in a separate process, so that its CPU is not counted as the broker's.

`python -m benchmarks.client JSON` prints one JSON object of figures. It uses only librdkafka (confluent-kafka), so
both brokers have the same client. Every loop is limited by a count and a deadline.
"""

from __future__ import annotations

import json
import random
import select
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from benchmarks.raw import raw_exchanges, raw_fetch, raw_paced, raw_produce
from benchmarks.transaction_loads import committed_latency, librdkafka_transactions, raw_transactions

DEADLINE_S = 120.0
MEGABYTE = 1 << 20


def produce(job: dict[str, Any]) -> dict[str, float]:
    """Send `count` records of `size` bytes. Figures: records/s, MB/s of values."""
    producer = Producer(
        {
            "bootstrap.servers": job["bootstrap"],
            "acks": job.get("acks", "all"),
            "compression.type": job.get("compression", "none"),
            "linger.ms": 5,
            "batch.size": job.get("batch_size", 262_144),
            "batch.num.messages": 100_000,
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": 262_144,
            "enable.idempotence": job.get("idempotent", False),
            **job.get("security", {}),
        }
    )
    payload = value_of(job["size"])
    topic, count = job["topic"], job["count"]
    failures = 0

    def seen(error: KafkaError | None, _message: object) -> None:
        nonlocal failures
        failures += error is not None

    deadline = time.monotonic() + DEADLINE_S
    started = time.perf_counter()
    for number in range(count):
        while True:
            try:
                producer.produce(topic, payload)
                break
            except BufferError:
                producer.poll(0.05)
                if time.monotonic() > deadline:
                    raise TimeoutError("the broker does not take the records") from None
        if number % 1000 == 0:
            producer.poll(0)
    left = producer.flush(DEADLINE_S)
    took = time.perf_counter() - started
    if left or failures:
        raise RuntimeError(f"{left} records unsent, {failures} failed")
    return {"records_per_s": count / took, "mb_per_s": count * job["size"] / took / 1e6, "seconds": took}


def consume(job: dict[str, Any]) -> dict[str, float]:
    """Read `count` records from the beginning of all partitions."""
    consumer = Consumer(
        {
            "bootstrap.servers": job["bootstrap"],
            "group.id": "bench",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "fetch.message.max.bytes": 1_048_576,
            # Without these settings librdkafka pauses for a second whenever it holds 100,000 records.
            "queued.min.messages": 1_000_000,
            "queued.max.messages.kbytes": 1_048_576,
            "fetch.queue.backoff.ms": 1,
            "check.crcs": False,
            **job.get("security", {}),
        }
    )
    consumer.assign([TopicPartition(job["topic"], number, 0) for number in range(job["partitions"])])
    seen = 0
    size = 0
    deadline = time.monotonic() + DEADLINE_S
    first = consumer.consume(1, 30.0)
    started = time.perf_counter()
    seen += len(first)
    while seen < job["count"] and time.monotonic() < deadline:
        for message in consumer.consume(10_000, 1.0):
            if message.error() is None:
                seen += 1
                size += len(message.value())
    took = time.perf_counter() - started
    consumer.close()
    if seen < job["count"]:
        raise TimeoutError(f"{seen} of {job['count']} records came")
    return {"records_per_s": seen / took, "mb_per_s": size / took / 1e6, "seconds": took}


def requests(job: dict[str, Any]) -> dict[str, float]:
    """One record per request, with `in_flight` requests at a time."""
    producer = Producer(
        {
            "bootstrap.servers": job["bootstrap"],
            "acks": "all",
            "linger.ms": 0,
            "batch.num.messages": 1,
            "max.in.flight.requests.per.connection": job["in_flight"],
            "queue.buffering.max.messages": 1_000_000,
            "socket.nagle.disable": True,
        }
    )
    payload = value_of(job["size"])
    producer.produce(job["topic"], payload)
    producer.flush(30.0)
    started = time.perf_counter()
    for _ in range(job["count"]):
        producer.produce(job["topic"], payload)
    left = producer.flush(DEADLINE_S)
    took = time.perf_counter() - started
    if left:
        raise TimeoutError(f"{left} records unsent")
    return {"requests_per_s": job["count"] / took, "seconds": took}


def latency(job: dict[str, Any]) -> dict[str, float]:
    """Send records at a fixed rate through producer, broker and a waiting consumer. Figures: ms at p50, p99, p99.9."""
    consumer = Consumer(
        {
            "bootstrap.servers": job["bootstrap"],
            "group.id": "bench",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 500,
        }
    )
    # A load that is repeated finds records of the rounds before.
    _, end = consumer.get_watermark_offsets(TopicPartition(job["topic"], 0), timeout=30.0)
    consumer.assign([TopicPartition(job["topic"], 0, end)])
    producer = Producer(
        {"bootstrap.servers": job["bootstrap"], "acks": "all", "linger.ms": 0, "socket.nagle.disable": True}
    )
    filler = value_of(max(job["size"] - 20, 0))
    count, interval = job["count"], 1.0 / job["rate"]
    samples: list[float] = []
    producer.produce(job["topic"], b"%020d" % 0 + filler)
    producer.flush(30.0)
    consumer.consume(1, 30.0)
    sent = 0
    started = time.perf_counter()
    deadline = time.monotonic() + DEADLINE_S
    while len(samples) < count and time.monotonic() < deadline:
        now = time.perf_counter()
        while sent < count and now - started >= sent * interval:
            producer.produce(job["topic"], b"%020d" % time.perf_counter_ns() + filler)
            sent += 1
        producer.poll(0)
        message = consumer.poll(0.0005)
        if message is not None and message.error() is None:
            samples.append((time.perf_counter_ns() - int(message.value()[:20])) / 1e6)
    consumer.close()
    if len(samples) < count:
        raise TimeoutError(f"{len(samples)} of {count} records came back")
    return quantiles(samples[count // 10 :])


def paced_produce(job: dict[str, Any]) -> dict[str, float]:
    """Send single records at a fixed rate until standard input ends. Figures: ms from the planned time to the
    acknowledgement."""
    producer = Producer(
        {"bootstrap.servers": job["bootstrap"], "acks": "all", "linger.ms": 0, "socket.nagle.disable": True}
    )
    topic, payload, interval_ns = job["topic"], value_of(job["size"]), 1_000_000_000 // job["rate"]
    for _ in range(job["rate"]):
        producer.produce(topic, payload)
        producer.flush(30.0)
    samples: list[float] = []
    failures: list[KafkaError] = []

    def send(due_ns: int) -> None:
        def acknowledged(error: KafkaError | None, _message: object) -> None:
            samples.append((time.perf_counter_ns() - due_ns) / 1e6)
            if error is not None:
                failures.append(error)

        producer.produce(topic, payload, on_delivery=acknowledged)

    print("{}", flush=True)
    due_ns = time.perf_counter_ns()
    deadline = time.monotonic() + DEADLINE_S
    while not select.select([sys.stdin], [], [], 0)[0] and time.monotonic() < deadline:
        while time.perf_counter_ns() >= due_ns:
            send(due_ns)
            due_ns += interval_ns
        producer.poll(max(due_ns - time.perf_counter_ns(), 0) / 1e9)
    if producer.flush(DEADLINE_S) or failures:
        raise RuntimeError(f"records were not taken: {failures[:3]}")
    return quantiles(samples)


def connections(job: dict[str, Any]) -> dict[str, float]:
    """`connections` producers, each sending `each` records one by one. Figure: records per second of all producers
    together."""
    producers = [
        Producer(
            {"bootstrap.servers": job["bootstrap"], "acks": "1", "linger.ms": 0, "client.id": f"c{number}"}
        )
        for number in range(job["connections"])
    ]
    payload = value_of(job["size"])
    for producer in producers:
        producer.produce(job["topic"], payload)
    for producer in producers:
        if producer.flush(60.0):
            raise TimeoutError("a connection did not come up")
    started = time.perf_counter()
    for _ in range(job["each"]):
        for producer in producers:
            producer.produce(job["topic"], payload)
            producer.poll(0)
    left = sum(producer.flush(DEADLINE_S) for producer in producers)
    took = time.perf_counter() - started
    if left:
        raise TimeoutError(f"{left} records unsent")
    return {"records_per_s": job["connections"] * job["each"] / took, "seconds": took}


def many_producers(job: dict[str, Any]) -> dict[str, float]:
    """`clients` producers with librdkafka's defaults send `count` records of `size` random bytes, each its share of them.

    Figures: MB/s of values, and ms until the acknowledgement of every tenth record at p50, p99, p99.9.
    """
    settings = {
        "bootstrap.servers": job["bootstrap"],
        "acks": job["acks"],
        "compression.type": job["compression"],
    }
    producers = [Producer({**settings, "client.id": f"c{number}"}) for number in range(job["clients"])]
    values = [random.randbytes(job["size"]) for _ in range(1000)]
    for producer in producers:
        producer.produce(job["topic"], values[0])
    for producer in producers:
        if producer.flush(60.0):
            raise TimeoutError("a connection did not come up")
    samples: list[float] = []
    failures: list[KafkaError] = []

    def timed() -> Callable[[KafkaError | None, object], None]:
        sent_ns = time.perf_counter_ns()

        def acknowledged(error: KafkaError | None, _message: object) -> None:
            samples.append((time.perf_counter_ns() - sent_ns) / 1e6)
            if error is not None:
                failures.append(error)

        return acknowledged

    deadline = time.monotonic() + DEADLINE_S
    started = time.perf_counter()
    for number in range(job["count"]):
        producer = producers[number % len(producers)]
        report = {"on_delivery": timed()} if number % 10 == 0 else {}
        while True:
            try:
                producer.produce(job["topic"], values[number % 1000], **report)
                break
            except BufferError:
                producer.poll(0.05)
                if time.monotonic() > deadline:
                    raise TimeoutError("the broker does not take the records") from None
        if number % 100 < len(producers):
            producer.poll(0)
    left = sum(producer.flush(DEADLINE_S) for producer in producers)
    took = time.perf_counter() - started
    if left or failures:
        raise RuntimeError(f"{left} records unsent, failures: {failures[:3]}")
    return {"mb_per_s": job["count"] * job["size"] / took / 1e6, **quantiles(samples)}


def quantiles(samples: list[float]) -> dict[str, float]:
    samples = sorted(samples)
    return {
        name: samples[min(len(samples) - 1, int(len(samples) * share))]
        for name, share in (("p50_ms", 0.5), ("p99_ms", 0.99), ("p999_ms", 0.999))
    }


def value_of(size: int) -> bytes:
    """Bytes like text that compress about as well as logs."""
    words = b"GET /index.html 200 1834 ms user=%d agent=Mozilla/5.0 ref=https://example.org/page/%d ; "
    text = b"".join(words % (number * 7919 % 10_000, number) for number in range(size // 60 + 1))
    return text[:size]


def with_payload(
    work: Callable[[dict[str, Any]], dict[str, float]],
) -> Callable[[dict[str, Any]], dict[str, float]]:
    return lambda job: work({**job, "payload": value_of(job["size"])})


WORKS = {
    "raw_produce": with_payload(raw_produce),
    "raw_paced": with_payload(raw_paced),
    "raw_fetch": with_payload(raw_fetch),
    "raw_exchanges": raw_exchanges,
    "produce": produce,
    "consume": consume,
    "requests": requests,
    "latency": latency,
    "connections": connections,
    "many_producers": many_producers,
    "paced_produce": paced_produce,
    "raw_transactions": with_payload(raw_transactions),
    "librdkafka_transactions": with_payload(librdkafka_transactions),
    "committed_latency": with_payload(committed_latency),
}


def warm_memory(folder: str, size: int) -> None:
    """Write and remove a file of `size` bytes. On a hypervisor that takes back free memory, the next first use of it
    is expensive.

    It runs directly before the load, for both brokers alike, so that neither pays for fresh pages. A load is short
    enough to end before the memory is taken back again (a second or two).
    """
    path = Path(folder) / "warm"
    block = bytes(MEGABYTE)
    with open(path, "wb") as file:
        for _ in range(size // MEGABYTE + 1):
            file.write(block)
    path.unlink()


def main() -> None:
    job = json.loads(sys.argv[1])
    if job.get("warm_bytes"):
        warm_memory(job["warm_folder"], job["warm_bytes"])
    print(json.dumps(WORKS[job["work"]](job)))


if __name__ == "__main__":
    main()
