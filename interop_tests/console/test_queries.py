"""What the page says of the pipeline's queries, of jobs without results, and of charts with gaps."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from selenium import webdriver

from interop_tests.conftest import MakeBroker
from interop_tests.console.page import DESKTOP, PHONE, Page
from interop_tests.console.process import ConsoleProcess
from interop_tests.console.samples import Result, result, window
from interop_tests.console.writing import Writer

MakeConsole = Callable[[str], ConsoleProcess]
DAY_MINUTES = 24 * 60


def report(query: str, **changes: Any) -> Result:
    """A report of a query that has read nothing yet, with these fields changed."""
    now_ms = time.time_ns() // 1_000_000
    counts = dict.fromkeys(("records", "late", "copies", "recent_late", "recent_kept"), 0)
    fields = {"query": query, "job": query.partition("-")[0], "state": "running", "reads": "raw"}
    times = {"at_ms": now_ms, "trigger_ms": 5000}
    return result("pipeline.progress", query, now_ms, **{**counts, **fields, **times, **changes})


def test_a_job_is_known_to_run_and_a_query_that_drops_events_is_not_healthy(
    chromium: webdriver.Chrome, make_broker: MakeBroker, make_console: MakeConsole
) -> None:
    broker = make_broker()
    console = make_console(broker.bootstrap)
    writer = Writer(broker.bootstrap)
    page = Page(chromium, console.address).open()
    page.wait_for("#queries", "No job has reported here", "kafkacompat pipeline run all")
    page.wait_for("#services", "Send events and run the job", "kafkacompat pipeline run metrics")

    writer.create("pipeline.progress", cleanup_policy="compact")
    writer.send([report("logs-summary"), report("metrics-live"), report("activity-live")])
    said = page.wait_for("#services", "The job metrics runs and has read no record yet. Send some:")
    assert "pipeline run" not in said
    assert f"kafkacompat pipeline generate --bootstrap {broker.bootstrap}" in said
    page.wait_for("#logs-chart", "The job logs runs", "kafkacompat pipeline collect ACCESS.LOG")
    page.wait_for("#pages", "The job activity runs")
    page.wait_for("#health", "healthy")
    assert [row[:3] for row in page.rows("#queries")] == [
        [name, "running", "none yet"] for name in ("activity-live", "logs-summary", "metrics-live")
    ]

    writer.send([report("logs-summary", state="failed", reason="<b>boom</b> " * 200)])
    page.wait_for("#health", "logs-summary <b>boom</b>")
    for size in (PHONE, DESKTOP):
        page.size(size)
        assert page.boxes("#health")[0]["height"] < 40, "a long reason does not push the page away"
    writer.send([report("logs-summary")])

    batch = {"batch": 7, "batch_records": 430, "batch_start_ms": 1_790_000_000_000, "batch_ms": 1500}
    dropped = {"records": 900, "late": 412, "recent_late": 412, "recent_kept": 18}
    writer.send([report("activity-live", watermark_ms=1_790_000_000_000, **batch, **dropped)])
    drops = "activity-live drops events as late: 412 of the last 430"
    page.wait_for("#health", drops)
    page.wait_for("#notices", drops)
    row = page.rows("#queries")[0]
    assert row[:7] == ["activity-live", "drops", "14:13:20", "1.5 s", "430", "900", "412"]
    assert row[9].startswith("14:13, 21 Sep")
    page.wait_for("#pages", f"The job activity runs, but {drops}")
    for size in (DESKTOP, PHONE):
        page.size(size)
        assert page.script("return document.documentElement.scrollWidth") == size[0]

    writer.send([report("metrics-live", state="failed", reason="failed: no space left")])
    page.wait_for("#health", "metrics-live failed: no space left")
    assert "bad" in page.script("return document.querySelector('#health').className")
    page.wait_for("#services", "metrics-live failed: no space left. Run the job again:", "pipeline run")
    answer = console.get("/health")
    assert (answer.status, answer.json["health"]["level"]) == (200, "bad")

    writer.send([report(name, state="stopped") for name in ("activity-live", "logs-summary", "metrics-live")])
    page.wait_for("#health", "healthy")
    page.wait_for("#services", "Send events and run the job")


def visitors(minute: int) -> Result:
    key = str(window(minute)["window_start_ms"])
    counts = {"views": 30 + minute % 7, "searches": 10 + minute % 5, "visitors": 20 + minute % 3}
    return result("activity.visitors", key, 5, **window(minute), **counts)


def requests(minute: int) -> Result:
    statuses = {"status_2xx": 50, "status_3xx": 0, "status_4xx": 0, "status_5xx": 10}
    key = str(window(minute)["window_start_ms"])
    return result("logs.summary", key, 5, **window(minute), requests=60, bytes=6000, **statuses)


def test_a_chart_with_a_gap_joins_nothing_across_it_and_cuts_the_time_out(
    chromium: webdriver.Chrome, make_broker: MakeBroker, make_console: MakeConsole
) -> None:
    """Yesterday's windows, and one of today."""
    broker = make_broker()
    console = make_console(broker.bootstrap)
    writer = Writer(broker.bootstrap)
    writer.create("activity.visitors", "logs.summary", cleanup_policy="compact")
    minutes = [*range(60), DAY_MINUTES]
    writer.send([each(minute) for minute in minutes for each in (visitors, requests)])
    page = Page(chromium, console.address).open()
    page.wait_for("#visitors-note", "61 windows")
    chart = page.boxes("#visitors-chart svg")[0]
    assert page.boxes("#visitors-chart path.newest") == []
    lines = page.boxes("#visitors-chart path.line")
    dots = page.boxes("#visitors-chart circle.dot")
    (broken,) = page.boxes("#visitors-chart path.break")
    assert len(lines) == len(dots) == 3
    assert min(line["width"] for line in lines) > chart["width"] * 0.7, (
        "an hour has the room, and not the gap"
    )
    assert max(line["x"] + line["width"] for line in lines) < broken["x"]
    assert min(dot["x"] for dot in dots) > broken["x"]
    assert max(dot["x"] + dot["width"] for dot in dots) < chart["x"] + chart["width"]
    days = page.script(
        "return [...document.querySelectorAll('#visitors-chart .day')].map(e => e.textContent)"
    )
    assert days in (["21 Sept", "22 Sept"], ["21 Sep", "22 Sep"])
    bars = page.boxes("#logs-chart rect.tone-ok")
    assert len(bars) == len(minutes)
    assert bars[-1]["x"] > page.boxes("#logs-chart path.break")[0]["x"] > bars[-2]["x"]
    label = page.script(
        "return document.querySelector('#visitors-chart [role=img]').getAttribute('aria-label')"
    )
    assert "Nothing for 23 h 0 min before" in label

    writer.send([each(DAY_MINUTES + minute) for minute in (1, 2, 9) for each in (visitors, requests)])
    page.wait_for("#visitors-note", "64 windows")
    assert len(page.boxes("#visitors-chart path.break")) == 1, "a short gap takes its time"
    assert page.boxes("#visitors-chart path.newest") == [], "and is not bridged"
    page.size(PHONE)
    page.wait_for("#visitors-note", "64 windows")
    assert page.script("return document.documentElement.scrollWidth") == PHONE[0]
