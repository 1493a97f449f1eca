"""The choice of how Spark writes checkpoints depends on their file system, and each way can continue the other's files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from kafkacompat.pipeline.checkpoint_files import SETTING, by_file_system, choose_checkpoint_files
from kafkacompat.pipeline.options import RunOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ELSEWHERE = "http://127.0.0.1:9/folder"
"""A file system that Hadoop supports, used without a request to it."""


@pytest.fixture
def session(spark: SparkSession) -> Iterator[SparkSession]:
    """A session without a choice, before and after the test."""
    spark.conf.unset(SETTING)
    yield spark
    spark.conf.unset(SETTING)


def chosen(session: SparkSession, checkpoint: str, output: str) -> str | None:
    session.conf.unset(SETTING)
    choose_checkpoint_files(session, RunOptions(jobs=("logs",), checkpoint=checkpoint, output=output))
    found: str | None = session.conf.get(SETTING, None)
    return found


def test_only_local_folders_are_written_another_way(session: SparkSession) -> None:
    assert chosen(session, "/a/checkpoint", "tables") == by_file_system()
    assert chosen(session, "file:/a/checkpoint", "file:///a [1] tables") == by_file_system()
    assert chosen(session, "/a/checkpoint", ELSEWHERE) is None
    assert chosen(session, ELSEWHERE, "/a/tables") is None
    assert chosen(session, "nothing-like-that://a/checkpoint", "/a/tables") is None


def test_a_place_without_a_scheme_is_on_sparks_default_file_system(session: SparkSession) -> None:
    context: Any = session.sparkContext
    hadoop = context._jsc.hadoopConfiguration()
    kept = hadoop.get("fs.defaultFS")
    hadoop.set("fs.defaultFS", ELSEWHERE)
    try:
        assert chosen(session, "/a/checkpoint", "/a/tables") is None
        assert chosen(session, "file:/a/checkpoint", "file:/a/tables") == by_file_system()
    finally:
        hadoop.set("fs.defaultFS", kept)


def test_a_chosen_file_manager_is_used(session: SparkSession) -> None:
    session.conf.set(SETTING, "somebody.elses.Choice")
    choose_checkpoint_files(session, RunOptions(jobs=("logs",), checkpoint="/a", output="/b"))
    assert session.conf.get(SETTING) == "somebody.elses.Choice"


def test_a_checkpoint_is_gone_on_with_whoever_wrote_it(session: SparkSession, tmp_path: Path) -> None:
    """The checkpoint is written by Spark's default, then by the alternative, then by the default: each line is there once."""
    lines, table = tmp_path / "lines", str(tmp_path / "table")
    lines.mkdir()
    for number, way in enumerate((None, by_file_system(), None)):
        session.conf.unset(SETTING)
        if way is not None:
            session.conf.set(SETTING, way)
        (lines / f"{number}.txt").write_text(f"line {number}\n")
        read = session.readStream.text(str(lines)).dropDuplicates()
        writer = read.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.trigger(availableNow=True).start(table, format="parquet")
        query.awaitTermination()
    assert sorted(row[0] for row in session.read.parquet(table).collect()) == ["line 0", "line 1", "line 2"]
