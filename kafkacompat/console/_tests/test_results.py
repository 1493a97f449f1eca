"""Folding of result records: the latest row a key, once each, whatever is sent again, bounded."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkacompat.console._tests.making import record, summary, window
from kafkacompat.console.core.result_topics import RESULT_TOPICS, WHOLE, ResultTopic
from kafkacompat.console.core.results import MAX_VALUE_BYTES, Results, RowError, row_fields

LOGS = "logs.summary"
ALERTS = "metrics.alerts"


def alert(event_id: str, value: float = 2.0) -> dict[str, Any]:
    said = {"service": "auth", "rule": "error_rate", "value": value, "threshold": 1.0, "severity": "critical"}
    return {"event_id": event_id} | window(1) | said


def requests(results: Results) -> list[int]:
    return sorted(row["requests"] for row in results.rows(LOGS))


def test_the_later_offset_of_a_key_wins() -> None:
    results = Results()
    results.fold(record(LOGS, "1", 7, summary(1, 10)))
    results.fold(record(LOGS, "1", 8, summary(1, 20)))
    results.fold(record(LOGS, "1", 6, summary(1, 5)))
    assert requests(results) == [20]


def test_a_row_sent_again_is_counted_as_a_repeat_and_changes_nothing() -> None:
    results = Results()
    for offset in (3, 4):
        results.fold(record(LOGS, "1", offset, summary(1, 10, event_id="same")))
    assert requests(results) == [10]
    assert results.topics[LOGS].repeats == 1
    assert results.topics[LOGS].records == 2


def test_alerts_are_told_apart_by_event_id_not_by_key() -> None:
    results = Results()
    for offset, event_id in enumerate(["a", "b", "a"]):
        results.fold(record(ALERTS, "auth|error_rate|1", offset, alert(event_id)))
    assert sorted(row["event_id"] for row in results.rows(ALERTS)) == ["a", "b"]
    assert results.topics[ALERTS].repeats == 1


def test_a_tombstone_removes_the_row() -> None:
    results = Results()
    results.fold(record(LOGS, "1", 1, summary(1)))
    results.fold(record(LOGS, "1", 2, None))
    assert results.rows(LOGS) == []


def test_a_key_in_two_partitions_shows_the_later_record() -> None:
    results = Results()
    results.fold(record(LOGS, "1", 90, summary(1, 10), partition=0, at_ms=100))
    results.fold(record(LOGS, "1", 2, summary(1, 20), partition=4, at_ms=200))
    results.fold(record(LOGS, "1", 91, summary(1, 30), partition=0, at_ms=150))
    assert requests(results) == [20]


def test_forgetting_a_topic_lets_lower_offsets_in_again() -> None:
    results = Results()
    results.fold(record(LOGS, "1", 50, summary(1, 10)))
    results.forget(LOGS)
    assert results.rows(LOGS) == []
    results.fold(record(LOGS, "1", 0, summary(1, 20)))
    assert requests(results) == [20]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"{", "malformed JSON"),
        (b"[" * 100_000, "value of|malformed JSON"),
        (b"\xff\xfe", "malformed JSON"),
        (b"[1]", "not a JSON object"),
        (json.dumps(summary(1) | {"requests": "many"}).encode(), "wrong type: requests"),
        (json.dumps(summary(1) | {"requests": True}).encode(), "wrong type: requests"),
        (json.dumps(summary(1) | {"requests": 2.5}).encode(), "wrong type: requests"),
        (json.dumps(summary(1) | {"requests": None}).encode(), "missing field: requests"),
        (json.dumps(summary(1) | {"bytes": 10**30}).encode(), "out of range: bytes"),
        (b'{"x": "' + b"y" * MAX_VALUE_BYTES + b'"}', "value of"),
    ],
)
def test_a_value_of_another_shape_is_counted_with_its_place_and_reason(value: bytes, reason: str) -> None:
    results = Results()
    results.fold(record(LOGS, "1", 12, value))
    fold = results.topics[LOGS]
    assert results.rows(LOGS) == []
    assert fold.malformed == 1
    assert fold.last_malformed.startswith("logs.summary-0 offset 12: ")
    with pytest.raises(RowError, match=reason):
        row_fields(RESULT_TOPICS[LOGS], value)


@pytest.mark.parametrize("text", ["NaN", "Infinity", "1e999"])
def test_numbers_that_json_has_not_are_refused(text: str) -> None:
    value = json.dumps(alert("a")).replace("2.0", text).encode()
    with pytest.raises(RowError, match="out of range: value"):
        row_fields(RESULT_TOPICS[ALERTS], value)


def test_rows_are_bounded_and_the_oldest_make_room() -> None:
    shape = ResultTopic("t", "n", 10, {"n": WHOLE})
    results = Results([shape])
    for number in range(100):
        results.fold(record("t", f"k{number}", number, {"n": number}))
        assert len(results.topics["t"].rows) <= 12
    assert {row["n"] for row in results.rows("t")} >= set(range(90, 100))


def test_a_record_of_another_topic_is_ignored() -> None:
    results = Results()
    results.fold(record("else", "1", 1, summary(1)))
    assert results.revision == 0


ROWS = st.lists(st.tuples(st.integers(0, 4), st.integers(1, 3)), max_size=30)


@given(ROWS, st.data())
def test_reading_any_stretch_again_changes_no_row(
    written: list[tuple[int, int]], data: st.DataObject
) -> None:
    """A consumer that goes back and reads on from any offset ends with the same rows."""
    log = [record(LOGS, str(key), at, summary(key, count)) for at, (key, count) in enumerate(written)]
    once, again = Results(), Results()
    for each in log:
        once.fold(each)
    reached = 0
    while reached < len(log):
        reached = data.draw(st.integers(reached + 1, len(log)))
        back = data.draw(st.integers(0, reached))
        for each in log[back:reached] if data.draw(st.booleans()) else log[:reached]:
            again.fold(each)
    for each in log:
        again.fold(each)
    assert sorted(map(repr, once.rows(LOGS))) == sorted(map(repr, again.rows(LOGS)))
