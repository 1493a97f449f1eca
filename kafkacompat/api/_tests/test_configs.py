"""Settings and topics on the wire: DescribeConfigs, AlterConfigs, IncrementalAlterConfigs, loggers, and forwarding."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from kafkacompat.api import incremental_alter_configs
from kafkacompat.api._tests.kit import Api, pauses_of
from kafkacompat.api.broker_configs import refused_broker_changes
from kafkacompat.api.request_context import RequestContext
from kafkacompat.config import ConfigError, ServerConfig
from kafkacompat.controller.configuration_control_manager import SETTINGS_IN_ALL_MAX, SETTINGS_MAX
from kafkacompat.partition._tests.kit import broker_image, topic_image
from kafkacompat.ports.dispatcher import Pending
from kafkacompat.tasks import at_once
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages import alter_configs_request as old
from kafkacompat.wire.messages import create_partitions_request as partitions
from kafkacompat.wire.messages import create_topics_request as topics
from kafkacompat.wire.messages import delete_topics_request as deletions
from kafkacompat.wire.messages import incremental_alter_configs_request as incremental
from kafkacompat.wire.messages.create_topics_response import CreatableTopicResult, CreateTopicsResponse
from kafkacompat.wire.messages.describe_configs_request import DescribeConfigsRequest, DescribeConfigsResource
from kafkacompat.wire.messages.incremental_alter_configs_response import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)
from kafkacompat.wire.messages.list_config_resources_request import ListConfigResourcesRequest

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
NAME = "kafkacompat.api._tests.sample"
JMX = "org.apache.kafka.common.metrics.JmxReporter"
"""The default of metric.reporters."""


@pytest.fixture(autouse=True)
def sample_logger() -> Iterator[None]:
    logging.getLogger(NAME).setLevel(logging.NOTSET)
    level = logging.root.level
    yield
    logging.getLogger(NAME).setLevel(logging.NOTSET)
    logging.root.setLevel(level)


def describe(api: Api, kind: int, name: str, *keys: str, version: int = 4, **fields: Any) -> Any:
    resource = DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=list(keys) or None
    )
    (result,) = api.call(DescribeConfigsRequest(resources=[resource], **fields), version).results
    return result


def test_a_subscription_of_client_metrics_has_defaults_for_what_is_not_set() -> None:
    api = Api()
    api.publish(replace(api.node.image, configs={(METRICS, "some"): {"interval.ms": "5000"}}))
    shown = [
        (one.name, one.value, one.config_source, one.config_type, [each.value for each in one.synonyms])
        for name in ("some", "none")
        for one in describe(api, METRICS, name, include_synonyms=True).configs
    ]
    rest = [("match", "", 5, 7, []), ("metrics", "", 5, 7, [])]
    assert shown == [
        ("interval.ms", "5000", 7, 3, ["5000"]),
        *rest,
        ("interval.ms", "300000", 5, 3, []),
        *rest,
    ]


def test_a_subscription_of_client_metrics_is_shown_as_it_is_read() -> None:
    api = Api()
    given = {"interval.ms": " 060000", "metrics": "a. , b.", "match": "client_id=x ,client_software_name=y"}
    api.publish(replace(api.node.image, configs={(METRICS, "some"): given}))
    shown = {
        one.name: (one.value, [each.value for each in one.synonyms])
        for one in describe(api, METRICS, "some", include_synonyms=True).configs
    }
    assert shown == {
        "interval.ms": ("60000", ["60000"]),
        "metrics": ("a.,b.", ["a.,b."]),
        "match": ("client_id=x,client_software_name=y", ["client_id=x,client_software_name=y"]),
    }


@pytest.mark.parametrize("version", range(1, 5))
def test_all_settings_of_a_topic_with_their_sources(version: int) -> None:
    api = Api(topic_image("t"))
    api.publish(replace(api.node.image, configs={(TOPIC, "t"): {"cleanup.policy": "compact"}}))
    result = describe(api, TOPIC, "t", version=version, include_synonyms=True)
    assert (result.error_code, result.error_message) == (0, "")
    entries = {entry.name: entry for entry in result.configs}
    assert len(entries) >= 30
    policy = entries["cleanup.policy"]
    assert (policy.value, policy.config_source, policy.read_only) == ("compact", 1, False)
    assert [(one.name, one.source) for one in policy.synonyms] == [
        ("cleanup.policy", 1),
        ("log.cleanup.policy", 5),
    ]
    assert entries["retention.ms"].config_source == 5
    if version >= 3:
        assert policy.config_type == 7
        assert policy.documentation is None  # not requested


def test_synonyms_and_documentation_only_when_asked() -> None:
    api = Api(topic_image("t"))
    plain = describe(api, TOPIC, "t", "retention.ms").configs[0]
    assert plain.synonyms == []
    documented = describe(api, TOPIC, "t", "retention.ms", include_documentation=True).configs[0]
    assert documented.documentation


def test_unknown_keys_are_dropped_and_empty_keys_mean_all() -> None:
    api = Api(topic_image("t"))
    assert [entry.name for entry in describe(api, TOPIC, "t", "retention.ms", "foo").configs] == [
        "retention.ms"
    ]
    resource = DescribeConfigsResource(resource_type=TOPIC, resource_name="t", configuration_keys=[])
    assert len(api.call(DescribeConfigsRequest(resources=[resource]), 4).results[0].configs) >= 30


@pytest.mark.parametrize(
    ("kind", "name", "error", "text"),
    [
        # Kafka's answer has no text for a topic that does not exist, and clients have their own.
        (TOPIC, "no", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None),
        (
            TOPIC,
            "",
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            "Topic name is invalid: the empty string is not allowed",
        ),
        (BROKER, "1", ErrorCode.NONE, ""),
        (BROKER, "", ErrorCode.NONE, ""),
        (
            BROKER,
            "2",
            ErrorCode.INVALID_REQUEST,
            "Unexpected broker id, expected 1 or empty string, but received 2",
        ),
        (BROKER, "x", ErrorCode.INVALID_REQUEST, "Broker id must be an integer, but it is: x"),
        (LOGGER, "1", ErrorCode.NONE, ""),
        (LOGGER, "2", ErrorCode.INVALID_REQUEST, "Unexpected broker id, expected 1 but received 2"),
        (LOGGER, "", ErrorCode.INVALID_REQUEST, "Broker id must not be empty"),
        (GROUP, "", ErrorCode.INVALID_REQUEST, "Group name must not be empty"),
        (GROUP, "g", ErrorCode.NONE, ""),
        (METRICS, "", ErrorCode.INVALID_REQUEST, "Client metrics subscription name must not be empty"),
        (METRICS, "m", ErrorCode.NONE, ""),
    ],
)
def test_which_resources_may_be_described(kind: int, name: str, error: int, text: str | None) -> None:
    result = describe(Api(topic_image("t")), kind, name)
    assert (result.error_code, result.error_message) == (error, text)
    assert (result.resource_type, result.resource_name) == (kind, name)


@pytest.mark.parametrize("kind", [BROKER, LOGGER])
def test_a_name_that_is_no_brokers_is_refused_however_long_it_is(kind: int) -> None:
    """The text that repeats it must fit into a string of the protocol."""
    api, name = Api(), "x" * 32_700
    assert describe(api, kind, name, version=1).error_code == ErrorCode.INVALID_REQUEST
    for module in (old, incremental) if kind == BROKER else (incremental,):
        request_type = getattr(
            module, "AlterConfigsRequest" if module is old else "IncrementalAlterConfigsRequest"
        )
        resource = module.AlterConfigsResource(resource_type=kind, resource_name=name, configs=[])
        (answer,) = api.call(request_type(resources=[resource]), 0).responses
        assert answer.error_code == ErrorCode.INVALID_REQUEST


def test_one_unknown_resource_type_fails_the_whole_request() -> None:
    api = Api(topic_image("t"))
    resources = [DescribeConfigsResource(resource_type=kind, resource_name="t") for kind in (TOPIC, 77)]
    results = api.call(DescribeConfigsRequest(resources=resources), 4).results
    assert [result.error_code for result in results] == [42, 42]


def test_broker_settings_hide_passwords_and_know_what_is_read_only() -> None:
    entries = {entry.name: entry for entry in describe(Api(), BROKER, "1").configs}
    assert entries["ssl.key.password"].is_sensitive
    assert entries["ssl.key.password"].value is None
    assert entries["node.id"].read_only
    assert not entries["log.retention.ms"].read_only


def alter(
    api: Api, *resources: tuple[int, str, list[tuple[str, int, str | None]]], validate_only: bool = False
) -> Any:
    request = incremental.IncrementalAlterConfigsRequest(
        validate_only=validate_only,
        resources=[
            incremental.AlterConfigsResource(
                resource_type=kind,
                resource_name=name,
                configs=[
                    incremental.AlterableConfig(name=key, config_operation=operation, value=value)
                    for key, operation, value in changes
                ],
            )
            for kind, name, changes in resources
        ],
    )
    return api.send(request, 1)


def outcome(response: Any) -> list[int]:
    return [one.error_code for one in response.responses]


@pytest.mark.parametrize("name", [NAME, "kafka.authorizer.logger"])
def test_loggers_change_here_and_are_not_forwarded(name: str) -> None:
    api = Api()
    assert outcome(alter(api, (LOGGER, "1", [(name, 0, "DEBUG")]))) == [0]
    assert logging.getLogger(name).level == logging.DEBUG
    entries = {entry.name: entry for entry in describe(api, LOGGER, "1").configs}
    assert (entries[name].value, entries[name].config_source) == ("DEBUG", 6)
    assert outcome(alter(api, (LOGGER, "1", [(name, 1, None)]))) == [0]
    assert logging.getLogger(name).level == logging.NOTSET
    assert api.controller.calls == []


def test_loggers_are_only_checked_when_that_is_asked() -> None:
    assert outcome(alter(Api(), (LOGGER, "1", [(NAME, 0, "DEBUG")]), validate_only=True)) == [0]
    assert logging.getLogger(NAME).level == logging.NOTSET


@pytest.mark.parametrize(
    ("name", "changes", "error"),
    [
        ("2", [(NAME, 0, "DEBUG")], 42),
        ("1", [("no.such", 0, "DEBUG")], 40),
        ("1", [(NAME, 0, "LOUD")], 40),
        ("1", [(NAME, 0, None)], 42),
        ("1", [(NAME, 2, "DEBUG")], 42),
        ("1", [(NAME, 9, "DEBUG")], 42),
        ("1", [("root", 1, None)], 42),
        ("1", [(NAME, 0, "DEBUG"), (NAME, 1, None)], 42),
    ],
)
def test_what_cannot_be_done_to_loggers(
    name: str, changes: list[tuple[str, int, str | None]], error: int
) -> None:
    assert outcome(alter(Api(), (LOGGER, name, changes))) == [error]
    assert logging.getLogger(NAME).level == logging.NOTSET


def test_too_many_loggers_are_refused_without_a_look_at_them() -> None:
    many = [(NAME, 0, "DEBUG")] * (SETTINGS_MAX + 1)
    assert outcome(alter(Api(), (LOGGER, "1", many))) == [ErrorCode.INVALID_CONFIG]
    assert logging.getLogger(NAME).level == logging.NOTSET


def test_loggers_of_many_spellings_of_the_own_id_are_looked_at_in_steps() -> None:
    count = 100
    resources = [
        incremental.AlterConfigsResource(resource_type=LOGGER, resource_name="1".zfill(length))
        for length in range(1, count + 1)
    ]
    request = incremental.IncrementalAlterConfigsRequest(resources=resources)
    asked = RequestContext(44, 1, 0, None, 1, "PLAINTEXT", "h")
    costs = list(pauses_of(incremental_alter_configs.handle(Api().node, asked, request)))
    assert sum(costs) >= count * incremental_alter_configs.LOGGERS_US


def test_loggers_and_forwarded_resources_keep_their_places() -> None:
    api = Api()
    pending = alter(
        api, (TOPIC, "t", []), (LOGGER, "1", [(NAME, 0, "ERROR")]), (GROUP, "g", []), (LOGGER, "9", [])
    )
    assert isinstance(pending, Pending)
    ((name, request, answer),) = api.controller.calls
    assert name == "incremental_alter_configs"
    assert [one.resource_type for one in request.resources] == [TOPIC, GROUP]
    answer.resolve(
        IncrementalAlterConfigsResponse(
            responses=[
                AlterConfigsResourceResponse(error_code=code, resource_type=kind)
                for code, kind in [(3, 2), (40, 32)]
            ]
        )
    )
    response = api.decoded(pending.reply.result(), 44, 1)
    assert [(one.resource_type, one.error_code) for one in response.responses] == [
        (2, 3),
        (8, 0),
        (32, 40),
        (8, 42),
    ]


def test_a_logger_resource_named_twice_is_refused() -> None:
    assert outcome(alter(Api(), (LOGGER, "1", []), (LOGGER, "1", []))) == [42, 42]


def test_what_the_controller_answers_is_passed_on() -> None:
    api = Api()
    request = topics.CreateTopicsRequest(
        topics=[topics.CreatableTopic(name="new", num_partitions=1, replication_factor=1)]
    )
    pending = api.send(request, 5)
    assert isinstance(pending, Pending)
    (_, asked, answer) = api.controller.calls[0]
    assert asked.topics[0].name == "new"
    answer.resolve(
        CreateTopicsResponse(
            topics=[CreatableTopicResult(name="new", topic_id=b"i" * 16, error_message=None)]
        )
    )
    (created,) = api.decoded(pending.reply.result(), 19, 5).topics
    assert (created.name, created.error_code) == ("new", 0)


def test_controller_calls_by_name() -> None:
    api = Api()
    api.send(deletions.DeleteTopicsRequest(topic_names=["t"]), 3)
    api.send(partitions.CreatePartitionsRequest(), 3)
    api.send(old.AlterConfigsRequest(), 2)
    assert [name for name, _, _ in api.controller.calls] == [
        "delete_topics",
        "create_partitions",
        "alter_configs",
    ]


def listed(api: Api, version: int, *kinds: int) -> Any:
    response = api.call(ListConfigResourcesRequest(resource_types=list(kinds)), version)
    return response.error_code, [(one.resource_type, one.resource_name) for one in response.config_resources]


def test_list_config_resources() -> None:
    api = Api(topic_image("t"))
    api.publish(replace(api.node.image, configs={(METRICS, "m"): {"a": "b"}, (GROUP, "g"): {"c": "d"}}))
    assert listed(api, 0) == (0, [(METRICS, "m")])
    assert listed(api, 1) == (0, [(TOPIC, "t"), (BROKER, "1"), (LOGGER, "1"), (METRICS, "m"), (GROUP, "g")])
    assert listed(api, 1, GROUP, TOPIC) == (0, [(TOPIC, "t"), (GROUP, "g")])
    assert listed(api, 1, 99) == (ErrorCode.UNSUPPORTED_VERSION, [])


def test_the_settings_of_fenced_brokers_are_listed_too() -> None:
    api = Api()
    brokers = {1: broker_image(1), 2: broker_image(2, fenced=True), 3: broker_image(3, listeners=["OTHER"])}
    api.publish(replace(api.node.image, brokers=brokers))
    assert listed(api, 1, BROKER, LOGGER) == (0, [(BROKER, "1"), (BROKER, "2"), (LOGGER, "1"), (LOGGER, "2")])


def test_only_a_broker_itself_passes_on_changes_of_its_own_settings() -> None:
    """The controller, which may be another node, accepts changes of every broker's settings."""
    api = Api()
    changes: list[tuple[str, int, str | None]] = [("log.cleaner.threads", 0, "2")]
    assert outcome(alter(api, (BROKER, "2", changes), (BROKER, "x", changes))) == [42, 42]
    resource = old.AlterConfigsResource(resource_type=BROKER, resource_name="2", configs=[])
    assert outcome(api.call(old.AlterConfigsRequest(resources=[resource]), 2)) == [42]
    assert api.controller.calls == []
    pending = alter(api, (BROKER, "1", changes), (BROKER, "2", changes), (BROKER, "", changes))
    ((name, passed_on, answer),) = api.controller.calls
    assert name == "incremental_alter_configs"
    assert [one.resource_name for one in passed_on.resources] == ["1", ""]
    done = [AlterConfigsResourceResponse(resource_type=BROKER, resource_name=one) for one in ("1", "")]
    answer.resolve(IncrementalAlterConfigsResponse(responses=done))
    response = api.decoded(pending.reply.result(), 44, 1)
    assert [(one.resource_name, one.error_code) for one in response.responses] == [
        ("1", 0),
        ("2", 42),
        ("", 0),
    ]


