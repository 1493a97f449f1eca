"""One table in each format: every event once, whatever a driver leaves that dies between the steps of a batch's commit, whatever
is merged and removed meanwhile, and for other engines too. Checkpoints and tables that do not belong together are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from interop_tests.pipeline.declarative_spark import declarative_spark
from interop_tests.pipeline.table_programs import told_by
from interop_tests.pipeline.table_readers import rows_read
from kafkacompat.pipeline.spark_failures import TABLE_HELP
from kafkacompat.pipeline.tables import FORMATS, PARQUET

COLUMNS = ("event_id", "shop", "event_time_ms", "date")
WITHOUT_PARQUET = [form for form in FORMATS if form != PARQUET]


def events(rounds: int) -> list[str]:
    """The ids of all events until this round."""
    return [f"{number}-{each:02}" for number in range(rounds) for each in range(20)]


pytestmark = pytest.mark.needs_control


def require_each_event_once(told: Any, form: str) -> None:
    """Each table has every event once after each step."""
    before, during, after, removed, again, by_the_run, with_column = (found[form] for found in told["rows"])
    assert before == during == events(4), form
    assert after == events(6), form
    # The odd ones are of the day before.
    kept = [event for event in events(6) if int(event[-1]) % 2 == 0]
    assert removed == kept, form
    assert again == sorted([*kept, *(f"6-{each:02}" for each in range(20))]), form
    assert by_the_run == sorted([*again, *(f"7-{each:02}" for each in range(20))]), form
    later = [f"{number}-{each:02}" for number in (8, 9) for each in range(20)]
    assert with_column == sorted([*by_the_run, *later]), form
    assert told["added"][form] == 20, form
    if form != PARQUET:
        assert TABLE_HELP in told["failed"][form], form


def test_parquet_and_delta_have_every_event_once_on_the_spark_of_declarative_pipelines(
    bootstrap: str, tmp_path: Path
) -> None:
    told = told_by("table_formats", bootstrap, tmp_path / "run", declarative_spark())
    assert [*told["rows"][0]] == ["parquet", "delta"]
    for form in ("parquet", "delta"):
        require_each_event_once(told, form)


def test_each_format_has_every_event_once(bootstrap: str, tmp_path: Path) -> None:
    told = told_by("table_formats", bootstrap, tmp_path / "run")
    for form in FORMATS:
        require_each_event_once(told, form)
    for form in WITHOUT_PARQUET:
        assert "files merged into" in told["by the run"][form][0], form
    assert not any("was not maintained" in line for each in told["by the run"].values() for line in each)
    of_all_snapshots, of_the_present_one = told["left"]
    assert of_all_snapshots == of_the_present_one, "replaced files of Iceberg stay"
    beside, later, alone, _ = told["said"]
    assert "8 files merged into 2" in beside["parquet"]
    assert "the run that writes it decides" in beside["parquet"]
    assert "8 old files deleted" in later["parquet"]
    assert "old files deleted" in alone["parquet"]
    for form in WITHOUT_PARQUET:
        assert "stop the run first" in beside[form]
        assert "files merged into" in alone[form]
    for form, said in zip(FORMATS, told["refused"]["new checkpoint"], strict=True):
        assert ("which checkpoint" if form == PARQUET else "batches of another checkpoint") in said
    for form, said in zip(FORMATS, told["refused"]["new output"], strict=True):
        assert f"shop/{form} does not contain" in said
    for form, said in zip(FORMATS, told["refused"]["other format"], strict=True):
        assert f"shop/{form} has the format {form}, and this run writes" in said
    # The folder of Parquet files also has those of a batch whose commit was lost.
    read, content = rows_read(tmp_path / "run" / "tables" / "shop", COLUMNS)
    kept, of_the_day_before = (6 + 4) * 10, 4 * 10
    rows = kept + of_the_day_before
    assert read == {
        "parquet": [[of_the_day_before, kept]] * 3,
        "delta": [[rows] * 3],
        "iceberg": [[rows] * 3],
    }
    for form in FORMATS:
        assert len(told["content"][form]) == rows, form
        assert content[form] == [told["content"][form]] * 3, form
