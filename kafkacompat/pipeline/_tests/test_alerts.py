"""A rule fires after its duration and is resolved once, and each change is reported once. Windows come in batches,
without Spark."""

from __future__ import annotations

import itertools
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkacompat.pipeline.alerts import (
    RULES,
    SAMPLES_MIN,
    SILENCE_MS,
    Change,
    Judged,
    Rule,
    State,
    Tracker,
    Watched,
    decode,
    encode,
)
from kafkacompat.pipeline.options import DEFAULT_WATERMARK_S
from kafkacompat.pipeline.topics import ALERT_KEY

WINDOW_S = 60
WINDOW_MS = WINDOW_S * 1000
AT_ONCE = Rule("errors", "rate", 0.05, 0.20, for_s=0)
AFTER_TWO = Rule("errors", "rate", 0.05, 0.20, for_s=2 * WINDOW_S)
WELL, BAD, WORST = 0.01, 0.1, 0.5


def row(number: int, rate: float, service: str = "shop", count: int = 50) -> dict[str, Any]:
    start_ms = number * WINDOW_MS
    return {
        "service": service,
        "window_start_ms": start_ms,
        "window_end_ms": start_ms + WINDOW_MS,
        "count": count,
        "rate": rate,
    }


class Watch:
    """Runs batches one after the other. Between any two, the state may be encoded and decoded, as after a restart."""

    def __init__(self, *rules: Rule, watermark_s: int = DEFAULT_WATERMARK_S) -> None:
        self.tracker = Tracker(WINDOW_S, watermark_s, rules)
        self.state = State()

    def step(self, *rows: dict[str, Any]) -> list[Change]:
        self.state = decode(encode(self.state))
        self.state, changes = self.tracker.step(self.state, rows)
        return changes

    def said(self, *rows: dict[str, Any]) -> list[tuple[str, str, int]]:
        """Return state, severity and the number of the window for each change."""
        return [(each.state, each.severity, each.window_start_ms // WINDOW_MS) for each in self.step(*rows)]


def test_a_rule_without_a_duration_fires_with_the_first_broken_window_and_says_so_once() -> None:
    watch = Watch(AT_ONCE)
    (change,) = watch.step(row(1, BAD))
    assert change == Change(
        "shop", "errors", "firing", "warning", WINDOW_MS, WINDOW_MS, 2 * WINDOW_MS, BAD, 0.05
    )
    assert watch.said(row(1, BAD + 0.01)) == []
    assert watch.said(row(2, BAD)) == []
    assert watch.said(row(2, BAD), row(3, BAD)) == []


def test_a_rule_with_a_duration_fires_when_it_was_broken_for_that_long() -> None:
    watch = Watch(AFTER_TWO)
    assert watch.step(row(1, BAD)) == []
    assert watch.step(row(1, BAD)) == []
    (change,) = watch.step(row(2, BAD))
    assert (change.state, change.since_ms, change.window_start_ms) == ("firing", WINDOW_MS, 2 * WINDOW_MS)


def test_a_good_window_or_a_missing_one_begins_the_duration_anew() -> None:
    watch = Watch(AFTER_TWO)
    assert watch.said(row(1, BAD), row(2, WELL), row(3, BAD), row(5, BAD)) == []
    assert watch.said(row(6, BAD)) == [("firing", "warning", 6)]


def test_an_alert_is_resolved_by_a_good_window_that_is_over() -> None:
    watch = Watch(AT_ONCE)
    watch.step(row(1, BAD))
    # The window is still open.
    assert watch.said(row(2, WELL)) == []
    assert watch.said(row(3, WELL)) == [("resolved", "warning", 2)]
    assert watch.said(row(4, WELL)) == []


def test_a_window_that_gets_bad_late_keeps_the_alert() -> None:
    watch = Watch(AT_ONCE)
    watch.step(row(1, BAD))
    assert watch.said(row(2, WELL)) == []
    assert watch.said(row(2, BAD)) == []
    assert watch.said(row(3, BAD)) == []


def test_a_window_that_was_broken_counts_so_when_the_rest_of_it_is_better() -> None:
    watch = Watch(AFTER_TWO)
    watch.step(row(1, BAD))
    assert watch.said(row(1, WELL), row(2, BAD)) == [("firing", "warning", 2)]


def test_an_alert_that_gets_critical_says_so_once_and_not_that_it_gets_better() -> None:
    watch = Watch(AFTER_TWO)
    assert watch.said(row(1, BAD), row(2, WORST)) == [("firing", "warning", 2)]
    assert watch.said(row(3, WORST)) == [("firing", "critical", 3)]
    assert watch.said(row(4, BAD), row(5, WORST), row(6, WORST)) == []
    assert watch.said(row(7, WELL), row(8, WELL)) == [("resolved", "critical", 7)]


def test_all_changes_of_one_batch_come_in_their_order() -> None:
    watch = Watch(AT_ONCE)
    rows = [row(4, WORST), row(2, WELL), row(3, WELL), row(1, BAD), row(5, WELL), row(6, WELL)]
    assert watch.said(*rows) == [
        ("firing", "warning", 1),
        ("resolved", "warning", 2),
        ("firing", "critical", 4),
        ("resolved", "critical", 5),
    ]


def test_late_events_of_windows_before_a_change_make_no_other() -> None:
    watch = Watch(AT_ONCE)
    watch.said(row(1, BAD), row(2, WELL), row(3, WELL))
    assert watch.said(row(1, WORST)) == []
    assert watch.said(row(2, BAD), row(4, WELL)) == []
    assert watch.said(row(0, BAD)) == []


def test_few_samples_say_nothing() -> None:
    watch = Watch(AT_ONCE)
    assert watch.said(row(1, WORST, count=SAMPLES_MIN - 1)) == []
    assert watch.said(row(1, WORST, count=SAMPLES_MIN)) == [("firing", "critical", 1)]
    few = SAMPLES_MIN - 1
    assert watch.said(row(2, WELL, count=few), row(3, WELL, count=few)) == []


def test_services_and_rules_do_not_touch_each_other() -> None:
    other = Rule("slow", "rate", 0.4, 0.9, for_s=0)
    watch = Watch(AT_ONCE, other)
    changes = watch.step(row(1, BAD, "cart"), row(1, WORST), row(1, WELL, "auth"))
    assert [(each.service, each.rule) for each in changes] == [
        ("cart", "errors"),
        ("shop", "errors"),
        ("shop", "slow"),
    ]
    assert [each.threshold for each in changes] == [0.05, 0.2, 0.4]
    assert len({each.event_id for each in changes}) == 3


def test_a_service_that_is_silent_for_long_is_resolved_and_forgotten() -> None:
    watch = Watch(AT_ONCE)
    watch.step(row(1, BAD))
    last = SILENCE_MS // WINDOW_MS + 1
    assert watch.said(row(last, WELL, "auth")) == []
    assert watch.said(row(last + 1, WELL, "auth")) == [("resolved", "warning", 1)]
    watch.step(row(last + 20, WELL, "auth"))
    assert watch.state.watched == {}


def test_a_service_that_is_silent_before_it_fires_is_forgotten() -> None:
    watch = Watch(AFTER_TWO)
    watch.step(row(1, BAD))
    assert watch.state.watched
    assert watch.said(row(20, WELL, "auth")) == []
    assert watch.state.watched == {}


def test_services_that_are_well_take_no_state() -> None:
    watch = Watch(*RULES)
    rows = [
        row(1, WELL, f"s{number}") | {"error_rate": 0.0, "latency_p95_ms": 3.0, "cpu_mean_percent": 1.0}
        for number in range(100)
    ]
    assert watch.step(*rows) == []
    assert watch.state.watched == {}
    assert watch.state.newest_ms == WINDOW_MS


def test_a_batch_that_is_run_again_tells_the_same_changes_under_the_same_ids() -> None:
    watch = Watch(AT_ONCE)
    before = watch.state
    first = watch.step(row(1, BAD))
    # An estimated value may differ in a digit.
    _, again = watch.tracker.step(before, [row(1, BAD + 0.001)])
    assert [each.event_id for each in first] == [each.event_id for each in again]
    assert first != again


def test_a_rule_that_is_gone_is_forgotten() -> None:
    watch = Watch(AT_ONCE)
    watch.step(row(1, BAD))
    state, changes = Tracker(WINDOW_S, DEFAULT_WATERMARK_S, (Rule("new", "rate", 9.0, 9.0, 0),)).step(
        watch.state, []
    )
    assert (dict(state.watched), changes) == ({}, [])


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"format": 2}', '{"format": 1, "newest_ms": 1, "watched": [1]}']
)
def test_what_is_no_state_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        decode(text)


