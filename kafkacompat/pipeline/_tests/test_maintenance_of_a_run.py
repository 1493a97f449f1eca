"""A run maintains its tables: when, and what happens to the queries meanwhile. No Spark runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

pytest.importorskip("pyspark")

from kafkacompat.pipeline import runner
from kafkacompat.pipeline._tests.test_runner import Polls, Scripted
from kafkacompat.pipeline.failure import PipelineFailed
from kafkacompat.pipeline.maintenance.schedule import PATIENCE_S, Schedule
from kafkacompat.pipeline.options import RunOptions
from kafkacompat.pipeline.queries import QUERIES

EVENTS = QUERIES["logs"][0]


def test_the_table_that_waits_longest_is_next() -> None:
    schedule = Schedule(["a", "b"], 10, 100)
    assert schedule.due(109) is None
    assert schedule.due(110) == "a"
    schedule.ended("a", 111)
    assert schedule.due(111) == "b"
    schedule.ended("b", 115)
    assert schedule.due(120.5) is None
    assert schedule.due(121) == "a"
    assert Schedule([], 0, 0).due(1000) is None


def test_the_end_of_a_batch_is_waited_for_and_not_for_ever() -> None:
    schedule = Schedule(["a"], 10, 100)
    assert not schedule.must_not_wait("a", 110 + PATIENCE_S - 1)
    assert schedule.must_not_wait("a", 110 + PATIENCE_S)


class Query(Scripted):
    """A query that is stopped for a maintenance."""

    is_busy = False

    @property
    def status(self) -> dict[str, Any]:
        return {"isTriggerActive": self.is_busy}


class Work:
    """What runs in place of a thread: it has ended when it is looked at for the second time."""

    begun: ClassVar[list[Work]] = []
    failure: Exception | None = None
    said = "2 files merged into 1"
    ends_after = 1

    def __init__(self, work: Callable[[], str]) -> None:
        self.work = work
        self.looks = 0
        self.begun.append(self)

    def start(self) -> None:
        pass

    def is_alive(self) -> bool:
        self.looks += 1
        return self.looks <= self.ends_after

    def join(self, timeout_s: float) -> None:
        pass


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[Work]:
    monkeypatch.setattr(runner, "require_matching_table", lambda *arguments: None)
    monkeypatch.setattr(runner, "table_has_last_batch", lambda *arguments: False)
    monkeypatch.setattr(runner, "Task", Work)
    monkeypatch.setattr(Work, "begun", [])
    return Work.begun


def run(
    monkeypatch: pytest.MonkeyPatch, queries: list[Query], polls: int, **changes: Any
) -> tuple[list[str], list[str]]:
    """Return the lines of the run, and the job groups that were ended. Each start of the query gives the next of these."""
    waiting = iter(queries)
    monkeypatch.setattr(runner, "start", lambda *arguments: next(waiting))
    said: list[str] = []
    cancelled: list[str] = []
    session: Any = SimpleNamespace(sparkContext=SimpleNamespace(cancelJobGroup=cancelled.append))
    options = RunOptions(jobs=("logs",), checkpoint="c", output="o", maintain_every_s=0, **changes)
    runner.Run(session, [EVENTS], options, said.append).run(Polls(polls))  # type: ignore[arg-type]
    return [line for line in said if line.startswith("logs/events")], cancelled


def test_a_parquet_table_is_maintained_beside_its_query(
    monkeypatch: pytest.MonkeyPatch, begun: list[Work]
) -> None:
    query = Query("logs-events", 1000)
    said, cancelled = run(monkeypatch, [query], 7)
    assert said == ["logs/events: 2 files merged into 1"] * 2
    assert [each.work.args[3] for each in begun] == [None, None]  # type: ignore[attr-defined]
    assert query.stopped == 1
    assert cancelled == []


def test_the_query_of_another_table_is_stopped_meanwhile_and_started_again(
    monkeypatch: pytest.MonkeyPatch, begun: list[Work]
) -> None:
    queries = [Query("logs-events", 1000) for _ in range(3)]
    looked_at: list[object] = []
    monkeypatch.setattr(runner, "require_matching_table", lambda *arguments: looked_at.append(None))
    said, _ = run(monkeypatch, queries, 7, table_format="delta")
    assert said == ["logs/events: 2 files merged into 1"] * 2
    paused = [each.work.args[3] for each in begun]  # type: ignore[attr-defined]
    assert paused == queries[:2]
    # The work itself stops a query, before it begins.
    assert [query.stopped for query in queries] == [0, 0, 1]
    assert len(looked_at) == 3


def test_the_batch_of_a_query_is_not_interrupted(monkeypatch: pytest.MonkeyPatch, begun: list[Work]) -> None:
    query = Query("logs-events", 1000)
    query.is_busy = True
    assert run(monkeypatch, [query], 20, table_format="delta") == ([], [])
    assert begun == []


def test_a_maintenance_that_fails_leaves_the_run(monkeypatch: pytest.MonkeyPatch, begun: list[Work]) -> None:
    monkeypatch.setattr(Work, "failure", PipelineFailed("why\nmore"))
    said, _ = run(monkeypatch, [Query("logs-events", 1000) for _ in range(2)], 4, table_format="delta")
    assert said == ["logs/events was not maintained: why"]


@pytest.mark.parametrize("form", ["parquet", "delta"])
def test_a_maintenance_for_which_there_is_no_thread_leaves_the_run(
    monkeypatch: pytest.MonkeyPatch, begun: list[Work], form: str
) -> None:
    def no_thread(work: Work) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(Work, "start", no_thread)
    query = Query("logs-events", 1000)
    said, _ = run(monkeypatch, [query], 3, table_format=form)
    assert said == ["logs/events was not maintained: can't start new thread"] * 2
    # The run still looks at the query, and stops it at its end.
    assert (len(query.told), query.stopped) == (2, 1)


def test_a_query_that_fails_before_its_pause_is_named(
    monkeypatch: pytest.MonkeyPatch, begun: list[Work]
) -> None:
    query = Query("logs-events", 1000, ValueError("disk full"))
    with pytest.raises(PipelineFailed, match="query logs-events failed: disk full"):
        run(monkeypatch, [query], 10, table_format="delta")


def test_a_stop_ends_the_maintenance(monkeypatch: pytest.MonkeyPatch, begun: list[Work]) -> None:
    monkeypatch.setattr(Work, "ends_after", 6)
    query = Query("logs-events", 1000)
    said, cancelled = run(monkeypatch, [query], 4, table_format="delta")
    assert said == []
    assert set(cancelled) == {runner.MAINTENANCE}
    # It is not started again.
    assert len(begun) == 1


def test_a_run_without_a_table_says_so(tmp_path: Path) -> None:
    options = RunOptions(jobs=("logs",), checkpoint="c", output=str(tmp_path))
    told = "there is no table yet"
    assert runner.maintain(None, EVENTS, options, None) == told  # type: ignore[arg-type]
    (tmp_path / "logs/events").mkdir(parents=True)
    assert runner.maintain(None, EVENTS, options, None) == told  # type: ignore[arg-type]


def test_a_query_that_does_not_stop_in_time_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[float] = []
    monkeypatch.setattr(runner.time, "sleep", waited.append)
    query = Query("logs-events", 4)
    options = RunOptions(jobs=("logs",), checkpoint="c", output=str(tmp_path))
    runner.maintain(None, EVENTS, options, query)  # type: ignore[arg-type]
    assert query.stopped == 1
    assert len(waited) == 3


def test_the_work_of_a_thread_is_told() -> None:
    def fail() -> str:
        raise PipelineFailed("why")

    done, failed = runner.Task(lambda: "done"), runner.Task(fail)
    for task in (done, failed):
        task.start()
        task.join(60)
    assert (done.said, done.failure) == ("done", None)
    assert str(failed.failure) == "why"
