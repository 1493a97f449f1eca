"""One undisturbed run of all jobs on known input. It is compared with plain Python, and with runs that are killed.

The input is in the topics before the run, and a batch has a fixed number of records, so every run plans the same
batches.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interop_tests.harness.broker import BrokerProcess, chosen_kind
from interop_tests.pipeline.hostile_input import hostile_input
from interop_tests.pipeline.known_input import INPUTS, KnownInput, known_input
from interop_tests.pipeline.model import Bounds
from interop_tests.pipeline.runs import JobRun, Results, is_soak, read_results

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SEED = 6
JOBS = tuple(INPUTS)
EVENTS_A_JOB = 20_000 if is_soak() else 3_000
# For a job with two input topics, a batch takes this number of records from both together.
BATCH_RECORDS = 2_000 if is_soak() else 1_100
# Windows that are long enough for the samples that an alert needs.
BOUNDS = Bounds(window_ms=300_000, session_gap_ms=120_000)
OPTIONS = (
    *("--max-records-per-batch", str(BATCH_RECORDS), "--shuffle-partitions", "1"),
    *("--window", str(BOUNDS.window_ms // 1000), "--session-gap", str(BOUNDS.session_gap_ms // 1000)),
)


@dataclass
class Reference:
    """The input and the results of the run. The broker keeps running, for tests that continue from the checkpoint."""

    bootstrap: str
    run: JobRun
    given: KnownInput
    results: Results
    progress: list[dict[str, Any]]
    """Spark's progress of every batch."""
    batches: dict[str, int]
    """Planned batches of all queries of a job, and of "all"."""


@contextmanager
def undisturbed(spark: SparkSession, folder: Path) -> Iterator[Reference]:
    """Run all jobs once, on a separate broker."""
    given = known_input(SEED, EVENTS_A_JOB)
    given.hostile = hostile_input(given.entries[0].timestamp_ms)
    broker = BrokerProcess(chosen_kind(), folder / "broker").start()
    try:
        given.send(broker.bootstrap)
        run = JobRun("all", broker.bootstrap, folder / "run", *OPTIONS).begin()
        assert run.end() == 0, run.said()
        yield Reference(
            broker.bootstrap,
            run,
            given,
            read_results(spark, broker.bootstrap, run, JOBS),
            [json.loads(line) for line in run.progress.read_text().splitlines()],
            {job: run.batches("offsets", job) for job in (*JOBS, "all")},
        )
    finally:
        broker.kill()
