"""The pipeline's jobs and its collector with one broker: records per second, growth of batch times, and the broker's
CPU.

The input is generated once, from a seed, and produced before Spark starts. The job reads all of it and exits. The
figures come from Spark's StreamingQueryProgress. The module uses the command line of the pipeline, and none of its
code.
"""

from __future__ import annotations

import contextlib
import functools
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import psutil

from benchmarks.measure import cpu_seconds, running
from interop_tests.harness.broker import BrokerProcess
from interop_tests.harness.kafka_jars import CHECKOUT
from interop_tests.harness.spark_cluster import ivy_dir, spark_environment
from interop_tests.pipeline.known_input import KnownInput, known_input
from interop_tests.pipeline.runs import JobRun

Figures = dict[str, float]
SEED = 11
MASTER = "local[2]"
OPTIONS = ("--session-gap", "300", "--window", "60")
PARTITIONS = 3
RUN_TIMEOUT_S = 280.0
COLLECTOR_TIMEOUT_S = 120.0
SAMPLE_INTERVAL_S = 0.05
CPU_INTERVAL_S = 0.2
BY_HAND = {
    "logs": "logs/events",
    "activity": "activity/visitors",
    "metrics": "metrics/windows",
}
"""By job: the table that benchmarks/plain_spark.py writes."""
COMPILING_TURNS = 3
TURNS_TIMEOUT_S = 1800.0
MAINTAIN_TIMEOUT_S = 300.0
MAINTENANCE_RUN_TIMEOUT_S = 1800.0


@functools.lru_cache(maxsize=2)
def input_of(job: str, records: int) -> KnownInput:
    """The number of records for a job, distributed over six hours."""
    return known_input(SEED, records, hours=6.0, jobs=(job,))


@dataclass(frozen=True)
class Batch:
    """One micro-batch with input, as reported by its query. Times in ms."""

    query: str
    records: int
    started_ms: float
    took_ms: float

    @property
    def ended_ms(self) -> float:
        return self.started_ms + self.took_ms


def batches_of(progress: Path) -> list[Batch]:
    """The batches with input of all queries, in the order of the reports."""
    found = []
    for line in progress.read_text(encoding="utf-8").splitlines():
        told: dict[str, Any] = json.loads(line)
        if told["numInputRows"] > 0:
            started_ms = datetime.fromisoformat(told["timestamp"].replace("Z", "+00:00")).timestamp() * 1e3
            took_ms = told["durationMs"]["triggerExecution"]
            found.append(Batch(told["name"], told["numInputRows"], started_ms, took_ms))
    return found


@dataclass(frozen=True)
class Done:
    """A run of a job over all existing records."""

    batches: list[Batch]
    broker_cpu_s: float
    spark_cpu_s: float
    """CPU seconds of the command and its JVM, including their starts."""

    @property
    def read(self) -> int:
        """Records read by all queries together."""
        return sum(each.records for each in self.batches)


def run_job(broker: BrokerProcess, job: str, batch_records: int) -> Done:
    """Run the job over all existing records, with a new checkpoint."""
    root = Path(tempfile.mkdtemp(prefix=f"bench-{job}-"))
    before = cpu_seconds(broker)
    options = (*OPTIONS, "--max-records-per-batch", str(batch_records))
    run = JobRun(job, broker.bootstrap, root, *options, master=MASTER, is_short=False).begin()
    try:
        spark_cpu_s = cpu_until_the_end(run)
        if run.end() != 0:
            raise RuntimeError(f"{job} failed on {broker.kind}: {run.said()}")
        return Done(batches_of(run.progress), cpu_seconds(broker) - before, spark_cpu_s)
    finally:
        run.kill()
        shutil.rmtree(root, ignore_errors=True)


def cpu_until_the_end(run: JobRun) -> float:
    """Wait for the end of the run. Returns the last observed CPU seconds of its processes."""
    spent: dict[int, float] = {}
    deadline = time.monotonic() + RUN_TIMEOUT_S
    while run.is_alive:
        if time.monotonic() > deadline:
            raise TimeoutError(f"the run did not end in {RUN_TIMEOUT_S} s: {run.said()}")
        with contextlib.suppress(psutil.NoSuchProcess):
            command = psutil.Process(run.pid)
            for process in (command, *command.children(recursive=True)):
                times = process.cpu_times()
                spent[process.pid] = times.user + times.system
        time.sleep(CPU_INTERVAL_S)
    return sum(spent.values())


