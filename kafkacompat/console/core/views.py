"""View models of the results of the three jobs: bounded JSON objects that the page draws.

Times are event times in ms UTC. Rates are per second of the window. This module knows the folded rows, but neither
reading nor HTTP.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from kafkacompat.console.core.result_topics import REJECTED
from kafkacompat.console.core.results import Fields, Results
from kafkacompat.pipeline import topics

MAX_CHART_WINDOWS = 120
MAX_SERVICE_POINTS = 60
MAX_SERVICES_SHOWN = 24
TOP_PAGES = 10
RECENT_SESSIONS = 7
RECENT_ALERTS = 12
FIRING, RESOLVED = "firing", "resolved"
RECENT_REJECTED = 8
HOUR_MS = 3_600_000
SESSION_BUCKETS_MS = (
    (60_000, "under 1 min"),
    (300_000, "1–5 min"),
    (900_000, "5–15 min"),
    (1_800_000, "15–30 min"),
)
LONGEST_BUCKET = "over 30 min"

View = dict[str, Any]


def results_view(results: Results) -> View:
    """Return everything that the dashboard shows about the pipeline."""
    return {
        "revision": results.revision,
        "logs": logs_view(results),
        "activity": activity_view(results),
        "metrics": metrics_view(results),
        "reading": reading_view(results),
    }


def newest_windows(rows: Iterable[Fields], count: int) -> list[Fields]:
    """Return the rows of the newest windows, oldest first."""
    return sorted(rows, key=lambda row: row["window_start_ms"])[-count:]


def window_seconds(row: Fields) -> float:
    """Return the length of a row's window: at least 1 ms, so that a rate can be computed."""
    return float(max(1, row["window_end_ms"] - row["window_start_ms"])) / 1000


def logs_view(results: Results) -> View:
    """Return requests, bytes and status classes per window, and the latest rejected lines."""
    rows = newest_windows(results.rows(topics.LOGS_SUMMARY), MAX_CHART_WINDOWS)
    windows = [
        {
            "start_ms": row["window_start_ms"],
            "end_ms": row["window_end_ms"],
            "requests": row["requests"],
            "requests_per_s": row["requests"] / window_seconds(row),
            "bytes_per_s": row["bytes"] / window_seconds(row),
            "status": [row[f"status_{digit}xx"] / window_seconds(row) for digit in (2, 3, 4, 5)],
            "server_error_share": row["status_5xx"] / row["requests"] if row["requests"] > 0 else 0.0,
        }
        for row in rows
    ]
    return {
        "windows": windows,
        "requests": sum(row["requests"] for row in rows),
        "bytes": sum(row["bytes"] for row in rows),
        "rejected": rejected_view(results),
    }


def rejected_view(results: Results) -> View:
    """Return the reasons for rejected records of all three jobs, and the latest rejected records."""
    rows = [row | {"rejected_by": topic} for topic in REJECTED for row in results.rows(topic)]
    rows.sort(key=lambda row: row["received_ms"], reverse=True)
    reasons = Counter(row["reason"] for row in rows).most_common(RECENT_REJECTED)
    return {
        "kept": len(rows),
        "reasons": [{"reason": reason, "count": count} for reason, count in reasons],
        "latest": [
            {name: row.get(name) for name in ("rejected_by", "reason", "line", "source", "received_ms")}
            for row in rows[:RECENT_REJECTED]
        ],
    }


def activity_view(results: Results) -> View:
    """Return the top pages of the latest full window, the visitors per window, and the sessions."""
    windows = newest_windows(results.rows(topics.ACTIVITY_VISITORS), MAX_CHART_WINDOWS)
    return {
        "top_pages": top_pages_view(results.rows(topics.ACTIVITY_TOP_PAGES)),
        "windows": [
            {
                "start_ms": row["window_start_ms"],
                "end_ms": row["window_end_ms"],
                "views": row["views"],
                "searches": row["searches"],
                "visitors": row["visitors"],
            }
            for row in windows
        ],
        "sessions": sessions_view(results.rows(topics.ACTIVITY_SESSIONS)),
    }


def top_pages_view(rows: list[Fields]) -> View:
    """Return the most viewed pages of the window before the newest one, which still fills. If there is only one
    window, use it.

    Each page has its rank in the window before that (None if it was not in it).
    """
    starts = sorted({row["window_start_ms"] for row in rows}, reverse=True)
    if not starts:
        return {"start_ms": None, "end_ms": None, "pages": []}
    shown, *earlier = starts[1:] or starts
    newest = _ranked(row for row in rows if row["window_start_ms"] == shown)
    before = _ranked(row for row in rows if row["window_start_ms"] in earlier[:1])
    ranks = {row["page"]: rank for rank, row in enumerate(before, 1)}
    return {
        "start_ms": shown,
        "end_ms": newest[0]["window_end_ms"],
        "pages": [
            {
                "page": row["page"],
                "views": row["views"],
                "visitors": row["visitors"],
                "rank_before": ranks.get(row["page"]),
            }
            for row in newest[:TOP_PAGES]
        ],
    }


