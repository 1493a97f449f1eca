"""Invalid requests and foreign nodes get Kafka's error and change nothing. If a node is refused, its log says so."""

from __future__ import annotations

import base64
import re
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from interop_tests.cluster import views
from interop_tests.cluster.clusters import BOTH, Cluster, Place, new_uuid
from interop_tests.cluster.test_quorum import directory_id
from interop_tests.harness.raw_kafka import topic_id
from interop_tests.harness.wire import Connection

INVALID_REPLICA_ASSIGNMENT = 39
NOT_CONTROLLER = 41
STALE_BROKER_EPOCH = 77
INELIGIBLE_REPLICA = 107
DUPLICATE_BROKER_REGISTRATION = 101
BROKER_ID_NOT_REGISTERED = 102
INCONSISTENT_CLUSTER_ID = 104
DUPLICATE_VOTER = 126
VOTER_NOT_FOUND = 127
INVALID_REQUEST = 42
NOBODY = 99
FEATURES = [
    {"Name": name, "MinSupportedVersion": lowest, "MaxSupportedVersion": highest}
    for name, lowest, highest in (
        ("metadata.version", 7, 33),
        ("kraft.version", 0, 1),
        ("transaction.version", 0, 2),
        ("group.version", 0, 1),
        ("eligible.leader.replicas.version", 0, 1),
        ("share.version", 0, 2),
        ("streams.version", 0, 1),
    )
]


def uuid_of(text: str) -> uuid.UUID:
    return uuid.UUID(bytes=base64.urlsafe_b64decode(text + "=="))


def picture(cluster: Cluster) -> dict[str, Any]:
    """The state that must be the same before and after."""
    found = cluster.known_quorum()
    return {
        "brokers": cluster.ask(views.brokers),
        "partitions": cluster.ask(views.all_partitions),
        "leader": (found.leader, found.epoch, set(found.voters)),
    }


@pytest.fixture
def unchanged(cluster: Cluster) -> Iterator[Cluster]:
    """The shared cluster. The test must not change it."""
    before = picture(cluster)
    yield cluster
    time.sleep(0.3)
    assert picture(cluster) == before


@pytest.fixture
def to_controller(unchanged: Cluster) -> Iterator[Callable[..., dict[str, Any]]]:
    """to_controller("Vote", 2, body) sends a request to the active controller's controller listener."""
    node = unchanged.nodes[unchanged.active_controller()]
    with Connection(node.controller_bootstrap) as connection:
        yield connection.call


Ask = Callable[..., dict[str, Any]]


def registration(cluster: Cluster, broker_id: int, **changes: Any) -> dict[str, Any]:
    return {
        "BrokerId": broker_id,
        "ClusterId": cluster.cluster_id,
        "IncarnationId": uuid.uuid4(),
        "Listeners": [{"Name": "PLAINTEXT", "Host": "127.0.0.1", "Port": 1, "SecurityProtocol": 0}],
        "Features": FEATURES,
        "Rack": None,
        "IsMigratingZkBroker": False,
        "LogDirs": [uuid.uuid4()],
        "PreviousBrokerEpoch": -1,
        **changes,
    }


def heartbeat(broker_id: int, epoch: int) -> dict[str, Any]:
    return {
        "BrokerId": broker_id,
        "BrokerEpoch": epoch,
        "CurrentMetadataOffset": 0,
        "WantFence": False,
        "WantShutDown": False,
    }


def isr_change(topic: uuid.UUID, broker_epoch: int) -> dict[str, Any]:
    """AlterPartition from node 2 that proposes itself as the ISR of partition 0."""
    partition = {
        "PartitionIndex": 0,
        "LeaderEpoch": 0,
        "NewIsrWithEpochs": [{"BrokerId": 2, "BrokerEpoch": broker_epoch}],
        "LeaderRecoveryState": 0,
        "PartitionEpoch": 0,
    }
    topics = [{"TopicId": topic, "Partitions": [partition]}]
    return {"BrokerId": 2, "BrokerEpoch": broker_epoch, "Topics": topics}


def test_a_foreign_clusters_requests(unchanged: Cluster, to_controller: Ask) -> None:
    foreign = new_uuid()
    body = registration(unchanged, NOBODY, ClusterId=foreign)
    assert to_controller("BrokerRegistration", 4, body)["ErrorCode"] == INCONSISTENT_CLUSTER_ID
    vote = {"ClusterId": foreign, "VoterId": 1, "Topics": []}
    assert to_controller("Vote", 2, vote)["ErrorCode"] == INCONSISTENT_CLUSTER_ID
    remove = {"ClusterId": foreign, "VoterId": 1, "VoterDirectoryId": uuid.uuid4()}
    assert to_controller("RemoveRaftVoter", 0, remove)["ErrorCode"] == INCONSISTENT_CLUSTER_ID


