"""This node's effective settings: the dynamic layers of the newest image override the static file.

All readers of a setting that may change, or of a new LogConfig, ask here. This module knows layers, not the meaning of
settings. Layers are compared by identity, so an image that changes no setting of this node costs nothing.

SettingChanges says when the listeners of a node must take its settings again. SettingNotices has the log lines about settings
in the metadata that have no effect or were left out, each once. The command line warns about settings in server.properties.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum

from kafkacompat.config import (
    ConfigEntry,
    ConfigError,
    ConfigKey,
    DynamicConfig,
    LogConfig,
    ServerConfig,
    broker_keys,
    describe_broker,
    describe_cluster_defaults,
    describe_group,
    describe_topic,
    group_keys,
    topic_keys,
)
from kafkacompat.config.keys import listener_base
from kafkacompat.config.of_listeners import is_of_listener
from kafkacompat.config.server import TIERING
from kafkacompat.config.topic import TIERED
from kafkacompat.controller.image import MetadataImage, changed_configs
from kafkacompat.wire.config_resources import ConfigResourceType

logger = logging.getLogger(__name__)

BROKER, TOPIC, GROUP = (
    int(ConfigResourceType.BROKER),
    int(ConfigResourceType.TOPIC),
    int(ConfigResourceType.GROUP),
)


class NodeSettings:
    """Follows the image. Its `on_image` must be called before that of all other parts."""

    __slots__ = ("_config", "_image", "_layers", "_node_id", "_static")

    def __init__(self, static: ServerConfig, node_id: int) -> None:
        self._static = static
        self._node_id = str(node_id)
        self._image = MetadataImage()
        self._layers: tuple[Mapping[str, str], Mapping[str, str]] = ({}, {})
        self._config = DynamicConfig(static)

    def on_image(self, old: MetadataImage, new: MetadataImage) -> None:
        self._image = new
        if old.configs is new.configs:
            return
        layers = (new.config(BROKER, ""), new.config(BROKER, self._node_id))
        if layers != self._layers:
            self._layers = layers
            self._config = DynamicConfig(self._static, *layers)

    @property
    def refused(self) -> Mapping[str, Exception]:
        """The dynamic settings that are left out, with the reason."""
        return self._config.refused

    @property
    def effective(self) -> ServerConfig:
        """All settings, including the dynamic layers. The same object is returned until a layer changes."""
        return self._config.effective

    def get_int(self, name: str) -> int:
        return self._config.get_int(name)

    def get_boolean(self, name: str) -> bool:
        return self._config.get_boolean(name)

    def get_string(self, name: str) -> str | None:
        return self._config.get_string(name)

    def log_config(self, topic: str) -> LogConfig:
        return self._config.log_config(self._image.config(TOPIC, topic))

    def describe_broker(self, resource_name: str) -> Sequence[ConfigEntry]:
        """Describe a broker's settings. '' means the cluster-wide defaults, any other name this broker."""
        return describe_broker(self._config) if resource_name else describe_cluster_defaults(self._config)

    def describe_topic(self, topic: str) -> Sequence[ConfigEntry]:
        return describe_topic(self._config, self._image.config(TOPIC, topic))

    def describe_group(self, group: str) -> Sequence[ConfigEntry]:
        return describe_group(self._config, self._image.config(GROUP, group))


def refuse_tiered_topics(config: ServerConfig, image: MetadataImage) -> None:
    """Raise ConfigError if a topic is tiered and this node has no remote storage. It would take its local part of the topic
    for all there is."""
    if config.get_boolean(TIERING):
        return
    for (kind, topic), settings in image.configs.items():
        if kind == TOPIC and settings.get(TIERED, "").strip().lower() == "true" and topic in image.topics:
            raise ConfigError(
                TIERING,
                "false",
                f"You have to delete all topics with the property {TIERED}=true before disabling tiered storage "
                f"cluster-wide, and topic {topic} has it",
            )


class Change(Enum):
    NONE = "nothing is to do"
    STATED_AGAIN = "the values are the same, but the files that they name may have changed (KAFKA-14136)"
    OTHER_VALUES = "a setting has another value"


class SettingChanges:
    """Follows the image for one part of a node. The settings must have the image already."""

    __slots__ = ("_effective", "_resource", "_settings", "_stated")

    def __init__(self, settings: NodeSettings, node_id: int) -> None:
        self._settings = settings
        self._resource = (int(ConfigResourceType.BROKER), str(node_id))
        self._effective = settings.effective
        self._stated: Mapping[str, str] | None = None
        """This node's dynamic settings in the image."""

    def in_image(self, image: MetadataImage) -> Change:
        """The change since the last call."""
        stated = image.configs.get(self._resource)
        is_stated_again = stated is not self._stated
        self._stated = stated
        if self._settings.effective is not self._effective:
            self._effective = self._settings.effective
            return Change.OTHER_VALUES
        return Change.STATED_AGAIN if is_stated_again else Change.NONE


MAX_TOLD = 1000
"""More than Kafka has settings. Without a bound, names with listener prefixes could be unlimited."""
KINDS = {
    int(ConfigResourceType.TOPIC): ("topic", topic_keys),
    int(ConfigResourceType.BROKER): ("broker", broker_keys),
    int(ConfigResourceType.GROUP): ("group", group_keys),
}


class SettingNotices:
    """Logs at most one line per process for each setting without effect and for each setting left out."""

    __slots__ = ("_node_id", "_told")

    def __init__(self, node_id: int) -> None:
        self._node_id = str(node_id)
        self._told: set[tuple[str, str]] = set()

    def on_image(self, old: MetadataImage, new: MetadataImage, refused: Mapping[str, Exception]) -> None:
        """`refused`: the dynamic settings that this node leaves out in the new image, with the reason."""
        if old.configs is new.configs:
            return
        for kind, name in self._new_names(old, new):
            self._tell(
                kind,
                name,
                f"the {kind} setting {name} is accepted without effect (see docs/reference/compatibility.md)",
            )
        for name, reason in refused.items():
            self._tell("refused", name, f"a dynamic setting is ignored: {reason}")

    def _new_names(self, old: MetadataImage, new: MetadataImage) -> Iterator[tuple[str, str]]:
        for resource in changed_configs(old, new):
            settings = new.configs.get(resource)
            if settings is None or resource[0] not in KINDS:
                continue
            kind, keys_of = KINDS[resource[0]]
            if kind == "broker" and resource[1] not in ("", self._node_id):
                continue
            keys: Mapping[str, ConfigKey] = keys_of()
            for name in settings:
                key = keys.get(name) or keys.get(listener_base(name) or "")
                if key is None:
                    continue
                if not key.honoured or (name not in keys and not is_of_listener(key.name)):
                    yield kind, name

    def _tell(self, kind: str, name: str, line: str) -> None:
        if (kind, name) not in self._told and len(self._told) < MAX_TOLD:
            self._told.add((kind, name))
            logger.warning("%s", line)
