"""Traffic by topic and in all: BrokerTopicMetrics of Kafka's MBeans. A topic has a series from its first count on, as in Kafka."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from kafkacompat.metrics.families import NO_LABELS, Families, Sample, counters

if TYPE_CHECKING:
    from kafkacompat.partition.traffic import BrokerTraffic, TopicTraffic

NAME = "kafka_server_brokertopicmetrics_"
BY_TOPIC = (
    ("messagesin", "messages_in", "Records appended by producers."),
    ("bytesin", "bytes_in", "Bytes appended by producers."),
    ("bytesout", "bytes_out", "Bytes fetched by consumers."),
    ("bytesrejected", "bytes_rejected", "Bytes refused because they are more than a batch may have."),
    ("totalproducerequests", "produces", "Batches to be appended."),
    ("failedproducerequests", "failed_produces", "Batches that were refused."),
    ("totalfetchrequests", "fetches", "Partitions read for fetches."),
    ("failedfetchrequests", "failed_fetches", "Partitions whose read failed."),
    ("totalsharefetchrequests", "share_fetches", "Share fetches."),
    ("failedsharefetchrequests", "failed_share_fetches", "Share fetches with an error."),
    ("totalshareacknowledgementrequests", "share_acknowledgements", "Share acknowledgements."),
    (
        "failedshareacknowledgementrequests",
        "failed_share_acknowledgements",
        "Share acknowledgements with an error.",
    ),
)
IN_ALL = (
    ("invalidmessagecrcrecords", "invalid_crcs", "Batches refused because of their crc."),
    (
        "invalidoffsetorsequencerecords",
        "invalid_sequences",
        "Batches refused because of their offsets or sequence number.",
    ),
    ("nokeycompactedtopicrecords", "no_keys", "Records without a key that compacted topics have refused."),
    ("replicationbytesin", "replication_bytes_in", "Bytes fetched from leaders."),
    ("replicationbytesout", "replication_bytes_out", "Bytes fetched by followers."),
    (
        "reassignmentbytesin",
        "reassignment_bytes_in",
        "Bytes fetched from leaders for replicas that are being added.",
    ),
    ("reassignmentbytesout", "reassignment_bytes_out", "Bytes fetched by followers that are being added."),
)


def traffic_families(traffic: BrokerTraffic) -> Families:
    topics = traffic.topics()
    for suffix, field, text in BY_TOPIC:
        yield None
        yield counters(f"{NAME}{suffix}", text, _samples(field, traffic, topics))
    for suffix, field, text in IN_ALL:
        yield None
        yield counters(f"{NAME}{suffix}", text, _samples(field, traffic, ()))


def _samples(
    field: str, traffic: BrokerTraffic, topics: Sequence[tuple[str, TopicTraffic]]
) -> Iterator[Sample]:
    # What is summed is asked for anew each time: the counts of a topic that ends during the scrape would be there twice.
    yield NO_LABELS, sum(getattr(each, field) for each in traffic.sums())
    for topic, counted in topics:
        if value := getattr(counted, field):
            yield {"topic": topic}, value
