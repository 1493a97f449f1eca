"""Counters of tiered storage by topic, a part of Kafka's BrokerTopicMetrics. Pure: the remote log manager adds to integers, and a
scrape reads them.

They are counted while this node has a tiered partition of the topic. After that their values stay in the sums over all topics.
"""

from __future__ import annotations

from collections.abc import Iterator

COUNTERS = (
    "aux_state_errors",
    "aux_states",
    "copied_bytes",
    "copies",
    "copy_errors",
    "deletion_errors",
    "deletions",
    "fetch_errors",
    "fetched_bytes",
    "fetches",
)


class RemoteTopicTraffic:
    __slots__ = (*COUNTERS, "partitions")

    def __init__(self) -> None:
        self.partitions = 0
        """The number of the topic's tiered partitions on this node."""
        self.copies = 0
        """Segments whose copy was begun."""
        self.copied_bytes = 0
        """Of segments that were copied whole."""
        self.copy_errors = 0
        """As in Kafka, without what is only to be tried again."""
        self.fetches = 0
        """Reads for consumers."""
        self.fetched_bytes = 0
        self.fetch_errors = 0
        self.deletions = 0
        """Segments whose deletion was begun, also again."""
        self.deletion_errors = 0
        """As in Kafka, without what is only to be tried again."""
        self.aux_states = 0
        """Followers that looked for what they begin with after the leader's remote part."""
        self.aux_state_errors = 0

    def add(self, other: RemoteTopicTraffic) -> None:
        for name in COUNTERS:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class RemoteTraffic:
    __slots__ = ("_by_topic", "_ended")

    def __init__(self) -> None:
        self._by_topic: dict[str, RemoteTopicTraffic] = {}
        self._ended = RemoteTopicTraffic()
        """The sums of the topics of which this node has no tiered partition any more."""

    def begin(self, topic: str) -> None:
        """The node has one more tiered partition of the topic."""
        self._by_topic.setdefault(topic, RemoteTopicTraffic()).partitions += 1

    def end(self, topic: str) -> None:
        """The node has one tiered partition less."""
        counted = self._by_topic[topic]
        counted.partitions -= 1
        if not counted.partitions:
            del self._by_topic[topic]
            self._ended.add(counted)

    def of(self, topic: str) -> RemoteTopicTraffic:
        """Where to count what concerns a topic. Without a partition of it, only the sums have it."""
        return self._by_topic.get(topic, self._ended)

    def topics(self) -> list[tuple[str, RemoteTopicTraffic]]:
        return list(self._by_topic.items())

    def sums(self) -> Iterator[RemoteTopicTraffic]:
        """The counters whose sum is the sum over all topics."""
        yield self._ended
        yield from list(self._by_topic.values())


class RemoteState:
    """What the last pass over a partition has found. Zeros if this node does not lead it."""

    __slots__ = (
        "copies",
        "copy_lag_bytes",
        "copy_lag_segments",
        "deletion_lag_bytes",
        "deletion_lag_segments",
        "size_bytes",
    )

    def __init__(self) -> None:
        self.copy_lag_bytes = 0
        """Closed segments that are not copied."""
        self.copy_lag_segments = 0
        self.deletion_lag_bytes = 0
        """Copies that are to be deleted."""
        self.deletion_lag_segments = 0
        self.copies = 0
        """All of which something may be in the remote storage."""
        self.size_bytes = 0
        """Of those that are whole."""
