"""The shards of one internal topic on this node: which there are, and which one a key belongs to.

Follow leadership in published images, find the shard of a key. A partition whose log is empty costs one object, and is active
at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from kafkacompat.coordinator.core import Refused
from kafkacompat.coordinator.shard import Shard, ShardState
from kafkacompat.ids import partition_for_key
from kafkacompat.wire.errors import ErrorCode

if TYPE_CHECKING:
    from kafkacompat.controller.image import MetadataImage

MAX_REMEMBERED_KEYS = 10_000
"""Keys whose partition is remembered, since hashing one costs more than looking it up."""


class Shards:
    """`make_shard(partition, leader epoch)` gives a shard that has not been started."""

    __slots__ = (
        "_by_partition",
        "_make_shard",
        "_node_id",
        "_reloads",
        "_remembered",
        "_topic",
        "partition_count",
    )

    def __init__(
        self,
        node_id: int,
        topic: str,
        make_shard: Callable[[int, int], Shard],
        *,
        reloads_for_new_epoch: bool = False,
    ) -> None:
        """`reloads_for_new_epoch`: a shard lives for one leader epoch, since its writes of the former one may have failed
        after they were appended."""
        self._reloads = reloads_for_new_epoch
        self._node_id = node_id
        self._topic = topic
        self._make_shard = make_shard
        self._by_partition: dict[int, Shard] = {}
        self._remembered: dict[str, int] = {}
        self.partition_count = 0
        """0 while the topic does not exist."""

    def on_image(self, old: MetadataImage, new: MetadataImage) -> None:
        """Start shards that this node has come to lead, close those that it leads no more.

        Those of a topic that was made just now have nothing to load and are started by the first request for them, so that
        their logs need not be there yet.
        """
        topic = new.topics.get(self._topic)
        former = old.topics.get(self._topic)
        if topic is former:
            return
        just_made = former is None and old.offset >= 0
        partitions = {} if topic is None else topic.partitions
        if len(partitions) != self.partition_count:
            self.partition_count = len(partitions)
            self._remembered.clear()
        recreated = former is not None and topic is not None and former.id != topic.id
        for index in list(self._by_partition):
            image = partitions.get(index)
            if recreated or image is None or image.leader != self._node_id:
                self._by_partition.pop(index).close()
        for index, image in partitions.items():
            if image.leader != self._node_id:
                continue
            shard = self._by_partition.get(index)
            renewed = self._reloads or (shard is not None and shard.state is ShardState.FAILED)
            if shard is not None and renewed and image.leader_epoch > shard.epoch:
                self._by_partition.pop(index).close()
                shard = None
            if shard is None:
                shard = self._by_partition[index] = self._make_shard(index, image.leader_epoch)
            shard.epoch = image.leader_epoch
            if shard.state is ShardState.INITIAL and not just_made:
                shard.start()

    def partition_for(self, key: str) -> int:
        """COORDINATOR_NOT_AVAILABLE while the topic does not exist."""
        partition = self._remembered.get(key)
        if partition is None:
            if self.partition_count == 0:
                raise Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            if len(self._remembered) >= MAX_REMEMBERED_KEYS:
                self._remembered.clear()
            partition = self._remembered[key] = partition_for_key(key, self.partition_count)
        return partition

    def shard_for(self, key: str) -> Shard:
        """The active or loading shard of a key. Raises Refused NOT_COORDINATOR when it is not here."""
        if self.partition_count == 0:
            raise Refused(ErrorCode.NOT_COORDINATOR)
        shard = self._by_partition.get(self.partition_for(key))
        if shard is None:
            raise Refused(ErrorCode.NOT_COORDINATOR)
        if shard.state is ShardState.INITIAL:
            shard.start()
        return shard

    def started(self) -> Iterator[Shard]:
        """All shards, those that nobody has asked for yet started first."""
        for shard in self:
            if shard.state is ShardState.INITIAL:
                shard.start()
            yield shard

    def get(self, partition: int) -> Shard | None:
        return self._by_partition.get(partition)

    def __iter__(self) -> Iterator[Shard]:
        return iter(list(self._by_partition.values()))

    def close(self) -> None:
        for index in list(self._by_partition):
            self._by_partition.pop(index).close()
