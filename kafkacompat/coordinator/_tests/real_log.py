"""A coordinator over the real partition manager and real logs on the memory disk. The broker's own code decides what
is appended, refused, replicated or timed out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from kafkacompat.config import LogConfig
from kafkacompat.controller.image import BrokerRegistration, TopicImage
from kafkacompat.coordinator._tests.kit import NODE_ID, LeadingCoordinator, image_of, topic_image
from kafkacompat.deferred import Deferred
from kafkacompat.group.environment import GroupSettings
from kafkacompat.ids import DIRECTORY_LOST, OFFSETS_TOPIC, TopicPartition
from kafkacompat.log._tests.memory_disk import MemoryDisk
from kafkacompat.log.log_manager import LogManager
from kafkacompat.partition._tests.kit import broker_image, partition_image
from kafkacompat.partition._tests.services import partition_services
from kafkacompat.partition.replica_manager import ReplicaManager
from kafkacompat.ports import FileSlice, Log
from kafkacompat.records.batch import BatchHeader, iterate_batches
from kafkacompat.wire.errors import ErrorCode

FOLLOWER = NODE_ID + 1
NAME = TopicPartition(OFFSETS_TOPIC, 0)
DIRECTORY_ID = bytes(15) + b"\xd1"


def broker(broker_id: int, *, fenced: bool = False) -> BrokerRegistration:
    return replace(broker_image(broker_id, fenced=fenced), directories=(DIRECTORY_ID,))


def at_once(function: Callable[[], Any]) -> Deferred[Any]:
    done: Deferred[Any] = Deferred()
    try:
        value = function()
    except Exception as error:
        done.fail(error)
    else:
        done.resolve(value)
    return done


class RealWorld(LeadingCoordinator):
    """One partition of the offsets topic. With `followed` every topic has a second in-sync replica, which fetches when
    told to."""

    def __init__(self, group: GroupSettings | None = None, *, followed: bool = False) -> None:
        self.followed = followed
        self.disk = MemoryDisk()
        self.disk.make_directory("/data")
        self.min_isr = 1
        self.leader_epoch = 0
        self.brokers = (broker(NODE_ID), broker(FOLLOWER))
        super().__init__(group)

    def _make(self) -> Any:
        logs = LogManager(self.disk, [("/data", DIRECTORY_ID)], LogConfig(), self.time)
        logs.load_all()
        self.manager = ReplicaManager(
            partition_services(
                NODE_ID,
                logs,
                self.time,
                SimpleNamespace(submit=at_once),
                lambda topic: LogConfig(min_insync_replicas=self.min_isr),
            )
        )
        self.partitions = self.manager  # type: ignore[assignment]
        return super()._make()

    def publish(self, topics: Any) -> None:
        offsets = self._offsets_topic(NODE_ID)
        self._publish(
            [offsets if topic.name == OFFSETS_TOPIC else self._replicated(topic) for topic in topics]
        )

    def _replicated(self, topic: TopicImage) -> TopicImage:
        one = partition_image(replicas=(NODE_ID, FOLLOWER))
        return replace(topic, partitions=dict.fromkeys(topic.partitions, one)) if self.followed else topic

    def _offsets_topic(self, leader: int, in_sync: tuple[int, ...] | None = None) -> TopicImage:
        replicas = (NODE_ID, FOLLOWER) if self.followed else (NODE_ID,)
        one = partition_image(replicas=replicas, isr=in_sync, leader=leader, epoch=self.leader_epoch)
        one = replace(one, directories=(DIRECTORY_ID, *one.directories[1:]))
        return TopicImage(OFFSETS_TOPIC, topic_image(OFFSETS_TOPIC, 1).id, {0: one})

    def _publish(self, topics: list[TopicImage]) -> None:
        features = {**image_of([]).features, "metadata.version": 30}
        brokers = {each.id: each for each in self.brokers}
        old, self.image = self.image, replace(image_of(topics), brokers=brokers, features=features)
        self.manager.on_image(old, self.image)
        self.coordinator.on_image(old, self.image)

    def _with_offsets_topic(self, topic: TopicImage | None) -> None:
        others = [each for each in self.image.topics.values() if each.name != OFFSETS_TOPIC]
        self._publish(others if topic is None else [topic, *others])

    def log(self, partition: int = 0) -> Log:  # type: ignore[override]
        log = self.manager.log(NAME)
        assert log is not None
        return log

    def batches(self, name: TopicPartition = NAME) -> list[BatchHeader]:
        log = self.manager.log(name)
        assert log is not None
        read = log.read(0, 1 << 30, log.log_end_offset, True).records
        return list(iterate_batches(read.read() if isinstance(read, FileSlice) else read))

    # Events of the partition.

    def follow(self, name: TopicPartition = NAME) -> None:
        """The follower has everything."""
        core = self.manager.by_name[name]
        assert self.manager.follower_fetched(core, FOLLOWER, core.log.log_end_offset) is ErrorCode.NONE

    def refuse_appends(self, refused: bool = True) -> None:
        self.min_isr = 2 if refused else 1
        self.log().config = LogConfig(min_insync_replicas=self.min_isr)
        in_sync = (NODE_ID,) if refused else None
        self._with_offsets_topic(self._offsets_topic(NODE_ID, in_sync))

    def resign(self) -> None:
        self.leader_epoch += 1
        self._with_offsets_topic(self._offsets_topic(FOLLOWER))

    def lose_and_lead_by(self, leader: int) -> None:
        """The controller names this node's replica lost, and this leader."""
        self.leader_epoch += 1
        topic = self._offsets_topic(leader)
        image = topic.partitions[0]
        lost = replace(image, directories=(DIRECTORY_LOST, *image.directories[1:]))
        self._with_offsets_topic(replace(topic, partitions={0: lost}))

    def lead_again(self) -> None:
        self.leader_epoch += 1
        self._with_offsets_topic(self._offsets_topic(NODE_ID))
        self.time.advance(0)

    def delete_offsets_topic(self) -> None:
        self._with_offsets_topic(None)
