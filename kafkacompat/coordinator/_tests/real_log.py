"""A coordinator over the real partition manager and real logs on the memory disk. The broker's own code decides what
is appended, refused, replicated or timed out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from kafkacompat.config import LogConfig
from kafkacompat.controller.image import TopicImage
from kafkacompat.coordinator._tests.harness import NODE_ID, World, image_of, topic_image
from kafkacompat.deferred import Deferred
from kafkacompat.group.environment import GroupSettings
from kafkacompat.ids import OFFSETS_TOPIC, TopicPartition
from kafkacompat.log._tests.memory_disk import MemoryDisk
from kafkacompat.log.manager import LogManager
from kafkacompat.partition._tests.fakes import partition_image
from kafkacompat.partition.replica_manager import ReplicaManager
from kafkacompat.ports import FileSlice, Log, WorkerPools
from kafkacompat.records.batch import BatchHeader, iterate_batches
from kafkacompat.wire.errors import ErrorCode

FOLLOWER = NODE_ID + 1
NAME = TopicPartition(OFFSETS_TOPIC, 0)


def at_once(function: Callable[[], Any]) -> Deferred[Any]:
    done: Deferred[Any] = Deferred()
    try:
        value = function()
    except Exception as error:
        done.fail(error)
    else:
        done.resolve(value)
    return done


class RealWorld(World):
    """One partition of the offsets topic. With `followed` every topic has a second in-sync replica, which fetches when
    told to."""

    def __init__(self, group: GroupSettings | None = None, *, followed: bool = False) -> None:
        self.followed = followed
        self.disk = MemoryDisk()
        self.disk.make_directory("/data")
        self.min_isr = 1
        self.leader_epoch = 0
        super().__init__(group)

    def _make(self) -> Any:
        logs = LogManager(self.disk, [("/data", bytes(15) + b"\1")], LogConfig(), self.time)
        logs.load_all()
        self.manager = ReplicaManager(
            NODE_ID,
            logs,
            self.time,
            self.time,
            WorkerPools.of_one(SimpleNamespace(submit=at_once)),
            lambda topic: LogConfig(min_insync_replicas=self.min_isr),
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
        return TopicImage(OFFSETS_TOPIC, topic_image(OFFSETS_TOPIC, 1).id, {0: one})

    def _publish(self, topics: list[TopicImage]) -> None:
        old, self.image = self.image, image_of(topics)
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

    def lead_again(self) -> None:
        self.leader_epoch += 1
        self._with_offsets_topic(self._offsets_topic(NODE_ID))
        self.time.advance(0)

    def delete_offsets_topic(self) -> None:
        self._with_offsets_topic(None)
