"""Alerts with their own times do not fire in a cluster that is well: idle, at work, and while its nodes are restarted one after
another.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer

from interop_tests.cluster.clusters import Cluster
from interop_tests.harness.broker import KAFKACOMPAT, chosen_bootstrap
from interop_tests.harness.ports import free_port
from interop_tests.harness.prometheus import Prometheus
from interop_tests.harness.waiting import wait_until

TOPIC, PARTITIONS = "orders", 24
LONELY = "lonely"
"""A topic with one replica of each partition, which has no leader while its node restarts."""
RECORD = b"x" * 500
IDLE_SCRAPES = 15
RECORDS_A_TURN = 50
TURN_S = 0.05
RECORDS_A_STAGE = 5_000
"""That are read before the next node is restarted."""
TIMEOUT_S = 120.0
OF_THE_MACHINE = {"KafkaLoopBusy", "KafkaLoopStalled"}
"""Alerts that a busy machine may cause."""

pytestmark = [
    pytest.mark.needs_control,
    pytest.mark.skipif(chosen_bootstrap() is not None, reason="starts a cluster of its own"),
    pytest.mark.skipif(
        not os.environ.get("KAFKACOMPAT_SOAK"), reason="takes over a minute; KAFKACOMPAT_SOAK"
    ),
]


class Load:
    """A producer that waits for all replicas, and a group that reads."""

    def __init__(self, bootstrap: str) -> None:
        self.read = 0
        self.faults: list[str] = []
        self._bootstrap = bootstrap
        self._ended = threading.Event()

    @contextmanager
    def goes_on(self) -> Iterator[None]:
        threads = [threading.Thread(target=work, daemon=True) for work in (self._write, self._follow)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._ended.set()
            for thread in threads:
                thread.join(TIMEOUT_S)

    def go_on_until_read(self, more: int) -> None:
        wanted = self.read + more
        wait_until(lambda: self.read >= wanted or self.faults, f"{more} more records are read", TIMEOUT_S)
        assert not self.faults

    def _write(self) -> None:
        producer = Producer({"bootstrap.servers": self._bootstrap, "enable.idempotence": True})

        def told(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                self.faults.append(str(error))

        numbers = itertools.count()
        while not self._ended.wait(TURN_S):
            for _ in range(RECORDS_A_TURN):
                producer.produce(TOPIC, RECORD, partition=next(numbers) % PARTITIONS, on_delivery=told)
            producer.poll(0)
        if producer.flush(TIMEOUT_S):
            self.faults.append("not all records were written")

    def _follow(self) -> None:
        options = {"bootstrap.servers": self._bootstrap, "group.id": "g", "auto.offset.reset": "earliest"}
        consumer = Consumer(options)
        consumer.subscribe([TOPIC])
        while not self._ended.is_set():
            self.read += sum(not each.error() for each in consumer.consume(1000, 0.2))
        consumer.close()


def test_a_cluster_that_is_well_raises_no_alert(tmp_path: Path) -> None:
    cluster = Cluster(KAFKACOMPAT, tmp_path / "cluster")
    ports = {node_id: free_port() for node_id in cluster.nodes}
    for node_id, node in cluster.nodes.items():
        node.settings["metrics.listener.port"] = str(ports[node_id])
    prometheus = Prometheus(tmp_path / "prometheus", list(ports.values()), shorter=())
    try:
        cluster.start()
        cluster.create_topic(TOPIC, partitions=PARTITIONS)
        cluster.create_topic(LONELY, assignment=[[node_id] for node_id in cluster.nodes])
        prometheus.start()
        scrapes = f"min(count_over_time(up[1h])) >= {IDLE_SCRAPES}"
        wait_until(lambda: prometheus.query(scrapes), "the idle cluster is scraped", TIMEOUT_S)
        load = Load(cluster.bootstrap)
        with load.goes_on():
            load.go_on_until_read(RECORDS_A_STAGE)
            assert set(prometheus.ever("firing")) <= OF_THE_MACHINE
            for node in cluster.nodes.values():
                assert node.stop() == 0
                node.start()
                cluster.wait_until_whole(TIMEOUT_S)
                load.go_on_until_read(RECORDS_A_STAGE)
        assert not load.faults
        missed = prometheus.query("min_over_time(up[1h]) == 0")
        assert len(missed) == len(ports), "the restarts were seen"
        fired = prometheus.ever("firing")
        assert set(fired) <= OF_THE_MACHINE, (fired, prometheus.ever("pending"))
    finally:
        prometheus.kill()
        cluster.close()
