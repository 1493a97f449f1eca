"""The sweep of faults finds planted mistakes in small programs, and passes the right one."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from kafkacompat.testing.kafka import Kafka, KafkaCluster
from kafkacompat.testing.sweep import KILL, FaultFound, every_fault

pytestmark = pytest.mark.needs_control
RECORDS = 2
QUICK = {
    "reconnect.backoff.ms": 5,
    "reconnect.backoff.max.ms": 20,
    "retry.backoff.ms": 5,
    "metadata.recovery.strategy": "none",
    "log_level": 0,
}


@pytest.fixture
def kafka() -> Iterator[Kafka]:
    with Kafka() as kafka:
        kafka.create_topic("in")
        kafka.create_topic("out")
        kafka.produce("in", [str(number) for number in range(RECORDS)])
        yield kafka


def consumer_of(kafka: Kafka, **settings: Any) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "heartbeat.interval.ms": 100,
            "fetch.wait.max.ms": 50,
            "enable.partition.eof": True,
            **QUICK,
            **settings,
        }
    )


def producer_of(kafka: Kafka, **settings: Any) -> Producer:
    return Producer({"bootstrap.servers": kafka.bootstrap_servers, "linger.ms": 0, **QUICK, **settings})


def polled(consumer: Consumer) -> Iterator[Any]:
    """Records of a topic with one partition, until its end."""
    while True:
        message = consumer.poll(1.0)
        if message is None:
            continue
        if message.error() is None:
            yield message
        elif message.error().code() == KafkaError._PARTITION_EOF:
            return
        else:
            raise KafkaException(message.error())


def send(producer: Producer, value: bytes) -> None:
    failed: list[Any] = []
    producer.produce("out", value, on_delivery=lambda error, _: failed.append(error) if error else None)
    left = producer.flush(10)
    if failed:
        raise KafkaException(failed[0])
    if left:
        raise TimeoutError(f"{left} records are not acknowledged")


def in_one_transaction(producer: Producer, consumer: Consumer, messages: list[Any]) -> None:
    producer.begin_transaction()
    try:
        for message in messages:
            producer.produce("out", message.value())
        producer.flush(10)
        last = messages[-1]
        position = TopicPartition(last.topic(), 0, last.offset() + 1)
        producer.send_offsets_to_transaction([position], consumer.consumer_group_metadata(), 2)
        producer.commit_transaction(2)
    except KafkaException:
        producer.abort_transaction(2)
        raise


def exactly_once(kafka: Kafka, source: str = "in", **settings: Any) -> None:
    consumer = consumer_of(kafka, **settings)
    producer = producer_of(kafka, **{"transactional.id": "t"})
    try:
        producer.init_transactions(30)
        consumer.subscribe([source])
        for message in polled(consumer):
            in_one_transaction(producer, consumer, [message])
    finally:
        consumer.close()


def in_batches(kafka: Kafka, *, forgets: bool) -> None:
    """It holds records until there are enough for a transaction."""
    held: list[Any] = []

    def drop(*_: object) -> None:
        if not forgets:
            held.clear()

    consumer = consumer_of(kafka)
    producer = producer_of(kafka, **{"transactional.id": "t"})
    try:
        producer.init_transactions(30)
        consumer.subscribe(["in"], on_revoke=drop, on_lost=drop)
        for message in polled(consumer):
            held.append(message)
            time.sleep(0.5)  # its work, during which heartbeats are sent
            if message.offset() == RECORDS - 1:
                in_one_transaction(producer, consumer, held)
                held.clear()
    finally:
        consumer.close()


def in_two_stages(kafka: Kafka, *, isolation: str) -> None:
    """The first one writes in a transaction, if it has not done so yet. The second one copies that, exactly once."""
    if not any(each.transaction == "committed" for each in kafka.records("middle")):
        producer = producer_of(kafka, **{"transactional.id": "first"})
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce("middle", b"m")
        producer.flush(10)
        producer.commit_transaction(2)
    exactly_once(kafka, "middle", **{"isolation.level": isolation})


def commits_before_its_work(kafka: Kafka) -> None:
    consumer, producer = consumer_of(kafka), producer_of(kafka)
    try:
        consumer.subscribe(["in"])
        for message in polled(consumer):
            consumer.commit(message, asynchronous=False)
            send(producer, message.value())
    finally:
        consumer.close()


def commits_outside_of_its_transaction(kafka: Kafka) -> None:
    consumer = consumer_of(kafka)
    producer = producer_of(kafka, **{"transactional.id": "t"})
    try:
        producer.init_transactions(30)
        consumer.subscribe(["in"])
        for message in polled(consumer):
            producer.begin_transaction()
            producer.produce("out", message.value())
            producer.commit_transaction(2)
            consumer.commit(message, asynchronous=False)
    finally:
        consumer.close()


def commits_after_its_work(kafka: Kafka) -> None:
    """At least once."""
    consumer, producer = consumer_of(kafka), producer_of(kafka, **{"enable.idempotence": True})
    try:
        consumer.subscribe(["in"])
        for message in polled(consumer):
            send(producer, message.value())
            consumer.commit(message, asynchronous=False)
    finally:
        consumer.close()


def sends_again_without_idempotence(kafka: Kafka) -> None:
    """It reads without a group, and writes all in one request."""
    producer = producer_of(kafka, **{"enable.idempotence": False, "retries": 5})
    if not kafka.records("out"):
        send(producer, b"all")


def test_the_right_program_passes(kafka: Kafka) -> None:
    swept = every_fault(exactly_once, kafka, timeout_s=10)
    assert len(swept.points) > 3 * RECORDS
    assert kafka.records("out") == []


def test_a_commit_before_the_work(kafka: Kafka) -> None:
    with pytest.raises(FaultFound, match="committed before the work") as found:
        every_fault(commits_before_its_work, kafka)
    first = found.value.findings[0]
    assert first.point.api == "OffsetCommit"
    assert first.lost


def test_a_commit_outside_of_the_transaction(kafka: Kafka) -> None:
    with pytest.raises(FaultFound, match="send_offsets_to_transaction") as found:
        every_fault(commits_outside_of_its_transaction, kafka)
    assert found.value.findings[0].doubled


def test_a_program_that_promises_at_least_once(kafka: Kafka) -> None:
    every_fault(commits_after_its_work, kafka, may_double=True)
    with pytest.raises(FaultFound):
        every_fault(commits_after_its_work, kafka)


def test_a_retry_without_idempotence(kafka: Kafka) -> None:
    with pytest.raises(FaultFound, match=r"enable\.idempotence") as found:
        every_fault(sends_again_without_idempotence, kafka)
    assert found.value.findings[0].point.api == "Produce"


def test_a_rebalance_listener_that_forgets(kafka: Kafka) -> None:
    with pytest.raises(FaultFound, match="rebalance listener") as found:
        every_fault(partial(in_batches, forgets=True), kafka, timeout_s=12)
    assert found.value.findings[0].doubled
    every_fault(partial(in_batches, forgets=False), kafka, timeout_s=12)


def test_a_read_that_is_not_committed(kafka: Kafka) -> None:
    kafka.create_topic("middle")
    with pytest.raises(FaultFound, match="read_committed") as found:
        every_fault(partial(in_two_stages, isolation="read_uncommitted"), kafka)
    assert found.value.findings[0].doubled
    every_fault(partial(in_two_stages, isolation="read_committed"), kafka, timeout_s=10)


def to_a_cluster(kafka: Kafka, **settings: Any) -> None:
    producer = producer_of(kafka, **{"enable.idempotence": True, "socket.timeout.ms": 2000, **settings})
    if not kafka.records("out"):
        send(producer, b"all")


def test_an_acknowledgement_of_one_node_of_a_cluster() -> None:
    with KafkaCluster() as cluster:
        cluster.create_topic("out")
        every_fault(to_a_cluster, cluster)
        with pytest.raises(FaultFound, match="acks=all") as found:
            every_fault(
                partial(to_a_cluster, **{"enable.idempotence": False, "acks": 1}), cluster, may_double=True
            )
        (lost,) = found.value.findings
        assert lost.what == KILL
        assert lost.point.api == "Produce"
        assert lost.lost
