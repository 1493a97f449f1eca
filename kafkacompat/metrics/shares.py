"""Share sessions, and the records in flight with members of share groups: ShareGroupMetrics, SharePartitionMetrics and
ShareSessionCache of Kafka's MBeans."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from kafkacompat.metrics.families import (
    COUNTED_A_STEP,
    Families,
    Sample,
    counter,
    counters,
    gauge,
    gauges,
    mbean_value,
)

if TYPE_CHECKING:
    from kafkacompat.share.partition_cache import LedPartition
    from kafkacompat.share.share_partition_manager import SharePartitionManager

TYPES = ((1, "Accept"), (2, "Release"), (3, "Reject"), (4, "Renew"))


def share_families(shares: SharePartitionManager) -> Families:
    sessions, name = shares.sessions, "kafka_server_sharesessioncache_"
    yield gauge(f"{name}sharesessionscount", "Share sessions.", len(sessions))
    yield gauge(f"{name}sharepartitionscount", "Partitions of all share sessions.", sessions.partition_count)
    yield counter(
        f"{name}sharesessionevictions", "Share sessions that ended with their connection.", sessions.evictions
    )
    yield None
    yield counters(
        "kafka_server_sharegroupmetrics_recordacknowledgements",
        "Records that members have acknowledged.",
        [({"ackType": text}, shares.acknowledged[number]) for number, text in TYPES],
    )
    yield None
    name = "kafka_server_sharepartitionmetrics_"
    yield counters(
        f"{name}acquisitionlocktimeout",
        "Records that were held beyond their locks.",
        _of_each(shares, lambda led: led.core.expired_records),
    )
    yield gauges(
        f"{name}inflightmessagecount",
        "Records in flight.",
        _of_each(shares, lambda led: led.core.in_flight_records()),
    )
    yield gauges(
        f"{name}inflightbatchcount",
        "Batches of records in flight.",
        _of_each(shares, lambda led: led.core.in_flight_batches()),
    )


def _of_each(shares: SharePartitionManager, value: Callable[[LedPartition], int]) -> Iterator[Sample | None]:
    count = 0
    for group_id, group in list(shares.cache.groups.items()):
        for led in list(group.values()):
            labels = {
                "group": mbean_value(group_id),
                "topic": mbean_value(led.name.topic),
                "partition": str(led.name.partition),
            }
            yield labels, value(led)
            count += 1
            if not count % COUNTED_A_STEP:
                yield None
