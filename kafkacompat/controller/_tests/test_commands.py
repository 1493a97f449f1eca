"""Admin commands compared with the codes and texts of Apache Kafka 4.3.0."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kafkacompat.config import ServerConfig
from kafkacompat.controller._tests.clusters import cluster, settings
from kafkacompat.controller._tests.harness import Harness
from kafkacompat.controller.configuration_control_manager import incremental_alter_configs
from kafkacompat.controller.features import METADATA_VERSION
from kafkacompat.controller.settings import ControllerSettings
from kafkacompat.tasks import at_once
from kafkacompat.wire.messages import alter_configs_request as old
from kafkacompat.wire.messages import incremental_alter_configs_request as incremental
from kafkacompat.wire.messages.create_partitions_request import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from kafkacompat.wire.messages.create_topics_request import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from kafkacompat.wire.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState

TOPIC, BROKER, CLIENT_METRICS, GROUP = 2, 4, 16, 32
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3


@pytest.fixture
def node() -> Harness:
    harness = Harness().start()
    harness.serve()
    create(harness, topic("ok", 2), topic("a.b"))
    return harness


def topic(name: str, partitions: int = 1, replication: int = 1, **configs: str | None) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replication,
        configs=[
            CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()
        ],
    )


def assigned(name: str, *replicas: list[int], partitions: int = -1, replication: int = -1) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replication,
        assignments=[
            CreatableReplicaAssignment(partition_index=i, broker_ids=ids) for i, ids in enumerate(replicas)
        ],
    )


def says(actual: str | None, expected: str | None) -> bool:
    """The same text. After a final colon any reason is accepted, because the settings give its words."""
    if expected is not None and expected.endswith(":"):
        return actual is not None and actual.startswith(expected)
    return actual == expected


def create(node: Harness, *topics: CreatableTopic, validate_only: bool = False) -> Any:
    request = CreateTopicsRequest(topics=list(topics), validate_only=validate_only)
    return node.call(node.controller.create_topics, request).topics


@pytest.mark.parametrize(
    ("asked", "code", "text"),
    [
        (topic("ok"), 36, "Topic 'ok' already exists."),
        (topic(""), 17, "Topic name is invalid: the empty string is not allowed"),
        (topic("."), 17, "Topic name is invalid: '.' is not allowed"),
        (topic(".."), 17, "Topic name is invalid: '..' is not allowed"),
        (
            topic("x/y"),
            17,
            "Topic name is invalid: 'x/y' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'",
        ),
        (
            topic("a" * 250),
            17,
            f"Topic name is invalid: the length of '{'a' * 250}' is longer than the max allowed length 249",
        ),
        (topic("a_b"), 17, "Topic 'a_b' collides with existing topic: a.b"),
        (topic("__cluster_metadata"), 42, "Creation of internal topic __cluster_metadata is prohibited."),
        (topic("p", 0), 37, "Number of partitions was set to an invalid non-positive value."),
        (topic("p", 1, 0), 38, "Replication factor must be larger than 0, or -1 to use the default value."),
        (
            topic("p", 1, 2),
            38,
            "Unable to replicate the partition 2 time(s): The target replication factor of 2 cannot be reached because "
            "only 1 broker(s) are registered or some brokers have all their log directories cordoned.",
        ),
        (topic("p", 10001), 44, "Excessively large number of partitions per request."),
        (topic("p", 10000), 44, "Unable to perform excessively large batch operation."),
        (topic("p", foo="1"), 40, "Unknown topic config name: foo"),
        (
            topic("p", retention_ms="abc"),
            40,
            "Invalid value abc for configuration retention.ms:",
        ),
        (
            topic("p", retention_ms="-5"),
            40,
            "Invalid value -5 for configuration retention.ms:",
        ),
        (topic("p", retention_ms=None), 40, "Null value not supported for topic configs: retention.ms"),
        (
            assigned("p", [9]),
            39,
            "The manual partition assignment includes broker 9, but no such broker is registered.",
        ),
        (assigned("p", [1, 1]), 39, "The manual partition assignment includes the broker 1 more than once."),
        (assigned("p", []), 39, "The manual partition assignment includes an empty replica list."),
        (
            assigned("p", [1], replication=1),
            42,
            "A manual partition assignment was specified, but replication factor was not set to -1.",
        ),
        (
            assigned("p", [1], partitions=1),
            42,
            "A manual partition assignment was specified, but numPartitions was not set to -1.",
        ),
    ],
)
def test_create_topics_refuses_as_kafka_does(
    node: Harness, asked: CreatableTopic, code: int, text: str
) -> None:
    end = node.log.log_end_offset
    (answer,) = create(node, asked)
    assert (answer.name, answer.error_code) == (asked.name, code)
    assert says(answer.error_message, text)
    assert node.log.log_end_offset == end


def test_mixed_topics_are_judged_one_by_one(node: Harness) -> None:
    answers = {
        each.name: each
        for each in create(node, topic("good"), topic("bad", foo="1"), topic("twice"), topic("twice"))
    }
    assert {name: each.error_code for name, each in answers.items()} == {"good": 0, "bad": 40, "twice": 42}
    assert answers["twice"].error_message == "Duplicate topic name."
    assert "good" in node.image.topics
    assert "bad" not in node.image.topics


def test_a_created_topic_is_described_with_sorted_settings(node: Harness) -> None:
    (answer,) = create(node, topic("t", 3, retention_ms="5000"))
    assert answer.error_message is None
    assert (answer.num_partitions, answer.replication_factor, answer.topic_config_error_code) == (3, 1, 0)
    assert answer.topic_id == node.image.topics["t"].id
    names = [each.name for each in answer.configs]
    assert names == sorted(names)
    found = {each.name: (each.value, each.config_source) for each in answer.configs}
    assert found["retention.ms"] == ("5000", 1)
    assert found["segment.bytes"] == ("1073741824", 5)


def test_a_created_topic_tells_the_file_as_the_source_of_a_time_in_other_units() -> None:
    """As Kafka's KafkaConfigSchema does. DescribeConfigs looks at the names in milliseconds only."""
    node = Harness(properties={"log.retention.hours": "48", "log.roll.hours": "2"}).start()
    node.serve()
    alter(node, BROKER, "", ("log.roll.ms", "9000000", SET))
    (answer,) = create(node, topic("t", segment_jitter_ms="5"))
    found = {each.name: (each.value, each.config_source) for each in answer.configs}
    assert found["retention.ms"] == ("172800000", 4)
    assert found["segment.ms"] == ("9000000", 3)
    assert found["segment.jitter.ms"] == ("5", 1)
    assert found["flush.ms"] == ("9223372036854775807", 5)


