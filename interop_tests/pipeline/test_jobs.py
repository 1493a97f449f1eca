"""The three jobs from end to end: known events in, the command run, and every table and topic compared with plain Python.

One run over the first events and one over the rest, so that windows which the first leaves open are closed by the second.
Between them the events hold copies, late ones, and every kind of bad record.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from calendar import timegm
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from time import strptime
from typing import TYPE_CHECKING, Any

import pytest

from interop_tests.harness.broker import BrokerProcess, chosen_kind
from interop_tests.harness.kafka_jars import CHECKOUT
from interop_tests.harness.raw_kafka import create_topic
from interop_tests.harness.spark_cluster import SparkCluster, spark_environment, spark_home
from interop_tests.harness.waiting import wait_until
from interop_tests.pipeline import model
from interop_tests.pipeline.known_input import HOUR_MS, INPUTS, PARTITIONS, Entry, KnownInput, known_input
from interop_tests.pipeline.runs import IVY_DIR, QUICK_JVM, JobRun, read_topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.needs_control

SEED = 11
EVENTS_A_JOB = 3000
# Windows long enough for the samples that an alert needs.
BOUNDS = model.Bounds(window_ms=300_000, session_gap_ms=120_000)
OPTIONS = ("--window", "300", "--session-gap", "120", "--trigger", "1", "--table-trigger", "1")
SUBMIT = CHECKOUT / "kafkacompat" / "pipeline" / "submit.py"
CONNECTOR = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0"
LINE = re.compile(r'^(\S+) - - \[(.+?)\] "(\S+) (\S+) (\S+)" (\d+) (\d+) "-" "(.*)"$')
COMMAND_TIMEOUT_S = 120.0
CLUSTER_TIMEOUT_S = 150.0


@dataclass
class Ran:
    """What was sent and what the runs left."""

    bootstrap: str
    run: JobRun
    given: KnownInput
    hostile: list[tuple[Entry, str]]
    first: dict[str, list[dict[str, Any]]]
    """Tables after the first run."""
    tables: dict[str, list[dict[str, Any]]]
    folders: list[str]
    """Folders of logs/events that hold files."""

    def topic(self, name: str) -> dict[str, dict[str, Any]]:
        """The last value of each key; its event_id left out."""
        return {key: without_id(value) for key, value in read_topic(self.bootstrap, name)}


def without_id(row: dict[str, Any]) -> dict[str, Any]:
    """Equal for rows that say the same."""
    return {name: value for name, value in row.items() if name not in ("event_id", "date", "hour")}


def in_order(rows: Iterable[dict[str, Any]]) -> list[str]:
    return sorted(json.dumps(without_id(row), sort_keys=True) for row in rows)


def hostile_records(received_ms: int) -> list[tuple[Entry, str]]:
    """Every kind of bad record, and the reason that is to be given for it."""
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
        ("logs.raw", b"no line at all \xff", "malformed line"),
        ("logs.raw", (line % "01/Jan/2099:00:00:00 +0000").encode(), "future timestamp"),
        ("logs.raw", (line % "01/Jan/1999:00:00:00 +0000").encode(), "ancient timestamp"),
        ("logs.raw", b'192.0.2.1 - - [01/Jan/1999:00:00:00 +0000] "' + rb"\"" * 40_000, "oversized record"),
        ("activity.page_views", b'{"event_id": ', "malformed JSON"),
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


def read_tables(spark: SparkSession, output: Path) -> dict[str, list[dict[str, Any]]]:
    """Every table by Spark's commit log."""
    names = ("logs/events", "activity/sessions", "activity/top_pages", "activity/visitors", "metrics/windows")
    found = {}
    for name in names:
        assert (output / name / "_spark_metadata").is_dir(), name
        rows = spark.read.parquet(str(output / name)).selectExpr(
            "to_json(struct(*), map('ignoreNullFields', 'false')) AS row"
        )
        found[name] = [json.loads(row["row"]) for row in rows.collect()]
    return found


