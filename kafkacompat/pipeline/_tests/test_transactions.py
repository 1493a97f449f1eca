"""Batches in transactions: a batch that is written twice, tasks that come late, and what readers of committed records see.
No Spark runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("confluent_kafka")

import confluent_kafka

from kafkacompat.ids import partition_of_key
from kafkacompat.pipeline.failure import PipelineFailed
from kafkacompat.pipeline.transactions import Record, Target, write
from kafkacompat.testing import Kafka


@pytest.fixture(scope="module")
def kafka() -> Iterator[Kafka]:
    with Kafka() as kafka:
        yield kafka


@pytest.fixture
def target(kafka: Kafka) -> Target:
    topic = kafka.topic("out", partitions=3)
    return Target(topic, f"writer-{topic}", "query-1", {"bootstrap.servers": kafka.bootstrap_servers})


def records(*values: str) -> list[Record]:
    return [(f"key-{value}", value, [("h", b"1")]) for value in values]


def committed(kafka: Kafka, topic: str) -> list[str]:
    """The values that a reader of committed records gets."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": "reader",
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )
    parts = [confluent_kafka.TopicPartition(topic, number, 0) for number in range(kafka.topics()[topic])]
    consumer.assign(parts)
    found, ended = [], set()
    while len(ended) < len(parts):
        message = consumer.poll(1.0)
        if message is None:
            continue
        if message.error() is None:
            found.append(message.value().decode())
        else:
            assert message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF
            ended.add(message.partition())
    consumer.close()
    return sorted(found)


def test_a_batch_is_written_once(kafka: Kafka, target: Target) -> None:
    assert write(target, 0, 0, records("a", "b", "c"))
    assert not write(target, 0, 0, records("a", "b", "c"))
    assert write(target, 0, 1, records("d"))
    # Spark repeats the last batch alone. So the checkpoint is an older copy, and its batch 0 may be of other records.
    with pytest.raises(PipelineFailed, match="has written batch 1 of this query, and gets batch 0"):
        write(target, 0, 0, records("e"))
    assert committed(kafka, target.topic) == ["a", "b", "c", "d"]


def test_each_writer_has_batches_of_its_own(kafka: Kafka, target: Target) -> None:
    assert write(target, 0, 0, records("a"))
    assert write(target, 1, 0, records("b"))
    assert not write(target, 1, 0, records("b"))
    assert committed(kafka, target.topic) == ["a", "b"]


def test_a_new_checkpoint_counts_anew(kafka: Kafka, target: Target) -> None:
    """Its batches begin with 0. They are not those of the query before."""
    assert write(target, 0, 5, records("a"))
    assert write(target.of_query("query-2"), 0, 0, records("b"))
    assert committed(kafka, target.topic) == ["a", "b"]


def test_no_records_need_no_transaction(target: Target) -> None:
    assert not write(target, 0, 0, [])


def test_a_batch_that_fails_midway_is_written_whole_the_next_time(kafka: Kafka, target: Target) -> None:
    def broken() -> Iterator[Record]:
        yield from records("a")
        raise RuntimeError("the task dies")

    with pytest.raises(RuntimeError, match="the task dies"):
        write(target, 0, 0, broken())
    assert write(target, 0, 0, records("a", "b"))
    assert committed(kafka, target.topic) == ["a", "b"]


def test_a_task_that_comes_late_commits_nothing(kafka: Kafka, target: Target) -> None:
    """The one that began later wins, although the first one still writes."""

    def slow() -> Iterator[Record]:
        yield from records("a")
        assert write(target, 0, 0, records("a", "b"))
        yield from records("b")

    with pytest.raises(confluent_kafka.KafkaException):
        write(target, 0, 0, slow())
    assert committed(kafka, target.topic) == ["a", "b"]


def test_a_record_that_is_refused_fails_its_batch(kafka: Kafka, target: Target) -> None:
    too_large: Any = ("k", "x" * 900_000, None)
    topic = kafka.topic("small", configs={"max.message.bytes": "1000"})
    small = Target(topic, target.name, target.query_id, target.settings)
    with pytest.raises(confluent_kafka.KafkaException):
        write(small, 0, 0, [*records("a"), too_large])
    assert committed(kafka, topic) == []


def test_records_that_are_small_enough_are_taken_together(kafka: Kafka, target: Target) -> None:
    topic = kafka.topic("narrow", configs={"max.message.bytes": "20000"})
    narrow = Target(topic, target.name, target.query_id, target.settings)
    values = [f"{number:04}" + "x" * 100 for number in range(1000)]
    assert write(narrow, 0, 0, records(*values))
    assert committed(kafka, topic) == values


def test_keys_lie_where_kafkas_own_producer_puts_them(kafka: Kafka, target: Target) -> None:
    keys = [f"user-{number}" for number in range(20)]
    write(target, 0, 0, [(key, "v", None) for key in keys])
    found = {each.key: each.partition for each in kafka.records(target.topic) if each.value == b"v"}
    assert found == {key.encode(): partition_of_key(key.encode(), 3) for key in keys}
