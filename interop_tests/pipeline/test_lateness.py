"""What moves the watermark of a job on Spark, and what the job reports of it to the console."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

from interop_tests.conftest import MakeBroker
from interop_tests.harness.waiting import wait_until
from interop_tests.pipeline.known_input import PARTITIONS, Entry, KnownInput
from interop_tests.pipeline.runs import JobRun, read_topic

MINUTE_MS = 60_000
DAY_MS = 24 * 60 * MINUTE_MS
QUERY = "metrics-live"
WATERMARK_S = 120
WAIT_S = 240.0


def sample(event_id: str, event_ms: int, arrival_ms: int) -> Entry:
    event = {
        "event_id": event_id,
        "service": "shop",
        "host": "h",
        "event_time_ms": event_ms,
        "latency_ms": 1.5,
        "error": False,
        "cpu_percent": 10,
        "memory_bytes": 1,
    }
    return Entry("metrics.raw", "shop", json.dumps(event).encode(), arrival_ms)


def report(bootstrap: str) -> dict[str, Any]:
    """The last report of the query."""
    return dict(read_topic(bootstrap, "pipeline.progress"))[QUERY]


def test_an_early_event_makes_nothing_late_and_what_is_late_is_reported(
    make_broker: MakeBroker, tmp_path: Path
) -> None:
    """Samples of yesterday, one of a clock that is ahead, then nothing for a day, samples of now, and one of yesterday."""
    broker = make_broker()
    options = ("--watermark", str(WATERMARK_S), "--trigger", "1", "--table-trigger", "1")
    run = JobRun("metrics", broker.bootstrap, tmp_path, *options, is_endless=True).begin()
    yesterday_ms = int(time.time() * 1000) // MINUTE_MS * MINUTE_MS - DAY_MS
    sent = 0

    def send(*entries: Entry) -> dict[str, Any]:
        """Send, and wait until the query has read them and its watermark has moved. Returns the report."""
        nonlocal sent
        KnownInput.send_some(broker.bootstrap, list(entries), PARTITIONS)
        sent += len(entries)

        def settled() -> dict[str, Any] | None:
            assert run.is_alive, run.said()
            told = report(broker.bootstrap)
            newest_ms = max(
                min(json.loads(entry.value)["event_time_ms"], entry.timestamp_ms) for entry in entries
            )
            is_moved = (told["watermark_ms"] or 0) >= newest_ms - WATERMARK_S * 1000
            return told if told["records"] == sent and is_moved else None

        return wait_until(settled, f"{sent} records are read", WAIT_S, 0.5)

    try:
        wait_until(
            lambda: "running metrics" in run.log.read_text() or not run.is_alive, "the job runs", WAIT_S
        )
        assert run.is_alive, run.said()
        wait_until(
            lambda: len(dict(read_topic(broker.bootstrap, "pipeline.progress"))) == 4, "it reports", WAIT_S
        )
        assert report(broker.bootstrap)["state"] == "running"

        steady = [
            sample(f"a{n}", yesterday_ms + n * MINUTE_MS, yesterday_ms + n * MINUTE_MS) for n in range(4)
        ]
        ahead = sample("ahead", yesterday_ms + 12 * MINUTE_MS, yesterday_ms + 3 * MINUTE_MS)
        told = send(*steady, ahead)
        assert told["watermark_ms"] == yesterday_ms + 3 * MINUTE_MS - WATERMARK_S * 1000
        later = [
            sample(f"b{n}", yesterday_ms + n * MINUTE_MS, yesterday_ms + n * MINUTE_MS) for n in range(4, 8)
        ]
        assert send(*later)["late"] == 0

        now_ms = int(time.time() * 1000)
        told = send(sample("now", now_ms, now_ms))
        assert (told["late"], told["state"]) == (0, "running"), "a job that was idle for a day goes on"
        behind = sample("of yesterday", yesterday_ms + 9 * MINUTE_MS, now_ms)
        told = send(behind, sample("now too", now_ms + 1, now_ms + 1))
        assert told["late"] == 1
        assert told["batch_records"] in (1, 2)
        assert told["recent_kept"] == sent - 1

        os.kill(run.pid, signal.SIGINT)
        assert run.end() == 0, run.said()
        assert report(broker.bootstrap)["state"] == "stopped"
    finally:
        run.kill()
    windows = dict(read_topic(broker.bootstrap, "metrics.windows"))
    counts = {int(key.rpartition("|")[2]): value["count"] for key, value in windows.items()}
    today = {start: count for start, count in counts.items() if start > yesterday_ms + DAY_MS // 2}
    assert sum(today.values()) == 2
    # The sample that is ahead counts in the minute of its arrival.
    steady_counts = {yesterday_ms + n * MINUTE_MS: 1 + (n == 3) for n in range(8)}
    assert {start: count for start, count in counts.items() if start not in today} == steady_counts