@pytest.fixture(scope="module")
def ran(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ran]:
    """Two runs of all jobs over one checkpoint: half of the events, then the rest."""
    folder = tmp_path_factory.mktemp("jobs")
    broker = BrokerProcess(chosen_kind(), folder / "broker").start()
    try:
        given = known_input(SEED, EVENTS_A_JOB)
        hostile = hostile_records(given.entries[0].timestamp_ms)
        entries = sorted(given.entries, key=lambda entry: entry.timestamp_ms)
        half = len(entries) // 2
        run = JobRun("all", broker.bootstrap, folder / "run", *OPTIONS, master="local[2]")
        for name in (name for names in INPUTS.values() for name in names):
            create_topic(broker.bootstrap, name, PARTITIONS, {"retention.ms": "-1"})
        given.send_some(broker.bootstrap, [entry for entry, _ in hostile] + entries[:half])
        assert run.begin().end() == 0, run.said()
        first = read_tables(spark, run.output)
        given.send_some(broker.bootstrap, entries[half:])
        assert run.begin().end() == 0, run.said()
        folders = sorted(
            {
                str(path.parent.relative_to(run.output / "logs/events"))
                for path in (run.output / "logs/events").rglob("*.parquet")
            }
        )
        yield Ran(broker.bootstrap, run, given, hostile, first, read_tables(spark, run.output), folders)
    finally:
        broker.kill()


def good_lines(given: KnownInput) -> dict[str, dict[str, Any]]:
    """The events of all good log lines by event id, late ones too."""
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
            "user_agent": agent,
        }
    return found


def in_time(given: KnownInput, job: str) -> list[dict[str, Any]]:
    """Good events of activity or metrics that are not late, each once."""
    found = {}
    for entry in given.entries:
        if entry.topic in INPUTS[job] and not entry.key.startswith("bad-"):
            event = json.loads(entry.value)
            if event["event_id"] in given.events[job]:
                found[event["event_id"]] = event
    return list(found.values())


def test_each_bad_record_is_kept_with_its_reason(ran: Ran) -> None:
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for topic in ("logs.rejected", "activity.rejected", "metrics.rejected"):
        for key, value in read_topic(ran.bootstrap, topic):
            assert value["source"] == key
            found[key].append(value)
    for entry, reason in ran.hostile:
        (told,) = found.pop(entry.key)
        assert (told["topic"], told["reason"]) == (entry.topic, reason), entry.key
        assert told["received_ms"] == entry.timestamp_ms
        assert told["line"] == entry.value.decode(errors="replace")[:2048]
    assert set(found) == {f"bad-{n}" for n in range(5)}
    told_by_job = Counter(value["topic"].split(".")[0] for values in found.values() for value in values)
    assert told_by_job == Counter(ran.given.bad)


def test_every_good_line_is_in_its_hour_once(ran: Ran) -> None:
    """Copies are dropped, and lines that come late are kept."""
    wanted = good_lines(ran.given)
    assert len(wanted) == len(ran.given.events["logs"]) + ran.given.late["logs"]
    rows = ran.tables["logs/events"]
    assert len(rows) == len(wanted)
    for row in rows:
        hour = row["event_time_ms"] // HOUR_MS % 24
        assert int(row.pop("hour")) == hour
        assert row.pop("date") in ran.folders[0] + ran.folders[-1]
        assert row == wanted[row["event_id"]]
    assert all(re.fullmatch(r"date=\d{4}-\d\d-\d\d/hour=\d\d", folder) for folder in ran.folders)


def test_the_summary_counts_lines_that_are_not_late(ran: Ran) -> None:
    late_before_ms = ran.given.entries[0].timestamp_ms - HOUR_MS // 2
    events = [event for event in good_lines(ran.given).values() if event["event_time_ms"] > late_before_ms]
    assert len(events) == len(ran.given.events["logs"])
    found = {row["window_start_ms"]: row for row in ran.topic("logs.summary").values()}
    assert found == model.summaries(events)