def _ranked(rows: Iterable[Fields]) -> list[Fields]:
    return sorted(rows, key=lambda row: (-row["views"], row["page"]))


def sessions_view(rows: list[Fields]) -> View:
    """Summarize each user's latest session: number, duration in ms, depth, and the most recent sessions."""
    durations = [max(0, row["session_end_ms"] - row["session_start_ms"]) for row in rows]
    recent = sorted(rows, key=lambda row: (row["session_end_ms"], row["user_id"]), reverse=True)
    shown = ("user_id", "session_start_ms", "session_end_ms", "page_views", "searches", "last_page")
    counts = [0] * (len(SESSION_BUCKETS_MS) + 1)
    for duration in durations:
        counts[sum(duration >= bound for bound, _ in SESSION_BUCKETS_MS)] += 1
    labels = [label for _, label in SESSION_BUCKETS_MS] + [LONGEST_BUCKET]
    return {
        "users": len(rows),
        "mean_duration_ms": sum(durations) / len(durations) if durations else None,
        "mean_page_views": sum(row["page_views"] for row in rows) / len(rows) if rows else None,
        "durations": [
            {"label": label, "sessions": count} for label, count in zip(labels, counts, strict=True)
        ],
        "recent": [{name: row[name] for name in shown} for row in recent[:RECENT_SESSIONS]],
    }


def metrics_view(results: Results) -> View:
    """Return each service's newest window, last windows and last sample, and the latest alerts."""
    windows: dict[str, list[Fields]] = {}
    for row in results.rows(topics.METRICS_WINDOWS):
        windows.setdefault(row["service"], []).append(row)
    latest = {row["service"]: row for row in results.rows(topics.METRICS_LATEST)}
    alerts = sorted(
        results.rows(topics.METRICS_ALERTS),
        key=lambda row: (row["window_start_ms"], row["service"], row["rule"], row["state"] == RESOLVED),
        reverse=True,
    )
    services = sorted(windows.keys() | latest.keys())[:MAX_SERVICES_SHOWN]
    return {
        "services": [
            _service_view(service, windows.get(service, []), latest.get(service)) for service in services
        ],
        "services_hidden": len(windows.keys() | latest.keys()) - len(services),
        "alerts": alerts_view(alerts, newest_end_ms(results.rows(topics.METRICS_WINDOWS) + alerts)),
    }


def newest_end_ms(rows: Iterable[Fields]) -> int:
    """Return the end of the newest window, or 0 without one."""
    return max((row["window_end_ms"] for row in rows), default=0)


def alerts_view(alerts: list[Fields], now_ms: int) -> View:
    """Return the latest changes of alerts, newest first.

    Also return how many alerts began to fire in the hour of event time before now_ms, and the services that have a
    firing alert.
    """
    began = [row for row in alerts if row["state"] != RESOLVED]
    last = {tuple(row[name] for name in topics.ALERT_KEY): row for row in reversed(alerts)}
    return {
        "kept": len(alerts),
        "last_hour": sum(row["window_end_ms"] > now_ms - HOUR_MS for row in began),
        "firing": sorted({row["service"] for row in last.values() if row["state"] == FIRING}),
        "latest": alerts[:RECENT_ALERTS],
    }


def _service_view(service: str, rows: list[Fields], sample: Fields | None) -> View:
    points = [
        {
            "start_ms": row["window_start_ms"],
            "end_ms": row["window_end_ms"],
            "samples": row["count"],
            "mean_ms": row["latency_mean_ms"],
            "p50_ms": row["latency_p50_ms"],
            "p95_ms": row["latency_p95_ms"],
            "p99_ms": row["latency_p99_ms"],
            "error_rate": row["error_rate"],
            "cpu_percent": row["cpu_mean_percent"],
        }
        for row in newest_windows(rows, MAX_SERVICE_POINTS)
    ]
    shown = ("host", "event_time_ms", "latency_ms", "error", "cpu_percent", "memory_bytes", "cpu_cores")
    return {
        "service": service,
        "windows": points,
        "sample": None if sample is None else {name: sample[name] for name in shown},
    }


def reading_view(results: Results) -> View:
    """Return for each result topic the number of records read without repeats, and the number of malformed rows."""
    folds = results.topics.values()
    return {
        "records": sum(fold.records for fold in folds),
        "repeats": sum(fold.repeats for fold in folds),
        "malformed": sum(fold.malformed for fold in folds),
        "last_malformed": next((fold.last_malformed for fold in folds if fold.last_malformed), None),
        "topics": {fold.shape.name: {"records": fold.records, "rows": len(fold.rows)} for fold in folds},
    }
