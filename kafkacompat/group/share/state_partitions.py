"""The share-partitions of a group whose state the share coordinator has, is asked to make, or is asked to delete.

Only share-partitions with a state are assigned. The group's record is written before the share coordinator is asked, so
that nothing is forgotten: what is still being initialized after group.share.initialize.retry.interval.ms is asked for
again. Follows Kafka's ShareGroupStatePartitionMetadata.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, NamedTuple

from kafkacompat.dataclass import dataclass

if TYPE_CHECKING:
    from kafkacompat.group.share.share_group_member import Partitions
    from kafkacompat.group.topics import Topics
    from kafkacompat.ids import Uuid

UNKNOWN_TOPIC = "<UNKNOWN>"
"""The name of a deleted topic."""


class NamedPartitions(NamedTuple):
    name: str
    partitions: frozenset[int]


Named = Mapping["Uuid", NamedPartitions]
"""By topic id. Never changed in place."""


@dataclass(frozen=True, slots=True)
class StatePartitions:
    initializing: Named = field(default_factory=dict)
    initialized: Named = field(default_factory=dict)
    deleting: frozenset[Uuid] = frozenset()
    """Topics whose states are being deleted."""

    def began(self, topics: Named) -> StatePartitions:
        """These are being initialized, also if they have been before. What is initialized is not deleted."""
        initializing = merged(self.initializing, topics)
        return StatePartitions(initializing, self.initialized, self.deleting - initializing.keys())

    def succeeded(self, topics: Named) -> StatePartitions:
        return StatePartitions(
            without(self.initializing, {topic_id: each.partitions for topic_id, each in topics.items()}),
            merged(self.initialized, topics),
            self.deleting,
        )

    def failed(self, partitions: Partitions) -> StatePartitions:
        """They are not initialized after all."""
        return StatePartitions(without(self.initializing, partitions), self.initialized, self.deleting)

    def topic_ids(self) -> set[Uuid]:
        return {*self.initializing, *self.initialized, *self.deleting}

    def without_topics(self, topic_ids: Iterable[Uuid]) -> StatePartitions:
        """These topics are deleted. The share coordinator deletes the states by itself."""
        gone = frozenset(topic_ids)
        return StatePartitions(
            {topic_id: each for topic_id, each in self.initializing.items() if topic_id not in gone},
            {topic_id: each for topic_id, each in self.initialized.items() if topic_id not in gone},
            self.deleting - gone,
        )

    def deleting_names(self, topics: Topics) -> dict[Uuid, str]:
        return {topic_id: name_of(topics, topic_id) for topic_id in self.deleting}

    def assignable(self) -> Partitions:
        return {topic_id: each.partitions for topic_id, each in self.initialized.items()}


NO_STATES = StatePartitions()


def name_of(topics: Topics, topic_id: Uuid) -> str:
    topic = topics.by_id.get(topic_id)
    return UNKNOWN_TOPIC if topic is None else topic.name


def merged(first: Named, second: Named) -> dict[Uuid, NamedPartitions]:
    """The partitions of both. The names of the second count."""
    found = dict(first)
    for topic_id, each in second.items():
        known = found.get(topic_id)
        partitions = each.partitions if known is None else known.partitions | each.partitions
        found[topic_id] = NamedPartitions(each.name, partitions)
    return found


def without(topics: Named, partitions: Partitions) -> dict[Uuid, NamedPartitions]:
    left: dict[Uuid, NamedPartitions] = {}
    for topic_id, each in topics.items():
        remaining = each.partitions - partitions.get(topic_id, frozenset())
        if remaining or topic_id not in partitions:
            left[topic_id] = NamedPartitions(each.name, remaining)
    return left


def to_initialize(topics: Topics, names: Iterable[str], states: StatePartitions, retries: bool) -> Named:
    """The partitions of subscribed topics that have no state. `retries`: also those that are being initialized."""
    missing: dict[Uuid, NamedPartitions] = {}
    whole: dict[int, frozenset[int]] = {}
    for name in sorted(names):
        topic = topics.by_name.get(name)
        if topic is None:
            continue
        known = states.initialized.get(topic.id)
        partitions = frozenset() if known is None else known.partitions
        if not retries and (begun := states.initializing.get(topic.id)) is not None:
            partitions |= begun.partitions
        count = len(topic.partitions)
        if len(partitions) < count:
            if (of_all := whole.get(count)) is None:
                of_all = whole[count] = frozenset(range(count))
            missing[topic.id] = NamedPartitions(topic.name, of_all - partitions if partitions else of_all)
    return missing