def test_sessions(ran: Ran) -> None:
    events = in_time(ran.given, "activity")
    wanted = model.closed_sessions(events, BOUNDS)
    assert in_order(ran.tables["activity/sessions"]) == in_order(wanted)
    last = {}
    for session in sorted(wanted, key=lambda session: session["session_start_ms"]):
        last[session["user_id"]] = session
    assert ran.topic("activity.sessions") == last


def test_top_pages_and_visitors(ran: Ran) -> None:
    events = in_time(ran.given, "activity")
    watermark = model.watermark_of(events, BOUNDS)
    pages = model.top_pages(events, BOUNDS.window_ms)
    counts = model.visitors(events, BOUNDS.window_ms)
    assert in_order(ran.tables["activity/top_pages"]) == in_order(model.closed(pages, watermark))
    assert in_order(ran.tables["activity/visitors"]) == in_order(model.closed(counts.values(), watermark))
    # Open windows too; as few users as here the estimate tells within one.
    live = {row["window_start_ms"]: row for row in ran.topic("activity.visitors").values()}
    assert live.keys() == counts.keys()
    for start, row in live.items():
        assert abs(row["visitors"] - counts[start]["visitors"]) <= 1
        assert row | {"visitors": 0} == counts[start] | {"visitors": 0}
    live_pages = {
        (row["page"], row["window_start_ms"]): row["views"]
        for row in ran.topic("activity.top_pages").values()
    }
    assert live_pages == {(row["page"], row["window_start_ms"]): row["views"] for row in pages}


def test_metrics(ran: Ran) -> None:
    events = in_time(ran.given, "metrics")
    windows = model.service_windows(events, BOUNDS.window_ms)
    closed = model.closed(windows.values(), model.watermark_of(events, BOUNDS))
    found = {
        (row["service"], row["window_start_ms"]): without_id(row) for row in ran.tables["metrics/windows"]
    }
    assert len(found) == len(ran.tables["metrics/windows"])
    assert found.keys() == {(row["service"], row["window_start_ms"]) for row in closed}
    for key, row in found.items():
        assert row == pytest.approx(windows[key])
    for row in ran.topic("metrics.windows").values():
        wanted = windows[row["service"], row["window_start_ms"]]
        assert row["count"] == wanted["count"]
        assert row["error_rate"] == pytest.approx(wanted["error_rate"])
        assert row["latency_p95_ms"] == pytest.approx(wanted["latency_p95_ms"], rel=0.01)
    # Its late samples change nothing: the latest goes by event time.
    names = ("service", "host", "event_time_ms", "latency_ms", "error", "cpu_percent", "memory_bytes")
    wanted_latest = {
        service: {name: event[name] for name in names} for service, event in model.latest(events).items()
    }
    assert ran.topic("metrics.latest") == wanted_latest


def test_alerts_name_windows_that_break_a_rule(ran: Ran) -> None:
    windows = model.service_windows(in_time(ran.given, "metrics"), BOUNDS.window_ms)
    columns = {"error_rate": "error_rate", "latency_p95": "latency_p95_ms", "cpu": "cpu_mean_percent"}
    least = {"error_rate": 0.05, "latency_p95": 500.0, "cpu": 85.0}
    raised = set()
    for key, alert in read_topic(ran.bootstrap, "metrics.alerts"):
        assert key == f"{alert['service']}|{alert['rule']}|{alert['window_start_ms']}"
        assert alert["value"] >= alert["threshold"]
        assert alert["severity"] in ("warning", "critical")
        raised.add((alert["service"], alert["rule"], alert["window_start_ms"]))
    # An alert may come early and the window get better; none that the whole window deserves may be missing.
    deserved = {
        (service, rule, start)
        for (service, start), row in windows.items()
        for rule, column in columns.items()
        if row["count"] >= 20 and row[column] >= least[rule] * 1.02
    }
    assert deserved
    assert deserved <= raised


def test_a_run_that_has_caught_up_leaves_the_last_windows_open(ran: Ran) -> None:
    """They are in no table then, and the next run writes them: nothing twice, nothing taken back."""
    for name, rows in ran.first.items():
        before, after = Counter(in_order(rows)), Counter(in_order(ran.tables[name]))
        assert before <= after
        assert sum(after.values()) > sum(before.values()) > 0, name
    events = in_time(ran.given, "activity")
    starts = {row["window_start_ms"] for row in ran.tables["activity/visitors"]}
    open_windows = set(model.by_window(events, BOUNDS.window_ms)) - starts
    assert open_windows
    assert min(open_windows) > max(starts)