def throughput(job: str, records: int, batch_records: int) -> Callable[[str], Figures]:
    """All queries of a job at the same time over the same records.

    records/s counts the topics' records, from the start of the first batch to the end of the last one, including the
    JVM's warm-up. The median query's rate leaves out the first batch of each query.
    """

    def run(kind: str) -> Figures:
        given = input_of(job, records)
        with running(kind) as broker:
            given.send(broker.bootstrap, (job,), PARTITIONS)
            done = run_job(broker, job, batch_records)
        batches = done.batches
        took_s = (max(each.ended_ms for each in batches) - min(each.started_ms for each in batches)) / 1e3
        by_query: dict[str, list[Batch]] = defaultdict(list)
        for each in batches:
            by_query[each.query].append(each)
        warm = [each for of_query in by_query.values() for each in of_query[1:]]
        rates = [
            sum(each.records for each in of_query[1:]) / sum(each.took_ms for each in of_query[1:]) * 1e3
            for of_query in by_query.values()
        ]
        return {
            "records/s": len(given.entries) / took_s,
            "median query's records/s when warm": statistics.median(rates),
            "batch median ms": statistics.median(each.took_ms for each in warm),
            "broker CPU s/million records read": done.broker_cpu_s / done.read * 1e6,
            "Spark CPU s/million records read": done.spark_cpu_s / done.read * 1e6,
        }

    return run


def overhead(job: str, records: int, batch_records: int, turns: int) -> Callable[[str], Figures]:
    """The first table of a job and its rejected records, beside the same by hand. The two run in turns in one Spark."""

    def run(kind: str) -> Figures:
        given = input_of(job, records)
        with running(kind) as broker, tempfile.TemporaryDirectory(prefix="bench-overhead-") as folder:
            given.send(broker.bootstrap, (job,), PARTITIONS)
            words = ["--bootstrap", broker.bootstrap, "--folder", folder, "--master", MASTER]
            words += ["--ivy", str(ivy_dir())]
            words += ["--batch-records", str(batch_records), "--turns", str(turns)]
            done = subprocess.run(
                [sys.executable, "-m", "benchmarks.plain_spark", job, *words],
                capture_output=True,
                text=True,
                timeout=TURNS_TIMEOUT_S,
                env=spark_environment(),
                cwd=CHECKOUT,
            )
        if done.returncode != 0:
            raise RuntimeError(done.stderr[-4000:])
        found = json.loads(done.stdout.splitlines()[-1])
        # A JVM compiles the code of both ways in their first turns.
        found = {way: each[COMPILING_TURNS:] for way, each in found.items()}

        def median(way: str, figure: Callable[[Figures], float]) -> float:
            return statistics.median(figure(each) for each in found[way])

        def ratio(figure: Callable[[Figures], float]) -> float:
            beside = zip(found["job"], found["plain"], strict=True)
            return statistics.median(figure(one) / figure(other) for one, other in beside)

        def cpu(each: Figures) -> float:
            return each["cpu_s"] / each["records"] * 1e6

        def rate(each: Figures) -> float:
            return each["records"] / each["took_s"]

        return {
            "job CPU s/million records": median("job", cpu),
            "plain Spark CPU s/million records": median("plain", cpu),
            "overhead of the job in CPU %": (ratio(cpu) - 1) * 100,
            "job records/s": median("job", rate),
            "plain Spark records/s": median("plain", rate),
            "overhead of the job in time a record %": (1 / ratio(rate) - 1) * 100,
        }

    return run


def batch_median_ms(batches: list[Batch], records: int) -> float:
    """The median time of the whole batches, without each query's first."""
    seen: set[str] = set()
    whole = []
    for each in batches:
        if each.query in seen and each.records >= records * 0.9:
            whole.append(each.took_ms)
        seen.add(each.query)
    return statistics.median(whole)


def growth(job: str, batch_records: int, batches: int) -> Callable[[str], Figures]:
    """Batches of so many records, of ten times as many, and of ten times as many from ten times the partitions."""
    records = 10 * batch_records * batches

    def run(kind: str) -> Figures:
        given = input_of(job, records)
        with running(kind) as broker:
            given.send(broker.bootstrap, (job,), PARTITIONS)
            small = batch_median_ms(run_job(broker, job, batch_records).batches, batch_records)
            large = batch_median_ms(run_job(broker, job, 10 * batch_records).batches, 10 * batch_records)
        with running(kind) as broker:
            given.send(broker.bootstrap, (job,), 10 * PARTITIONS)
            wide = batch_median_ms(run_job(broker, job, 10 * batch_records).batches, 10 * batch_records)
        return {
            f"batch of {batch_records:,} records ms": small,
            f"batch of {10 * batch_records:,} records ms": large,
            f"batch of {10 * batch_records:,} records, {10 * PARTITIONS} partitions ms": wide,
            "growth of batch time at 10 times the records": large / small,
            "growth of batch time at 10 times the partitions": wide / large,
        }

    return run


