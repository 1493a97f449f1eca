"""Runs with scripted queries: progress is reported once, the failed query is named, the others are stopped. No Spark runs."""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import sys
import threading
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark")

from kafkacompat.pipeline import runner
from kafkacompat.pipeline.failure import PipelineFailed
from kafkacompat.pipeline.groups import Finished
from kafkacompat.pipeline.options import RunOptions
from kafkacompat.pipeline.queries import QUERIES, Query
from kafkacompat.pipeline.spark_failures import TABLE_HELP
from kafkacompat.pipeline.terminal import Terminal


class JavaProgress:
    """A batch's progress as the JVM has it: each access is a call to another process."""

    def __init__(self, told: dict[str, Any]) -> None:
        self._told = told
        self.asked = 0

    def batchId(self) -> int:
        self.asked += 1
        return int(self._told["batchId"])

    def timestamp(self) -> str:
        self.asked += 1
        return str(self._told["timestamp"])

    def json(self) -> str:
        self.asked += 1
        return json.dumps(self._told)


RETAINED = 100
"""The number of batches whose progress Spark keeps."""


@dataclass
class Scripted:
    """A query that lives for a number of polls and then ends, with or without an error."""

    name: str
    polls: int
    error: Exception | None = None
    ends_a_batch_at_the_stop: bool = False
    stopped: int = 0
    told: list[JavaProgress] = field(default_factory=list)

    def tell(self) -> None:
        batch = len(self.told)
        said = {
            "name": self.name,
            "batchId": batch,
            "timestamp": f"2026-11-21T10:{batch // 60:02}:{batch % 60:02}.000Z",
            "numInputRows": 10,
            "durationMs": {"triggerExecution": 100},
        }
        self.told.append(JavaProgress(said))

    @property
    def isActive(self) -> bool:
        self.polls -= 1
        self.tell()
        return self.polls > 0

    @property
    def _jsq(self) -> SimpleNamespace:
        return SimpleNamespace(recentProgress=lambda: self.told[-RETAINED:])

    def exception(self) -> Exception | None:
        return self.error

    def stop(self) -> None:
        self.stopped += 1
        if self.ends_a_batch_at_the_stop:
            self.tell()


class Polls:
    """A stop request that comes after a number of polls. Nothing waits."""

    def __init__(self, until_stop: int = 1000) -> None:
        self.left = until_stop

    @property
    def is_set(self) -> bool:
        return self.left <= 0

    def wait(self, timeout_s: float) -> bool:
        self.left -= 1
        return self.is_set


@pytest.fixture(autouse=True)
def nothing_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests have no folders to compare, and no session to read them."""
    monkeypatch.setattr(runner, "require_matching_table", lambda *arguments: None)
    monkeypatch.setattr(runner, "table_has_last_batch", lambda *arguments: False)


def run(
    monkeypatch: pytest.MonkeyPatch, scripted: list[Scripted | Exception], stop: Polls, **changes: Any
) -> tuple[list[str], list[dict[str, Any]]]:
    """Return the lines of the run, and the progress that it wrote."""
    waiting = iter(scripted)

    def start(session: Any, query: Query, options: RunOptions) -> Any:
        one = next(waiting)
        if isinstance(one, Exception):
            raise one
        return one

    monkeypatch.setattr(runner, "start", start)
    said: list[str] = []
    written = io.StringIO()
    options = RunOptions(jobs=("logs",), checkpoint="c", output="o", **changes)
    run = runner.Run(None, QUERIES["logs"][: len(scripted)], options, said.append, written)  # type: ignore[arg-type]
    run.run(stop)  # type: ignore[arg-type]
    return said, [json.loads(line) for line in written.getvalue().splitlines()]


def test_a_run_until_caught_up_ends_with_its_last_query(monkeypatch: pytest.MonkeyPatch) -> None:
    queries = [Scripted("logs-events", 1), Scripted("logs-summary", 3)]
    said, written = run(monkeypatch, [*queries], Polls(), until_caught_up=True)
    assert [line.split()[1] for line in said[:-1]].count("logs-summary") == 3
    assert [(each["name"], each["batchId"]) for each in written if each["name"] == "logs-summary"] == [
        ("logs-summary", batch) for batch in range(3)
    ]
    assert said[-1].splitlines()[2].split()[:2] == ["logs-summary", "30"]
    assert [query.stopped for query in queries] == [1, 1]


def test_batches_that_ended_between_two_looks_are_told_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    query = Scripted("logs-events", 3)
    for _ in range(4):
        query.tell()
    _, written = run(monkeypatch, [query], Polls(), until_caught_up=True)
    assert [each["batchId"] for each in written] == list(range(7))


def test_what_was_told_is_not_asked_of_the_jvm_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading everything that Spark keeps, 100 batches of each query, would take longer than the interval between polls."""
    query = Scripted("logs-events", 300)
    _, written = run(monkeypatch, [query], Polls(), until_caught_up=True)
    assert len(written) == 300
    assert max(progress.asked for progress in query.told) <= 5


