"""Exactly once on three nodes: copiers consume, transform and produce while nodes are killed with -9."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, Producer, TopicPartition

from interop_tests.cluster.clusters import Cluster
from interop_tests.cluster.copier import Copier
from interop_tests.cluster.workload import closing_consumer
from interop_tests.harness.chance import seeded_chance
from interop_tests.harness.java_tools import tool_command
from interop_tests.harness.stable import wait_until_stable
from interop_tests.harness.waiting import wait_until
from interop_tests.harness.wire import Connection

PARTITIONS = 3
INPUTS = 600
JAVA_INPUTS = 3000
"""A JVM takes longer to start, but is faster afterwards."""
ROUNDS = 60 if os.environ.get("KAFKACOMPAT_SOAK") else 5
"""The number of kills of the random test."""
PROJECT = Path(__file__).resolve().parents[2]
TRANSACTION_KEY = 1
TIMEOUT_S = 60.0


def coordinator(cluster: Cluster, transactional_id: str) -> int:
    def question(connection: Connection) -> int:
        reply = connection.call(
            "FindCoordinator", 4, {"KeyType": TRANSACTION_KEY, "CoordinatorKeys": [transactional_id]}
        )
        (found,) = reply["Coordinators"]
        return found["NodeId"] if found["ErrorCode"] == 0 else 0

    return cluster.wait(lambda: cluster.ask(question), f"{transactional_id} has a coordinator")


def fill(bootstrap: str, topic: str, inputs: int = INPUTS) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(inputs):
        for partition in range(PARTITIONS):
            producer.produce(topic, b"%d" % number, partition=partition)
    assert producer.flush(TIMEOUT_S) == 0


def committed_values(bootstrap: str, topic: str) -> dict[int, list[int]]:
    """The records that a read_committed application gets, by partition, when all transactions have ended."""
    wait_until_stable(bootstrap, topic, PARTITIONS, TIMEOUT_S)
    values: dict[int, list[int]] = {each: [] for each in range(PARTITIONS)}
    with closing_consumer(
        bootstrap, **{"isolation.level": "read_committed", "enable.partition.eof": True}
    ) as consumer:
        consumer.assign([TopicPartition(topic, each, 0) for each in range(PARTITIONS)])
        ended: set[int] = set()

        def at_end() -> bool:
            for message in consumer.consume(500, 1.0):
                if message.error() is None:
                    values[message.partition()].append(int(message.value()))
                elif message.error().code() == KafkaError._PARTITION_EOF:
                    ended.add(message.partition())
            return len(ended) == PARTITIONS

        wait_until(at_end, "everything is read", TIMEOUT_S)
    return values


def copy_while(cluster: Cluster, stem: str, disturb: Callable[[str, list[Copier]], Any]) -> list[Copier]:
    source, target = f"{stem}-source", f"{stem}-target"
    for topic in (source, target):
        cluster.create_topic(topic, PARTITIONS)
    fill(cluster.bootstrap, source)
    copiers = [
        Copier(cluster.bootstrap, source, target, each, f"{stem}-{each}", INPUTS)
        for each in range(PARTITIONS)
    ]
    try:
        disturb(target, copiers)
        wait_until(lambda: all(copier.copied >= INPUTS for copier in copiers), "everything is copied", 120)
    finally:
        for copier in copiers:
            copier.stop()
            print(copier.copied, copier.restarts, copier.faults)
    assert committed_values(cluster.bootstrap, target) == {
        each: list(range(INPUTS)) for each in range(PARTITIONS)
    }
    return copiers


def test_copies_are_exact_although_coordinator_and_leaders_are_killed(cluster: Cluster, unique: Any) -> None:
    """The victims: the coordinator of the first copier, then the leader of a target partition, then the coordinator
    again."""
    stem = unique("killed")

    def disturb(target: str, copiers: list[Copier]) -> None:
        for victim in (
            lambda: coordinator(cluster, f"{stem}-0"),
            lambda: cluster.leader(target, 1),
            lambda: coordinator(cluster, f"{stem}-0"),
        ):
            mark = [copier.copied for copier in copiers]
            wait_until(
                lambda mark=mark: sum(each.copied for each in copiers) >= min(sum(mark) + 60, INPUTS * 3),
                "the copiers go on",
                60,
            )
            node = cluster.nodes[victim()]
            node.kill()
            node.start()
            cluster.wait_until_whole()

    copy_while(cluster, stem, disturb)


class CopierProcess:
    """A copier that can be killed and started again. It exits when it has copied everything."""

    def __init__(self, command: list[str], log: Path) -> None:
        self._command = command
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with open(self._log, "ab") as log:
            self._process = subprocess.Popen(self._command, cwd=PROJECT, stdout=log, stderr=log)

    def is_done(self) -> bool:
        assert self._process is not None
        status = self._process.poll()
        assert status in (None, 0), f"a copier ended with {status}:\n{self._log.read_text()[-4000:]}"
        return status == 0

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(10)


def python_copier(
    bootstrap: str, source: str, target: str, partition: int, name: str, inputs: int
) -> list[str]:
    return [
        *(sys.executable, "-m", "interop_tests.cluster.copier"),
        *(bootstrap, source, target, str(partition), name, str(inputs)),
    ]


def java_copier(
    bootstrap: str, source: str, target: str, partition: int, name: str, inputs: int
) -> list[str]:
    """The copier of Kafka's system tests. It copies the records of its partition that its group has not committed yet."""
    del inputs
    return tool_command(
        "TransactionalMessageCopier",
        *("--broker-list", bootstrap, "--input-topic", source, "--input-partition", str(partition)),
        *("--output-topic", target, "--consumer-group", name, "--transactional-id", name),
        *("--transaction-size", "20", "--transaction-timeout", "20000", "--enable-random-aborts"),
        "--use-group-metadata",
    )


