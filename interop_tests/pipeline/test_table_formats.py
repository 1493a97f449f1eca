"""One table in each format: every event once, whatever a driver leaves that dies between the steps of a batch's commit.
Checkpoints and tables that do not belong together are refused."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from interop_tests.harness.kafka_jars import CHECKOUT, require_program
from interop_tests.harness.spark_cluster import spark_environment
from kafkacompat.pipeline.tables import FORMATS

TIME_LIMIT_S = 240.0
EVENTS = [f"{number}-{each:02}" for number in range(4) for each in range(20)]

pytestmark = pytest.mark.needs_control


def test_each_format_has_every_event_once(bootstrap: str, tmp_path: Path) -> None:
    require_program("java")
    done = subprocess.run(
        [sys.executable, "-m", "interop_tests.pipeline.table_formats", bootstrap, str(tmp_path / "run")],
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT_S,
        cwd=CHECKOUT,
        env=spark_environment(),
    )
    assert done.returncode == 0, (done.stdout[-4000:], done.stderr[-4000:])
    told = json.loads(done.stdout.splitlines()[-1])
    assert list(told["rows"]) == list(FORMATS)
    for form, found in told["rows"].items():
        assert found == EVENTS, form
    parquet, delta, iceberg = told["refused"]["new checkpoint"]
    assert "which checkpoint" in parquet
    assert "batches of another checkpoint" in delta
    assert "batches of another checkpoint" in iceberg
    for form, said in zip(FORMATS, told["refused"]["new output"], strict=True):
        assert f"shop/{form} does not contain" in said
    for form, said in zip(FORMATS, told["refused"]["other format"], strict=True):
        assert f"shop/{form} has the format {form}, and this run writes" in said
