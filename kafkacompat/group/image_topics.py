"""The topics that the groups' shards see: those of a metadata image, what an image changes of them, and their hashes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from kafkacompat.controller.image import changed_topics
from kafkacompat.group.group_metadata_manager import machine_of
from kafkacompat.group.modern_group import hash_topics, names_to_hash
from kafkacompat.tasks import in_turns, pieces

if TYPE_CHECKING:
    from kafkacompat.controller.image import MetadataImage, TopicImage
    from kafkacompat.coordinator.shard import Shard
    from kafkacompat.deferred import Deferred
    from kafkacompat.group.topics import Topic
    from kafkacompat.ids import Uuid
    from kafkacompat.tasks import Tasks, Work

T = TypeVar("T")

HASHED_AT_ONCE = 500
"""Topics of a member that are hashed within its heartbeat, at 6 microseconds each."""
TOPICS_TOGETHER = 200
"""Changed topics that a shard is told of together."""
TOPICS_TOGETHER_COST = 20
"""Cost of telling one shard, besides the groups that subscribe to them."""
GROUPS_A_MICROSECOND = 5
"""Groups that are told of a topic in a microsecond."""
PARTITIONS_A_MICROSECOND = 3
"""Partitions whose replicas are looked at in a microsecond."""


class ImageTopics:
    """Topics of a metadata image."""

    __slots__ = ("_brokers", "_has_racks", "by_id", "by_name", "version")

    def __init__(self, image: MetadataImage) -> None:
        self.version = image.offset
        self.by_name: Mapping[str, Topic] = image.topics
        self.by_id: Mapping[Uuid, Topic] = image.topics_by_id
        self._brokers = image.brokers
        self._has_racks = any(broker.rack is not None for broker in image.brokers.values())

    def racks(self, topic: Topic) -> list[list[str]]:
        brokers = self._brokers
        if not self._has_racks:
            return [[]] * len(topic.partitions)
        return [
            [
                broker.rack
                for replica in topic.partitions[index].replicas
                if (broker := brokers.get(replica)) is not None and broker.rack is not None
            ]
            for index in range(len(topic.partitions))
        ]


def names_of_changed_topics(old: MetadataImage, new: MetadataImage) -> tuple[list[str], bool]:
    """The names of topics that were created, deleted, or have other partitions or replicas, and whether any is new."""
    changed: dict[str, None] = {}
    has_new = False
    for former, topic in changed_topics(old, new):
        if topic is None:
            assert former is not None
            changed[former.name] = None
        elif former is None:
            changed[topic.name] = None
            has_new = True
        elif _differs(former, topic):
            changed[topic.name] = None
    return list(changed), has_new


def _differs(old: TopicImage, new: TopicImage) -> bool:
    return len(old.partitions) != len(new.partitions) or any(
        old.partitions[index].replicas != partition.replicas for index, partition in new.partitions.items()
    )


def brokers_with_other_racks(old: MetadataImage, new: MetadataImage) -> frozenset[int]:
    """Brokers whose rack has changed. Racks are part of a group's metadata hash."""
    if old.brokers is new.brokers or not old.topics:
        return frozenset()
    before = {(broker.id, broker.rack) for broker in old.brokers.values() if broker.rack is not None}
    now = {(broker.id, broker.rack) for broker in new.brokers.values() if broker.rack is not None}
    return frozenset([broker_id for broker_id, _ in before ^ now])


def look_at_topics_on(
    brokers: frozenset[int],
    image: MetadataImage,
    shards: Iterable[Shard],
    topics: Callable[[], ImageTopics],
) -> Work[None]:
    """Have the groups look again at the topics of the image that have replicas on these brokers. `topics` gives the present
    ones."""
    found: set[str] = set()
    for topic in list(image.topics.values()):
        if any(not brokers.isdisjoint(each.replicas) for each in topic.partitions.values()):
            found.add(topic.name)
        yield 1 + len(topic.partitions) // PARTITIONS_A_MICROSECOND
        if len(found) == TOPICS_TOGETHER:
            yield from _look_at(found, shards, topics)
            found = set()
    if found:
        yield from _look_at(found, shards, topics)


def look_at_topics(
    names: Sequence[str], shards: Iterable[Shard], topics: Callable[[], ImageTopics]
) -> Work[None]:
    """Have the groups look again at these topics. `shards`: those of now, each time. `topics` gives the present ones."""
    for some in pieces(names, TOPICS_TOGETHER):
        yield from _look_at(set(some), shards, topics)


def _look_at(names: set[str], shards: Iterable[Shard], topics: Callable[[], ImageTopics]) -> Work[None]:
    for shard in shards:
        told = machine_of(shard).on_topics(topics(), names, has_new=False)
        yield TOPICS_TOGETHER_COST + told // GROUPS_A_MICROSECOND


def with_topics_hashed(
    shard: Shard, tasks: Tasks, group_id: str, told: Sequence[str] | None, beat: Callable[[], Deferred[T]]
) -> Deferred[T]:
    """The answer of `beat`. Many topics that the member has told of, or that its group has, are hashed in steps before it.

    Raises OperationRefused.
    """
    names = names_to_hash(machine_of(shard).groups.get(group_id), told)
    if len(names) <= HASHED_AT_ONCE:
        return beat()
    shard.require_active()
    return tasks.run("a heartbeat with many topics", _hashed_first(shard, names, beat))


async def _hashed_first(shard: Shard, names: Sequence[str], beat: Callable[[], Deferred[T]]) -> T:
    await in_turns(hash_topics(machine_of(shard).env, names))
    return await beat()
