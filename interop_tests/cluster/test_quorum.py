"""The metadata quorum with Kafka's tools: its description, adding and removing controllers, and a node with a lost
disk."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from interop_tests.cli.command import output_of, refusal_of
from interop_tests.cluster.clusters import BROKER, CONTROLLER, Cluster
from interop_tests.cluster.conftest import MakeCluster
from interop_tests.cluster.node import ClusterNode
from interop_tests.cluster.workload import Follower, Work, assert_exact
from interop_tests.harness.java_tools import KafkaTools, dump_faults
from interop_tests.harness.one_replica import ONE_REPLICA
from interop_tests.harness.wire import Connection
from interop_tests.raw.rights import entry
from kafkacompat.security.acl import AclOperation, AclPermissionType, ResourceType

AtWork = Callable[..., tuple[list[Work], Follower]]
Unique = Callable[[str], str]
QUORUM = "MetadataQuorumCommand"
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
TOPIC_AUTHORIZATION_FAILED = 29


def quorum(tools: KafkaTools, cluster: Cluster, *words: str, status: int | None = 0) -> str:
    output = tools.run(QUORUM, "--bootstrap-server", cluster.bootstrap, *words, status=status)
    # One line of its output has two blanks in a row.
    return re.sub(r" +", " ", output.out + output.err)


def add_controller(tools: KafkaTools, cluster: Cluster, node: ClusterNode) -> None:
    """Both brokers refuse a voter that has not caught up yet. An operator repeats the command."""
    words = ["--command-config", str(node.settings_path), "add-controller"]

    def probe() -> bool:
        said = quorum(tools, cluster, *words, status=None)
        assert "Added controller" in said or "lag" in said, said
        return f"Added controller {node.node_id} with directory id" in said

    cluster.wait(probe, f"controller {node.node_id} has caught up and is added")


def directory_id(node: ClusterNode) -> str:
    """The contents of the node's metadata directory that identify it."""
    text = (node.log_dirs[0] / "meta.properties").read_text()
    return re.search(r"^directory\.id=(.*)$", text, re.M)[1]


def voters(cluster: Cluster) -> set[int]:
    found = cluster.quorum()
    return set(found.voters) if found else set()


def observers(cluster: Cluster) -> set[int]:
    found = cluster.quorum()
    return set(found.observers) if found else set()


def test_the_quorum_is_described(cluster: Cluster, tools: KafkaTools) -> None:
    said = quorum(tools, cluster, "describe", "--status")
    found = dict(re.findall(r"^(\w+):\s+(.*?)\s*$", said, re.M))
    active = cluster.active_controller()
    assert found["ClusterId"] == cluster.cluster_id
    assert found["LeaderId"] == str(active)
    assert int(found["LeaderEpoch"]) >= 1
    shown = {
        int(node_id): (directory, endpoint)
        for node_id, directory, endpoint in re.findall(
            r'"id": (\d+), "directoryId": "([^"]+)", "endpoints": \["CONTROLLER://([^"]+)"\]',
            found["CurrentVoters"],
        )
    }
    assert shown == {
        node.node_id: (directory_id(node), node.controller_bootstrap) for node in cluster.nodes.values()
    }
    # A node that left, or a lost disk, is listed for five more minutes. Other tests on the shared cluster leave such
    # nodes.
    left = set(re.findall(r'"directoryId": "([^"]+)"', found["CurrentObservers"]))
    assert len(left) == found["CurrentObservers"].count('"id"')
    assert not left & {directory_id(node) for node in cluster.nodes.values()}
    table = tools.run(QUORUM, "--bootstrap-server", cluster.bootstrap, "describe", "--replication")
    rows = table.rows("NodeId", "DirectoryId")
    assert {row["DirectoryId"] for row in rows if row["Status"] == "Observer"} <= left
    voting = {int(row["NodeId"]): row for row in rows if row["Status"] != "Observer"}
    assert {node_id: row["Status"] for node_id, row in voting.items()} == {
        node_id: "Leader" if node_id == active else "Follower" for node_id in cluster.nodes
    }
    for node_id, row in voting.items():
        assert row["DirectoryId"] == directory_id(cluster.nodes[node_id])
        assert 0 <= int(row["Lag"]) < 100
        assert int(row["LastFetchTimestamp"]) > 0