@pytest.mark.parametrize("name", [" 1", "1 ", "1_0", "0x1", "4294967297", "9" * 5000])
def test_the_id_of_a_broker_is_a_whole_number_as_java_reads_it(name: str) -> None:
    api = Api()
    for kind in (BROKER, LOGGER):
        assert outcome(alter(api, (kind, name, [("log.cleaner.threads", 0, "2")]))) == [42]
    assert api.controller.calls == []


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ([("log.cleaner.threads", 0, "none")], 42),
        ([("log.cleaner.threads", 0, "1"), ("log.cleaner.threads", 0, "2")], 42),
        ([("log.cleaner.threads", 0, None)], 42),
        ([("log.cleaner.threads", 7, "1")], 42),
        ([("log.cleaner.threads", 2, "1")], 40),
        ([("broker.id", 0, "7")], 42),
        ([("background.threads", 0, "100000")], 42),
        ([("log.cleaner.threads", 0, "3")], 42),
    ],
)
@pytest.mark.parametrize("name", ["1", ""])
def test_a_broker_refuses_invalid_settings_of_its_own_before_it_forwards(
    name: str, changes: list[tuple[str, int, str | None]], code: int
) -> None:
    """As in Apache Kafka, a sender without the right still learns of the invalid setting."""
    api = Api()
    assert outcome(alter(api, (BROKER, name, changes))) == [code]
    assert api.controller.calls == []


