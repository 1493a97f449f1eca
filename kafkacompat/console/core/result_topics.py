"""The result topics that the console reads, the identity of a row in each, and the fields that a row must have.

This module knows the pipeline's schemas, but neither readers nor views. Fields that are not named here are not kept in
memory.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kafkacompat.pipeline.topics import (
    ACTIVITY_SESSIONS,
    ACTIVITY_TOP_PAGES,
    ACTIVITY_VISITORS,
    CONFIGS,
    LOGS_SUMMARY,
    METRICS_ALERTS,
    METRICS_LATEST,
    METRICS_WINDOWS,
    PIPELINE_PROGRESS,
    REJECTED_SUFFIX,
)

NUMBER = (int, float)
WHOLE = (int,)
TEXT = (str,)
FLAG = (bool,)
Types = tuple[type, ...]


@dataclass(frozen=True, slots=True)
class ResultTopic:
    """How the records of one topic become rows.

    order: the field by which the oldest rows are dropped. max_rows: how many rows are kept. by_event: event_id
    identifies a row instead of the record's key. tail_records: read only that many records from the end of each
    partition (None: all). whole: fields whose text is not cut.
    """

    name: str
    order: str
    max_rows: int
    fields: dict[str, Types] = field(default_factory=dict)
    optional: dict[str, Types] = field(default_factory=dict)
    by_event: bool = False
    tail_records: int | None = None
    whole: frozenset[str] = frozenset()


_WINDOW: dict[str, Types] = {"window_start_ms": WHOLE, "window_end_ms": WHOLE}
_REJECTED_FIELDS: dict[str, Types] = {"event_id": TEXT, "reason": TEXT}
_REJECTED_OPTIONAL: dict[str, Types] = {"line": TEXT, "source": TEXT, "topic": TEXT, "received_ms": WHOLE}

REJECTED = tuple(name for name in CONFIGS if name.endswith(REJECTED_SUFFIX))
"""The topics of the rejected records of kafkacompat's jobs."""

MAX_WINDOWS = 1_500
MAX_PAGE_ROWS = 20_000
MAX_USERS = 20_000
MAX_SERVICE_WINDOWS = 30_000
MAX_SERVICES = 1_000
MAX_ALERTS = 2_000
MAX_REJECTED = 500
MAX_QUERIES = 100
TAIL_ALERTS = 2_000
TAIL_REJECTED = 200


def _rejected(name: str) -> ResultTopic:
    return ResultTopic(
        name,
        "received_ms",
        MAX_REJECTED,
        _REJECTED_FIELDS,
        _REJECTED_OPTIONAL,
        by_event=True,
        tail_records=TAIL_REJECTED,
    )


RESULT_TOPICS: dict[str, ResultTopic] = {
    topic.name: topic
    for topic in (
        ResultTopic(
            LOGS_SUMMARY,
            "window_start_ms",
            MAX_WINDOWS,
            _WINDOW
            | dict.fromkeys(
                ("requests", "bytes", "status_2xx", "status_3xx", "status_4xx", "status_5xx"), WHOLE
            ),
        ),
        ResultTopic(
            ACTIVITY_SESSIONS,
            "session_end_ms",
            MAX_USERS,
            {
                "user_id": TEXT,
                "session_start_ms": WHOLE,
                "session_end_ms": WHOLE,
                "page_views": WHOLE,
                "searches": WHOLE,
            },
            {"first_page": TEXT, "last_page": TEXT},
        ),
        ResultTopic(
            ACTIVITY_TOP_PAGES,
            "window_start_ms",
            MAX_PAGE_ROWS,
            _WINDOW | {"page": TEXT, "views": WHOLE, "visitors": WHOLE},
        ),
        ResultTopic(
            ACTIVITY_VISITORS,
            "window_start_ms",
            MAX_WINDOWS,
            _WINDOW | {"views": WHOLE, "searches": WHOLE, "visitors": WHOLE},
        ),
        ResultTopic(
            METRICS_WINDOWS,
            "window_start_ms",
            MAX_SERVICE_WINDOWS,
            _WINDOW
            | {
                "service": TEXT,
                "count": WHOLE,
                "latency_mean_ms": NUMBER,
                "latency_p50_ms": NUMBER,
                "latency_p95_ms": NUMBER,
                "latency_p99_ms": NUMBER,
                "error_rate": NUMBER,
            },
            {"cpu_mean_percent": NUMBER},
        ),
        ResultTopic(
            METRICS_LATEST,
            "event_time_ms",
            MAX_SERVICES,
            {"service": TEXT, "event_time_ms": WHOLE},
            {
                "host": TEXT,
                "latency_ms": NUMBER,
                "error": FLAG,
                "cpu_percent": NUMBER,
                "memory_bytes": NUMBER,
                "cpu_cores": NUMBER,
            },
        ),
        ResultTopic(
            METRICS_ALERTS,
            "window_start_ms",
            MAX_ALERTS,
            _WINDOW | {"event_id": TEXT, "service": TEXT, "rule": TEXT, "value": NUMBER, "threshold": NUMBER},
            {"severity": TEXT, "state": TEXT, "since_ms": WHOLE},
            by_event=True,
            tail_records=TAIL_ALERTS,
        ),
        *(_rejected(name) for name in REJECTED),
        ResultTopic(
            PIPELINE_PROGRESS,
            "at_ms",
            MAX_QUERIES,
            dict.fromkeys(("query", "job", "state", "reads"), TEXT)
            | dict.fromkeys(
                ("at_ms", "trigger_ms", "records", "late", "copies", "recent_late", "recent_kept"), WHOLE
            ),
            {"reason": TEXT}
            | dict.fromkeys(
                (
                    "read_to",
                    "watermark_ms",
                    "newest_event_ms",
                    "batch",
                    "batch_records",
                    "batch_start_ms",
                    "batch_ms",
                ),
                WHOLE,
            ),
            whole=frozenset(("reads",)),  # names of topics
        ),
    )
}
