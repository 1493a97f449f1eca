"""The pipeline's queries: what each did last, and when a person should have a look. A query may run and do nothing useful."""

from __future__ import annotations

from typing import Any

from kafkacompat.console._tests.making import partition, record, snapshot, topic
from kafkacompat.console.core.prometheus import metrics_text
from kafkacompat.console.core.queries_view import FORGOTTEN_MS, SILENT_MS, STANDING_MS
from kafkacompat.console.core.views import reading_view
from kafkacompat.console.reader import Batch
from kafkacompat.console.state import ConsoleState
from kafkacompat.pipeline.progress import RUNNING, Totals, report_of
from kafkacompat.security.cluster_address import ClusterAddress

NOW_MS = 1_790_000_000_000


def progress(records: int, late: int, kept: int, end: int) -> dict[str, Any]:
    """Spark's progress of a batch."""
    dedupe = {
        "operatorName": "dedupeWithinWatermark",
        "numRowsUpdated": kept,
        "numRowsDroppedByWatermark": late,
    }
    return {
        "batchId": 3,
        "timestamp": "2026-09-21T14:13:20.000Z",
        "numInputRows": records,
        "stateOperators": [dedupe],
        "durationMs": {"triggerExecution": 1500},
        "sources": [{"endOffset": {"logs.raw": {"0": end, "1": 0}}}],
        "eventTime": {"watermark": "2026-09-21T14:03:20.000Z", "max": "2026-09-21T14:12:50.000Z"},
    }


class ReportedRun:
    """A console that reads what a run reports, with the report that the run really makes."""

    def __init__(self) -> None:
        self.state = ConsoleState(ClusterAddress("h:1"), 0, "run")
        self.now_ms = NOW_MS
        self._offset = 0

    def report(
        self,
        *batches: dict[str, Any],
        query: str = "logs-events",
        state: str = RUNNING,
        reason: str | None = None,
        trigger_s: float = 5.0,
    ) -> None:
        totals = Totals()
        for batch in batches:
            totals.add(batch)
        value = report_of(query, ("logs.raw",), trigger_s, totals, state, reason, self.now_ms)
        self._offset += 1
        self.state.took(Batch(records=[record("pipeline.progress", query, self._offset, value)]))
        assert self.state.results.topics["pipeline.progress"].malformed == 0

    def look(self, end: int = 0) -> None:
        raw = topic("logs.raw", partition(0, latest=end), partition(1, latest=0))
        self.state.looked(snapshot(raw, at_ms=self.now_ms))

    def query(self) -> dict[str, Any]:
        (found,) = self.state.queries(self.now_ms)
        return found

    def health(self) -> tuple[str, str]:
        found = self.state.broker(self.now_ms)["health"]
        return found["level"], found["text"]


def test_the_last_batch_the_watermark_and_late_events_are_told() -> None:
    reported_run = ReportedRun()
    reported_run.report(progress(10, 2, 8, 10))
    reported_run.look(14)
    assert reported_run.query() == {
        "query": "logs-events",
        "job": "logs",
        "state": "running",
        "level": "good",
        "said": "",
        "at_ms": NOW_MS,
        "records": 10,
        "late": 2,
        "copies": 0,
        "watermark_ms": NOW_MS - 600_000,
        "batch": 3,
        "batch_records": 10,
        "batch_start_ms": NOW_MS,
        "batch_ms": 1500,
        "behind": 4,
        "behind_ms": 30_000,
        "available": 14,
    }
    assert reported_run.health() == ("good", "healthy")


def test_how_far_results_are_behind_grows_while_records_wait() -> None:
    reported_run = ReportedRun()
    reported_run.report(progress(10, 0, 10, 10))
    reported_run.look(11)
    reported_run.now_ms += 60_000
    assert reported_run.query()["behind_ms"] == 90_000
    reported_run.look(10)
    assert reported_run.query()["behind_ms"] == 0


def test_prometheus_has_the_queries() -> None:
    reported_run = ReportedRun()
    reported_run.report(progress(10, 2, 8, 10))
    reported_run.report(query="logs-rejected")
    reported_run.look(14)
    state = reported_run.state
    state.connection.answered(NOW_MS)
    text = metrics_text(state.cluster(NOW_MS)(), reading_view(state.results), state.queries(NOW_MS)).decode()
    found = [line for line in text.splitlines() if line.startswith("kafkacompat_pipeline_query_")]
    assert [line for line in found if "logs-events" in line] == [
        'kafkacompat_pipeline_query_records_total{query="logs-events"} 10.0',
        'kafkacompat_pipeline_query_late_total{query="logs-events"} 2.0',
        'kafkacompat_pipeline_query_lag_records{query="logs-events"} 4.0',
        'kafkacompat_pipeline_query_behind_seconds{query="logs-events"} 30.0',
        'kafkacompat_pipeline_query_watermark_timestamp_seconds{query="logs-events"} 1.7899994e+09',
        'kafkacompat_pipeline_query_up{query="logs-events"} 1.0',
    ]
    assert [line for line in found if "logs-rejected" in line] == [
        'kafkacompat_pipeline_query_records_total{query="logs-rejected"} 0.0',
        'kafkacompat_pipeline_query_late_total{query="logs-rejected"} 0.0',
        'kafkacompat_pipeline_query_up{query="logs-rejected"} 1.0',
    ]


