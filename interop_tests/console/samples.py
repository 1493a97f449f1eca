"""Result records in the form of the pipeline's jobs, created by the test: the same records for the same seed.

Each is (topic, key, value, timestamp_ms). The expected contents of the page are also computed here, independently of
the console.
"""

from __future__ import annotations

import json
import math
import random
from dataclasses import dataclass

BASE_MS = 1_790_000_040_000
"""A whole minute in UTC."""
MINUTE_MS = 60_000
PAGES = (
    "/",
    "/products",
    "/products/42",
    "/search",
    "/cart",
    "/checkout",
    "/help",
    "/blog/streams",
    "/about",
)
SERVICES = ("auth", "cart", "catalogue", "payments", "search")
RESULT_TOPICS = (
    "logs.summary",
    "logs.rejected",
    "activity.sessions",
    "activity.top_pages",
    "activity.visitors",
    "metrics.windows",
    "metrics.latest",
    "metrics.alerts",
)


@dataclass(frozen=True)
class Result:
    """One record of a result topic."""

    topic: str
    key: str
    fields: dict[str, object]
    timestamp_ms: int

    @property
    def value(self) -> bytes:
        """The record's value."""
        return json.dumps(self.fields).encode()


def result(topic: str, key: str, timestamp_ms: int, /, **fields: object) -> Result:
    """A record whose event_id is derived from topic, key and fields, as in the jobs."""
    said = json.dumps([topic, key, fields], sort_keys=True)
    return Result(
        topic, key, {"event_id": f"{random.Random(said).getrandbits(64):016x}"} | fields, timestamp_ms
    )


def window(minute: int, length: int = 1) -> dict[str, object]:
    """The fields of a window that starts this many minutes after BASE_MS."""
    start_ms = BASE_MS + minute * MINUTE_MS
    return {"window_start_ms": start_ms, "window_end_ms": start_ms + length * MINUTE_MS}


def all_results(minutes: int = 60, seed: int = 7) -> list[Result]:
    """An hour of results of the three jobs."""
    chance = random.Random(seed)
    return [
        *logs(minutes, chance),
        *visitors_and_pages(minutes, chance),
        *sessions(minutes, chance),
        *metrics(minutes, chance),
        *rejected(minutes),
    ]


def logs(minutes: int, chance: random.Random) -> list[Result]:
    """An hour with rising traffic and a burst, and an outage of five minutes with many 5xx."""
    made = []
    for minute in range(minutes):
        requests = int(2400 + 900 * math.sin(minute / 18) + chance.uniform(-150, 150))
        requests += 1500 if minutes - 22 <= minute < minutes - 18 else 0
        bad = 0.22 if minutes - 12 <= minute < minutes - 7 else 0.006
        status_5xx = int(requests * bad)
        status_4xx, status_3xx = int(requests * 0.045), int(requests * 0.11)
        ok = requests - status_5xx - status_4xx - status_3xx
        made.append(
            result(
                "logs.summary",
                str(BASE_MS + minute * MINUTE_MS),
                BASE_MS + (minute + 1) * MINUTE_MS,
                **window(minute),
                requests=requests,
                bytes=requests * 18_400,
                status_2xx=ok,
                status_3xx=status_3xx,
                status_4xx=status_4xx,
                status_5xx=status_5xx,
            )
        )
    return made