def test_a_controller_is_added_and_removed(cluster: Cluster, tools: KafkaTools, kind: str) -> None:
    """It joins as an observer. As one of four voters it takes part in an election. After removal it is an observer
    again. It registers again while it runs, until it is stopped and unregistered for good (KIP-1312)."""
    node = cluster.add_node(kind, 6, CONTROLLER)
    try:
        cluster.wait(lambda: 6 in observers(cluster), "node 6 observes")
        add = ["--command-config", str(node.settings_path), "add-controller"]
        add_controller(tools, cluster, node)
        cluster.wait(lambda: voters(cluster) == {1, 2, 3, 6}, "node 6 votes")
        again = quorum(tools, cluster, *add, status=1)
        assert "DuplicateVoterException" in again, again
        active = cluster.active_controller()
        cluster.nodes[active].kill()
        cluster.wait(lambda: cluster.active_controller() != active, "another controller is active")
        cluster.mend()
        if cluster.active_controller() == 6:
            # A leader that removes itself may resign before it answers.
            node.kill()
            cluster.wait(lambda: cluster.active_controller() != 6, "another controller is active")
            cluster.mend()
        wrong = [
            "remove-controller",
            "--controller-id",
            "6",
            "--controller-directory-id",
            directory_id(cluster.nodes[1]),
        ]
        assert "VoterNotFoundException" in quorum(tools, cluster, *wrong, status=1)
        right = [*wrong[:-1], directory_id(node)]
        assert "Removed KRaft controller 6 with directory id" in quorum(
            tools, cluster, *right, "--unregister"
        )
        cluster.wait(lambda: voters(cluster) == {1, 2, 3}, "node 6 votes no longer")
        unregister = ["unregister-controller", "--bootstrap-controller", node.controller_bootstrap, "--id"]
        cluster.wait(
            lambda: tools.run("ClusterTool", *unregister, "6", status=None).status == 0,
            "node 6 registers again",
        )
        itself = tools.run("ClusterTool", *unregister, str(cluster.active_controller()), status=1)
        assert "Controller cannot unregister itself while it is active." in itself.out + itself.err
    finally:
        cluster.forget(node)
    command = ("quorum", "unregister-controller", "6", "--bootstrap", cluster.bootstrap)
    assert output_of(*command) == "controller 6 is unregistered\n"
    assert "there is no controller 6" in refusal_of(*command)


def test_a_lost_disk_is_filled_again(
    cluster: Cluster, tools: KafkaTools, at_work: AtWork, unique: Unique
) -> None:
    """A combined node comes back with an empty disk, as the documents describe: its old voter is removed, the node is
    formatted and added as a new voter. Its replicas are copied to it, and it serves them when the others stop."""
    topic = cluster.create_topic(unique("lost-disk"), 3)
    works, follower = at_work(cluster, topic, 3)
    active = cluster.active_controller()
    node = next(node for node in cluster.nodes.values() if node.node_id != active)
    node_id, lost = node.node_id, directory_id(node)
    node.kill()
    node.lose_disk()
    remove = ["remove-controller", "--controller-id", str(node_id), "--controller-directory-id", lost]
    assert f"Removed KRaft controller {node_id}" in quorum(tools, cluster, *remove)
    cluster.format_joining(node)
    assert directory_id(node) != lost
    node.start()
    cluster.wait_until_whole()
    add_controller(tools, cluster, node)
    cluster.wait(lambda: voters(cluster) == set(cluster.nodes), "the new disk's controller votes")
    for work in works:
        work.wait_for_progress()
        work.stop()
        follower.wait_for(work)
    elect = [
        "--bootstrap-server",
        cluster.bootstrap,
        "--election-type",
        "preferred",
        "--all-topic-partitions",
    ]
    # A replica may become leader when the controller knows in which of the new directories it is.
    cluster.wait(
        lambda: tools.run("LeaderElectionCommand", *elect, status=None).status == 0, "preferred leaders lead"
    )
    cluster.wait(
        lambda: any(cluster.leader(topic, number) == node_id for number in range(3)),
        f"node {node_id} leads again",
    )
    assert_exact(cluster.bootstrap, topic, *works)