def test_a_stop_is_obeyed_between_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    queries = [Scripted("logs-events", 1000), Scripted("logs-summary", 1000)]
    said, _ = run(monkeypatch, [*queries], Polls(until_stop=4))
    assert said[-1].startswith("stopped; per query")
    assert [query.stopped for query in queries] == [1, 1]


def test_queries_are_stopped_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each query waits for its batch. One after the other, they would take longer than a service manager waits."""
    together = threading.Barrier(3, timeout=60.0)
    queries = [Scripted(name, 1000) for name in ("logs-events", "logs-summary", "logs-rejected")]
    for query in queries:
        monkeypatch.setattr(
            query, "stop", lambda query=query: setattr(query, "stopped", together.wait() >= 0)
        )
    run(monkeypatch, [*queries], Polls(until_stop=3))
    assert [query.stopped for query in queries] == [True, True, True]


def test_a_run_that_nobody_reads_any_more_stops_cleanly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A broken pipe is a ConnectionError, and so is the end of a JVM. The two must not be confused."""
    reads, writes = os.pipe()
    os.close(reads)
    query = Scripted("logs-events", 1000)
    monkeypatch.setattr(runner, "start", lambda *arguments: query)
    stop = runner.StopRequest()
    with open(writes, "w") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        options = RunOptions(jobs=("logs",), checkpoint="c", output="o")
        runner.Run(None, QUERIES["logs"][:1], options, Terminal(stop.ask).say).run(stop)  # type: ignore[arg-type]
        monkeypatch.undo()
    assert stop.is_set
    assert query.stopped == 1


class FullDisk(io.StringIO):
    """A file whose disk is full for a while."""

    left = 2

    def flush(self) -> None:
        self.left -= 1
        if self.left >= 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_progress_file_that_cannot_be_written_does_not_end_the_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    query = Scripted("logs-events", 3)
    monkeypatch.setattr(runner, "start", lambda *arguments: query)
    said: list[str] = []
    options = RunOptions(jobs=("logs",), checkpoint="c", output="o", until_caught_up=True, progress="f")
    written = FullDisk()
    runner.Run(None, QUERIES["logs"][:1], options, said.append, written).run(Polls())  # type: ignore[arg-type]
    assert [line for line in said if line.startswith("progress file")] == [
        "progress file f cannot be written: No space left on device; the run goes on"
    ]
    assert len(written.getvalue().splitlines()) == 3


def test_a_batch_that_ends_during_the_stop_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    query = Scripted("logs-events", 1000, ends_a_batch_at_the_stop=True)
    said, written = run(monkeypatch, [query], Polls(until_stop=3))
    assert [each["batchId"] for each in written] == [0, 1, 2]
    assert said[-1].splitlines()[1].split()[:2] == ["logs-events", "30"]


