"""Metadata, cluster, topics."""

from __future__ import annotations

import time
import uuid
from typing import Any

import pytest

from interop_tests.harness.raw_kafka import ErrorCode, metadata, produce, topic_id
from interop_tests.harness.records import BatchPlan
from interop_tests.harness.schema import ZERO_UUID
from interop_tests.harness.waiting import wait_until
from interop_tests.harness.wire import Connection

NOT_ASKED = -(2**31)
VERSIONS = range(14)


def cluster(connection: Connection, version: int = 12, **body: Any) -> dict[str, Any]:
    return connection.call("Metadata", version, {"Topics": []} | body)


def creatable(name: str, partitions: int = 1, replicas: int = 1, **more: Any) -> dict[str, Any]:
    configs = [{"Name": key, "Value": value} for key, value in more.pop("configs", {}).items()]
    return {
        "Name": name,
        "NumPartitions": partitions,
        "ReplicationFactor": replicas,
        "Assignments": more.pop("assignments", []),
        "Configs": configs,
    }


def create(connection: Connection, *topics: dict[str, Any], version: int = 7, validate: bool = False) -> Any:
    body = {"Topics": list(topics), "timeoutMs": 15000, "validateOnly": validate}
    return connection.call("CreateTopics", version, body)["Topics"]


def delete(connection: Connection, *topics: dict[str, Any], version: int = 6) -> Any:
    body: dict[str, Any] = {"TimeoutMs": 15000}
    if version >= 6:
        body["Topics"] = list(topics)
    else:
        body["TopicNames"] = [each["Name"] for each in topics]
    return connection.call("DeleteTopics", version, body)["Responses"]


@pytest.mark.parametrize("version", VERSIONS)
def test_all_topics_or_none(version: int, connection: Connection, topic: str) -> None:
    every = connection.call("Metadata", version, {"Topics": [] if version == 0 else None})
    assert topic in [each["Name"] for each in every["Topics"]]
    if version > 0:
        assert connection.call("Metadata", version, {"Topics": []})["Topics"] == []


@pytest.mark.parametrize("version", VERSIONS)
def test_metadata_at_every_version_is_whole(
    version: int, connection: Connection, make_topic: Any, bootstrap: str
) -> None:
    """Every id in the response is in the broker list with one reachable endpoint. All partitions are listed."""
    topic = make_topic(partitions=3)
    reply = connection.call(
        "Metadata", version, {"Topics": [{"Name": topic}], "AllowAutoTopicCreation": False}
    )
    ids = [broker["NodeId"] for broker in reply["Brokers"]]
    endpoints = [(broker["Host"], broker["Port"]) for broker in reply["Brokers"]]
    assert len(set(ids)) == len(ids) == len(set(endpoints))
    if version >= 1:
        assert reply["ControllerId"] in ids
    (found,) = reply["Topics"]
    assert sorted(each["PartitionIndex"] for each in found["Partitions"]) == [0, 1, 2]
    for partition in found["Partitions"]:
        assert partition["LeaderId"] in ids
        assert set(partition["ReplicaNodes"]) <= set(ids)
        assert partition["LeaderId"] in partition["IsrNodes"]
        if version >= 5:
            assert partition["OfflineReplicas"] == []
        if version >= 7:
            assert partition["LeaderEpoch"] >= 0
    for host, port in endpoints:
        with Connection(f"{host}:{port}") as other:
            assert other.call("ApiVersions", 0, {})["ErrorCode"] == 0


def test_a_missing_topic_is_made_when_both_sides_allow_it(connection: Connection, unique: Any) -> None:
    """The first response says that the topic does not exist yet. It gets num.partitions partitions."""
    name = unique("auto")
    asked = {"Topics": [{"Name": name}], "AllowAutoTopicCreation": True}
    assert (
        connection.call("Metadata", 12, asked)["Topics"][0]["ErrorCode"]
        == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    )

    def is_there() -> Any:
        (found,) = connection.call("Metadata", 12, asked)["Topics"]
        return found if found["ErrorCode"] == 0 else None

    found = wait_until(is_there, "the topic is made")
    broker_id = cluster(connection)["Brokers"][0]["NodeId"]
    resource = {"ResourceType": 4, "ResourceName": str(broker_id), "ConfigurationKeys": ["num.partitions"]}
    ((setting,),) = [
        each["Configs"]
        for each in connection.call("DescribeConfigs", 4, {"Resources": [resource]})["Results"]
    ]
    assert len(found["Partitions"]) == int(setting["Value"])


