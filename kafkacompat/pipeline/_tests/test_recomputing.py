"""What can be computed again: dates behind the watermark, whose records are there. And which dates have other rows."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from kafkacompat.pipeline import recomputing
from kafkacompat.pipeline._tests.conftest import Records
from kafkacompat.pipeline.failure import PipelineFailed
from kafkacompat.pipeline.job import Table
from kafkacompat.pipeline.options import RunOptions
from kafkacompat.pipeline.queries import JOBS
from kafkacompat.pipeline.recomputing import (
    Batch,
    Range,
    batch_in,
    changed_dates,
    end_of,
    is_of_sessions,
    midnight_ms,
    needed_from_ms,
    of_dates,
    recomputed,
    require_ended,
    require_records,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAY = date(2026, 11, 20)
NEXT = date(2026, 11, 21)
RANGE = Range(date(2026, 11, 18), DAY)


def planned(watermark: object) -> str:
    return "\n".join(
        ["v1", json.dumps({"batchWatermarkMs": watermark, "conf": {}}), json.dumps({"in": {"0": 7, "1": 0}})]
    )


def test_a_batch_has_the_offsets_and_the_watermark_of_the_checkpoint() -> None:
    assert batch_in(9, planned(5)) == Batch(9, {("in", 0): 7, ("in", 1): 0}, 5)
    for text in ("v1", "v1\nno", "v1\n{}", "v1\n[]", planned(None)):
        with pytest.raises(PipelineFailed, match="offsets/9 cannot be read"):
            batch_in(9, text)


def test_a_range_has_its_first_and_last_date() -> None:
    assert [RANGE.has(date(2026, 11, day)) for day in (17, 18, 20, 21)] == [False, True, True, False]
    assert not RANGE.has(None)


def test_a_date_must_be_behind_the_watermark() -> None:
    assert midnight_ms(NEXT) == 1_795_219_200_000
    require_ended(RANGE, Batch(9, {}, midnight_ms(NEXT)))
    with pytest.raises(
        PipelineFailed, match="still writes 2026-11-20: its watermark in batch 9 is 2026-11-20 23:59:59 UTC"
    ):
        require_ended(RANGE, Batch(9, {}, midnight_ms(NEXT) - 1))


def test_the_first_and_the_last_date_are_dates_too() -> None:
    ever = Range(date.min, date.max)
    with pytest.raises(PipelineFailed, match="still writes 9999-12-31"):
        require_ended(ever, Batch(9, {}, 0))
    with pytest.raises(PipelineFailed, match="0001-01-01 cannot be computed again"):
        require_records(ever, needed_from_ms(ever, watermark_s=600), {("in", 0): 5})


def test_the_records_of_a_date_must_be_there() -> None:
    needed_ms = needed_from_ms(RANGE, watermark_s=600)
    assert midnight_ms(RANGE.first) - needed_ms == (10 + 10) * 60_000
    require_records(RANGE, needed_ms, {})
    require_records(RANGE, needed_ms, {("in", 0): needed_ms})
    said = (
        "2026-11-18 cannot be computed again: the records of in-1 before 2026-11-17 23:40:01 UTC are deleted"
    )
    with pytest.raises(PipelineFailed, match=said):
        require_records(RANGE, needed_ms, {("in", 0): needed_ms, ("in", 1): needed_ms + 1000})


def test_a_row_ends_with_its_window_or_its_event() -> None:
    columns = ["event_id", "event_time_ms", "date"]
    assert end_of(columns, is_keyed=False) == "event_time_ms"
    assert end_of(columns, is_keyed=True) is None
    assert end_of([*columns, "session_end_ms"], is_keyed=True) is None
    assert end_of([*columns, "window_end_ms"], is_keyed=False) == "window_end_ms"
    assert end_of(["total"], is_keyed=False) is None


def test_rows_of_sessions_are_known_by_their_plan(spark: SparkSession) -> None:
    from pyspark.sql import functions as F

    events = spark.createDataFrame([("a", 0)], "user string, at bigint").select(
        "user", F.timestamp_millis("at").alias("event_time")
    )
    ends = F.unix_millis(F.col("window.end")).alias("window_end_ms")
    sessions = events.groupBy(F.session_window("event_time", "5 minutes").alias("window"), "user").count()
    windows = events.groupBy(F.window("event_time", "5 minutes").alias("window"), "user").count()
    assert is_of_sessions(sessions.select("user", ends))
    assert not is_of_sessions(windows.select("user", ends))


def test_a_backfill_can_compute_all_of_our_tables_but_sessions(records: Records) -> None:
    """A column that needs sessions, or a key without the end of a window, would take a table out of `pipeline backfill`."""
    options = RunOptions(jobs=tuple(JOBS), checkpoint="", output="")
    refused = []
    for job in JOBS.values():
        queries = {query.table: query for query in job.queries}
        for sink in job.sinks:
            if isinstance(sink, Table):
                query = queries[sink.name]
                rows = query.build(records(query.reads[0]), options)
                if is_of_sessions(rows) or end_of(rows.columns, is_keyed=bool(sink.key)) is None:
                    refused.append(sink.name)
    assert refused == ["activity/sessions"], "docs/reference/pipeline.md says which tables a backfill refuses"


def test_dates_whose_rows_differ_are_found(spark: SparkSession, tmp_path: Path) -> None:
    schema = "event_id string, extra map<string,string>, cost double, date string, hour string"
    rows = [
        ("a", {"x": "1", "y": "2"}, 0.1, "2026-11-20", "01"),
        ("a", None, None, "2026-11-20", "01"),
        ("b", None, 1.0, "2026-11-21", "13"),
    ]
    table = str(tmp_path / "table")
    spark.createDataFrame(rows, schema).write.partitionBy("date", "hour").parquet(table)
    inference = "spark.sql.sources.partitionColumnTypeInference.enabled"
    kept = spark.conf.get(inference)
    assert kept is not None
    spark.conf.set(inference, "false")
    try:
        present = spark.read.parquet(table)
        assert changed_dates(present, spark.createDataFrame(rows[::-1], schema)) == []
        more = spark.createDataFrame([*rows, rows[0]], schema)
        assert changed_dates(present, more) == [DAY]
        with pytest.raises(PipelineFailed, match="more rows of 2026-11-20 than the records give"):
            changed_dates(more, present)
        with pytest.raises(PipelineFailed, match="more rows of 2026-11-20"):
            changed_dates(present, more.limit(0))
        assert changed_dates(None, more) == [DAY, NEXT]
        assert of_dates(more, [NEXT]).count() == 1
        with pytest.raises(PipelineFailed, match="has no column cost"):
            changed_dates(present.drop("cost"), more)
        before = present.drop("cost")
        assert changed_dates(before, spark.createDataFrame(rows, schema), may_lack=True) == [DAY, NEXT]
        nothing = spark.createDataFrame([(*row[:2], None, *row[3:]) for row in rows], schema)
        assert changed_dates(before, nothing, may_lack=True) == []
        fewer = spark.createDataFrame([*rows, rows[2]], schema).drop("cost")
        with pytest.raises(PipelineFailed, match="a column cost, which the job does not have"):
            changed_dates(present, fewer)
        assert changed_dates(spark.createDataFrame(nothing.collect(), schema), fewer) == [NEXT]
    finally:
        spark.conf.set(inference, kept)


def test_what_was_read_is_not_read_again(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The topics may be others when the rows are written. Files stand for them here."""
    from pyspark.sql import functions as F

    def write(*numbers: int) -> None:
        frame = spark.createDataFrame([(number,) for number in numbers], "number int")
        frame.write.mode("overwrite").parquet(str(tmp_path / "topic"))

    def source(*given: object) -> Any:
        return spark.read.parquet(str(tmp_path / "topic"))

    def build(records: Any, options: object) -> Any:
        rows = records.withColumn("date", F.lit(DAY)).withColumn("event_time_ms", F.lit(midnight_ms(DAY)))
        return rows.withColumn("key", F.col("number"))

    monkeypatch.setattr(recomputing, "source", source)
    write(1, 2)
    query: Any = SimpleNamespace(build=build)
    rows = recomputed(spark, query, None, Batch(1, {}, 1 << 60), RANGE, is_keyed=False)  # type: ignore[arg-type]
    write(3)
    spark.catalog.clearCache()
    assert sorted(row["number"] for row in of_dates(rows, [DAY]).collect()) == [1, 2]
    assert changed_dates(rows, rows) == []