def maintenance(batches: int, records: int, form: str) -> Callable[[str], Figures]:
    """The table logs/events after so many batches over the hours of a day, as a run leaves it and as `pipeline maintain` does."""

    def run(kind: str) -> Figures:
        given = known_input(SEED, records, hours=24.0, jobs=("logs",))
        with running(kind) as broker, tempfile.TemporaryDirectory(prefix="bench-maintenance-") as folder:
            given.send(broker.bootstrap, ("logs",), PARTITIONS)
            job = JobRun(
                "benchmarks.plain_spark:LOGS_ROWS",
                broker.bootstrap,
                Path(folder),
                *("--max-records-per-batch", str(records // batches), "--table-format", form),
                master=MASTER,
                is_short=False,
                environment={"PYTHONPATH": str(CHECKOUT)},
            ).begin()
            try:
                if job.end(MAINTENANCE_RUN_TIMEOUT_S) != 0:
                    raise RuntimeError(f"the run failed: {job.said()}")
            finally:
                job.kill()
            table = job.output / "logs" / "events"
            files, size = data_files(table)
            took_s = [maintained_s(job.output) for _ in range(2)]
            after_files, after_size = data_files(table)
            ended = sum(1 for each in batches_of(job.progress) if each.query == "logs-events")
        return {
            "batches": ended,
            "files before": files,
            "files after": after_files,
            "MB before": size / 1e6,
            "MB after": after_size / 1e6,
            "maintenance s": took_s[0],
            "second maintenance s": took_s[1],
        }

    return run


def data_files(table: Path) -> tuple[int, int]:
    """The number of files with rows in a table's folder, and their bytes."""
    sizes = [path.stat().st_size for path in table.rglob("*.parquet") if "_delta_log" not in path.parts]
    return len(sizes), sum(sizes)


def maintained_s(output: Path) -> float:
    """Seconds of `pipeline maintain`, with the start of its JVM. It deletes what it has replaced at once, or the next time."""
    command = [sys.executable, "-m", "kafkacompat", "pipeline", "maintain", "--output", str(output)]
    command += ["--ivy", str(ivy_dir()), "--keep-replaced", "0"]
    started = time.perf_counter()
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=MAINTAIN_TIMEOUT_S, env=spark_environment()
    )
    if done.returncode != 0:
        raise RuntimeError(done.stdout + done.stderr)
    return time.perf_counter() - started


def collector(lines: int) -> Callable[[str], Figures]:
    """`pipeline collect --until-end` over one file: lines per second including its start, and its largest resident
    set."""

    def run(kind: str) -> Figures:
        root = Path(tempfile.mkdtemp(prefix="bench-collector-"))
        try:
            given = [entry.value for entry in input_of("logs", lines).entries]
            text = b"".join(line.replace(b"\n", b" ") + b"\n" for line in given)
            (root / "access.log").write_bytes(text)
            with running(kind) as broker:
                took_s, resident_bytes = timed_collector(broker, root)
            return {
                "lines/s": len(given) / took_s,
                "MB/s": len(text) / took_s / 1e6,
                "collector memory MB": resident_bytes / 1e6,
            }
        finally:
            shutil.rmtree(root, ignore_errors=True)

    return run


def timed_collector(broker: BrokerProcess, root: Path) -> tuple[float, int]:
    """Seconds from start to end of the collector over root/access.log, and its maximum resident bytes."""
    command = [
        *(sys.executable, "-m", "kafkacompat", "pipeline", "collect", str(root / "access.log")),
        *("--until-end", "--bootstrap", broker.bootstrap, "--state", str(root / "state")),
    ]
    started = time.perf_counter()
    with open(root / "collector.log", "wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    most = 0
    try:
        watched = psutil.Process(process.pid)
        while process.poll() is None:
            most = max(most, watched.memory_info().rss)
            if time.perf_counter() - started > COLLECTOR_TIMEOUT_S:
                raise TimeoutError("the collector does not end")
            time.sleep(SAMPLE_INTERVAL_S)
    finally:
        process.kill()
        status = process.wait()
    if status != 0:
        raise RuntimeError((root / "collector.log").read_text(errors="replace")[-2000:])
    return time.perf_counter() - started, most