@pytest.mark.parametrize(
    ("command", "inputs"), [(python_copier, INPUTS), (java_copier, JAVA_INPUTS)], ids=["librdkafka", "java"]
)
def test_nodes_and_copiers_are_killed_at_random(
    command: Callable[..., list[str]], inputs: int, cluster: Cluster, unique: Any, tmp_path: Path
) -> None:
    """Any node is killed at any moment: each input is in the output once and in order."""
    stem = unique("random")
    source, target = f"{stem}-source", f"{stem}-target"
    for topic in (source, target):
        cluster.create_topic(topic, PARTITIONS)
    inputs *= max(1, ROUNDS // 10)
    fill(cluster.bootstrap, source, inputs)
    copiers = [
        CopierProcess(
            command(cluster.bootstrap, source, target, each, f"{stem}-{each}", inputs),
            tmp_path / f"{each}.log",
        )
        for each in range(PARTITIONS)
    ]
    chance = seeded_chance()
    try:
        for copier in copiers:
            copier.start()
        for _ in range(ROUNDS):
            threading.Event().wait(chance.uniform(0.3, 2.0))
            victim = chance.choice(["node", "coordinator", "copier", "copier"])
            number = chance.randrange(PARTITIONS)
            print(victim, number)
            if victim == "copier":
                if not copiers[number].is_done():
                    copiers[number].kill()
                    copiers[number].start()
            else:
                found = number + 1 if victim == "node" else coordinator(cluster, f"{stem}-{number}")
                cluster.nodes[found].kill()
                cluster.nodes[found].start()
                cluster.wait_until_whole()
        wait_until(
            lambda: not [copier for copier in copiers if not copier.is_done()], "everything is copied", 180
        )
    finally:
        for copier in copiers:
            copier.kill()
    assert committed_values(cluster.bootstrap, target) == {
        each: list(range(inputs)) for each in range(PARTITIONS)
    }
