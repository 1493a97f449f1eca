"""The broker behaviour on which a streaming query depends: offsets may have gaps, and a log start that has moved is
reported.

A batch is planned as a range of offsets for each partition. With failOnDataLoss (the default) a query ends if it
cannot read a range. A gap from compaction or a transaction marker is no data loss. A log start that retention or
DeleteRecords moved past the checkpoint is data loss, and so is a topic that was created again: the query ends and says
so, or continues with the remaining records, as configured.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from interop_tests.compaction.keyed import EAGER_CLEANER, Updates, create_compacted, wait_until_clean
from interop_tests.harness.broker import BrokerProcess
from interop_tests.harness.raw_kafka import ErrorCode, create_topic, fetch_batches, list_offset, produce
from interop_tests.harness.records import BatchPlan
from interop_tests.harness.stable import wait_until_stable
from interop_tests.harness.waiting import wait_until
from interop_tests.harness.wire import Connection
from interop_tests.spark.streams import (
    WAIT_S,
    put,
    read_what_is_there,
    rows,
    running,
    stream,
    wait_for_rows,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LOSS = r"KAFKA_DATA_LOSS|may have been (missed|lost)|failOnDataLoss"
START_MS = 1_600_000_000_000


def query_of(spark: SparkSession, bootstrap: str, topic: str, **options: Any) -> DataFrame:
    """Reads from earliest. failOnDataLoss is true, Spark's default, unless given."""
    return stream(spark, bootstrap, subscribe=topic, startingOffsets="earliest", **options)


def stored(bootstrap: str, topic: str) -> list[tuple[int, int, str]]:
    """The rows of the topic's only partition as in the log, without markers."""
    found, offset = [], 0
    with Connection(bootstrap) as connection:
        end = list_offset(connection, topic, 0, -1)[1]
        while offset < end:
            batches = fetch_batches(connection, topic, offset)
            for batch in batches:
                found += [(0, each.offset, (each.value or b"").decode()) for each in batch.records]
            offset = batches[-1].last_offset + 1
    return found


# Offsets by time


@pytest.mark.parametrize("strategy", ["error", "latest"])
def test_a_query_from_a_time_past_the_end(
    strategy: str,
    spark: SparkSession,
    bootstrap: str,
    connection: Connection,
    make_topic: Callable[..., str],
    tmp_path: Path,
) -> None:
    """offsetsForTimes after the last record returns "none": the query ends and says so, or starts with the next
    record."""
    from pyspark.errors import PySparkException

    topic = make_topic(configs={"retention.ms": "-1"})
    produce(connection, topic, BatchPlan([b"old"] * 5, base_timestamp_ms=START_MS))
    options = {"startingTimestamp": str(START_MS + 60_000), "startingOffsetsByTimestampStrategy": strategy}
    frame = stream(spark, bootstrap, subscribe=topic, **options)
    sink, checkpoint = tmp_path / "sink", tmp_path / "checkpoint"
    if strategy == "error":
        with pytest.raises(PySparkException, match=r"(?i)no offset|matched from request"):
            read_what_is_there(frame, sink, checkpoint)
        return
    read_what_is_there(frame, sink, checkpoint)
    produce(connection, topic, BatchPlan([b"new"], base_timestamp_ms=START_MS + 1))
    read_what_is_there(frame, sink, checkpoint)
    assert rows(spark, sink) == [(0, 5, "new")]


# Gaps


@pytest.mark.needs_control
def test_gaps_that_compaction_left_are_no_loss(
    spark: SparkSession, make_broker: Callable[..., BrokerProcess], tmp_path: Path
) -> None:
    """Batches are so small that whole batches are in gaps. The topic is compacted before the query, and again while
    the query is stopped."""
    broker = make_broker(EAGER_CLEANER)
    topic, sink, checkpoint = "latest-values", tmp_path / "sink", tmp_path / "checkpoint"
    create_compacted(broker.bootstrap, topic)
    updates = Updates(broker.bootstrap, topic, **{"batch.num.messages": 50})
    updates.write(100, keys=40, size=1000)
    updates.write(4000, keys=1, size=1000)
    wait_until_clean(broker.data_dir, topic)
    left = stored(broker.bootstrap, topic)
    gaps = [after[1] - before[1] for before, after in itertools.pairwise(left)]
    assert max(gaps) > 1000
    frame = query_of(spark, broker.bootstrap, topic, maxOffsetsPerTrigger="400")
    read_what_is_there(frame, sink, checkpoint)
    assert rows(spark, sink) == left
    updates.write(4000, keys=1, size=1000)
    wait_until_clean(broker.data_dir, topic)
    read_what_is_there(frame, sink, checkpoint)
    seen_before = left[-1][1]
    left += [row for row in stored(broker.bootstrap, topic) if row[1] > seen_before]
    assert rows(spark, sink) == left
    # A batch read also finds all records of a topic that starts with a gap.
    whole = stream_free(spark, broker.bootstrap, topic)
    assert whole == stored(broker.bootstrap, topic)


