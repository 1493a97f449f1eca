"""The quorum, elections, reassignments and features over a raw connection, as far as they work with one node."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from interop_tests.conftest import MakeBroker
from interop_tests.harness.raw_kafka import ErrorCode
from interop_tests.harness.waiting import wait_until
from interop_tests.harness.wire import Connection

METADATA_PARTITION = {"TopicName": "__cluster_metadata", "Partitions": [{"PartitionIndex": 0}]}
UNKNOWN_PARTITION = "This server does not host this topic-partition."
SOFTWARE = {"ClientSoftwareName": "interop", "ClientSoftwareVersion": "1.0"}
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


def elections(
    connection: Connection, version: int, topics: list[tuple[str, list[int]]] | None, kind: int = 0
) -> dict[str, Any]:
    asked = None if topics is None else [{"Topic": name, "Partitions": indexes} for name, indexes in topics]
    body = {"ElectionType": kind, "TopicPartitions": asked, "TimeoutMs": 5000}
    if version == 0:
        del body["ElectionType"]
    return connection.call("ElectLeaders", version, body)


def election_results(reply: dict[str, Any]) -> list[tuple[str, int, int, str | None]]:
    return [
        (topic["Topic"], each["PartitionId"], each["ErrorCode"], each["ErrorMessage"])
        for topic in reply["ReplicaElectionResults"]
        for each in topic["PartitionResult"]
    ]


@pytest.mark.parametrize(("version", "kind"), [(0, 0), (1, 0), (2, 0), (1, 1), (2, 1)])
def test_an_election_by_name_says_of_each_partition_why_not(
    version: int, kind: int, connection: Connection, topic: str, unique: Any
) -> None:
    missing = unique("missing")
    reply = elections(connection, version, [(topic, [0, 7, 0]), (missing, [0])], kind)
    assert reply.get("ErrorCode", 0) == 0
    not_needed = (topic, 0, ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition.")
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert election_results(reply) == [
        not_needed,
        (topic, 7, unknown, f"No such partition as {topic}-7"),
        not_needed,
        (missing, 0, unknown, f"No such topic as {missing}"),
    ]


@pytest.mark.parametrize("kind", [0, 1], ids=["preferred", "unclean"])
def test_an_election_of_all_leaves_out_what_needs_none(kind: int, connection: Connection, topic: str) -> None:
    reply = elections(connection, 2, None, kind)
    assert reply["ErrorCode"] == 0
    assert topic in [each["Topic"] for each in reply["ReplicaElectionResults"]]
    assert election_results(reply) == []


@pytest.mark.parametrize("kind", [5, -1])
def test_an_unknown_kind_of_election_is_refused(kind: int, connection: Connection, topic: str) -> None:
    reply = elections(connection, 2, [(topic, [0])], kind)
    text = f"Unknown election type {kind}"
    assert reply["ErrorCode"] == ErrorCode.INVALID_REQUEST
    assert election_results(reply) == [(topic, 0, ErrorCode.INVALID_REQUEST, text)]
    reply = elections(connection, 1, None, kind)
    assert (reply["ErrorCode"], reply["ReplicaElectionResults"]) == (ErrorCode.INVALID_REQUEST, [])


def reassign(
    connection: Connection,
    topics: dict[str, list[tuple[int, list[int] | None]]],
    version: int = 1,
    factor_may_change: bool = True,
) -> dict[str, Any]:
    asked = [
        {
            "Name": name,
            "Partitions": [{"PartitionIndex": index, "Replicas": replicas} for index, replicas in partitions],
        }
        for name, partitions in topics.items()
    ]
    body: dict[str, Any] = {"TimeoutMs": 5000, "Topics": asked}
    if version >= 1:
        body["AllowReplicationFactorChange"] = factor_may_change
    reply = connection.call("AlterPartitionReassignments", version, body)
    assert reply["ErrorCode"] == 0
    return reply


def reassignment_results(reply: dict[str, Any]) -> list[tuple[str, int, int, str | None]]:
    return [
        (topic["Name"], each["PartitionIndex"], each["ErrorCode"], each["ErrorMessage"])
        for topic in reply["Responses"]
        for each in topic["Partitions"]
    ]


@pytest.mark.parametrize("version", [0, 1])
def test_a_partition_stays_where_it_is_and_has_nothing_to_cancel(
    version: int, connection: Connection, make_topic: Any
) -> None:
    topic, own = make_topic(partitions=2), node_id(connection)
    reply = reassign(connection, {topic: [(0, [own]), (1, None)]}, version)
    assert reply["ErrorMessage"] is None
    assert reassignment_results(reply) == [
        (topic, 0, 0, None),
        (topic, 1, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, None),
    ]
    for topics in (None, [{"Name": topic, "PartitionIndexes": [0, 1, 9]}], []):
        ongoing = connection.call("ListPartitionReassignments", 0, {"TimeoutMs": 5000, "Topics": topics})
        assert (ongoing["ErrorCode"], ongoing["ErrorMessage"], ongoing["Topics"]) == (0, None, [])


@pytest.mark.parametrize("factor_may_change", [True, False])
def test_reassignments_that_are_refused(
    factor_may_change: bool, connection: Connection, topic: str, unique: Any
) -> None:
    own, missing = node_id(connection), unique("missing")
    asked: list[tuple[int, list[int] | None]] = [
        (0, [own, 9999]),
        (0, [own, own]),
        (0, []),
        (0, [-1]),
        (9, [own]),
        (9, None),
    ]
    reply = reassign(connection, {topic: asked, missing: [(0, [own])]}, factor_may_change=factor_may_change)
    assert reply["AllowReplicationFactorChange"] is factor_may_change
    start = "The manual partition assignment includes"
    refused, unknown = ErrorCode.INVALID_REPLICA_ASSIGNMENT, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert reassignment_results(reply) == [
        (topic, 0, refused, f"{start} broker 9999, but no such broker is registered."),
        (topic, 0, refused, f"{start} the broker {own} more than once."),
        (topic, 0, refused, f"{start} an empty replica list."),
        (topic, 0, refused, f"{start} broker -1, but no such broker is registered."),
        (topic, 9, unknown, f"Unable to find partition {topic}:9."),
        (topic, 9, unknown, f"Unable to find partition {topic}:9."),
        (missing, 0, unknown, f"Unable to find a topic named {missing}."),
    ]


def test_reassigning_nothing_changes_nothing(connection: Connection) -> None:
    reply = reassign(connection, {}, factor_may_change=False)
    assert (reply["AllowReplicationFactorChange"], reply["ErrorMessage"], reply["Responses"]) == (
        True,
        "",
        [],
    )


UPGRADE, SAFE, UNSAFE = 1, 2, 3
FAILED = "The update failed for all features since the following feature had an error: "
NOT_A_DOWNGRADE = "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe downgrade."
Update = tuple[str, int, int]


def update_features(
    connection: Connection, version: int, *updates: Update, dry_run: bool = False
) -> dict[str, Any]:
    asked = [
        {"Feature": name, "MaxVersionLevel": level}
        | ({"UpgradeType": kind} if version >= 1 else {"AllowDowngrade": kind != UPGRADE})
        for name, level, kind in updates
    ]
    body: dict[str, Any] = {"timeoutMs": 5000, "FeatureUpdates": asked}
    if version >= 1:
        body["ValidateOnly"] = dry_run
    return connection.call("UpdateFeatures", version, body)


@pytest.mark.parametrize("version", range(3))
def test_levels_that_are_there_already(version: int, connection: Connection) -> None:
    reply = update_features(connection, version, ("metadata.version", 33, UPGRADE))
    assert (reply["ErrorCode"], reply["ErrorMessage"]) == (0, None)
    if version < 2:
        assert reply["Results"] == [{"Feature": "metadata.version", "ErrorCode": 0, "ErrorMessage": "NONE"}]


@pytest.mark.parametrize("version", range(3))
def test_one_refusal_refuses_all(version: int, connection: Connection) -> None:
    reply = update_features(connection, version, ("metadata.version", 33, UPGRADE), ("nope", 1, UPGRADE))
    text = "Invalid update version 1 for feature nope. Local controller 1 does not support this feature."
    assert (reply["ErrorCode"], reply["ErrorMessage"]) == (ErrorCode.INVALID_UPDATE_VERSION, FAILED + text)
    assert reply.get("Results", []) == []


def test_version_0_cannot_downgrade(connection: Connection) -> None:
    reply = update_features(connection, 0, ("eligible.leader.replicas.version", 0, SAFE))
    assert reply["ErrorCode"] == ErrorCode.INVALID_UPDATE_VERSION
    assert reply["ErrorMessage"].endswith(NOT_A_DOWNGRADE)


@pytest.mark.parametrize(
    ("update", "text"),
    [
        (("metadata.version", 34, UPGRADE), "Local controller 1 only supports versions 7-33"),
        (("metadata.version", 6, SAFE), "Local controller 1 only supports versions 7-33"),
        (("metadata.version", 32, UPGRADE), NOT_A_DOWNGRADE),
        (("metadata.version", -1, UPGRADE), "A feature version cannot be less than 0."),
        (("kraft.version", 2, UPGRADE), "Local controller 1 only supports versions 0-1"),
        (("kraft.version", 1, SAFE), "Can't downgrade to a newer version."),
        (("group.version", 0, 0), "The controller does not support the given upgrade type."),
        (("group.version", 0, 7), "The controller does not support the given upgrade type."),
        (("group.version", 0, UPGRADE), NOT_A_DOWNGRADE),
        (("transaction.version", 3, UPGRADE), "Local controller 1 only supports versions 0-2"),
        (("nope", 0, UPGRADE), "Feature nope not found."),
        (("nope", 0, SAFE), "Feature nope not found."),
        (("nope", -1, UPGRADE), "A feature version cannot be less than 0."),
        (("", 1, UPGRADE), "Local controller 1 does not support this feature."),
    ],
    ids=str,
)
def test_updates_that_are_refused(update: Update, text: str, connection: Connection) -> None:
    reply = update_features(connection, 1, update, dry_run=True)
    name, level, _ = update
    assert reply["ErrorCode"] == ErrorCode.INVALID_UPDATE_VERSION
    assert reply["ErrorMessage"] == f"{FAILED}Invalid update version {level} for feature {name}. {text}"


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (
            SAFE,
            "Refusing to perform the requested downgrade because it might delete metadata information.",
        ),
        (UNSAFE, "Unsafe metadata downgrade is not supported in this version."),
    ],
    ids=["safe", "unsafe"],
)
def test_metadata_is_not_lost_by_a_downgrade(kind: int, text: str, connection: Connection) -> None:
    reply = update_features(connection, 2, ("metadata.version", 32, kind))
    assert reply["ErrorCode"] == ErrorCode.INVALID_UPDATE_VERSION
    assert reply["ErrorMessage"] == f"{FAILED}Unsupported metadata.version downgrade from 33 to 32. {text}"


def finalized(connection: Connection) -> dict[str, int]:
    reply = connection.call("ApiVersions", 4, SOFTWARE)
    return {each["Name"]: each["MaxVersionLevel"] for each in reply["FinalizedFeatures"]}


@pytest.mark.needs_control
def test_levels_change_and_outlive_a_restart(make_broker: MakeBroker) -> None:
    elr = "eligible.leader.replicas.version"
    broker = make_broker()
    with Connection(broker.bootstrap) as connection:
        assert (finalized(connection)[elr], finalized(connection).get("kraft.version", 0)) == (1, 0)
        dry = update_features(connection, 2, (elr, 0, SAFE), ("kraft.version", 1, UPGRADE), dry_run=True)
        assert dry["ErrorCode"] == 0
        assert (finalized(connection)[elr], finalized(connection).get("kraft.version", 0)) == (1, 0)
        update = ((elr, 0, SAFE), ("kraft.version", 1, UPGRADE), ("group.version", 0, SAFE))
        assert update_features(connection, 2, *update)["ErrorCode"] == 0
        wait_until(
            lambda: (
                (elr not in finalized(connection), finalized(connection).get("kraft.version")) == (True, 1)
            ),
            "the levels are told to clients",
        )
        (topic,) = connection.call("DescribeQuorum", 2, {"Topics": [METADATA_PARTITION]})["Topics"]
        (voter,) = topic["Partitions"][0]["CurrentVoters"]
        assert voter["ReplicaDirectoryId"] != NO_DIRECTORY, "from kraft.version 1 on voters have directories"
        refused = update_features(connection, 2, ("kraft.version", 0, UNSAFE))
        assert refused["ErrorCode"] == ErrorCode.INVALID_UPDATE_VERSION
        assert refused["ErrorMessage"].endswith("Can't downgrade the version of this feature.")
    broker.kill()
    broker.start()
    with Connection(broker.bootstrap) as connection:
        assert elr not in finalized(connection)
        assert finalized(connection)["kraft.version"] == 1
        (topic,) = connection.call("DescribeQuorum", 2, {"Topics": [METADATA_PARTITION]})["Topics"]
        assert topic["Partitions"][0]["CurrentVoters"][0]["ReplicaDirectoryId"] == voter["ReplicaDirectoryId"]
        assert update_features(connection, 2, (elr, 1, UPGRADE))["ErrorCode"] == 0
        wait_until(lambda: finalized(connection).get(elr) == 1, "the feature is back")


@pytest.mark.needs_control
def test_a_controller_tells_where_the_levels_changed_last(
    make_broker: MakeBroker, unique: Callable[[str], str]
) -> None:
    broker = make_broker()
    controller = f"127.0.0.1:{broker.controller_port}"
    with Connection(broker.bootstrap) as connection, Connection(controller) as direct:

        def epoch() -> int:
            reply = direct.call("ApiVersions", 4, SOFTWARE)
            return int(reply["FinalizedFeaturesEpoch"])

        wait_until(lambda: epoch() >= 0, "the controller has read its log", 30)
        before = epoch()
        for number in range(3):
            topic = {"Name": unique(f"of-{number}"), "NumPartitions": 2, "ReplicationFactor": 1}
            body = {"Topics": [topic | {"Assignments": [], "Configs": []}], "timeoutMs": 10000}
            assert (
                connection.call("CreateTopics", 5, body | {"validateOnly": False})["Topics"][0]["ErrorCode"]
                == 0
            )
        assert epoch() == before
        assert update_features(connection, 2, ("group.version", 0, SAFE))["ErrorCode"] == 0
        wait_until(lambda: epoch() > before, "a level has changed", 30)


@pytest.mark.needs_control
def test_a_controller_that_is_asked_itself_cordons_no_other_directories(make_broker: MakeBroker) -> None:
    """A broker knows its directories, and a controller does not. Kafka 4.4."""
    broker = make_broker()
    own = str(broker.data_dir)

    def cordon(connection: Connection, value: str) -> tuple[int, str | None]:
        config = {"Name": "cordoned.log.dirs", "ConfigOperation": 0, "Value": value}
        resource = {"ResourceType": 4, "ResourceName": "1", "Configs": [config]}
        body = {"Resources": [resource], "ValidateOnly": False}
        (answer,) = connection.call("IncrementalAlterConfigs", 1, body)["Responses"]
        return answer["ErrorCode"], answer["ErrorMessage"]

    controller = f"127.0.0.1:{broker.controller_port}"
    text = "When updating cordoned.log.dirs via controllers,  the new value must be a subset of the current configuration value."
    with Connection(broker.bootstrap) as through, Connection(controller) as direct:
        assert cordon(direct, own) == cordon(direct, "*") == (40, text)
        assert cordon(through, own)[0] == 0
        assert cordon(direct, own)[0] == 0
        assert cordon(direct, f"{own},/elsewhere") == (40, text)
        assert cordon(direct, "")[0] == 0
        assert cordon(direct, own) == (40, text)