def test_a_batch_has_no_bound_unless_one_is_asked_for() -> None:
    """A bound is divided by backlog, not by age: events of the longer backlog would be late."""
    (query, *_) = QUERIES["logs"]
    unbounded = runner.source_options(query, RunOptions(jobs=("logs",), checkpoint="c", output="o"))
    assert "maxOffsetsPerTrigger" not in unbounded
    bounded = RunOptions(jobs=("logs",), checkpoint="c", output="o", records_per_batch_max=5)
    assert runner.source_options(query, bounded) == unbounded | {"maxOffsetsPerTrigger": "5"}


def test_records_of_aborted_transactions_are_read_only_if_asked_for() -> None:
    """Otherwise what a killed replay or another transactional writer has begun would be counted, and come again."""
    for query in (each for queries in QUERIES.values() for each in queries):
        committed = runner.source_options(query, RunOptions(jobs=("logs",), checkpoint="c", output="o"))
        assert committed["kafka.isolation.level"] == "read_committed"
    options = RunOptions(jobs=("logs",), checkpoint="c", output="o", isolation_level="read_uncommitted")
    assert runner.source_options(query, options)["kafka.isolation.level"] == "read_uncommitted"


def test_a_stop_before_the_start_starts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    queries = [Scripted("logs-events", 1000)]
    run(monkeypatch, [*queries], Polls(until_stop=0))
    assert queries[0].stopped == 0
    assert queries[0].told == []


def test_the_query_that_fails_is_named_and_the_others_are_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    error = ValueError(
        "[STREAM_FAILED] long words\n\tat java\nCaused by: java.io.IOException: disk full\n\tat x"
    )
    queries = [Scripted("logs-events", 1000), Scripted("logs-summary", 3, error)]
    with pytest.raises(PipelineFailed) as failed:
        run(monkeypatch, [*queries], Polls())
    assert str(failed.value) == "query logs-summary failed: java.io.IOException: disk full"
    assert queries[0].stopped == 1


def test_a_query_that_somebody_stops_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(PipelineFailed, match="logs-events was stopped from outside"):
        run(monkeypatch, [Scripted("logs-events", 2)], Polls())


def test_a_query_that_cannot_start_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    first = Scripted("logs-events", 1000)
    with pytest.raises(PipelineFailed, match="query logs-summary cannot start: no such mode"):
        run(monkeypatch, [first, ValueError("no such mode\nstack")], Polls())
    assert first.stopped == 1