def test_a_node_id_that_is_taken(unchanged: Cluster, to_controller: Ask) -> None:
    """A registration with another incarnation of a broker whose session is alive, including the active controller's."""
    for node_id in unchanged.nodes:
        reply = to_controller("BrokerRegistration", 4, registration(unchanged, node_id))
        assert reply["ErrorCode"] == DUPLICATE_BROKER_REGISTRATION, node_id


def test_a_broker_of_an_old_epoch_or_none(unchanged: Cluster, to_controller: Ask) -> None:
    assert to_controller("BrokerHeartbeat", 1, heartbeat(2, 0))["ErrorCode"] == STALE_BROKER_EPOCH
    reply = to_controller("BrokerHeartbeat", 1, heartbeat(NOBODY, 0))
    assert reply["ErrorCode"] in (STALE_BROKER_EPOCH, BROKER_ID_NOT_REGISTERED)
    reply = to_controller("AlterPartition", 3, isr_change(uuid.uuid4(), 0))
    assert reply["ErrorCode"] == STALE_BROKER_EPOCH
    reply = to_controller("UnregisterBroker", 0, {"BrokerId": NOBODY})
    assert reply["ErrorCode"] == BROKER_ID_NOT_REGISTERED


def test_a_standby_controller_takes_no_broker(unchanged: Cluster) -> None:
    active = unchanged.active_controller()
    standby = next(node for node in unchanged.nodes.values() if node.node_id != active)
    with Connection(standby.controller_bootstrap) as connection:
        reply = connection.call("BrokerRegistration", 4, registration(unchanged, NOBODY))
        assert reply["ErrorCode"] == NOT_CONTROLLER
        assert connection.call("BrokerHeartbeat", 1, heartbeat(2, 0))["ErrorCode"] == NOT_CONTROLLER
        reply = connection.call("AlterPartition", 3, isr_change(uuid.uuid4(), 0))
        assert reply["ErrorCode"] == NOT_CONTROLLER


def test_voters_that_are_not_or_are_already(unchanged: Cluster, to_controller: Ask) -> None:
    """A directory id that is not the voter's, a voter that exists already, and another directory for the node of an
    existing voter."""
    node = unchanged.nodes[2]
    remove = {"ClusterId": unchanged.cluster_id, "VoterId": 2, "VoterDirectoryId": uuid.uuid4()}
    assert to_controller("RemoveRaftVoter", 0, remove)["ErrorCode"] == VOTER_NOT_FOUND
    remove |= {"VoterId": NOBODY}
    assert to_controller("RemoveRaftVoter", 0, remove)["ErrorCode"] == VOTER_NOT_FOUND
    add = {
        "ClusterId": unchanged.cluster_id,
        "TimeoutMs": 2000,
        "VoterId": 2,
        "VoterDirectoryId": uuid_of(directory_id(node)),
        "Listeners": [{"Name": "CONTROLLER", "Host": node.host, "Port": node.controller_port}],
    }
    assert to_controller("AddRaftVoter", 0, add)["ErrorCode"] == DUPLICATE_VOTER
    add |= {"Listeners": []}
    assert to_controller("AddRaftVoter", 0, add)["ErrorCode"] == INVALID_REQUEST


def test_replicas_on_brokers_that_are_not(cluster: Cluster, unique: Callable[[str], str]) -> None:
    topic = cluster.create_topic(unique("known"))
    before = picture(cluster)
    missing = unique("never")
    create = {
        "Topics": [
            {
                "Name": missing,
                "NumPartitions": -1,
                "ReplicationFactor": -1,
                "Assignments": [{"PartitionIndex": 0, "BrokerIds": [1, NOBODY]}],
                "Configs": [],
            }
        ],
        "timeoutMs": 5000,
    }
    move = {
        "TimeoutMs": 5000,
        "Topics": [{"Name": topic, "Partitions": [{"PartitionIndex": 0, "Replicas": [1, NOBODY]}]}],
    }
    grow = {
        "Topics": [{"Name": topic, "Count": 2, "Assignments": [{"BrokerIds": [1, 2, NOBODY]}]}],
        "TimeoutMs": 5000,
        "ValidateOnly": False,
    }
    for node in cluster.brokers:
        with Connection(node.bootstrap) as connection:
            (result,) = connection.call("CreateTopics", 7, create)["Topics"]
            assert result["ErrorCode"] == INVALID_REPLICA_ASSIGNMENT
            (of_topic,) = connection.call("AlterPartitionReassignments", 0, move)["Responses"]
            assert of_topic["Partitions"][0]["ErrorCode"] == INVALID_REPLICA_ASSIGNMENT
            (result,) = connection.call("CreatePartitions", 3, grow)["Results"]
            assert result["ErrorCode"] == INVALID_REPLICA_ASSIGNMENT
    assert picture(cluster) == before


