"""The newest committed metadata of a simulated cluster, and what has ever been in it. Clients, faults and oracles look here."""

from __future__ import annotations

from collections.abc import Iterator

from kafkacompat.controller.image import MetadataImage, PartitionRegistration
from kafkacompat.ids import NO_LEADER, Uuid

Key = tuple[Uuid, int]
"""A partition: topic id and index."""


def partitions_of(image: MetadataImage) -> Iterator[tuple[Key, PartitionRegistration]]:
    for topic_id, topic in image.topics_by_id.items():
        for index, partition in topic.partitions.items():
            yield (topic_id, index), partition


class CommittedMetadata:
    def __init__(self) -> None:
        self.newest = MetadataImage()
        """The newest committed image that any node has published."""
        self.deleted: set[Uuid] = set()
        """Topics that existed once."""
        self.names: dict[Uuid, str] = {}
        """Topic id -> name, of all topics that there ever were."""
        self.leaders: dict[Key, dict[int, int]] = {}
        """By partition and leader epoch, of all images."""

    def partition(self, key: Key) -> PartitionRegistration | None:
        topic = self.newest.topics_by_id.get(key[0])
        return None if topic is None else topic.partitions.get(key[1])

    def leader(self, key: Key, epoch: int) -> int:
        """The leader of a partition in that leader epoch. NO_LEADER if no image had it."""
        return self.leaders.get(key, {}).get(epoch, NO_LEADER)

    def is_deleted(self, key: Key) -> bool:
        """Clients learn of a deletion from error codes, and from Metadata, which an old answer may contradict."""
        return key[0] in self.deleted
