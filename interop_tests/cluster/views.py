"""The state of a cluster, read over the protocol: brokers, topics, partitions, the quorum.

Every question is a raw request to one node, which may fail while nodes restart. `ask` tries the nodes in turn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from interop_tests.cluster.node import ClusterNode
from interop_tests.harness.wire import Connection, ConnectionClosed, Silence

T = TypeVar("T")
BROKEN = (OSError, ConnectionClosed, Silence)
ASK_TIMEOUT_S = 3.0
QUORUM_TOPIC = "__cluster_metadata"


@dataclass(frozen=True)
class Partition:
    """A partition from Metadata. leader -1: none."""

    leader: int
    epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...]


@dataclass(frozen=True)
class Quorum:
    """DescribeQuorum: leader, epoch, high watermark, and the ids of voters and observers with their log end offsets."""

    leader: int
    epoch: int
    high_watermark: int
    voters: dict[int, int]
    observers: dict[int, int]


def ask(nodes: Sequence[ClusterNode], question: Callable[[Connection], T]) -> T | None:
    """The first answer of a serving node. None while no node answers."""
    for node in nodes:
        if not node.serves:
            continue
        try:
            with Connection(node.bootstrap, timeout_s=ASK_TIMEOUT_S) as connection:
                return question(connection)
        except BROKEN:
            continue
    return None


def brokers(connection: Connection) -> tuple[int, ...]:
    """The ids of the brokers in Metadata, which does not list fenced brokers."""
    reply = connection.call("Metadata", 12, {"Topics": []})
    return tuple(sorted(each["NodeId"] for each in reply["Brokers"]))


def partitions(connection: Connection, topic: str) -> dict[int, Partition]:
    """The partitions of a topic by number. Empty while the node does not know the topic."""
    reply = connection.call("Metadata", 12, {"Topics": [{"Name": topic}], "AllowAutoTopicCreation": False})
    (found,) = reply["Topics"]
    return {
        each["PartitionIndex"]: Partition(
            each["LeaderId"],
            each["LeaderEpoch"],
            tuple(each["ReplicaNodes"]),
            tuple(each["IsrNodes"]),
            tuple(each["OfflineReplicas"]),
        )
        for each in found["Partitions"]
    }


def all_partitions(connection: Connection) -> dict[tuple[str, int], Partition]:
    """Every partition of the cluster."""
    reply = connection.call("Metadata", 12, {"Topics": None, "AllowAutoTopicCreation": False})
    names = [each["Name"] for each in reply["Topics"]]
    return {(name, number): each for name in names for number, each in partitions(connection, name).items()}


def quorum(connection: Connection) -> Quorum | None:
    """The quorum. None while the node knows no active controller."""
    body = {"Topics": [{"TopicName": QUORUM_TOPIC, "Partitions": [{"PartitionIndex": 0}]}]}
    reply = connection.call("DescribeQuorum", 2, body)
    if reply["ErrorCode"] != 0:
        return None
    found: dict[str, Any] = reply["Topics"][0]["Partitions"][0]
    if found["ErrorCode"] != 0:
        return None
    return Quorum(
        found["LeaderId"],
        found["LeaderEpoch"],
        found["HighWatermark"],
        {each["ReplicaId"]: each["LogEndOffset"] for each in found["CurrentVoters"]},
        {each["ReplicaId"]: each["LogEndOffset"] for each in found["Observers"]},
    )
