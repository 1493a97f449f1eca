"""The metrics of a node that is only a controller, and of one that is only a broker, beside Apache Kafka's."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from interop_tests.cluster.clusters import BROKER, CONTROLLER, Cluster
from interop_tests.harness.broker import APACHE, KAFKACOMPAT, chosen_bootstrap
from interop_tests.harness.exporting import scraped_text
from interop_tests.harness.jmx_exporter import exporting
from interop_tests.harness.one_replica import ONE_REPLICA
from interop_tests.harness.ports import free_port
from interop_tests.harness.waiting import wait_until
from interop_tests.metrics.sides import started

ROLES = (CONTROLLER, BROKER)
TOPIC = "orders"
TIMEOUT_S = 60.0
OF_OUR_CLIENTS = ("kafka_network_requestmetrics_", "kafka_server_socket_server_metrics_")
"""By API, version and listener. Nodes ask each other other things in another order."""
ONLY_LATER = {
    "kafka_server_delayedfetchmetrics_expires_total fetcherType",
    "kafka_server_delayedproducemetrics_expires_total",
    "kafka_server_delayedsharefetchmetrics_expires_total",
}
"""Apache Kafka shows them only after the first request that waits."""
OF_THE_EXPORTER = "_objectname"
"""By this label the exporter tells two MBeans apart that have one name under its rules."""
ONLY = {
    CONTROLLER: "kafka_controller_kafkacontroller_activecontrollercount",
    BROKER: "kafka_server_replicamanager_partitioncount",
}

pytestmark = [
    pytest.mark.needs_control,
    pytest.mark.skipif(chosen_bootstrap() is not None, reason="compares two clusters of its own"),
]


class Watched:
    """One controller and one broker, each with a port for scrapes."""

    def __init__(self, kind: str, root: Path) -> None:
        self.cluster = Cluster(kind, root, 2, ROLES, settings=ONE_REPLICA)
        self.ports: dict[str, int] = {}
        for role, node in zip(ROLES, self.cluster.nodes.values(), strict=True):
            port = self.ports[role] = free_port()
            if kind == APACHE:
                node.jvm_options = [*node.jvm_options, *exporting(port)]
            else:
                node.settings["metrics.listener.port"] = str(port)

    def start(self) -> None:
        self.cluster.start()
        self.cluster.create_topic(TOPIC, replication_factor=1)

    def names(self, role: str) -> set[str]:
        """Of Kafka's metrics, with their labels' names."""
        text = scraped_text(f"http://127.0.0.1:{self.ports[role]}/metrics")
        return {
            " ".join((each.name, *sorted(each.labels.keys() - {OF_THE_EXPORTER})))
            for family in text_string_to_metric_families(text)
            for each in family.samples
            if each.name.startswith("kafka_") and not each.name.startswith(OF_OUR_CLIENTS)
        }

    def is_ready(self, role: str) -> bool:
        with (
            suppress(OSError),
            urllib.request.urlopen(f"http://127.0.0.1:{self.ports[role]}/ready", timeout=TIMEOUT_S) as answer,
        ):
            return bool(answer.status == 200)
        return False


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    yield from started(Watched, KAFKACOMPAT, tmp_path_factory.mktemp("ours"))


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    yield from started(Watched, APACHE, tmp_path_factory.mktemp("theirs"))


@pytest.mark.parametrize("role", ROLES)
def test_a_node_shows_what_its_role_has(ours: Watched, theirs: Watched, role: str) -> None:
    wait_until(lambda: ours.is_ready(role), f"the {role} is ready", TIMEOUT_S)
    found = ours.names(role)
    assert ONLY[role] in found
    assert not found & {each for of, each in ONLY.items() if of != role}
    assert sorted(found - theirs.names(role) - ONLY_LATER) == []
