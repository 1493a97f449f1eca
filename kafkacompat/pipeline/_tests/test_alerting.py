"""Batches of windows become records, with a real Spark and no broker: the content of a batch, and the state after a crash."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from kafkacompat.pipeline._tests.conftest import RECEIVED_MS
from kafkacompat.pipeline._tests.test_jobs import SAMPLE, encoded
from kafkacompat.pipeline.alerting import BATCHES_KEPT, Alerting
from kafkacompat.pipeline.failure import PipelineFailed
from kafkacompat.pipeline.options import RunOptions
from kafkacompat.pipeline.queries import metrics_live

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Records = Callable[..., "DataFrame"]
START_MS = RECEIVED_MS // 60_000 * 60_000


class Caught(Alerting):
    """Records what it would write."""

    def __init__(self, folder: Path) -> None:
        super().__init__(str(folder), RunOptions(jobs=("metrics",), checkpoint="", output=""))
        self.written: list[tuple[str, str, dict[str, Any]]] = []

    def write(self, records: DataFrame) -> None:
        self.written += [(row["topic"], row["key"], json.loads(row["value"])) for row in records.collect()]

    def alerts(self) -> list[tuple[str, str, str]]:
        """Return state, key and event id of each change."""
        return [
            (value["state"], key, value["event_id"])
            for topic, key, value in self.written
            if topic == "metrics.alerts"
        ]


@pytest.fixture
def windows(records: Records) -> Callable[..., DataFrame]:
    """windows(minute, error=, service=) is a batch with 25 samples of one minute."""

    def make(minute: int, **values: Any) -> DataFrame:
        at_ms = START_MS + minute * 60_000
        samples = [encoded(SAMPLE, event_id=f"m-{n}", event_time_ms=at_ms, **values) for n in range(25)]
        frame = records("metrics.raw", *samples, received_ms=at_ms)
        return metrics_live(frame, RunOptions(jobs=("metrics",), checkpoint="", output=""))

    return make


def test_a_batch_writes_its_windows_and_the_changes_of_alerts(
    windows: Callable[..., DataFrame], tmp_path: Path
) -> None:
    alerting = Caught(tmp_path)
    alerting(windows(0, error=True), 0)
    window, alert = alerting.written
    assert window[:2] == ("metrics.windows", f"shop|{START_MS}")
    assert window[2]["count"] == 25
    assert alert[:2] == ("metrics.alerts", "shop|error_rate")
    assert alert[2] | {"event_id": ""} == {
        "event_id": "",
        "service": "shop",
        "rule": "error_rate",
        "state": "firing",
        "severity": "critical",
        "since_ms": START_MS,
        "window_start_ms": START_MS,
        "window_end_ms": START_MS + 60_000,
        "value": 1.0,
        "threshold": 0.2,
    }


def test_a_run_goes_on_with_the_alerts_that_the_last_one_left(
    windows: Callable[..., DataFrame], tmp_path: Path
) -> None:
    before = Caught(tmp_path)
    before(windows(0, error=True), 0)
    after = Caught(tmp_path)
    after(windows(1, error=True), 1)
    after(windows(2), 2)
    assert after.alerts() == []
    after(windows(3), 3)
    assert [state for state, *_ in before.alerts() + after.alerts()] == ["firing", "resolved"]


def test_a_batch_that_is_run_again_writes_the_same_changes(
    windows: Callable[..., DataFrame], tmp_path: Path
) -> None:
    """Whether the state after it was saved or not."""
    first = Caught(tmp_path)
    first(windows(0, error=True), 7)
    assert first.alerts()
    again = Caught(tmp_path)
    again(windows(0, error=True), 7)
    assert again.alerts() == first.alerts()


def test_old_states_go_but_for_what_a_batch_that_is_run_again_needs(
    windows: Callable[..., DataFrame], tmp_path: Path
) -> None:
    alerting = Caught(tmp_path)
    batches = (3, 5, 9, 9 + BATCHES_KEPT)
    for minute, batch in enumerate(batches):
        alerting(windows(minute), batch)
    kept = sorted(int(path.name) for path in (tmp_path / "alerts").iterdir() if path.name.isdigit())
    assert kept == [9, 9 + BATCHES_KEPT]


def test_a_state_that_cannot_be_read_is_named(windows: Callable[..., DataFrame], tmp_path: Path) -> None:
    (tmp_path / "alerts").mkdir()
    (tmp_path / "alerts" / "4").write_text("{}")
    with pytest.raises(PipelineFailed, match=r"alerts/4: the state of alerts cannot be read"):
        Caught(tmp_path)(windows(0), 5)
