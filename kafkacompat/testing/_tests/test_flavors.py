"""What Kafkas of others refuse, seen by librdkafka."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic

from kafkacompat.testing.flavors import flavor
from kafkacompat.testing.kafka import Kafka

TIMEOUT_S = 20.0


def produced(kafka: Kafka, value: bytes, **settings: Any) -> Any:
    """The error of a record's delivery, or None."""
    told: list[Any] = []
    own = {"bootstrap.servers": kafka.bootstrap_servers, "linger.ms": 0, "message.timeout.ms": 5000}
    producer = Producer({**own, **settings})
    producer.produce(kafka.topic(), value, on_delivery=lambda error, _: told.append(error))
    producer.flush(TIMEOUT_S)
    return None if told[0] is None else told[0].code()


def test_event_hubs_accept_only_gzip() -> None:
    with Kafka(flavor="event-hubs") as kafka:
        assert produced(kafka, b"a" * 1000) is None
        assert produced(kafka, b"a" * 1000, **{"compression.type": "gzip"}) is None
        for codec in ("lz4", "snappy", "zstd"):
            refused = produced(kafka, b"a" * 1000, **{"compression.type": codec})
            assert refused == KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT


def test_event_hubs_close_the_connection_of_a_large_request() -> None:
    with Kafka({"message.max.bytes": 2_000_000}, flavor="event-hubs") as kafka:
        assert produced(kafka, os.urandom(1_040_000), **{"message.max.bytes": 2_000_000}) is None
        refused = produced(kafka, os.urandom(1_050_000), **{"message.max.bytes": 2_000_000, "retries": 0})
        assert refused is not None


@pytest.fixture(scope="module")
def express() -> Iterator[Kafka]:
    with Kafka(nodes=3, flavor="msk-express") as kafka:
        yield kafka


def test_express_brokers_keep_three_replicas(express: Kafka) -> None:
    admin = AdminClient({"bootstrap.servers": express.bootstrap_servers})
    with pytest.raises(KafkaException) as refused:
        admin.create_topics([NewTopic("one", 1, 1)])["one"].result(TIMEOUT_S)
    assert refused.value.args[0].code() == KafkaError.INVALID_REPLICATION_FACTOR
    admin.create_topics([NewTopic("three", 1, 3)])["three"].result(TIMEOUT_S)
    admin.create_topics([NewTopic("default", 1)])["default"].result(TIMEOUT_S)


def test_express_brokers_keep_their_own_number_of_replicas_in_sync(express: Kafka) -> None:
    admin = AdminClient({"bootstrap.servers": express.bootstrap_servers})
    topic = express.topic()
    entry = ConfigEntry("min.insync.replicas", "1", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, str(topic), incremental_configs=[entry])
    with pytest.raises(KafkaException) as refused:
        admin.incremental_alter_configs([resource])[resource].result(TIMEOUT_S)
    assert refused.value.args[0].code() == KafkaError.INVALID_CONFIG


def test_redpanda_shows_its_own_versions() -> None:
    with Kafka(flavor="redpanda") as kafka:
        assert produced(kafka, b"a", **{"enable.idempotence": True}) is None
    release = flavor("redpanda").release
    assert release is not None
    assert release.serves(1, 11)
    assert not release.serves(1, 12)
    assert not release.serves(68, 0)


def test_an_unknown_flavor_is_refused_with_the_known_ones() -> None:
    with pytest.raises(
        ValueError, match="flavor='x' is not known; known are event-hubs, msk-express, redpanda"
    ):
        Kafka(flavor="x")
    with pytest.raises(ValueError, match="needs nodes=3, not 1"):
        Kafka(flavor="msk-express")
