"""The jobs as functions of batch frames: their results for valid and invalid records, compared with plain Python."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kafkacompat.pipeline._tests.conftest import RECEIVED_MS
from kafkacompat.pipeline.topics import LINE_BYTES_MAX

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Records = Callable[..., "DataFrame"]
SAMPLE = {
    "event_id": "m-1",
    "service": "shop",
    "host": "h1",
    "event_time_ms": RECEIVED_MS,
    "latency_ms": 12.5,
    "error": False,
    "cpu_percent": 40,
    "memory_bytes": 1024,
}
VIEW = {
    "event_id": "v-1",
    "user_id": "ann",
    "event_time_ms": RECEIVED_MS,
    "page": "/",
    "referrer": None,
    "device": "phone",
}
LINE = (
    '192.0.2.7 - ann [21/Sep/2026:14:13:20 +0000] "GET /a?b=c HTTP/1.1" 200 512 '
    r'"https://example.org/\"x\"" "Mozilla/5.0 (X11)"'
)


def encoded(event: dict[str, Any], **changes: Any) -> bytes:
    """Return the event with these fields changed. A field with value ... is left out."""
    return json.dumps({k: v for k, v in {**event, **changes}.items() if v is not ...}).encode()


def rows(frame: DataFrame) -> list[dict[str, Any]]:
    return [row.asDict(recursive=True) for row in frame.collect()]


def value_of(record: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(record["value"])
    return found


BAD_SAMPLES = [
    (b'{"event_id": "m', "malformed JSON"),
    (b"[1, 2]", "malformed JSON"),
    (b"[" * 60_000, "malformed JSON"),
    (b'{"a":' * 12_000, "malformed JSON"),
    (encoded(SAMPLE).replace(b"12.5", b"9" * 5000), "malformed JSON"),
    (encoded(SAMPLE).replace(b"12.5", b"1e999999999"), "out of range: latency_ms"),
    (b"17", "malformed JSON"),
    (b"", "malformed JSON"),
    (None, "malformed JSON"),
    (b"\xff\xfe{}", "malformed JSON"),
    # A record is one event: anything after it would be lost silently.
    (encoded(SAMPLE) + b" rubbish", "malformed JSON"),
    (encoded(SAMPLE) + b"\x0c", "malformed JSON"),
    (encoded(SAMPLE) + b"}", "malformed JSON"),
    (encoded(SAMPLE) + b"\n" + encoded(SAMPLE, event_id="m-2"), "malformed JSON"),
    (encoded(SAMPLE) + b"," + encoded(SAMPLE, event_id="m-2"), "malformed JSON"),
    (encoded(SAMPLE) + b"], " + encoded(SAMPLE, event_id="m-2"), "malformed JSON"),
    (encoded(SAMPLE) + b",0],{}", "malformed JSON"),
    (encoded(SAMPLE, more={}) + b" rubbish", "malformed JSON"),
    (b"[" + encoded(SAMPLE) + b"]", "malformed JSON"),
    (b"1," + encoded(SAMPLE), "malformed JSON"),
    (b"null", "malformed JSON"),
    (encoded(SAMPLE).replace(b'"latency_ms"', b"'latency_ms'"), "malformed JSON"),
    (encoded(SAMPLE).replace(b'"', b"'"), "malformed JSON"),
    (encoded(SAMPLE, service=...), "missing field: service"),
    (encoded(SAMPLE, service=None), "missing field: service"),
    (encoded(SAMPLE, service=""), "empty field: service"),
    (encoded(SAMPLE, event_id=""), "empty field: event_id"),
    (encoded(SAMPLE, service=7), "wrong type: service"),
    (encoded(SAMPLE, event_time_ms=str(RECEIVED_MS)), "wrong type: event_time_ms"),
    (encoded(SAMPLE, event_time_ms=1.5), "wrong type: event_time_ms"),
    (encoded(SAMPLE, event_time_ms=10**25), "wrong type: event_time_ms"),
    (encoded(SAMPLE, latency_ms="12"), "wrong type: latency_ms"),
    (encoded(SAMPLE, latency_ms={"p50": 1}), "wrong type: latency_ms"),
    (encoded(SAMPLE, error=1), "wrong type: error"),
    (encoded(SAMPLE, latency_ms="NaN"), "wrong type: latency_ms"),
    (encoded(SAMPLE, service=7, host='a"service": "b'), "wrong type: service"),
    (encoded(SAMPLE, service=True, more={"service": "shop"}), "wrong type: service"),
    (encoded(SAMPLE, service={"name": "shop"}), "wrong type: service"),
    (encoded(SAMPLE).replace(b'"error": false', b'"error": false, "error": 1'), "malformed JSON"),
    (encoded(SAMPLE, latency_ms=-1), "out of range: latency_ms"),
    (encoded(SAMPLE, latency_ms=1e300), "out of range: latency_ms"),
    (encoded(SAMPLE, memory_bytes=-1), "out of range: memory_bytes"),
    (encoded(SAMPLE, event_time_ms=RECEIVED_MS + 10 * 60_000 + 1), "future timestamp"),
    (encoded(SAMPLE, event_time_ms=2**63 - 1), "future timestamp"),
    (encoded(SAMPLE, event_time_ms=RECEIVED_MS - 7 * 86_400_000 - 1), "ancient timestamp"),
    (encoded(SAMPLE, event_time_ms=-(2**63)), "ancient timestamp"),
    (encoded(SAMPLE, host="x" * 65536), "oversized record"),
]


def test_a_bad_sample_is_told_by_its_first_fault(records: Records) -> None:
    from kafkacompat.pipeline.jobs import metrics
    from kafkacompat.pipeline.jobs.validation import REJECTED_TEXT_CHARACTERS_MAX, rejected

    values = [value for value, _ in BAD_SAMPLES]
    frame = records("metrics.raw", *values, key=b"shop")
    found = {row["offset"]: row for row in rows(rejected(metrics.validate(frame)))}
    assert {offset: row["reason"] for offset, row in found.items()} == dict(
        enumerate(reason for _, reason in BAD_SAMPLES)
    )
    assert found[0]["line"] == '{"event_id": "m'
    assert found[0]["source"] == "shop"
    assert found[0]["event_id"] == "metrics.raw-0-0"
    assert found[0]["received_ms"] == RECEIVED_MS
    assert next(row for row in found.values() if row["line"] is None)["offset"] == values.index(None)
    assert found[values.index(b"\xff\xfe{}")]["line"] == "\ufffd\ufffd{}"
    assert len(found[len(BAD_SAMPLES) - 1]["line"]) == REJECTED_TEXT_CHARACTERS_MAX


def test_a_rejected_record_has_room_for_a_key_of_any_length(records: Records) -> None:
    """The key is in it twice. A record that Kafka refuses would end the query whenever it is started."""
    from kafkacompat.pipeline.jobs import metrics
    from kafkacompat.pipeline.jobs.validation import REJECTED_TEXT_CHARACTERS_MAX, rejected
    from kafkacompat.pipeline.results import rejected_records

    frame = rejected(metrics.validate(records("metrics.raw", b"no JSON", key=b"\x01" * 600_000)))
    (row,) = rows(frame)
    assert row["source"] == "\x01" * REJECTED_TEXT_CHARACTERS_MAX
    (record,) = rows(rejected_records("metrics.rejected", frame))
    assert len(record["key"].encode()) + len(record["value"].encode()) < 100_000


def test_good_samples_keep_their_values_to_the_edge_of_the_bounds(records: Records) -> None:
    from kafkacompat.pipeline.jobs import metrics
    from kafkacompat.pipeline.jobs.validation import valid_events

    values = [
        encoded(SAMPLE),
        encoded(SAMPLE, event_time_ms=RECEIVED_MS + 10 * 60_000),
        encoded(SAMPLE, event_time_ms=RECEIVED_MS - 7 * 86_400_000),
        encoded(SAMPLE, latency_ms=0, cpu_percent=1e2, more="ignored"),
        b" \r\n" + encoded(SAMPLE, host="}") + b" \t\r\n",
        encoded(SAMPLE) + b"\n",
        encoded(SAMPLE, latency_ms=1e3, more={"service": 7}, host="{h}"),
    ]
    found = rows(valid_events(metrics.validate(records("metrics.raw", *values))))
    assert [row["latency_ms"] for row in found] == [12.5, 12.5, 12.5, 0.0, 12.5, 12.5, 1000.0]
    assert {name: found[0][name] for name in SAMPLE} == SAMPLE
    assert [row["event_time_ms"] - RECEIVED_MS for row in found] == [0, 600_000, -604_800_000, 0, 0, 0, 0]
    assert found[-1]["host"] == "{h}"


def test_both_kinds_of_activity_are_judged_by_their_own_fields(records: Records) -> None:
    from kafkacompat.pipeline.jobs import activity
    from kafkacompat.pipeline.jobs.validation import rejected

    search = {"event_id": "s-1", "user_id": "ann", "event_time_ms": RECEIVED_MS, "query": "q", "results": 3}
    frame = records("activity.page_views", encoded(VIEW), encoded(VIEW, referrer=5), encoded(search)).union(
        records("activity.searches", encoded(search), encoded(search, results=-1), encoded(VIEW))
    )
    validated = activity.validate(frame)
    assert [(row["topic"], row["offset"], row["reason"]) for row in rows(rejected(validated))] == [
        ("activity.page_views", 1, "wrong type: referrer"),
        ("activity.page_views", 2, "missing field: page"),
        ("activity.searches", 1, "out of range: results"),
        ("activity.searches", 2, "missing field: query"),
    ]


@pytest.mark.usefixtures("generated_code")
def test_a_log_line_becomes_an_event(records: Records) -> None:
    from kafkacompat.pipeline.jobs import logs
    from kafkacompat.pipeline.jobs.validation import valid_events

    headers = [("source", b"web1/access.log"), ("file", b"8:1234"), ("position", b"77")]
    (found,) = rows(
        logs.event_rows(valid_events(logs.validate(records("logs.raw", LINE.encode(), headers=headers))))
    )
    assert found == {
        "event_id": "8:1234@77",
        "event_time_ms": RECEIVED_MS,
        "source": "web1/access.log",
        "client": "192.0.2.7",
        "user": "ann",
        "method": "GET",
        "path": "/a?b=c",
        "protocol": "HTTP/1.1",
        "status": 200,
        "bytes": 512,
        "referrer": 'https://example.org/"x"',
        "user_agent": "Mozilla/5.0 (X11)",
        "virtual_host": None,
        "extra": None,
        "date": "2026-09-21",
        "hour": "14",
    }


def test_what_stands_about_the_combined_format_is_kept(records: Records) -> None:
    from kafkacompat.pipeline.jobs import logs
    from kafkacompat.pipeline.jobs.validation import valid_events

    lines = [LINE + ' "198.51.100.9" 0.003', "www.example.org:443 " + LINE, LINE + ' "-"']
    found = rows(logs.event_rows(valid_events(logs.validate(records("logs.raw", *map(str.encode, lines))))))
    assert [(row["client"], row["virtual_host"], row["extra"]) for row in found] == [
        ("192.0.2.7", None, {"rest": '"198.51.100.9" 0.003'}),
        ("192.0.2.7", "www.example.org", None),
        ("192.0.2.7", None, {"rest": '"-"'}),
    ]


def test_lines_of_a_format_of_ones_own(records: Records) -> None:
    from kafkacompat.pipeline import queries
    from kafkacompat.pipeline.options import RunOptions

    form = '$remote_addr [$time_iso8601] "$request_method $uri" $status $request_time "$http_user_agent"'
    lines = [
        '192.0.2.7 [2026-09-21T14:13:20+00:00] "GET /a" 200 0.003 "curl"',
        '192.0.2.7 [2026-09-21T16:13:20+02:00] "GET /a" 204 - ""',
        LINE,
        '192.0.2.7 [21/Sep/2026:14:13:20 +0000] "GET /a" 200 0.003 "curl"',
        '192.0.2.7 [2026-09-21T14:13:20+00:00] "GET /a" 2xx 0.003 "curl"',
    ]
    options = RunOptions(jobs=("logs",), checkpoint="", output="", log_format=form)
    frame = records("logs.raw", *map(str.encode, lines))
    names = ["event_time_ms", "method", "path", "status", "bytes", "user_agent", "extra"]
    assert sorted(
        tuple(str(row[name]) for name in names)
        for row in rows(queries.LOGS.query("logs-events").build(frame, options))
    ) == [
        (str(RECEIVED_MS), "GET", "None", "200", "0", "curl", "{'uri': '/a', 'request_time': '0.003'}"),
        (str(RECEIVED_MS), "GET", "None", "204", "0", "None", "{'uri': '/a'}"),
    ]
    told = [value_of(record) for record in rows(queries.LOGS.query("logs-rejected").build(frame, options))]
    time = "malformed line: field 2 ($time_iso8601): expected ` [` and then a time such as 2026-09-21T14:13:20.250+00:00"
    status = 'malformed line: field 5 ($status): expected `" ` and then a number of 3 digits'
    assert [each["reason"] for each in told] == [time, time, status]


@pytest.mark.parametrize("headers", [None, [], [("source", b"web2")], [("file", b"8:1"), ("position", None)]])
def test_a_line_without_position_is_known_by_its_place_in_the_topic(
    records: Records, headers: list[tuple[str, bytes]] | None
) -> None:
    from kafkacompat.pipeline.jobs import logs

    (found,) = rows(logs.validate(records("logs.raw", LINE.encode(), headers=headers)))
    assert found["event_id"] == "logs.raw-0-0"
    assert found["source"] == ("web2" if headers == [("source", b"web2")] else "key")


GOOD_LINES = {
    '::1 - - [21/Sep/2026:16:13:20 +0200] "-" 408 -': (RECEIVED_MS, None, "-", None, 408, 0, None, None),
    '::1 - - [21/Sep/2026:14:13:20 +0000] "\\x16\\x03 a" 400 3 "-" "-"': (
        RECEIVED_MS,
        None,
        "\x16\x03 a",
        None,
        400,
        3,
        None,
        None,
    ),
    '::1 - - [21/Sep/2026:14:13:20 +0000] "HEAD / HTTP/2.0" 304 0 "" "\u00e9"': (
        RECEIVED_MS,
        "HEAD",
        "/",
        "HTTP/2.0",
        304,
        0,
        None,
        "\u00e9",
    ),
}
TIME_WANTED = (
    "malformed line: field 4 (time): expected ` [` and then a time such as 21/Sep/2026:14:13:20 +0000"
)
STATUS_WANTED = 'malformed line: field 6 (status): expected `" ` and then a number of 3 digits'
BAD_LINES = {
    b"": "malformed line: field 1 (client): expected a word",
    b"GET /": "malformed line: field 3 (user): expected text",
    LINE.replace("21/Sep", "41/Sep").encode(): "malformed line: time: there is no such date or time of day",
    LINE.replace("200", "2xx").encode(): STATUS_WANTED,
    LINE.encode()
    + b' "trailing': "malformed line: after field 7 (bytes): expected the end, a referrer and a user agent "
    "in quotes, or other whole fields",
    LINE.replace(
        " 512 ", " 9999999999999 "
    ).encode(): "malformed line: field 7 (bytes): expected a number of at most 12 digits, or -",
    LINE.replace("GET", "\u0001GET").encode(): "malformed line: it contains the character U+0001",
    # This is no log format, but it has the mark at which the job splits lines.
    "::1|-|21/Sep/2026:14:13:20 +0000|GET / HTTP/1.1|200|3|-|-".replace(
        "|", "\u0001"
    ).encode(): "malformed line: it contains the character U+0001",
    LINE.replace("2026", "2027").encode(): "future timestamp",
    LINE.replace("2026", "1999").encode(): "ancient timestamp",
    LINE.encode() + b"x" * LINE_BYTES_MAX: "oversized record",
    # These lines make a backtracking pattern slow, and overflow the stack of a recursive one.
    b'::1 - - [21/Sep/2026:14:13:20 +0000] "' + rb"\"" * 250_000: STATUS_WANTED,
    b'::1 - - [21/Sep/2026:14:13:20 +0000] "' + b'a" ' * 170_000: STATUS_WANTED,
    b"::1 - " + b"a [" * 170_000: TIME_WANTED,
    b"\0" * 500_000: "malformed line: field 1 (client): expected a word",
}


def test_odd_lines_are_events_where_the_server_wrote_them(records: Records) -> None:
    from kafkacompat.pipeline.jobs import logs
    from kafkacompat.pipeline.jobs.validation import valid_events

    found = rows(
        logs.event_rows(valid_events(logs.validate(records("logs.raw", *map(str.encode, GOOD_LINES)))))
    )
    names = ["event_time_ms", "method", "path", "protocol", "status", "bytes", "referrer", "user_agent"]
    assert [tuple(row[name] for name in names) for row in found] == list(GOOD_LINES.values())


def test_bad_lines_are_rejected_with_their_reason(records: Records) -> None:
    from kafkacompat.pipeline.jobs import logs
    from kafkacompat.pipeline.jobs.validation import rejected

    found = rows(rejected(logs.validate(records("logs.raw", *BAD_LINES))))
    assert [row["reason"] for row in found] == list(BAD_LINES.values())


def test_a_summary_counts_a_minute(records: Records) -> None:
    from kafkacompat.pipeline.jobs import logs
    from kafkacompat.pipeline.jobs.validation import valid_events

    lines = [LINE.replace(" 200 ", f" {status} ").encode() for status in (200, 204, 301, 404, 500, 503, 101)]
    (found,) = rows(logs.summary(valid_events(logs.validate(records("logs.raw", *lines)))))
    start = RECEIVED_MS // 60_000 * 60_000
    assert found == {
        "window_start_ms": start,
        "window_end_ms": start + 60_000,
        "requests": 7,
        "bytes": 7 * 512,
        "status_2xx": 2,
        "status_3xx": 1,
        "status_4xx": 1,
        "status_5xx": 2,
    }


def activity_events(records: Records, *events: dict[str, Any]) -> DataFrame:
    from kafkacompat.pipeline.jobs import activity
    from kafkacompat.pipeline.jobs.validation import valid_events

    views = [encoded(event) for event in events if "page" in event]
    searches = [encoded(event) for event in events if "page" not in event]
    arrival_ms = RECEIVED_MS + 10 * 60_000
    frame = records("activity.page_views", *views, received_ms=arrival_ms)
    frame = frame.union(records("activity.searches", *searches, received_ms=arrival_ms))
    return valid_events(activity.validate(frame))


def view(number: int, user: str, after_s: int, page: str) -> dict[str, Any]:
    return VIEW | {
        "event_id": f"v-{number}",
        "user_id": user,
        "event_time_ms": RECEIVED_MS + after_s * 1000,
        "page": page,
    }


def search(number: int, user: str, after_s: int) -> dict[str, Any]:
    moment = RECEIVED_MS + after_s * 1000
    return {"event_id": f"s-{number}", "user_id": user, "event_time_ms": moment, "query": "q", "results": 0}


def test_a_gap_ends_a_session(records: Records) -> None:
    from kafkacompat.pipeline.jobs import activity

    events = activity_events(
        records,
        view(1, "ann", 0, "/a"),
        search(1, "ann", 20),
        view(2, "ann", 40, "/b"),
        view(3, "ann", 71, "/c"),
        search(2, "bob", 10),
    )
    found = {
        (row["user_id"], row["session_start_ms"] - RECEIVED_MS): row
        for row in rows(activity.sessions(events, 30))
    }
    assert found.keys() == {("ann", 0), ("ann", 71_000), ("bob", 10_000)}
    first = found["ann", 0]
    assert first["session_end_ms"] - RECEIVED_MS == 40_000
    assert (first["page_views"], first["searches"]) == (2, 1)
    assert (first["first_page"], first["last_page"]) == ("/a", "/b")
    only_searched = found["bob", 10_000]
    assert (only_searched["page_views"], only_searched["searches"]) == (0, 1)
    assert (only_searched["first_page"], only_searched["last_page"]) == (None, None)


@pytest.mark.usefixtures("generated_code")
def test_pages_are_ranked_and_visitors_counted_once(records: Records) -> None:
    from kafkacompat.pipeline.jobs import activity

    events = activity_events(
        records,
        *(view(n, "ann", 0, "/b") for n in range(3)),
        view(10, "bob", 1, "/a"),
        view(11, "ann", 2, "/a"),
        view(12, "cid", 2, "/c"),
        view(13, "cid", 3, "/c"),
        search(1, "dan", 4),
    )
    start = RECEIVED_MS // 60_000 * 60_000
    ranked = [
        (row["rank"], row["page"], row["views"], row["visitors"])
        for row in rows(activity.top_page_rows(events, 60))
    ]
    assert ranked == [(1, "/b", 3, 1), (2, "/a", 2, 2), (3, "/c", 2, 1)]
    (visitors,) = rows(activity.visitor_rows(events, 60))
    assert visitors == {
        "window_start_ms": start,
        "window_end_ms": start + 60_000,
        "views": 7,
        "searches": 1,
        "visitors": 4,
        "date": "2026-09-21",
    }
    live = rows(activity.live_windows(events, 60))
    (whole,) = [row for row in live if row["whole"]]
    assert (whole["views"], whole["searches"], whole["visitors"]) == (7, 1, 4)
    pages = {row["page"]: (row["views"], row["visitors"]) for row in live if not row["whole"]}
    assert pages == {"/b": (3, 1), "/a": (2, 2), "/c": (2, 1)}


def test_no_more_pages_than_the_bound_are_ranked(records: Records) -> None:
    from kafkacompat.pipeline.jobs import activity

    many = [view(n, "ann", 0, f"/{n:03}") for n in range(activity.TOP_PAGES_A_WINDOW + 5)]
    found = rows(activity.top_page_rows(activity_events(records, *many), 60))
    assert [row["rank"] for row in found] == list(range(1, activity.TOP_PAGES_A_WINDOW + 1))
    assert [row["page"] for row in found] == [f"/{n:03}" for n in range(activity.TOP_PAGES_A_WINDOW)]


def rounded(latency_us: int) -> int:
    """Round to three significant digits, half up."""
    unit = 10 ** max(len(str(latency_us)) - 3, 0)
    return (latency_us + unit // 2) // unit * unit


def test_percentiles_are_the_nearest_rank_of_rounded_latencies(records: Records) -> None:
    from kafkacompat.pipeline.jobs import metrics
    from kafkacompat.pipeline.jobs.validation import valid_events

    latencies = [0.0, 0.4567, 1.2345, 9.996, 123.4567, 99_999.5, *(float(n) * 1.7 for n in range(1, 95))]
    samples = [
        encoded(SAMPLE, event_id=f"m-{n}", latency_ms=latency, error=n % 4 == 0, cpu_percent=n % 7)
        for n, latency in enumerate(latencies)
    ]
    (found,) = rows(metrics.window_rows(valid_events(metrics.validate(records("metrics.raw", *samples))), 60))
    whole = [math.floor(latency * 1000 + 0.5) for latency in latencies]
    order = sorted(map(rounded, whole))
    for percentile in (50, 95, 99):
        rank = math.ceil(len(order) * percentile / 100)
        assert found[f"latency_p{percentile}_ms"] == order[rank - 1] / 1000
    assert found["count"] == len(latencies)
    assert found["latency_mean_ms"] == pytest.approx(sum(whole) / len(whole) / 1000)
    assert found["error_rate"] == 25 / 100
    assert found["cpu_mean_percent"] == pytest.approx(sum(n % 7 for n in range(100)) / 100)


def test_cpu_is_judged_by_the_cores_there_are(records: Records) -> None:
    from kafkacompat.pipeline.jobs import metrics
    from kafkacompat.pipeline.jobs.validation import rejected, valid_events

    busy = [
        encoded(SAMPLE, event_id=f"b-{n}", service="busy", cpu_percent=720, cpu_cores=8) for n in range(20)
    ]
    idle = [
        encoded(SAMPLE, event_id=f"i-{n}", service="idle", cpu_percent=240, cpu_cores=8) for n in range(20)
    ]
    validated = metrics.validate(records("metrics.raw", *busy, *idle, encoded(SAMPLE, cpu_cores=0)))
    assert [row["reason"] for row in rows(rejected(validated))] == ["out of range: cpu_cores"]
    for made in (metrics.window_rows, metrics.live_windows):
        found = rows(made(valid_events(validated), 60))
        assert {row["service"]: row["cpu_mean_percent"] for row in found} == {"busy": 90.0, "idle": 30.0}


def test_the_latest_sample_goes_by_event_time(records: Records) -> None:
    from kafkacompat.pipeline.jobs import metrics
    from kafkacompat.pipeline.jobs.validation import valid_events

    values = [
        encoded(SAMPLE, event_id=f"m-{n}", event_time_ms=RECEIVED_MS + offset, host=f"h{n}")
        for n, offset in enumerate([-5, -1, -8])
    ]
    (found,) = rows(metrics.latest(valid_events(metrics.validate(records("metrics.raw", *values)))))
    assert (found["host"], found["event_time_ms"]) == ("h1", RECEIVED_MS - 1)


def test_an_event_ahead_of_its_arrival_counts_at_its_arrival(records: Records) -> None:
    """What it says of its time is kept."""
    from kafkacompat.pipeline.jobs import metrics
    from kafkacompat.pipeline.jobs.validation import valid_events

    ahead_ms = 5 * 60_000
    values = [
        encoded(SAMPLE, event_id=f"m-{n}", event_time_ms=RECEIVED_MS + offset, host=f"h{n}")
        for n, offset in enumerate([ahead_ms, -7])
    ]
    events = valid_events(metrics.validate(records("metrics.raw", *values)))
    found = {row["host"]: row for row in rows(events.selectExpr("*", "unix_millis(event_time) AS counts_at"))}
    assert {host: row["event_time_ms"] - RECEIVED_MS for host, row in found.items()} == {
        "h0": ahead_ms,
        "h1": -7,
    }
    assert {host: row["counts_at"] - RECEIVED_MS for host, row in found.items()} == {"h0": 0, "h1": -7}
    later = records("metrics.raw", encoded(SAMPLE, host="h2"), received_ms=RECEIVED_MS + 1)
    next_ms = records(
        "metrics.raw", encoded(SAMPLE, host="h3", event_time_ms=RECEIVED_MS + 1), received_ms=RECEIVED_MS + 1
    )
    (latest,) = rows(metrics.latest(valid_events(metrics.validate(later.union(next_ms))).unionByName(events)))
    assert latest["host"] == "h3", "the clock that is ahead does not hide later samples"


def test_result_records_have_the_same_id_whenever_they_are_made(records: Records) -> None:
    from kafkacompat.pipeline import queries
    from kafkacompat.pipeline.alerting import window_records
    from kafkacompat.pipeline.options import RunOptions

    options = RunOptions(jobs=("metrics",), checkpoint="", output="")
    slow = [encoded(SAMPLE, event_id=f"m-{n}", latency_ms=600 + n) for n in range(40)]

    def made(values: list[bytes]) -> str:
        (found,) = rows(window_records(queries.metrics_live(records("metrics.raw", *values), options)))
        assert (found["topic"], found["key"]) == ("metrics.windows", f"shop|{RECEIVED_MS // 60_000 * 60_000}")
        return str(value_of(found)["event_id"])

    assert made(slow) == made(slow[::-1]) != made(slow[:30])


def test_a_table_has_its_partition_columns_and_its_event_ids_leave_them_out(records: Records) -> None:
    from pyspark.sql import functions as F

    from kafkacompat.pipeline import queries
    from kafkacompat.pipeline.options import RunOptions
    from kafkacompat.pipeline.results import with_event_id
    from kafkacompat.pipeline.tables import PARTITION_COLUMNS, partitioned_by

    options = RunOptions(jobs=tuple(queries.QUERIES), checkpoint="", output="")
    for query in itertools.chain.from_iterable(queries.QUERIES.values()):
        if query.table is None:
            continue
        columns = query.build(records(query.reads[0]), options).columns
        assert [name for name in columns if name in PARTITION_COLUMNS] == list(partitioned_by(query.table))
    rest = records("metrics.raw", b"a", b"b").select("key", "value")
    whole = rest.withColumns({name: F.col("value").cast("string") for name in PARTITION_COLUMNS})
    ids, same = (rows(with_event_id("table", frame, ["key"]).select("event_id")) for frame in (rest, whole))
    assert ids == same


def test_keys_of_several_columns_differ_where_the_columns_do(records: Records) -> None:
    from pyspark.sql import functions as F

    from kafkacompat.pipeline.results import joined

    pairs = [
        ("a", "b"),
        ("a|b", "c"),
        ("a", "b|c"),
        ("a\\", "|b"),
        ("a|", "b"),
        (None, "a"),
        ("a", None),
        ("a", "\\N"),
    ]
    first, second = (F.element_at(F.split("value", " "), place) for place in (1, 2))
    frame = records("metrics.raw", *(" ".join(part or "null" for part in pair).encode() for pair in pairs))
    frame = frame.select(F.decode("value", "UTF-8").alias("value"))
    parts = [F.nullif(part, F.lit("null")) for part in (first, second)]
    keys = [found["key"] for found in rows(frame.select(joined(parts).alias("key")))]
    assert keys == ["a|b", "a\\|b|c", "a|b\\|c", "a\\\\|\\|b", "a\\||b", "\\N|a", "a|\\N", "a|\\\\N"]
    (alone, *_) = rows(frame.select(joined([F.lit("a|b")]).alias("key")))
    assert alone["key"] == "a|b"


def test_a_copy_counts_once(records: Records) -> None:
    from kafkacompat.pipeline import queries
    from kafkacompat.pipeline.options import RunOptions

    headers = [("file", b"8:1"), ("position", b"5")]
    frame = records("logs.raw", LINE.encode(), LINE.encode(), headers=headers)
    options = RunOptions(jobs=("logs",), checkpoint="", output="")
    (summary,) = rows(queries.LOGS.query("logs-summary").build(frame, options))
    assert value_of(summary)["requests"] == 1
    (event,) = rows(queries.LOGS.query("logs-events").build(frame, options))
    assert event["event_id"] == "8:1@5"


def test_the_sketch_of_few_visitors_is_small_and_of_many_close(spark: SparkSession) -> None:
    from pyspark.sql import functions as F

    from kafkacompat.pipeline.jobs import activity

    few, many = 3, 20_000
    users = spark.range(many).select(F.concat(F.lit("user-"), F.col("id")).alias("user_id"))

    def sketch(count: int) -> dict[str, Any]:
        made = F.hll_sketch_agg("user_id", activity.VISITORS_SKETCH_LG_K)
        frame = users.limit(count).agg(made.alias("made"))
        return rows(
            frame.select(F.length("made").alias("bytes"), F.hll_sketch_estimate("made").alias("count"))
        )[0]

    assert sketch(few)["count"] == few
    assert sketch(few)["bytes"] < 100
    assert abs(sketch(many)["count"] / many - 1) < 0.03


def test_live_pages_have_the_same_ids_in_whatever_order_their_views_came(records: Records) -> None:
    from kafkacompat.pipeline import queries
    from kafkacompat.pipeline.options import RunOptions

    options = RunOptions(jobs=("activity",), checkpoint="", output="")
    views = [encoded(view(n, f"user-{n % 37}", n % 50, "/a")) for n in range(200)]

    def ids(values: list[bytes]) -> dict[tuple[str, str], str]:
        found = rows(queries.activity_live(records("activity.page_views", *values), options))
        return {(record["topic"], record["key"]): value_of(record)["event_id"] for record in found}

    assert ids(views) == ids(views[::-1])


def test_each_task_writes_a_file_of_each_hour(records: Records) -> None:
    """With files_per_batch tasks, each task has the same amount of work."""
    from pyspark.sql import functions as F

    from kafkacompat.pipeline import queries
    from kafkacompat.pipeline.options import RunOptions

    options = RunOptions(jobs=("logs",), checkpoint="", output="", files_per_batch=2)
    lines = [LINE.replace(":14:13:", f":{hour:02}:13:").encode() for hour in range(14) for _ in range(20)]
    events = queries.LOGS.query("logs-events").build(records("logs.raw", *lines), options)
    found = {(row["hour"], row["task"]) for row in rows(events.withColumn("task", F.spark_partition_id()))}
    assert found == {(f"{hour:02}", task) for hour in range(14) for task in (0, 1)}


def test_a_record_from_the_future_arrived_now(records: Records) -> None:
    from kafkacompat.pipeline.jobs.validation import cap_timestamps

    future_ms = 4_000_000_000_000
    (kept,) = rows(cap_timestamps(records("logs.raw", b"")))
    (ahead,) = rows(cap_timestamps(records("logs.raw", b"", received_ms=future_ms)))
    assert kept["timestamp"].timestamp() * 1000 == RECEIVED_MS
    assert ahead["timestamp"].timestamp() * 1000 < future_ms


@pytest.mark.usefixtures("generated_code")
def test_a_batch_runs_the_compiled_code_of_the_one_before(spark: SparkSession, tmp_path: Path) -> None:
    """The time of a batch is a constant of its plan, and not of the code."""
    from kafkacompat.pipeline.jobs.validation import cap_timestamps

    place, checkpoint = str(tmp_path / "source"), str(tmp_path / "checkpoint")
    jvm: Any = spark.sparkContext._jvm
    compiled = jvm.org.apache.spark.metrics.source.CodegenMetrics.METRIC_COMPILATION_TIME()
    counts = []
    for number in range(4):
        spark.createDataFrame([(b"{}", number)], "value binary, ms bigint").selectExpr(
            "value", "timestamp_millis(ms) AS timestamp"
        ).write.mode("append").parquet(place)
        capped = cap_timestamps(spark.readStream.schema("value binary, timestamp timestamp").parquet(place))
        before = compiled.getCount()
        query = capped.writeStream.option("checkpointLocation", checkpoint).format("noop")
        query.trigger(availableNow=True).start().awaitTermination()
        counts.append(compiled.getCount() - before)
    assert counts[0] > 0
    assert counts[-1] == 0
