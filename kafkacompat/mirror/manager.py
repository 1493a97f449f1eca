"""Which of this node's partitions follow a source, by their roles and the settings of their topics (MirrorMetadataManager).

It is told of roles and settings by HostedPartitions, and has one Source for each cluster that is followed.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from kafkacompat.config.topic import MIRROR_TOPIC_ID, MIRRORING
from kafkacompat.ids import uuid_from_text
from kafkacompat.mirror.source import Source
from kafkacompat.mirror.traffic import MirrorTraffic
from kafkacompat.wire.errors import ErrorCode, code_of
from kafkacompat.wire.messages.create_partitions_request import CreatePartitionsRequest, CreatePartitionsTopic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from kafkacompat.deferred import Deferred
    from kafkacompat.ids import TopicPartition
    from kafkacompat.mirror.source import Channels
    from kafkacompat.mirror.traffic import MirrorState
    from kafkacompat.partition.hosted_partitions import HostedPartitions
    from kafkacompat.partition.partition import Partition
    from kafkacompat.ports import Clock
    from kafkacompat.tasks import Tasks

logger = logging.getLogger(__name__)

CREATION_TIMEOUT_MS = 30_000

Role = tuple["Partition", int, str, str]
"""The partition, its leader epoch here, the source's brokers, the topic's id there."""


class MirrorManager:
    def __init__(
        self,
        tasks: Tasks,
        clock: Clock,
        hosted: HostedPartitions,
        connect: Callable[[str], Deferred[Channels]],
        create_partitions: Callable[[CreatePartitionsRequest], Deferred[Any]],
    ) -> None:
        """`connect` gives channels to the cluster with these bootstrap servers, and fails with SourceUnknown.
        `create_partitions` asks the controller."""
        self._tasks = tasks
        self._clock = clock
        self._hosted = hosted
        self._connect = connect
        self._create_partitions = create_partitions
        self._sources: dict[str, Source] = {}
        """By their bootstrap servers."""
        self._roles: dict[TopicPartition, Role] = {}
        self._growing: dict[str, int] = {}
        """Partitions that were asked for, by topic."""
        self.traffic = MirrorTraffic()

    def states(self) -> Iterator[tuple[str, MirrorState]]:
        """Of the partitions that follow, with their topics."""
        for source in list(self._sources.values()):
            for (topic, _), followed in list(source.fetches.partitions.items()):
                yield topic, followed.state()

    def role_taken(self, core: Partition) -> None:
        config = core.log.config
        if not (core.is_leader and core.is_read_only and config.mirror_state == MIRRORING):
            self.gone(core)
            return
        bootstrap, topic_id = config.mirror_source_bootstrap_servers, config.mirror_source_topic_id
        role = core, core.leader_epoch, bootstrap, topic_id
        if self._roles.get(core.topic_partition) == role:
            return
        self.gone(core)
        try:
            there = uuid_from_text(topic_id)
        except ValueError as error:
            logger.error("%s does not follow: %s: %s", core.topic_partition, MIRROR_TOPIC_ID, error)
            return
        self._roles[core.topic_partition] = role
        source = self._sources.get(bootstrap)
        if source is None:
            source = self._sources[bootstrap] = Source(
                bootstrap, self._tasks, self._clock, self._hosted, self._connect, self._grown
            )
        source.add(core, there, self.traffic.begin(core.topic_partition.topic))

    def gone(self, core: Partition) -> None:
        role = self._roles.get(core.topic_partition)
        if role is None or role[0] is not core:
            return
        del self._roles[core.topic_partition]
        self.traffic.end(core.topic_partition.topic)
        source = self._sources[role[2]]
        source.remove(core)
        if not source.fetches.partitions:
            del self._sources[role[2]]

    def close(self) -> None:
        for source in self._sources.values():
            source.close()
        self._sources.clear()
        self._roles.clear()

    def _grown(self, topic: str, count: int) -> None:
        image = self._hosted.image.topics.get(topic)
        if image is None or count <= max(len(image.partitions), self._growing.get(topic, 0)):
            return
        self._growing[topic] = count
        self._tasks.start(f"adding partitions to {topic}", self._add_partitions(topic, count))

    async def _add_partitions(self, topic: str, count: int) -> None:
        request = CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name=topic, count=count, assignments=None)],
            timeout_ms=CREATION_TIMEOUT_MS,
        )
        told = "no answer"
        try:
            answer = await self._create_partitions(request)
            code = code_of(answer.results[0].error_code)
            told = answer.results[0].error_message or code.name
            if code in (ErrorCode.NONE, ErrorCode.INVALID_PARTITIONS):  # the latter: another node was quicker
                return
        except Exception as error:  # the controller is away: the next look at the source tries again
            told = str(error)
        finally:
            self._growing.pop(topic, None)
        logger.warning("topic %s has %d partitions at its source, but not here: %s", topic, count, told)