def test_a_topic_without_settings_is_created_whatever_the_brokers_defaults_are() -> None:
    """Kafka takes such defaults while a broker runs, and checks only topics with settings against them."""
    node = Harness().start()
    node.serve()
    lags = ("log.cleaner.min.compaction.lag.ms", "10", SET), ("log.cleaner.max.compaction.lag.ms", "5", SET)
    assert alter(node, BROKER, "", *lags) == (0, None)
    plain, other = create(node, topic("plain"), topic("other", retention_ms="5"))
    assert (plain.error_code, other.error_code) == (0, 40)


def test_minus_one_means_the_brokers_defaults() -> None:
    node = Harness(properties={"num.partitions": "4"}).start()
    node.serve()
    (answer,) = create(node, topic("t", -1, -1))
    assert (answer.error_code, answer.num_partitions, answer.replication_factor) == (0, 4, 1)


def test_validate_only_answers_an_id_and_writes_nothing(node: Harness) -> None:
    end = node.log.log_end_offset
    (answer,) = create(node, topic("t"), validate_only=True)
    assert answer.error_code == 0
    assert answer.topic_id != bytes(16)
    assert node.log.log_end_offset == end


def partitions(node: Harness, *topics: CreatePartitionsTopic) -> list[tuple[str, int, str | None]]:
    answer = node.call(node.controller.create_partitions, CreatePartitionsRequest(topics=list(topics)))
    return [(each.name, each.error_code, each.error_message) for each in answer.results]


