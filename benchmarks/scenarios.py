"""The scenarios. Each runs one broker once and returns named figures.

The main program runs every scenario on both brokers in turn, in several rounds, and reports medians and ratios.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from benchmarks import (
    access,
    cluster,
    compaction,
    consumer_groups,
    costs,
    event_latency,
    held_up,
    indexes,
    mirrors,
    pipeline,
    quotas,
    share_groups,
    streams_groups,
    tls,
    transactions,
)
from benchmarks.measure import (
    WARM_THEN_MEASURED,
    client,
    cpu_seconds,
    create_topic,
    first_answer_s,
    memory_mb,
    one_record_requests,
    running,
)
from interop_tests.harness.broker import BrokerProcess

Figures = dict[str, float]
RECOVERY_LIMIT_S = 60.0
FETCH_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Scenario:
    name: str
    """Its beginning, up to a colon or the like, is the family (`report.family`): a heading of the page and a line of the plot."""
    run: Callable[[str], Figures]


@dataclass(frozen=True, slots=True)
class Load:
    size: int
    count: int
    acks: str
    partitions: int
    compression: str

    @property
    def title(self) -> str:
        return f"{self.size} B, acks={self.acks}, {self.partitions} partitions, {self.compression}"


def produce_and_consume(load: Load) -> Callable[[str], Figures]:
    def run(kind: str) -> Figures:
        with running(kind) as broker:
            create_topic(broker, "warm", load.partitions)
            job = {"size": load.size, "acks": load.acks, "compression": load.compression}
            client(broker, work="produce", topic="warm", count=load.count // 5, **job)
            create_topic(broker, "bench", load.partitions)
            made = client(
                broker,
                work="produce",
                topic="bench",
                count=load.count,
                expected_bytes=load.count * load.size,
                **job,
            )
            read = client(broker, work="consume", topic="bench", count=load.count, partitions=load.partitions)
            gigabytes = load.size * load.count / 1e9
            return {
                "produce MB/s": made["mb_per_s"],
                "produce records/s": made["records_per_s"],
                "produce broker CPU s/GB": made["broker_cpu_s"] / gigabytes,
                "consume MB/s": read["mb_per_s"],
                "consume broker CPU s/GB": read["broker_cpu_s"] / gigabytes,
                "loaded memory MB": memory_mb(broker),
            }

    return run


def requests(in_flight: int, count: int) -> Callable[[str], Figures]:
    def run(kind: str) -> Figures:
        with running(kind) as broker:
            create_topic(broker, "bench", 1)
            client(broker, work="requests", topic="bench", count=count // 4, size=100, in_flight=in_flight)
            figures = client(
                broker, work="requests", topic="bench", count=count, size=100, in_flight=in_flight
            )
            return {
                "requests/s": figures["requests_per_s"],
                "broker CPU us/request": figures["broker_cpu_s"] / count * 1e6,
            }

    return run


def raw_load(size: int, batch_bytes: int, count: int) -> Callable[[str], Figures]:
    """Batches of one size, encoded once: the rate of the broker if the client needs nearly no CPU."""

    def run(kind: str) -> Figures:
        with running(kind) as broker:
            create_topic(broker, "warm", 1)
            create_topic(broker, "bench", 1)
            job = {"size": size, "batch_bytes": batch_bytes, "acks": "all", "in_flight": 5}
            client(broker, work="raw_produce", topic="warm", requests=count // 4, **job)
            made = client(
                broker,
                work="raw_produce",
                topic="bench",
                requests=count,
                expected_bytes=count * batch_bytes,
                **job,
            )
            records = round(made["records_per_s"] / made["requests_per_s"]) * count
            fetch = {"size": size, "batch_bytes": batch_bytes, "max_bytes": FETCH_BYTES, "records": records}
            client(broker, work="raw_fetch", topic="bench", requests=300, **fetch)
            read = client(broker, work="raw_fetch", topic="bench", requests=1500, **fetch)
            return {
                "produce MB/s": made["mb_per_s"],
                "produce broker CPU s/GB": made["broker_cpu_s"] / made["megabytes"] * 1e3,
                "consume MB/s": read["mb_per_s"],
                "consume broker CPU s/GB": read["broker_cpu_s"] / read["megabytes"] * 1e3,
            }

    return run


def raw_requests(in_flight: int, count: int) -> Callable[[str], Figures]:
    def run(kind: str) -> Figures:
        with running(kind) as broker:
            return one_record_requests(broker, in_flight, count)

    return run


def latency(rate: int, count: int) -> Callable[[str], Figures]:
    def run(kind: str) -> Figures:
        with running(kind) as broker:
            for topic in WARM_THEN_MEASURED:
                create_topic(broker, topic, 1)
                figures = client(broker, work="latency", topic=topic, count=count, rate=rate, size=200)
            return {
                "p50 ms": figures["p50_ms"],
                "p99 ms": figures["p99_ms"],
                "p99.9 ms": figures["p999_ms"],
            }

    return run


def connections(number: int, each: int) -> Callable[[str], Figures]:
    def run(kind: str) -> Figures:
        with running(kind) as broker:
            create_topic(broker, "bench", 12)
            figures = client(
                broker, work="connections", topic="bench", connections=number, each=each, size=100
            )
            return {"records/s": figures["records_per_s"], "loaded memory MB": memory_mb(broker)}

    return run


def start_and_idle(kind: str) -> Figures:
    with running(kind) as broker:
        broker.stop()
        started = first_answer_s(broker)
        time.sleep(5)
        before = cpu_seconds(broker)
        time.sleep(5)
        return {
            "start to first answer s": started,
            "idle memory MB": memory_mb(broker),
            "idle CPU %": (cpu_seconds(broker) - before) / 5 * 100,
        }


def going_on_after_kill(kind: str) -> Figures:
    """kill -9 while a producer and a consumer work. Figure: seconds from the restart until both continue."""
    with running(kind) as broker:
        create_topic(broker, "bench", 1)
        producer = Producer({"bootstrap.servers": broker.bootstrap, "acks": "all", "linger.ms": 0})
        consumer = Consumer(
            {"bootstrap.servers": broker.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"}
        )
        consumer.subscribe(["bench"])
        producer.produce("bench", b"before")
        producer.flush(20)
        wait_for(consumer, b"before")
        broker.kill()
        started = time.perf_counter()
        broker.start()
        producer.produce("bench", b"after")
        wait_for(consumer, b"after")
        took = time.perf_counter() - started
        producer.flush(20)
        consumer.close()
        return {"restart after kill -9 to going on s": took}


def wait_for(consumer: Consumer, value: bytes) -> None:
    deadline = time.monotonic() + RECOVERY_LIMIT_S
    while time.monotonic() < deadline:
        message = consumer.poll(0.05)
        if message is not None and message.error() is None and message.value() == value:
            return
    raise TimeoutError(f"{value!r} did not come")


def many_partitions(number: int) -> Callable[[str], Figures]:
    def run(kind: str) -> Figures:
        with running(kind) as broker:
            created = sum(create_topic(broker, f"many-{part}", number // 4) for part in range(4))
            metadata = metadata_ms(broker)
            memory = memory_mb(broker)
            broker.stop()
            started = first_answer_s(broker)
            return {
                "create s": created,
                "metadata of all ms": metadata,
                "memory MB": memory,
                "start to first answer s": started,
            }

    return run


def metadata_ms(broker: BrokerProcess) -> float:
    """The median of ten full metadata requests, in ms."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    samples = []
    for _ in range(10):
        started = time.perf_counter()
        admin.list_topics(timeout=20)
        samples.append((time.perf_counter() - started) * 1e3)
    return sorted(samples)[5]