def test_no_query_starts_when_one_must_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise its result topics and the tables of the others would contain unwanted rows."""

    def refused(session: Any, query: Query, options: RunOptions) -> None:
        if query.name == "logs-summary":
            raise PipelineFailed("not of one past")

    monkeypatch.setattr(runner, "require_matching_table", refused)
    queries = [Scripted("logs-events", 1000), Scripted("logs-summary", 1000)]
    with pytest.raises(PipelineFailed, match="query logs-summary cannot start: not of one past"):
        run(monkeypatch, [*queries], Polls())
    assert [(query.told, query.stopped) for query in queries] == [([], 0), ([], 0)]


def test_each_query_has_a_name_and_a_sink_of_its_own() -> None:
    queries = [query for job in QUERIES.values() for query in job]
    assert len({query.name for query in queries}) == len(queries)
    tables = [query.table for query in queries if query.table is not None]
    assert sorted(tables) == [
        "activity/sessions",
        "activity/top_pages",
        "activity/visitors",
        "logs/events",
        "metrics/windows",
    ]
    assert all(query.name.startswith(f"{job}-") for job, each in QUERIES.items() for query in each)


def reported(
    monkeypatch: pytest.MonkeyPatch, scripted: list[Scripted | Exception], stop: Polls, **changes: Any
) -> list[tuple[str, str, int | None]]:
    """Return the query, the state and the last batch of each report."""
    found: list[tuple[str, str, int | None]] = []
    make: Any = runner.Run

    def making(*arguments: Any) -> runner.Run:
        def take(report: Any) -> None:
            found.append((report["query"], report["state"], report["batch"]))

        return make(*arguments, take)

    monkeypatch.setattr(runner, "Run", making)
    with contextlib.suppress(PipelineFailed, ConnectionError):
        run(monkeypatch, scripted, stop, **changes)
    return found


def test_a_query_is_reported_from_its_start_to_its_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    found = reported(monkeypatch, [Scripted("logs-events", 1000)], Polls(until_stop=3))
    assert found == [
        ("logs-events", "running", None),
        ("logs-events", "running", 0),
        ("logs-events", "running", 1),
        ("logs-events", "stopped", 1),
    ]


def test_an_idle_query_is_reported_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    query = Scripted("logs-events", 1000)
    monkeypatch.setattr(query, "tell", lambda: None)
    clock = iter(range(0, 1000, 4))
    monkeypatch.setattr(runner.time, "monotonic", lambda: float(next(clock)))
    found = reported(monkeypatch, [query], Polls(until_stop=11))
    assert 3 <= found.count(("logs-events", "running", None)) < 9


def test_what_a_query_has_finished_is_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before it starts, what its checkpoint has: a run that was killed may not have committed it."""

    class Query(Scripted):
        def tell(self) -> None:
            super().tell()
            said = self.told[-1]._told
            said["id"] = "i"
            said["durationMs"]["addBatch"] = 1
            said["sources"] = [{"endOffset": {"logs.raw": {"0": 10 * len(self.told)}}}]

    class Commits:
        def __init__(self) -> None:
            self.offsets: list[int] = []

        def commit(self, finished: Finished) -> None:
            assert finished.query == "logs-events"
            self.offsets.append(finished.offsets["logs.raw", 0])

        def renew(self) -> None:
            pass

    of_checkpoint = Finished("logs-events", "i", 0, {("logs.raw", 0): 5})
    monkeypatch.setattr(runner, "finished_in", lambda *arguments: of_checkpoint)
    commits, make = Commits(), runner.Run

    def making(*arguments: Any) -> runner.Run:
        return make(*arguments, commits=commits)  # type: ignore[arg-type]

    monkeypatch.setattr(runner, "Run", making)
    run(monkeypatch, [Query("logs-events", 3)], Polls(), until_caught_up=True)
    assert commits.offsets == [5, 10, 20, 30]


def test_the_query_that_failed_is_reported_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    scripted: list[Scripted | Exception] = [
        Scripted("logs-events", 1000),
        Scripted("logs-summary", 2, ValueError("no disk")),
    ]
    found = reported(monkeypatch, scripted, Polls())
    assert found[-2:] == [("logs-events", "stopped", 1), ("logs-summary", "failed", 1)]


def test_when_the_jvm_dies_all_queries_have_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    query = Scripted("logs-events", 1000)
    monkeypatch.setattr(query, "stop", lambda: None)
    monkeypatch.setattr(runner, "failure_of", lambda query: None)

    def gone() -> None:
        raise ConnectionRefusedError

    monkeypatch.setattr(query, "tell", gone)
    assert reported(monkeypatch, [query], Polls())[-1] == ("logs-events", "failed", None)


@pytest.mark.parametrize(
    "refused",
    [
        "Failed to merge fields 'cents' and 'cents'",
        "Cannot change column type: cents: long -> string",
        "Not a struct: long",
    ],
)
def test_another_type_of_a_column_is_refused_with_what_to_do(refused: str) -> None:
    """As Delta and Iceberg say it. Parquet has no schema of a table."""
    head = "[STREAM_FAILED] Query [id = 8d8e, runId = 67d2] terminated with exception: "
    query: Any = SimpleNamespace(
        exception=lambda: f"{head}{refused} SQLSTATE: XXKST\n=== Streaming Query ==="
    )
    assert runner.failure_of(query) == f"{refused}: {TABLE_HELP}"