def grow(name: str, count: int, *assignments: list[int]) -> CreatePartitionsTopic:
    given = [CreatePartitionsAssignment(broker_ids=ids) for ids in assignments] if assignments else None
    return CreatePartitionsTopic(name=name, count=count, assignments=given)


@pytest.mark.parametrize(
    ("asked", "code", "text"),
    [
        (grow("ok", 2), 37, "Topic already has 2 partition(s)."),
        (grow("ok", 1), 37, "The topic ok currently has 2 partition(s); 1 would not be an increase."),
        (grow("none", 3), 3, None),
        (
            grow("ok", 4, [1]),
            39,
            "Attempted to add 2 additional partition(s), but only 1 assignment(s) were specified.",
        ),
        (
            grow("ok", 3, [7]),
            39,
            "The manual partition assignment includes broker 7, but no such broker is registered.",
        ),
        (grow("ok", 10_003), 44, "Excessively large number of additional partitions per request."),
        (grow("ok", 3, [1]), 0, None),
        (grow("ok", 5), 0, None),
    ],
)
def test_create_partitions_answers_as_kafka_does(
    node: Harness, asked: CreatePartitionsTopic, code: int, text: str | None
) -> None:
    assert partitions(node, asked) == [(asked.name, code, text)]
    assert len(node.image.topics["ok"].partitions) == (asked.count if code == 0 else 2)


def test_too_many_additional_partitions_are_refused_with_all_that_is_asked_for(node: Harness) -> None:
    """Topics that are repeated, unknown or get no more partitions do not count."""
    text = "Excessively large number of additional partitions per request."
    assert partitions(node, grow("ok", 6_000), grow("a.b", 6_000), grow("none", 1)) == [
        ("ok", 44, text),
        ("a.b", 44, text),
        ("none", 44, text),
    ]
    asked = (grow("ok", 3), grow("a.b", 9_000), grow("a.b", 9_000), grow("none", 20_000))
    assert sorted(code for _, code, _ in partitions(node, *asked)) == [0, 3, 42]


def test_the_same_topic_twice_is_refused_and_the_rest_done(node: Harness) -> None:
    assert partitions(node, grow("ok", 3), grow("ok", 4), grow("a.b", 2)) == [
        ("ok", 42, "Duplicate topic name."),
        ("a.b", 0, None),
    ]


def test_delete_topics_by_name_or_id(node: Harness) -> None:
    known = node.image.topics["ok"].id
    states = [
        DeleteTopicState(name="a.b"),
        DeleteTopicState(name=None, topic_id=known),
        DeleteTopicState(name="none"),
        DeleteTopicState(name=None, topic_id=b"\x05" * 16),
        DeleteTopicState(name=None),
        DeleteTopicState(name="x", topic_id=known),
        DeleteTopicState(name="twice"),
        DeleteTopicState(name="twice"),
    ]
    answer = node.call(node.controller.delete_topics, DeleteTopicsRequest(topics=states))
    found = sorted((each.name or "", each.error_code) for each in answer.responses)
    assert found == [("", 42), ("", 100), ("a.b", 0), ("none", 3), ("ok", 0), ("twice", 42), ("x", 42)]
    assert node.image.topics == {}


def alter(
    node: Harness, kind: int, name: str, *changes: tuple[str, str | None, int], validate_only: bool = False
) -> Any:
    resource = incremental.AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[
            incremental.AlterableConfig(name=key, value=value, config_operation=op)
            for key, value, op in changes
        ],
    )
    request = incremental.IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
    (answer,) = node.call(node.controller.incremental_alter_configs, request).responses
    return answer.error_code, answer.error_message


@pytest.mark.parametrize(("level", "code"), [(29, 40), (30, 0)])
def test_directories_are_cordoned_from_their_metadata_version_on(level: int, code: int) -> None:
    image = cluster(features={METADATA_VERSION: level})
    config = incremental.AlterableConfig(name="cordoned.log.dirs", config_operation=SET, value="*")
    resource = incremental.AlterConfigsResource(resource_type=BROKER, resource_name="1", configs=[config])
    request = incremental.IncrementalAlterConfigsRequest(resources=[resource])
    (answer,) = at_once(incremental_alter_configs(image, settings(), request)).response.responses
    text = "The cordoned.log.dirs configuration value cannot be set because it requires metadata.version >= 4.3-IV0"
    assert (answer.error_code, answer.error_message) == (code, text if code else None)


