"""Exactly once on three nodes: copiers that consume, transform and produce while nodes are killed with -9."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from interop_tests.cluster.clusters import Cluster
from interop_tests.cluster.conftest import Measure
from interop_tests.cluster.workload import closing_consumer
from interop_tests.harness.waiting import wait_until
from interop_tests.harness.wire import Connection

PARTITIONS = 3
INPUTS = 600
BATCH = 20
TRANSACTION_KEY = 1
TIMEOUT_S = 60.0


class Copier:
    """Copies one partition of the source into the same of the target, `BATCH` a transaction, every fifth aborted.

    After any failure but an abortable one the producer is made anew, as an application that is started again would be.
    """

    def __init__(self, bootstrap: str, source: str, target: str, partition: int, stem: str) -> None:
        self._bootstrap = bootstrap
        self._source = TopicPartition(source, partition)
        self._target = target
        self._name = f"{stem}-{partition}"
        self.copied = 0
        self.restarts = 0
        self.faults: list[str] = []
        self.ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self.ended.set()
        self._thread.join(TIMEOUT_S)
        assert not self._thread.is_alive(), "a copier hangs"

    def _run(self) -> None:
        while not self.ended.is_set() and self.copied < INPUTS:
            consumer = self._consumer()
            try:
                self._copy(consumer)
            except KafkaException as error:
                self.restarts += 1
                self.faults.append(str(error))
                self.ended.wait(0.2)
            finally:
                consumer.close()

    def _consumer(self) -> Consumer:
        return Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": self._name,
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
            }
        )

    def _copy(self, consumer: Consumer) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "transactional.id": self._name,
                "transaction.timeout.ms": 20_000,
            }
        )
        producer.init_transactions(TIMEOUT_S)
        (committed,) = consumer.committed([self._source], TIMEOUT_S)
        self.copied = max(committed.offset, 0)
        consumer.assign([TopicPartition(self._source.topic, self._source.partition, self.copied)])
        turn = 0
        while not self.ended.is_set() and self.copied < INPUTS:
            messages = [each for each in consumer.consume(BATCH, 1.0) if each.error() is None]
            if not messages:
                continue
            turn += 1
            try:
                producer.begin_transaction()
                for message in messages:
                    producer.produce(self._target, message.value(), partition=self._source.partition)
                end = messages[-1].offset() + 1
                producer.send_offsets_to_transaction(
                    [TopicPartition(self._source.topic, self._source.partition, end)],
                    consumer.consumer_group_metadata(),
                    TIMEOUT_S,
                )
                if turn % 5 == 4:
                    producer.flush(TIMEOUT_S)
                    producer.abort_transaction(TIMEOUT_S)
                    end = self.copied
                else:
                    self._commit(producer)
            except KafkaException as error:
                if not error.args[0].txn_requires_abort():
                    raise
                producer.abort_transaction(TIMEOUT_S)
                end = self.copied
            self.copied = end
            consumer.seek(TopicPartition(self._source.topic, self._source.partition, end))

    def _commit(self, producer: Producer) -> None:
        """Until it is known how it ended."""
        while True:
            try:
                producer.commit_transaction(TIMEOUT_S)
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise
            else:
                return


def coordinator(cluster: Cluster, transactional_id: str) -> int:
    def question(connection: Connection) -> int:
        reply = connection.call(
            "FindCoordinator", 4, {"KeyType": TRANSACTION_KEY, "CoordinatorKeys": [transactional_id]}
        )
        (found,) = reply["Coordinators"]
        return found["NodeId"] if found["ErrorCode"] == 0 else 0

    return cluster.wait(lambda: cluster.ask(question), f"{transactional_id} has a coordinator")


def fill(bootstrap: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(INPUTS):
        for partition in range(PARTITIONS):
            producer.produce(topic, b"%d" % number, partition=partition)
    assert producer.flush(TIMEOUT_S) == 0


def committed_values(bootstrap: str, topic: str) -> dict[int, list[int]]:
    """What a read_committed application sees, by partition."""
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
                else:
                    ended.add(message.partition())
            return len(ended) == PARTITIONS

        wait_until(at_end, "everything is read", TIMEOUT_S)
    return values


def copy_while(cluster: Cluster, stem: str, disturb: Callable[[str, list[Copier]], Any]) -> list[Copier]:
    source, target = f"{stem}-source", f"{stem}-target"
    for topic in (source, target):
        cluster.create_topic(topic, PARTITIONS)
    fill(cluster.bootstrap, source)
    copiers = [Copier(cluster.bootstrap, source, target, each, stem) for each in range(PARTITIONS)]
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


def test_copies_are_exact(cluster: Cluster, unique: Any) -> None:
    copy_while(cluster, unique("copy"), lambda target, copiers: None)


def test_coordinator_and_leaders_are_killed(cluster: Cluster, unique: Any, measure: Measure) -> None:
    """The coordinator of the first copier, then the leader of a target partition, then the coordinator again."""
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
