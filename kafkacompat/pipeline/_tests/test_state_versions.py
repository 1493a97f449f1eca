"""What a checkpoint of an earlier version of a job can be continued with, as Spark itself decides it. Files replace the topics."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import functions as F

from kafkacompat.pipeline._tests.conftest import SOURCE_SCHEMA
from kafkacompat.pipeline.job import Field, Job, Kind, RunOptions, Table
from kafkacompat.pipeline.runner import failure_of
from kafkacompat.pipeline.spark_failures import STATE_HELP

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Records = Callable[..., "DataFrame"]
Rows = Callable[["DataFrame", RunOptions], "DataFrame"]
MINUTE_MS = 60_000
FIRST_MS = 1_790_000_000_000


def plain(events: DataFrame, options: RunOptions) -> DataFrame:
    return events.select("event_id", "event_time_ms", "cents")


def more_columns(events: DataFrame, options: RunOptions) -> DataFrame:
    at = F.struct(F.array(F.struct(F.lit(1).alias("till"))).alias("tills"))
    rows = plain(events, options).withColumn("euros", F.col("cents") / 100)
    return rows.withColumn("shop", F.lit("web")).withColumn("at", at)


def more_fields(events: DataFrame, options: RunOptions) -> DataFrame:
    till = F.struct(F.lit(1).alias("till"), F.lit(True).alias("open"))
    at = F.struct(F.array(till).alias("tills"), F.lit("north").alias("place"))
    return more_columns(events, options).withColumn("at", at)


def sums(events: DataFrame, options: RunOptions) -> DataFrame:
    return events.groupBy(F.window("event_time", "1 minute")).agg(F.sum("cents").alias("cents"))


def large_sums(events: DataFrame, options: RunOptions) -> DataFrame:
    return sums(events.where("cents > 1"), options).withColumn("euros", F.col("cents") / 100)


def more_sums(events: DataFrame, options: RunOptions) -> DataFrame:
    return events.groupBy(F.window("event_time", "1 minute")).agg(
        F.sum("cents").alias("cents"), F.count("*").alias("orders")
    )


def other_key(events: DataFrame, options: RunOptions) -> DataFrame:
    return events.groupBy(F.window("event_time", "1 minute"), "cents").agg(F.count("*").alias("orders"))


class Run:
    """Runs of versions of a job on one checkpoint and table, on what was written to a folder before each."""

    def __init__(self, spark: SparkSession, records: Records, folder: Path) -> None:
        self.spark = spark
        self.records = records
        self.folder = folder
        self.options = RunOptions(
            jobs=("orders",), checkpoint=f"{folder}/c", output=f"{folder}/t", watermark_s=10
        )
        self.count = 0

    def __call__(self, sink: Table) -> str | None:
        """Return why the run has failed."""
        lines = [
            b'{"event_id":"%d","event_time_ms":%d,"cents":%d}'
            % (self.count + number, FIRST_MS + self.count * MINUTE_MS, number)
            for number in range(4)
        ]
        received_ms = FIRST_MS + self.count * MINUTE_MS
        self.records("orders.raw", *lines, received_ms=received_ms).write.mode("append").parquet(
            f"{self.folder}/in"
        )
        self.count += 4
        job = Job(
            name="orders",
            inputs=("orders.raw",),
            fields=(
                Field("event_id", Kind.TEXT),
                Field("event_time_ms", Kind.INTEGER),
                Field("cents", Kind.INTEGER),
            ),
            sinks=(sink,),
        )
        frame = self.spark.readStream.schema(SOURCE_SCHEMA).parquet(f"{self.folder}/in")
        rows = job.query("orders-one").build(frame, self.options)
        query = (
            rows.writeStream.option("checkpointLocation", self.options.checkpoint)
            .trigger(availableNow=True)
            .partitionBy("date")
            .start(f"{self.options.output}/orders/one")
        )
        try:
            query.awaitTermination()
        except Exception:
            return failure_of(query)
        return None

    def rows(self) -> list[dict[str, Any]]:
        table = self.spark.read.option("mergeSchema", "true").parquet(f"{self.options.output}/orders/one")
        return [row.asDict() for row in table.collect()]


@pytest.fixture
def run(spark: SparkSession, records: Records, tmp_path: Path) -> Run:
    return Run(spark, records, tmp_path)


WINDOWS = Table("orders/one", sums, ("window_start_ms",))


def test_a_column_of_events_can_be_added(run: Run) -> None:
    each = Table("orders/one", plain)
    assert run(each) is None
    assert run(replace(each, rows=more_columns)) is None
    found = sorted(((row["cents"], row["euros"] is None, row["shop"]) for row in run.rows()), key=str)
    assert found == [(n, is_old, None if is_old else "web") for n in range(4) for is_old in (False, True)]
    assert run(replace(each, rows=more_fields)) is None
    tills = [
        row["at"]["tills"][0].asDict() | {"place": row["at"]["place"]} for row in run.rows() if row["at"]
    ]
    assert tills.count({"till": 1, "open": True, "place": "north"}) == 4
    assert tills.count({"till": 1, "open": None, "place": None}) == 4


def test_what_stands_before_and_behind_a_state_can_be_changed(run: Run) -> None:
    assert run(WINDOWS) is None
    assert run(replace(WINDOWS, rows=large_sums)) is None
    assert run(replace(WINDOWS, rows=large_sums)) is None
    assert [row["cents"] for row in run.rows()] == [6, 5]


@pytest.mark.parametrize("rows", [more_sums, other_key])
def test_another_state_is_refused_with_what_to_do(run: Run, rows: Rows) -> None:
    assert run(WINDOWS) is None
    said = run(replace(WINDOWS, rows=rows))
    assert said is not None
    assert said.endswith(STATE_HELP), said
    # The version before it goes on.
    assert run(WINDOWS) is None
