"""The names of metrics of brokers that follow each other, with throttled replicas and moves between directories, beside Apache
Kafka's."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from interop_tests.cluster.clusters import BOTH, BROKER, Cluster
from interop_tests.harness.broker import APACHE, KAFKACOMPAT, chosen_bootstrap
from interop_tests.harness.exporting import scraped_text
from interop_tests.harness.jmx_exporter import exporting
from interop_tests.harness.one_replica import ONE_REPLICA
from interop_tests.harness.ports import free_port
from interop_tests.harness.raw_kafka import produce
from interop_tests.harness.records import BatchPlan
from interop_tests.harness.waiting import wait_until
from interop_tests.harness.wire import Connection
from interop_tests.metrics.sides import started
from interop_tests.metrics.test_names import PAGE
from interop_tests.metrics.test_roles import OF_OUR_CLIENTS, OF_THE_EXPORTER, ONLY_LATER

TOPIC, MOVED = "orders", "moved"
THROTTLED = {"leader.replication.throttled.replicas": "*", "follower.replication.throttled.replicas": "*"}
RATES = {f"kafka_server_{kind}replication_byte_rate" for kind in ("leader", "follower", "alterlogdirs")}
TIMEOUT_S = 60.0

pytestmark = [
    pytest.mark.needs_control,
    pytest.mark.skipif(chosen_bootstrap() is not None, reason="compares two clusters of its own"),
]


class Following:
    """Two brokers, each of which leads a partition that the other one follows."""

    def __init__(self, kind: str, root: Path) -> None:
        self.cluster = Cluster(kind, root, 2, (BOTH, BROKER), settings=ONE_REPLICA)
        self.ports: dict[int, int] = {}
        for node_id, node in self.cluster.nodes.items():
            port = self.ports[node_id] = free_port()
            node.settings["log.dirs"] += f",{self.second(node_id)}"
            if kind == APACHE:
                node.jvm_options = [*node.jvm_options, *exporting(port)]
            else:
                node.settings["metrics.listener.port"] = str(port)

    def second(self, node_id: int) -> Path:
        return self.cluster.nodes[node_id].root / "second"

    def start(self) -> None:
        cluster = self.cluster.start()
        cluster.create_topic(TOPIC, assignment=[[1, 2], [2, 1]], configs=THROTTLED)
        cluster.create_topic(MOVED, assignment=[[1], [2]])
        for partition, node in enumerate(cluster.nodes.values()):
            with Connection(node.bootstrap, TIMEOUT_S) as connection:
                for topic in (TOPIC, MOVED):
                    answer = produce(connection, topic, BatchPlan.of_now(b"x" * 1000), partition)
                    assert answer["ErrorCode"] == 0, answer
                self._move(connection, node.node_id, partition)
        cluster.wait_until_replicated(TIMEOUT_S)

    def _move(self, connection: Connection, node_id: int, partition: int) -> None:
        """Copy a replica to the directory where it does not lie."""
        name = f"{MOVED}-{partition}"
        (other,) = [each for each in self.cluster.nodes[node_id].log_dirs if not (each / name).is_dir()]
        topics = [{"Name": MOVED, "Partitions": [partition]}]
        connection.call("AlterReplicaLogDirs", 2, {"Dirs": [{"Path": str(other), "Topics": topics}]})
        wait_until((other / name).is_dir, f"it lies in {other}", TIMEOUT_S)

    def names(self, node_id: int) -> set[str]:
        """Of Kafka's metrics, with their labels' names."""
        text = scraped_text(f"http://127.0.0.1:{self.ports[node_id]}/metrics")
        return {
            " ".join((each.name, *sorted(each.labels.keys() - {OF_THE_EXPORTER})))
            for family in text_string_to_metric_families(text)
            for each in family.samples
            if each.name.startswith("kafka_") and not each.name.startswith(OF_OUR_CLIENTS)
        }


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Following]:
    yield from started(Following, KAFKACOMPAT, tmp_path_factory.mktemp("ours"))


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Following]:
    yield from started(Following, APACHE, tmp_path_factory.mktemp("theirs"))


@pytest.mark.parametrize("node_id", [1, 2])
def test_brokers_that_follow_show_what_kafka_s_show(ours: Following, theirs: Following, node_id: int) -> None:
    found, wanted = ours.names(node_id), theirs.names(node_id)
    assert found >= RATES
    assert sorted(found - wanted - ONLY_LATER) == []
    patterns = " ".join(re.findall(r"```\n(kafka_.*?)```", PAGE.read_text("utf-8"), re.DOTALL)).split()
    served = {each.split(" ")[0] for each in found}
    missing = {each.split(" ")[0] for each in wanted} - served
    assert sorted(each for each in missing if not any(fnmatchcase(each, of) for of in patterns)) == []
