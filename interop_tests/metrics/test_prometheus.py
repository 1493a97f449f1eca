"""A real Prometheus scrapes a cluster: the alert rules, the dashboard's queries, and the faults for which alerts are."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, ShareConsumer
from confluent_kafka.admin import AdminClient, NewTopic

from interop_tests.cluster.clusters import Cluster
from interop_tests.faults.mounts import may_mount, mounted_tmpfs
from interop_tests.harness.broker import CHECKOUT, KAFKACOMPAT, chosen_bootstrap
from interop_tests.harness.ports import free_port
from interop_tests.harness.prometheus import (
    EXAMPLE,
    RULE_TESTS,
    RULES,
    Prometheus,
    dashboard_queries,
    promtool,
)
from interop_tests.harness.waiting import wait_until
from interop_tests.harness.wire import Connection
from interop_tests.security.stores import Stores
from interop_tests.share_groups.hand import read_from_start

TOPIC, STRICT, LONELY, SHORT_LIVED = "orders", "strict", "lonely", "short-lived"
SHARE_GROUP = "workers"
RECORDS = 500
VICTIM, SECOND_VICTIM, KEPT = 3, 2, 1
SMALL_MIB = 64
QUOTAS = ("producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate")
"""All of them are far above what the clients use."""
TIMEOUT_S = 60.0
QUIET_S = 120.0
OF_THE_MACHINE = {"KafkaLoopBusy", "KafkaLoopStalled"}
"""Alerts that a busy machine may cause."""
FILLED = 0.1
"""The free share of a disk at which KafkaDiskFilling fires. The machine's own may be so full."""
HERE = Path(__file__)
PAGE = CHECKOUT / "docs" / "how-to" / "watch-a-cluster.md"

pytestmark = [
    pytest.mark.needs_control,
    pytest.mark.skipif(chosen_bootstrap() is not None, reason="starts a cluster of its own"),
]


