"""Tiered storage: the part of Kafka's BrokerTopicMetrics that a broker with a remote storage has."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from kafkacompat.metrics.families import NO_LABELS, Families, Metrics, Sample, counters, gauges
from kafkacompat.metrics.partitions import TRAFFIC, topic_samples

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from kafkacompat.remote.traffic import RemoteState, RemoteTopicTraffic, RemoteTraffic


class RemoteReading(NamedTuple):
    traffic: RemoteTraffic
    topics: Sequence[tuple[str, RemoteTopicTraffic]]
    states: Mapping[str, Sequence[RemoteState]]
    """Of the partitions that this node leads, by topic."""


def _states(field: str, reading: RemoteReading) -> Iterator[Sample | None]:
    total = 0
    for topic, states in reading.states.items():
        value = sum(getattr(each, field) for each in states)
        total += value
        yield {"topic": topic}, value
        yield None
    yield NO_LABELS, total


REMOTE: Metrics[RemoteReading] = Metrics(
    "Tiered storage by topic, and in all without the label, on a broker with `remote.log.storage.system.enable`",
    *(
        counters(f"{TRAFFIC}{suffix}", text, ("topic",), partial(topic_samples, field))
        for suffix, field, text in (
            ("remotecopybytes", "copied_bytes", "Bytes of segments that were copied."),
            ("remotecopyrequests", "copies", "Segments whose copy was begun."),
            (
                "remotecopyerrors",
                "copy_errors",
                "Copies that failed, without those whose failure may pass: they are made again.",
            ),
            ("remotefetchbytes", "fetched_bytes", "Bytes read for consumers."),
            ("remotefetchrequests", "fetches", "Reads for consumers."),
            ("remotefetcherrors", "fetch_errors", "Reads for consumers that failed."),
            ("remotedeleterequests", "deletions", "Segments whose deletion was begun."),
            (
                "remotedeleteerrors",
                "deletion_errors",
                "Deletions that failed, without those whose failure may pass: they are repeated.",
            ),
            (
                "buildremotelogauxstaterequests",
                "aux_states",
                "Followers that read with what they begin after the leader's remote part.",
            ),
            ("buildremotelogauxstateerrors", "aux_state_errors", "Those that failed."),
        )
    ),
    *(
        gauges(f"{TRAFFIC}{suffix}", text, ("topic",), partial(_states, field))
        for suffix, field, text in (
            ("remotecopylagbytes", "copy_lag_bytes", "Bytes of closed segments that are not copied."),
            ("remotecopylagsegments", "copy_lag_segments", "Closed segments that are not copied."),
            ("remotedeletelagbytes", "deletion_lag_bytes", "Bytes of copies that are to be deleted."),
            ("remotedeletelagsegments", "deletion_lag_segments", "Copies that are to be deleted."),
            ("remotelogmetadatacount", "copies", "Copies that are known."),
            ("remotelogsizebytes", "size_bytes", "Bytes of the whole copies."),
        )
    ),
)


def remote_families(traffic: RemoteTraffic, states: Mapping[str, Sequence[RemoteState]]) -> Families:
    """A topic has a series of a counter from its first count on, as in Kafka."""
    for family in REMOTE.of(RemoteReading(traffic, traffic.topics(), states)):
        yield None
        yield family
