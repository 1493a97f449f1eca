"""Streaming queries for tests: read a topic, write rows as JSON files, and read the committed rows."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interop_tests.harness.raw_kafka import produce
from interop_tests.harness.records import BatchPlan
from interop_tests.harness.waiting import wait_until
from interop_tests.harness.wire import Connection

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

WAIT_S = 60.0
COLUMNS = ["partition", "offset", "CAST(value AS STRING) AS value"]


def stream(spark: SparkSession, bootstrap: str, **options: Any) -> DataFrame:
    """A streaming read of partition, offset and value."""
    source = spark.readStream.format("kafka").option("kafka.bootstrap.servers", bootstrap)
    return source.options(**options).load().selectExpr(*COLUMNS)


@contextmanager
def running(frame: DataFrame, sink: Path, checkpoint: Path) -> Iterator[StreamingQuery]:
    """The query that writes the frame as JSON files. It is stopped at the end of the block."""
    writer = frame.writeStream.format("json").option("path", str(sink))
    query = writer.option("checkpointLocation", str(checkpoint)).start()
    try:
        yield query
    finally:
        query.stop()


def read_what_is_there(frame: DataFrame, sink: Path, checkpoint: Path) -> None:
    """Run the query on the present contents of the topic. Raises the error that ended the query."""
    writer = frame.writeStream.format("json").option("path", str(sink))
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(WAIT_S), "the query does not end"
    finally:
        query.stop()


def rows(spark: SparkSession, sink: Path) -> list[tuple[int, int, str]]:
    """The rows that the query has committed to its sink, in order. A duplicate row appears twice."""
    if not (sink / "_spark_metadata").exists():
        return []
    frame = spark.read.schema("partition int, offset long, value string").json(str(sink))
    return sorted((row["partition"], row["offset"], row["value"]) for row in frame.collect())


def wait_for_rows(spark: SparkSession, sink: Path, count: int) -> None:
    """Wait until the sink has at least this number of rows."""
    wait_until(lambda: len(rows(spark, sink)) >= count, f"{sink.name} has {count} rows", WAIT_S, 0.3)


def wait_for_start(checkpoint: Path) -> None:
    """Wait until the query has stored the start offsets of its first source."""
    first = checkpoint / "sources" / "0" / "0"
    wait_until(first.exists, f"{checkpoint.name} says where the query starts", WAIT_S)


def put(
    connection: Connection, topic: str, partitions: int, first: int, end: int
) -> list[tuple[int, int, str]]:
    """Write offsets first to end of every partition. Returns the rows that a reader must see."""
    expected = []
    for partition in range(partitions):
        values = [f"{partition}:{n}" for n in range(first, end)]
        produce(connection, topic, BatchPlan([value.encode() for value in values]), partition=partition)
        expected += [(partition, n, f"{partition}:{n}") for n in range(first, end)]
    return expected