LOADS = (
    Load(1000, 400_000, "1", 1, "none"),
    Load(1000, 400_000, "all", 1, "none"),
    Load(1000, 400_000, "all", 12, "none"),
    Load(1000, 400_000, "all", 1, "lz4"),
    Load(100, 1_000_000, "1", 1, "none"),
    Load(100, 1_000_000, "all", 12, "none"),
    Load(100, 1_000_000, "all", 12, "lz4"),
)

TRANSACTION_CLIENTS: dict[str, Callable[[int], Callable[[str], Figures]]] = {
    "Java": lambda count: transactions.by_java(count, 1),
    "librdkafka": transactions.by_librdkafka,
    "packed by hand": transactions.packed_by_hand,
}

SCENARIOS = (
    *(Scenario(f"throughput: {load.title}", produce_and_consume(load)) for load in LOADS),
    Scenario("encoded once: 1 kB records, batches of 64 kB", raw_load(1000, 65_536, 8_000)),
    Scenario("encoded once: 100 B records, batches of 16 kB", raw_load(100, 16_384, 30_000)),
    Scenario("encoded once: one-record requests, 1 in flight", raw_requests(1, 30_000)),
    Scenario("encoded once: one-record requests, 5 in flight", raw_requests(5, 50_000)),
    Scenario("librdkafka: one-record requests, 1 in flight", requests(1, 20_000)),
    Scenario("librdkafka: one-record requests, 5 in flight", requests(5, 40_000)),
    Scenario("end-to-end latency at 1,000 records/s", latency(1000, 10_000)),
    Scenario("TLS 1.3: 1 kB records, 3 partitions, beside the clear", tls.throughput(300_000, 3)),
    *(
        Scenario(f"TLS 1.3: handshakes, {name} key", tls.handshakes(1000, use_rsa=name == "RSA"))
        for name in ("EC", "RSA")
    ),
    Scenario("access: SCRAM-SHA-256 handshakes", access.scram_handshakes(1000)),
    *(
        Scenario(
            f"access: one-record requests under {count:,} ACLs", access.produce_under_entries(count, 20_000)
        )
        for count in (0, 10_000)
    ),
    *(
        Scenario(f"quotas: 2 MB/s, {name} {kind}", quotas.bandwidth(name, kind))
        for name, kind in quotas.LOADS
    ),
    *(
        Scenario(f"costs: {what}, one-record {load}", partial(cost, load))
        for what, cost in (("quotas", costs.quotas), ("metrics", costs.metrics))
        for load in costs.LOADS
    ),
    *(
        Scenario(f"consumer groups: {count:,} members", consumer_groups.membership(count, 20_000))
        for count in (100, 1_000)
    ),
    Scenario("consumer groups: 10 real clients", consumer_groups.real_clients(10)),
    Scenario("consumer groups: 10,000 groups of one member", consumer_groups.many_groups(10_000)),
    Scenario("consumer groups: 1,000 groups of one member", consumer_groups.many_groups(1_000)),
    *(
        Scenario(
            f"share groups: accepted {style}, {members} members",
            share_groups.acknowledging(members, style, 400_000),
        )
        for style in ("one by one", "in batches")
        for members in (1, 10, 100)
    ),
    Scenario("share groups: 3 Java consumers", share_groups.java_members(3, 600_000)),
    Scenario("share groups: latency at 1,000 records/s", share_groups.latency(1_000, 10_000)),
    Scenario("share groups: a million records in flight", share_groups.in_flight(1_000_000, 200)),
    Scenario("share groups: coordinator of 10,000 keys", share_groups.takeover(10_000)),
    *(
        Scenario(
            f"streams groups: {count:,} members with 2,000 tasks",
            streams_groups.membership(count, 2_000, 20_000),
        )
        for count in (100, 1_000)
    ),
    Scenario("200 connections", connections(200, 100)),
    Scenario("start and idle", start_and_idle),
    Scenario("going on after kill -9", going_on_after_kill),
    Scenario("2,000 partitions", many_partitions(2000)),
    *(
        Scenario(f"transactions of {count} x 100 B, {name}", make(count))
        for name, make in TRANSACTION_CLIENTS.items()
        for count in (1, 10, 100)
    ),
    Scenario("transactions of 1 x 100 B, 8 Java producers", transactions.by_java(1, 8)),
    Scenario("read_committed end to end, librdkafka", transactions.latency_of_librdkafka),
    Scenario("read_committed end to end, Java", transactions.latency_of_java),
    *(
        Scenario(f"compaction: {mixture.title}", compaction.cleaning(mixture))
        for mixture in compaction.MIXTURES
    ),
    Scenario(
        "producing 400 records/s while 4 logs are cleaned",
        compaction.producing_while_cleaning(compaction.MIXTURES[3], 4),
    ),
    *(Scenario(f"held up by: {name}", run) for name, run in held_up.LOADS),
    Scenario("indexes: retention over 10,000 segments", indexes.retention_pass),
    *(
        Scenario(f"indexes: reads at {places} places of old segments in turn", indexes.reads_in_turn(places))
        for places in (1, 2, 8)
    ),
    Scenario(
        "mirror of an Apache Kafka: 1 kB records, 3 partitions", mirrors.following(300_000, 3, 1_000, 10_000)
    ),
    Scenario("3 nodes: 1 kB, acks=all, 3 partitions", cluster.replicated_produce(1000, 200_000, 3)),
    Scenario("3 nodes: failover", cluster.failover),
    Scenario("3 nodes: 1,000 partitions", cluster.many_replicated(1000)),
    Scenario("3 nodes: follower catch-up", cluster.catch_up(1000, 300_000)),
    *(
        Scenario(f"pipeline: {job} job, 3 partitions", pipeline.throughput(job, 100_000, 20_000))
        for job in ("logs", "activity", "metrics")
    ),
    *(
        Scenario(f"pipeline: {job} table, beside plain Spark", pipeline.overhead(job, 100_000, 20_000, 7))
        for job in ("logs", "activity", "metrics")
    ),
    *(
        Scenario(
            f"pipeline: maintenance of {form} after 1,440 batches", pipeline.maintenance(1440, 288_000, form)
        )
        for form in ("parquet", "delta", "iceberg")
    ),
    Scenario("pipeline: batches of the logs job", pipeline.growth("logs", 5_000, 3)),
    Scenario(
        "pipeline: from an event to its row and result, 100 events/s", event_latency.event_latency(100, 60)
    ),
    Scenario("pipeline: collector", pipeline.collector(300_000)),
)
