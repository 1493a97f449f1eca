"""Produce, consume in a group, seek, transactions, administration, failures: with librdkafka, on topics of their own."""

from __future__ import annotations

import itertools
import os
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
)

TIMEOUT_S = 20.0
OF_IDEMPOTENT = {} if "SUITE_PLAIN_CLIENTS" in os.environ else {"topic.metadata.refresh.interval.ms": 50}
"""What docs/reference/testing.md advises: librdkafka waits for 500 ms or 1 s otherwise."""
_numbers = itertools.count()


@pytest.fixture
def name() -> str:
    return f"t-{os.getpid()}-{next(_numbers)}"


@pytest.fixture
def admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap})


def created(admin: AdminClient, name: str, partitions: int = 1, config: dict[str, str] | None = None) -> str:
    admin.create_topics([NewTopic(name, partitions, 1, config=config or {})])[name].result(TIMEOUT_S)
    return name


def produced(bootstrap: str, topic: str, values: list[bytes], **more: Any) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, **more.pop("settings", {})})
    errors: list[Any] = []
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _: errors.append(error), **more)
    assert producer.flush(TIMEOUT_S) == 0
    assert errors == [None] * len(values)


def consumer(bootstrap: str, group: str, **settings: Any) -> Consumer:
    own = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    return Consumer({**own, **settings})


def taken(reader: Consumer, count: int) -> list[Any]:
    records: list[Any] = []
    while len(records) < count:
        records += [each for each in reader.consume(count - len(records), 0.2) if each.error() is None]
    return records


def read(bootstrap: str, topic: str, count: int, offset: int = 0, partition: int = 0) -> list[Any]:
    reader = consumer(bootstrap, "nobody")
    reader.assign([TopicPartition(topic, partition, offset)])
    try:
        return taken(reader, count)
    finally:
        reader.close()


@pytest.mark.parametrize("count", [1, 3, 10, 100, 1000])
@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("idempotent", [False, True])
def test_records_are_read_as_they_were_produced(
    bootstrap: str, admin: AdminClient, name: str, count: int, compression: str, idempotent: bool
) -> None:
    topic = created(admin, name)
    values = [b"value %d" % number for number in range(count)]
    settings = {"compression.type": compression, "enable.idempotence": idempotent}
    if idempotent:
        settings |= OF_IDEMPOTENT
    produced(bootstrap, topic, values, settings=settings)
    assert [each.value() for each in read(bootstrap, topic, count)] == values


@pytest.mark.parametrize("partitions", [1, 2, 3, 6, 12])
@pytest.mark.parametrize("assignor", ["range", "roundrobin", "cooperative-sticky"])
@pytest.mark.parametrize("commits", [False, True])
def test_a_group_reads_all_partitions_and_goes_on_where_it_has_committed(
    bootstrap: str, admin: AdminClient, name: str, partitions: int, assignor: str, commits: bool
) -> None:
    topic = created(admin, name, partitions)
    for partition in range(partitions):
        produced(bootstrap, topic, [b"a", b"b"], partition=partition)
    settings = {"partition.assignment.strategy": assignor}
    reader = consumer(bootstrap, name, **settings)
    reader.subscribe([topic])
    assert len(taken(reader, 2 * partitions)) == 2 * partitions
    if commits:
        reader.commit(asynchronous=False)
        ends = reader.committed([TopicPartition(topic, each) for each in range(partitions)], TIMEOUT_S)
        assert [each.offset for each in ends] == [2] * partitions
    reader.close()


@pytest.mark.parametrize("offset", list(range(0, 50, 2)))
def test_a_reader_goes_on_from_where_it_seeks_to(
    bootstrap: str, admin: AdminClient, name: str, offset: int
) -> None:
    topic = created(admin, name)
    produced(bootstrap, topic, [b"%d" % number for number in range(50)])
    reader = consumer(bootstrap, name)
    reader.assign([TopicPartition(topic, 0, 0)])
    assert taken(reader, 1)[0].value() == b"0"
    reader.seek(TopicPartition(topic, 0, offset))
    assert taken(reader, 1)[0].value() == b"%d" % offset
    assert reader.get_watermark_offsets(TopicPartition(topic, 0), TIMEOUT_S) == (0, 50)
    reader.close()


