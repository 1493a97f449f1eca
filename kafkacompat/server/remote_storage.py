"""A broker's remote storage, connected: the store, what is known of its segments, and the remote log manager over both.

Imported only with remote.log.storage.system.enable.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kafkacompat.config import ConfigError
from kafkacompat.coordinator.inter_broker_sender import channels_to
from kafkacompat.metrics.remote import remote_families
from kafkacompat.partition.remote_fetch import RemoteFetches
from kafkacompat.remote.manager import RemoteLogManager
from kafkacompat.remote.stores import open_store
from kafkacompat.remote.topic_based_metadata_manager import (
    MetadataTopicSettings,
    TopicBasedRemoteLogMetadataManager,
)

if TYPE_CHECKING:
    from kafkacompat.controller.image import MetadataImage
    from kafkacompat.deferred import Deferred
    from kafkacompat.log.cleaner.log_cleaner import LogCleaner
    from kafkacompat.metrics.families import Families
    from kafkacompat.node.settings import NodeSettings
    from kafkacompat.partition.fetch import FetchEngine
    from kafkacompat.partition.replica_manager import ReplicaManager
    from kafkacompat.server.services import NodeServices
    from kafkacompat.wire.messages.create_topics_request import CreateTopicsRequest

TOPIC_BASED = "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager"
PURPOSE = "remote-log-metadata"


class RemoteStorage:
    """Call `start` when the broker serves, `on_image` after its partitions have applied an image, and `stop` once."""

    def __init__(
        self,
        services: NodeServices,
        settings: NodeSettings,
        cluster_id: str,
        partitions: ReplicaManager,
        fetches: FetchEngine,
        create_topics: Callable[[CreateTopicsRequest], Deferred[Any]],
        cleaner: Callable[[], LogCleaner | None],
    ) -> None:
        """`cleaner` gives the cleaner of the node once it serves. Raises ConfigError for a store that is not known."""
        config, tasks, clock = services.config, services.tasks, services.work_clock

        def image() -> MetadataImage:
            """The newest image that the partitions have applied."""
            return partitions.image

        name = config.get_string("remote.log.metadata.manager.class.name")
        if name != TOPIC_BASED:
            raise ConfigError("remote.log.metadata.manager.class.name", name, f"Must be {TOPIC_BASED}")
        self._store = services.remote_store or open_store(config, cluster_id, services.disk)
        prefix = config.get_string("remote.log.metadata.manager.impl.prefix") or ""
        self.metadata = TopicBasedRemoteLogMetadataManager(
            config.node_id,
            MetadataTopicSettings.from_originals(config.originals, prefix),
            image,
            partitions,
            channels_to(services.network.channels, image, config.inter_broker_listener_name, PURPOSE),
            create_topics,
            clock,
            tasks,
            services.workers.reads,
        )
        self.manager = RemoteLogManager(
            config.node_id,
            settings,
            tasks,
            clock,
            services.workers.remote,
            services.disk,
            self._store,
            self.metadata,
            services.random.uuid,
            partitions.wakeups.appended,
            cleaner,
        )
        self.metadata.deletion_is_begun = self.manager.deletion_is_begun
        partitions.hosted.tiering = self.manager
        partitions.remote = fetches.remote = RemoteFetches(tasks, settings, self.manager)

    def families(self) -> Families:
        """The metrics."""
        return remote_families(self.manager.traffic, self.manager.states())

    def start(self) -> None:
        self.metadata.start()

    def on_image(self) -> None:
        self.metadata.on_image()
        self.manager.on_image()

    def stop(self) -> None:
        self.manager.close()
        self.metadata.close()
        self._store.close()
