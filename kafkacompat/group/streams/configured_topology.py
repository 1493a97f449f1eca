"""A topology beside the topics of the cluster: how many tasks each subtopology has, and which internal topics are missing.

The number of partitions of a repartition topic follows from what is written to it, that of a changelog from what its
subtopology reads. Topics that are joined need the same number. Where Kafka goes through a map, its order decides which of
several reasons is told. Follows Kafka's InternalTopicManager, RepartitionTopics, CopartitionedTopicsEnforcer and
ChangelogTopics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

from kafkacompat.coordinator.core import OperationRefused
from kafkacompat.dataclass import dataclass
from kafkacompat.group.consumer.assignor import string_order
from kafkacompat.ids import in_hash_order
from kafkacompat.wire.errors import ErrorCode

if TYPE_CHECKING:
    from kafkacompat.group.streams.streams_topology import (
        StreamsTopology,
        Subtopology,
        TopicConfigs,
        TopicInfo,
    )
    from kafkacompat.group.topics import Topics

NAMED_TOPICS = 3
"""Topics that a detail names. The others are counted."""
TASKS_MAX = 20_000
"""Tasks of a topology. Each takes memory and time in every assignment."""


class StatusCode(IntEnum):
    """What a member is told of its group."""

    STALE_TOPOLOGY = 0
    MISSING_SOURCE_TOPICS = 1
    INCORRECTLY_PARTITIONED_TOPICS = 2
    MISSING_INTERNAL_TOPICS = 3
    SHUTDOWN_APPLICATION = 4
    ASSIGNMENT_DELAYED = 5
    MISSING_CLIENT_TAGS = 6


@dataclass(frozen=True, slots=True)
class InternalTopic:
    """A topic of the application, as it is to be created."""

    name: str
    number_of_partitions: int
    replication_factor: int
    """-1 if the broker decides."""
    configs: TopicConfigs


@dataclass(frozen=True, slots=True)
class ConfiguredSubtopology:
    """Each topic once, however often the client names it."""

    number_of_tasks: int
    source_topics: tuple[str, ...]
    repartition_source_topics: tuple[InternalTopic, ...]
    repartition_sink_topics: tuple[str, ...]
    state_changelog_topics: tuple[InternalTopic, ...]

    @property
    def is_stateful(self) -> bool:
        return bool(self.state_changelog_topics)

    @property
    def input_count(self) -> int:
        """At least as many as there are input topics."""
        return len(self.source_topics) + len(self.repartition_source_topics)

    def input_topics(self) -> dict[str, None]:
        """Each once, in order. A topic may be read as a source and as a repartition topic."""
        return dict.fromkeys([*self.source_topics, *[topic.name for topic in self.repartition_source_topics]])

    def internal_topics(self) -> Iterator[InternalTopic]:
        yield from self.repartition_source_topics
        yield from self.state_changelog_topics


@dataclass(frozen=True, slots=True)
class ConfiguredTopology:
    subtopologies: Mapping[str, ConfiguredSubtopology] | None
    """By id, in ascending order. None if the topics do not fit."""
    topics_to_create: Mapping[str, InternalTopic]
    status: StatusCode | None
    """Why no task can run. None if all can."""
    detail: str = ""

    @property
    def is_ready(self) -> bool:
        return self.status is None


class _TopicsDoNotFit(Exception):
    def __init__(self, status: StatusCode, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail


def configure_topology(topology: StreamsTopology, topics: Topics) -> ConfiguredTopology:
    """Raises OperationRefused for a topology that no topics could fit: STREAMS_INVALID_TOPOLOGY, or UNKNOWN_SERVER_ERROR where
    Kafka does not expect what the client says."""
    of_ids = topology.subtopologies
    subtopologies = [of_ids[subtopology_id] for subtopology_id in in_hash_order(list(of_ids))]
    copartition_groups = [names for each in subtopologies for names in _copartition_groups(each)]
    try:
        _throw_on_missing_source_topics(subtopologies, topics)
        decided = _partition_counts(subtopologies, copartition_groups, topics)
        configured = {
            subtopology_id: _configured(of_ids[subtopology_id], decided)
            for subtopology_id in sorted(of_ids, key=string_order)
        }
        missing = _missing_internal_topics(configured.values(), subtopologies, topics)
        _throw_on_too_many_tasks(configured.values())
    except _TopicsDoNotFit as reason:
        return ConfiguredTopology(None, {}, reason.status, reason.detail)
    if missing:
        detail = f"Internal topics are missing: {_summary(list(missing))}"
        return ConfiguredTopology(configured, missing, StatusCode.MISSING_INTERNAL_TOPICS, detail)
    return ConfiguredTopology(configured, {}, None)


def _copartition_groups(subtopology: Subtopology) -> Iterator[list[str]]:
    """The topics of each group."""
    sources = subtopology.source_topics
    internal = [topic.name for topic in subtopology.repartition_source_topics]
    for group in subtopology.copartition_groups:
        indexes = (*group.source_topics, *group.repartition_source_topics)
        if (
            min(indexes, default=0) < 0
            or max(group.source_topics, default=-1) >= len(sources)
            or max(group.repartition_source_topics, default=-1) >= len(internal)
        ):
            raise OperationRefused(ErrorCode.UNKNOWN_SERVER_ERROR)
        names = [sources[index] for index in group.source_topics]
        yield [*names, *[internal[index] for index in group.repartition_source_topics]]


def _throw_on_missing_source_topics(subtopologies: Sequence[Subtopology], topics: Topics) -> None:
    missing = {name for each in subtopologies for name in each.source_topics if name not in topics.by_name}
    if missing:
        names = sorted(missing, key=string_order)
        raise _TopicsDoNotFit(
            StatusCode.MISSING_SOURCE_TOPICS, f"Source topics {_summary(names)} are missing."
        )


def _summary(names: Sequence[str]) -> str:
    more = len(names) - NAMED_TOPICS
    return ", ".join(names[:NAMED_TOPICS]) + (f" and {more} additional topics" if more > 0 else "")


# --- numbers of partitions


class _Counts:
    """Topic -> number of partitions: what the cluster has, or what is decided for a topic that it does not have."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        self.decided: dict[str, int] = {}

    def of(self, name: str) -> int:
        existing = self._topics.by_name.get(name)
        count = self.decided.get(name) if existing is None else len(existing.partitions)
        if count is None:
            raise OperationRefused(ErrorCode.UNKNOWN_SERVER_ERROR)
        return count

    def of_all(self, names: Iterable[str]) -> dict[str, int]:
        return {name: self.of(name) for name in names}


