"""This node's effective settings: the dynamic layers of the newest image override the static file.

All readers of a setting that may change, or of a new LogConfig, ask here. This module knows layers, not the meaning of
settings. Layers are compared by identity, so an image that changes no setting of this node costs nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kafkacompat.config import (
    ConfigEntry,
    DynamicConfig,
    LogConfig,
    ServerConfig,
    describe_broker,
    describe_cluster_defaults,
    describe_group,
    describe_topic,
)
from kafkacompat.controller.image import ConfigResourceType, MetadataImage

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
