"""Counters and states of mirrors by topic. Pure: the fetches add to integers, and a scrape reads them.

They are counted while this node leads a partition that follows. After that their values stay in the sums over all topics.
"""

from __future__ import annotations

from typing import NamedTuple

from kafkacompat.partition.traffic import TopicCounters, TrafficByTopic


class MirrorTopicTraffic(TopicCounters):
    __slots__ = ("bytes_in", "errors")

    def __init__(self) -> None:
        super().__init__()
        self.bytes_in = 0
        """Appended from the source."""
        self.errors = 0
        """Answers for a partition with an error, or that could not be appended, and requests for it without an answer."""


class MirrorTraffic(TrafficByTopic[MirrorTopicTraffic]):
    """The traffic of the mirrored partitions that this node leads."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(MirrorTopicTraffic)


class MirrorState(NamedTuple):
    """What the last answer of the source for a partition has told."""

    lag: int
    """Records that are not here. -1: not known."""
    stands_still: bool
    """Something is the matter, which the node's log tells."""