def test_a_missing_topic_is_not_made_unless_asked(connection: Connection, unique: Any) -> None:
    name = unique("never")
    assert metadata(connection, name)["ErrorCode"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    time.sleep(0.5)
    assert metadata(connection, name)["ErrorCode"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "x" * 250, "ü"])
def test_bad_names(name: str, connection: Connection) -> None:
    asked = {"Topics": [{"Name": name}], "AllowAutoTopicCreation": True}
    assert (
        connection.call("Metadata", 12, asked)["Topics"][0]["ErrorCode"] == ErrorCode.INVALID_TOPIC_EXCEPTION
    )
    assert create(connection, creatable(name))[0]["ErrorCode"] == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_topics_by_id(connection: Connection, topic: str) -> None:
    wanted = topic_id(connection, topic)
    assert wanted != ZERO_UUID
    reply = connection.call("Metadata", 12, {"Topics": [{"TopicId": wanted, "Name": None}]})
    assert [(each["Name"], each["ErrorCode"]) for each in reply["Topics"]] == [(topic, 0)]
    stranger = uuid.uuid4()
    (found,) = connection.call("Metadata", 12, {"Topics": [{"TopicId": stranger, "Name": None}]})["Topics"]
    assert (found["ErrorCode"], found["Name"]) == (ErrorCode.UNKNOWN_TOPIC_ID, None)
    assert found["TopicId"] == stranger


@pytest.mark.parametrize("version", [10, 11])
def test_ids_before_their_version_are_refused(version: int, connection: Connection) -> None:
    asked = {"Topics": [{"TopicId": uuid.uuid4(), "Name": "x"}], "AllowAutoTopicCreation": False}
    reply = connection.call("Metadata", version, asked)
    assert (reply["Brokers"], reply["ClusterId"]) == ([], None)
    assert [each["ErrorCode"] for each in reply["Topics"]] == [ErrorCode.INVALID_REQUEST]


def test_neither_name_nor_id_does_no_harm(connection: Connection) -> None:
    reply = connection.call("Metadata", 12, {"Topics": [{"TopicId": ZERO_UUID, "Name": None}]})
    assert [each["ErrorCode"] for each in reply["Topics"]] == [ErrorCode.UNKNOWN_SERVER_ERROR]
    assert cluster(connection)["Brokers"]


def test_the_controller_named_takes_admin_calls(connection: Connection, unique: Any) -> None:
    reply = cluster(connection)
    (controller,) = [each for each in reply["Brokers"] if each["NodeId"] == reply["ControllerId"]]
    with Connection(f"{controller['Host']}:{controller['Port']}") as other:
        assert create(other, creatable(unique("via-controller")))[0]["ErrorCode"] == 0


def test_leader_epochs_agree_everywhere(connection: Connection, topic: str) -> None:
    produced = BatchPlan(values=[b"x"])
    produce(connection, topic, produced)
    (partition,) = metadata(connection, topic)["Partitions"]
    epoch = partition["LeaderEpoch"]
    from interop_tests.harness.raw_kafka import fetch_batches, list_offset_result

    assert [batch.leader_epoch for batch in fetch_batches(connection, topic)] == [epoch]
    assert list_offset_result(connection, topic, 0, 0)["LeaderEpoch"] == epoch


