"""The three jobs from end to end: known events, the command, and every table and topic compared with plain Python.

The events contain copies, late events, and every kind of invalid record.
"""

from __future__ import annotations

import json
import os
import re
import signal
from calendar import timegm
from collections import Counter, defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from time import strptime
from typing import TYPE_CHECKING, Any

import pytest

from interop_tests.harness.waiting import wait_until
from interop_tests.pipeline import model
from interop_tests.pipeline.known_input import HOUR_MS, INPUTS, MINUTE_MS, KnownInput, more_activity
from interop_tests.pipeline.reference import BOUNDS, JOBS, OPTIONS, Reference
from interop_tests.pipeline.runs import (
    TABLES,
    JobRun,
    Results,
    forget_last_commits,
    read_results,
    read_table,
)
from kafkacompat.pipeline.queries import ACTIVITY
from kafkacompat.pipeline.tables import PARTITION_COLUMNS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.needs_control

LINE = re.compile(r'^(\S+) - - \[(.+?)\] "(\S+) (\S+) (\S+)" (\d+) (\d+) "-" "(.*)"$')
COMMAND_TIMEOUT_S = 240.0
TRIGGER_S = "2"
WITH_WATERMARK = tuple(each.name for each in ACTIVITY.queries if not each.name.endswith("-rejected"))
"""The queries of activity that have a watermark: all but the one for rejected records."""


def latest(reference: Reference, topic: str) -> dict[str, dict[str, Any]]:
    """The last value of each key, without its event_id."""
    return {key: without_id(value) for key, value in reference.results.latest(topic).items()}


def without_id(row: dict[str, Any]) -> dict[str, Any]:
    """A form of rows that is equal for equal contents."""
    return {name: value for name, value in row.items() if name not in {"event_id", *PARTITION_COLUMNS}}


def in_order(rows: Iterable[dict[str, Any]]) -> list[str]:
    return sorted(json.dumps(without_id(row), sort_keys=True) for row in rows)


def good_lines(given: KnownInput) -> dict[str, dict[str, Any]]:
    """The events of all valid log lines by event id, including late ones."""
    found = {}
    for entry in given.entries:
        match = LINE.match(entry.value.decode(errors="replace")) if entry.topic == "logs.raw" else None
        headers = dict(entry.headers)
        if match is None or "position" not in headers:
            continue
        client, stamp, method, path, protocol, status, size, agent = match.groups()
        event_id = f"{headers['file'].decode()}@{headers['position'].decode()}"
        found[event_id] = {
            "event_id": event_id,
            "event_time_ms": timegm(strptime(stamp, "%d/%b/%Y:%H:%M:%S +0000")) * 1000,
            "source": headers["source"].decode(),
            "client": client,
            "user": None,
            "method": method,
            "path": path,
            "protocol": protocol,
            "status": int(status),
            "bytes": int(size),
            "referrer": None,
            # The server writes a quote with a backslash before it.
            "user_agent": agent.replace('\\"', '"'),
            "virtual_host": None,
            "extra": None,
        }
    return found


def in_time(given: KnownInput, job: str) -> list[dict[str, Any]]:
    """Valid events of activity or metrics that are not late, each once."""
    found = {}
    for entry in given.entries:
        if entry.topic in INPUTS[job] and not entry.key.startswith("bad-"):
            event = json.loads(entry.value)
            if event["event_id"] in given.events[job]:
                found[event["event_id"]] = event
    return list(found.values())


def test_the_input_holds_what_is_to_be_told_apart(reference: Reference) -> None:
    """Also check that no result is empty."""
    given, results = reference.given, reference.results
    for job in JOBS:
        assert given.bad[job] > 10
        assert given.twice[job] > 10
        assert given.late[job] > 0
    assert all(results.tables.values())
    assert all(results.topics.values())


def test_each_bad_record_is_kept_with_its_reason(reference: Reference) -> None:
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for job in JOBS:
        for key, value in reference.results.topics[f"{job}.rejected"]:
            assert value["source"] == key
            found[key].append(value)
    for entry, reason in reference.given.hostile:
        (told,) = found.pop(entry.key)
        assert (told["topic"], told["reason"]) == (entry.topic, reason), entry.key
        assert told["received_ms"] == entry.timestamp_ms
        assert told["line"] == entry.value.decode(errors="replace")[:2048]
    assert set(found) == {f"bad-{n}" for n in range(5)}
    told_by_job = Counter(value["topic"].split(".")[0] for values in found.values() for value in values)
    assert told_by_job == Counter(reference.given.bad)


