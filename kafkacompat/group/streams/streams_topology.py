"""The topology of a Kafka Streams application, as its members tell it: subtopologies with the topics that they read and write.

Follows Kafka's StreamsTopology.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from sys import getsizeof
from typing import Any, TypeAlias

from kafkacompat.dataclass import dataclass

SUBTOPOLOGY_BYTES = 1_500
TOPIC_BYTES = 400
"""A topic that it reads, or an internal one: also what the group and the shard note of it."""
CONFIG_BYTES = 60

TopicConfigs: TypeAlias = "tuple[tuple[str, str], ...]"
"""(name, value) pairs."""


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """An internal topic of the application."""

    name: str
    partitions: int = 0
    """0 if the broker decides."""
    replication_factor: int = 0
    """0 if the broker decides."""
    configs: TopicConfigs = ()


@dataclass(frozen=True, slots=True)
class CopartitionGroup:
    """Topics that need the same number of partitions, as indexes into those of the subtopology."""

    source_topics: tuple[int, ...] = ()
    source_topic_regex: tuple[int, ...] = ()
    repartition_source_topics: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Subtopology:
    subtopology_id: str
    source_topics: tuple[str, ...] = ()
    source_topic_regex: tuple[str, ...] = ()
    repartition_sink_topics: tuple[str, ...] = ()
    """Topics of the application to which it writes for other subtopologies."""
    repartition_source_topics: tuple[TopicInfo, ...] = ()
    """Topics of the application from which it reads."""
    state_changelog_topics: tuple[TopicInfo, ...] = ()
    copartition_groups: tuple[CopartitionGroup, ...] = ()

    def input_topics(self) -> Iterator[str]:
        """All topics from which it reads. The largest decides how many tasks it has."""
        yield from self.source_topics
        for topic in self.repartition_source_topics:
            yield topic.name

    def required_topics(self) -> Iterator[str]:
        yield from self.input_topics()
        for topic in self.state_changelog_topics:
            yield topic.name


@dataclass(frozen=True, slots=True, weakref_slot=True)
class StreamsTopology:
    """Two are equal if epoch and all subtopologies are, in whatever order they were told."""

    epoch: int
    subtopologies: Mapping[str, Subtopology]
    """By id, in the order in which they were told."""

    def required_topics(self) -> frozenset[str]:
        """All topics that must exist before a task can run."""
        return frozenset(
            name for subtopology in self.subtopologies.values() for name in subtopology.required_topics()
        )

    def source_topics(self) -> dict[str, str]:
        """Topic from which a subtopology reads -> subtopology id."""
        return {
            name: subtopology.subtopology_id
            for subtopology in self.subtopologies.values()
            for name in subtopology.input_topics()
        }

    def size(self) -> int:
        """Bytes of memory."""
        return sum(map(_size_of_subtopology, self.subtopologies.values()))


def _size_of_subtopology(subtopology: Subtopology) -> int:
    names = (
        *subtopology.source_topics,
        *subtopology.source_topic_regex,
        *subtopology.repartition_sink_topics,
    )
    internal = (*subtopology.repartition_source_topics, *subtopology.state_changelog_topics)
    configs = [text for topic in internal for pair in topic.configs for text in pair]
    texts = (subtopology.subtopology_id, *names, *[topic.name for topic in internal], *configs)
    indexes = sum(
        [
            len(group.source_topics) + len(group.source_topic_regex) + len(group.repartition_source_topics)
            for group in subtopology.copartition_groups
        ]
    )
    topics = len(subtopology.source_topics) + len(internal) + len(subtopology.copartition_groups)
    tables = TOPIC_BYTES * topics + CONFIG_BYTES * (len(configs) // 2) + 8 * (indexes + len(texts))
    return SUBTOPOLOGY_BYTES + sum(map(getsizeof, texts)) + tables


# --- from requests and records, which have the same fields


def topology_of(struct: Any) -> StreamsTopology:
    """`struct`: the topology of a heartbeat, or the value of a record. Raises ValueError if the epoch is negative or two
    subtopologies have one id."""
    if struct.epoch < 0:
        raise ValueError(f"the topology's epoch is {struct.epoch}")
    subtopologies: dict[str, Subtopology] = {}
    for each in struct.subtopologies:
        subtopology = _subtopology_of(each)
        if subtopology.subtopology_id in subtopologies:
            raise ValueError(f"subtopology {subtopology.subtopology_id!r} is there twice")
        subtopologies[subtopology.subtopology_id] = subtopology
    return StreamsTopology(struct.epoch, subtopologies)


def _subtopology_of(struct: Any) -> Subtopology:
    return Subtopology(
        struct.subtopology_id,
        source_topics=tuple(struct.source_topics),
        source_topic_regex=tuple(struct.source_topic_regex),
        repartition_sink_topics=tuple(struct.repartition_sink_topics),
        repartition_source_topics=_topic_infos_of(struct.repartition_source_topics),
        state_changelog_topics=_topic_infos_of(struct.state_changelog_topics),
        copartition_groups=tuple(
            CopartitionGroup(
                tuple(group.source_topics),
                tuple(group.source_topic_regex),
                tuple(group.repartition_source_topics),
            )
            for group in struct.copartition_groups
        ),
    )


def _topic_infos_of(structs: Iterable[Any]) -> tuple[TopicInfo, ...]:
    return tuple(
        TopicInfo(
            struct.name,
            struct.partitions,
            struct.replication_factor,
            tuple((config.key, config.value) for config in struct.topic_configs),
        )
        for struct in structs
    )
