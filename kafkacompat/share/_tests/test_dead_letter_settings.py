"""The settings of dead letters: off by default, and below share.version 2."""

from __future__ import annotations

import pytest

from kafkacompat.config import (
    ConfigError,
    DynamicConfig,
    ServerConfig,
    describe_group,
    describe_topic,
    validate_group_configs,
)
from kafkacompat.share.dead_letters import DeadLetterPolicy
from kafkacompat.share.settings import ShareSettingsCache, dead_letter_policy

NODE = {
    "node.id": "1",
    "process.roles": "broker",
    "controller.quorum.bootstrap.servers": "localhost:9093",
    "controller.listener.names": "CONTROLLER",
}
NAME = "errors.deadletterqueue.topic.name"


def effective(**more: str) -> ServerConfig:
    return ServerConfig.from_properties(NODE | {name.replace("_", "."): text for name, text in more.items()})


def test_a_group_has_no_dead_letters_by_default() -> None:
    assert dead_letter_policy(effective(), {}) == DeadLetterPolicy("", False, "dlq.", False)


def test_the_groups_and_the_brokers_settings_count() -> None:
    broker = effective(
        errors_deadletterqueue_topic_name_prefix="dead.",
        errors_deadletterqueue_auto_create_topics_enable="true",
    )
    overrides = {NAME: "dead.a", "errors.deadletterqueue.copy.record.enable": "true"}
    assert dead_letter_policy(broker, overrides) == DeadLetterPolicy("dead.a", True, "dead.", True)


def test_dead_letter_settings_are_described_like_others() -> None:
    config = DynamicConfig(effective(), {})
    told = {each.name: each.value for each in describe_group(config, {NAME: "dlq.a"})}
    assert (told[NAME], told["errors.deadletterqueue.copy.record.enable"]) == ("dlq.a", "false")
    told = {each.name: each.value for each in describe_topic(config, {})}
    assert told["errors.deadletterqueue.group.enable"] == "false"


@pytest.mark.parametrize("share_version", [0, 1, 2])
def test_a_group_has_dead_letters_from_share_version_2_on(share_version: int) -> None:
    """Its settings may be there before: earlier releases of kafkacompat had them at level 1."""
    level = 1
    node = effective()
    settings = ShareSettingsCache(lambda: node, lambda group: {NAME: "dlq.a"}, lambda: level)
    assert not settings.of("g").has_dead_letters
    level = share_version
    assert settings.of("g").has_dead_letters is (share_version == 2)
    assert settings.dead_letters_of("g").topic == "dlq.a", "what was begun is finished"


@pytest.mark.parametrize("name", ["__dlq", "__"])
def test_a_name_of_an_internal_topic_is_refused(name: str) -> None:
    with pytest.raises(ConfigError) as raised:
        validate_group_configs({NAME: name})
    assert str(raised.value) == f"{NAME}: DLQ topic name must not start with '__'"


@pytest.mark.parametrize("name", ["a b", "..", "x" * 250, "_a"])
def test_other_names_are_accepted_as_in_kafka(name: str) -> None:
    validate_group_configs({NAME: name})


def test_a_name_may_be_taken_back() -> None:
    validate_group_configs({NAME: ""})
    validate_group_configs({NAME: "dlq.orders"})
