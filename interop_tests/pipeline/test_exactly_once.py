"""Exactly once: whichever process is killed, the tables of a run that continues from its checkpoint equal those of an
undisturbed run.

The jobs run on a Spark standalone cluster, submitted with spark-submit: one job in `make test`, all jobs in a soak.
Tables are read through Spark's commit log and compared row by row with those of a local run. Result topics are at
least once, so they are compared as a consumer reads them: the last value of each key, or one value of each event id.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import psutil
import pytest

from interop_tests.harness.broker import BrokerProcess
from interop_tests.harness.spark_cluster import SparkCluster
from interop_tests.harness.waiting import wait_until
from interop_tests.pipeline.known_input import INPUTS
from interop_tests.pipeline.reference import OPTIONS, SEED, Reference
from interop_tests.pipeline.runs import (
    EVENTS,
    LATEST_BY_KEY,
    JobRun,
    Results,
    forget_last_commits,
    is_soak,
    read_results,
)

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.needs_control

# A job with a table, topics, windows and state. For another job test_jobs.py repeats batches.
JOB = "all" if is_soak() else "metrics"
JOBS = tuple(INPUTS) if is_soak() else (JOB,)
ROUNDS = 4 if is_soak() else 1
KILLS = dict.fromkeys(("driver", "executor", "broker"), 6 if is_soak() else 1)
ATTEMPTS_MAX = 20
EXECUTOR_TIMEOUT_S = 60.0
KILLED = "exitStatus 137"


class Victims:
    """The victims: the driver and its JVM, an executor that works for it, the broker. It restarts those that nothing
    else restarts."""

    def __init__(self, run: JobRun, broker: BrokerProcess, cluster: SparkCluster, chance: random.Random):
        self._run, self._broker, self._cluster, self._chance = run, broker, cluster, chance
        self.within_batches = 0
        """Drivers that were killed between the plan and the end of a query's batch."""
        self.executors: set[int] = set()

    def kill(self, kind: str) -> None:
        """Wait for a random part of a batch's time, so that not every kill comes directly after a plan was written."""
        time.sleep(self._chance.uniform(0.0, 0.3))
        if kind == "driver":
            self._run.kill()
            self.within_batches += self._run.batches("offsets") > self._run.batches("commits")
            # A table's commit comes just before Spark's. Few kills hit the moment in between.
            forget_last_commits(self._run.checkpoint, "*")
            self._run.begin()
        elif kind == "executor":
            executors = wait_until(self._working, "the driver has executors", EXECUTOR_TIMEOUT_S)
            victim = self._chance.choice(executors)
            self.executors.add(victim.pid)
            victim.kill()
        else:
            self._broker.kill()
            time.sleep(self._chance.uniform(0.0, 0.3))
            self._broker.start()

    def _working(self) -> list[psutil.Process]:
        """The executors of the last application. Those of an application with a dead driver end by themselves."""
        by_application: dict[str, list[psutil.Process]] = {}
        for process in self._cluster.executors():
            try:
                words = process.cmdline()
            except psutil.NoSuchProcess:
                continue
            if "--app-id" in words:
                by_application.setdefault(words[words.index("--app-id") + 1], []).append(process)
        return by_application[max(by_application)] if by_application else []


def go_on_until(run: JobRun, is_reached: Callable[[], bool]) -> None:
    """Start the run again as long as it fails because of the kills, before this is reached."""
    for _ in range(ATTEMPTS_MAX):
        if is_reached():
            return
        run.begin()
    raise AssertionError(f"after {ATTEMPTS_MAX} attempts the run still fails:\n{run.said()}")


def live_to_see(run: JobRun, batches: int) -> None:
    """Wait until this number of batches is planned."""

    def are_planned() -> bool:
        if run.wait_for_batches(batches):
            return True
        assert run.end() != 0, f"the run ended before it had planned {batches} batches"
        return False

    go_on_until(run, are_planned)


def go_on_to_the_end(run: JobRun) -> None:
    go_on_until(run, lambda: run.end() == 0)


def assert_same(found: Results, wanted: Results) -> None:
    """Tables, latest values and events are compared one by one, so that a failure names the first difference."""
    assert found.tables.keys() == wanted.tables.keys()
    assert found.topics.keys() == wanted.topics.keys()
    for table, rows in wanted.tables.items():
        assert found.tables[table] == rows, table
    for topic in (each for job in JOBS for each in LATEST_BY_KEY[job] if each in wanted.topics):
        assert found.latest(topic) == wanted.latest(topic), topic
    for topic in (each for job in JOBS for each in EVENTS[job] if each in wanted.topics):
        assert found.events(topic) == wanted.events(topic), topic


@pytest.mark.parametrize("number", range(ROUNDS))
def test_the_results_are_the_same_whichever_process_is_killed(
    number: int,
    spark: SparkSession,
    reference: Reference,
    make_broker: Callable[..., BrokerProcess],
    tmp_path: Path,
) -> None:
    """kill -9 of drivers, executors and brokers at random moments of one run."""
    chance = random.Random(f"{SEED}/{number}")
    kinds = [kind for kind, kills in KILLS.items() for _ in range(kills)]
    chance.shuffle(kinds)
    moments = sorted(chance.sample(range(2, reference.batches[JOB] * 4 // 5), len(kinds)))
    broker = make_broker()
    reference.given.send(broker.bootstrap, JOBS)
    folder = tmp_path / "run"
    with SparkCluster(tmp_path / "spark") as cluster:
        run = JobRun(JOB, broker.bootstrap, folder, *OPTIONS, master=cluster.master_url, is_submitted=True)
        victims = Victims(run.begin(), broker, cluster, chance)
        try:
            for moment, kind in zip(moments, kinds, strict=True):
                # At least one more batch than at the last kill.
                live_to_see(run, max(moment, run.batches("offsets") + 1))
                victims.kill(kind)
            go_on_to_the_end(run)
        finally:
            run.kill()
        told = "".join(cluster.log_text(name) for name in ("worker-0", "worker-1"))
    assert victims.within_batches > 0, "no driver was killed within a batch"
    assert len(victims.executors) == KILLS["executor"]
    assert told.count(KILLED) >= KILLS["executor"], "the workers did not see their executors killed"
    assert_same(read_results(spark, broker.bootstrap, run, JOBS), reference.results.of(JOBS))
