"""The quorum, elections, reassignments and features over a raw connection, as far as one node has them. G-numbers name traps."""

from __future__ import annotations

import time
import uuid
from typing import Any

import pytest

from interop_tests.harness.raw_kafka import ErrorCode
from interop_tests.harness.wire import Connection

METADATA_PARTITION = {"TopicName": "__cluster_metadata", "Partitions": [{"PartitionIndex": 0}]}
UNKNOWN_PARTITION = "This server does not host this topic-partition."
NO_DIRECTORY = uuid.UUID(int=0)


def node_id(connection: Connection) -> int:
    return int(connection.call("Metadata", 1, {"Topics": []})["Brokers"][0]["NodeId"])


@pytest.mark.parametrize("version", range(3))
def test_a_quorum_of_one_describes_itself(version: int, connection: Connection) -> None:
    reply = connection.call("DescribeQuorum", version, {"Topics": [METADATA_PARTITION]})
    assert reply["ErrorCode"] == 0
    (topic,) = reply["Topics"]
    (partition,) = topic["Partitions"]
    own = node_id(connection)
    assert (topic["TopicName"], partition["PartitionIndex"], partition["ErrorCode"]) == (
        "__cluster_metadata",
        0,
        0,
    )
    assert partition["LeaderId"] == own
    assert partition["LeaderEpoch"] >= 1
    assert partition["Observers"] == []
    (voter,) = partition["CurrentVoters"]
    assert voter["ReplicaId"] == own
    assert 0 < partition["HighWatermark"] <= voter["LogEndOffset"]
    if version >= 1:
        now_ms = time.time() * 1000
        assert (
            now_ms - 60_000 < voter["LastCaughtUpTimestamp"] <= voter["LastFetchTimestamp"] < now_ms + 60_000
        )
    if version >= 2:
        assert (reply["ErrorMessage"], partition["ErrorMessage"]) == ("", "")
        assert voter["ReplicaDirectoryId"] == NO_DIRECTORY, "controller.quorum.voters names no directories"
        (node,) = reply["Nodes"]
        assert node["NodeId"] == own
        assert [each["Name"] for each in node["Listeners"]] == ["CONTROLLER"]
        assert node["Listeners"][0]["Port"] > 0


@pytest.mark.parametrize(
    "topics",
    [
        [("no-quorum", [0, 5])],
        [("__cluster_metadata", [0]), ("no-quorum", [0])],
        [("__cluster_metadata", [1])],
        [("__cluster_metadata", [0, 1])],
        [("__cluster_metadata", [])],
        [],
    ],
    ids=["another", "and-another", "partition-1", "two-partitions", "no-partition", "nothing"],
)
def test_there_is_one_quorum_and_it_is_asked_for_alone(
    topics: list[tuple[str, list[int]]], connection: Connection
) -> None:
    asked = [
        {"TopicName": name, "Partitions": [{"PartitionIndex": index} for index in indexes]}
        for name, indexes in topics
    ]
    reply = connection.call("DescribeQuorum", 2, {"Topics": asked})
    assert (reply["ErrorCode"], reply["Nodes"]) == (0, [])
    assert [
        (topic["TopicName"], [each["PartitionIndex"] for each in topic["Partitions"]])
        for topic in reply["Topics"]
    ] == topics
    found: list[Any] = [each for topic in reply["Topics"] for each in topic["Partitions"]]
    expected = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_PARTITION)
    assert all((each["ErrorCode"], each["ErrorMessage"]) == expected for each in found)