@pytest.mark.parametrize(
    ("current", "wanted", "is_taken"),
    [
        (None, "/a", False),
        (None, "*", False),
        ("", "/a", False),
        ("/a, /b", "/b", True),
        ("/a,/b", " /b , /a ", True),
        ("/a", "/a,", False),
        ("/a", "/a,/b", False),
        ("*", "/a", False),
        ("*", "*", True),
        ("/a", " ", True),
        ("/a", None, True),
    ],
)
def test_who_asks_a_controller_cordons_no_other_directories(
    current: str | None, wanted: str | None, is_taken: bool
) -> None:
    before = {} if current is None else {(BROKER, "1"): {"cordoned.log.dirs": current}}
    image = replace(cluster(features={METADATA_VERSION: 33}), configs=before)
    operation = DELETE if wanted is None else SET
    config = incremental.AlterableConfig(name="cordoned.log.dirs", config_operation=operation, value=wanted)
    resource = incremental.AlterConfigsResource(resource_type=BROKER, resource_name="1", configs=[config])
    request = incremental.IncrementalAlterConfigsRequest(resources=[resource])
    (answer,) = at_once(incremental_alter_configs(image, settings(), request, True)).response.responses
    text = "When updating cordoned.log.dirs via controllers,  the new value must be a subset of the current configuration value."
    assert (answer.error_code, answer.error_message) == ((0, None) if is_taken else (40, text))
    (answer,) = at_once(incremental_alter_configs(image, settings(), request)).response.responses
    assert answer.error_code == 0, "a broker has checked its directories"


@pytest.mark.parametrize(
    ("name", "setting", "value"),
    [
        ("2", "listeners", "PLAINTEXT://127.0.0.1:9092,EXTERNAL://127.0.0.1:9094"),
        ("2", "max.connections.per.ip", "0"),
        ("", "group.consumer.assignment.interval.ms", "20000"),
    ],
)
def test_a_controller_does_not_judge_brokers_by_its_own_file(name: str, setting: str, value: str) -> None:
    """It lacks what they have in their files: listeners, exceptions, bounds. The broker that was asked has checked the change."""
    file = {
        "node.id": "9",
        "process.roles": "controller",
        "listeners": "CONTROLLER://127.0.0.1:9093",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": "9@127.0.0.1:9093",
        "log.dirs": "/data",
    }
    alone = ControllerSettings(ServerConfig.from_properties(file), 9, "cluster")
    config = incremental.AlterableConfig(name=setting, config_operation=SET, value=value)
    resource = incremental.AlterConfigsResource(resource_type=BROKER, resource_name=name, configs=[config])
    request = incremental.IncrementalAlterConfigsRequest(resources=[resource])
    result = at_once(incremental_alter_configs(cluster(), alone, request))
    (answer,) = result.response.responses
    assert (answer.error_code, answer.error_message) == (0, None)
    (written,) = result.records
    message: Any = written.message
    assert (message.resource_name, message.name, message.value) == (name, setting, value)


@pytest.mark.parametrize("name", ["", "1"])
def test_an_invalid_setting_of_a_broker_in_the_metadata_refuses_no_change_of_another(name: str) -> None:
    """Releases before had other bounds: log.segment.bytes could be 14. Brokers leave out what they do not take."""
    stored = {"log.segment.bytes": "1000", "advertised.listeners": "PLAINTEXT://127.0.0.1:9092"}
    image = replace(cluster(), configs={(BROKER, name): stored})
    for setting, value, operation, code in (
        ("log.cleaner.threads", "2", SET, 0),
        ("log.segment.bytes", None, DELETE, 0),
        ("log.segment.bytes", "1001", SET, 42),
    ):
        config = incremental.AlterableConfig(name=setting, config_operation=operation, value=value)
        resource = incremental.AlterConfigsResource(
            resource_type=BROKER, resource_name=name, configs=[config]
        )
        request = incremental.IncrementalAlterConfigsRequest(resources=[resource])
        result = at_once(incremental_alter_configs(image, settings(), request))
        (answer,) = result.response.responses
        assert answer.error_code == code, answer.error_message