def _partition_counts(
    subtopologies: Sequence[Subtopology], copartition_groups: Iterable[Sequence[str]], topics: Topics
) -> _Counts:
    counts = _Counts(topics)
    counts.decided.update(_repartition_topics(subtopologies, counts.of))
    fixed = {
        topic.name for each in subtopologies for topic in each.repartition_source_topics if topic.partitions
    }
    flexible = {
        topic.name
        for each in subtopologies
        for topic in each.repartition_source_topics
        if not topic.partitions
    }
    of_fixed = {counts.of(name) for name in fixed}
    for group in copartition_groups:
        if group:
            counts.decided.update(_copartitioned(group, fixed, of_fixed, flexible, counts))
    for each in subtopologies:
        inputs = [counts.of(name) for name in each.input_topics()]
        if not inputs:
            raise OperationRefused(
                ErrorCode.STREAMS_INVALID_TOPOLOGY,
                f"No source topics found for subtopology {each.subtopology_id}",
            )
        for topic in each.state_changelog_topics:
            counts.decided[topic.name] = max(inputs)
    return counts


def _repartition_topics(
    subtopologies: Sequence[Subtopology], existing: Callable[[str], int]
) -> dict[str, int]:
    """Kafka looks at all subtopologies in turn, again and again, until every sink has a number: the most that its subtopology
    reads from any topic whose number is known by then. Here each subtopology is looked at in the turn in which it first
    knows one."""
    found = {
        topic.name: topic.partitions
        for each in subtopologies
        for topic in each.repartition_source_topics
        if topic.partitions
    }
    readers: dict[str, list[int]] = {}
    turns: list[tuple[int, int]] = []
    for place, each in enumerate(subtopologies):
        for topic in each.repartition_source_topics:
            readers.setdefault(topic.name, []).append(place)
        if each.source_topics or any(topic.name in found for topic in each.repartition_source_topics):
            turns.append((0, place))
    heapify(turns)
    looked_at: set[int] = set()
    while turns:
        turn, place = heappop(turns)
        if place in looked_at:
            continue
        looked_at.add(place)
        each = subtopologies[place]
        sinks = [sink for sink in dict.fromkeys(each.repartition_sink_topics) if sink not in found]
        if not sinks:
            continue
        known = [found[topic.name] for topic in each.repartition_source_topics if topic.name in found]
        most = max([*known, *map(existing, each.source_topics)])
        for sink in sinks:
            found[sink] = most
            for reader in readers.get(sink, ()):
                heappush(turns, (turn if reader > place else turn + 1, reader))
    if any(sink not in found for each in subtopologies for sink in each.repartition_sink_topics):
        raise OperationRefused(
            ErrorCode.STREAMS_INVALID_TOPOLOGY,
            "Failed to compute number of partitions for all repartition topics. There may be loops in the topology that "
            "cannot be resolved.",
        )
    if readers.keys() - found.keys():
        raise OperationRefused(
            ErrorCode.STREAMS_INVALID_TOPOLOGY,
            "Failed to compute number of partitions for all repartition topics, because a repartition source topic is never "
            "used as a sink topic.",
        )
    return found


