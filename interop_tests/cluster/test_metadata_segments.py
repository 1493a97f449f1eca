"""Segments of the metadata log that end at snapshots: nodes are killed while they begin new ones, and Apache Kafka opens
the directories afterwards.

These tests start both kinds of brokers, whatever kind the other tests use.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from interop_tests.cluster.clusters import Cluster
from interop_tests.cluster.conftest import MakeCluster
from interop_tests.cluster.node import ClusterNode
from interop_tests.harness.broker import APACHE, KAFKACOMPAT
from interop_tests.harness.java_tools import KafkaTools, dump_faults
from interop_tests.storage.test_round_trip import check_files

SETTINGS = {
    "metadata.log.max.record.bytes.between.snapshots": "100000",
    "auto.leader.rebalance.enable": "false",
}
TOPIC = "kept"
NUMBER, FILLER = "retention.ms", "follower.replication.throttled.replicas"
FIRST = 1_000_000_000
FILLED = ",".join(f"{index}:{1 + index % 3}" for index in range(1_500))
"""About 10 KiB: some thirty changes fill the 256 KiB from which on a snapshot ends a segment."""


class Author:
    """Changes a topic's settings without a pause. Each change has a number, which grows."""

    def __init__(self, cluster: Cluster) -> None:
        self._admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "reconnect.backoff.max.ms": 500})
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.tried = FIRST
        self.acknowledged = FIRST

    def start(self) -> Author:
        self._thread.start()
        return self

    def stop(self) -> None:
        self._ended.set()
        self._thread.join(60)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        while not self._ended.is_set():
            self.tried += 1
            values = {NUMBER: str(self.tried), FILLER: f"{self.tried}:1,{FILLED}"}
            entries = [
                ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
                for name, value in values.items()
            ]
            resource = ConfigResource(ResourceType.TOPIC, TOPIC, incremental_configs=entries)
            try:
                (done,) = self._admin.incremental_alter_configs([resource], request_timeout=5).values()
                done.result()
            except KafkaException:
                time.sleep(0.05)  # the node or the active controller was killed
            else:
                self.acknowledged = self.tried


def number_at(node: ClusterNode) -> int:
    """The number of the last change in the metadata of a broker. 0 if it cannot be asked."""
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    try:
        (found,) = admin.describe_configs(
            [ConfigResource(ResourceType.TOPIC, TOPIC)], request_timeout=5
        ).values()
        settings = found.result()
    except KafkaException:
        return 0
    number = int(settings[NUMBER].value or "0")
    filled = settings[FILLER].value or ""
    assert filled.split(":")[0] == str(number), "a change was taken in part"
    return number


def metadata_folder(node: ClusterNode) -> Path:
    return node.log_dirs[0] / "__cluster_metadata-0"


def newest_segment(node: ClusterNode) -> int:
    return max(int(path.stem) for path in metadata_folder(node).glob("*.log"))


def check_metadata_log(tools: KafkaTools, node: ClusterNode) -> None:
    """Indexes of a killed node still have their full size, which the tool does not read."""
    logs = sorted(metadata_folder(node).glob("*.log"))
    words = ["--files", ",".join(map(str, logs)), "--deep-iteration", "--cluster-metadata-decoder"]
    output = tools.run("DumpLogSegments", *words)
    assert dump_faults(output) == []
    assert output.out.count("Dumping ") == len(logs)


def wait_for_new_segment(cluster: Cluster, node: ClusterNode) -> None:
    """Returns within milliseconds, so that a kill hits what a snapshot causes."""
    before, deadline = newest_segment(node), time.monotonic() + 60
    while newest_segment(node) == before:
        assert time.monotonic() < deadline, "no new segment"
        time.sleep(0.002)


@pytest.fixture
def author() -> Iterator[Callable[[Cluster], Author]]:
    started: list[Author] = []

    def begin(cluster: Cluster) -> Author:
        started.append(Author(cluster).start())
        return started[-1]

    yield begin
    for each in started:
        each._ended.set()


def test_nodes_that_are_killed_while_segments_end_lose_nothing_and_apache_kafka_goes_on(
    make_cluster: MakeCluster, author: Callable[[Cluster], Author], tools: KafkaTools
) -> None:
    cluster = make_cluster(KAFKACOMPAT, settings=SETTINGS)
    cluster.create_topic(TOPIC, 3)
    writes = author(cluster)
    for round_ in range(2):
        active = cluster.active_controller()
        others = [node_id for node_id in sorted(cluster.nodes) if node_id != active]
        for node_id in (active, others[round_]):
            node = cluster.nodes[node_id]
            wait_for_new_segment(cluster, node)
            node.kill()
            time.sleep(0.3 * round_)  # the others go on without it for a while
            node.start()
            cluster.wait_until_whole()
    for node in cluster.nodes.values():
        wait_for_new_segment(cluster, node)
    for node in cluster.nodes.values():
        node.kill()
    acknowledged = writes.acknowledged
    writes.stop()
    assert acknowledged > FIRST + 100
    for node in cluster.nodes.values():
        check_metadata_log(tools, node)
        assert min(int(path.stem) for path in metadata_folder(node).glob("*.log")) > 0
        node.start()
    cluster.wait_until_whole()
    last = number_at(cluster.nodes[1])
    assert acknowledged <= last <= writes.tried

    for node_id in (1, 2):
        node = cluster.nodes[node_id]
        node.kill()
        node.kind = APACHE
        node.start()
        cluster.wait_until_whole()
        cluster.wait(lambda node=node: number_at(node) == last, "the broker of Apache Kafka has read it all")  # type: ignore[misc]
        # It votes and leads: the others have no majority without it, and one of them is killed.
        for other in cluster.nodes.values():
            if other.node_id not in (node_id, 3):
                other.kill()
        cluster.wait(lambda: cluster.active_controller() > 0, "there is an active controller")
        cluster.create_topic(f"made-with-{node_id}", 1, replication_factor=2)
        cluster.mend()
        node.kill()
        check_metadata_log(tools, node)
        node.kind = KAFKACOMPAT
        node.start()
        cluster.wait_until_whole()
        assert number_at(node) == last
    for node in cluster.nodes.values():
        assert node.stop() == 0
        assert check_files(tools, node.log_dirs[0]) > 0
