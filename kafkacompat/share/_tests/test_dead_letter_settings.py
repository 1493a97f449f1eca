"""The settings of dead letters: off by default, and described only where they are set."""

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
from kafkacompat.share.settings import dead_letter_policy

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


def test_dead_letter_settings_are_described_only_where_they_are_set() -> None:
    config = DynamicConfig(effective(), {})
    assert [each.name for each in describe_group(config, {}) if "deadletter" in each.name] == []
    assert [each.name for each in describe_topic(config, {}) if "deadletter" in each.name] == []
    (found,) = [each for each in describe_group(config, {NAME: "dlq.a"}) if "deadletter" in each.name]
    assert (found.name, found.value) == (NAME, "dlq.a")


@pytest.mark.parametrize("name", ["__dlq", "a b", "..", "x" * 250])
def test_a_name_that_no_topic_can_have_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="deadletterqueue"):
        validate_group_configs({NAME: name})


def test_a_name_may_be_taken_back() -> None:
    validate_group_configs({NAME: ""})
    validate_group_configs({NAME: "dlq.orders"})
