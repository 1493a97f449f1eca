"""When listeners take the settings of a node again."""

from __future__ import annotations

from dataclasses import replace

from kafkacompat.config import ServerConfig, defaults_without_file
from kafkacompat.controller.image import MetadataImage
from kafkacompat.node.settings import Change, NodeSettings, SettingChanges
from kafkacompat.wire.config_resources import ConfigResourceType

BROKER = int(ConfigResourceType.BROKER)
CONNECTIONS = "max.connections"


class Node:
    def __init__(self) -> None:
        self.settings = NodeSettings(ServerConfig.from_properties(defaults_without_file(), {}), 1)
        self.changes = SettingChanges(self.settings, 1)
        self.image = MetadataImage()

    def with_configs(self, configs: dict[tuple[int, str], dict[str, str]]) -> Change:
        old, self.image = self.image, replace(self.image, configs=configs)
        self.settings.on_image(old, self.image)
        return self.changes.in_image(self.image)


def test_another_value_is_a_change_and_the_same_value_states_it_again() -> None:
    node = Node()
    assert node.changes.in_image(node.image) is Change.NONE
    assert node.with_configs({(BROKER, "1"): {CONNECTIONS: "7"}}) is Change.OTHER_VALUES
    assert node.settings.effective.get_int(CONNECTIONS) == 7
    assert node.changes.in_image(node.image) is Change.NONE
    assert node.with_configs({(BROKER, "1"): {CONNECTIONS: "7"}}) is Change.STATED_AGAIN
    assert node.with_configs({}) is Change.OTHER_VALUES


def test_other_nodes_are_of_no_account_and_defaults_are() -> None:
    node = Node()
    assert node.with_configs({(BROKER, "2"): {CONNECTIONS: "7"}}) is Change.NONE
    assert node.with_configs({(BROKER, ""): {CONNECTIONS: "8"}}) is Change.OTHER_VALUES