def test_metadata_logs_and_snapshots_can_be_read_by_kafkas_tool(
    cluster: Cluster, tools: KafkaTools, unique: Unique
) -> None:
    """The metadata log of each node, although two of them got it over the network."""
    topic = cluster.create_topic(unique("dumped"), 2)
    for node in cluster.nodes.values():
        log = node.log_dirs[0] / "__cluster_metadata-0" / f"{0:020d}.log"

        def dump(log: Path = log) -> str:
            output = tools.run(
                "DumpLogSegments", "--cluster-metadata-decoder", "--skip-record-metadata", "--files", str(log)
            )
            assert not dump_faults(output), dump_faults(output)[:5]
            return output.out

        cluster.wait(lambda dump=dump: topic in dump(), f"node {node.node_id} has the topic's record")


def test_static_voters_with_nodes_of_one_role_each(
    make_cluster: MakeCluster, at_work: AtWork, kind: str
) -> None:
    """Three controllers and two brokers, with controller.quorum.voters. Leadership returns to the preferred replicas
    by itself."""
    cluster = make_cluster(
        nodes=5,
        roles=[CONTROLLER] * 3 + [BROKER] * 2,
        static_voters=True,
        settings={
            "leader.imbalance.check.interval.seconds": "1",
            "offsets.topic.replication.factor": "2",
            "default.replication.factor": "2",
            "min.insync.replicas": "1",
        },
    )
    # A new controller has not heard of every broker yet.
    cluster.wait(lambda: observers(cluster) == {4, 5}, "both brokers observe")
    found = cluster.known_quorum()
    assert set(found.voters) == {1, 2, 3}
    topic = cluster.create_topic("one-role", assignment=[[4, 5], [5, 4]])
    works, follower = at_work(cluster, topic, 2)
    cluster.nodes[4].kill()
    cluster.wait(lambda: cluster.leader(topic, 0) == 5, "broker 5 leads all")
    cluster.nodes[found.leader].kill()
    after = cluster.active_controller()
    assert after != found.leader
    assert after in (1, 2, 3)
    cluster.mend()
    cluster.wait(lambda: cluster.leader(topic, 0) == 4, "the preferred replica leads again")
    for work in works:
        work.wait_for_progress()
        work.stop()
        follower.wait_for(work)
    assert_exact(cluster.bootstrap, topic, *works)


def test_an_observer_of_static_voters_comes_back_with_the_denials_that_it_had(
    make_cluster: MakeCluster,
) -> None:
    """Its first answers after a restart are judged by the entries of the quorum, also if it starts before any voter."""
    cluster = make_cluster(
        nodes=2,
        roles=[CONTROLLER, BROKER],
        static_voters=True,
        settings=ONE_REPLICA
        | {"authorizer.class.name": AUTHORIZER, "allow.everyone.if.no.acl.found": "true"},
    )
    voter, observer = cluster.nodes.values()
    denied = cluster.create_topic("denied", replication_factor=1)
    open_to_all = cluster.create_topic("open", replication_factor=1)
    denial = entry(ResourceType.TOPIC, denied, "*", AclOperation.ALL, AclPermissionType.DENY)
    made = cluster.ask(lambda connection: connection.call("CreateAcls", 3, {"Creations": [denial]}))
    assert [each["ErrorCode"] for each in made["Results"]] == [0]

    def codes(connection: Connection) -> tuple[int, int]:
        topics = [{"Name": denied}, {"Name": open_to_all}]
        reply = connection.call("Metadata", 12, {"Topics": topics, "AllowAutoTopicCreation": False})
        found = {each["Name"]: each["ErrorCode"] for each in reply["Topics"]}
        return found[denied], found[open_to_all]

    def is_judged() -> bool:
        told = cluster.ask(codes)
        assert told is None or told[0] == TOPIC_AUTHORIZATION_FAILED, told
        return told == (TOPIC_AUTHORIZATION_FAILED, 0)

    cluster.wait(lambda: cluster.ask(codes) == (TOPIC_AUTHORIZATION_FAILED, 0), "the denial applies")
    for restarted in ((observer,), (observer, voter)):
        for node in restarted:
            node.kill()
        for node in restarted:
            node.start()
        cluster.wait(is_judged, "the observer serves again")
    assert observers(cluster) == {observer.node_id}
