"""The expected results of the jobs, in plain Python: each table and each latest value, from the list of valid events.

It is written from docs/reference/pipeline.md and docs/explanation/pipeline.md alone. Times are milliseconds. Events
are in any order, each once.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from kafkacompat.pipeline.options import DEFAULT_WATERMARK_S

Event = dict[str, Any]
MINUTE_MS = 60_000
RANKED = 100


@dataclass(frozen=True)
class Bounds:
    """The options of a run that affect the results."""

    window_ms: int = MINUTE_MS
    session_gap_ms: int = 30 * MINUTE_MS
    watermark_ms: int = DEFAULT_WATERMARK_S * 1000


def watermark_of(events: Iterable[Event], bounds: Bounds) -> int:
    """The watermark after all events are read."""
    return max(event["event_time_ms"] for event in events) - bounds.watermark_ms


def by_window(events: Iterable[Event], length_ms: int) -> dict[int, list[Event]]:
    """Events by the start of their window."""
    found: dict[int, list[Event]] = defaultdict(list)
    for event in events:
        found[event["event_time_ms"] // length_ms * length_ms].append(event)
    return found


def summaries(events: Iterable[Event]) -> dict[int, Event]:
    """logs.summary by window start."""
    found = {}
    for start, members in by_window(events, MINUTE_MS).items():
        classes = Counter(member["status"] // 100 for member in members)
        found[start] = {
            "window_start_ms": start,
            "window_end_ms": start + MINUTE_MS,
            "requests": len(members),
            "bytes": sum(member["bytes"] for member in members),
            **{f"status_{digit}xx": classes[digit] for digit in (2, 3, 4, 5)},
        }
    return found


def sessions(events: Iterable[Event], gap_ms: int) -> list[Event]:
    """All sessions, including open ones. A session ends where the user's next event is more than gap_ms after the last
    one."""
    by_user: dict[str, list[Event]] = defaultdict(list)
    for event in events:
        by_user[event["user_id"]].append(event)
    found = []
    for user, members in by_user.items():
        members.sort(key=lambda event: (event["event_time_ms"], event["event_id"]))
        groups: list[list[Event]] = []
        for event in members:
            if groups and event["event_time_ms"] <= groups[-1][-1]["event_time_ms"] + gap_ms:
                groups[-1].append(event)
            else:
                groups.append([event])
        for group in groups:
            pages = [event["page"] for event in group if "page" in event]
            found.append(
                {
                    "user_id": user,
                    "session_start_ms": group[0]["event_time_ms"],
                    "session_end_ms": group[-1]["event_time_ms"],
                    "page_views": len(pages),
                    "searches": len(group) - len(pages),
                    "first_page": pages[0] if pages else None,
                    "last_page": pages[-1] if pages else None,
                }
            )
    return found


def closed_sessions(events: list[Event], bounds: Bounds) -> list[Event]:
    """The sessions whose gap the watermark has passed."""
    watermark = watermark_of(events, bounds)
    return [
        session
        for session in sessions(events, bounds.session_gap_ms)
        if session["session_end_ms"] + bounds.session_gap_ms <= watermark
    ]


def visitors(events: Iterable[Event], length_ms: int) -> dict[int, Event]:
    """activity/visitors by window start."""
    return {
        start: {
            "window_start_ms": start,
            "window_end_ms": start + length_ms,
            "views": sum("page" in member for member in members),
            "searches": sum("query" in member for member in members),
            "visitors": len({member["user_id"] for member in members}),
        }
        for start, members in by_window(events, length_ms).items()
    }


def top_pages(events: Iterable[Event], length_ms: int) -> list[Event]:
    """activity/top_pages: most views first, then by name."""
    found = []
    for start, members in by_window(events, length_ms).items():
        pages: dict[str, list[str]] = defaultdict(list)
        for member in members:
            if "page" in member:
                pages[member["page"]].append(member["user_id"])
        order = sorted(pages, key=lambda page: (-len(pages[page]), page))
        for rank, page in enumerate(order[:RANKED], 1):
            found.append(
                {
                    "window_start_ms": start,
                    "window_end_ms": start + length_ms,
                    "rank": rank,
                    "page": page,
                    "views": len(pages[page]),
                    "visitors": len(set(pages[page])),
                }
            )
    return found


def three_digits(whole: int) -> int:
    """Rounded half up to three significant digits."""
    unit = 10 ** max(len(str(whole)) - 3, 0)
    return (whole + unit // 2) // unit * unit


def service_windows(events: Iterable[Event], length_ms: int) -> dict[tuple[str, int], Event]:
    """metrics/windows by service and window start."""
    found = {}
    for start, members in by_window(events, length_ms).items():
        for service in {member["service"] for member in members}:
            own = [member for member in members if member["service"] == service]
            whole = [math.floor(member["latency_ms"] * 1000 + 0.5) for member in own]
            order = sorted(map(three_digits, whole))
            count = len(own)
            found[service, start] = {
                "service": service,
                "window_start_ms": start,
                "window_end_ms": start + length_ms,
                "count": count,
                "latency_mean_ms": sum(whole) / count / 1000,
                **{f"latency_p{p}_ms": order[math.ceil(count * p / 100) - 1] / 1000 for p in (50, 95, 99)},
                "error_rate": sum(member["error"] for member in own) / count,
                "cpu_mean_percent": sum(math.floor(member["cpu_percent"] * 1000 + 0.5) for member in own)
                / count
                / 1000,
            }
    return found


def latest(events: Iterable[Event]) -> dict[str, Event]:
    """metrics.latest by service."""
    found: dict[str, Event] = {}
    for event in sorted(events, key=lambda event: (event["event_time_ms"], event["event_id"])):
        found[event["service"]] = event
    return found


def closed(rows: Iterable[Event], watermark_ms: int) -> list[Event]:
    """The windows whose end the watermark has reached."""
    return [row for row in rows if row["window_end_ms"] <= watermark_ms]
