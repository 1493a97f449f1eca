"""A cluster goes from PLAINTEXT to SASL_SSL by rolling restarts, its controllers too, while clients write and read without
a pause, and certificates are exchanged meanwhile."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from interop_tests.cluster import views
from interop_tests.cluster.clusters import Cluster
from interop_tests.cluster.node import ClusterNode
from interop_tests.cluster.workload import ConfluentWork, Follower, assert_exact
from interop_tests.harness.broker import APACHE, KAFKACOMPAT, chosen_kind
from interop_tests.harness.ports import free_port
from interop_tests.harness.waiting import wait_until
from interop_tests.security.sasl_talks import ITERATIONS, MODULES, SALT
from interop_tests.security.stores import Stores
from interop_tests.security.test_tls import serial
from kafkacompat.security.scram import SCRAM_SHA_512

pytestmark = pytest.mark.needs_control
SOAK = bool(os.environ.get("KAFKACOMPAT_SOAK"))
USER, PASSWORD = "node", "w0rd of the nodes"
PARTITIONS = 3
KINDS = [pytest.param([chosen_kind()] * 3, id="alike")]
if SOAK:
    KINDS.append(pytest.param([KAFKACOMPAT, APACHE, KAFKACOMPAT], id="mixed"))
KEYSTORE = "listener.name.safe.ssl.keystore.location"


class Migration:
    """The settings of each node in each step, and its certificates."""

    def __init__(self, cluster: Cluster, stores: Stores) -> None:
        self.cluster = cluster
        self._stores = stores
        self._plain = {node_id: dict(node.settings) for node_id, node in cluster.nodes.items()}
        self._safe = {node_id: f"127.0.0.1:{free_port()}" for node_id in cluster.nodes}
        self._controllers = {node_id: f"127.0.0.1:{free_port()}" for node_id in cluster.nodes}
        for node_id in cluster.nodes:
            stores.keystore(f"node-{node_id}", stores.authority.issue())
        self.clients = {
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(stores.ca_pem),
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": USER,
            "sasl.password": PASSWORD,
        }

    @property
    def bootstrap(self) -> str:
        return ",".join(self._safe.values())

    def listens(self, node: ClusterNode) -> dict[str, str]:
        """Every listener is there twice. Nodes use the old ones."""
        plain, safe, controller = (of[node.node_id] for of in (self._plain, self._safe, self._controllers))
        name = f'username="{USER}" password="{PASSWORD}"'
        users = f'{MODULES}plain.PlainLoginModule required {name} user_{USER}="{PASSWORD}";'
        scram = f"{MODULES}scram.ScramLoginModule required {name};"
        protocols = "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SAFE:SASL_SSL,SAFECONTROLLER:SASL_SSL"
        return plain | {
            "listeners": f"{plain['listeners']},SAFE://{safe},SAFECONTROLLER://{controller}",
            "listener.security.protocol.map": protocols,
            "controller.listener.names": "CONTROLLER,SAFECONTROLLER",
            "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
            "sasl.mechanism.controller.protocol": "PLAIN",
            "listener.name.safe.sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "listener.name.safe.scram-sha-512.sasl.jaas.config": scram,
            "listener.name.safecontroller.sasl.enabled.mechanisms": "PLAIN",
            "listener.name.safecontroller.plain.sasl.jaas.config": users,
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": f"User:{USER};User:ANONYMOUS",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self._keystore(node)),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self._stores.ca_pem),
        }

    def speaks(self, node: ClusterNode) -> dict[str, str]:
        """Nodes use the new listeners, to nodes that may still use the old ones."""
        return self.listens(node) | {
            "inter.broker.listener.name": "SAFE",
            "controller.listener.names": "SAFECONTROLLER,CONTROLLER",
            "controller.quorum.bootstrap.servers": ",".join(self._controllers.values()),
        }

    def closes(self, node: ClusterNode) -> dict[str, str]:
        """The old listeners are gone."""
        safe, controller = self._safe[node.node_id], self._controllers[node.node_id]
        return self.speaks(node) | {
            "listeners": f"SAFE://{safe},SAFECONTROLLER://{controller}",
            "controller.listener.names": "SAFECONTROLLER",
            "super.users": f"User:{USER}",
        }

    def _keystore(self, node: ClusterNode) -> Path:
        return self._stores.folder / f"node-{node.node_id}.pem"

    def exchange(self, node: ClusterNode) -> None:
        """Give a running node another certificate."""
        identity = self._stores.authority.issue()
        path = self._stores.keystore(f"node-{node.node_id}", identity)
        config = {"Name": KEYSTORE, "ConfigOperation": 0, "Value": str(path)}
        resource = {"ResourceType": 4, "ResourceName": str(node.node_id), "Configs": [config]}

        def altered() -> bool:
            reply = views.ask(
                [node],
                lambda connection: connection.call("IncrementalAlterConfigs", 1, {"Resources": [resource]}),
            )
            return reply is not None and reply["Responses"][0]["ErrorCode"] == 0

        wait_until(altered, f"node {node.node_id} takes another store")
        shown = identity.chain[0].serial_number
        wait_until(
            lambda: serial(self._safe[node.node_id], self._stores) == shown, "the new certificate is shown"
        )

    def make_user(self) -> None:
        upsertion = {
            "Name": USER,
            "Mechanism": SCRAM_SHA_512.type,
            "Iterations": ITERATIONS,
            "Salt": SALT,
            "SaltedPassword": SCRAM_SHA_512.salted_password(PASSWORD, SALT, ITERATIONS),
        }

        def made() -> bool:
            body = {"Deletions": [], "Upsertions": [upsertion]}
            reply = self.cluster.ask(lambda connection: connection.call("AlterUserScramCredentials", 0, body))
            return reply is not None and reply["Results"][0]["ErrorCode"] == 0

        self.cluster.wait(made, "the nodes' user is made")

    def wait_until_voters_are_known(self) -> None:
        """Wait until every replica is in sync, and the quorum knows the new listeners of the voters that run with them."""
        self.cluster.wait_until_whole()
        expected = {
            node_id: self._controllers[node_id]
            for node_id, node in self.cluster.nodes.items()
            if "SAFECONTROLLER" in node.settings["controller.listener.names"]
        }
        body = {"Topics": [{"TopicName": views.QUORUM_TOPIC, "Partitions": [{"PartitionIndex": 0}]}]}

        def known() -> dict[int, str]:
            reply = self.cluster.ask(lambda connection: connection.call("DescribeQuorum", 2, body))
            return {
                each["NodeId"]: f"{listener['Host']}:{listener['Port']}"
                for each in (reply or {"Nodes": []})["Nodes"]
                for listener in each["Listeners"]
                if listener["Name"] == "SAFECONTROLLER"
            }

        self.cluster.wait(lambda: known() == expected, "the voters' listeners are known")

    def wait_until_whole(self) -> None:
        """As Cluster.wait_until_whole, through the new listeners."""
        admin = AdminClient(self.clients | {"bootstrap.servers": self.bootstrap, "log_level": "0"})

        def is_whole() -> bool:
            assert all(node.is_running for node in self.cluster.nodes.values())
            with contextlib.suppress(KafkaException):
                found = admin.list_topics(timeout=5)
                parts = [part for topic in found.topics.values() for part in topic.partitions.values()]
                count = len(self.cluster.nodes)
                return len(found.brokers) == count and all(len(each.isrs) == count for each in parts)
            return False

        self.cluster.wait(is_whole, "every replica is in sync")

    def roll(
        self,
        step: Callable[[ClusterNode], dict[str, str]],
        wait_until_whole: Callable[[], None],
        *works: ConfluentWork,
        exchanges: bool = False,
    ) -> None:
        """Restart every node with the settings of the step. All works make progress after each restart."""
        nodes = list(self.cluster.nodes.values())
        for number, node in enumerate(nodes):
            if exchanges:
                self.exchange(nodes[number - 1])
            node.stop()
            node.settings = step(node)
            node.start()
            wait_until_whole()
            for work in works:
                work.wait_for_progress()


@pytest.fixture
def cluster(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    made = Cluster(request.param, tmp_path, settings={"auto.leader.rebalance.enable": "false"})
    yield made
    made.close()


@pytest.mark.parametrize("cluster", KINDS, indirect=True)
def test_a_cluster_becomes_secured_under_load_and_loses_nothing(cluster: Cluster, tmp_path: Path) -> None:
    cluster.start()
    topic = cluster.create_topic("topic", PARTITIONS)
    migration = Migration(cluster, Stores(tmp_path / "stores"))
    plain = ConfluentWork(cluster.bootstrap, topic, PARTITIONS, "plain")
    started: list[ConfluentWork | Follower] = [plain]
    try:
        reader = Follower(cluster.bootstrap, topic, PARTITIONS).start()
        started.append(reader)
        plain.start()
        migration.roll(migration.listens, migration.wait_until_voters_are_known, plain)
        migration.make_user()
        safe = ConfluentWork(migration.bootstrap, topic, PARTITIONS, "safe", migration.clients)
        safe_reader = Follower(migration.bootstrap, topic, PARTITIONS, migration.clients).start()
        started += [safe, safe_reader]
        safe.start()
        migration.roll(migration.speaks, migration.wait_until_voters_are_known, plain, safe, exchanges=True)
        plain.stop()
        reader.wait_for(plain)
        reader.stop()
        migration.roll(migration.closes, migration.wait_until_whole, safe)
        safe.stop()
        for work in (plain, safe):
            safe_reader.wait_for(work)
        safe_reader.stop()
        assert_exact(migration.bootstrap, topic, plain, safe, **migration.clients)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{cluster.logs()}") from error
    finally:
        for each in started:
            each._ended.set()
    for node in cluster.nodes.values():
        for port in (node.port, node.controller_port):
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection((node.host, port), 5).close()
        assert PASSWORD not in node.log_text()
