"""A cluster follows topics of an Apache Kafka: kafkacompat by a mirror with the same offsets, Apache Kafka by MirrorMaker 2, which
keeps the topics' names here but not their offsets.

The source has the first records before somebody follows, which also warms the JVMs. Then as many are written as fast as the source
takes them, and the rate is that of their arrival at the target. Last, the lag of single records is measured. CPU is that of the
target's broker, and of MirrorMaker.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from benchmarks.measure import client, cpu_of, create_topic, running
from interop_tests.cli.command import output_of
from interop_tests.harness.broker import APACHE, BrokerProcess
from interop_tests.harness.one_replica import ONE_REPLICA
from interop_tests.harness.ports import free_port
from interop_tests.harness.waiting import wait_until
from interop_tests.mirror_maker.mirror_maker import MirrorMaker

Figures = dict[str, float]
TOPIC = "bench"
SIZE = 1000
LIMIT_S = 300.0
POLL_S = 0.02
JVM_OPTIONS = ("-Xms256m", "-Xmx2g")
"""Those of Kafka's connect-mirror-maker.sh."""
MIRROR_MAKER = """clusters=source,target
source.bootstrap.servers={source}
target.bootstrap.servers={target}
source->target.enabled=true
target->source.enabled=false
topics={topic}
groups=
replication.policy.class=org.apache.kafka.connect.mirror.IdentityReplicationPolicy
source->target.sync.topic.acls.enabled=false
emit.heartbeats.enabled=false
tasks.max={partitions}
refresh.topics.interval.seconds=2
dedicated.mode.enable.internal.rest=true
listeners=http://127.0.0.1:{port}
replication.factor=1
offset-syncs.topic.replication.factor=1
checkpoints.topic.replication.factor=1
heartbeats.topic.replication.factor=1
config.storage.replication.factor=1
offset.storage.replication.factor=1
status.storage.replication.factor=1
"""


def following(count: int, partitions: int, rate: int, paced: int) -> Callable[[str], Figures]:
    """`count` records before and after somebody follows, then `paced` records at `rate` a second."""

    def run(kind: str) -> Figures:
        with running(APACHE, ONE_REPLICA) as source, running(kind, ONE_REPLICA) as target:
            create_topic(source, TOPIC, partitions)
            produce(source, count)
            with follower(source, target, partitions) as pids:
                arrive(target, partitions, count)
                started, cpu_s = time.perf_counter(), cpu_of(pids)
                produce(source, count)
                arrive(target, partitions, 2 * count)
                seconds, used_s = time.perf_counter() - started, cpu_of(pids) - cpu_s
                lags_ms, busy = paced_lags_ms(source, target, pids, rate, paced)
        return {
            "records/s": count / seconds,
            "CPU s per million records": used_s / count * 1e6,
            "lag ms p50": lags_ms[len(lags_ms) // 2],
            "lag ms p99": lags_ms[len(lags_ms) * 99 // 100],
            f"CPU % at {rate:,} records/s": 100 * busy,
        }

    return run


def produce(source: BrokerProcess, count: int) -> None:
    client(source, work="produce", topic=TOPIC, size=SIZE, count=count, expected_bytes=count * SIZE)


@contextmanager
def follower(source: BrokerProcess, target: BrokerProcess, partitions: int) -> Iterator[list[int]]:
    """The processes that copy: the target's broker, and MirrorMaker beside an Apache Kafka."""
    if target.kind != APACHE:
        output_of(
            *("mirror", "create", "bench", "--topics", TOPIC),
            *("--source", source.bootstrap, "--bootstrap", target.bootstrap),
        )
        yield [target.pid]
        return
    settings = MIRROR_MAKER.format(
        source=source.bootstrap,
        target=target.bootstrap,
        topic=TOPIC,
        partitions=partitions,
        port=free_port(),
    )
    maker = MirrorMaker(Path(target.root), settings, JVM_OPTIONS).start()
    try:
        yield [target.pid, maker.pid]
        maker.assert_runs()
    finally:
        maker.kill()


def arrive(target: BrokerProcess, partitions: int, count: int) -> None:
    """Return when so many records are at the target."""
    consumer = Consumer({"bootstrap.servers": target.bootstrap, "group.id": "bench", "log_level": 0})

    def are_there() -> bool:
        ends = 0
        with suppress(KafkaException):  # the topic is being made
            for partition in range(partitions):
                ends += consumer.get_watermark_offsets(TopicPartition(TOPIC, partition), 5.0)[1]
        return ends >= count

    try:
        wait_until(are_there, f"{count} records on {target.kind}", LIMIT_S, POLL_S)
    finally:
        consumer.close()


def paced_lags_ms(
    source: BrokerProcess, target: BrokerProcess, pids: list[int], rate: int, count: int
) -> tuple[list[float], float]:
    """Ascending times from the producer's call to the arrival at a consumer of the target, and the share of one core."""
    consumer = Consumer(
        {
            "bootstrap.servers": target.bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            "auto.offset.reset": "latest",
            "fetch.wait.max.ms": 100,
        }
    )
    end = consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), 5.0)[1]
    consumer.assign([TopicPartition(TOPIC, 0, end)])
    producer = Producer({"bootstrap.servers": source.bootstrap, "linger.ms": 0})
    padding = bytes(SIZE - 8)
    found: list[float] = []
    started, cpu_s, sent = time.perf_counter(), cpu_of(pids), 0
    while len(found) < count:
        now = time.perf_counter()
        if now - started > LIMIT_S:
            raise TimeoutError(f"{len(found)} of {count} records have arrived on {target.kind}")
        while sent < count and sent <= (now - started) * rate:
            value = time.perf_counter_ns().to_bytes(8, "big") + padding
            producer.produce(TOPIC, value, partition=0)
            sent += 1
        producer.poll(0)
        for message in consumer.consume(100, 0.001):
            if message.error() is None:
                sent_ns = int.from_bytes(message.value()[:8], "big")
                found.append((time.perf_counter_ns() - sent_ns) / 1e6)
    seconds, used_s = time.perf_counter() - started, cpu_of(pids) - cpu_s
    producer.flush(LIMIT_S)
    consumer.close()
    return sorted(found), used_s / seconds