class Watched:
    """Three nodes, each with two log directories, a listener with TLS and a port for metrics, and their Prometheus."""

    def __init__(self, root: Path) -> None:
        settings = {
            "broker.session.timeout.ms": "3000",
            "auto.leader.rebalance.enable": "false",
            "group.share.min.heartbeat.interval.ms": "500",
            "group.share.heartbeat.interval.ms": "500",
        }
        self.cluster = Cluster(KAFKACOMPAT, root / "cluster", settings=settings)
        self.ports = {node_id: free_port() for node_id in self.cluster.nodes}
        self.stores: dict[int, Stores] = {}
        for node_id, node in self.cluster.nodes.items():
            node.settings["metrics.listener.port"] = str(self.ports[node_id])
            node.settings["log.dirs"] += f",{self.second_directory(node_id)}"
            self._secure(node_id, root)
        self.small: Path | None = None
        """A log directory of KEPT with little room, where the test may mount one."""
        self._mounts = ExitStack()
        if may_mount():
            self.small = self._mounts.enter_context(mounted_tmpfs(root / "small", f"{SMALL_MIB}m"))
            self.cluster.nodes[KEPT].settings["log.dirs"] += f",{self.small / 'logs'}"
        self.prometheus = Prometheus(root / "prometheus", list(self.ports.values()))
        self._worker: ShareConsumer | None = None
        """A member of a share group that stays: a group without members has no records in flight to show."""

    def _secure(self, node_id: int, root: Path) -> None:
        """Add a listener with TLS to a node."""
        self.stores[node_id] = stores = Stores(root / f"stores-{node_id}")
        settings = self.cluster.nodes[node_id].settings
        settings["listeners"] += f",SAFE://127.0.0.1:{free_port()}"
        settings["listener.security.protocol.map"] = "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SAFE:SSL"
        settings |= stores.settings(stores.authority.issue(), prefix="listener.name.safe.")

    def certify(self, node_id: int, days: int) -> None:
        """Give the node another certificate, and start it again."""
        node, stores = self.cluster.nodes[node_id], self.stores[node_id]
        assert node.stop() == 0
        stores.keystore("keys", stores.authority.issue(to_days=days))
        node.start()

    def second_directory(self, node_id: int) -> Path:
        return self.cluster.nodes[node_id].root / "second"

    def start(self) -> None:
        cluster = self.cluster.start()
        cluster.create_topic(TOPIC, partitions=6)
        cluster.create_topic(STRICT, configs={"min.insync.replicas": "3"})
        cluster.create_topic(LONELY, assignment=[[VICTIM]])
        entity = [{"EntityType": "user", "EntityName": None}]
        ops = [{"Key": key, "Value": 1e9, "Remove": False} for key in QUOTAS]
        body = {"Entries": [{"Entity": entity, "Ops": ops}], "ValidateOnly": False}
        with Connection(cluster.brokers[0].bootstrap) as connection:
            answer = connection.call("AlterClientQuotas", 1, body)
        assert [each["ErrorCode"] for each in answer["Entries"]] == [0], answer
        self.prometheus.start()

    def close(self) -> None:
        self.leave()
        self.prometheus.kill()
        self.cluster.close()
        self._mounts.close()

    def load(self) -> None:
        """Records, a group that reads and commits, a share group that accepts, and a transaction."""
        bootstrap = self.cluster.bootstrap
        if self._worker is None:
            with Connection(self.cluster.brokers[0].bootstrap) as connection:
                read_from_start(connection, SHARE_GROUP)
            self._worker = ShareConsumer({"bootstrap.servers": bootstrap, "group.id": SHARE_GROUP})
            self._worker.subscribe([TOPIC])
        worker = self._worker
        producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "t"})
        producer.init_transactions(TIMEOUT_S)
        producer.begin_transaction()
        for number in range(RECORDS):
            producer.produce(TOPIC, b"x" * 200, partition=number % 6)
        producer.commit_transaction(TIMEOUT_S)
        consumer = Consumer(
            {"bootstrap.servers": bootstrap, "group.id": "g", "auto.offset.reset": "earliest"}
        )
        consumer.subscribe([TOPIC])
        read = 0

        def all_read() -> bool:
            nonlocal read
            read += sum(not each.error() for each in consumer.consume(RECORDS, 0.5))
            return read >= RECORDS

        wait_until(all_read, "all records are read")
        consumer.commit(asynchronous=False)
        consumer.close()
        self._remake(bootstrap)
        # The next poll accepts the records of the one before.
        wait_until(lambda: worker.poll(0.5), "the member of the share group gets records")
        worker.poll(0.1)

    def _remake(self, bootstrap: str) -> None:
        """Make and delete a topic, under the quota of these."""
        admin = AdminClient({"bootstrap.servers": bootstrap})
        for made in (admin.create_topics([NewTopic(SHORT_LIVED, 1)]), admin.delete_topics([SHORT_LIVED])):
            made[SHORT_LIVED].result(TIMEOUT_S)

    def leave(self) -> None:
        """The member of the share group goes."""
        if self._worker is not None:
            self._worker.close()
            self._worker = None

    def wait_until_quiet(self) -> None:
        """All nodes work, and no alert but those of the machine fires."""
        self.cluster.mend()
        prometheus = self.prometheus
        prometheus.wait_until_scraped()
        harmless = OF_THE_MACHINE | {"KafkaIsrFlapping"}
        disk = os.statvfs(prometheus.root)
        if disk.f_bavail / disk.f_blocks < FILLED:
            harmless.add("KafkaDiskFilling")
        try:
            wait_until(lambda: prometheus.firing() <= harmless, "no alert fires", QUIET_S, interval_s=0.5)
        except AssertionError:
            left = sorted(prometheus.firing() - harmless)
            raise AssertionError(f"after {QUIET_S} s these fire: {left}") from None


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    made = Watched(tmp_path_factory.mktemp("watched"))
    try:
        made.start()
        yield made
    finally:
        made.close()


def test_rules_and_their_tests_are_right() -> None:
    for arguments in (("check", "rules", RULES), ("test", "rules", RULE_TESTS), ("check", "config", EXAMPLE)):
        done = promtool(*map(str, arguments))
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


def alert_names() -> set[str]:
    return set(re.findall(r"(?m)^ +- alert: (\w+)$", RULES.read_text("utf-8")))