def stream_free(spark: SparkSession, bootstrap: str, topic: str) -> list[tuple[int, int, str]]:
    """The rows of a batch read of the topic."""
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", bootstrap)
    found = (
        reader.option("subscribe", topic).load().selectExpr("partition", "offset", "CAST(value AS STRING)")
    )
    return sorted((row[0], row[1], row[2]) for row in found.collect())


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_gaps_of_transaction_markers_are_no_loss(
    isolation: str,
    spark: SparkSession,
    bootstrap: str,
    make_topic: Callable[..., str],
    unique: Callable[[str], str],
    tmp_path: Path,
) -> None:
    """One offset per batch, so that a batch contains only a marker. The topic ends with a marker."""
    topic, sink, checkpoint = make_topic(), tmp_path / "sink", tmp_path / "checkpoint"
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": unique("tx")})
    producer.init_transactions(WAIT_S)
    expected: list[tuple[int, int, str]] = []

    def commit(transactions: int, records: int) -> None:
        for _ in range(transactions):
            producer.begin_transaction()
            offset = expected[-1][1] + 2 if expected else 0
            for n in range(offset, offset + records):
                producer.produce(topic, f"v{n}".encode())
                expected.append((0, n, f"v{n}"))
            producer.commit_transaction(WAIT_S)

    commit(3, 2)
    wait_until_stable(bootstrap, topic)
    options = {"maxOffsetsPerTrigger": "1", "kafka.isolation.level": isolation}
    frame = query_of(spark, bootstrap, topic, **options)
    read_what_is_there(frame, sink, checkpoint)
    assert rows(spark, sink) == expected
    # Also while a query waits at the end, after a marker.
    with running(frame, sink, checkpoint) as query:
        commit(2, 1)
        wait_until(
            lambda: rows(spark, sink) == expected or query.exception(), "the new rows are there", WAIT_S, 0.3
        )
        assert query.exception() is None
        end = expected[-1][1] + 2
        wait_until(
            lambda: query.lastProgress and ends(query.lastProgress, topic) == {"0": end},
            "the query ends behind the last marker",
            WAIT_S,
        )
    assert rows(spark, sink) == expected


def ends(progress: Any, topic: str) -> dict[str, int]:
    """The end offset of a batch by partition."""
    found: dict[str, int] = json.loads(progress["sources"][0]["endOffset"])[topic]
    return found


# A log start that moves


def delete_records(connection: Connection, topic: str, before: int) -> None:
    """The log start of the only partition becomes `before`."""
    partition = {"PartitionIndex": 0, "Offset": before}
    body = {"Topics": [{"Name": topic, "Partitions": [partition]}], "TimeoutMs": 10_000}
    (of_topic,) = connection.call("DeleteRecords", 2, body)["Topics"]
    (result,) = of_topic["Partitions"]
    assert (result["ErrorCode"], result["LowWatermark"]) == (0, before)


def by_delete_records(broker: BrokerProcess, topic: str) -> int:
    """DeleteRecords removes records. Returns the offset of the first remaining one."""
    with Connection(broker.bootstrap) as connection:
        put(connection, topic, 1, 10, 60)
        delete_records(connection, topic, 40)
    return 40


def by_retention(broker: BrokerProcess, topic: str) -> int:
    """Retention removes segments by age. Returns the offset of the first remaining record."""
    with Connection(broker.bootstrap) as connection:
        put(connection, topic, 1, 10, 40)
        # The roll leaves an inactive segment with only old records.
        now_ms = int(time.time() * 1000)
        values = [f"0:{n}".encode() for n in range(40, 60)]
        produce(connection, topic, BatchPlan(values, base_timestamp_ms=now_ms))
        wait_until(
            lambda: list_offset(connection, topic, 0, -2)[1] == 40, "retention moved the start", WAIT_S
        )
    return 40


MOVES = {"DeleteRecords": by_delete_records, "retention": by_retention}