@pytest.mark.parametrize("name", ["1", ""])
def test_a_broker_forwards_changes_beside_an_invalid_setting_in_the_metadata(name: str) -> None:
    api = Api()
    stored = {"log.segment.bytes": "1000", "broker.id": "7"}
    api.publish(replace(api.node.image, configs={(BROKER, name): stored}))
    alter(api, (BROKER, name, [("log.cleaner.threads", 0, "2")]))
    assert [name for name, _, _ in api.controller.calls] == ["incremental_alter_configs"]


def test_a_broker_refuses_a_whole_set_of_its_own_settings_before_it_forwards() -> None:
    api = Api()
    for name, value in (("log.cleaner.threads", "none"), ("log.cleaner.threads", None)):
        config = old.AlterableConfig(name=name, value=value)
        resource = old.AlterConfigsResource(resource_type=BROKER, resource_name="1", configs=[config])
        assert outcome(api.call(old.AlterConfigsRequest(resources=[resource]), 2)) == [42]
    assert api.controller.calls == []


@pytest.mark.parametrize(
    ("operation", "value", "after"), [(0, "b", ["b"]), (1, None, [JMX]), (2, "b", ["a", "b"]), (3, "a", [])]
)
def test_a_broker_tries_its_stores_with_the_settings_as_they_would_be(
    operation: int, value: str | None, after: list[str]
) -> None:
    api, tried = Api(), []
    of_tls = {"listener.name.external.ssl.keystore.type": "PEM"}
    api.publish(replace(api.node.image, configs={(BROKER, "1"): {**of_tls, "metric.reporters": "a"}}))
    api.node.check_listeners = lambda config: tried.append(list(config.get_list("metric.reporters")))
    alter(api, (BROKER, "1", [("metric.reporters", operation, value)]))
    alter(api, (BROKER, "", [("metric.reporters", 0, "c")]))
    assert tried == [after]


