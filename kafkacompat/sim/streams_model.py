"""The simulated application of a streams group: its topologies by version, and how many tasks each subtopology has with the
topics that there are. It shares no code with the coordinator.

Subtopology "0" reads the topic that is always there, and writes for "1", which has a state. "2" reads the topic that is
deleted and made anew, in every other version. "3" reads a topic that comes late: alone, joined with what "0" writes, or as a
partner of the topic of "0", which needs as many partitions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kafkacompat.dataclass import dataclass
from kafkacompat.sim.cluster_options import APPLICATION, LATE, MADE_ANEW, TOPIC, ClusterOptions
from kafkacompat.wire.messages.streams_group_heartbeat_request import (
    CopartitionGroup,
    KeyValue,
    Subtopology,
    TopicInfo,
    Topology,
)

if TYPE_CHECKING:
    from kafkacompat.controller.image import MetadataImage

Task = tuple[str, int]
"""Subtopology id and partition."""
BETWEEN, JOINED = f"{APPLICATION}-between-repartition", f"{APPLICATION}-joined-repartition"


@dataclass(frozen=True, slots=True)
class Part:
    """A subtopology."""

    sources: tuple[str, ...]
    reads: tuple[str, ...] = ()
    """Repartition topics."""
    writes: tuple[str, ...] = ()
    changelog: str | None = None

    @property
    def inputs(self) -> tuple[str, ...]:
        return (*self.sources, *self.reads)


def parts_of(options: ClusterOptions, version: int) -> dict[str, Part]:
    use, changelog = options.streams_late, f"{APPLICATION}-state{version % 2}-changelog"
    writes = (BETWEEN, JOINED) if use == "joined" else (BETWEEN,)
    parts = {
        "0": Part((TOPIC, LATE) if use == "paired" else (TOPIC,), writes=writes),
        "1": Part((), reads=(BETWEEN,), changelog=changelog),
    }
    if options.remake_ms and version % 2 == 0:
        parts["2"] = Part((MADE_ANEW,), changelog=f"{APPLICATION}-again-changelog")
    if use == "alone":
        parts["3"] = Part((LATE,))
    if use == "joined":
        parts["3"] = Part((LATE,), reads=(JOINED,), changelog=f"{APPLICATION}-join-changelog")
    return parts


def topology_of(options: ClusterOptions, version: int) -> Topology:
    """As a member tells it."""
    return Topology(
        epoch=version,
        subtopologies=[
            Subtopology(
                subtopology_id=subtopology_id,
                source_topics=list(part.sources),
                repartition_sink_topics=list(part.writes),
                repartition_source_topics=[TopicInfo(name=name) for name in part.reads],
                state_changelog_topics=[]
                if part.changelog is None
                else [
                    TopicInfo(
                        name=part.changelog, topic_configs=[KeyValue(key="cleanup.policy", value="compact")]
                    )
                ],
                copartition_groups=[]
                if len(part.inputs) < 2
                else [
                    CopartitionGroup(
                        source_topics=list(range(len(part.sources))),
                        repartition_source_topics=list(range(len(part.reads))),
                    )
                ],
            )
            for subtopology_id, part in parts_of(options, version).items()
        ],
    )


@dataclass(frozen=True, slots=True)
class Layout:
    """The topics of a version of the application."""

    tasks: Mapping[str, int]
    """Subtopology id -> number of tasks. Empty if the source topics do not fit."""
    internal: Mapping[str, int]
    """Internal topic -> number of partitions that it needs."""


def layout_of(options: ClusterOptions, version: int, image: MetadataImage) -> Layout:
    counts = {name: len(topic.partitions) for name, topic in image.topics.items()}
    parts = parts_of(options, version)
    if any(name not in counts for part in parts.values() for name in part.sources) or (
        options.streams_late == "paired" and counts[TOPIC] != counts[LATE]
    ):
        return Layout({}, {})
    tasks = {each: counts[part.sources[0]] for each, part in parts.items() if part.sources}
    tasks["1"] = tasks["0"]
    internal: dict[str, int] = {}
    for each, part in parts.items():
        internal |= dict.fromkeys(part.reads, tasks[each])
        if part.changelog is not None:
            internal[part.changelog] = tasks[each]
    return Layout(tasks, internal)


def misfits(layout: Layout, image: MetadataImage) -> list[str]:
    """Internal topics that are there, with other numbers of partitions."""
    return [
        name
        for name, count in layout.internal.items()
        if name in image.topics and len(image.topics[name].partitions) != count
    ]
