"""The controller's settings: static ones of the node, and effective values with the image's dynamic layers.

It is the only place that defines the precedence of layers. What commands do with settings is unknown here. With
eligible leader replicas enabled, min.insync.replicas is a cluster default in the metadata and never a broker's
(KIP-966).
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from kafkacompat.config import ServerConfig
from kafkacompat.config.dynamic import DynamicConfig
from kafkacompat.config.server import AUTHORIZER_CLASS_NAME
from kafkacompat.controller.image import MetadataImage
from kafkacompat.ids import parse_int
from kafkacompat.security.delegation_tokens import token_settings
from kafkacompat.wire.config_resources import ConfigResourceType

if TYPE_CHECKING:
    from kafkacompat.api.request_context import RequestContext

MIN_INSYNC_REPLICAS = "min.insync.replicas"
UNCLEAN_LEADER_ELECTION = "unclean.leader.election.enable"
BROKER, TOPIC = int(ConfigResourceType.BROKER), int(ConfigResourceType.TOPIC)


class ControllerSettings:
    """Static settings of this node, and lookups that also need the image."""

    __slots__ = ("_dynamic", "_layers", "cluster_id", "has_authorizer", "node_id", "static", "tokens")

    def __init__(self, static: ServerConfig, node_id: int, cluster_id: str) -> None:
        self.static = static
        self.node_id = node_id
        self.cluster_id = cluster_id
        self.has_authorizer = bool(static.get_string(AUTHORIZER_CLASS_NAME))
        self.tokens = token_settings(static)
        self._layers: tuple[Mapping[str, str], Mapping[str, str]] = ({}, {})
        self._dynamic: DynamicConfig | None = None

    def is_direct(self, context: RequestContext) -> bool:
        """Whether a client has sent the request to a controller's listener, and no broker has forwarded it."""
        return not context.is_forwarded and context.listener_name in self.static.controller_listener_names

    def dynamic(self, image: MetadataImage) -> DynamicConfig:
        """Static settings with the cluster default and this node's dynamic layer."""
        layers = (image.config(BROKER, ""), image.config(BROKER, str(self.node_id)))
        if self._dynamic is None or layers != self._layers:
            self._dynamic = DynamicConfig(self.static, *layers)
            self._layers = layers
        return self._dynamic

    def _topic_setting(self, image: MetadataImage, topic: str, name: str) -> str | None:
        return (
            image.config(TOPIC, topic).get(name)
            or image.config(BROKER, str(self.node_id)).get(name)
            or image.config(BROKER, "").get(name)
        )

    def min_insync_replicas(self, image: MetadataImage, topic: str) -> int:
        """The topic's value, not above the replica count of its first partition."""
        text = self._topic_setting(image, topic, MIN_INSYNC_REPLICAS)
        value = self.static.get_int(MIN_INSYNC_REPLICAS)
        if text is not None:
            # Apache Kafka's controllers store broker settings unchecked, and brokers leave invalid ones out.
            with suppress(ValueError):
                value = parse_int(text.strip())
        partitions = image.topics[topic].partitions
        return min(value, len(partitions[0].replicas)) if 0 in partitions else value

    def unclean_election(self, image: MetadataImage, topic: str) -> bool:
        text = self._topic_setting(image, topic, UNCLEAN_LEADER_ELECTION)
        return (
            text.strip().lower() == "true"
            if text is not None
            else self.static.get_boolean(UNCLEAN_LEADER_ELECTION)
        )