@pytest.mark.parametrize("commits", [False, True])
@pytest.mark.parametrize("count", [1, 2, 5, 10, 20, 50, 100, 200, 300, 400, 500, 600])
def test_only_committed_transactions_are_seen(
    bootstrap: str, admin: AdminClient, name: str, commits: bool, count: int
) -> None:
    topic = created(admin, name)
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name, "linger.ms": 0})
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    for number in range(count):
        producer.produce(topic, b"%d" % number)
    producer.flush(TIMEOUT_S)
    (producer.commit_transaction if commits else producer.abort_transaction)(TIMEOUT_S)
    produced(bootstrap, topic, [b"after"])
    expected = [b"%d" % number for number in range(count)] * commits + [b"after"]
    assert [each.value() for each in read(bootstrap, topic, len(expected))] == expected


@pytest.mark.parametrize("partitions", [1, 2, 5])
@pytest.mark.parametrize("retention", ["1000", "60000", "-1"])
def test_a_topic_is_described_changed_and_deleted(
    bootstrap: str, admin: AdminClient, name: str, partitions: int, retention: str
) -> None:
    topic = created(admin, name, partitions, {"retention.ms": retention})
    assert len(admin.list_topics(topic, TIMEOUT_S).topics[topic].partitions) == partitions
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    assert admin.describe_configs([resource])[resource].result(TIMEOUT_S)["retention.ms"].value == retention
    entry = ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.SET)
    changed = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    admin.incremental_alter_configs([changed])[changed].result(TIMEOUT_S)
    admin.create_partitions([NewPartitions(topic, partitions + 1)])[topic].result(TIMEOUT_S)
    admin.delete_topics([topic])[topic].result(TIMEOUT_S)


@pytest.mark.parametrize("members", [1, 2, 3])
@pytest.mark.parametrize("again", range(7))
def test_groups_are_listed_with_their_members(
    bootstrap: str, admin: AdminClient, name: str, members: int, again: int
) -> None:
    topic = created(admin, name, members)
    produced(bootstrap, topic, [b"a"], partition=0)
    readers = [consumer(bootstrap, name, **{"heartbeat.interval.ms": 100}) for _ in range(members)]
    for reader in readers:
        reader.subscribe([topic])
    while sum(len(reader.assignment()) for reader in readers) < members or not all(
        r.assignment() for r in readers
    ):
        for reader in readers:
            reader.poll(0.01)
    assert len(admin.describe_consumer_groups([name])[name].result(TIMEOUT_S).members) == members
    for reader in readers:
        reader.close()


@pytest.mark.parametrize("partitions", [0, -2])
@pytest.mark.parametrize("again", range(10))
def test_a_topic_without_partitions_is_refused(
    admin: AdminClient, name: str, partitions: int, again: int
) -> None:
    with pytest.raises((KafkaException, ValueError)):
        created(admin, name, partitions)


@pytest.mark.parametrize("size", [1_100_000, 2_000_000, 3_000_000, 4_000_000])
@pytest.mark.parametrize("acks", ["1", "all"])
@pytest.mark.parametrize("compression", ["none", "lz4"])
def test_a_record_that_is_too_large_for_the_topic_is_refused(
    bootstrap: str, admin: AdminClient, name: str, size: int, acks: str, compression: str
) -> None:
    topic = created(admin, name)
    settings = {
        "message.max.bytes": 10_000_000,
        "acks": acks,
        "compression.type": compression,
        "linger.ms": 0,
    }
    producer = Producer({"bootstrap.servers": bootstrap, **settings})
    errors: list[Any] = []
    producer.produce(topic, os.urandom(size), on_delivery=lambda error, _: errors.append(error.code()))
    producer.flush(TIMEOUT_S)
    assert errors == [KafkaError.MSG_SIZE_TOO_LARGE]


@pytest.mark.parametrize("again", range(5))
def test_an_unknown_group_has_committed_nothing(
    bootstrap: str, admin: AdminClient, name: str, again: int
) -> None:
    topic = created(admin, name)
    reader = consumer(bootstrap, name)
    assert reader.committed([TopicPartition(topic, 0)], TIMEOUT_S)[0].offset < 0
    reader.close()