def test_a_broker_refuses_stores_that_do_not_work() -> None:
    def refuse(config: ServerConfig) -> None:
        raise ConfigError("ssl.keystore.location", "/none", "there is no such file")

    api = Api()
    api.node.check_listeners = refuse
    location = "listener.name.external.ssl.keystore.location"
    assert outcome(alter(api, (BROKER, "1", [(location, 0, "/none")]))) == [42]
    config = old.AlterableConfig(name=location, value="/none")
    resource = old.AlterConfigsResource(resource_type=BROKER, resource_name="1", configs=[config])
    assert outcome(api.call(old.AlterConfigsRequest(resources=[resource]), 2)) == [42]
    assert api.controller.calls == []


def test_a_broker_reads_no_change_that_gives_it_too_many_settings() -> None:
    api = Api()
    kept = {f"x{index}": "1" for index in range(SETTINGS_IN_ALL_MAX)}
    api.publish(replace(api.node.image, configs={(BROKER, "1"): kept}))
    for name, is_refused in (("x0", False), ("y", True)):
        config = incremental.AlterableConfig(name=name, config_operation=0, value="2")
        resource = incremental.AlterConfigsResource(resource_type=BROKER, resource_name="1", configs=[config])
        refused = at_once(refused_broker_changes(api.node, [resource], incremental=True))
        assert [code for code, _ in refused.values()] == [ErrorCode.INVALID_CONFIG] * is_refused
