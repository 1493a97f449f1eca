"""Counters of tiered storage by topic, a part of Kafka's BrokerTopicMetrics. Pure: the remote log manager adds to integers, and a
scrape reads them.

They are counted while this node has a tiered partition of the topic. After that their values stay in the sums over all topics.
"""

from __future__ import annotations

from kafkacompat.partition.traffic import TopicCounters, TrafficByTopic


class RemoteTopicTraffic(TopicCounters):
    __slots__ = (
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

    def __init__(self) -> None:
        super().__init__()
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


class RemoteTraffic(TrafficByTopic[RemoteTopicTraffic]):
    """The traffic of the tiered partitions on this node."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(RemoteTopicTraffic)


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