@pytest.mark.needs_control
@pytest.mark.parametrize("move", MOVES)
def test_a_beginning_that_moved_past_the_query(
    move: str, spark: SparkSession, make_broker: Callable[..., BrokerProcess], tmp_path: Path
) -> None:
    """failOnDataLoss true: the query ends, names the missing offsets, and has written nothing more. false: it
    continues."""
    from pyspark.errors import StreamingQueryException

    broker = make_broker({"log.retention.check.interval.ms": "300", "log.initial.task.delay.ms": "100"})
    topic = "events"
    # Records with old timestamps roll a segment of this age. Only then retention may delete them.
    configs = {"retention.ms": "3600000", "segment.ms": "1000"} if move == "retention" else {}
    create_topic(broker.bootstrap, topic, 1, {"retention.ms": "-1"})
    with Connection(broker.bootstrap) as connection:
        seen = put(connection, topic, 1, 0, 10)
    both = {loss: (tmp_path / loss, tmp_path / f"{loss}-checkpoint") for loss in ("true", "false")}
    frames = {loss: query_of(spark, broker.bootstrap, topic, failOnDataLoss=loss) for loss in both}
    for loss, places in both.items():
        read_what_is_there(frames[loss], *places)
        assert rows(spark, places[0]) == seen
    if configs:
        set_topic_configs(broker.bootstrap, topic, configs)
    start = MOVES[move](broker, topic)
    with pytest.raises(StreamingQueryException, match=LOSS):
        read_what_is_there(frames["true"], *both["true"])
    assert rows(spark, both["true"][0]) == seen
    # Trying again does not help.
    with pytest.raises(StreamingQueryException, match=LOSS):
        read_what_is_there(frames["true"], *both["true"])
    read_what_is_there(frames["false"], *both["false"])
    assert rows(spark, both["false"][0]) == seen + [(0, n, f"0:{n}") for n in range(start, 60)]


def set_topic_configs(bootstrap: str, topic: str, configs: dict[str, str]) -> None:
    """Set these configs of the topic."""
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    for name, value in configs.items():
        entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        resource.add_incremental_config(entry)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(WAIT_S)


# A topic that is created again


def make_anew(connection: Connection, topic: str, partitions: int = 1) -> None:
    """Delete the topic and create it again at once, as a user does to empty it."""
    body = {"TopicNames": [topic], "TimeoutMs": 10_000}
    (deleted,) = connection.call("DeleteTopics", 5, body)["Responses"]
    assert deleted["ErrorCode"] == 0, deleted

    def is_gone() -> bool:
        reply = connection.call(
            "Metadata", 12, {"Topics": [{"Name": topic}], "AllowAutoTopicCreation": False}
        )
        return bool(reply["Topics"][0]["ErrorCode"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    wait_until(is_gone, f"{topic} is deleted")
    create_topic(connection.bootstrap, topic, partitions)


@pytest.mark.parametrize("loss", ["true", "false"])
def test_a_topic_deleted_and_made_anew_during_a_query(
    loss: str,
    spark: SparkSession,
    bootstrap: str,
    connection: Connection,
    make_topic: Callable[..., str],
    tmp_path: Path,
) -> None:
    """failOnDataLoss true: the query ends and says so. false: it continues with the new topic, without duplicates."""
    topic, sink, checkpoint = make_topic(), tmp_path / "sink", tmp_path / "checkpoint"
    old = put(connection, topic, 1, 0, 20)
    frame = query_of(spark, bootstrap, topic, failOnDataLoss=loss)
    with running(frame, sink, checkpoint) as query:
        wait_for_rows(spark, sink, len(old))
        make_anew(connection, topic)
        produce(connection, topic, BatchPlan([f"new:{n}".encode() for n in range(5)]))
        if loss == "true":
            wait_until(lambda: query.exception() is not None, "the query notices", WAIT_S, 0.3)
            assert "MAY HAVE BEEN" in str(query.exception()).upper() or "DATA_LOSS" in str(query.exception())
            assert rows(spark, sink) == old
            return
        wait_until(
            lambda: (query.lastProgress and ends(query.lastProgress, topic) == {"0": 5}) or query.exception(),
            "the query has come to the new topic",
            WAIT_S,
            0.3,
        )
        assert query.exception() is None
        produce(connection, topic, BatchPlan([f"new:{n}".encode() for n in range(5, 15)]))
        last = (0, 14, "new:14")
        wait_until(lambda: last in rows(spark, sink) or query.exception(), "it goes on", WAIT_S, 0.3)
        assert query.exception() is None
    new = [row for row in rows(spark, sink) if row not in old]
    # Records from before the query noticed the new topic may be missing. All later ones are there.
    assert new == [(0, n, f"new:{n}") for n in range(new[0][1], 15)]
    assert new[0][1] <= 5
    assert rows(spark, sink) == sorted(old + new)
