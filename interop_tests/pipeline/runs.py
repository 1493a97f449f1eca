"""Runs of `kafkacompat pipeline run` as processes that may be killed, and their results: tables and result topics."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
from confluent_kafka import Consumer, KafkaError, TopicPartition

from interop_tests.harness.kafka_jars import CHECKOUT, require_program
from interop_tests.harness.spark_cluster import ivy_dir, spark_environment, spark_home
from interop_tests.harness.spark_jvm import quick_jvm
from kafkacompat.pipeline.packages import connector
from kafkacompat.pipeline.queries import QUERIES
from kafkacompat.pipeline.topics import CONFIGS
from kafkacompat.pipeline.topics import EVENTS as ONCE_EACH

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

END_TIMEOUT_S = 900.0 if os.environ.get("KAFKACOMPAT_SOAK") == "1" else 480.0
READ_TIMEOUT_S = 60.0
TYPED_TIMEOUT_S = 240.0
POLL_S = 0.02
OUTPUT_CHARACTERS = 4000
SUBMIT = CHECKOUT / "kafkacompat" / "pipeline" / "submit.py"
# Two executors and their driver on one machine.
SUBMIT_CONF = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.memory": "800m",
    "spark.ui.enabled": "false",
}
WITHOUT_CODEGEN = (
    *("--conf", "spark.sql.codegen.wholeStage=false"),
    *("--conf", "spark.sql.codegen.factoryMode=NO_CODEGEN"),
)

TABLES = {job: tuple(each.table for each in queries if each.table) for job, queries in QUERIES.items()}
WRITTEN = {job: [topic for each in queries for topic in each.writes] for job, queries in QUERIES.items()}
EVENTS = {job: tuple(each for each in named if CONFIGS[each] == ONCE_EACH) for job, named in WRITTEN.items()}
LATEST_BY_KEY = {
    job: tuple(each for each in named if each not in EVENTS[job]) for job, named in WRITTEN.items()
}


class JobRun:
    """Runs of a job with one checkpoint and one output folder. It can be started any number of times."""

    def __init__(
        self,
        job: str,
        bootstrap: str,
        root: Path,
        *options: str,
        master: str = "local[2]",
        is_short: bool = True,
        is_endless: bool = False,
        is_submitted: bool = False,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Most compilation does not pay off in a short run. An endless run continues after everything is read. environment: more
        variables.

        A submitted run is a `spark-submit`. The others are `kafkacompat pipeline run`.
        """
        require_program("java")
        self._environment = spark_environment() | {"PYSPARK_PYTHON": sys.executable} | dict(environment or {})
        if is_short:
            self._environment["JAVA_TOOL_OPTIONS"] = quick_jvm()
        self.root = root
        self.checkpoint, self.output = root / "checkpoint", root / "tables"
        self.progress = root / "progress.jsonl"
        self.log = root / "run.log"
        conf = quick_spark() if is_short else ()
        self._command = [
            *(submitted(master, conf) if is_submitted else run_by_hand(master, conf)),
            *(job, "--bootstrap", bootstrap),
            *(() if is_endless else ("--until-caught-up",)),
            *("--checkpoint", str(self.checkpoint), "--output", str(self.output)),
            *("--progress", str(self.progress)),
            *options,
        ]
        self._process: subprocess.Popen[bytes] | None = None
        root.mkdir(parents=True, exist_ok=True)

    def begin(self) -> JobRun:
        """Start the command. Its output goes to run.log."""
        assert not self.is_alive
        with open(self.log, "ab") as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.root,
                env=self._environment,
            )
        return self

    @property
    def pid(self) -> int:
        """The process id of the command."""
        assert self._process is not None, "the run has not begun"
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """kill -9 of the command and of the driver's JVM, by their process ids."""
        if self._process is None:
            return
        family = [psutil.Process(self._process.pid)] if self.is_alive else []
        family += [child for parent in family for child in parent.children(recursive=True)]
        for process in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self._process.wait(30)
        psutil.wait_procs(family, 30)

    def end(self, timeout_s: float = END_TIMEOUT_S) -> int:
        """Wait for the end of the command. Returns its exit status."""
        assert self._process is not None
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"the run did not end in {timeout_s} s:\n{self.said()}") from None

    def said(self) -> str:
        """The end of the output of the command and Spark."""
        parts = [path for path in (self.log, self.checkpoint / "spark.log") if path.exists()]
        return "\n".join(path.read_text(errors="replace")[-OUTPUT_CHARACTERS:] for path in parts)

    def batches(self, kind: str, job: str = "all") -> int:
        """The number of batches of all the job's queries that are planned (`offsets`) or done (`commits`) in the
        checkpoint."""
        queries = "*" if job == "all" else f"{job}-*"
        return sum(path.name.isdigit() for path in self.checkpoint.glob(f"{queries}/{kind}/*"))

    def wait_for_batches(self, count: int, timeout_s: float = END_TIMEOUT_S) -> bool:
        """Wait until this number of batches is planned. False if the command ended before."""
        deadline = time.monotonic() + timeout_s
        while self.batches("offsets") < count:
            if not self.is_alive:
                return False
            assert time.monotonic() < deadline, self.said()
            time.sleep(POLL_S)
        return self.is_alive


def run_words() -> str:
    """The options of `pipeline run` with which a line of a page runs quickly, without a network."""
    return " ".join(f"'{word}'" for word in ("--master", "local[2]", "--ivy", str(ivy_dir()), *quick_spark()))


