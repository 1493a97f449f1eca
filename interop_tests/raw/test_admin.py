"""Settings, log dirs, producers."""

from __future__ import annotations

from typing import Any

import pytest

from interop_tests.harness.raw_kafka import ErrorCode, produce
from interop_tests.harness.records import BatchPlan
from interop_tests.harness.waiting import wait_until
from interop_tests.harness.wire import Connection

TOPIC, BROKER, BROKER_LOGGER = 2, 4, 8
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
SOURCE_TOPIC, SOURCE_BROKER, SOURCE_CLUSTER, SOURCE_STATIC, SOURCE_DEFAULT = 1, 2, 3, 4, 5


def broker_name(connection: Connection) -> str:
    return str(connection.call("Metadata", 1, {"Topics": []})["Brokers"][0]["NodeId"])


def describe(
    connection: Connection,
    kind: int,
    name: str,
    keys: list[str] | None = None,
    version: int = 4,
    **options: bool,
) -> dict[str, Any]:
    resource = {"ResourceType": kind, "ResourceName": name, "ConfigurationKeys": keys}
    reply = connection.call("DescribeConfigs", version, {"Resources": [resource]} | options)
    (result,) = reply["Results"]
    return result


def setting(connection: Connection, kind: int, name: str, key: str, **options: bool) -> dict[str, Any]:
    result = describe(connection, kind, name, [key], **options)
    assert result["ErrorCode"] == 0, result
    (found,) = result["Configs"]
    return found


def alter(
    connection: Connection, kind: int, name: str, *changes: tuple[str, int, str | None], **options: bool
) -> dict[str, Any]:
    configs = [
        {"Name": key, "ConfigOperation": operation, "Value": value} for key, operation, value in changes
    ]
    resource = {"ResourceType": kind, "ResourceName": name, "Configs": configs}
    body = {"Resources": [resource], "ValidateOnly": False} | options
    (result,) = connection.call("IncrementalAlterConfigs", 1, body)["Responses"]
    return result


@pytest.mark.parametrize("keys", [None, []], ids=["null", "empty"])
@pytest.mark.parametrize("version", range(1, 5))
def test_all_settings_of_a_topic(
    version: int, keys: list[str] | None, connection: Connection, topic: str
) -> None:
    result = describe(connection, TOPIC, topic, keys, version)
    assert (result["ErrorCode"], result["ErrorMessage"]) == (0, "")
    found = {each["Name"]: each for each in result["Configs"]}
    assert len(found) >= 25
    assert found["cleanup.policy"]["Value"] == "delete"
    assert found["cleanup.policy"]["ConfigSource"] == SOURCE_DEFAULT
    assert found["retention.ms"]["Value"] == "604800000"
    assert not any(each["ReadOnly"] for each in found.values())


def test_unknown_keys_are_left_out(connection: Connection, topic: str) -> None:
    result = describe(connection, TOPIC, topic, ["retention.ms", "no.such.setting"])
    assert [each["Name"] for each in result["Configs"]] == ["retention.ms"]


def test_all_settings_of_a_broker(connection: Connection) -> None:
    result = describe(connection, BROKER, broker_name(connection))
    found = {each["Name"]: each for each in result["Configs"]}
    assert len(found) > 200
    assert found["node.id"]["ConfigSource"] == SOURCE_STATIC
    assert found["node.id"]["ReadOnly"]
    assert found["num.io.threads"]["Value"]
    assert not found["log.retention.ms"]["ReadOnly"]


def test_sources_synonyms_types_and_documentation(connection: Connection, make_topic: Any) -> None:
    topic = make_topic(configs={"retention.ms": "1000"})
    plain = setting(connection, TOPIC, topic, "retention.ms")
    assert (plain["Value"], plain["ConfigSource"], plain["Synonyms"]) == ("1000", SOURCE_TOPIC, [])
    assert plain["ConfigType"] == 5
    assert plain["Documentation"] is None
    full = setting(connection, TOPIC, topic, "retention.ms", IncludeSynonyms=True, IncludeDocumentation=True)
    assert full["Documentation"]
    synonyms = [(each["Name"], each["Source"]) for each in full["Synonyms"]]
    assert synonyms == [("retention.ms", SOURCE_TOPIC)], "log.retention.ms has no default of its own"
    policy = setting(connection, TOPIC, topic, "cleanup.policy", IncludeSynonyms=True)
    assert policy["ConfigType"] == 7
    assert [(each["Name"], each["Source"]) for each in policy["Synonyms"]] == [
        ("log.cleanup.policy", SOURCE_DEFAULT)
    ]


