"""Counters of the traffic of topics (BrokerTopicMetrics). Pure: the broker adds to integers, and a scrape reads them.

The partitions of a topic share its counters. When the broker loses its last partition of a topic, the counters are removed, and
their values stay in the sums over all topics.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, Self, TypeVar

from kafkacompat.ports import Fault


class IsrChanges:
    """Changes of in-sync sets that the controller has been asked for."""

    __slots__ = ("expands", "failed", "shrinks")

    def __init__(self) -> None:
        self.expands = 0
        self.shrinks = 0
        self.failed = 0
        """Refused with an error; they may be asked for again."""


class TopicCounters:
    """Counters of one topic. Subclasses name them in `__slots__`."""

    __slots__ = ("partitions",)

    def __init__(self) -> None:
        self.partitions = 0
        """The number of the topic's partitions that are counted here."""

    def add(self, other: Self) -> None:
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class TopicTraffic(TopicCounters):
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
        "produces",
        "reassignment_bytes_in",
        "reassignment_bytes_out",
        "replication_bytes_in",
        "replication_bytes_out",
        "share_acknowledgements",
        "share_fetches",
    )

    def __init__(self) -> None:
        super().__init__()
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


COUNTER_OF_FAULT = {
    Fault.CRC: "invalid_crcs",
    Fault.OFFSET_OR_SEQUENCE: "invalid_sequences",
    Fault.NO_KEY: "no_keys",
}


T = TypeVar("T", bound=TopicCounters)


class TrafficByTopic(Generic[T]):
    """The counters of all topics of which something is here."""

    __slots__ = ("_by_topic", "_ended", "_made")

    def __init__(self, made: type[T]) -> None:
        self._made = made
        self._by_topic: dict[str, T] = {}
        self._ended = made()
        """The sums of the topics of which nothing is here any more."""

    def begin(self, topic: str) -> T:
        """One more partition of the topic is here."""
        traffic = self._by_topic.get(topic)
        if traffic is None:
            traffic = self._by_topic[topic] = self._made()
        traffic.partitions += 1
        return traffic

    def end(self, topic: str) -> None:
        """One partition of the topic is here no more."""
        traffic = self._by_topic[topic]
        traffic.partitions -= 1
        if not traffic.partitions:
            del self._by_topic[topic]
            self._ended.add(traffic)

    def of(self, topic: str) -> T:
        """Where to count what concerns a topic. Without a partition of it, only the sums have it."""
        return self._by_topic.get(topic, self._ended)

    def topics(self) -> list[tuple[str, T]]:
        return list(self._by_topic.items())

    def sums(self) -> Iterator[T]:
        """The counters whose sum is the sum over all topics."""
        yield self._ended
        yield from list(self._by_topic.values())


class BrokerTraffic(TrafficByTopic[TopicTraffic]):
    """The traffic of all partitions on this broker."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(TopicTraffic)