def test_a_state_that_a_run_has_written_is_read_by_later_versions() -> None:
    """This text stays as it is: it is in checkpoints."""
    text = (
        '{"format": 1, "newest_ms": 60000, "watched": '
        '[["shop", "errors", "warning", 60000, 60000, [[60000, 120000, 0.1, "warning"]]]]}\n'
    )
    window = Judged(60_000, 120_000, 0.1, "warning")
    assert decode(text) == State(60_000, {("shop", "errors"): Watched((window,), "warning", 60_000, 60_000)})


RATES = st.lists(st.sampled_from([WELL, BAD, WORST]), min_size=1, max_size=30)


@given(rates=RATES, cuts=st.sets(st.integers(1, 29)), needed=st.integers(1, 3))
def test_whole_windows_give_the_same_changes_in_any_batches(
    rates: list[float], cuts: set[int], needed: int
) -> None:
    rule = Rule("errors", "rate", 0.05, 0.20, for_s=needed * WINDOW_S)
    rows = [row(number, rate) for number, rate in enumerate(rates)]
    whole = Watch(rule).step(*rows)
    watch, cut = Watch(rule), []
    bounds = [0, *sorted(each for each in cuts if each < len(rows)), len(rows)]
    for first, last in itertools.pairwise(bounds):
        cut += watch.step(*rows[first:last])
    assert cut == whole