def typed(asked: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a line of a page, whose commands are named by their paths, in a folder with its files."""
    environment = spark_environment() | {"PYTHONPATH": str(CHECKOUT), "JAVA_TOOL_OPTIONS": quick_jvm()}
    return subprocess.run(
        ["bash", "-c", asked],
        capture_output=True,
        text=True,
        timeout=TYPED_TIMEOUT_S,
        cwd=folder,
        env=environment,
    )


def quick_spark() -> tuple[str, ...]:
    """Spark settings of a short run, for which most compilation does not pay off."""
    return (*WITHOUT_CODEGEN, "--conf", f"spark.executor.extraJavaOptions={quick_jvm()}")


def run_by_hand(master: str, conf: tuple[str, ...]) -> list[str]:
    """The command up to the job's name."""
    command = [sys.executable, "-m", "kafkacompat", "pipeline", "run", "--master", master]
    return [*command, "--ivy", str(ivy_dir()), *conf]


def submitted(master: str, conf: tuple[str, ...]) -> list[str]:
    """The command up to the job's name."""
    given = [
        word
        for name, value in {"spark.jars.ivy": str(ivy_dir()), **SUBMIT_CONF}.items()
        for word in ("--conf", f"{name}={value}")
    ]
    command = [str(spark_home() / "bin" / "spark-submit"), "--packages", connector(), "--master", master]
    return [*command, *given, *conf, str(SUBMIT)]


@dataclass
class Results:
    """The results of a run."""

    tables: dict[str, list[str]] = field(default_factory=dict)
    """Every committed row as JSON text with sorted keys, in order. A duplicate row appears twice."""
    topics: dict[str, list[tuple[str, dict[str, Any]]]] = field(default_factory=dict)
    """(key, value) of every record of the result topics, partition by partition."""

    def of(self, jobs: tuple[str, ...]) -> Results:
        """The results of these jobs."""
        return Results(
            {name: self.tables[name] for job in jobs for name in TABLES[job]},
            {name: self.topics[name] for job in jobs for name in (*LATEST_BY_KEY[job], *EVENTS[job])},
        )

    def rows(self, table: str) -> list[dict[str, Any]]:
        return [json.loads(row) for row in self.tables[table]]

    def latest(self, topic: str) -> dict[str, dict[str, Any]]:
        """The last value of each key."""
        return dict(self.topics[topic])

    def events(self, topic: str) -> dict[str, dict[str, Any]]:
        """The value of each event id. The first record of an id counts; later ones may include more of the same event."""
        return {value["event_id"]: value for _, value in reversed(self.topics[topic])}

    def copies(self) -> int:
        """Records whose event id came before. At least once permits them, and consumers drop them."""
        return sum(copies_among(topic, records) for topic, records in self.topics.items())


def read_results(spark: SparkSession, bootstrap: str, run: JobRun, jobs: tuple[str, ...]) -> Results:
    """Tables through Spark's commit log, topics from the first record."""
    return Results(
        {table: read_table(spark, run, table) for job in jobs for table in TABLES[job]},
        {
            topic: read_topic(bootstrap, topic)
            for job in jobs
            for topic in (*LATEST_BY_KEY[job], *EVENTS[job])
        },
    )


def read_table(spark: SparkSession, run: JobRun, table: str) -> list[str]:
    """Every committed row as JSON text, sorted."""
    folder = run.output / table
    assert (folder / "_spark_metadata").is_dir(), f"{table} has no commit log"
    as_json = "to_json(struct(*), map('ignoreNullFields', 'false')) AS row"
    rows = spark.read.parquet(str(folder)).selectExpr(as_json).collect()
    return sorted(json.dumps(json.loads(row["row"]), sort_keys=True) for row in rows)


def forget_last_commits(checkpoint: Path, job: str) -> None:
    """The checkpoint of a driver that dies between a batch's work and its commit: each query of the job repeats its
    last batch."""
    for commits in checkpoint.glob(f"{job}-*/commits"):
        last = _newest(commits)
        if last is not None and last == _newest(commits.with_name("offsets")):
            commits.joinpath(str(last)).unlink()
            commits.joinpath(f".{last}.crc").unlink(missing_ok=True)


def _newest(folder: Path) -> int | None:
    """The number of the newest batch in a folder of a checkpoint."""
    return max((int(path.name) for path in folder.glob("*") if path.name.isdigit()), default=None)


def copies_among(topic: str, records: list[tuple[str, dict[str, Any]]]) -> int:
    """The number of records that are copies. AssertionError if an event id has two keys."""
    seen: dict[str, str] = {}
    copies = 0
    for key, value in records:
        copies += value["event_id"] in seen
        assert seen.setdefault(value["event_id"], key) == key, (topic, value)
    return copies


def read_topic(bootstrap: str, topic: str) -> list[tuple[str, dict[str, Any]]]:
    """(key, value) of every record of the topic, partition by partition and in order."""
    reader = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "results",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    found: dict[int, list[tuple[str, dict[str, Any]]]] = {}
    try:
        partitions = reader.list_topics(topic, READ_TIMEOUT_S).topics[topic].partitions
        reader.assign([TopicPartition(topic, number, 0) for number in partitions])
        left = set(partitions)
        deadline = time.monotonic() + READ_TIMEOUT_S
        while left:
            assert time.monotonic() < deadline, f"{topic} is not read to its end"
            for message in reader.consume(1000, 0.5):
                if message.error() is not None:
                    assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                    left.discard(message.partition())
                    continue
                pair = (message.key().decode(), json.loads(message.value()))
                found.setdefault(message.partition(), []).append(pair)
    finally:
        reader.close()
    return [pair for number in sorted(found) for pair in found[number]]


def is_soak() -> bool:
    """Whether longer rounds are requested (a soak)."""
    return os.environ.get("KAFKACOMPAT_SOAK") == "1"
