"""Clients of a Kafka that a test has secured: who they are, and who is refused."""

from __future__ import annotations

import asyncio
import ssl
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError
from confluent_kafka import Producer
from kafka import KafkaProducer

from kafkacompat.testing import Kafka

pytestmark = pytest.mark.needs_control
USERS = {"alice": 'wonder"land\\', "bob": "builder"}


def produce(kafka: Kafka, value: bytes, **wanted: Any) -> None:
    """With librdkafka."""
    told: list[Any] = []
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, **kafka.security.librdkafka(**wanted)})
    producer.produce("orders", value, on_delivery=lambda error, _: told.append(error))
    producer.flush(30)
    assert told == [None]


async def produce_with_aiokafka(kafka: Kafka, value: bytes, **wanted: Any) -> None:
    settings = kafka.security.python(**wanted)
    async with AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers, **settings) as producer:
        await producer.send_and_wait("orders", value)


def produce_with_kafka_python(kafka: Kafka, value: bytes, **wanted: Any) -> None:
    settings = kafka.security.python(**wanted)
    producer = KafkaProducer(bootstrap_servers=kafka.bootstrap_servers, **settings)
    producer.send("orders", value).get(30)
    producer.close()


def principals(kafka: Kafka) -> set[str]:
    return {each.principal for each in kafka.requests(api="Produce")}


@pytest.mark.parametrize("process", [False, True], ids=["in process", "as a process"])
def test_all_clients_log_in_over_tls(process: bool) -> None:
    kafka = Kafka(secure=True, users=USERS, process=process)
    kafka.record_requests()
    with kafka:
        kafka.create_topic("orders")
        produce(kafka, b"1")
        produce(kafka, b"2", user="bob", mechanism="SCRAM-SHA-512")
        produce_with_kafka_python(kafka, b"3", user="alice", mechanism="SCRAM-SHA-256")
        asyncio.run(produce_with_aiokafka(kafka, b"4", user="alice"))
        kafka.assert_produced("orders", ["1", "2", "3", "4"])
        assert principals(kafka) == {"User:alice", "User:bob"}


def test_certificates_say_who_clients_are_and_what_they_may() -> None:
    """Nodes and tests are trusted, where an authorizer asks."""
    settings = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:alice",
    }
    kafka = Kafka(settings, nodes=2, secure="SSL", users=USERS)
    kafka.record_requests()
    with kafka:
        kafka.create_topic("orders", replication_factor=2)
        produce(kafka, b"1")
        produce_with_kafka_python(kafka, b"2")
        with pytest.raises(AssertionError):
            produce(kafka, b"3", user="bob")
        kafka.assert_produced("orders", ["1", "2"])
        assert principals(kafka) >= {"User:alice"}
        (refused, *_) = [each for each in kafka.requests() if each.principal == "User:bob" and each.errors]
        assert "TOPIC_AUTHORIZATION_FAILED" in refused.errors


@pytest.mark.kafka(secure="SASL_PLAINTEXT", users=USERS)
def test_a_wrong_password_is_refused(kafka: Kafka) -> None:
    kafka.create_topic("orders")
    asyncio.run(produce_with_aiokafka(kafka, b"1", user="bob", mechanism="SCRAM-SHA-256"))
    kafka.reset()
    asyncio.run(produce_with_aiokafka(kafka, b"2", user="bob", mechanism="SCRAM-SHA-256"))
    settings = kafka.security.python("alice") | {"sasl_plain_password": "builder"}

    async def fail() -> None:
        async with AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers, **settings):
            pass

    with pytest.raises(KafkaError):
        asyncio.run(fail())
    assert kafka.requests(api="SaslAuthenticate")[-1].errors == ("SASL_AUTHENTICATION_FAILED",)


@pytest.mark.kafka(secure="SSL")
def test_nobody_enters_without_a_certificate(kafka: Kafka) -> None:
    host, _, port = kafka.bootstrap_servers.rpartition(":")
    context = ssl.create_default_context(cadata=kafka.security.ca_pem)

    async def fail() -> None:
        reader, writer = await asyncio.open_connection(host, int(port), ssl=context)
        writer.write(b"\0\0\0\1x")
        assert await reader.read(1) == b""

    with pytest.raises((ssl.SSLError, ConnectionError, AssertionError)):
        asyncio.run(fail())
    kafka.create_topic("orders")
    produce_with_kafka_python(kafka, b"1")