def test_copies_and_late_events_are_counted(ran: Ran) -> None:
    """The first stateful operator of a query sees every event once: its counts are those of the input."""
    late: Counter[str] = Counter()
    copies: Counter[str] = Counter()
    for line in ran.run.progress.read_text().splitlines():
        progress = json.loads(line)
        for operator in progress["stateOperators"]:
            late[progress["name"]] += operator["numRowsDroppedByWatermark"]
            copies[progress["name"]] += operator.get("customMetrics", {}).get("numDroppedDuplicateRows", 0)
    given = ran.given
    assert late["logs-events"] == 0
    assert copies["logs-events"] == given.twice["logs"]
    for job, query in (("logs", "logs-summary"), ("activity", "activity-live"), ("metrics", "metrics-live")):
        # A copy of a late event is late too.
        assert given.late[job] <= late[query] <= given.late[job] + given.twice[job], query
        assert late[query] + copies[query] == given.late[job] + given.twice[job], query


def test_ctrl_c_stops_a_run_cleanly(ran: Ran, tmp_path: Path) -> None:
    """Spark would take SIGINT as the end of its jobs; here it is exit status 0, and the sums are told."""
    run = JobRun("metrics", ran.bootstrap, tmp_path / "run", *OPTIONS, is_endless=True).begin()
    try:
        wait_until(run.progress.exists, "the progress file is there", COMMAND_TIMEOUT_S)
        wait_until(lambda: run.progress.stat().st_size > 0, "a batch is told", COMMAND_TIMEOUT_S)
        os.kill(run.pid, signal.SIGINT)
        assert run.end(COMMAND_TIMEOUT_S) == 0, run.said()
    finally:
        run.kill()
    said = run.log.read_text()
    assert "stopped; by query" in said
    assert "Traceback" not in said


def test_spark_submit_to_a_standalone_cluster(ran: Ran, spark: SparkSession, tmp_path: Path) -> None:
    """The same job unchanged on a master and two workers, each a process: the same table as the local runs."""
    table = tmp_path / "tables"
    command = [str(spark_home() / "bin" / "spark-submit"), "--packages", CONNECTOR]
    with SparkCluster(tmp_path / "spark") as cluster:
        for setting in (
            f"spark.jars.ivy={IVY_DIR}",
            "spark.driver.host=127.0.0.1",
            "spark.driver.bindAddress=127.0.0.1",
            "spark.executor.memory=800m",
            "spark.ui.enabled=false",
        ):
            command += ["--conf", setting]
        command += ["--master", cluster.master_url, str(SUBMIT), "metrics", "--bootstrap", ran.bootstrap]
        command += [
            "--checkpoint",
            str(tmp_path / "checkpoint"),
            "--output",
            str(table),
            "--until-caught-up",
            *OPTIONS,
        ]
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=CLUSTER_TIMEOUT_S,
            env=spark_environment() | {"PYSPARK_PYTHON": sys.executable, "JAVA_TOOL_OPTIONS": QUICK_JVM},
            check=False,
        )
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        workers = [cluster.log_text(f"worker-{number}") for number in range(2)]
        assert all("Launching executor" in text or "Asked to launch executor" in text for text in workers)
    rows = (
        spark.read.parquet(str(table / "metrics/windows")).selectExpr("to_json(struct(*)) AS row").collect()
    )
    # All lies in one batch here, before which there is no watermark: what is late for the others is in windows of its own.
    late_before_ms = ran.given.entries[0].timestamp_ms - HOUR_MS // 2
    windows = [
        row for row in (json.loads(each["row"]) for each in rows) if row["window_start_ms"] > late_before_ms
    ]
    assert in_order(windows) == in_order(ran.tables["metrics/windows"])
    assert len(rows) > len(windows)
