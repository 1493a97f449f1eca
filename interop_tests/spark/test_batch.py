"""Batch reads with every form of start and end offsets, and batch writes."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from interop_tests.harness.raw_kafka import fetch_records, produce
from interop_tests.harness.records import BatchPlan
from interop_tests.harness.wire import Connection
from interop_tests.spark.conftest import Read, texts

# Old timestamps make offsets by time easy to read. Such topics need retention switched off.
START_MS = 1_600_000_000_000


@pytest.fixture
def timed_topic(connection: Connection, make_topic: Callable[..., str]) -> str:
    """Two partitions; offset n of partition p has the value "p:n", n seconds after START_MS."""
    topic = make_topic(partitions=2, configs={"retention.ms": "-1"})
    for partition in range(2):
        for n in range(10):
            plan = BatchPlan([f"{partition}:{n}".encode()], base_timestamp_ms=START_MS + 1000 * n)
            produce(connection, topic, plan, partition=partition)
    return topic


def expected(*ranges: tuple[int, int]) -> list[str]:
    """The values of offsets first to end of partition 0, 1, ..."""
    return [f"{partition}:{n}" for partition, (first, end) in enumerate(ranges) for n in range(first, end)]


def by_partition(topic: str, *values: int) -> str:
    return json.dumps({topic: {str(partition): value for partition, value in enumerate(values)}})


def test_everything_from_earliest_to_latest(read: Read, timed_topic: str) -> None:
    rows = read(subscribe=timed_topic).collect()
    assert texts(rows) == expected((0, 10), (0, 10))
    assert {row["timestampType"] for row in rows} == {0}
    first = min(rows, key=lambda row: (row["partition"], row["offset"]))
    assert (first["topic"], first["partition"], first["offset"]) == (timed_topic, 0, 0)
    assert first["timestamp"].timestamp() * 1000 == START_MS
    assert first["key"] is None


def test_offsets_of_each_partition(read: Read, timed_topic: str) -> None:
    """-2 is earliest, -1 latest, as in ListOffsets."""
    rows = read(
        assign=json.dumps({timed_topic: [0, 1]}),
        startingOffsets=by_partition(timed_topic, 4, -2),
        endingOffsets=by_partition(timed_topic, -1, 3),
    ).collect()
    assert texts(rows) == expected((4, 10), (0, 3))


def test_offsets_by_timestamp(read: Read, timed_topic: str) -> None:
    """The first record at or after the time in each partition. The same for the end."""
    rows = read(
        subscribe=timed_topic,
        startingOffsetsByTimestamp=by_partition(timed_topic, START_MS + 2000, START_MS + 6001),
        endingOffsetsByTimestamp=by_partition(timed_topic, START_MS + 5000, START_MS + 999_999),
    ).collect()
    assert texts(rows) == expected((2, 5), (7, 10))
    assert texts(read(subscribe=timed_topic, startingTimestamp=str(START_MS + 8000)).collect()) == expected(
        (8, 10), (8, 10)
    )


def test_a_timestamp_past_the_end(read: Read, timed_topic: str) -> None:
    """No record at or after the time is -1 on the wire. The connector fails or uses the end, as configured."""
    from pyspark.errors import PySparkException

    late = by_partition(timed_topic, START_MS + 10_000_000, START_MS + 9000)
    options = {"subscribe": timed_topic, "startingOffsetsByTimestamp": late}
    with pytest.raises(PySparkException, match=r"(?i)no offset|matched from request"):
        read(options).collect()
    rows = read(options, startingOffsetsByTimestampStrategy="latest").collect()
    assert texts(rows) == expected((10, 10), (9, 10))


def test_topics_by_pattern(
    read: Read, connection: Connection, make_topic: Callable[..., str], unique: Callable[[str], str]
) -> None:
    stem = unique("pattern")
    topics = [make_topic(stem=f"{stem}-{n}") for n in range(3)]
    make_topic(stem=f"other-{stem}")
    for topic in topics:
        produce(connection, topic, BatchPlan([topic.encode()]))
    rows = read(subscribePattern=f"{stem}-.*", **{"kafka.group.id": unique("group")}).collect()
    assert texts(rows) == sorted(topics)


def test_more_tasks_than_partitions(read: Read, timed_topic: str) -> None:
    """minPartitions divides a partition's range among tasks. Every record is read once."""
    frame = read(subscribe=timed_topic, minPartitions="6")
    assert frame.rdd.getNumPartitions() >= 6
    assert texts(frame.collect()) == expected((0, 10), (0, 10))


def test_headers_and_keys_are_written_and_read(
    read: Read, write: Callable[..., None], connection: Connection, make_topic: Callable[..., str]
) -> None:
    topic = make_topic(partitions=3)
    rows = [
        (f"key-{n}", f"value {n}", topic, n % 3, [("trace", bytearray(b"%d" % n)), ("empty", bytearray())])
        for n in range(30)
    ]
    schema = "key string, value string, topic string, partition int, headers array<struct<key: string, value: binary>>"
    write(rows, schema, includeHeaders="true", **{"kafka.compression.type": "zstd"})
    seen = read(subscribe=topic, includeHeaders="true").collect()
    assert len(seen) == 30
    for row in seen:
        n = int(bytes(row["key"]).decode().removeprefix("key-"))
        assert bytes(row["value"]).decode() == f"value {n}"
        assert row["partition"] == n % 3
        assert [(header["key"], bytes(header["value"])) for header in row["headers"]] == [
            ("trace", b"%d" % n),
            ("empty", b""),
        ]
    # Another client reads the same records.
    assert sorted(record.value for record in fetch_records(connection, topic, partition=2)) == sorted(
        f"value {n}".encode() for n in range(2, 30, 3)
    )


def test_a_write_without_keys_spreads_and_counts(
    read: Read, write: Callable[..., None], make_topic: Callable[..., str]
) -> None:
    """The connector's producer is idempotent by default, so the broker must give it a producer id."""
    topic = make_topic(partitions=2)
    write([(f"{n}",) for n in range(2000)], "value string", topic=topic, **{"kafka.linger.ms": "5"})
    rows = read(subscribe=topic, **{"kafka.isolation.level": "read_committed"}).collect()
    assert sorted(int(bytes(row["value"])) for row in rows) == list(range(2000))


def test_an_existing_topic_never_has_an_empty_partition_list(
    read: Read, connection: Connection, timed_topic: str
) -> None:
    """Spark (SPARK-41375) believes an empty or partial list, and reads records twice later.

    While partitions are added and other topics are created and deleted, every Metadata response has all partitions of
    the topic.
    """
    from interop_tests.harness.raw_kafka import metadata

    connection.call(
        "CreatePartitions",
        3,
        {
            "Topics": [{"Name": timed_topic, "Count": 6, "Assignments": None}],
            "TimeoutMs": 10_000,
            "ValidateOnly": False,
        },
    )
    counts = []
    for n in range(200):
        found = metadata(connection, timed_topic)
        assert found["ErrorCode"] == 0, found
        counts.append(len(found["Partitions"]))
        if n % 50 == 0:
            assert texts(read(subscribe=timed_topic).collect()) == expected((0, 10), (0, 10))
    assert set(counts) <= {2, 6}
    assert counts == sorted(counts), "a partition that was seen stays"
    assert counts[-1] == 6