def _copartitioned(
    group: Sequence[str], fixed: set[str], of_fixed: set[int], flexible: set[str], counts: _Counts
) -> dict[str, int]:
    """What the repartition topics of a group of topics get, so that all have the same number of partitions. `of_fixed`: the
    numbers of partitions that the topology's `fixed` topics have."""
    internal = {name: counts.of(name) for name in group if name in fixed or name in flexible}
    external = {name: counts.of(name) for name in group if name not in internal}
    if external:
        wanted = _the_same(external.values(), external)
    elif fixed:
        # All of the topology, and not those of the group only, as in Kafka.
        wanted = _the_same(of_fixed, internal)
    else:
        wanted = max(internal.values())
    wrong = {name for name, count in internal.items() if name in fixed and count != wanted}
    if wrong:
        of_group = in_hash_order([name for name in in_hash_order(group) if name in internal])
        name = next(name for name in of_group if name in wrong)
        raise _TopicsDoNotFit(
            StatusCode.INCORRECTLY_PARTITIONED_TOPICS,
            f"Number of partitions [{internal[name]}] of repartition topic [{name}] doesn't match number of partitions "
            f"[{wanted}] of the source topic.",
        )
    return dict.fromkeys(internal, wanted)


def _the_same(found: Iterable[int], told: Mapping[str, int]) -> int:
    numbers = set(found)
    if len(numbers) > 1:
        listed = ", ".join(f"{name}={told[name]}" for name in sorted(told, key=string_order))
        raise _TopicsDoNotFit(
            StatusCode.INCORRECTLY_PARTITIONED_TOPICS,
            f"Following topics do not have the same number of partitions: [{{{listed}}}]",
        )
    return numbers.pop()


def _throw_on_too_many_tasks(configured: Iterable[ConfiguredSubtopology]) -> None:
    tasks = sum([each.number_of_tasks for each in configured])
    if tasks > TASKS_MAX:
        raise _TopicsDoNotFit(
            StatusCode.INCORRECTLY_PARTITIONED_TOPICS,
            f"The topology has {tasks} tasks. At most {TASKS_MAX} can run.",
        )


# --- internal topics


def _configured(subtopology: Subtopology, counts: _Counts) -> ConfiguredSubtopology:
    tasks = max(counts.of(name) for name in subtopology.input_topics())
    return ConfiguredSubtopology(
        number_of_tasks=tasks,
        source_topics=tuple(dict.fromkeys(subtopology.source_topics)),
        repartition_source_topics=_internal_topics(subtopology.repartition_source_topics, counts),
        repartition_sink_topics=tuple(dict.fromkeys(subtopology.repartition_sink_topics)),
        state_changelog_topics=_internal_topics(subtopology.state_changelog_topics, counts),
    )


def _internal_topics(infos: Sequence[TopicInfo], counts: _Counts) -> tuple[InternalTopic, ...]:
    found = tuple(
        InternalTopic(
            info.name,
            info.partitions or counts.decided[info.name],
            info.replication_factor or -1,
            info.configs,
        )
        for info in infos
    )
    if (
        len({topic.name for topic in found}) < len(found)
        or any(topic.number_of_partitions < 1 for topic in found)
        or any(len(dict(topic.configs)) < len(topic.configs) for topic in found)
    ):
        raise OperationRefused(ErrorCode.UNKNOWN_SERVER_ERROR)
    return found


def _missing_internal_topics(
    configured: Iterable[ConfiguredSubtopology], subtopologies: Iterable[Subtopology], topics: Topics
) -> dict[str, InternalTopic]:
    wanted = {topic.name: topic for each in configured for topic in each.internal_topics()}
    counts = {
        name: len(existing.partitions)
        for name in wanted
        if (existing := topics.by_name.get(name)) is not None
    }
    wrong = {name for name, count in counts.items() if count != wanted[name].number_of_partitions}
    if wrong:
        required = in_hash_order([name for each in subtopologies for name in each.required_topics()])
        name = next(name for name in required if name in wrong)
        raise _TopicsDoNotFit(
            StatusCode.INCORRECTLY_PARTITIONED_TOPICS,
            f"Existing topic {name} has different number of partitions: expected {wanted[name].number_of_partitions}, "
            f"found {counts[name]}",
        )
    if len(counts) == len(wanted):
        return {}
    return {name: wanted[name] for name in in_hash_order(list(wanted)) if name not in counts}
