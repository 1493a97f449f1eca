"""A node at its limit of open files, and a node whose package is replaced while it runs: both serve what is new to them.

Connections fill the node up to its limit. The package is a copy that is moved away. What is then asked of it for the
first time needs modules, definitions and logs that no request has needed before. Apache Kafka logs "Too many open files"
when it accepts, and has its classes open.
"""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from interop_tests.cluster.clusters import Cluster
from interop_tests.faults.load import OF_A_LEADER_TO_COME, plan
from interop_tests.harness.broker import KAFKACOMPAT, BrokerProcess, chosen_kind
from interop_tests.harness.groups import Member, coordinator
from interop_tests.harness.raw_kafka import ErrorCode, metadata, produce
from interop_tests.harness.waiting import wait_until
from interop_tests.harness.wire import Connection, ConnectionClosed, Silence

pytestmark = [
    pytest.mark.needs_control,
    pytest.mark.skipif(chosen_kind() != KAFKACOMPAT, reason="of our connections, modules and files"),
]

MakeBroker = Callable[..., BrokerProcess]
LIMIT = 256
LOADED = "everything that this node may need is loaded"
NO_MORE = "accepts no connections"
SMALL_TOPICS = {
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "share.coordinator.state.topic.num.partitions": "2",
}
LOGGED = {"KAFKACOMPAT_LOG": "INFO"}
ANSWERED_WITHIN_S = 1.0
SPARE = 6
"""Connections that were open before the node was full."""


def limit_files(pid: int) -> None:
    hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)[1]
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (LIMIT, hard))


def is_served(connection: Connection, timeout_s: float = ANSWERED_WITHIN_S) -> bool:
    try:
        connection.call("ApiVersions", 0, {}, timeout_s)
    except (Silence, ConnectionClosed):
        return False
    return True


@contextlib.contextmanager
def filled(bootstrap: str) -> Iterator[list[Connection]]:
    """Connections that are served, as many as the node accepts. One more waits to be accepted."""
    with contextlib.ExitStack() as stack:
        served: list[Connection] = []
        while True:
            connection = stack.enter_context(Connection(bootstrap))
            if not is_served(connection):
                yield served
                return
            served.append(connection)
            assert len(served) < LIMIT


def new_topic(connection: Connection, name: str, partitions: int = 1, replicas: int = 1) -> int:
    topic = {
        "Name": name,
        "NumPartitions": partitions,
        "ReplicationFactor": replicas,
        "Assignments": [],
        "Configs": [{"Name": "segment.bytes", "Value": "1048577"}],
    }
    reply = connection.call("CreateTopics", 7, {"Topics": [topic], "timeoutMs": 15000})
    return int(reply["Topics"][0]["ErrorCode"])


def written(connection: Connection, topic: str, acks: int = -1) -> None:
    """Produce until it is done: the partition may have no leader yet. No other error is allowed."""

    def is_written() -> bool:
        code = produce(connection, topic, plan(b"value"), acks=acks)["ErrorCode"]
        assert code in (ErrorCode.NONE, *OF_A_LEADER_TO_COME), code
        return bool(code == ErrorCode.NONE)

    wait_until(is_written, f"{topic} takes a record")


