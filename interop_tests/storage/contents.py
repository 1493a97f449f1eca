"""Fills a broker with every kind of data that a folder can contain, and reads everything that a client can find there."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, OffsetSpec, ResourceType

from interop_tests.harness.waiting import wait_until, wait_without_error

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
PER_CODEC = 30
BIG_RECORDS = 150
BIG_VALUE = bytes(range(256)) * 64
READERS = "classic-readers"
MODERN_READERS = "modern-readers"
TRANSACTIONAL = "transactional"
WAIT_S = 30.0


def done(futures: dict[Any, Any]) -> dict[Any, Any]:
    """All results. Raises the first failure."""
    return {key: future.result(WAIT_S) for key, future in futures.items()}


@contextlib.contextmanager
def consumer(bootstrap: str, **settings: Any) -> Iterator[Consumer]:
    """A consumer that is closed at the end."""
    made = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "contents",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
        | settings
    )
    try:
        yield made
    finally:
        made.close()


def create(bootstrap: str, name: str, partitions: int = 1, **config: str) -> None:
    """Create a topic. Settings have underscores instead of dots."""
    settings = {key.replace("_", "."): value for key, value in config.items()}
    admin = AdminClient({"bootstrap.servers": bootstrap})
    done(admin.create_topics([NewTopic(name, partitions, 1, config=settings)]))
    wait_until(
        lambda: (
            name in (topics := admin.list_topics(timeout=WAIT_S).topics)
            and len(topics[name].partitions) == partitions
            and all(partition.leader >= 0 for partition in topics[name].partitions.values())
        ),
        f"{name} is led",
    )


def write_topics(bootstrap: str) -> None:
    """A topic with every codec, keys and headers, and one with several segments whose first records are deleted."""
    for codec in CODECS:
        create(bootstrap, codec, 2, retention_ms="-1")  # old timestamps
        producer = Producer({"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 20})
        for n in range(PER_CODEC):
            headers = [("codec", codec.encode()), ("n", b"%d" % n), ("null", None)]
            producer.produce(
                codec, f"{codec} {n} " * 30, f"key-{n}", headers=headers, timestamp=1_700_000_000_000 + n
            )
        assert producer.flush(WAIT_S) == 0
    create(bootstrap, "segments", 1, segment_bytes=str(1 << 20), retention_ms="-1")
    append_big(bootstrap, "segments", 0, BIG_RECORDS)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    done(admin.delete_records([TopicPartition("segments", 0, 10)]))
    create(bootstrap, "doomed", 3)
    create(bootstrap, "grown", 1)


def append_big(bootstrap: str, topic: str, first: int, end: int) -> None:
    """Records of 16 kB, one per batch, from an idempotent producer."""
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 0})
    for n in range(first, end):
        producer.produce(topic, BIG_VALUE, b"%d" % n)
        producer.flush(WAIT_S)


def read_some(bootstrap: str, group: str, topic: str, count: int, **settings: Any) -> None:
    """A member of the group reads this number of records of the topic, commits and leaves."""
    with consumer(bootstrap, **{"group.id": group}, **settings) as member:
        member.subscribe([topic])
        seen = 0

        def more() -> bool:
            nonlocal seen
            message = member.poll(0.5)
            if message is None:
                return False
            assert message.error() is None, message.error()
            seen += 1
            return seen >= count

        wait_until(more, f"{group} has read {count} of {topic}", WAIT_S, 0)
        member.commit(asynchronous=False)


def transactional_producer(bootstrap: str, name: str) -> Producer:
    """A transactional producer. It aborts its last transaction if that was open."""
    producer = Producer(
        {"bootstrap.servers": bootstrap, "transactional.id": name, "transaction.timeout.ms": 900_000}
    )
    producer.init_transactions(WAIT_S)
    return producer


def write_transactions(bootstrap: str) -> Producer:
    """A committed, an aborted and an open transaction. Keep the producer of the open one until the broker has stopped."""
    create(bootstrap, TRANSACTIONAL)
    for name, commit in (("committing", True), ("aborting", False)):
        producer = transactional_producer(bootstrap, name)
        producer.begin_transaction()
        for n in range(5):
            producer.produce(TRANSACTIONAL, f"{name} {n}")
        producer.flush(WAIT_S)
        producer.commit_transaction(WAIT_S) if commit else producer.abort_transaction(WAIT_S)
    producer = transactional_producer(bootstrap, "left-open")
    producer.begin_transaction()
    for n in range(5):
        producer.produce(TRANSACTIONAL, f"left-open {n}")
    assert producer.flush(WAIT_S) == 0
    return producer


@dataclass(frozen=True)
class Contents:
    """Everything that clients find, to be compared with == before and after."""

    topics: dict[str, tuple[str, int]]  # topic id and number of partitions
    settings: dict[str, dict[str, str]]  # dynamic configs of topics
    offsets: dict[tuple[str, int], tuple[int, int, int]]  # log start, end, last stable offset
    records: dict[tuple[str, int], list[tuple[Any, ...]]]
    committed_records: dict[tuple[str, int], list[int]]  # offsets that read_committed returns
    group_offsets: dict[tuple[str, int], tuple[int, str | None]]


def read_partition(
    bootstrap: str, topic: str, partition: int, end: int, isolation: str
) -> list[tuple[Any, ...]]:
    """Every record of the partition."""
    found: list[tuple[Any, ...]] = []
    settings = {
        "isolation.level": isolation,
        "enable.partition.eof": True,
        "check.crcs": True,
        "fetch.wait.max.ms": 20,
    }
    with consumer(bootstrap, **settings) as reader:
        reader.assign([TopicPartition(topic, partition, 0)])

        def at_end() -> bool:
            message = reader.poll(1.0)
            if message is None:
                return False
            if message.error() is not None:
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                return message.offset() >= end
            headers = tuple((each[0], each[1]) for each in message.headers() or [])
            key, value, timestamp = message.key(), message.value(), message.timestamp()
            found.append((message.offset(), timestamp, key, value, headers))
            return False

        wait_until(at_end, f"{topic}-{partition} is read to {end}", WAIT_S, 0)
    return found


def contents(bootstrap: str, group: str = READERS) -> Contents:
    """All topics of users with their records, and the offsets of one classic group."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    names = sorted(name for name in admin.list_topics(timeout=WAIT_S).topics if not name.startswith("__"))
    described = done(admin.describe_topics(TopicCollection(names)))
    topics = {name: (str(topic.topic_id), len(topic.partitions)) for name, topic in described.items()}
    resources = done(admin.describe_configs([ConfigResource(ResourceType.TOPIC, name) for name in names]))
    settings = {
        resource.name: {
            key: entry.value
            for key, entry in entries.items()
            if entry.source == 1 and entry.value is not None
        }
        for resource, entries in resources.items()
    }
    partitions = [(name, partition) for name, (_, count) in topics.items() for partition in range(count)]

    def list_offsets(spec: OffsetSpec, isolation: IsolationLevel) -> dict[tuple[str, int], int]:
        asked = {TopicPartition(*partition): spec for partition in partitions}
        # Right after its start Apache Kafka may return a leader epoch that its own replicas do not know yet.
        answered = wait_without_error(
            lambda: done(admin.list_offsets(asked, isolation_level=isolation)),
            "listing offsets",
            (KafkaException,),
        )
        return {(one.topic, one.partition): result.offset for one, result in answered.items()}

    firsts = list_offsets(OffsetSpec.earliest(), IsolationLevel.READ_UNCOMMITTED)
    ends = list_offsets(OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED)
    stable = list_offsets(OffsetSpec.latest(), IsolationLevel.READ_COMMITTED)
    records = {one: read_partition(bootstrap, *one, ends[one], "read_uncommitted") for one in partitions}
    committed = {
        one: [record[0] for record in read_partition(bootstrap, *one, stable[one], "read_committed")]
        for one in partitions
        if one[0] == TRANSACTIONAL
    }
    answered = done(admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]))[group]
    return Contents(
        topics,
        settings,
        {one: (firsts[one], ends[one], stable[one]) for one in partitions},
        records,
        committed,
        {
            (one.topic, one.partition): (one.offset, one.metadata)
            for one in answered.topic_partitions
            if one.offset >= 0
        },
    )