@given(rates=RATES, needed=st.integers(1, 3))
def test_an_alert_fires_and_is_resolved_in_turn_and_as_the_windows_say(
    rates: list[float], needed: int
) -> None:
    rule = Rule("errors", "rate", 0.05, 0.20, for_s=needed * WINDOW_S)
    changes = Watch(rule).step(*(row(number, rate) for number, rate in enumerate(rates)))
    fires = False
    told = {(each.window_start_ms // WINDOW_MS, each.state): each for each in changes}
    assert len(told) == len(changes)
    in_a_row = 0
    for number, rate in enumerate(rates):
        in_a_row = in_a_row + 1 if rate >= 0.05 else 0
        is_over = number < len(rates) - 1
        if not fires and in_a_row >= needed:
            fires = True
            assert told.pop((number, "firing")).since_ms == (number - needed + 1) * WINDOW_MS
        elif fires and in_a_row == 0 and is_over:
            fires = False
            told.pop((number, "resolved"))
            in_a_row = 0
    assert all(each.severity == "critical" and each.state == "firing" for each in told.values())


def test_the_reference_page_has_the_rules() -> None:
    page = Path(__file__).parents[3].joinpath("docs/reference/pipeline.md").read_text(encoding="utf-8")
    section = page.partition("\n## Alerts\n")[2].partition("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| `")]
    told = [
        Rule(name.strip("`"), column, float(warning), float(critical), int(lasts.removesuffix(" min")) * 60)
        for name, column, warning, critical, lasts in rows
    ]
    assert tuple(told) == RULES
    assert f"at least {SAMPLES_MIN} samples" in section


def test_the_console_knows_the_unit_of_each_rule() -> None:
    """By words of its name."""
    page = Path(__file__).resolve().parents[2] / "console" / "static" / "pipeline.js"
    words = re.findall(r'\brule\.includes\("(\w+)"\)', page.read_text(encoding="utf-8"))
    assert [rule.name for rule in RULES if not any(word in rule.name for word in words)] == []


def test_each_field_of_a_change_says_whose_alert_it_is_or_what_has_changed() -> None:
    """Otherwise the alerts of two have one key and one event id, and readers take them for one."""
    changes = {"state", "severity", "since_ms", "window_start_ms", "window_end_ms", "value", "threshold"}
    whose = {each.name for each in fields(Change)} - changes
    assert whose == {*ALERT_KEY}, "a field that says whose alert it is stands in ALERT_KEY (topics.py)"
