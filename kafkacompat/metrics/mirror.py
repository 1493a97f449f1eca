"""Mirrors: how far the topics that follow another cluster are behind it, by topic."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from kafkacompat.metrics.families import (
    COUNTED_A_STEP,
    NO_LABELS,
    Families,
    Metrics,
    Sample,
    counter,
    counters,
    gauges,
)
from kafkacompat.metrics.partitions import topic_samples

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from kafkacompat.mirror.traffic import MirrorState, MirrorTopicTraffic, MirrorTraffic

PREFIX = "kafkacompat_mirror_"


class MirrorCounts:
    """Of the partitions of a topic that this node leads."""

    __slots__ = ("lag", "partitions", "standing")

    def __init__(self) -> None:
        self.partitions = self.standing = self.lag = 0


class MirrorReading(NamedTuple):
    traffic: MirrorTraffic
    topics: Sequence[tuple[str, MirrorTopicTraffic]]
    counts: dict[str, MirrorCounts]
    offsets_copied: int


def _counts(field: str, reading: MirrorReading) -> Iterator[Sample | None]:
    total = 0
    for number, (topic, counts) in enumerate(reading.counts.items(), 1):
        value = getattr(counts, field)
        total += value
        yield {"topic": topic}, value
        if number % COUNTED_A_STEP == 0:
            yield None
    yield NO_LABELS, total


MIRROR: Metrics[MirrorReading] = Metrics(
    "Mirrors by topic, and in all without the label, on a broker that leads or has led partitions that follow another cluster",
    *(
        counters(f"{PREFIX}{suffix}", text, ("topic",), partial(topic_samples, field))
        for suffix, field, text in (
            ("bytes", "bytes_in", "Bytes appended from the source."),
            (
                "errors",
                "errors",
                "Answers of the source for a partition that have an error, or that could not be appended, and requests for it "
                "without an answer.",
            ),
        )
    ),
    *(
        gauges(f"{PREFIX}{suffix}", text, ("topic",), partial(_counts, field))
        for suffix, field, text in (
            ("partitions", "partitions", "Led partitions that follow."),
            (
                "standing_partitions",
                "standing",
                "Those that do not go on. The node's log has the reason, in a line with `[Mirror`.",
            ),
            (
                "lag_records",
                "lag",
                "Records of the source that are not here, as it has told at the last answer for each partition.",
            ),
        )
    ),
    counter(
        f"{PREFIX}group_offsets",
        "Offsets of groups that were committed as at the source.",
        lambda reading: reading.offsets_copied,
    ),
)


def mirror_families(
    traffic: MirrorTraffic, states: Iterable[tuple[str, MirrorState]], offsets_copied: int
) -> Families:
    """Counts in steps. A topic has a series of a counter from its first count on."""
    found: dict[str, MirrorCounts] = {}
    for number, (topic, state) in enumerate(states, 1):
        counts = found.setdefault(topic, MirrorCounts())
        counts.partitions += 1
        counts.standing += state.stands_still
        counts.lag += max(0, state.lag)
        if number % COUNTED_A_STEP == 0:
            yield None
    for family in MIRROR.of(MirrorReading(traffic, traffic.topics(), found, offsets_copied)):
        yield None
        yield family