def test_a_topic_made_again_has_a_new_id(connection: Connection, unique: Any) -> None:
    name = unique("again")
    first = create(connection, creatable(name))[0]["TopicId"]
    assert first == topic_id(connection, name)
    assert delete(connection, {"Name": name})[0]["ErrorCode"] == 0
    wait_until(lambda: metadata(connection, name)["ErrorCode"] == 3, "the topic is gone")
    second = create(connection, creatable(name))[0]["TopicId"]
    assert second not in (first, ZERO_UUID)
    wait_until(lambda: metadata(connection, name)["TopicId"] == second, "metadata has the new id")
    (old,) = connection.call("Metadata", 12, {"Topics": [{"TopicId": first, "Name": None}]})["Topics"]
    assert old["ErrorCode"] == ErrorCode.UNKNOWN_TOPIC_ID


def test_authorized_operations_only_when_asked(connection: Connection, topic: str) -> None:
    asked = {"Topics": [{"Name": topic}], "AllowAutoTopicCreation": False}
    reply = connection.call("Metadata", 8, asked)
    assert reply["ClusterAuthorizedOperations"] == NOT_ASKED
    assert reply["Topics"][0]["TopicAuthorizedOperations"] == NOT_ASKED
    both = {"IncludeClusterAuthorizedOperations": True, "IncludeTopicAuthorizedOperations": True}
    reply = connection.call("Metadata", 8, asked | both)
    assert reply["ClusterAuthorizedOperations"] > 0
    assert reply["Topics"][0]["TopicAuthorizedOperations"] > 0
    described = connection.call("DescribeCluster", 1, {"EndpointType": 1})
    assert described["ClusterAuthorizedOperations"] == NOT_ASKED
    described = connection.call(
        "DescribeCluster", 1, {"IncludeClusterAuthorizedOperations": True, "EndpointType": 1}
    )
    assert described["ClusterAuthorizedOperations"] > 0


def test_metadata_v13_has_a_top_level_error(connection: Connection) -> None:
    assert cluster(connection, 13)["ErrorCode"] == 0


def test_no_rack_is_null(connection: Connection) -> None:
    assert [broker["Rack"] for broker in cluster(connection)["Brokers"]] == [None]


def test_the_endpoint_given_is_reachable_by_the_address_asked(connection: Connection, bootstrap: str) -> None:
    (broker,) = cluster(connection)["Brokers"]
    assert f"{broker['Host']}:{broker['Port']}" == bootstrap


@pytest.mark.parametrize("version", range(2, 8))
def test_create_topics_at_every_version(version: int, connection: Connection, unique: Any) -> None:
    name = unique("made")
    (made,) = create(connection, creatable(name, 2, configs={"retention.ms": "1000"}), version=version)
    assert (made["Name"], made["ErrorCode"], made["ErrorMessage"]) == (name, 0, None)
    if version >= 5:
        assert (made["NumPartitions"], made["ReplicationFactor"]) == (2, 1)
        names = [each["Name"] for each in made["Configs"]]
        assert names == sorted(names)
        by_name = {each["Name"]: each for each in made["Configs"]}
        assert (by_name["retention.ms"]["Value"], by_name["retention.ms"]["ConfigSource"]) == ("1000", 1)
        assert by_name["cleanup.policy"]["ConfigSource"] == 5
    if version >= 7:
        wait_until(lambda: metadata(connection, name)["ErrorCode"] == 0, f"{name} is in the metadata")
        assert made["TopicId"] == topic_id(connection, name)