def visitors_and_pages(minutes: int, chance: random.Random) -> list[Result]:
    """Windows of five minutes. The views of pages follow Zipf's law."""
    made = []
    for minute in range(0, minutes, 5):
        views = int(4200 + 1400 * math.sin(minute / 18) + chance.uniform(-200, 200))
        at_ms = BASE_MS + (minute + 5) * MINUTE_MS
        counts = {"views": views, "searches": views // 9, "visitors": views // 4}
        key = str(BASE_MS + minute * MINUTE_MS)
        made.append(result("activity.visitors", key, at_ms, **window(minute, 5), **counts))
        for rank, page in enumerate(PAGES, 1):
            seen = int(views / rank / 2.83 + chance.uniform(0, 25))
            seen_by = {"page": page, "views": seen, "visitors": seen * 2 // 3}
            made.append(result("activity.top_pages", f"{page}|{key}", at_ms, **window(minute, 5), **seen_by))
    return made


def sessions(minutes: int, chance: random.Random, users: int = 300) -> list[Result]:
    """The latest session of each user. Most sessions are short."""
    made = []
    for user in range(users):
        end_ms = BASE_MS + int(chance.uniform(0, minutes) * MINUTE_MS)
        length_ms = int(min(3_000_000, chance.expovariate(1 / 420_000)))
        views = 1 + length_ms // 40_000
        made.append(
            result(
                "activity.sessions",
                f"user-{user:04d}",
                end_ms,
                user_id=f"user-{user:04d}",
                session_start_ms=end_ms - length_ms,
                session_end_ms=end_ms,
                page_views=views,
                searches=views // 5,
                first_page=PAGES[user % 3],
                last_page=PAGES[user % len(PAGES)],
            )
        )
    return made


def metrics(minutes: int, chance: random.Random) -> list[Result]:
    """Five services. For five minutes payments is slow and fails, and its alerts fire and are resolved."""
    made = []
    for number, service in enumerate(SERVICES):
        for minute in range(minutes):
            outage = service == "payments" and minutes - 12 <= minute < minutes - 7
            middle = (28 + 17 * number) * (1 + 0.15 * math.sin(minute / 7 + number)) * (6 if outage else 1)
            middle += chance.uniform(0, 4)
            error_rate = 0.18 if outage else 0.004 * (1 + chance.random())
            key = f"{service}|{BASE_MS + minute * MINUTE_MS}"
            at_ms = BASE_MS + (minute + 1) * MINUTE_MS
            made.append(
                result(
                    "metrics.windows",
                    key,
                    at_ms,
                    service=service,
                    **window(minute),
                    count=600,
                    latency_mean_ms=middle * 1.2,
                    latency_p50_ms=middle,
                    latency_p95_ms=middle * 2.6,
                    latency_p99_ms=middle * 4.1,
                    error_rate=error_rate,
                    cpu_mean_percent=35.0 + 8 * number + chance.uniform(-3, 3),
                )
            )
            state = {minutes - 12: "firing", minutes - 7: "resolved"}.get(minute)
            if service == "payments" and state is not None:
                for rule, value, threshold, severity in (
                    ("latency_p95", middle * 2.6, 500.0, "warning"),
                    ("error_rate", error_rate, 0.05, "critical"),
                ):
                    made.append(
                        result(
                            "metrics.alerts",
                            f"{service}|{rule}",
                            at_ms,
                            service=service,
                            rule=rule,
                            state=state,
                            since_ms=BASE_MS + (minutes - 12) * MINUTE_MS,
                            **window(minute),
                            value=value,
                            threshold=threshold,
                            severity=severity,
                        )
                    )
        last_ms = BASE_MS + minutes * MINUTE_MS - 500
        made.append(
            result(
                "metrics.latest",
                service,
                last_ms,
                service=service,
                host=f"host-{number + 1}",
                event_time_ms=last_ms,
                latency_ms=31.5 + number,
                error=False,
                cpu_percent=41.0 + number,
                memory_bytes=(600 + 150 * number) * 1_048_576,
            )
        )
    return made


def rejected(minutes: int) -> list[Result]:
    """Invalid lines. One of them contains markup, which the page must not interpret."""
    lines = (
        ("malformed line", "<script>document.title='owned'</script> GET"),
        ("malformed line", "10.0.0.7 - - [bad"),
        ("ancient timestamp", '10.0.0.9 - - [01/Jan/1999:00:00:00 +0000] "GET / HTTP/1.1" 200 12'),
    )
    return [
        result(
            "logs.rejected",
            "web-1/access.log",
            BASE_MS + minutes * MINUTE_MS,
            reason=reason,
            line=line,
            source="web-1/access.log",
            topic="logs.raw",
            partition=0,
            offset=number,
            received_ms=BASE_MS + (minutes - 3 + number) * MINUTE_MS,
        )
        for number, (reason, line) in enumerate(lines)
    ]
