"""How long an event takes from its producer to a table and to a result topic of a job that runs.

Events are sent at fixed times to a topic of one partition. A consumer sees each in the result topic. A batch of the table has the
events after those of the batch before it, and is committed when its file in `_spark_metadata` is written.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.latency_job import INPUT, RESULTS, TABLE
from benchmarks.measure import running
from interop_tests.harness.kafka_jars import CHECKOUT
from interop_tests.pipeline.runs import JobRun
from kafkacompat.pipeline.sink_log import COMPACT, LOG

MASTER: Final = "local[2]"
OPTIONS: Final = ("--trigger", "1", "--table-trigger", "1")
WARM_S: Final = 40
"""A JVM compiles the code of both queries in this time."""
START_TIMEOUT_S: Final = 180.0
END_TIMEOUT_S: Final = 60.0


class Seen:
    """When each event was first seen in the result topic, in ms."""

    def __init__(self, bootstrap: str) -> None:
        self.at_ms: dict[str, float] = {}
        self._is_over = threading.Event()
        self._bootstrap = bootstrap
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        reader = Consumer(
            {"bootstrap.servers": self._bootstrap, "group.id": "latency", "fetch.wait.max.ms": 10}
        )
        reader.assign([TopicPartition(RESULTS, 0, 0)])
        while not self._is_over.is_set():
            message = reader.poll(0.1)
            if message is not None and message.error() is None:
                self.at_ms.setdefault(json.loads(message.value())["event_id"], time.time() * 1000)
        reader.close()

    def end(self) -> None:
        self._is_over.set()
        self._thread.join()


def send(bootstrap: str, rate: int, first: int, count: int) -> list[int]:
    """Send events at fixed times. Return the time of each."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "acks": "all"})
    times_ms = []
    start_s = time.monotonic()
    for number in range(count):
        time.sleep(max(start_s + number / rate - time.monotonic(), 0))
        times_ms.append(int(time.time() * 1000))
        producer.produce(INPUT, json.dumps({"event_id": str(first + number), "event_time_ms": times_ms[-1]}))
        producer.poll(0)
    if producer.flush(30):
        raise RuntimeError("the broker does not take the events")
    return times_ms


def committed_ms(table: Path, progress: Path, events: int) -> list[float]:
    """When each event was committed to the table, in the order in which they were sent."""
    found: list[float] = []
    for line in progress.read_text(encoding="utf-8").splitlines():
        told = json.loads(line)
        if told["name"] != TABLE.replace("/", "-") or not told["numInputRows"]:
            continue
        number = told["batchId"]
        names = (table / LOG / str(number), table / LOG / f"{number}{COMPACT}")
        at = next(name for name in names if name.exists()).stat().st_mtime_ns / 1e6
        found += [at] * told["numInputRows"]
    return found[:events]


def wait_for(what: str, is_so: Callable[[], bool], run: JobRun, timeout_s: float) -> None:
    """Wait until something is so while the job runs."""
    end_s = time.monotonic() + timeout_s
    while not is_so():
        if not run.is_alive or time.monotonic() > end_s:
            raise RuntimeError(f"{what}: {run.said()}")
        time.sleep(0.2)


def event_latency(rate: int, seconds: int) -> Callable[[str], dict[str, float]]:
    """Events at this rate for so long, after the queries are warm."""

    def measured(kind: str) -> dict[str, float]:
        with running(kind) as broker, tempfile.TemporaryDirectory(prefix="bench-latency-") as folder:
            admin = AdminClient({"bootstrap.servers": broker.bootstrap})
            for made in admin.create_topics([NewTopic(name, 1, 1) for name in (INPUT, RESULTS)]).values():
                made.result()
            run = JobRun(
                "benchmarks.latency_job:JOB",
                broker.bootstrap,
                Path(folder),
                *OPTIONS,
                master=MASTER,
                is_short=False,
                is_endless=True,
                environment={"PYTHONPATH": str(CHECKOUT)},
            ).begin()
            seen = Seen(broker.bootstrap)
            try:
                times_ms = send(broker.bootstrap, rate, 0, 1)
                wait_for("no result", lambda: "0" in seen.at_ms, run, START_TIMEOUT_S)
                warm = 1 + WARM_S * rate
                times_ms += send(broker.bootstrap, rate, 1, warm - 1 + seconds * rate)
                events = len(times_ms)
                table = run.output / TABLE
                wait_for("results are missing", lambda: len(seen.at_ms) == events, run, END_TIMEOUT_S)
                wait_for(
                    "rows are missing",
                    lambda: len(committed_ms(table, run.progress, events)) == events,
                    run,
                    END_TIMEOUT_S,
                )
                committed = committed_ms(table, run.progress, events)
            finally:
                seen.end()
                run.kill()
        to_topic = [seen.at_ms[str(number)] - at for number, at in enumerate(times_ms)][warm:]
        to_table = [at - sent for at, sent in zip(committed, times_ms, strict=True)][warm:]
        figures = {}
        for what, found in (("topic", to_topic), ("table", to_table)):
            hundredths = statistics.quantiles(found, n=100)
            figures[f"event to {what}, p50 ms"] = hundredths[49]
            figures[f"event to {what}, p99 ms"] = hundredths[98]
        return figures

    return measured
