"""Streaming reads and writes: starts, checkpoints, and a broker that is killed while a query runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from interop_tests.harness.broker import BrokerProcess
from interop_tests.harness.raw_kafka import create_topic, produce
from interop_tests.harness.records import BatchPlan
from interop_tests.harness.waiting import wait_until
from interop_tests.harness.wire import Connection
from interop_tests.spark.streams import WAIT_S, put, rows, running, stream, wait_for_rows, wait_for_start

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_from_earliest_and_on_from_a_checkpoint(
    spark: SparkSession,
    bootstrap: str,
    connection: Connection,
    make_topic: Callable[..., str],
    unique: Callable[[str], str],
    tmp_path: Path,
) -> None:
    """A stopped query continues where its checkpoint ends, regardless of startingOffsets. Batches are limited."""
    topic, sink, checkpoint = make_topic(partitions=2), tmp_path / "sink", tmp_path / "checkpoint"
    expected = put(connection, topic, 2, 0, 20)
    options = {"subscribe": topic, "maxOffsetsPerTrigger": "16", "kafka.group.id": unique("group")}
    with running(stream(spark, bootstrap, startingOffsets="earliest", **options), sink, checkpoint) as query:
        wait_until(lambda: rows(spark, sink) == sorted(expected), "the first rows are there", WAIT_S, 0.3)
        sizes = [progress["numInputRows"] for progress in query.recentProgress]
        assert max(sizes) <= 16
        wait_until(
            lambda: json.loads(query.lastProgress["sources"][0]["endOffset"]) == {topic: {"0": 20, "1": 20}},
            "the last batch is told",
            WAIT_S,
        )
    expected += put(connection, topic, 2, 20, 30)
    with running(stream(spark, bootstrap, startingOffsets="latest", **options), sink, checkpoint):
        wait_for_rows(spark, sink, len(expected))
    assert rows(spark, sink) == sorted(expected)


def test_from_latest_from_offsets_and_from_a_time(
    spark: SparkSession,
    bootstrap: str,
    connection: Connection,
    make_topic: Callable[..., str],
    tmp_path: Path,
) -> None:
    topic = make_topic(partitions=1, configs={"retention.ms": "-1"})  # old timestamps
    for n in range(10):
        produce(
            connection, topic, BatchPlan([f"0:{n}".encode()], base_timestamp_ms=1_600_000_000_000 + n * 1000)
        )
    starts = {
        "latest": {"startingOffsets": "latest"},
        "offsets": {"startingOffsets": json.dumps({topic: {"0": 4}})},
        "time": {"startingOffsetsByTimestamp": json.dumps({topic: {"0": 1_600_000_006_500}})},
    }
    queries = {}
    for name, options in starts.items():
        frame = stream(spark, bootstrap, subscribe=topic, **options)
        writer = frame.writeStream.format("json").option("path", str(tmp_path / name))
        queries[name] = writer.option("checkpointLocation", str(tmp_path / f"{name}-checkpoint")).start()
    try:
        # The first batch fixes the start of a query, even if there is nothing to read yet.
        for name in queries:
            wait_for_start(tmp_path / f"{name}-checkpoint")
        put(connection, topic, 1, 10, 12)
        firsts = {"latest": 10, "offsets": 4, "time": 7}
        for name, first in firsts.items():
            expected = [(0, n, f"0:{n}") for n in range(first, 12)]
            wait_for_rows(spark, tmp_path / name, len(expected))
            assert rows(spark, tmp_path / name) == expected, name
    finally:
        for query in queries.values():
            query.stop()


def test_from_topic_to_topic_with_a_pattern(
    spark: SparkSession,
    bootstrap: str,
    connection: Connection,
    make_topic: Callable[..., str],
    unique: Callable[[str], str],
    tmp_path: Path,
) -> None:
    """A query reads topics by pattern, and writes keys and headers to another topic. It also reads a topic that is
    created later."""
    stem = unique("source")
    target = make_topic(partitions=2, stem="target")
    first = make_topic(stem=stem)
    put(connection, first, 1, 0, 10)
    source = spark.readStream.format("kafka").option("kafka.bootstrap.servers", bootstrap)
    frame = source.options(
        subscribePattern=f"{stem}.*",
        startingOffsets="earliest",
        includeHeaders="true",
        **{"kafka.metadata.max.age.ms": "500"},
    ).load()
    frame = frame.selectExpr(
        "CAST(offset AS STRING) AS key",
        "value",
        "array(struct('from' AS key, CAST(topic AS BINARY) AS value)) AS headers",
    )
    writer = (
        frame.writeStream.format("kafka").option("kafka.bootstrap.servers", bootstrap).option("topic", target)
    )
    query = (
        writer.option("includeHeaders", "true")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )

    def copied() -> list[tuple[str, str, str]]:
        reader = spark.read.format("kafka").option("kafka.bootstrap.servers", bootstrap)
        frame = reader.options(subscribe=target, includeHeaders="true").load()
        return sorted(
            (
                bytes(row["headers"][0]["value"]).decode(),
                bytes(row["key"]).decode(),
                bytes(row["value"]).decode(),
            )
            for row in frame.collect()
        )

    try:
        expected = [(first, f"{n}", f"0:{n}") for n in range(10)]
        wait_until(lambda: copied() == sorted(expected), "the first topic is copied", WAIT_S, 0.3)
        second = make_topic(stem=stem)
        put(connection, second, 1, 0, 5)
        expected += [(second, f"{n}", f"0:{n}") for n in range(5)]
        wait_until(lambda: len(copied()) >= 15, "the later topic is copied", WAIT_S, 0.3)
        assert copied() == sorted(expected)
    finally:
        query.stop()


@pytest.mark.needs_control
def test_a_query_goes_on_after_the_broker_was_killed(
    spark: SparkSession, make_broker: Callable[..., BrokerProcess], tmp_path: Path
) -> None:
    """kill -9 while a query runs: the query continues by itself, and its rows are those of an undisturbed query."""
    broker = make_broker()
    topic, total = "events", 1200
    create_topic(broker.bootstrap, topic, 3)
    failed: list[str] = []
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "enable.idempotence": True,
            "linger.ms": 5,
            "retry.backoff.ms": 50,
        }
    )

    def report(error: object, _: object) -> None:
        if error is not None:
            failed.append(str(error))

    def send(first: int, end: int) -> None:
        for n in range(first, end):
            producer.produce(topic, f"{n}".encode(), partition=n % 3, on_delivery=report)
        producer.poll(0)

    def values(sink: Path) -> list[int]:
        return sorted(int(value) for _, _, value in rows(spark, sink))

    sink, checkpoint = tmp_path / "sink", tmp_path / "checkpoint"
    frame = stream(
        spark, broker.bootstrap, subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="100"
    )
    with running(frame, sink, checkpoint) as query:
        send(0, 400)
        assert producer.flush(30) == 0
        wait_until(lambda: len(values(sink)) >= 150, "the query is in the midst of it", WAIT_S)
        send(400, 800)
        broker.kill()
        broker.start()
        send(800, total)
        assert producer.flush(60) == 0
        assert failed == []
        wait_until(
            lambda: len(values(sink)) >= total or query.exception() is not None,
            "every row is there",
            WAIT_S,
            0.3,
        )
        assert query.exception() is None
    without_kill = stream(spark, broker.bootstrap, subscribe=topic, startingOffsets="earliest")
    writer = without_kill.writeStream.format("json").option("path", str(tmp_path / "calm"))
    calm = (
        writer.option("checkpointLocation", str(tmp_path / "calm-checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert calm.awaitTermination(WAIT_S)
    assert values(sink) == list(range(total)), "each record once"
    assert rows(spark, sink) == rows(spark, tmp_path / "calm")


@pytest.mark.needs_control
def test_a_stopped_query_finds_its_offsets_after_a_kill(
    spark: SparkSession, make_broker: Callable[..., BrokerProcess], tmp_path: Path
) -> None:
    """The query is stopped while the broker is killed. failOnDataLoss stays true, so no offset that it knew may be
    gone."""
    broker = make_broker()
    topic, sink, checkpoint = "events", tmp_path / "sink", tmp_path / "checkpoint"
    create_topic(broker.bootstrap, topic, 2)

    def run() -> None:
        frame = stream(
            spark, broker.bootstrap, subscribe=topic, startingOffsets="earliest", failOnDataLoss="true"
        )
        writer = frame.writeStream.format("json").option("path", str(sink))
        query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
        assert query.awaitTermination(WAIT_S)
        assert query.exception() is None

    with Connection(broker.bootstrap) as connection:
        expected = put(connection, topic, 2, 0, 50)
    run()
    assert rows(spark, sink) == sorted(expected)
    broker.kill()
    broker.start()
    with Connection(broker.bootstrap) as connection:
        expected += put(connection, topic, 2, 50, 60)
    run()
    assert rows(spark, sink) == sorted(expected)
