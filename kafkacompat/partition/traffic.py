"""Counters of the traffic of topics (BrokerTopicMetrics). Pure: the broker adds to integers, and a scrape reads them.

The partitions of a topic share its counters. When the broker loses its last partition of a topic, the counters are removed, and
their values stay in the sums over all topics.
"""

from __future__ import annotations

from collections.abc import Iterator

from kafkacompat.ports import Fault


class IsrChanges:
    """Changes of in-sync sets that the controller has been asked for."""

    __slots__ = ("expands", "failed", "shrinks")

    def __init__(self) -> None:
        self.expands = 0
        self.shrinks = 0
        self.failed = 0
        """Refused with an error; they may be asked for again."""


class TopicTraffic:
    """The counters of one topic. They start when the broker gets its first partition of the topic."""

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "bytes_rejected",
        "failed_fetches",
        "failed_produces",
        "failed_share_acknowledgements",
        "failed_share_fetches",
        "fetches",
        "invalid_crcs",
        "invalid_sequences",
        "messages_in",
        "no_keys",
        "partitions",
        "produces",
        "reassignment_bytes_in",
        "reassignment_bytes_out",
        "replication_bytes_in",
        "replication_bytes_out",
        "share_acknowledgements",
        "share_fetches",
    )

    def __init__(self) -> None:
        self.partitions = 0
        """The number of the topic's partitions on this broker."""
        self.messages_in = 0
        self.bytes_in = 0
        self.bytes_out = 0
        """Bytes sent to consumers."""
        self.bytes_rejected = 0
        self.produces = 0
        """Attempts to append to a partition, failed ones included, as Kafka's TotalProduceRequestsPerSec counts them."""
        self.failed_produces = 0
        self.invalid_crcs = 0
        """Batches that were refused because of their crc. Kafka shows this and the next two only as sums."""
        self.invalid_sequences = 0
        """Batches that were refused because of their offsets or sequence number, or as control batches."""
        self.no_keys = 0
        """Records without a key that a compacted topic has refused, at most as many of a batch as its refusal names."""
        self.fetches = 0
        """Reads of a partition for a fetch."""
        self.failed_fetches = 0
        self.share_fetches = 0
        """Requests of members of share groups that name the topic, as the next three."""
        self.failed_share_fetches = 0
        self.share_acknowledgements = 0
        self.failed_share_acknowledgements = 0
        self.replication_bytes_in = 0
        """Bytes fetched from leaders. Kafka shows this and the next three only as sums over all topics."""
        self.replication_bytes_out = 0
        self.reassignment_bytes_in = 0
        """The part of `replication_bytes_in` of replicas that a reassignment adds."""
        self.reassignment_bytes_out = 0
        """The part of `replication_bytes_out` sent to replicas that a reassignment adds."""

    def count_fault(self, fault: Fault, records: int) -> None:
        """`records`: those that are named in the refusal."""
        name = COUNTER_OF_FAULT[fault]
        setattr(self, name, getattr(self, name) + (records if fault is Fault.NO_KEY else 1))

    def add(self, other: TopicTraffic) -> None:
        for name in COUNTERS:
            setattr(self, name, getattr(self, name) + getattr(other, name))


COUNTER_OF_FAULT = {
    Fault.CRC: "invalid_crcs",
    Fault.OFFSET_OR_SEQUENCE: "invalid_sequences",
    Fault.NO_KEY: "no_keys",
}
COUNTERS = tuple(name for name in TopicTraffic.__slots__ if name != "partitions")


class BrokerTraffic:
    """The counters of all topics on this broker."""

    __slots__ = ("_by_topic", "_ended")

    def __init__(self) -> None:
        self._by_topic: dict[str, TopicTraffic] = {}
        self._ended = TopicTraffic()
        """The sums of the topics that this broker no longer has."""

    def begin(self, topic: str) -> TopicTraffic:
        """The broker got one more partition of the topic."""
        traffic = self._by_topic.get(topic)
        if traffic is None:
            traffic = self._by_topic[topic] = TopicTraffic()
        traffic.partitions += 1
        return traffic

    def end(self, topic: str, traffic: TopicTraffic) -> None:
        """The broker lost one partition of the topic."""
        traffic.partitions -= 1
        if not traffic.partitions and self._by_topic.get(topic) is traffic:
            del self._by_topic[topic]
            self._ended.add(traffic)

    def topics(self) -> list[tuple[str, TopicTraffic]]:
        return list(self._by_topic.items())

    def sums(self) -> Iterator[TopicTraffic]:
        """The counters whose sum is the sum over all topics."""
        yield self._ended
        yield from list(self._by_topic.values())
