"""The shards of one internal topic on this node, and the shard of each key.

It follows the leadership in published images. A partition with an empty log costs one object and is active at once.
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
"""Keys whose partition is cached, since hashing a key costs more than a lookup."""
REMEMBERED_LENGTH_MAX = 500
"""Characters of such a key. A client may name groups that take 128 KiB each."""
_INITIAL = ShardState.INITIAL
"""A module's name, because looking up an enum member is far slower."""


class Shards:
    """`make_shard(partition, leader epoch)` gives a shard that is not started."""

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
        """`reloads_for_new_epoch`: a shard lives for one leader epoch, since its writes in the former epoch may have
        failed after they were appended."""
        self._reloads = reloads_for_new_epoch
        self._node_id = node_id
        self._topic = topic
        self._make_shard = make_shard
        self._by_partition: dict[int, Shard] = {}
        self._remembered: dict[str, int] = {}
        self.partition_count = 0
        """0 while the topic does not exist."""

    def on_image(self, old: MetadataImage, new: MetadataImage) -> None:
        """Start the shards that this node now leads, and close those it no longer leads.

        The shards of a topic that was just created have nothing to load. The first request starts them, so their logs
        need not exist yet.
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
            if shard.state is _INITIAL and not just_made:
                shard.start()

    def partition_for(self, key: str) -> int:
        """Raises Refused COORDINATOR_NOT_AVAILABLE while the topic does not exist."""
        partition = self._remembered.get(key)
        if partition is None:
            if self.partition_count == 0:
                raise Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            partition = partition_for_key(key, self.partition_count)
            if len(key) <= REMEMBERED_LENGTH_MAX:
                if len(self._remembered) >= MAX_REMEMBERED_KEYS:
                    self._remembered.clear()
                self._remembered[key] = partition
        return partition

    def shard_for(self, key: str) -> Shard:
        """The active or loading shard of a key. Raises Refused NOT_COORDINATOR if another node has it."""
        if self.partition_count == 0:
            raise Refused(ErrorCode.NOT_COORDINATOR)
        shard = self._by_partition.get(self.partition_for(key))
        if shard is None:
            raise Refused(ErrorCode.NOT_COORDINATOR)
        if shard.state is _INITIAL:
            shard.start()
        return shard

    def started(self) -> Iterator[Shard]:
        """All shards, started if necessary."""
        for shard in self:
            if shard.state is _INITIAL:
                shard.start()
            yield shard

    def states(self) -> list[str]:
        """The state of each shard on this node. Those of a new topic that nobody has asked for yet have nothing to load:
        they are active."""
        return [
            (ShardState.ACTIVE if shard.state is _INITIAL else shard.state).value
            for shard in self._by_partition.values()
        ]

    def get(self, partition: int) -> Shard | None:
        return self._by_partition.get(partition)

    def __iter__(self) -> Iterator[Shard]:
        return iter(list(self._by_partition.values()))

    def close(self) -> None:
        for index in list(self._by_partition):
            self._by_partition.pop(index).close()