def do_what_is_new(connections: list[Connection]) -> None:
    """A topic, records of the metadata log of other kinds, a group, a transaction."""
    first, second, third = connections[:3]
    assert new_topic(first, "new") == ErrorCode.NONE
    written(first, "new")

    quota = {
        "Entity": [{"EntityType": "client-id", "EntityName": "somebody"}],
        "Ops": [{"Key": "producer_byte_rate", "Value": 1e9, "Remove": False}],
    }
    reply = first.call("AlterClientQuotas", 1, {"Entries": [quota], "ValidateOnly": False})
    assert [each["ErrorCode"] for each in reply["Entries"]] == [0]
    setting = {"Name": "retention.ms", "ConfigOperation": 0, "Value": "86400000"}
    resources = [{"ResourceType": 2, "ResourceName": "new", "Configs": [setting]}]
    reply = first.call("IncrementalAlterConfigs", 1, {"Resources": resources, "ValidateOnly": False})
    assert [each["ErrorCode"] for each in reply["Responses"]] == [0]
    scram = {
        "Name": "somebody",
        "Mechanism": 1,
        "Iterations": 4096,
        "Salt": b"s" * 20,
        "SaltedPassword": b"p",
    }
    body = {"Deletions": [], "Upsertions": [scram]}
    reply = first.call("AlterUserScramCredentials", 0, body)
    assert [each["ErrorCode"] for each in reply["Results"]] == [0]
    reply = first.call(
        "DeleteTopics", 6, {"Topics": [{"Name": "new", "TopicId": uuid.UUID(int=0)}], "TimeoutMs": 9000}
    )
    assert [each["ErrorCode"] for each in reply["Responses"]] == [0]

    coordinator(second, "first-group")
    join = {
        "GroupId": "first-group",
        "SessionTimeoutMs": 30000,
        "RebalanceTimeoutMs": 30000,
        "MemberId": "",
        "GroupInstanceId": None,
        "ProtocolType": "consumer",
        "Protocols": [{"Name": "range", "Metadata": b""}],
        "Reason": None,
    }
    assert second.call("JoinGroup", 9, join)["ErrorCode"] == ErrorCode.MEMBER_ID_REQUIRED

    def has_begun() -> bool:
        found = third.call("FindCoordinator", 4, {"KeyType": 1, "CoordinatorKeys": ["first-transaction"]})
        if found["Coordinators"][0]["ErrorCode"] == ErrorCode.COORDINATOR_NOT_AVAILABLE:
            return False
        body = {
            "TransactionalId": "first-transaction",
            "TransactionTimeoutMs": 60000,
            "ProducerId": -1,
            "ProducerEpoch": -1,
        }
        code = third.call("InitProducerId", 4, body)["ErrorCode"]
        assert code in (
            ErrorCode.NONE,
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
            ErrorCode.NOT_COORDINATOR,
        ), code
        return bool(code == ErrorCode.NONE)

    wait_until(has_begun, "a transactional producer has its id")


def is_loaded(node: BrokerProcess) -> bool:
    return LOADED in node.log_text()


@pytest.mark.parametrize("is_late", [True, False], ids=["when everything is loaded", "at once"])
def test_a_node_full_of_connections_serves_what_is_new(make_broker: MakeBroker, is_late: bool) -> None:
    broker = make_broker(SMALL_TOPICS, start=False)
    broker.environment = LOGGED
    broker.start()
    if is_late:
        wait_until(lambda: is_loaded(broker), "the node has loaded everything")
    limit_files(broker.pid)
    with filled(broker.bootstrap) as served:
        assert LIMIT // 4 <= len(served) <= LIMIT // 2
        assert len(os.listdir(f"/proc/{broker.pid}/fd")) < LIMIT - LIMIT // 4, "the rest is kept"
        do_what_is_new(served)
        wait_until(lambda: NO_MORE in broker.log_text(), "the node tells that it accepts no more")
        too_many = new_topic(served[0], "too-many", partitions=LIMIT)
        assert too_many == ErrorCode.POLICY_VIOLATION, "what could not be written is not created"
        assert new_topic(served[0], "enough", partitions=8) == ErrorCode.NONE
        written(served[0], "enough")
    assert broker.log_text().count(NO_MORE) <= 2, "it does not repeat itself"

    def serves_again() -> bool:
        with Connection(broker.bootstrap) as connection:
            return is_served(connection)

    wait_until(serves_again, "connections are accepted again")
    wait_until(lambda: is_loaded(broker), "the node has loaded everything")
    assert broker.stop() == 0
    assert "halts" not in broker.log_text()