def test_each_alert_is_tested_and_has_its_advice() -> None:
    names = alert_names()
    assert names
    assert names == set(re.findall(r'alertname="(Kafka\w+)"', RULE_TESTS.read_text("utf-8")))
    assert names == set(re.findall(r"(?m)^\| `(Kafka\w+)` \|", PAGE.read_text("utf-8")))
    assert names == alerts_that_fire_in_faults()


def alerts_that_fire_in_faults() -> set[str]:
    """Those that the tests here and in test_alerts wait for."""
    tests = HERE.read_text("utf-8") + HERE.with_name("test_alerts.py").read_text("utf-8")
    waits = re.findall(r"(?s)\.(?:wait_until_firing|fires)\((.*?)\)\n", tests)
    return set(re.findall(r'"(Kafka\w+)"', "".join(waits)))


def test_every_query_of_the_dashboard_has_data(watched: Watched) -> None:
    prometheus = watched.prometheus
    watched.load()
    watched.wait_until_quiet()
    missing = dashboard_queries()
    assert len(missing) > 30

    def all_had_data() -> bool:
        """Each of them at some time: on a busy machine a load may take longer than a series stays."""
        missing[:] = [(panel, query) for panel, query in missing if not prometheus.query(query)]
        return not missing

    wait_until(lambda: all_had_data() or watched.load(), "every query has had data", QUIET_S, interval_s=1.0)
    written = f'sum(kafka_server_brokertopicmetrics_messagesin_total{{topic="{TOPIC}"}}) >= {RECORDS}'
    wait_until(lambda: prometheus.query(written), "all records are counted", TIMEOUT_S)
    watched.wait_until_quiet()
    watched.leave()


def test_dead_nodes_raise_alerts(watched: Watched) -> None:
    watched.cluster.nodes[VICTIM].kill()
    watched.prometheus.wait_until_firing(
        "KafkaNodeDown",
        "KafkaOfflinePartitions",
        "KafkaUnderReplicatedPartitions",
        "KafkaUnderMinIsrPartitions",
        "KafkaFencedBroker",
    )
    # The two others elect a controller, if it was the victim.
    watched.prometheus.wait_until_resolved("KafkaNoActiveController", timeout_s=TIMEOUT_S)
    watched.cluster.nodes[SECOND_VICTIM].kill()
    watched.prometheus.wait_until_firing("KafkaNoActiveController")
    watched.wait_until_quiet()


def test_a_failed_directory_raises_an_alert(watched: Watched) -> None:
    directory = watched.second_directory(VICTIM)
    aside = directory.with_name("aside")
    directory.rename(aside)
    directory.write_text("a file")
    # The node notices it when it writes there.
    watched.cluster.create_topic("more", partitions=4)
    watched.prometheus.wait_until_firing("KafkaOfflineLogDirectory")
    is_offline = "kafka_log_logmanager_logdirectoryoffline == 1"
    offline = wait_until(lambda: watched.prometheus.query(is_offline), "the directory is shown", TIMEOUT_S)
    assert len(offline) == 1
    assert str(directory) in next(iter(offline))
    watched.cluster.nodes[VICTIM].stop()
    directory.unlink()
    aside.rename(directory)
    watched.wait_until_quiet()


def test_a_certificate_that_ends_soon_raises_an_alert(watched: Watched) -> None:
    watched.wait_until_quiet()
    assert "KafkaCertificateEnds" not in watched.prometheus.firing()
    watched.certify(VICTIM, 5)
    watched.prometheus.wait_until_firing("KafkaCertificateEnds", port=watched.ports[VICTIM])
    assert "KafkaCertificateEnds" not in watched.prometheus.firing(watched.ports[KEPT])
    watched.certify(VICTIM, 30)
    watched.wait_until_quiet()


def test_a_disk_that_fills_raises_an_alert(watched: Watched) -> None:
    if watched.small is None:
        pytest.skip("mounting a file system needs root's rights")
    watched.wait_until_quiet()
    free = shutil.disk_usage(watched.small).free
    other = watched.small / "of-somebody-else"
    other.write_bytes(bytes(free - (SMALL_MIB << 20) // 20))
    watched.prometheus.wait_until_firing("KafkaDiskFilling", port=watched.ports[KEPT])
    other.unlink()
    watched.wait_until_quiet()
