"""Checkpoints and tables that match and that do not: by batch number, and as Spark's file sink leaves them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from kafkacompat.pipeline.checkpoint_validation import (
    mismatch,
    require_matching_table,
    skips,
)
from kafkacompat.pipeline.failure import PipelineFailed
from kafkacompat.pipeline.options import RunOptions
from kafkacompat.pipeline.queries import QUERIES
from kafkacompat.pipeline.table_formats import NONE, last_batch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BATCHES = 3
"""The last of them compacts the sink's log into one file."""


@pytest.mark.parametrize(
    ("names", "last"),
    [
        ([], NONE),
        (["0"], 0),
        (["8", "9.compact", ".9.compact.crc", "10"], 10),
        (["8", "9.compact"], 9),
        ([".12.1f.tmp", ".12.crc", "metadata", "\u00b2"], NONE),
    ],
)
def test_the_last_batch_goes_by_number(names: list[str], last: int) -> None:
    assert last_batch(names) == last


@pytest.mark.parametrize(
    ("planned", "ended", "written"),
    [
        (NONE, NONE, NONE),
        (0, NONE, NONE),
        (0, NONE, 0),
        (0, 0, 0),
        (7, 6, 6),
        (7, 6, 7),
        (7, 7, 7),
    ],
)
def test_a_driver_may_die_at_any_moment(planned: int, ended: int, written: int) -> None:
    assert mismatch("c", "t", planned, ended, written) is None


@pytest.mark.parametrize(
    ("planned", "ended", "written", "skipped"),
    [
        (0, NONE, 0, True),
        (7, 6, 7, True),
        (7, 5, 7, True),
        (7, 5, 6, False),
        (7, 6, 6, False),
        (7, 7, 7, False),
        (0, NONE, NONE, False),
        (NONE, NONE, NONE, False),
    ],
)
def test_spark_skips_the_last_planned_batch_only(
    planned: int, ended: int, written: int, skipped: bool
) -> None:
    """If commits were lost and the table ends before the last planned batch, that batch must be written."""
    assert skips(planned, ended, written) == skipped


@pytest.mark.parametrize(
    ("planned", "ended", "written", "said"),
    [
        (NONE, NONE, 0, "table t contains batches up to number 0, which checkpoint c does not have"),
        (3, 3, 9, "table t contains batches up to number 9, which checkpoint c does not have"),
        (0, 0, NONE, "checkpoint c has completed batch 0, which table t does not contain"),
        (9, 9, 3, "checkpoint c has completed batch 9, which table t does not contain"),
    ],
)
def test_what_does_not_follow_is_told(planned: int, ended: int, written: int, said: str) -> None:
    found = mismatch("c", "t", planned, ended, written)
    assert found is not None
    assert found.startswith(said)


@pytest.fixture
def short_logs(spark: SparkSession) -> Iterator[None]:
    """Spark's default of 10 would need as many batches without testing more."""
    spark.conf.set("spark.sql.streaming.fileSink.log.compactInterval", str(BATCHES))
    yield
    spark.conf.unset("spark.sql.streaming.fileSink.log.compactInterval")


def write_lines(spark: SparkSession, lines: Path, options: RunOptions) -> int:
    """Run a query with the folders of logs-events, one batch per file of lines. Return the table's number of rows."""
    table = f"{options.output}/logs/events"
    read = spark.readStream.option("maxFilesPerTrigger", "1").text(str(lines))
    writer = read.writeStream.option("checkpointLocation", f"{options.checkpoint}/logs-events")
    query = writer.trigger(availableNow=True).start(table, format="parquet")
    query.awaitTermination()
    return spark.read.parquet(table).count()


def test_tables_stay_with_the_checkpoint_that_spark_wrote_with_them(
    spark: SparkSession, short_logs: None, tmp_path: Path
) -> None:
    lines = tmp_path / "lines"
    lines.mkdir()
    for number in range(BATCHES):
        (lines / f"{number}.txt").write_text("line\n")
    # A blank and brackets: a path must not be treated as a pattern.
    kept = RunOptions(jobs=("logs",), checkpoint=f"{tmp_path}/a [1] c/", output=f"{tmp_path}/a [1] t/")
    new = RunOptions(jobs=("logs",), checkpoint=f"file:{tmp_path}/new-c", output=f"file:{tmp_path}/new-t")
    query = QUERIES["logs"][0]
    require_matching_table(spark, query, kept)
    assert write_lines(spark, lines, kept) == BATCHES
    (log,) = tmp_path.glob("a * t/logs/events/_spark_metadata")
    assert (log / f"{BATCHES - 1}.compact").exists()
    require_matching_table(spark, query, kept)
    mixed = RunOptions(jobs=("logs",), checkpoint=new.checkpoint, output=kept.output)
    with pytest.raises(PipelineFailed) as failed:
        require_matching_table(spark, query, mixed)
    assert str(failed.value).startswith(
        f"table {tmp_path}/a [1] t/logs/events contains batches up to number "
        f"{BATCHES - 1}, which checkpoint file:{tmp_path}/new-c/logs-events does not have"
    )
    # The reason for the refusal: Spark would read all lines again and write none.
    assert write_lines(spark, lines, mixed) == BATCHES
    shutil.rmtree(tmp_path / "new-c")

    mixed = RunOptions(jobs=("logs",), checkpoint=kept.checkpoint, output=new.output)
    with pytest.raises(
        PipelineFailed, match=f"completed batch {BATCHES - 1}, which table file:{tmp_path}/new-t"
    ):
        require_matching_table(spark, query, mixed)
    # As a driver leaves it that dies before the end of its last batch.
    (tmp_path / "a [1] c" / "logs-events" / "commits" / str(BATCHES - 1)).unlink()
    require_matching_table(spark, query, kept)
    require_matching_table(spark, query, new)
