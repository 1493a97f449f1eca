"""Exactly once: whoever is killed, the tables of a run that goes on from its checkpoint are those of a run without kills.

The input is known, lies in the topics before the run, and has late events, copies and bad records, so that every run
plans the same batches. Tables are read through Spark's commit log and compared row by row; result topics, which are at least
once, are compared after the consumer's part: the last value of a key, or one value an event id.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from interop_tests.harness.broker import BrokerProcess, chosen_kind
from interop_tests.harness.spark_cluster import SparkCluster
from interop_tests.pipeline.known_input import INPUTS, KnownInput, known_input
from interop_tests.pipeline.runs import JobRun, Results, forget_last_commits, is_soak, kill_at, read_results

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.needs_control

SEED = 6
JOBS = tuple(INPUTS)
EVENTS_A_JOB = 20_000 if is_soak() else 4_000
# Of a job with two input topics a batch takes so many from both together.
BATCH_RECORDS = 2_000 if is_soak() else 1_400
OPTIONS = (
    *("--max-records-per-batch", str(BATCH_RECORDS), "--shuffle-partitions", "1"),
    *("--session-gap", "120", "--window", "60"),
)
LOCAL = "local[2]"
KILLS = {"driver": 5, "executor": 5, "broker": 5} if is_soak() else {"driver": 2, "executor": 1, "broker": 2}
ATTEMPTS_MAX = 20
# In a short round each kind of kill has one job, the driver's that which starts quickest; in a long one all have all.
ROUNDS = {
    "driver": JOBS if is_soak() else ("logs",),
    "executor": JOBS if is_soak() else ("metrics",),
    "broker": JOBS if is_soak() else ("activity",),
}


@dataclass
class Reference:
    """A run of all jobs that nobody disturbed."""

    given: KnownInput
    results: Results
    batches: dict[str, int]
    """Planned batches of all queries of a job."""

    def of(self, jobs: tuple[str, ...]) -> Results:
        """The part of these jobs."""

        def part(whole: dict[str, object]) -> dict[str, object]:
            return {
                name: each for name, each in whole.items() if name.replace(".", "/").split("/")[0] in jobs
            }

        return Results(part(self.results.tables), part(self.results.latest), part(self.results.events))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def reference(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Reference:
    """Computed once, on a broker of its own."""
    folder = tmp_path_factory.mktemp("reference")
    given = known_input(SEED, EVENTS_A_JOB)
    broker = BrokerProcess(chosen_kind(), folder / "broker").start()
    try:
        given.send(broker.bootstrap)
        run = JobRun("all", broker.bootstrap, folder / "run", *OPTIONS, master=LOCAL).begin()
        assert run.end() == 0, run.said()
        batches = {
            job: sum(path.name.isdigit() for path in run.checkpoint.glob(f"{job}-*/offsets/*"))
            for job in JOBS
        }
        return Reference(given, read_results(spark, broker.bootstrap, run, JOBS), batches)
    finally:
        broker.kill()


def total(values: dict[str, str], *names: str) -> int:
    """The sum of these fields over all rows."""
    return sum(json.loads(value)[name] for value in values.values() for name in names)


def test_the_undisturbed_run_says_what_was_sent(reference: Reference) -> None:
    """Every good event counts once, copies and late ones count as documented, and each bad record is told why."""
    given, results = reference.given, reference.results
    rows = [json.loads(row) for row in results.tables["logs/events"]]
    assert len(rows) == len({row["event_id"] for row in rows})
    # A line that comes late is still a line; only windows leave it out.
    assert len(rows) == len(given.events["logs"]) + given.late["logs"]
    assert total(results.latest["logs.summary"], "requests") == len(given.events["logs"])
    assert total(results.latest["activity.visitors"], "views", "searches") == len(given.events["activity"])
    assert total(results.latest["metrics.windows"], "count") == len(given.events["metrics"])
    for job in JOBS:
        assert given.bad[job] > 10
        assert given.twice[job] > 10
        assert given.late[job] > 0
        assert len(results.events[f"{job}.rejected"]) == given.bad[job], job
        assert all(json.loads(value)["reason"] for value in results.events[f"{job}.rejected"].values())
    for table, found in results.tables.items():
        assert found, table
        assert len(found) == len(set(found)), table
    for topic, found_events in results.events.items():
        assert found_events, topic


def assert_same(found: Results, wanted: Results) -> None:
    """Tables, latest values and events, one by one, so that a failure names the first difference."""
    assert found.tables.keys() == wanted.tables.keys()
    for kind in ("tables", "latest", "events"):
        for name, expected in getattr(wanted, kind).items():
            assert getattr(found, kind)[name] == expected, f"{kind} {name}"


def go_on_to_the_end(run: JobRun) -> None:
    """Wait for the end; begin again as long as it fails for what was done to it."""
    for _ in range(ATTEMPTS_MAX):
        if run.end() == 0:
            return
        run.begin()
    raise AssertionError(f"after {ATTEMPTS_MAX} attempts the run still fails:\n{run.said()}")


@dataclass
class Trial:
    """One job over the known input, on a broker of its own, with kills of one kind."""

    kind: str
    job: str
    broker: BrokerProcess
    folder: Path
    reference: Reference
    spark: SparkSession

    def __post_init__(self) -> None:
        self.reference.given.send(self.broker.bootstrap, (self.job,))
        self.chance = random.Random(f"{SEED}/{self.kind}/{self.job}")

    def begin(self, *options: str, master: str = LOCAL) -> JobRun:
        return JobRun(
            self.job, self.broker.bootstrap, self.folder / "run", *OPTIONS, *options, master=master
        ).begin()

    def moments(self) -> list[int]:
        """When to kill: after how many planned batches."""
        kills, batches = KILLS[self.kind], self.reference.batches[self.job]
        return sorted(self.chance.sample(range(2, max(kills + 2, batches * 4 // 5)), kills))

    def pause(self) -> None:
        """A part of a batch's time, so that not every kill comes right after a plan was written."""
        time.sleep(self.chance.uniform(0.0, 0.3))

    def assert_as_undisturbed(self, run: JobRun) -> Results:
        found = read_results(self.spark, self.broker.bootstrap, run, (self.job,))
        assert_same(found, self.reference.of((self.job,)))
        return found


