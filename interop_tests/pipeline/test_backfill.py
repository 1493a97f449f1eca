"""Tables of each format get events that were late, and a column that was added, once. Nothing changes when the same dates are
computed again."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest

from interop_tests.pipeline.runs import run_words, typed
from interop_tests.pipeline.table_programs import told_by
from kafkacompat.pipeline.tables import FORMATS

pytestmark = pytest.mark.needs_control
DATE = re.compile(r"\d{4}-\d\d-\d\d")


def check(told: dict[str, Any]) -> None:
    """What the program has found. A row is the day before the newest, the hour, and the number of sales."""
    without = [[2, 5, 2], [4, 5, 2]]
    with_late = [[2, 5, 2], [3, 5, 1], [4, 5, 3]]
    for form in FORMATS:
        before, beside, alone, later, upgraded, maintained = (found[form] for found in told["rows"])
        assert before == without, form
        assert beside == (with_late if form == "parquet" else without), form
        assert alone == with_late, form
        assert later == [[1, 2, 3], [1, 5, 1], *with_late], form
        assert maintained == upgraded == [[0, 5, 2], *later], form
        first, by_the_run, last = (found[form] for found in told["filled"])
        assert first == [[3, 5, 1], [4, 5, 3]], form
        assert by_the_run == [[0, 5, 2], *first], form
        assert last == [[0, 5, 2], [2, 5, 2], *first], form
        assert told["grown"][form] == [[2, 5, 2], *first], form
    open_date, beside, *again, filled, filled_more, grown = told["said"]
    nothing = "every row is as computed, nothing changed"
    for form in FORMATS:
        assert "its watermark in batch" in open_date[form], form
        if form == "parquet":
            assert beside[form].startswith("computed again: ")
            assert len(DATE.findall(beside[form])) == 2
            assert again[0][form] == nothing
        else:
            assert "stop the run first" in beside[form]
            assert again[0][form].startswith("computed again: ")
        assert [each[form] for each in again[1:]] == [nothing, nothing], form
        assert len(DATE.findall(filled[form])) == 2, form
        # The dates that have the column are as computed.
        assert len(DATE.findall(filled_more[form])) == 1, form
        assert len(DATE.findall(grown[form])) == 3, form
    assert told["kept of iceberg"] == [False, True, True]


def test_late_events_and_an_added_column_come_into_tables_of_each_format_once(
    bootstrap: str, tmp_path: Path
) -> None:
    told = told_by("backfill_tables", bootstrap, tmp_path / "run")
    check(told)
    first, last = told["dates"]
    command = typed(
        f"{sys.executable} -m kafkacompat pipeline backfill interop_tests.pipeline.backfill_tables:GROWN "
        f"--bootstrap {bootstrap} --from {first} --to {last} --table till/parquet "
        f"--checkpoint {tmp_path}/run/checkpoint --output {tmp_path}/run/tables {run_words()}",
        tmp_path,
    )
    assert command.returncode == 0, (command.stdout, command.stderr)
    assert command.stdout.splitlines()[-1] == "till/parquet: every row is as computed, nothing changed"