def test_validate_only_makes_nothing(connection: Connection, unique: Any) -> None:
    name = unique("thought")
    (made,) = create(connection, creatable(name), validate=True)
    assert made["ErrorCode"] == 0
    assert metadata(connection, name)["ErrorCode"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_refusals_are_per_topic(connection: Connection, unique: Any, topic: str) -> None:
    """librdkafka's test 0081: valid and invalid topics in one request."""
    broker_id = cluster(connection)["Brokers"][0]["NodeId"]
    assigned = [{"PartitionIndex": 0, "BrokerIds": [broker_id]}]
    good = unique("good")
    cases = [
        (creatable(good), 0),
        (creatable(topic), ErrorCode.TOPIC_ALREADY_EXISTS),
        (creatable(unique("bad"), 0), ErrorCode.INVALID_PARTITIONS),
        (creatable(unique("bad"), -5), ErrorCode.INVALID_PARTITIONS),
        (creatable(unique("bad"), 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (creatable(unique("bad"), 1, 2), ErrorCode.INVALID_REPLICATION_FACTOR),
        (creatable(unique("bad"), 1, 1, assignments=assigned), ErrorCode.INVALID_REQUEST),
        (
            creatable(
                unique("bad"), -1, -1, assignments=[{"PartitionIndex": 0, "BrokerIds": [broker_id + 999]}]
            ),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ),
        (
            creatable(unique("bad"), -1, -1, assignments=[{"PartitionIndex": 1, "BrokerIds": [broker_id]}]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ),
        (
            creatable(
                unique("bad"), -1, -1, assignments=[{"PartitionIndex": 0, "BrokerIds": [broker_id] * 2}]
            ),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ),
        (creatable(unique("bad"), configs={"retention.ms": "soon"}), ErrorCode.INVALID_CONFIG),
        (creatable(unique("bad"), configs={"no.such.setting": "1"}), ErrorCode.INVALID_CONFIG),
        (creatable(unique("bad"), configs={"cleanup.policy": "sometimes"}), ErrorCode.INVALID_CONFIG),
    ]
    results = {each["Name"]: each for each in create(connection, *(case for case, _ in cases))}
    for asked, expected in cases:
        result = results[asked["Name"]]
        assert result["ErrorCode"] == expected, result
        assert (result["ErrorMessage"] is None) == (expected == 0)
    wait_until(lambda: metadata(connection, good)["ErrorCode"] == 0, f"{good} is in the metadata")


def test_a_name_twice_in_one_request(connection: Connection, unique: Any) -> None:
    name = unique("twice")
    results = create(connection, creatable(name), creatable(name))
    assert {(each["Name"], each["ErrorCode"]) for each in results} == {(name, ErrorCode.INVALID_REQUEST)}


def test_minus_one_means_the_brokers_default(connection: Connection, unique: Any) -> None:
    (made,) = create(connection, creatable(unique("defaults"), -1, -1))
    assert made["ErrorCode"] == 0
    assert made["NumPartitions"] >= 1
    assert made["ReplicationFactor"] == 1


def test_dots_and_underscores_collide(connection: Connection, unique: Any) -> None:
    stem = unique("collide").replace("-", "")
    assert create(connection, creatable(f"{stem}.x"))[0]["ErrorCode"] == 0
    assert create(connection, creatable(f"{stem}_x"))[0]["ErrorCode"] == ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.mark.parametrize("version", range(1, 7))
def test_delete_topics_at_every_version(
    version: int, connection: Connection, make_topic: Any, unique: Any
) -> None:
    gone, missing = make_topic(), unique("missing")
    results = {
        each["Name"]: each for each in delete(connection, {"Name": gone}, {"Name": missing}, version=version)
    }
    assert results[gone]["ErrorCode"] == 0
    assert results[missing]["ErrorCode"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if version >= 5:
        assert results[gone]["ErrorMessage"] is None
        assert results[missing]["ErrorMessage"]
    wait_until(lambda: metadata(connection, gone)["ErrorCode"] == 3, "the topic is gone")


def test_delete_by_id_and_bad_requests(connection: Connection, topic: str) -> None:
    wanted = topic_id(connection, topic)
    (both,) = delete(connection, {"Name": topic, "TopicId": wanted})
    assert both["ErrorCode"] == ErrorCode.INVALID_REQUEST
    (neither,) = delete(connection, {"Name": None, "TopicId": ZERO_UUID})
    assert neither["ErrorCode"] == ErrorCode.INVALID_REQUEST
    (unknown,) = delete(connection, {"Name": None, "TopicId": uuid.uuid4()})
    assert unknown["ErrorCode"] == ErrorCode.UNKNOWN_TOPIC_ID
    (done,) = delete(connection, {"Name": None, "TopicId": wanted})
    assert (done["ErrorCode"], done["TopicId"], done["Name"]) == (0, wanted, topic)


@pytest.mark.parametrize("version", range(4))
def test_create_partitions_echoes_every_topic(
    version: int, connection: Connection, make_topic: Any, unique: Any
) -> None:
    """librdkafka's tests 0044, 0069 and 0112."""
    good, same, less, missing = make_topic(), make_topic(2), make_topic(2), unique("missing")
    wanted = {good: (3, 0), same: (2, 37), less: (1, 37), missing: (3, 3)}
    reply = connection.call(
        "CreatePartitions",
        version,
        {
            "Topics": [
                {"Name": name, "Count": count, "Assignments": None} for name, (count, _) in wanted.items()
            ],
            "TimeoutMs": 15000,
            "ValidateOnly": False,
        },
    )
    results = {each["Name"]: each["ErrorCode"] for each in reply["Results"]}
    assert results == {name: error for name, (_, error) in wanted.items()}
    wait_until(lambda: len(metadata(connection, good)["Partitions"]) == 3, "there are three partitions")
    assert len(metadata(connection, same)["Partitions"]) == 2


def test_an_empty_assignment_list_is_not_null(connection: Connection, topic: str) -> None:
    reply = connection.call(
        "CreatePartitions",
        3,
        {
            "Topics": [{"Name": topic, "Count": 2, "Assignments": []}],
            "TimeoutMs": 15000,
            "ValidateOnly": False,
        },
    )
    assert [each["ErrorCode"] for each in reply["Results"]] == [ErrorCode.INVALID_REPLICA_ASSIGNMENT]


def test_partitions_never_vanish_while_some_are_added(
    connection: Connection, connect: Any, topic: str
) -> None:
    other = connect()
    number = other.send(
        "CreatePartitions",
        3,
        {
            "Topics": [{"Name": topic, "Count": 12, "Assignments": None}],
            "TimeoutMs": 15000,
            "ValidateOnly": False,
        },
    )
    seen = 1
    deadline = time.monotonic() + 15
    while seen < 12:
        found = metadata(connection, topic)
        indexes = sorted(each["PartitionIndex"] for each in found["Partitions"])
        assert indexes == list(range(len(indexes)))
        assert len(indexes) >= seen
        seen = len(indexes)
        assert time.monotonic() < deadline
    assert other.receive("CreatePartitions", 3, number)["Results"][0]["ErrorCode"] == 0


@pytest.mark.parametrize("version", range(3))
def test_describe_cluster(version: int, connection: Connection) -> None:
    reply = connection.call("DescribeCluster", version, {"EndpointType": 1})
    assert reply["ErrorCode"] == 0
    assert [each["BrokerId"] for each in reply["Brokers"]] == [
        each["NodeId"] for each in cluster(connection)["Brokers"]
    ]
    assert reply["ClusterId"] == cluster(connection)["ClusterId"]
    if version == 2:
        assert [each["IsFenced"] for each in reply["Brokers"]] == [False]
    if version >= 1:
        refused = connection.call("DescribeCluster", version, {"EndpointType": 2})
        assert refused["ErrorCode"] == ErrorCode.MISMATCHED_ENDPOINT_TYPE


def test_describe_topic_partitions_pages(connection: Connection, make_topic: Any) -> None:
    names = sorted([make_topic(3), make_topic(3)])
    seen: list[tuple[str, int]] = []
    cursor = None
    for _ in range(10):
        reply = connection.call(
            "DescribeTopicPartitions",
            0,
            {
                "Topics": [{"Name": name} for name in reversed(names)],
                "ResponsePartitionLimit": 2,
                "Cursor": cursor,
            },
        )
        page = [
            (each["Name"], part["PartitionIndex"]) for each in reply["Topics"] for part in each["Partitions"]
        ]
        assert len(page) <= 2
        seen += page
        cursor = reply["NextCursor"]
        if cursor is None:
            break
    assert seen == [(name, index) for name in names for index in range(3)]


def test_admin_errors_are_never_not_controller(connection: Connection, topic: str, unique: Any) -> None:
    errors = [
        create(connection, creatable(topic))[0]["ErrorCode"],
        delete(connection, {"Name": unique("missing")})[0]["ErrorCode"],
    ]
    assert errors == [ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
