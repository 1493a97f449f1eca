"""The partitions that the uniform assignor has not given to a member yet."""

from __future__ import annotations

from collections.abc import Container, Mapping

from kafkacompat.group.consumer.assignor import Assignment
from kafkacompat.ids import Uuid

TOPIC_NS = 1000
PARTITION_NS = 100
"""Adding a partition and giving it to its previous owner."""


class UnassignedPartitions:
    """First all partitions of the group's topics, then those that are left after each member has kept some."""

    __slots__ = ("_by_topic",)

    def __init__(self) -> None:
        self._by_topic: dict[Uuid, set[int]] = {}

    def add(self, topic_id: Uuid, partition_count: int) -> None:
        self._by_topic[topic_id] = set(range(partition_count))

    def keep(self, assigned: Mapping[Uuid, frozenset[int]], topic_ids: Container[Uuid]) -> Assignment:
        """Take out what a member had and can keep: partitions of these topics that exist and that nobody else has kept.
        In valid records nobody else has, but records are a file's content."""
        kept: Assignment = {}
        for topic_id, partitions in assigned.items():
            left = self._by_topic.get(topic_id)
            if left is None or topic_id not in topic_ids:
                continue
            if not partitions <= left:
                partitions &= left
            if partitions:
                left -= partitions
                kept[topic_id] = partitions
        return kept

    def of(self, topic_id: Uuid) -> list[int]:
        """In ascending order."""
        return sorted(self._by_topic[topic_id])
