"""Bandwidth quotas: what a client gets of its quota over half a minute, and the throttle times that it is told.

The first seconds do not count: a client that was idle has its whole window of ten seconds free.
"""

from __future__ import annotations

import statistics
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaTimeoutError

from benchmarks.measure import create_topic, running
from interop_tests.harness.broker import BrokerProcess
from interop_tests.harness.kafka_jvm import kafka_java
from interop_tests.harness.kafka_python import close_at_once
from interop_tests.harness.wire import Connection

Figures = dict[str, float]
QUOTA = 2_000_000
"""Bytes a second."""
SIZE = 1000
SETTLES_S, MEASURED_S = 12, 30
TOPIC, CLIENT = "bench", "limited"
FILLED = 2 * QUOTA * (SETTLES_S + MEASURED_S) // SIZE
Sampled = Callable[[], int]


def limit(broker: BrokerProcess, kind: str) -> None:
    entry = {
        "Entity": [{"EntityType": "client-id", "EntityName": CLIENT}],
        "Ops": [{"Key": kind, "Value": float(QUOTA), "Remove": False}],
    }
    with Connection(broker.bootstrap) as connection:
        reply = connection.call("AlterClientQuotas", 1, {"Entries": [entry], "ValidateOnly": False})
        assert not any(each["ErrorCode"] for each in reply["Entries"]), reply
    time.sleep(1)


def produced(broker: BrokerProcess) -> int:
    """Bytes of values in the topic."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    found = admin.list_offsets({TopicPartition(TOPIC, 0): OffsetSpec.latest()})
    return sum(each.result(30).offset for each in found.values()) * SIZE


def share_of_quota(sample: Callable[[], float], work: Callable[[], None]) -> float:
    """Percent. `work` is done as often as there is time; `sample` gives the bytes so far."""
    started = time.monotonic()
    while time.monotonic() - started < SETTLES_S:
        work()
    first, first_s = sample(), time.monotonic()
    while time.monotonic() - first_s < MEASURED_S:
        work()
    last, last_s = sample(), time.monotonic()
    return (last - first) / (last_s - first_s) / QUOTA * 100


def by_librdkafka(broker: BrokerProcess, kind: str) -> Figures:
    told: list[float] = []
    common = {
        "bootstrap.servers": broker.bootstrap,
        "client.id": CLIENT,
        "throttle_cb": lambda event: told.append(event.throttle_time * 1000),
    }
    if kind == "producer":
        producer = Producer(
            {**common, "queue.buffering.max.messages": 2000, "batch.size": 100_000, "linger.ms": 5}
        )

        def work() -> None:
            with suppress(BufferError):
                producer.produce(TOPIC, b"x" * SIZE)
            producer.poll(0)

        share = share_of_quota(lambda: produced(broker), work)
        producer.purge()
    else:
        consumer = Consumer(
            {**common, "group.id": "g", "auto.offset.reset": "earliest", "fetch.message.max.bytes": 65_536}
        )
        consumer.subscribe([TOPIC])
        read = 0

        def work() -> None:
            nonlocal read
            for message in consumer.consume(500, 0.1):
                assert message.error() is None or message.error().code() == KafkaError._PARTITION_EOF
                read += len(message.value() or b"")

        # librdkafka fetches ahead. What it has fetched but not given counts in the end of both samples alike.
        share = share_of_quota(lambda: read, work)
        consumer.close()
    return {"% of the quota": share, "told throttle ms, mean": statistics.mean(told or [0.0])}


def by_kafka_python(broker: BrokerProcess, kind: str) -> Figures:
    if kind == "producer":
        producer = KafkaProducer(bootstrap_servers=broker.bootstrap, client_id=CLIENT, batch_size=100_000)

        def work() -> None:
            with suppress(KafkaTimeoutError):
                producer.send(TOPIC, b"x" * SIZE)

        share = share_of_quota(lambda: produced(broker), work)
        close_at_once(producer)
    else:
        consumer = KafkaConsumer(
            TOPIC, bootstrap_servers=broker.bootstrap, client_id=CLIENT, auto_offset_reset="earliest",
            max_partition_fetch_bytes=65_536,
        )  # fmt: skip
        read = 0

        def work() -> None:
            nonlocal read
            read += sum(len(each) for each in consumer.poll(100).values()) * SIZE

        share = share_of_quota(lambda: read, work)
        consumer.close()
    return {"% of the quota": share}


def by_java(broker: BrokerProcess, kind: str) -> Figures:
    """Only the producer: what the consumer's tool prints while it runs stays in its buffer."""
    assert kind == "producer"
    words = ["--bootstrap-server", broker.bootstrap, "--topic", TOPIC, "--num-records", "10000000"]
    words += ["--throughput", "-1", "--record-size", str(SIZE), "--command-property", f"client.id={CLIENT}"]
    with tool("ProducerPerformance", words):
        return {"% of the quota": share_of_quota(lambda: produced(broker), lambda: time.sleep(0.2))}


class tool:
    """One of Kafka's performance tools, until the block ends."""

    def __init__(self, name: str, words: list[str]) -> None:
        self._command = [*kafka_java("-Xmx256m"), f"org.apache.kafka.tools.{name}", *words]

    def __enter__(self) -> subprocess.Popen[bytes]:
        self._process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return self._process

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()


CLIENTS = {"librdkafka": by_librdkafka, "kafka-python": by_kafka_python, "Java": by_java}
LOADS = (
    *((name, kind) for name in ("librdkafka", "kafka-python") for kind in ("producer", "consumer")),
    ("Java", "producer"),
)


def bandwidth(name: str, kind: str) -> Callable[[str], Figures]:
    """`kind`: producer or consumer."""

    def run(broker_kind: str) -> Figures:
        with running(broker_kind) as broker:
            create_topic(broker, TOPIC, 1)
            if kind == "consumer":
                producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 20})
                for _ in range(FILLED):
                    while True:
                        try:
                            producer.produce(TOPIC, b"x" * SIZE)
                            break
                        except BufferError:
                            producer.poll(0.1)
                producer.flush(60)
            limit(broker, f"{kind}_byte_rate")
            return CLIENTS[name](broker, kind)

    return run
