"""kafkacompat.testing with the clients that tests use: kafka-python, confluent-kafka, aiokafka."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import Any

import aiokafka
import kafka as kafka_python
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from kafkacompat.testing import Kafka, KafkaCluster

TIMEOUT_S = 30
WITH_ACLS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": True,
}
LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
WITH_SASL = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT",
    "inter.broker.listener.name": "SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
        f'{LOGIN} username="admin" password="a" user_admin="a" user_alice="b";'
    ),
}


@pytest.fixture(scope="module")
def shared() -> Iterator[Kafka]:
    with Kafka() as kafka:
        yield kafka


@pytest.fixture
def kafka(shared: Kafka) -> Kafka:
    """As new for each test."""
    shared.reset()
    return shared


# A client of each kind: it sends a value, and reads one in a group, and commits.


def send_with_kafka_python(address: str, topic: str, value: bytes) -> None:
    with kafka_python.KafkaProducer(bootstrap_servers=address) as producer:
        producer.send(topic, value).get(TIMEOUT_S)


def take_with_kafka_python(address: str, topic: str, group: str) -> bytes:
    consumer = kafka_python.KafkaConsumer(
        topic,
        bootstrap_servers=address,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    try:
        value: bytes = next(iter(consumer)).value
        consumer.commit()
        return value
    finally:
        consumer.close()


def send_with_confluent(address: str, topic: str, value: bytes) -> None:
    producer = Producer({"bootstrap.servers": address})
    producer.produce(topic, value)
    assert producer.flush(TIMEOUT_S) == 0


def confluent_consumer(address: str, group: str, **more: Any) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": address,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **more,
        }
    )


def polled(consumer: Consumer) -> bytes:
    end_s = time.monotonic() + TIMEOUT_S
    while time.monotonic() < end_s:
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            return message.value() or b""
    raise AssertionError("no record came")


def take_with_confluent(address: str, topic: str, group: str) -> bytes:
    consumer = confluent_consumer(address, group)
    try:
        consumer.subscribe([topic])
        value = polled(consumer)
        consumer.commit(asynchronous=False)
        return value
    finally:
        consumer.close()


def send_with_aiokafka(address: str, topic: str, value: bytes) -> None:
    async def send() -> None:
        async with aiokafka.AIOKafkaProducer(bootstrap_servers=address) as producer:
            await producer.send_and_wait(topic, value)

    asyncio.run(asyncio.wait_for(send(), TIMEOUT_S))


def take_with_aiokafka(address: str, topic: str, group: str) -> bytes:
    async def take() -> bytes:
        async with aiokafka.AIOKafkaConsumer(
            topic,
            bootstrap_servers=address,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        ) as consumer:
            value: bytes = (await consumer.getone()).value
            await consumer.commit()
            return value

    return asyncio.run(asyncio.wait_for(take(), TIMEOUT_S))


Send = Callable[[str, str, bytes], None]
Take = Callable[[str, str, str], bytes]
CLIENTS = {
    "kafka-python": (send_with_kafka_python, take_with_kafka_python),
    "confluent-kafka": (send_with_confluent, take_with_confluent),
    "aiokafka": (send_with_aiokafka, take_with_aiokafka),
}
with_each_client = pytest.mark.parametrize(("send", "take"), CLIENTS.values(), ids=CLIENTS)


@with_each_client
def test_what_a_client_does_is_seen_without_one(kafka: Kafka, send: Send, take: Take) -> None:
    topic = kafka.topic("orders")
    send(kafka.bootstrap_servers, topic, b"tea")
    kafka.assert_produced(topic, ["tea"])
    assert take(kafka.bootstrap_servers, topic, "readers") == b"tea"
    assert kafka.committed("readers")[topic, 0].offset == 1
    kafka.wait_until(group="readers", lag=0)
    assert kafka.groups()["readers"].state in ("Empty", "Stable", "PreparingRebalance")


@with_each_client
def test_what_is_arranged_is_read_by_a_client(kafka: Kafka, send: Send, take: Take) -> None:
    topic = kafka.topic("orders", partitions=2)
    kafka.produce(topic, ["tea"], partition=1)
    assert take(kafka.bootstrap_servers, topic, "readers") == b"tea"


@with_each_client
def test_a_state_that_is_restored_or_forked_is_as_it_was(kafka: Kafka, send: Send, take: Take) -> None:
    topic = kafka.topic("orders")
    kafka.produce(topic, ["first", "second"])
    assert take(kafka.bootstrap_servers, topic, "readers") == b"first"
    before = kafka.committed("readers")
    snapshot = kafka.snapshot()
    send(kafka.bootstrap_servers, topic, b"third")
    with kafka.fork() as other:
        assert other.committed("readers") == before
        other.assert_produced(topic, ["first", "second", "third"])
        assert take(other.bootstrap_servers, topic, "others") == b"first"
    kafka.restore(snapshot)
    assert kafka.committed("readers") == before
    kafka.assert_produced(topic, ["first", "second"])
    assert take(kafka.bootstrap_servers, topic, "others") == b"first"


# Clients that stay connected while everything is forgotten.


def test_kafka_python_goes_on_after_a_reset(kafka: Kafka) -> None:
    with kafka_python.KafkaProducer(bootstrap_servers=kafka.bootstrap_servers) as producer:
        for value in (b"before", b"after"):
            kafka.create_topic("t")
            producer.send("t", value).get(TIMEOUT_S)
            kafka.assert_produced("t", [value])
            kafka.reset()


def test_confluent_goes_on_after_a_reset_in_the_middle_of_a_poll(kafka: Kafka) -> None:
    producer = Producer(
        {"bootstrap.servers": kafka.bootstrap_servers, "topic.metadata.refresh.interval.ms": 500}
    )
    kafka.create_topic("t")
    consumer = confluent_consumer(
        kafka.bootstrap_servers, "readers", **{"topic.metadata.refresh.interval.ms": 500}
    )
    consumer.subscribe(["t"])
    for value in (b"before", b"after"):
        producer.produce("t", value)
        assert producer.flush(TIMEOUT_S) == 0
        assert polled(consumer) == value
        kafka.reset()
        kafka.create_topic("t")
    consumer.close()


def test_aiokafka_goes_on_after_a_reset(kafka: Kafka) -> None:
    async def go_on() -> None:
        async with aiokafka.AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers) as producer:
            for value in (b"before", b"after"):
                kafka.create_topic("t")
                await producer.send_and_wait("t", value)
                kafka.assert_produced("t", [value])
                kafka.reset()

    asyncio.run(asyncio.wait_for(go_on(), TIMEOUT_S))


def test_a_reset_forgets_transactions_and_producer_ids(kafka: Kafka) -> None:
    for _ in range(2):
        topic = kafka.topic()
        producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": "payments"})
        producer.init_transactions(TIMEOUT_S)
        producer.begin_transaction()
        producer.produce(topic, b"x")
        producer.flush(TIMEOUT_S)
        assert kafka.transactions()["payments"].state == "Ongoing"
        (record,) = kafka.records(topic)
        assert record.transaction == "open"
        assert kafka.transactions()["payments"].producer_id == record.producer_id == 0
        kafka.reset()
        assert kafka.transactions() == {}
        with pytest.raises(KafkaException):
            producer.commit_transaction(TIMEOUT_S)


def test_the_outcome_of_a_transaction_is_told(kafka: Kafka) -> None:
    topic = kafka.topic()
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": "payments"})
    producer.init_transactions(TIMEOUT_S)
    for value, end in ((b"kept", producer.commit_transaction), (b"dropped", producer.abort_transaction)):
        producer.begin_transaction()
        producer.produce(topic, value)
        assert producer.flush(TIMEOUT_S) == 0
        end(TIMEOUT_S)
    kafka.wait_until(lambda: kafka.transactions()["payments"].state == "CompleteAbort")
    told = {record.value: record.transaction for record in kafka.records(topic)}
    assert told == {b"kept": "committed", b"dropped": "aborted"}
    kafka.assert_produced(topic, ["kept"])
    with pytest.raises(AssertionError, match="transaction aborted"):
        kafka.assert_produced(topic, ["kept", "dropped"], timeout_s=0.05)


def test_a_reset_forgets_acls_and_settings() -> None:
    with Kafka(WITH_ACLS) as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
        anybody = AclBindingFilter(
            ResourceType.ANY,
            None,
            ResourcePatternType.ANY,
            None,
            None,
            AclOperation.ANY,
            AclPermissionType.ANY,
        )
        rule = AclBinding(
            ResourceType.TOPIC,
            "t",
            ResourcePatternType.LITERAL,
            "User:*",
            "*",
            AclOperation.READ,
            AclPermissionType.ALLOW,
        )
        broker = ConfigResource(ConfigResource.Type.BROKER, "1")
        threads = ConfigEntry("log.cleaner.threads", "2", incremental_operation=AlterConfigOpType.SET)
        admin.create_acls([rule])[rule].result(TIMEOUT_S)
        changed = ConfigResource(ConfigResource.Type.BROKER, "1", incremental_configs=[threads])
        admin.incremental_alter_configs([changed])[changed].result(TIMEOUT_S)
        assert len(admin.describe_acls(anybody).result(TIMEOUT_S)) == 1
        kafka.produce("t", ["the test may do everything"])
        kafka.reset()
        assert admin.describe_acls(anybody).result(TIMEOUT_S) == []
        told = admin.describe_configs([broker])[broker].result(TIMEOUT_S)
        assert told["log.cleaner.threads"].value == "1"


def test_a_client_logs_in_again_after_a_reset() -> None:
    with Kafka(WITH_SASL) as kafka:
        login = {
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "PLAIN",
            "sasl_plain_username": "alice",
            "sasl_plain_password": "b",
        }
        with kafka_python.KafkaProducer(bootstrap_servers=kafka.bootstrap_servers, **login) as producer:
            for value in (b"before", b"after"):
                producer.send("t", value).get(TIMEOUT_S)
                kafka.assert_produced("t", [value])
                kafka.reset()


# Groups.


def test_members_join_and_lag_is_counted(kafka: Kafka) -> None:
    topic = kafka.topic("orders", partitions=2)
    kafka.produce(topic, ["a", "b", "c"], partition=0)
    consumers = [confluent_consumer(kafka.bootstrap_servers, "readers") for _ in range(2)]
    try:
        for each in consumers:
            each.subscribe([topic])
            each.poll(0)

        def both_have_joined() -> bool:
            for each in consumers:  # a member answers a rebalance while it polls
                each.poll(0)
            found = kafka.groups().get("readers")
            return found is not None and [len(each.partitions) for each in found.members] == [1, 1]

        kafka.wait_until(both_have_joined)
        group = kafka.joined("readers", members=2)
        assert sorted(index for each in group.members for index in each.partitions[topic]) == [0, 1]
        assert kafka.lag("readers", topic) == 3
        with pytest.raises(AssertionError, match=r"group readers is Stable with 2 members"):
            kafka.wait_until(group="readers", lag=0, timeout_s=0.1)
        consumers[0].commit(offsets=[TopicPartition(topic, 0, 2)], asynchronous=False)
        kafka.wait_until(group="readers", lag=1)
    finally:
        for each in consumers:
            each.close()


def test_a_group_of_the_new_protocol_is_told_too(kafka: Kafka) -> None:
    topic = kafka.topic("orders", partitions=3)
    consumer = confluent_consumer(kafka.bootstrap_servers, "readers", **{"group.protocol": "consumer"})
    consumer.subscribe([topic])
    consumer.poll(0)
    try:
        kafka.wait_until(
            lambda: (
                [dict(each.partitions) for each in kafka.joined("readers").members] == [{topic: (0, 1, 2)}]
            )
        )
        assert kafka.groups()["readers"].type.lower() == "consumer"
    finally:
        consumer.close()


# Several nodes.


def test_clients_go_on_when_a_node_is_killed_and_comes_back() -> None:
    with KafkaCluster() as kafka:
        topic = kafka.topic("orders", partitions=3)
        producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "acks": "all"})
        consumer = confluent_consumer(kafka.bootstrap_servers, "readers")
        consumer.subscribe([topic])
        sent = []
        for number, change in enumerate((None, kafka.kill_node, kafka.start_node)):
            if change is not None:
                change(2)
            sent.append(b"%d" % number)
            producer.produce(topic, sent[-1])
            assert producer.flush(TIMEOUT_S) == 0
        assert sorted(polled(consumer) for _ in sent) == sent
        consumer.close()
        kafka.assert_produced(topic, sent)


def test_an_error_of_a_topic_that_is_gone_reaches_the_client(kafka: Kafka) -> None:
    with kafka.topic("orders") as topic:
        pass
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    with pytest.raises(KafkaException) as refused:
        admin.delete_topics([topic])[topic].result(TIMEOUT_S)
    assert refused.value.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART
    admin.create_topics([NewTopic(topic, 1)])[topic].result(TIMEOUT_S)
    assert kafka.topics() == {topic: 1}
