"""Tables of each format get events that were late, once, and nothing changes when the same dates are computed again."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from interop_tests.pipeline.runs import run_words, typed
from interop_tests.pipeline.table_programs import told_by
from kafkacompat.pipeline.tables import FORMATS

pytestmark = pytest.mark.needs_control


def check(told: dict[str, Any]) -> None:
    """What the program has found. A row is the day before today, the hour, and the number of sales."""
    without = [[2, 5, 2], [4, 5, 2]]
    with_late = [[2, 5, 2], [3, 5, 1], [4, 5, 3]]
    for form in FORMATS:
        before, beside, alone, later = (found[form] for found in told["rows"])
        assert before == without, form
        assert beside == (with_late if form == "parquet" else without), form
        assert alone == with_late, form
        assert later == [[1, 2, 3], [1, 5, 1], *with_late], form
    open_date, beside, *again = told["said"]
    nothing = "every row is as computed, nothing changed"
    for form in FORMATS:
        assert "its watermark in batch" in open_date[form], form
        if form == "parquet":
            assert beside[form].startswith("computed again: ")
            assert beside[form].count("20") == 2
            assert again[0][form] == nothing
        else:
            assert "stop the run first" in beside[form]
            assert again[0][form].startswith("computed again: ")
        assert [each[form] for each in again[1:]] == [nothing, nothing], form


def test_late_events_come_into_tables_of_each_format_once(bootstrap: str, tmp_path: Path) -> None:
    check(told_by("backfill_tables", bootstrap, tmp_path / "run"))
    first, last = ((datetime.now(UTC).date() - timedelta(days=before)).isoformat() for before in (4, 2))
    command = typed(
        f"{sys.executable} -m kafkacompat pipeline backfill interop_tests.pipeline.backfill_tables:JOB "
        f"--bootstrap {bootstrap} --from {first} --to {last} --table till/parquet "
        f"--checkpoint {tmp_path}/run/checkpoint --output {tmp_path}/run/tables {run_words()}",
        tmp_path,
    )
    assert command.returncode == 0, (command.stdout, command.stderr)
    assert command.stdout.splitlines()[-1] == "till/parquet: every row is as computed, nothing changed"