@pytest.fixture
def trial(
    spark: SparkSession, reference: Reference, make_broker: Callable[..., BrokerProcess], tmp_path: Path
) -> Callable[[str, str], Trial]:
    return lambda kind, job: Trial(kind, job, make_broker(), tmp_path, reference, spark)


@pytest.mark.parametrize("job", ROUNDS["driver"])
def test_a_killed_driver(job: str, trial: Callable[[str, str], Trial]) -> None:
    """kill -9 of the run command and its JVM, which here is the executor too, at random moments."""
    one = trial("driver", job)
    run = one.begin()

    def kill() -> None:
        one.pause()
        run.kill()

    seen = kill_at(run, one.moments(), kill, run.begin)
    assert run.end() == 0, run.said()
    assert len(seen) == KILLS["driver"]
    assert any(planned > done for planned, done in seen), f"no kill came within a batch: {seen}"
    one.assert_as_undisturbed(run)


@pytest.mark.parametrize("job", ROUNDS["executor"])
def test_a_killed_executor(job: str, trial: Callable[[str, str], Trial]) -> None:
    """On a standalone cluster of two workers: an executor is killed; the driver goes on, and the worker starts another."""
    one = trial("executor", job)
    with SparkCluster(one.folder / "spark") as cluster:
        options = ("--conf", "spark.executor.memory=800m", "--conf", "spark.ui.enabled=false")
        run = one.begin(*options, master=cluster.master_url)
        killed: set[int] = set()

        def kill() -> None:
            one.pause()
            executors = cluster.executors()
            if executors:
                victim = one.chance.choice(executors)
                killed.add(victim.pid)
                victim.kill()

        try:
            kill_at(run, one.moments(), kill, lambda: None)
            go_on_to_the_end(run)
        finally:
            run.kill()
        assert len(killed) == KILLS["executor"]
        told = "".join(cluster.log_text(name) for name in ("worker-0", "worker-1"))
        assert told.count("exitStatus 137") >= KILLS["executor"], (
            "the workers did not see their executors killed"
        )
    one.assert_as_undisturbed(run)


@pytest.mark.parametrize("job", ROUNDS["broker"])
def test_a_killed_broker(job: str, trial: Callable[[str, str], Trial]) -> None:
    """kill -9 of the broker, started again over the same data; the run goes on by itself or from its checkpoint.

    And, while the broker is there: last batches that are run again write their result records once more, under the same ids.
    """
    one = trial("broker", job)
    run = one.begin()

    def kill() -> None:
        one.pause()
        one.broker.kill()

    def restart() -> None:
        one.pause()
        one.broker.start()

    try:
        seen = kill_at(run, one.moments(), kill, restart)
        go_on_to_the_end(run)
    finally:
        run.kill()
    assert len(seen) == KILLS["broker"]
    before = one.assert_as_undisturbed(run)
    forget_last_commits(run.checkpoint)
    go_on_to_the_end(run.begin())
    assert one.assert_as_undisturbed(run).copies > before.copies
