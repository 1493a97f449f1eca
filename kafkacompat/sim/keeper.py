"""Creates the topics of a simulated cluster that are compacted, have retention, or allow unclean leaders.

It also makes the coordinators' topics be cleaned. Each request is repeated until a broker reports that the topic
exists.
"""

from __future__ import annotations

from typing import Any

from kafkacompat.controller.image import ConfigResourceType
from kafkacompat.deferred import Deferred
from kafkacompat.net.channels import ChannelError
from kafkacompat.sim.clients import TIMEOUT_MS, Client
from kafkacompat.sim.cluster_options import REPLICATION_FACTOR
from kafkacompat.sim.topics import COORDINATORS_TOPICS, coordinators_settings, kept_topics
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.create_topics_request import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from kafkacompat.wire.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

AGAIN_MS, LOOK_MS = 300, 100
SET = 0


class Keeper(Client):
    def start(self) -> None:
        for name, settings in kept_topics(self.env.options).items():
            self._create(name, settings)
        if self.env.options.segment_bytes:
            for name in COORDINATORS_TOPICS:
                self._clean(name)

    def _create(self, name: str, settings: dict[str, str]) -> None:
        topic = CreatableTopic(
            name=name,
            num_partitions=1,
            replication_factor=REPLICATION_FACTOR,
            configs=[CreatableTopicConfig(name=each, value=value) for each, value in settings.items()],
        )

        def created(done: Deferred[Any]) -> None:
            error = _error_of(done, "topics")
            if error in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                self.env.topics.add(name)
            else:
                self.later(lambda: self._create(name, settings), AGAIN_MS)

        request = CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS)
        self.ask(self.any_broker(), request, "keeper").on_done(created)

    def _clean(self, name: str) -> None:
        """Change the settings of the topic as soon as a coordinator has created it."""
        if self.env.is_over_for_producers:
            return
        if name not in self.env.metadata.newest.topics:
            self.later(lambda: self._clean(name), LOOK_MS)
            return
        settings = coordinators_settings(self.env.options)
        resource = AlterConfigsResource(
            resource_type=int(ConfigResourceType.TOPIC),
            resource_name=name,
            configs=[
                AlterableConfig(name=each, config_operation=SET, value=value)
                for each, value in settings.items()
            ],
        )

        def altered(done: Deferred[Any]) -> None:
            if _error_of(done, "responses") != ErrorCode.NONE:
                self.later(lambda: self._clean(name), AGAIN_MS)

        self.ask(self.any_broker(), IncrementalAlterConfigsRequest(resources=[resource]), "keeper").on_done(
            altered
        )


def _error_of(done: Deferred[Any], rows: str) -> int:
    try:
        error: int = getattr(done.result(), rows)[0].error_code
    except ChannelError:
        return ErrorCode.REQUEST_TIMED_OUT
    return error