def test_a_run_that_has_read_nothing_yet_is_known_and_healthy() -> None:
    reported_run = ReportedRun()
    reported_run.report()
    reported_run.look(5)
    assert (reported_run.query()["state"], reported_run.query()["batch"], reported_run.query()["behind"]) == (
        "running",
        None,
        None,
    )
    assert reported_run.health() == ("good", "healthy")


def test_a_query_that_drops_most_events_as_late_is_not_healthy() -> None:
    reported_run = ReportedRun()
    reported_run.look(10)
    reported_run.report(progress(10, 6, 4, 10))
    assert reported_run.health() == ("warning", "logs-events drops events as late: 6 of the last 10")
    reported_run.report(progress(10, 6, 4, 10), progress(10, 0, 10, 20))
    assert reported_run.health() == ("good", "healthy")


def test_a_query_stands_still_while_records_wait_and_it_reads_none() -> None:
    reported_run = ReportedRun()
    reported_run.report(progress(10, 0, 10, 10))
    reported_run.look(11)
    for _ in range(STANDING_MS // 10_000 + 1):
        reported_run.now_ms += 10_000
        reported_run.report(progress(10, 0, 10, 10))
        reported_run.look(12)
    assert reported_run.health() == ("warning", "logs-events stands still for 3 min: 2 records wait")
    reported_run.report(progress(2, 0, 2, 12))
    reported_run.look(13)
    assert reported_run.health() == ("good", "healthy")


def test_a_query_with_nothing_to_read_does_not_stand_still() -> None:
    """Also just after a record came, however long nothing came before."""
    reported_run = ReportedRun()
    for _ in range(STANDING_MS // 10_000 * 2):
        reported_run.now_ms += 10_000
        reported_run.report(progress(10, 0, 10, 10))
        reported_run.look(10)
    reported_run.look(11)
    assert reported_run.health() == ("good", "healthy")


def test_a_query_with_long_intervals_may_take_them() -> None:
    reported_run = ReportedRun()
    for _ in range(STANDING_MS // 10_000 + 5):
        reported_run.now_ms += 10_000
        reported_run.report(progress(10, 0, 10, 10), trigger_s=600)
        reported_run.look(11)
    assert reported_run.health() == ("good", "healthy")


def test_the_time_in_which_the_broker_was_away_does_not_count_as_standing_still() -> None:
    reported_run = ReportedRun()
    reported_run.report(progress(10, 0, 10, 10))
    reported_run.look(11)
    reported_run.now_ms += STANDING_MS
    reported_run.state.away(reported_run.now_ms, "refused")
    reported_run.now_ms += 10_000
    reported_run.report(progress(10, 0, 10, 10))
    reported_run.look(11)
    assert reported_run.health() == ("good", "healthy")


def test_a_run_that_was_killed_falls_silent_and_is_forgotten_after_a_day() -> None:
    reported_run = ReportedRun()
    reported_run.report(progress(10, 0, 10, 10))
    reported_run.look(10)
    reported_run.now_ms += SILENT_MS + 15_000
    assert reported_run.query()["state"] == "silent"
    text = "logs-events has reported nothing for 75 s: its run has ended without a word"
    assert reported_run.health() == ("warning", text)
    reported_run.now_ms += FORGOTTEN_MS
    assert reported_run.state.queries(reported_run.now_ms) == []
    assert reported_run.health() == ("good", "healthy")


def test_a_run_that_was_stopped_is_no_trouble() -> None:
    reported_run = ReportedRun()
    reported_run.report(progress(10, 10, 0, 10), state="stopped")
    reported_run.look(500)
    reported_run.now_ms += STANDING_MS * 3
    reported_run.look(500)
    assert reported_run.query()["state"] == "stopped"
    assert reported_run.health() == ("good", "healthy")


def test_the_query_that_failed_is_named_with_its_reason_and_several_are_counted() -> None:
    reported_run = ReportedRun()
    reported_run.look(10)
    reported_run.report(query="logs-summary", state="failed", reason="failed: no disk")
    reported_run.report(progress(10, 10, 0, 10))
    assert reported_run.health() == ("bad", "logs-summary failed: no disk")
    reported_run.report(query="metrics-live", state="failed", reason="Spark's JVM has ended")
    assert reported_run.health() == ("bad", "2 queries failed")
    for query in ("logs-summary", "metrics-live"):
        reported_run.report(progress(10, 10, 0, 10), query=query)
    assert reported_run.health() == ("warning", "3 queries need a look")


def test_a_cluster_that_is_not_healthy_comes_before_a_query_that_is_not() -> None:
    reported_run = ReportedRun()
    reported_run.report(progress(10, 10, 0, 10))
    reported_run.state.looked(snapshot(topic("logs.raw", partition(0, replicas=(1, 2))), nodes=(1,)))
    assert reported_run.health() == ("warning", "1 node away")


def test_a_topic_with_an_unknown_end_makes_what_waits_unknown() -> None:
    reported_run = ReportedRun()
    reported_run.report(progress(10, 0, 10, 10))
    reported_run.state.looked(
        snapshot(topic("logs.raw", partition(0, latest=None)), at_ms=reported_run.now_ms)
    )
    assert reported_run.query()["behind"] is None
