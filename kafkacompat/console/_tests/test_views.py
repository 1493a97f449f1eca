"""View models of the three jobs: rates, ranks, buckets, the newest rows, and no rows at all."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from kafkacompat.console._tests.making import MINUTE_MS, record, summary, window
from kafkacompat.console.core.result_topics import RESULT_TOPICS
from kafkacompat.console.core.results import Results
from kafkacompat.console.core.views import MAX_CHART_WINDOWS, results_view
from kafkacompat.pipeline.alerts import Change
from kafkacompat.pipeline.topics import METRICS_ALERTS


def folded(*rows: tuple[str, str, dict[str, Any]]) -> Results:
    results = Results()
    for offset, (topic, key, fields) in enumerate(rows):
        results.fold(record(topic, key, offset, {"event_id": f"e{offset}"} | fields))
    assert sum(fold.malformed for fold in results.topics.values()) == 0
    return results


def test_nothing_read_gives_a_view_of_nothing() -> None:
    view = results_view(Results())
    assert json.loads(json.dumps(view, allow_nan=False)) == view
    assert view["logs"]["windows"] == []
    assert view["activity"]["top_pages"]["pages"] == []
    assert view["activity"]["sessions"]["mean_duration_ms"] is None
    assert view["metrics"]["services"] == []


def test_requests_are_told_per_second_of_their_window() -> None:
    rows = [("logs.summary", str(minute), summary(minute, 600, bad=60)) for minute in (2, 1)]
    view = results_view(folded(*rows))["logs"]
    assert [each["start_ms"] for each in view["windows"]] == [MINUTE_MS, 2 * MINUTE_MS]
    assert view["windows"][0]["requests_per_s"] == 10.0
    assert view["windows"][0]["status"] == [9.0, 0.0, 0.0, 1.0]
    assert view["windows"][0]["server_error_share"] == 0.1
    assert view["requests"] == 1200


def test_a_window_without_requests_or_length_divides_by_nothing() -> None:
    empty = summary(1, 0) | {"window_end_ms": MINUTE_MS}
    (only,) = results_view(folded(("logs.summary", "1", empty)))["logs"]["windows"]
    assert only["requests_per_s"] == 0.0
    assert only["server_error_share"] == 0.0


def test_the_chart_holds_a_bounded_number_of_the_newest_windows() -> None:
    rows = [("logs.summary", str(minute), summary(minute)) for minute in range(MAX_CHART_WINDOWS + 30)]
    windows = results_view(folded(*rows))["logs"]["windows"]
    assert len(windows) == MAX_CHART_WINDOWS
    assert windows[-1]["start_ms"] == (MAX_CHART_WINDOWS + 29) * MINUTE_MS


def test_top_pages_are_those_of_the_latest_full_window_with_their_rank_before() -> None:
    def page(name: str, minute: int, views: int) -> tuple[str, str, dict[str, Any]]:
        return (
            "activity.top_pages",
            f"{name}|{minute}",
            window(minute) | {"page": name, "views": views, "visitors": 1},
        )

    rows = [page("/a", 1, 9), page("/b", 1, 5), page("/b", 2, 8), page("/c", 2, 3), page("/a", 2, 8)]
    only = results_view(folded(*rows[:2]))["activity"]["top_pages"]
    assert [(each["page"], each["rank_before"]) for each in only["pages"]] == [("/a", None), ("/b", None)]
    top = results_view(folded(*rows, page("/d", 3, 1)))["activity"]["top_pages"]
    assert [(each["page"], each["views"], each["rank_before"]) for each in top["pages"]] == [
        ("/a", 8, 1),
        ("/b", 8, 2),
        ("/c", 3, None),
    ]
    assert top["start_ms"] == 2 * MINUTE_MS


def test_sessions_fall_into_buckets_of_duration() -> None:
    def session(user: str, start: int, end: int) -> tuple[str, str, dict[str, Any]]:
        times = {"session_start_ms": start, "session_end_ms": end}
        return ("activity.sessions", user, {"user_id": user, "page_views": 3, "searches": 1} | times)

    seen = folded(session("u1", 0, 59_999), session("u2", 0, 60_000), session("u3", 0, 1_800_000))
    view = results_view(seen)["activity"]["sessions"]
    assert [each["sessions"] for each in view["durations"]] == [1, 1, 0, 0, 1]
    assert [each["user_id"] for each in view["recent"]] == ["u3", "u2", "u1"]
    assert view["recent"][0]["last_page"] is None
    assert view["mean_page_views"] == 3


def measured(service: str, minute: int, p95: float) -> tuple[str, str, dict[str, Any]]:
    latency = {f"latency_{name}_ms": p95 for name in ("mean", "p50", "p95", "p99")}
    fields = (
        window(minute) | latency | {"service": service, "count": 5, "error_rate": 0.5, "cpu_mean_percent": 1}
    )
    return ("metrics.windows", f"{service}|{minute}", fields)


def test_a_service_is_shown_with_windows_only_or_with_a_sample_only() -> None:
    sample = {"service": "cart", "event_time_ms": 5, "host": "h", "latency_ms": 1, "error": False}
    seen = folded(measured("auth", 1, 3.5), measured("auth", 0, 2.5), ("metrics.latest", "cart", sample))
    auth, cart = results_view(seen)["metrics"]["services"]
    assert [each["p95_ms"] for each in auth["windows"]] == [2.5, 3.5]
    assert auth["sample"] is None
    assert cart["windows"] == []
    assert cart["sample"]["host"] == "h"
    assert cart["sample"]["memory_bytes"] is None


def change(
    minute: int, state: str | None = "firing", rule: str = "error_rate", service: str = "auth"
) -> tuple[str, str, dict[str, Any]]:
    """Return the record of an alert that begins to fire or is resolved."""
    said = {"service": service, "rule": rule, "value": 1, "threshold": 0.5}
    return ("metrics.alerts", "k", window(minute) | said | ({"state": state} if state else {}))


def test_the_alerts_of_the_last_hour_are_counted_by_event_time() -> None:
    view = results_view(
        folded(change(0), change(61), change(70, "resolved"), change(100), measured("auth", 119, 1.0))
    )["metrics"]["alerts"]
    assert view["kept"] == 4
    assert view["last_hour"] == 2
    assert [each["window_start_ms"] // MINUTE_MS for each in view["latest"]] == [100, 70, 61, 0]
    assert [each["state"] for each in view["latest"]] == ["firing", "resolved", "firing", "firing"]


def test_an_alert_fires_until_its_rule_is_resolved() -> None:
    def firing(*changes: tuple[str, str, dict[str, Any]]) -> list[str]:
        services: list[str] = results_view(folded(*changes))["metrics"]["alerts"]["firing"]
        return services

    assert firing(change(0)) == ["auth"]
    assert firing(change(5, "resolved"), change(0)) == []
    assert firing(change(5, "resolved"), change(0), change(5)) == []
    assert firing(change(0), change(5, "resolved", "cpu"), change(1, service="cart")) == ["auth", "cart"]
    # An earlier release wrote windows instead of changes, without a state.
    assert firing(change(0, None)) == []


def test_each_field_of_an_alert_is_read() -> None:
    shape = RESULT_TOPICS[METRICS_ALERTS]
    written = {"event_id", *(each.name for each in dataclasses.fields(Change))}
    assert written == {*shape.fields, *shape.optional}, (
        "result_topics.py has the fields of a Change of alerts.py"
    )


def test_rejected_records_of_all_jobs_are_shown_newest_first_with_their_reasons() -> None:
    def bad(topic: str, reason: str, at_ms: int | None) -> tuple[str, str, dict[str, Any]]:
        return (topic, "k", {"reason": reason, "line": "x" * 600} | ({"received_ms": at_ms} if at_ms else {}))

    rows = (bad("logs.rejected", "malformed line", 10), bad("metrics.rejected", "malformed JSON", 30))
    view = results_view(folded(*rows, bad("logs.rejected", "malformed line", None)))["logs"]["rejected"]
    assert view["reasons"][0] == {"reason": "malformed line", "count": 2}
    assert view["latest"][0]["rejected_by"] == "metrics.rejected"
    assert view["latest"][-1]["received_ms"] == 5, "the record's own time stands in for a missing one"
    assert len(view["latest"][0]["line"]) == 512