def test_unset_and_secret_values_are_null(connection: Connection) -> None:
    found = {each["Name"]: each for each in describe(connection, BROKER, broker_name(connection))["Configs"]}
    assert found["ssl.keystore.password"]["IsSensitive"]
    assert found["ssl.keystore.password"]["Value"] is None
    assert found["log.retention.ms"]["Value"] is None
    assert not any(each["Value"] == "null" for each in found.values())


def test_broker_resources_go_by_their_own_id(connection: Connection) -> None:
    assert describe(connection, BROKER, "9999")["ErrorCode"] == ErrorCode.INVALID_REQUEST
    assert describe(connection, BROKER, "not a number")["ErrorCode"] == ErrorCode.INVALID_REQUEST
    assert describe(connection, BROKER, "")["ErrorCode"] == 0


def test_unknown_resources(connection: Connection, topic: str, unique: Any) -> None:
    assert describe(connection, TOPIC, unique("missing"))["ErrorCode"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    resources = [
        {"ResourceType": TOPIC, "ResourceName": topic, "ConfigurationKeys": None},
        {"ResourceType": 77, "ResourceName": "x", "ConfigurationKeys": None},
    ]
    reply = connection.call("DescribeConfigs", 4, {"Resources": resources})
    assert {each["ErrorCode"] for each in reply["Results"]} == {ErrorCode.INVALID_REQUEST}


def test_the_four_operations(connection: Connection, topic: str) -> None:
    def value(key: str) -> str:
        return str(setting(connection, TOPIC, topic, key)["Value"])

    done = alter(
        connection, TOPIC, topic, ("cleanup.policy", APPEND, "compact"), ("retention.ms", SET, "1234")
    )
    assert (done["ErrorCode"], done["ErrorMessage"]) in ((0, None), (0, ""))
    wait_until(
        lambda: (value("cleanup.policy"), value("retention.ms")) == ("delete,compact", "1234"), "it is set"
    )
    assert alter(connection, TOPIC, topic, ("cleanup.policy", APPEND, "compact"))["ErrorCode"] == 0
    assert value("cleanup.policy") == "delete,compact", "what is there is not added twice"
    done = alter(
        connection, TOPIC, topic, ("cleanup.policy", SUBTRACT, "delete"), ("retention.ms", DELETE, None)
    )
    assert done["ErrorCode"] == 0
    wait_until(
        lambda: (value("cleanup.policy"), value("retention.ms")) == ("compact", "604800000"),
        "it is taken away",
    )
    assert setting(connection, TOPIC, topic, "retention.ms")["ConfigSource"] == SOURCE_DEFAULT


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ([("retention.ms", APPEND, "5")], ErrorCode.INVALID_CONFIG),
        ([("retention.ms", SUBTRACT, "5")], ErrorCode.INVALID_CONFIG),
        ([("retention.ms", SET, "soon")], ErrorCode.INVALID_CONFIG),
        ([("no.such.setting", SET, "1")], ErrorCode.INVALID_CONFIG),
        ([("retention.ms", SET, "1"), ("retention.ms", SET, "2")], ErrorCode.INVALID_REQUEST),
        ([("retention.ms", SET, None)], ErrorCode.INVALID_REQUEST),
    ],
    ids=["append-number", "subtract-number", "not-a-number", "unknown", "key-twice", "null"],
)
def test_changes_that_are_refused(changes: list[Any], error: int, connection: Connection, topic: str) -> None:
    result = alter(connection, TOPIC, topic, *changes)
    assert result["ErrorCode"] == error, result
    assert setting(connection, TOPIC, topic, "retention.ms")["Value"] == "604800000"
    assert alter(connection, TOPIC, topic, ("retention.ms", SET, "7"))["ErrorCode"] == 0, "the broker goes on"


def test_an_unknown_operation_does_no_harm(connection: Connection, topic: str) -> None:
    result = alter(connection, TOPIC, topic, ("retention.ms", 9, "1"))
    assert result["ErrorCode"] in (ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.INVALID_REQUEST)
    assert alter(connection, TOPIC, topic, ("retention.ms", SET, "7"))["ErrorCode"] == 0, "the broker goes on"