class Package:
    """A copy of the package from which nodes run."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.place = root / "kafkacompat"
        self._away = root / "away"
        source = Path(__file__).resolve().parents[2] / "kafkacompat"
        shutil.copytree(source, self.place, ignore=shutil.ignore_patterns("_tests"))
        self.environment = {"PYTHONPATH": str(root), **LOGGED}

    def take_away(self) -> None:
        self.place.rename(self._away)

    def bring_back(self) -> None:
        if self.place.exists():
            shutil.rmtree(self.place)
        self._away.rename(self.place)

    def bring_another(self) -> None:
        """Another version, of which no module can be imported."""
        for path in self._away.rglob("*.py"):
            other = self.place / path.relative_to(self._away)
            other.parent.mkdir(parents=True, exist_ok=True)
            other.write_text("raise RuntimeError('of another version')\n")
        (self.place / "__init__.py").write_text('__version__ = "99.9"\n')


@pytest.fixture
def package(tmp_path: Path) -> Package:
    return Package(tmp_path / "package")


@pytest.mark.parametrize("comes_another", [False, True], ids=["away", "another version"])
def test_a_node_whose_package_is_replaced_serves_what_is_new(
    make_broker: MakeBroker, package: Package, comes_another: bool
) -> None:
    broker = make_broker(SMALL_TOPICS, start=False)
    broker.environment = package.environment
    broker.start()
    wait_until(lambda: is_loaded(broker), "the node has loaded everything")
    package.take_away()
    if comes_another:
        package.bring_another()
    with contextlib.ExitStack() as stack:
        do_what_is_new([stack.enter_context(Connection(broker.bootstrap)) for _ in range(3)])
        # A bug's traceback would be read from the files. Garbage is logged, and closes its connection.
        hostile = stack.enter_context(Connection(broker.bootstrap))
        hostile.send("Metadata", 12, {"Topics": [{"Name": "x"}], "AllowAutoTopicCreation": False})
        hostile.send_bytes(b"\0\0\0\x0a" + b"\xff" * 10)
        assert is_served(stack.enter_context(Connection(broker.bootstrap)))
    member = Member(broker.bootstrap, "second-group")
    member.connection.close()
    assert broker.stop() == 0
    text = broker.log_text()
    assert "halts" not in text
    assert "cannot be imported" not in text
    assert "Traceback" not in text


def test_a_package_that_is_away_before_everything_is_loaded_is_waited_for(
    make_broker: MakeBroker, package: Package
) -> None:
    broker = make_broker(SMALL_TOPICS, start=False)
    broker.environment = package.environment
    broker.start()
    package.take_away()
    assert not is_loaded(broker), "this node was too quick for this test"
    with Connection(broker.bootstrap) as connection, Connection(broker.bootstrap) as other:
        number = connection.send("ListTransactions", 1, {"StateFilters": [], "ProducerIdFilters": []})
        assert is_served(other), "what is loaded is served"
        wait_until(lambda: "trying again every second" in broker.log_text(), "the node notices it")
        assert connection.is_silent(0.5), "the request waits"
        package.bring_back()
        assert connection.receive("ListTransactions", 1, number)["ErrorCode"] == ErrorCode.NONE
        wait_until(lambda: is_loaded(broker), "the node has loaded everything")
        do_what_is_new([connection, other, other])
    assert broker.stop() == 0


@pytest.mark.parametrize("lack", ["descriptors", "files"])
def test_a_quorum_elects_although_its_nodes_lack_something(
    tmp_path: Path, package: Package, lack: str
) -> None:
    cluster = Cluster(KAFKACOMPAT, tmp_path / "cluster")
    for node in cluster.nodes.values():
        node.environment.update(package.environment)
    cluster.start()
    try:
        with contextlib.ExitStack() as stack:
            wait_until(
                lambda: all(LOADED in each.log_text() for each in cluster.nodes.values()),
                "the nodes have loaded everything",
            )
            served: dict[int, list[Connection]] = {}
            for node in cluster.nodes.values():
                if lack == "descriptors":
                    limit_files(node.pid)
                    served[node.node_id] = stack.enter_context(filled(node.bootstrap))
                else:
                    served[node.node_id] = [
                        stack.enter_context(Connection(node.bootstrap)) for _ in range(SPARE)
                    ]
            if lack == "files":
                package.take_away()
            active = cluster_active(served[1][0])
            left = [node for node in cluster.nodes.values() if node.node_id != active]
            asked = served[left[0].node_id][0]
            cluster.nodes[active].kill()
            elected = wait_until(
                lambda: (found := cluster_active(asked)) not in (active, -1) and found, "another is elected"
            )
            assert elected in {node.node_id for node in left}

            def is_made() -> bool:
                return new_topic(asked, "after", replicas=2) in (
                    ErrorCode.NONE,
                    ErrorCode.TOPIC_ALREADY_EXISTS,
                )

            wait_until(is_made, "a topic is created")

            def leader_of_it() -> int:
                partitions = metadata(asked, "after")["Partitions"]
                return max(partitions[0]["LeaderId"], 0) if partitions else 0

            leader = wait_until(leader_of_it, "it has a leader")
            # Clients fill the listener that the brokers share with them, so followers may have to wait for a connection.
            written(served[leader][1], "after", acks=1)
            for node in left:
                assert node.is_running
                assert "halts" not in node.log_text()
    finally:
        cluster.close()


def cluster_active(connection: Connection) -> int:
    """The leader of the quorum, as DescribeQuorum tells it. -1 while nobody knows one."""
    topics = [{"TopicName": "__cluster_metadata", "Partitions": [{"PartitionIndex": 0}]}]
    reply = connection.call("DescribeQuorum", 1, {"Topics": topics})
    if reply["ErrorCode"]:
        time.sleep(0.05)
        return -1
    return int(reply["Topics"][0]["Partitions"][0]["LeaderId"])
