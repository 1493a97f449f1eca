"""Transactions on one node: how many per second with three clients, and how soon a read_committed consumer gets their
records.

It uses processes and clients, and nothing inside the brokers. Apache Kafka 4.4 and kafkacompat both have
transaction.version 2.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

from benchmarks.measure import (
    CLIENT_TIMEOUT_S,
    WARM_THEN_MEASURED,
    client,
    cpu_seconds,
    create_topic,
    running,
)
from interop_tests.harness.broker import BrokerProcess
from interop_tests.harness.java_tools import LOGGING
from interop_tests.harness.kafka_jars import kafka_classpath, require_program

Figures = dict[str, float]
JAVA_LOOP = Path(__file__).with_name("TransactionLoop.java")
WARM_S, SECONDS = 4, 4
RECORD_BYTES = 100
LATENCY_RATE = 20
"""Transactions per second. It is low enough that no client here waits for the end of its previous transaction."""


def java_client(broker: BrokerProcess, *arguments: object, topic: str = "bench") -> Figures:
    """Runs TransactionLoop.java in a separate JVM, which compiles it at the start."""
    command = [require_program("java"), "-Xmx256m", LOGGING, "-cp", kafka_classpath(), str(JAVA_LOOP)]
    command += [broker.bootstrap, topic, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=CLIENT_TIMEOUT_S)
    if done.returncode != 0:
        raise RuntimeError(f"the Java client failed on {broker.kind}: {done.stderr[-2000:]}")
    figures: Figures = json.loads(done.stdout.splitlines()[-1])
    return figures


def by_java(records: int, producers: int) -> Callable[[str], Figures]:
    def run(kind: str) -> Figures:
        with running(kind) as broker:
            create_topic(broker, "bench", 1)
            figures = java_client(broker, "rate", records, RECORD_BYTES, producers, WARM_S, SECONDS)
            return {"transactions/s": figures["transactions_per_s"]}

    return run


def by_librdkafka(records: int) -> Callable[[str], Figures]:
    return _python_client("librdkafka_transactions", records)


def packed_by_hand(records: int) -> Callable[[str], Figures]:
    return _python_client("raw_transactions", records)


def _python_client(work: str, records: int) -> Callable[[str], Figures]:
    def run(kind: str) -> Figures:
        with running(kind) as broker:
            create_topic(broker, "bench", 1)
            job = {"work": work, "topic": "bench", "size": RECORD_BYTES, "records": records}
            client(broker, warm_s=WARM_S, seconds=0.1, **job)
            before = cpu_seconds(broker)
            figures = client(broker, warm_s=0, seconds=SECONDS, **job)
            return {
                "transactions/s": figures["transactions_per_s"],
                "broker CPU us/transaction": (cpu_seconds(broker) - before) / figures["transactions"] * 1e6,
            }

    return run


def latency_of_librdkafka(kind: str) -> Figures:
    with running(kind) as broker:
        for topic in WARM_THEN_MEASURED:
            create_topic(broker, topic, 1)
            job = {"work": "committed_latency", "topic": topic, "size": RECORD_BYTES}
            figures = client(broker, rate=LATENCY_RATE, count=LATENCY_RATE * 20, **job)
        return _named(figures)


def latency_of_java(kind: str) -> Figures:
    with running(kind) as broker:
        for topic in WARM_THEN_MEASURED:
            create_topic(broker, topic, 1)
            figures = java_client(
                broker, "latency", LATENCY_RATE * 20, LATENCY_RATE, RECORD_BYTES, topic=topic
            )
        return _named(figures)


def _named(figures: Figures) -> Figures:
    return {"p50 ms": figures["p50_ms"], "p99 ms": figures["p99_ms"]}
