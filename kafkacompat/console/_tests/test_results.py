"""Folding of result records: the latest row of each key, each record once, bounded."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkacompat.console._tests.making import record, summary, window
from kafkacompat.console.core.result_topics import RESULT_TOPICS, WHOLE, ResultTopic, Types
from kafkacompat.console.core.results import (
    MAX_KEY_BYTES,
    MAX_VALUE_BYTES,
    ResultRecord,
    Results,
    RowError,
    row_fields,
)
from kafkacompat.console.core.views import results_view
from kafkacompat.pipeline.progress import RUNNING, Totals, report_of

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
        (json.dumps(summary(1) | {"bytes": 10**400}).encode(), "out of range: bytes"),
        (json.dumps(summary(1) | {"bytes": -(10**400)}).encode(), "out of range: bytes"),
        (json.dumps(summary(1)).replace("60000", "1" * 5_000, 1).encode(), "malformed JSON"),
        (b'{"x": ' + b"[" * 30_000 + b"]" * 30_000 + b"}", "malformed JSON"),
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


HALF_PAIRS = st.sampled_from(["\ud800", "a\udfffb", "\udc00\ud83d"])
ANY_TEXT = st.one_of(st.text(max_size=8), HALF_PAIRS)
HUGE = st.sampled_from([10**18, 10**400, -(10**400), 2**53, 2**53 + 1])
JSON_VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), HUGE, st.floats(), ANY_TEXT),
    lambda inside: st.one_of(st.lists(inside, max_size=3), st.dictionaries(ANY_TEXT, inside, max_size=3)),
    max_leaves=5,
)


def right_kind(types: Types) -> st.SearchStrategy[Any]:
    if str in types:
        return ANY_TEXT
    if bool in types:
        return st.booleans()
    whole = st.one_of(st.integers(0, 3), st.integers(-(2**53), 2**53))
    return st.one_of(whole, st.floats(-1e15, 1e15)) if float in types else whole


@st.composite
def nearly_rows(draw: st.DrawFn, shape: ResultTopic) -> bytes:
    """A row of that topic in which at most one field has an arbitrary value."""
    row = {name: draw(right_kind(types)) for name, types in (shape.fields | shape.optional).items()}
    row["event_id"] = draw(ANY_TEXT)
    for name in draw(st.lists(st.sampled_from(list(row)), max_size=1)):
        row[name] = draw(st.one_of(HUGE, JSON_VALUES))
    return json.dumps(row).encode()


VALUES = st.one_of(
    st.none(),
    st.binary(max_size=60),
    JSON_VALUES.map(lambda value: json.dumps(value).encode()),
    JSON_VALUES.map(lambda value: json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")),
)


@given(st.data())
def test_no_record_ends_the_fold_or_the_view_of_it(data: st.DataObject) -> None:
    results = Results()
    count = data.draw(st.integers(1, 4))
    for offset in range(count):
        shape = data.draw(st.sampled_from(list(RESULT_TOPICS.values())))
        value = data.draw(st.one_of(nearly_rows(shape), nearly_rows(shape), VALUES))
        key = data.draw(st.one_of(st.none(), st.binary(max_size=5)))
        timestamp_ms = data.draw(st.integers(0, 2**63 - 1))
        results.fold(ResultRecord(shape.name, 0, offset, timestamp_ms, key, value))
    view = results_view(results)
    told = json.dumps(view, ensure_ascii=False, allow_nan=False).encode()
    assert json.loads(told) == view
    assert view["reading"]["records"] == count


@pytest.mark.parametrize("topic", [ALERTS, LOGS])
def test_half_a_surrogate_pair_becomes_the_sign_for_an_unknown_letter(topic: str) -> None:
    results = Results()
    said = alert("id\ud800") if topic == ALERTS else summary(1, event_id="id\ud800")
    results.fold(record(topic, "1", 1, said | {"service": "a\udfffb"}))
    (row,) = results.rows(topic)
    assert row["event_id"] == "id\ufffd"
    assert row.get("service", "a\ufffdb") == "a\ufffdb"


def test_a_whole_surrogate_pair_is_one_letter() -> None:
    fields = row_fields(RESULT_TOPICS[ALERTS], json.dumps(alert("\U0001f600")).encode())
    assert fields["event_id"] == "\U0001f600"


def test_the_names_of_the_topics_that_a_query_reads_are_all_kept() -> None:
    topics = tuple(f"{'t' * 240}{number}" for number in range(100))
    value = report_of("q", topics, 5.0, Totals(), RUNNING, None, 0)
    fields = row_fields(RESULT_TOPICS["pipeline.progress"], json.dumps(value).encode())
    assert fields["reads"] == ",".join(topics)


def test_of_a_long_key_no_more_is_kept_than_tells_it_apart() -> None:
    results = Results()
    for offset, letter in enumerate("aba"):
        results.fold(record(LOGS, letter * 500_000, offset, summary(1, offset)))
    assert requests(results) == [1, 2]
    assert max(len(key) for key in results.topics[LOGS].rows) <= MAX_KEY_BYTES
    results.fold(record(LOGS, "a" * 500_000, 9, None))
    assert requests(results) == [1]


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
    """A consumer that goes back and continues from any offset ends with the same rows."""
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
