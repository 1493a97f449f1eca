"""Every kind of invalid record, with the reason that the job must give."""

from __future__ import annotations

import json

from interop_tests.pipeline.known_input import HOUR_MS, Entry


def hostile_input(received_ms: int) -> list[tuple[Entry, str]]:
    """Entries that arrive at this time, each with the expected reason."""
    view = {"event_id": "bad", "user_id": "u", "event_time_ms": received_ms, "page": "/"}
    sample = {
        "event_id": "bad",
        "service": "s",
        "host": "h",
        "event_time_ms": received_ms,
        "latency_ms": 1.0,
        "error": False,
        "cpu_percent": 1.0,
        "memory_bytes": 1,
    }
    line = '192.0.2.1 - - [%s] "GET / HTTP/1.1" 200 1 "-" "-"'
    values: list[tuple[str, bytes, str]] = [
        (
            "logs.raw",
            b"no line at all \xff",
            "malformed line: field 4 (time): expected ` [` and then a time such as 21/Sep/2026:14:13:20 +0000",
        ),
        ("logs.raw", (line % "01/Jan/2099:00:00:00 +0000").encode(), "future timestamp"),
        ("logs.raw", (line % "01/Jan/1999:00:00:00 +0000").encode(), "ancient timestamp"),
        ("logs.raw", b'192.0.2.1 - - [01/Jan/1999:00:00:00 +0000] "' + rb"\"" * 270_000, "oversized record"),
        ("activity.page_views", b'{"event_id": ', "malformed JSON"),
        ("activity.page_views", json.dumps(view).encode() + b" and more", "malformed JSON"),
        ("activity.page_views", b"\n".join([json.dumps(view).encode()] * 2), "malformed JSON"),
        ("activity.page_views", json.dumps(view | {"page": "/" * 70_000}).encode(), "oversized record"),
        ("activity.page_views", json.dumps(view | {"user_id": 7}).encode(), "wrong type: user_id"),
        ("activity.page_views", json.dumps(view | {"user_id": ""}).encode(), "empty field: user_id"),
        ("metrics.raw", json.dumps(sample | {"event_id": ""}).encode(), "empty field: event_id"),
        ("activity.searches", json.dumps(view).encode(), "missing field: query"),
        ("metrics.raw", json.dumps(sample | {"latency_ms": "fast"}).encode(), "wrong type: latency_ms"),
        ("metrics.raw", json.dumps(sample | {"latency_ms": 1e300}).encode(), "out of range: latency_ms"),
        ("metrics.raw", json.dumps(sample | {"event_time_ms": 2**63 - 1}).encode(), "future timestamp"),
        ("metrics.raw", json.dumps(sample | {"event_time_ms": -(2**63)}).encode(), "ancient timestamp"),
        (
            "metrics.raw",
            json.dumps(sample | {"event_time_ms": received_ms - 8 * 24 * HOUR_MS}).encode(),
            "ancient timestamp",
        ),
    ]
    return [
        (Entry(topic, f"hostile-{n}", value, received_ms), why)
        for n, (topic, value, why) in enumerate(values)
    ]
