"""All traffic of the site in the order of arrival. Pure: the same seed, start and density give the same events.

Visits, bots and samples are Poisson streams whose rate follows the time of day. Visits also come in bursts. Each event
takes some time to arrive. Some events are late, some are duplicated, some are malformed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from heapq import heappop, heappush
from typing import Any, Final

from kafkacompat.pipeline.generator.access_lines import (
    ASSETS,
    BAD_LINES,
    BOT_AGENT,
    combined,
    response_bytes,
    spoiled,
)
from kafkacompat.pipeline.generator.chance import Chances, between, daily_rhythm, exponential
from kafkacompat.pipeline.generator.events import ACCESS_LINES, Event, encoded
from kafkacompat.pipeline.generator.periods import Periods
from kafkacompat.pipeline.generator.profile import DAY_MS, DEFAULT, HOUR_MS, Profile
from kafkacompat.pipeline.generator.services import Services
from kafkacompat.pipeline.generator.visitors import AGENTS, Visit, Visitors
from kafkacompat.pipeline.topics import ACTIVITY_PAGE_VIEWS, ACTIVITY_SEARCHES, METRICS_RAW

OVERSIZED_BYTES: Final = 70_000
"""Longer than the jobs accept in JSON (64 KiB)."""

BAD_RECORDS: Final = ("malformed", "missing", "type", "future", "ancient", "oversized")
"""The kinds of bad records."""

FUTURE_MS: Final = HOUR_MS
ANCIENT_MS: Final = 30 * DAY_MS


class Traffic:
    """An endless stream of events. `counts` has the numbers made so far."""

    def __init__(
        self, seed: int, chances: Chances, start_ms: int, events_per_s: float, profile: Profile = DEFAULT
    ) -> None:
        """`chances` come from the seed, which is also part of event ids. events_per_s is per event time, averaged over a day."""
        self.counts: Counter[str] = Counter()
        """Keys: `<stream>`, `<stream> bad <kind>`, `late`, `very late`, `duplicates`."""
        self._profile = profile
        self._start_ms = start_ms
        self._prefix = f"{seed:x}-{start_ms:x}"
        self._visitors = Visitors(chances("visitors"), profile)
        self._services = Services(chances, profile, start_ms)
        self._arrivals = chances("arrivals")
        self._lines = chances("lines")
        self._records = chances("records")
        burst_chance = chances("bursts")
        self._bursts = Periods(
            burst_chance,
            start_ms + exponential(burst_chance, profile.first_burst_ms),
            profile.burst_every_ms,
            profile.burst_length_ms,
            profile.burst_factor,
        )
        twice = 1.0 + profile.duplicate_share
        lines_a_visit = profile.actions * (1.0 + profile.assets * (1.0 - profile.search_share))
        events_a_visit = profile.actions * twice + lines_a_visit * (1.0 + profile.bot_share)
        burst_ms = sum(profile.burst_length_ms) / 2.0
        busy = 1.0 + burst_ms / (burst_ms + profile.burst_every_ms) * (sum(profile.burst_factor) / 2.0 - 1.0)
        site_per_s = events_per_s * (1.0 - profile.metrics_share)
        self._visit_every_ms = 1000.0 * events_a_visit * busy / site_per_s
        self._bot_every_ms = self._visit_every_ms / busy / (lines_a_visit * profile.bot_share)
        self._sample_every_ms = 1000.0 * twice / (events_per_s * profile.metrics_share)
        self._pending: list[tuple[float, int, Event]] = []
        self._made = 0
        self._number = 0

    def __iter__(self) -> Iterator[Event]:
        """Yield events in order of arrival_ms."""
        pending = self._pending
        visit_ms = self._next_visit(self._start_ms)
        bot_ms = self._next(self._start_ms, self._bot_every_ms)
        sample_ms = self._next(self._start_ms, self._sample_every_ms)
        while True:
            now_ms = min(visit_ms, bot_ms, sample_ms)
            while pending and pending[0][0] <= now_ms:
                yield heappop(pending)[2]
            if now_ms == sample_ms:
                self._sample(int(sample_ms))
                sample_ms = self._next(sample_ms, self._sample_every_ms)
            elif now_ms == visit_ms:
                self._visit(self._visitors.visit(visit_ms, self._bursts.at(visit_ms)))
                visit_ms = self._next_visit(visit_ms)
            else:
                request = f"GET {self._visitors.any_page()} HTTP/1.1"
                self._line(int(bot_ms), "192.0.2.66", "", request, "", BOT_AGENT)
                bot_ms = self._next(bot_ms, self._bot_every_ms)

    def _next(self, now_ms: float, every_ms: float) -> float:
        return now_ms + exponential(self._arrivals, every_ms / daily_rhythm(int(now_ms)))

    def _next_visit(self, now_ms: float) -> float:
        burst = self._bursts.at(now_ms)
        return self._next(now_ms, self._visit_every_ms / (burst.factor if burst is not None else 1.0))

    def _sample(self, time_ms: int) -> None:
        fields = self._services.sample(time_ms)
        self._record(METRICS_RAW, "m", fields["service"], time_ms, fields)

    def _visit(self, visit: Visit) -> None:
        agent = AGENTS[visit.device]
        # The access log names users who have logged in.
        name = visit.user_id if visit.user % 4 == 0 else ""
        for action in visit.actions:
            fields: dict[str, Any] = {"user_id": visit.user_id, "event_time_ms": action.time_ms}
            if action.query is None:
                fields |= {"page": action.page, "referrer": action.referrer, "device": visit.device}
                self._record(ACTIVITY_PAGE_VIEWS, "v", visit.user_id, action.time_ms, fields)
            else:
                fields |= {"query": action.query, "results": action.results}
                self._record(ACTIVITY_SEARCHES, "s", visit.user_id, action.time_ms, fields)
            request = f"GET {action.page} HTTP/1.1"
            self._line(action.time_ms, visit.address, name, request, action.referrer, agent)
            if action.query is None:
                self._assets(action.time_ms, visit.address, name, f"https://shop.example{action.page}", agent)

    def _assets(self, time_ms: int, address: str, name: str, page: str, agent: str) -> None:
        chance, assets = self._lines, self._profile.assets
        for _ in range(int(assets) + (chance.random() < assets % 1.0)):
            path = ASSETS[chance.randrange(len(ASSETS))]
            if "%d" in path:
                path %= chance.randrange(200)
            self._line(
                time_ms + chance.randrange(20, 400), address, name, f"GET {path} HTTP/1.1", page, agent
            )

    def _line(self, time_ms: int, address: str, name: str, request: str, referrer: str, agent: str) -> None:
        chance = self._lines
        incident = self._services.incident("frontend", time_ms)
        luck = chance.random()
        if incident is not None and luck < incident.rate:
            status = 503 if luck < incident.rate / 2 else 500
        elif luck > 0.995:
            status = 500 if luck > 0.999 else 404
        elif luck > 0.97:
            status = 404 if luck > 0.985 else 301
        elif "/static/" in request and luck > 0.65:
            status = 304
        else:
            status = 200
        line = combined(
            address, name, time_ms, request, status, response_bytes(chance, status), referrer, agent
        )
        if chance.random() < self._profile.bad_line_share:
            kind = BAD_LINES[chance.randrange(len(BAD_LINES))]
            line = spoiled(chance, line, kind)
            self.counts[f"{ACCESS_LINES} bad {kind}"] += 1
        took_ms = exponential(chance, 40.0 * (incident.factor if incident is not None else 1.0))
        self._arrive(
            time_ms + took_ms, ACCESS_LINES, f"web-{chance.randrange(self._profile.web_hosts) + 1}", line
        )

    def _record(self, topic: str, letter: str, key: str, time_ms: int, fields: dict[str, Any]) -> None:
        chance, profile = self._records, self._profile
        self._made += 1
        value = {"event_id": f"{self._prefix}-{letter}{self._made}", **fields}
        arrival_ms = time_ms + exponential(chance, profile.network_ms)
        luck = chance.random()
        if luck < profile.very_late_share:
            arrival_ms += between(chance, profile.very_late_ms)
            self.counts["very late"] += 1
        elif luck < profile.very_late_share + profile.late_share:
            arrival_ms += exponential(chance, profile.late_ms)
            self.counts["late"] += 1
        if chance.random() < profile.bad_record_share:
            data = self._bad_record(topic, value, int(arrival_ms))
        else:
            data = encoded(value)
        self._arrive(arrival_ms, topic, key, data)
        if chance.random() < profile.duplicate_share:
            self.counts["duplicates"] += 1
            self._arrive(arrival_ms + exponential(chance, profile.duplicate_ms), topic, key, data)

    def _bad_record(self, topic: str, value: dict[str, Any], arrival_ms: int) -> bytes:
        kind = BAD_RECORDS[self._records.randrange(len(BAD_RECORDS))]
        self.counts[f"{topic} bad {kind}"] += 1
        match kind:
            case "malformed":
                return encoded(value)[:-7]
            case "missing":
                del value["event_time_ms"]
            case "type":
                value["event_time_ms"] = "noon"
            case "oversized":
                value["note"] = "a" * OVERSIZED_BYTES
            case "future":
                value["event_time_ms"] = arrival_ms + FUTURE_MS
            case _:
                value["event_time_ms"] = arrival_ms - ANCIENT_MS
        return encoded(value)

    def _arrive(self, arrival_ms: float, stream: str, key: str, value: bytes) -> None:
        self.counts[stream] += 1
        # The number keeps events with the same time in the order of their creation.
        self._number += 1
        heappush(self._pending, (arrival_ms, self._number, Event(int(arrival_ms), stream, key, value)))