def test_every_good_line_is_in_its_hour_once(reference: Reference) -> None:
    """Copies are dropped, and late lines are kept."""
    wanted = good_lines(reference.given)
    assert len(wanted) == len(reference.given.events["logs"]) + reference.given.late["logs"]
    table = reference.run.output / "logs/events"
    folders = sorted({str(path.parent.relative_to(table)) for path in table.rglob("*.parquet")})
    assert all(re.fullmatch(r"date=\d{4}-\d\d-\d\d/hour=\d\d", folder) for folder in folders)
    rows = reference.results.rows("logs/events")
    assert len(rows) == len(wanted)
    for row in rows:
        hour = row["event_time_ms"] // HOUR_MS % 24
        assert int(row.pop("hour")) == hour
        assert row.pop("date") in folders[0] + folders[-1]
        assert row == wanted[row["event_id"]]


def test_the_summary_counts_lines_that_are_not_late(reference: Reference) -> None:
    late_before_ms = reference.given.entries[0].timestamp_ms - HOUR_MS // 2
    events = [
        event for event in good_lines(reference.given).values() if event["event_time_ms"] > late_before_ms
    ]
    assert len(events) == len(reference.given.events["logs"])
    found = {row["window_start_ms"]: row for row in latest(reference, "logs.summary").values()}
    assert found == model.summaries(events)


def test_sessions(reference: Reference) -> None:
    events = in_time(reference.given, "activity")
    wanted = model.closed_sessions(events, BOUNDS)
    assert in_order(reference.results.rows("activity/sessions")) == in_order(wanted)
    last = {}
    for session in sorted(wanted, key=lambda session: session["session_start_ms"]):
        last[session["user_id"]] = session
    assert latest(reference, "activity.sessions") == last


def test_top_pages_and_visitors(reference: Reference) -> None:
    events = in_time(reference.given, "activity")
    watermark = model.watermark_of(events, BOUNDS)
    pages = model.top_pages(events, BOUNDS.window_ms)
    counts = model.visitors(events, BOUNDS.window_ms)
    assert in_order(reference.results.rows("activity/top_pages")) == in_order(model.closed(pages, watermark))
    assert in_order(reference.results.rows("activity/visitors")) == in_order(
        model.closed(counts.values(), watermark)
    )
    # Includes open windows. With so few users the estimate is right within one.
    live = {row["window_start_ms"]: row for row in latest(reference, "activity.visitors").values()}
    assert live.keys() == counts.keys()
    for start, row in live.items():
        assert abs(row["visitors"] - counts[start]["visitors"]) <= 1
        assert row | {"visitors": 0} == counts[start] | {"visitors": 0}
    live_pages = {
        (row["page"], row["window_start_ms"]): row["views"]
        for row in latest(reference, "activity.top_pages").values()
    }
    assert live_pages == {(row["page"], row["window_start_ms"]): row["views"] for row in pages}


def test_metrics(reference: Reference) -> None:
    events = in_time(reference.given, "metrics")
    windows = model.service_windows(events, BOUNDS.window_ms)
    closed = model.closed(windows.values(), model.watermark_of(events, BOUNDS))
    rows = reference.results.rows("metrics/windows")
    found = {(row["service"], row["window_start_ms"]): without_id(row) for row in rows}
    assert len(found) == len(rows)
    assert found.keys() == {(row["service"], row["window_start_ms"]) for row in closed}
    for key, row in found.items():
        assert row == pytest.approx(windows[key])
    # Includes open windows.
    live = latest(reference, "metrics.windows").values()
    assert {(row["service"], row["window_start_ms"]) for row in live} == windows.keys()
    for row in live:
        wanted = windows[row["service"], row["window_start_ms"]]
        assert row["count"] == wanted["count"]
        assert row["error_rate"] == pytest.approx(wanted["error_rate"])
        assert row["latency_p95_ms"] == pytest.approx(wanted["latency_p95_ms"], rel=0.01)
    # Its late samples change nothing, because the latest sample is the one with the highest event time.
    names = (
        "service",
        "host",
        "event_time_ms",
        "latency_ms",
        "error",
        "cpu_percent",
        "memory_bytes",
        "cpu_cores",
    )
    wanted_latest = {
        service: {name: event.get(name) for name in names} for service, event in model.latest(events).items()
    }
    assert latest(reference, "metrics.latest") == wanted_latest


def test_alerts_fire_while_windows_break_a_rule_and_say_each_change_once(reference: Reference) -> None:
    windows = model.service_windows(in_time(reference.given, "metrics"), BOUNDS.window_ms)
    columns = {"error_rate": "error_rate", "latency_p95": "latency_p95_ms", "cpu": "cpu_mean_percent"}
    least = {"error_rate": 0.05, "latency_p95": 500.0, "cpu": 85.0}
    changes: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for key, change in reference.results.topics["metrics.alerts"]:
        assert key == f"{change['service']}|{change['rule']}"
        assert change["severity"] in ("warning", "critical")
        if change["state"] == "firing":
            assert change["value"] >= change["threshold"]
        changes[key].append(change)
    fires: dict[str, list[tuple[int, float]]] = defaultdict(list)
    for key, told in changes.items():
        since = None
        for change in told:
            if change["state"] == "resolved":
                assert since == change["since_ms"], "what is resolved has fired"
                fires[key].append((since, change["window_start_ms"]))
                since = None
            else:
                # It fires again only when it becomes critical.
                assert since in (None, change["since_ms"])
                since = change["since_ms"]
        if since is not None:
            fires[key].append((since, float("inf")))
    assert len(changes) == len(fires)
    # An alert may fire early in a window that then gets better. It fires in all windows that break the rule as a
    # whole.
    deserved = [
        (f"{service}|{rule}", start)
        for (service, start), row in windows.items()
        for rule, column in columns.items()
        if row["count"] >= 20 and row[column] >= least[rule] * 1.02
    ]
    assert deserved
    for key, start in deserved:
        assert any(begin <= start < end for begin, end in fires[key]), (key, start, changes[key])


