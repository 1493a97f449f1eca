"""The generator: the same seed gives the same events, and their statistics are those of docs/reference/generator.md."""

from __future__ import annotations

import json
import math
import random
import re
from collections import Counter, defaultdict
from itertools import islice, pairwise, takewhile
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkacompat.pipeline.generate_command import chances
from kafkacompat.pipeline.generator.access_lines import BAD_LINES
from kafkacompat.pipeline.generator.chance import Zipf, daily_rhythm
from kafkacompat.pipeline.generator.events import ACCESS_LINES, Event
from kafkacompat.pipeline.generator.pace import Pace
from kafkacompat.pipeline.generator.periods import Periods
from kafkacompat.pipeline.generator.profile import DAY_MS, DEFAULT, HOUR_MS, MINUTE_MS
from kafkacompat.pipeline.generator.sending import Sender
from kafkacompat.pipeline.generator.services import Services
from kafkacompat.pipeline.generator.traffic import ANCIENT_MS, FUTURE_MS, OVERSIZED_BYTES, Traffic
from kafkacompat.pipeline.generator.visitors import page_name
from kafkacompat.pipeline.topics import (
    ACTIVITY_PAGE_VIEWS,
    ACTIVITY_SEARCHES,
    LINE_BYTES_MAX,
    LOGS_RAW,
    METRICS_RAW,
)
from kafkacompat.security.cluster_address import ClusterAddress

START_MS = 20_000 * DAY_MS
SEED = 7
EVENTS_PER_S = 2.0
RECORDS = (ACTIVITY_PAGE_VIEWS, ACTIVITY_SEARCHES, METRICS_RAW)
COMBINED = re.compile(
    rb'\d+(\.\d+){3} - \S+ \[\d\d/[A-Z][a-z]{2}/\d{4}:\d\d:\d\d:\d\d \+0000\] "[A-Z]+ \S+ HTTP/1\.1" \d{3} (\d+|-) "[^"]+" "[^"]+"'
)


def traffic(seed: int = SEED) -> Traffic:
    return Traffic(seed, chances(seed), START_MS, EVENTS_PER_S)


class Day:
    """All events of one day, and the valid records with each event id once."""

    def __init__(self) -> None:
        made = traffic()
        self.events = list(takewhile(lambda event: event.arrival_ms < START_MS + DAY_MS, made))
        self.counts = made.counts
        self.ids: Counter[str] = Counter()
        self.valid: dict[str, dict[str, tuple[int, dict]]] = defaultdict(dict)
        self.bad = 0
        for event in self.events:
            if event.stream == ACCESS_LINES:
                continue
            fields = self._good(event)
            if fields is None:
                self.bad += 1
            else:
                self.ids[fields["event_id"]] += 1
                self.valid[event.stream].setdefault(fields["event_id"], (event.arrival_ms, fields))
        self.lines = [event for event in self.events if event.stream == ACCESS_LINES]

    def _good(self, event: Event) -> dict | None:
        if len(event.value) > OVERSIZED_BYTES:
            return None
        try:
            fields = json.loads(event.value)
        except ValueError:
            return None
        time_ms = fields.get("event_time_ms")
        if not isinstance(time_ms, int) or abs(time_ms - event.arrival_ms) >= min(FUTURE_MS, ANCIENT_MS) * 3:
            return None
        return None if time_ms > event.arrival_ms else fields


@pytest.fixture(scope="module")
def day() -> Day:
    return Day()


def test_the_same_seed_makes_the_same_events_and_another_seed_others() -> None:
    first = list(islice(traffic(), 3000))
    assert first == list(islice(traffic(), 3000))
    assert {event.value for event in first}.isdisjoint(
        event.value for event in islice(traffic(SEED + 1), 3000) if event.stream != ACCESS_LINES
    )


def test_events_come_in_the_order_they_arrive(day: Day) -> None:
    assert all(one.arrival_ms <= other.arrival_ms for one, other in pairwise(day.events))


def test_the_rate_is_the_wanted_one_over_a_day(day: Day) -> None:
    # One burst more or less changes a few per cent.
    assert len(day.events) / 86_400 == pytest.approx(EVENTS_PER_S, rel=0.08)
    metrics = sum(event.stream == METRICS_RAW for event in day.events)
    assert metrics / len(day.events) == pytest.approx(DEFAULT.metrics_share, rel=0.08)