def test_a_list_that_grows_too_long_for_a_record_is_refused(node: Harness) -> None:
    def append(value: str) -> Any:
        return alter(node, BROKER, "1", ("ssl.cipher.suites", value, APPEND))

    text = "The configuration value cannot be added because it exceeds the maximum value size of 32767 bytes."
    assert append("a" * 20_000) == (0, None)
    assert append("b" * 20_000) == (40, text)
    assert append("\u00e9" * 7_000) == (40, text)
    assert append("b" * 12_766) == (0, None)


@pytest.mark.parametrize(
    ("kind", "name", "change", "code", "text"),
    [
        (TOPIC, "ok", ("retention.ms", "5000", SET), 0, None),
        (
            TOPIC,
            "ok",
            ("retention.ms", "zz", SET),
            40,
            "Invalid value zz for configuration retention.ms:",
        ),
        (TOPIC, "ok", ("foo", "1", SET), 40, "Unknown topic config name: foo"),
        (
            TOPIC,
            "ok",
            ("retention.ms", "1", APPEND),
            40,
            "Can't APPEND to key retention.ms because its type is not LIST.",
        ),
        (
            TOPIC,
            "ok",
            ("retention.ms", "1", SUBTRACT),
            40,
            "Can't SUBTRACT to key retention.ms because its type is not LIST.",
        ),
        (TOPIC, "ok", ("foo", "1", APPEND), 40, "Can't APPEND to key foo because its type is not LIST."),
        (
            TOPIC,
            "ok",
            ("cleanup.policy", "xx", APPEND),
            40,
            "Invalid value xx for configuration cleanup.policy:",
        ),
        (TOPIC, "none", ("retention.ms", "5000", SET), 3, "The topic 'none' does not exist."),
        (TOPIC, "", ("retention.ms", "5000", SET), 42, "Default topic resources are not allowed."),
        (TOPIC, "ok", ("retention.ms", None, SET), 42, "Null value not supported for : retention.ms"),
        (TOPIC, "ok", ("retention.ms", "1", 9), 42, "Unknown operations type 9"),
        (BROKER, "1", ("log.cleaner.threads", "2", SET), 0, None),
        (
            BROKER,
            "5",
            ("log.cleaner.threads", "2", SET),
            102,
            "No node with id 5 found.",
        ),
        (BROKER, "x", ("log.cleaner.threads", "2", SET), 42, "Invalid broker name x"),
        (BROKER, " 1", ("log.cleaner.threads", "2", SET), 42, "Invalid broker name  1"),
        (BROKER, "1_0", ("log.cleaner.threads", "2", SET), 42, "Invalid broker name 1_0"),
        (
            BROKER,
            "1",
            ("num.partitions", "2", SET),
            42,
            "Cannot update these configs dynamically: [num.partitions]",
        ),
        (BROKER, "1", ("foo.bar", "2", SET), 0, None),
        (
            BROKER,
            "1",
            ("log.cleaner.threads", "x", SET),
            42,
            "Invalid value x for configuration log.cleaner.threads:",
        ),
        (
            BROKER,
            "1",
            ("min.insync.replicas", "1", SET),
            40,
            "Broker-level min.insync.replicas cannot be altered while ELR is enabled.",
        ),
        (
            BROKER,
            "",
            ("min.insync.replicas", None, DELETE),
            40,
            "Cluster-level min.insync.replicas cannot be removed while ELR is enabled.",
        ),
        (GROUP, "g", ("consumer.session.timeout.ms", "50000", SET), 0, None),
        (
            GROUP,
            "",
            ("consumer.session.timeout.ms", "50000", SET),
            42,
            "Default group resources are not allowed.",
        ),
        (
            TOPIC,
            "a/b",
            ("nothing", "1", SET),
            17,
            "Topic name is invalid: 'a/b' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'",
        ),
        (CLIENT_METRICS, "s", ("interval.ms", "1000", SET), 0, None),
        (CLIENT_METRICS, "s", ("nothing", "1000", SET), 42, "Unknown client metrics configuration: nothing"),
        (77, "x", ("a", "b", SET), 42, "Unknown resource type 77"),
    ],
)
def test_incremental_alter_configs_answers_as_kafka_does(
    node: Harness, kind: int, name: str, change: tuple[str, str | None, int], code: int, text: str | None
) -> None:
    answer = alter(node, kind, name, change)
    assert answer[0] == code
    assert says(answer[1], text)
    stored = node.image.config(kind, name).get(change[0])
    assert stored == (change[1] if code == 0 else ("1" if (kind, name) == (BROKER, "") else None))


