"""Real clients on a Kafka whose clock the test moves."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from kafka import KafkaProducer

from interop_tests.harness.waiting import wait_until
from kafkacompat.testing.kafka import Kafka, KafkaCluster

pytestmark = pytest.mark.needs_control
NEW_YEAR = datetime(2040, 1, 1, tzinfo=UTC)


@pytest.fixture
def kafka() -> Iterator[Kafka]:
    with Kafka() as kafka:
        kafka.clock.freeze()
        yield kafka


def consume(consumer: Any, count: int) -> list[Any]:
    found: list[Any] = []
    while len(found) < count:
        found += [each for each in consumer.consume(count, 0.1) if each.error() is None]
    return found


def member_that_is_gone(kafka: Kafka, topic: str, **settings: Any) -> None:
    """A static member has read a record, has committed it, and has ended without leaving the group."""
    consumer = Consumer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": "g",
            "group.instance.id": "one",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **settings,
        }
    )
    consumer.subscribe([topic])
    consume(consumer, 1)
    consumer.commit(asynchronous=False)
    consumer.close()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_session_ends(kafka: Kafka, protocol: str) -> None:
    topic = kafka.topic()
    kafka.produce(topic, ["a"])
    told = {"session.timeout.ms": 45_000} if protocol == "classic" else {}
    member_that_is_gone(kafka, topic, **{"group.protocol": protocol, **told})
    kafka.clock.advance(seconds=40)
    assert len(kafka.groups()["g"].members) == 1
    kafka.clock.advance(seconds=10)
    assert kafka.groups()["g"].state == "Empty"


def test_a_member_that_keeps_its_session_is_fenced_by_an_advance_and_joins_again(kafka: Kafka) -> None:
    """Its heartbeats come in real time."""
    topic = kafka.topic()
    # Not kafka-python's, whose poll may lose the end of a join that its own short timeout has left.
    consumer = Consumer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "heartbeat.interval.ms": 500,
        }
    )
    consumer.subscribe([topic])

    def is_assigned() -> bool:
        consumer.poll(0.1)
        return bool(consumer.assignment())

    wait_until(is_assigned, "the member has its partition")
    (before,) = kafka.groups()["g"].members
    kafka.clock.advance(minutes=5)
    kafka.produce(topic, ["a"])
    found = wait_until(lambda: consumer.consume(1, 0.1), "the record is read")
    assert [each.value() for each in found] == [b"a"]
    consumer.close()
    assert before.member_id not in [each.member_id for each in kafka.groups()["g"].members]


def test_a_transaction_times_out(kafka: Kafka) -> None:
    topic = kafka.topic()
    producer = Producer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "transactional.id": "t",
            "transaction.timeout.ms": 60_000,
        }
    )
    producer.init_transactions(10)
    producer.begin_transaction()
    producer.produce(topic, b"a")
    assert producer.flush(10) == 0
    kafka.clock.advance(seconds=55)
    assert kafka.transactions()["t"].state == "Ongoing"
    kafka.clock.advance(seconds=16)  # the coordinator looks every ten seconds
    assert kafka.transactions()["t"].state == "CompleteAbort"
    assert [each.transaction for each in kafka.records(topic)] == ["aborted"]


def test_records_are_retained_for_their_time(kafka: Kafka) -> None:
    topic = kafka.topic(configs={"retention.ms": 3_600_000})
    kafka.produce(topic, ["a", "b"])
    kafka.clock.advance(minutes=50)
    assert len(kafka.records(topic)) == 2
    kafka.clock.advance(minutes=16)  # the node looks every five minutes
    assert kafka.records(topic) == []
    assert kafka.ends(topic)[0].first == 2


def test_records_are_retained_for_a_week(kafka: Kafka) -> None:
    topic = kafka.topic()
    kafka.produce(topic, ["a"])
    kafka.clock.advance(days=6)
    assert len(kafka.records(topic)) == 1
    kafka.clock.advance(days=1, minutes=10)
    assert kafka.records(topic) == []


def test_old_values_are_compacted_after_their_lag(kafka: Kafka) -> None:
    topic = kafka.topic(
        configs={"cleanup.policy": "compact", "max.compaction.lag.ms": 3_600_000, "segment.ms": 1_800_000}
    )
    kafka.produce(topic, ["old", "new"], key="k")
    kafka.clock.advance(minutes=31)
    kafka.produce(topic, ["other"], key="other")
    assert [each.value for each in kafka.records(topic)] == [b"old", b"new", b"other"]
    kafka.clock.advance(minutes=45)
    assert [each.value for each in kafka.records(topic)] == [b"new", b"other"]


def test_offsets_expire(kafka: Kafka) -> None:
    topic = kafka.topic()
    kafka.produce(topic, ["a"])
    member_that_is_gone(kafka, topic)
    assert kafka.committed("g")[topic, 0].offset == 1
    kafka.clock.advance(days=6)
    assert kafka.committed("g")[topic, 0].offset == 1
    kafka.clock.advance(days=2)
    assert "g" not in kafka.groups()


def test_log_append_time(kafka: Kafka) -> None:
    topic = kafka.topic(configs={"message.timestamp.type": "LogAppendTime"})
    kafka.clock.at(NEW_YEAR)
    producer = KafkaProducer(bootstrap_servers=kafka.bootstrap_servers)
    sent = producer.send(topic, b"a").get(10)
    assert sent.timestamp == NEW_YEAR.timestamp() * 1000
    kafka.clock.advance(minutes=1)
    assert producer.send(topic, b"b").get(10).timestamp == sent.timestamp + 60_000
    producer.close()


def test_a_client_that_waits_for_records_is_answered(kafka: Kafka) -> None:
    """A fetch waits in real time. It is answered when its time is over, and when there is a record."""
    topic = kafka.topic()
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": "g"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    assert consumer.consume(1, 1.5) == []
    timer = threading.Timer(0.2, lambda: kafka.produce(topic, ["a"]))
    timer.start()
    assert [each.value() for each in consume(consumer, 1)] == [b"a"]
    timer.join()
    consumer.close()


def scenario(kafka: Kafka, *, is_frozen: bool) -> Any:
    """A member whose session ends, a transaction that times out, and one that is committed."""
    if is_frozen:
        kafka.clock.freeze()
    kafka.create_topic("orders")
    kafka.produce("orders", ["a", "b", "c"])
    member_that_is_gone(kafka, "orders", **{"session.timeout.ms": 6_000})
    settings = {"bootstrap.servers": kafka.bootstrap_servers, "transaction.timeout.ms": 1_000}
    doomed = Producer({**settings, "transactional.id": "doomed"})
    doomed.init_transactions(10)
    doomed.begin_transaction()
    doomed.produce("orders", b"lost")
    doomed.flush(10)
    if is_frozen:
        kafka.clock.advance(seconds=7)
    kafka.wait_until(group="g", state="Empty")
    kafka.wait_until(lambda: kafka.transactions()["doomed"].state == "CompleteAbort")
    with_success = Producer({**settings, "transactional.id": "committed"})
    with_success.init_transactions(10)
    with_success.begin_transaction()
    with_success.produce("orders", b"kept")
    with_success.commit_transaction(10)
    kafka.wait_until(lambda: kafka.transactions()["committed"].state == "CompleteCommit")
    records = [(each.offset, each.value, each.transaction) for each in kafka.records("orders")]
    groups = {name: (each.type, each.state, each.members) for name, each in kafka.groups().items()}
    states = {name: (each.state, each.producer_epoch) for name, each in kafka.transactions().items()}
    return records, groups, kafka.committed("g"), kafka.ends("orders"), states


def test_the_same_happens_in_real_and_in_frozen_time() -> None:
    settings = {
        "group.min.session.timeout.ms": 1_000,
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": 1_000,
    }
    with Kafka(settings) as real, Kafka(settings) as frozen:
        assert scenario(real, is_frozen=False) == scenario(frozen, is_frozen=True)


def test_no_node_of_a_cluster_is_fenced() -> None:
    with KafkaCluster() as kafka:
        topic = kafka.topic(partitions=3)
        kafka.clock.freeze()
        kafka.produce(topic, ["before"])
        kafka.clock.advance(minutes=5)
        assert not [line for line in str(kafka.log).splitlines() if "fenc" in line.lower()]
        producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "acks": "all"})
        producer.produce(topic, b"after", partition=0)
        assert producer.flush(10) == 0
        assert [each.value for each in kafka.records(topic)] == [b"before", b"after"]