def test_copies_and_late_events_are_counted(reference: Reference) -> None:
    """The first stateful operator of a query sees every event once, so its counts are those of the input."""
    late: Counter[str] = Counter()
    copies: Counter[str] = Counter()
    for progress in reference.progress:
        for operator in progress["stateOperators"]:
            late[progress["name"]] += operator["numRowsDroppedByWatermark"]
            copies[progress["name"]] += operator.get("customMetrics", {}).get("numDroppedDuplicateRows", 0)
    given = reference.given
    assert late["logs-events"] == 0
    assert copies["logs-events"] == given.twice["logs"]
    for job, query in (("logs", "logs-summary"), ("activity", "activity-live"), ("metrics", "metrics-live")):
        # A copy of a late event is late too.
        assert given.late[job] <= late[query] <= given.late[job] + given.twice[job], query
        assert late[query] + copies[query] == given.late[job] + given.twice[job], query


def by_event_id(results: Results) -> dict[tuple[str, str], str]:
    """The first value of each id of each topic."""
    return {
        (topic, value["event_id"]): json.dumps(value, sort_keys=True)
        for topic, records in results.topics.items()
        for _, value in reversed(records)
    }


def have_watermark(run: JobRun, queries: Iterable[str], watermark_ms: int) -> bool:
    """Wait until each of these queries has completed a batch with this watermark or a later one."""
    moment = datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=watermark_ms)
    wanted = moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    reached = set()
    # The last line may be incomplete.
    for line in run.progress.read_text().rpartition("\n")[0].splitlines():
        progress = json.loads(line)
        if progress.get("eventTime", {}).get("watermark", "") >= wanted:
            reached.add(progress["name"])
    return reached >= set(queries)


def test_a_run_goes_on_with_the_windows_that_the_last_one_left_open(
    reference: Reference, spark: SparkSession
) -> None:
    """Open windows are in no table then, and the next run writes them: nothing twice, and nothing taken back. Ctrl-C
    stops it cleanly.

    The last batches are not committed either, as after a driver that died just before the commit. They run again, and
    write their result records once more with the same ids.
    """
    tables = TABLES["activity"]
    events = in_time(reference.given, "activity")
    starts = {row["window_start_ms"] for row in reference.results.rows("activity/visitors")}
    open_windows = set(model.by_window(events, BOUNDS.window_ms)) - starts
    assert open_windows
    assert min(open_windows) > max(starts)

    more = more_activity(reference.given, 30 * MINUTE_MS)
    reference.given.send_some(reference.bootstrap, more)
    events += [json.loads(entry.value) for entry in more]
    watermark = model.watermark_of(events, BOUNDS)
    wanted = {
        "activity/sessions": model.closed_sessions(events, BOUNDS),
        "activity/top_pages": model.closed(model.top_pages(events, BOUNDS.window_ms), watermark),
        "activity/visitors": model.closed(model.visitors(events, BOUNDS.window_ms).values(), watermark),
    }

    forget_last_commits(reference.run.checkpoint, "activity")
    options = (*OPTIONS, "--trigger", TRIGGER_S, "--table-trigger", TRIGGER_S)
    run = JobRun("activity", reference.bootstrap, reference.run.root, *options, is_endless=True).begin()
    try:
        wait_until(
            lambda: have_watermark(run, WITH_WATERMARK, watermark) or not run.is_alive,
            "all windows that are over now are closed",
            COMMAND_TIMEOUT_S,
        )
        assert run.is_alive, run.said()
        # Spark would treat SIGINT as the end of its jobs. Here the exit status is 0, and the totals are printed.
        os.kill(run.pid, signal.SIGINT)
        assert run.end(COMMAND_TIMEOUT_S) == 0, run.said()
    finally:
        run.kill()
    for table in tables:
        found = [json.loads(row) for row in read_table(spark, reference.run, table)]
        assert Counter(in_order(reference.results.rows(table))) < Counter(in_order(found))
        assert in_order(found) == in_order(wanted[table]), table
    before, after = (
        reference.results.of(("activity",)),
        read_results(spark, reference.bootstrap, run, ("activity",)),
    )
    assert after.copies() > before.copies()
    assert by_event_id(before).items() <= by_event_id(after).items()
    said = run.log.read_text()
    assert "stopped; per query" in said
    assert "Traceback" not in said