def test_list_operations_start_from_the_default(node: Harness) -> None:
    assert alter(node, TOPIC, "ok", ("cleanup.policy", "compact", APPEND)) == (0, None)
    assert node.image.config(TOPIC, "ok")["cleanup.policy"] == "delete,compact"
    assert alter(node, TOPIC, "ok", ("cleanup.policy", "compact", APPEND)) == (0, None)
    assert alter(node, TOPIC, "ok", ("cleanup.policy", "delete", SUBTRACT)) == (0, None)
    assert node.image.config(TOPIC, "ok")["cleanup.policy"] == "compact"
    assert alter(node, TOPIC, "ok", ("cleanup.policy", None, DELETE)) == (0, None)
    assert node.image.config(TOPIC, "ok") == {}


def test_an_equal_value_writes_nothing_but_for_brokers(node: Harness) -> None:
    alter(node, TOPIC, "ok", ("retention.ms", "5", SET))
    end = node.log.log_end_offset
    alter(node, TOPIC, "ok", ("retention.ms", "5", SET))
    assert node.log.log_end_offset == end
    alter(node, BROKER, "1", ("log.cleaner.threads", "2", SET))
    end = node.log.log_end_offset
    alter(node, BROKER, "1", ("log.cleaner.threads", "2", SET))
    assert node.log.log_end_offset == end + 1


def test_min_insync_replicas_clears_eligible_leaders(node: Harness) -> None:
    end = node.log.log_end_offset
    alter(node, TOPIC, "ok", ("min.insync.replicas", "2", SET))
    assert [type(each).__name__ for each in node.messages(end)] == ["ConfigRecord", "ClearElrRecord"]
    assert node.messages(end)[1].topic_name == "ok"
    end = node.log.log_end_offset
    alter(node, BROKER, "", ("min.insync.replicas", "2", SET))
    assert node.messages(end)[1].topic_name == ""


def test_a_resource_named_twice_is_refused_twice(node: Harness) -> None:
    resource = incremental.AlterConfigsResource(
        resource_type=TOPIC,
        resource_name="ok",
        configs=[incremental.AlterableConfig(name="retention.ms", value="1", config_operation=SET)],
    )
    request = incremental.IncrementalAlterConfigsRequest(resources=[resource, resource])
    answers = node.call(node.controller.incremental_alter_configs, request).responses
    assert [(each.error_code, each.error_message) for each in answers] == [
        (42, "Each resource must appear at most once.")
    ] * 2
    double = [("retention.ms", "1", SET), ("retention.ms", "2", SET)]
    assert alter(node, TOPIC, "ok", *double) == (42, "Error due to duplicate config keys")


def test_alter_configs_replaces_the_whole_set(node: Harness) -> None:
    alter(node, TOPIC, "ok", ("retention.ms", "5", SET), ("cleanup.policy", "compact", SET))
    resource = old.AlterConfigsResource(
        resource_type=TOPIC, resource_name="ok", configs=[old.AlterableConfig(name="retention.ms", value="7")]
    )
    answer = node.call(node.controller.alter_configs, old.AlterConfigsRequest(resources=[resource]))
    assert (answer.responses[0].error_code, answer.responses[0].error_message) == (0, None)
    assert node.image.config(TOPIC, "ok") == {"retention.ms": "7"}


def test_validate_only_changes_no_setting(node: Harness) -> None:
    assert alter(node, TOPIC, "ok", ("retention.ms", "5", SET), validate_only=True) == (0, None)
    assert node.image.config(TOPIC, "ok") == {}