def test_the_day_has_its_rhythm(day: Day) -> None:
    hours = Counter(
        event.arrival_ms % DAY_MS // HOUR_MS for event in day.events if event.stream == METRICS_RAW
    )
    mean = sum(hours.values()) / 24
    for hour in range(24):
        expected = sum(daily_rhythm(hour * HOUR_MS + minute * MINUTE_MS) for minute in range(60)) / 60
        assert hours[hour] / mean == pytest.approx(expected, abs=0.1)
    assert hours[19] > 3 * hours[4]


def test_the_rhythm_is_one_on_average_and_never_nothing() -> None:
    values = [daily_rhythm(minute * MINUTE_MS) for minute in range(24 * 60)]
    assert sum(values) / len(values) == pytest.approx(1.0, abs=1e-9)
    assert min(values) > 0.2


@pytest.mark.parametrize(
    ("ranks", "exponent"), [(DEFAULT.users, DEFAULT.user_exponent), (DEFAULT.pages, DEFAULT.page_exponent)]
)
def test_users_and_pages_are_as_skewed_as_said(ranks: int, exponent: float) -> None:
    chance = random.Random(SEED)
    zipf = Zipf(ranks, exponent)
    counts = Counter(zipf.draw(chance) for _ in range(200_000))
    top = [(math.log(rank + 1), math.log(counts[rank])) for rank in range(30)]
    mean_x = sum(x for x, _ in top) / len(top)
    mean_y = sum(y for _, y in top) / len(top)
    slope = sum((x - mean_x) * (y - mean_y) for x, y in top) / sum((x - mean_x) ** 2 for x, _ in top)
    assert -slope == pytest.approx(exponent, abs=0.08)
    assert max(counts) < ranks


def test_page_views_are_skewed(day: Day) -> None:
    pages = Counter(fields["page"] for _, fields in day.valid[ACTIVITY_PAGE_VIEWS].values())
    expected = 1 / sum((rank + 1) ** -DEFAULT.page_exponent for rank in range(DEFAULT.pages))
    assert pages[page_name(0)] / pages.total() == pytest.approx(expected, rel=0.15)


def test_shares_of_bad_late_and_repeated_events(day: Day) -> None:
    records = sum(event.stream != ACCESS_LINES for event in day.events)
    assert day.bad / records == pytest.approx(DEFAULT.bad_record_share, rel=0.25)
    unmatched = sum(
        COMBINED.fullmatch(event.value) is None or len(event.value) > LINE_BYTES_MAX for event in day.lines
    )
    assert unmatched / len(day.lines) == pytest.approx(DEFAULT.bad_line_share, rel=0.25)
    assert {kind for kind in BAD_LINES if day.counts[f"{ACCESS_LINES} bad {kind}"]} == set(BAD_LINES)
    repeated = sum(times > 1 for times in day.ids.values())
    assert repeated / len(day.ids) == pytest.approx(DEFAULT.duplicate_share, rel=0.25)
    assert max(day.ids.values()) == 2
    delays = [
        arrival_ms - fields["event_time_ms"]
        for valid in day.valid.values()
        for arrival_ms, fields in valid.values()
    ]
    late = sum(3_000 < delay < 20 * MINUTE_MS for delay in delays)
    assert late / len(delays) == pytest.approx(DEFAULT.late_share * math.exp(-3 / 60), rel=0.25)
    assert sum(delay >= 30 * MINUTE_MS for delay in delays) > 0


def test_visits_are_as_long_as_said_and_their_gaps_short(day: Day) -> None:
    actions = [
        (fields["user_id"], fields["event_time_ms"])
        for topic in (ACTIVITY_PAGE_VIEWS, ACTIVITY_SEARCHES)
        for _, fields in day.valid[topic].values()
    ]
    searches = len(day.valid[ACTIVITY_SEARCHES])
    assert searches / len(actions) == pytest.approx(DEFAULT.search_share, rel=0.1)
    gaps = [
        later - earlier
        for (user, earlier), (other, later) in pairwise(sorted(actions))
        if user == other and later - earlier < 10 * MINUTE_MS
    ]
    assert sum(gaps) / len(gaps) == pytest.approx(DEFAULT.action_gap_ms, rel=0.25)
    visits = len(actions) - len(gaps)
    assert len(actions) / visits == pytest.approx(DEFAULT.actions, rel=0.15)