def test_other_refusals(connection: Connection, topic: str, unique: Any) -> None:
    missing = alter(connection, TOPIC, unique("missing"), ("retention.ms", SET, "1"))
    assert missing["ErrorCode"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    resource = {
        "ResourceType": TOPIC,
        "ResourceName": topic,
        "Configs": [{"Name": "retention.ms", "ConfigOperation": SET, "Value": "5"}],
    }
    reply = connection.call(
        "IncrementalAlterConfigs", 1, {"Resources": [resource, resource], "ValidateOnly": False}
    )
    assert {each["ErrorCode"] for each in reply["Responses"]} == {ErrorCode.INVALID_REQUEST}


def test_validate_only_changes_nothing(connection: Connection, topic: str) -> None:
    assert alter(connection, TOPIC, topic, ("retention.ms", SET, "5"), ValidateOnly=True)["ErrorCode"] == 0
    assert setting(connection, TOPIC, topic, "retention.ms")["Value"] == "604800000"
    refused = alter(connection, TOPIC, topic, ("retention.ms", SET, "soon"), ValidateOnly=True)
    assert refused["ErrorCode"] == ErrorCode.INVALID_CONFIG


def test_alter_configs_replaces_the_whole_set(connection: Connection, make_topic: Any) -> None:
    topic = make_topic(configs={"retention.ms": "1000", "segment.bytes": "2000000"})
    for version, kept in ((0, "5000"), (1, "6000"), (2, "7000")):
        resource = {
            "ResourceType": TOPIC,
            "ResourceName": topic,
            "Configs": [{"Name": "retention.ms", "Value": kept}],
        }
        reply = connection.call("AlterConfigs", version, {"Resources": [resource], "ValidateOnly": False})
        assert [each["ErrorCode"] for each in reply["Responses"]] == [0]
        wait_until(
            lambda kept=kept: setting(connection, TOPIC, topic, "retention.ms")["Value"] == kept, "it is set"
        )
        assert setting(connection, TOPIC, topic, "segment.bytes")["ConfigSource"] == SOURCE_DEFAULT


def test_broker_and_cluster_settings_by_precedence(connection: Connection, topic: str) -> None:
    """A broker's dynamic value overrides the cluster's default. Both can be deleted."""
    name, key = broker_name(connection), "log.cleaner.backoff.ms"
    try:
        assert alter(connection, BROKER, "", (key, SET, "16000"))["ErrorCode"] == 0
        wait_until(lambda: setting(connection, BROKER, name, key)["Value"] == "16000", "the default is there")
        assert setting(connection, BROKER, name, key)["ConfigSource"] == SOURCE_CLUSTER
        assert alter(connection, BROKER, name, (key, SET, "17000"))["ErrorCode"] == 0
        wait_until(lambda: setting(connection, BROKER, name, key)["Value"] == "17000", "its own is there")
        full = setting(connection, BROKER, name, key, IncludeSynonyms=True)
        assert [(each["Value"], each["Source"]) for each in full["Synonyms"]] == [
            ("17000", SOURCE_BROKER),
            ("16000", SOURCE_CLUSTER),
            ("15000", SOURCE_DEFAULT),
        ]
    finally:
        assert alter(connection, BROKER, name, (key, DELETE, None))["ErrorCode"] == 0
        assert alter(connection, BROKER, "", (key, DELETE, None))["ErrorCode"] == 0
    wait_until(lambda: setting(connection, BROKER, name, key)["Value"] == "15000", "all is as it was")


def test_settings_that_only_a_file_can_set_are_refused(connection: Connection) -> None:
    refused = alter(connection, BROKER, broker_name(connection), ("node.id", SET, "5"))
    assert refused["ErrorCode"] in (ErrorCode.INVALID_CONFIG, ErrorCode.INVALID_REQUEST)
    assert setting(connection, BROKER, broker_name(connection), "node.id")["Value"] == broker_name(connection)


def test_a_changed_limit_takes_effect(connection: Connection, topic: str) -> None:
    assert produce(connection, topic, BatchPlan(values=[bytes(5000)]))["ErrorCode"] == 0
    assert alter(connection, TOPIC, topic, ("max.message.bytes", SET, "1000"))["ErrorCode"] == 0
    wait_until(
        lambda: (
            produce(connection, topic, BatchPlan(values=[bytes(5000)]))["ErrorCode"]
            == ErrorCode.MESSAGE_TOO_LARGE
        ),
        "the new limit holds",
    )


@pytest.mark.parametrize("version", range(1, 6))
def test_log_dirs(version: int, connection: Connection, make_topic: Any, unique: Any) -> None:
    topic = make_topic(2)
    produce(connection, topic, BatchPlan(values=[bytes(1000)]))
    asked = [{"Topic": topic, "Partitions": [0, 1]}, {"Topic": unique("missing"), "Partitions": [0]}]
    reply = connection.call("DescribeLogDirs", version, {"Topics": asked})
    assert reply.get("ErrorCode", 0) == 0
    found = {
        (of_topic["Name"], each["PartitionIndex"]): each["PartitionSize"]
        for log_dir in reply["Results"]
        for of_topic in log_dir["Topics"]
        for each in of_topic["Partitions"]
    }
    assert found == {(topic, 0): len(BatchPlan(values=[bytes(1000)]).encode()), (topic, 1): 0}
    for log_dir in reply["Results"]:
        assert log_dir["ErrorCode"] == 0
        assert log_dir["LogDir"].startswith("/")
        if version >= 4:
            assert log_dir["TotalBytes"] >= log_dir["UsableBytes"] > 0
    every = connection.call("DescribeLogDirs", version, {"Topics": None})
    names = [each["Name"] for log_dir in every["Results"] for each in log_dir["Topics"]]
    assert topic in names


def test_list_config_resources(connection: Connection, topic: str) -> None:
    reply = connection.call("ListConfigResources", 1, {"ResourceTypes": [TOPIC, BROKER]})
    assert reply["ErrorCode"] == 0
    found = [(each["ResourceName"], each["ResourceType"]) for each in reply["ConfigResources"]]
    assert (topic, TOPIC) in found
    assert (broker_name(connection), BROKER) in found
    assert connection.call("ListConfigResources", 0, {})["ErrorCode"] == 0


def test_describe_producers(connection: Connection, topic: str, unique: Any) -> None:
    plan = BatchPlan(producer_id=4_000_000, producer_epoch=2, base_sequence=0)
    assert produce(connection, topic, plan)["ErrorCode"] == 0
    asked = [{"Name": topic, "PartitionIndexes": [0, 5]}]
    (of_topic,) = connection.call("DescribeProducers", 0, {"Topics": asked})["Topics"]
    found = {each["PartitionIndex"]: each for each in of_topic["Partitions"]}
    assert found[5]["ErrorCode"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert [
        (each["ProducerId"], each["ProducerEpoch"], each["LastSequence"], each["CurrentTxnStartOffset"])
        for each in found[0]["ActiveProducers"]
    ] == [(4_000_000, 2, 0, -1)]


@pytest.mark.parametrize("name", [" {}", "{} ", "{}_0", "0x{}", "4294967297"])
@pytest.mark.parametrize("kind", [BROKER, BROKER_LOGGER])
def test_a_brokers_id_is_a_whole_number(kind: int, name: str, connection: Connection) -> None:
    resource = name.format(broker_name(connection))
    assert describe(connection, kind, resource)["ErrorCode"] == ErrorCode.INVALID_REQUEST
    change = ("log.cleaner.threads", SET, "2") if kind == BROKER else ("kafka", SET, "INFO")
    refused = alter(connection, kind, resource, change, ValidateOnly=True)
    assert refused["ErrorCode"] == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("key", "more"),
    [
        ("num.io.threads", "value should not be greater than double the current value"),
        ("num.network.threads", "value should not be greater than double the current value"),
        ("num.replica.fetchers", "value should not be greater than double the current value"),
        ("num.recovery.threads.per.data.dir", "value should not be greater than double the current value"),
        ("background.threads", "value should not be greater than double the current value"),
        ("remote.log.reader.threads", "value should not be greater than double the current value"),
        (
            "log.cleaner.threads",
            "Log cleaner threads cannot be increased to more than double the current value",
        ),
    ],
)
def test_a_pool_of_threads_at_most_doubles(key: str, more: str, connection: Connection) -> None:
    name = broker_name(connection)
    current = int(setting(connection, BROKER, name, key)["Value"])
    for resource in (name, ""):
        refused = alter(connection, BROKER, resource, (key, SET, str(2 * current + 1)), ValidateOnly=True)
        assert refused["ErrorCode"] == ErrorCode.INVALID_REQUEST
        assert f"{more} {current}" in refused["ErrorMessage"]
        taken = alter(connection, BROKER, resource, (key, SET, str(2 * current)), ValidateOnly=True)
        assert taken["ErrorCode"] == 0, taken
