"""Leaders that move: who leads a partition, where its replicas are, and elections of the preferred one."""

from __future__ import annotations

from collections.abc import Sequence

from interop_tests.cluster import views
from interop_tests.cluster.clusters import Cluster

ELECTION_NOT_NEEDED = 84


def newest(cluster: Cluster, topic: str, number: int = 0) -> views.Partition | None:
    """The partition in the newest of the brokers' views, or None if no broker shows it. A node that was paused may still
    take itself for the leader."""
    serving = [node for node in cluster.brokers if node.serves]
    seen = [views.ask([node], lambda wire: views.partitions(wire, topic)) for node in serving]
    found = [each[number] for each in seen if each and number in each]
    return max(found, key=lambda each: each.epoch, default=None)


def serving_leader(cluster: Cluster, topic: str, number: int = 0) -> tuple[int, int] | None:
    """(node id, leader epoch), or None while no serving node leads."""
    found = newest(cluster, topic, number)
    if found is None or found.leader not in [node.node_id for node in cluster.brokers if node.serves]:
        return None
    return found.leader, found.epoch


def reassign(
    cluster: Cluster, topic: str, replicas: Sequence[int], number: int = 0, is_awaited: bool = True
) -> None:
    """Give the partition these replicas. Returns when they are in sync, or as soon as the move has begun."""
    partition = {"PartitionIndex": number, "Replicas": list(replicas)}
    body = {"TimeoutMs": 15000, "Topics": [{"Name": topic, "Partitions": [partition]}]}
    reply = cluster.ask(lambda wire: wire.call("AlterPartitionReassignments", 0, body))
    assert reply is not None
    assert reply["ErrorCode"] == reply["Responses"][0]["Partitions"][0]["ErrorCode"] == 0, reply

    def is_done() -> bool:
        found = cluster.partition(topic, number)
        return (
            found is not None and list(found.replicas) == list(replicas) and set(found.isr) == set(replicas)
        )

    if is_awaited:
        cluster.wait(is_done, f"the replicas of {topic}-{number} are {replicas}")


def prefer(cluster: Cluster, topic: str, node_id: int, number: int = 0) -> None:
    """Make a node the preferred leader. It does not lead before an election."""
    others = [node.node_id for node in cluster.brokers if node.node_id != node_id]
    reassign(cluster, topic, [node_id, *others], number)


def elect_preferred(cluster: Cluster, topic: str, number: int = 0) -> None:
    """Elect the preferred leader. Its broker may be behind in its metadata afterwards."""
    topics = [{"Topic": topic, "Partitions": [number]}]
    body = {"ElectionType": 0, "TopicPartitions": topics, "TimeoutMs": 15000}

    def is_elected() -> bool:
        reply = cluster.ask(lambda wire: wire.call("ElectLeaders", 2, body))
        codes = reply and [
            each["ErrorCode"]
            for topic in reply["ReplicaElectionResults"]
            for each in topic["PartitionResult"]
        ]
        return codes in ([0], [ELECTION_NOT_NEEDED])

    cluster.wait(is_elected, f"the preferred leader of {topic}-{number} is elected")


def elect(cluster: Cluster, topic: str, node_id: int, number: int = 0) -> None:
    """Make the node the preferred leader, and elect it."""
    prefer(cluster, topic, node_id, number)
    elect_preferred(cluster, topic, number)