def test_an_incident_comes_soon_and_shows_in_the_samples(day: Day) -> None:
    services = Services(chances(SEED), DEFAULT, START_MS)
    hit = []
    for service in DEFAULT.services:
        periods = [services.incident(service.name, START_MS + second * 1000) for second in range(0, 600, 10)]
        if any(periods):
            hit.append(service.name)
    assert hit
    samples = [fields for _, fields in day.valid[METRICS_RAW].values()]
    services = Services(chances(SEED), DEFAULT, START_MS)
    for service in DEFAULT.services:
        mine = [(sample["event_time_ms"], sample) for sample in samples if sample["service"] == service.name]
        mine.sort(key=lambda pair: pair[0])
        calm, ill = [], []
        for time_ms, sample in mine:
            (calm if services.incident(service.name, time_ms) is None else ill).append(sample)
        assert sum(sample["error"] for sample in calm) / len(calm) == pytest.approx(
            service.error_rate, abs=0.01
        )
        middle = sorted(sample["latency_ms"] for sample in calm)[len(calm) // 2]
        assert middle == pytest.approx(service.latency_ms, rel=0.1)
        assert sum(sample["error"] for sample in ill) / len(ill) > 0.1
        assert sorted(sample["latency_ms"] for sample in ill)[len(ill) // 2] > 4 * service.latency_ms


def test_bursts_bring_more_visits() -> None:
    periods = Periods(random.Random(SEED), 1000.0, 10_000.0, (1000, 2000), (3.0, 6.0))
    inside = [
        period for period in (periods.at(time) for time in range(0, 100_000, 100)) if period is not None
    ]
    numbers = sorted({period.number for period in inside})
    assert numbers == list(range(len(numbers)))
    assert all(
        3.0 <= period.factor <= 6.0 and 1000 <= period.end_ms - period.start_ms <= 2000 for period in inside
    )
    assert periods.at(500) is None


@given(st.floats(1, 10_000), st.integers(0, 10**9), st.lists(st.integers(0, 10**7), max_size=20))
def test_event_time_never_goes_back_nor_ahead_of_the_clock(
    speed: float, behind_ms: int, steps: list[int]
) -> None:
    now_ms = 2 * 10**12
    pace = Pace(now_ms, now_ms - behind_ms, speed)
    last_ms = now_ms - behind_ms
    assert pace.event_time_ms(now_ms) == last_ms
    for step in steps:
        now_ms += step
        time_ms = pace.event_time_ms(now_ms)
        assert last_ms <= time_ms <= now_ms
        last_ms = time_ms
    if speed >= 2:
        caught_up_ms = pace.wall_start_ms + behind_ms + 1
        assert pace.event_time_ms(caught_up_ms) == caught_up_ms


class Producer:
    """Keeps what is produced."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.produced: list[tuple[str, list[tuple[str, bytes]]]] = []

    def produce(self, topic: str, *, headers: list[tuple[str, bytes]], **record: Any) -> None:
        self.produced.append((topic, headers))

    def poll(self, timeout_s: float) -> None:
        pass


def test_a_line_has_the_headers_that_the_collector_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    producer = Producer({})
    monkeypatch.setattr("confluent_kafka.Producer", lambda settings: producer)
    sender = Sender(ClusterAddress("nowhere"), "run")
    sender.send([Event(n, ACCESS_LINES, "web1", b"four") for n in range(2)], lambda: False)
    sender.send([Event(2, METRICS_RAW, "shop", b"{}")], lambda: False)
    fixed = [("source", b"web1"), ("file", b"run")]
    assert producer.produced == [
        (LOGS_RAW, [*fixed, ("position", b"0")]),
        (LOGS_RAW, [*fixed, ("position", b"5")]),
        (METRICS_RAW, []),
    ]
