"""What a node refuses because of settings in the metadata."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from kafkacompat.config import ConfigError, ServerConfig, defaults_without_file
from kafkacompat.controller.image import MetadataImage, TopicImage
from kafkacompat.node.settings import refuse_tiered_topics
from kafkacompat.wire.config_resources import ConfigResourceType

TOPIC = int(ConfigResourceType.TOPIC)
TIERED = {"remote.storage.enable": "true"}


def image_of(configs: Mapping[str, Mapping[str, str]], topics: tuple[str, ...] = ("a", "b")) -> MetadataImage:
    return replace(
        MetadataImage(),
        topics={name: TopicImage(name, name.encode() * 16, {}) for name in topics},
        configs={(TOPIC, name): settings for name, settings in configs.items()},
    )


def config(**settings: str) -> ServerConfig:
    return ServerConfig.from_properties(defaults_without_file(), settings)


def test_a_node_without_remote_storage_refuses_tiered_topics() -> None:
    with pytest.raises(ConfigError) as refused:
        refuse_tiered_topics(config(), image_of({"a": {}, "b": TIERED}))
    assert str(refused.value) == (
        "Invalid value false for configuration remote.log.storage.system.enable: You have to delete all topics with the "
        "property remote.storage.enable=true before disabling tiered storage cluster-wide, and topic b has it"
    )


@pytest.mark.parametrize(
    "configs",
    [{}, {"a": {"retention.ms": "1"}}, {"b": {"remote.storage.enable": "false"}}, {"gone": TIERED}],
)
def test_it_takes_all_other_topics(configs: Mapping[str, Mapping[str, str]]) -> None:
    refuse_tiered_topics(config(), image_of(configs))


def test_a_node_with_remote_storage_takes_them() -> None:
    with_tier = ServerConfig.from_properties(
        defaults_without_file(), {"remote.log.storage.system.enable": "true"}
    )
    refuse_tiered_topics(with_tier, image_of({"b": TIERED}))
