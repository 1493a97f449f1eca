"""Changes other metadata than replicas: settings of topics and brokers, features, numbers of partitions.

The oracles check the effects. This module has the oracle of settings: at the end each log has the settings in the
metadata.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kafkacompat.config.topic import LogConfig
from kafkacompat.controller.features import ELIGIBLE_LEADER_REPLICAS_VERSION
from kafkacompat.controller.image import ConfigResourceType, MetadataImage
from kafkacompat.deferred import Deferred
from kafkacompat.net.channels import ChannelError
from kafkacompat.sim.clients import TIMEOUT_MS, Client
from kafkacompat.sim.group_commits import TOPIC
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.create_partitions_request import CreatePartitionsRequest, CreatePartitionsTopic
from kafkacompat.wire.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kafkacompat.wire.messages.update_features_request import FeatureUpdateKey, UpdateFeaturesRequest

if TYPE_CHECKING:
    from kafkacompat.partition.partition import Partition

SEGMENT_MS = "segment.ms"
INDEX_INTERVAL = "log.index.interval.bytes"
"""Set for all topics of all brokers. segment.ms is not used: the coordinators' topics would be cleaned, and the
ledgers do not know about that."""
SMALLEST, GREATEST = 300, 60_000
DEFAULT_BROKER = ""
MOST_PARTITIONS = 4
SET, DELETE = 0, 1
UPGRADE, SAFE_DOWNGRADE = 1, 2


class ClusterChanges(Client):
    """Changes topic t0 and others. Each request is sent once, and its result does not matter."""

    def start(self) -> None:
        self._plan()

    def _plan(self) -> None:
        self.later(self._act, 2 * self.env.options.change_ms)

    def _act(self) -> None:
        if self.env.is_over_for_producers:
            return
        self._plan()
        kind = self.chance.uniform()
        if kind < 0.35:
            self._configure(int(ConfigResourceType.TOPIC), TOPIC, SEGMENT_MS)
        elif kind < 0.55:
            self._configure(int(ConfigResourceType.BROKER), DEFAULT_BROKER, INDEX_INTERVAL)
        elif kind < 0.85:
            self._switch()
        else:
            self._add_partition()

    def _configure(self, kind: int, name: str, setting: str) -> None:
        value: str | None = str(self.chance.between(SMALLEST, GREATEST))
        if self.chance.happens(0.25):
            value = None
        self._send(setting_request(kind, name, setting, value), "responses")

    def _switch(self) -> None:
        """Switch whether replicas that left an ISR stay eligible (KIP-966)."""
        level = self.env.metadata.newest.features.get(ELIGIBLE_LEADER_REPLICAS_VERSION, 0)
        update = FeatureUpdateKey(
            feature=ELIGIBLE_LEADER_REPLICAS_VERSION,
            max_version_level=1 - level,
            upgrade_type=SAFE_DOWNGRADE if level else UPGRADE,
        )
        self._send(UpdateFeaturesRequest(timeout_ms=TIMEOUT_MS, feature_updates=[update]), None)

    def _add_partition(self) -> None:
        topic = self.env.metadata.newest.topics.get(TOPIC)
        if topic is not None and len(topic.partitions) < MOST_PARTITIONS:
            more = CreatePartitionsTopic(name=TOPIC, count=len(topic.partitions) + 1, assignments=None)
            self._send(CreatePartitionsRequest(topics=[more], timeout_ms=TIMEOUT_MS), "results")

    def _send(self, request: Any, rows: str | None) -> None:
        def answered(done: Deferred[Any]) -> None:
            try:
                answer = done.result()
            except ChannelError:
                return
            error = answer.error_code if rows is None else getattr(answer, rows)[0].error_code
            self.env.counters.settings_changed += error == ErrorCode.NONE

        self.ask(self.any_broker(), request, "admin").on_done(answered)


def setting_request(kind: int, name: str, setting: str, value: str | None) -> IncrementalAlterConfigsRequest:
    """Return a request that sets one setting of a resource. None removes the setting."""
    return settings_request(kind, name, {setting: value})


def settings_request(
    kind: int, name: str, settings: Mapping[str, str | None]
) -> IncrementalAlterConfigsRequest:
    """Return a request that sets several settings of a resource at once."""
    configs = [
        AlterableConfig(name=setting, config_operation=DELETE if value is None else SET, value=value)
        for setting, value in settings.items()
    ]
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    return IncrementalAlterConfigsRequest(resources=[resource])


def unlike(core: Partition, image: MetadataImage) -> str | None:
    """Return how a log's settings differ from those in the metadata, or None."""
    of_topic = image.config(int(ConfigResourceType.TOPIC), core.topic_partition.topic).get(SEGMENT_MS)
    of_brokers = image.config(int(ConfigResourceType.BROKER), DEFAULT_BROKER).get(INDEX_INTERVAL)
    config, usual = core.log.config, LogConfig()
    told = (int(of_topic or usual.segment_ms), int(of_brokers or usual.index_interval_bytes))
    has = (config.segment_ms, config.index_interval_bytes)
    return None if has == told else f"has {has} for {SEGMENT_MS} and {INDEX_INTERVAL} instead of {told}"