def test_an_isr_that_a_stranger_asks_for(cluster: Cluster, unique: Callable[[str], str]) -> None:
    """A request with a wrong broker epoch of the leader. The ISR does not change."""
    topic = cluster.create_topic(unique("isr"), assignment=[[2, 3]])
    with Connection(cluster.nodes[2].bootstrap) as connection:
        wanted = topic_id(connection, topic)
    before = picture(cluster)
    node = cluster.nodes[cluster.active_controller()]
    with Connection(node.controller_bootstrap) as connection:
        reply = connection.call("AlterPartition", 3, isr_change(wanted, -1))
        assert reply["ErrorCode"] == STALE_BROKER_EPOCH
    assert picture(cluster) == before


@pytest.mark.parametrize("wrong", ["cluster id", "metadata directory of another node"])
def test_a_node_that_does_not_belong_is_refused_and_says_so(
    unchanged: Cluster, kind: str, tmp_path: Path, wrong: str
) -> None:
    """A broker that is formatted for another cluster, and a node with the data folder of another node."""
    node = unchanged._make_node(
        7, kind, "broker", Place(), {"initial.broker.registration.timeout.ms": "4000"}
    )
    del unchanged.nodes[7]
    voters = [each for each in unchanged.nodes.values() if each.is_controller]
    node.settings.update(unchanged._quorum_settings(voters))
    node.settings["log.dirs"] = str(tmp_path / "data")
    if wrong == "cluster id":
        assert node.format(cluster_id=new_uuid()).returncode == 0
    else:
        node.settings["node.id"] = "8"
        assert node.format(cluster_id=unchanged.cluster_id).returncode == 0
        node.settings["node.id"] = "7"
    node.start()
    try:
        if wrong == "cluster id":
            # Apache Kafka keeps retrying. Its message contains the cluster id.
            unchanged.wait(
                lambda: (
                    "cluster" in (said := node.log_text().lower()) and "id" in said and "inconsistent" in said
                ),
                "the node says what is wrong",
            )
            assert 7 not in (unchanged.ask(views.brokers) or ())
        else:
            assert node.wait_until_ended(20) != 0
            assert "node" in node.log_text()
            assert re.search(r"\b8\b", node.log_text())
    finally:
        node.kill()


def test_a_quorum_without_majority_says_so_and_serves_nobody(
    cluster: Cluster, kind: str, tmp_path: Path
) -> None:
    """If one of three voters is started, it does not become ready, accepts no topic, and stops on SIGTERM."""
    lonely = Cluster(kind, tmp_path / "lonely", nodes=3, roles=BOTH)
    try:
        for node in lonely.nodes.values():
            lonely.format(node)
        node = lonely.nodes[1]
        node.start()
        deadline = time.monotonic() + 8
        while time.monotonic() < deadline:
            assert node.is_running, node.log_text()[-3000:]
            assert views.ask([node], views.quorum) is None
            assert not views.ask([node], views.brokers)
            time.sleep(0.5)
        # With a majority it serves.
        lonely.nodes[2].start()
        lonely.wait_for_brokers(1, 2)
    finally:
        lonely.close()


def test_a_voter_set_that_cannot_be_is_refused_by_format(kind: str, tmp_path: Path) -> None:
    """The same node twice, no node, and invalid arguments."""
    cluster = Cluster(kind, tmp_path / "cluster")
    first = cluster.initial_controllers.split(",")[0]
    for text in (f"{first},{first}", "", "1@127.0.0.1", first.replace("1@", "x@")):
        done = cluster.nodes[1].format("--initial-controllers", text, cluster_id=cluster.cluster_id)
        assert done.returncode != 0, text
        assert not cluster.nodes[1].log_dirs[0].exists()
