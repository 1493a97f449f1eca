"""Share sessions, and the records in flight with members of share groups: ShareGroupMetrics, SharePartitionMetrics and
ShareSessionCache of Kafka's MBeans, and by share-partition what Kafka does not tell."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING

from kafkacompat.metrics.families import (
    COUNTED_A_STEP,
    Families,
    Labels,
    Sample,
    counter,
    counters,
    gauge,
    gauges,
    mbean_value,
)
from kafkacompat.metrics.histograms import histogram_families, labeled_histogram_families

if TYPE_CHECKING:
    from kafkacompat.share.dead_letter_queue import DeadLetterQueue
    from kafkacompat.share.share_partition_cache import LedPartition
    from kafkacompat.share.share_partition_manager import SharePartitionManager

TYPES = ((1, "Accept"), (2, "Release"), (3, "Reject"), (4, "Renew"))
SHOWN = 10_000
"""Share-partitions that are shown. Clients choose the ids of groups, so that their number needs a bound."""
GROUPS_SHOWN = 1_000
"""Groups of which fetches are shown, with 14 series each."""
NAME_MAX = 300
"""Characters of the group's id, beyond which its share-partitions are not shown. Each series would have it, and clients
may choose one of 32 KiB."""
RECORDS_A_UNIT = 25
"""Records in flight that are looked at in the time of one partition."""


def share_families(shares: SharePartitionManager, dead_letters: DeadLetterQueue, now_ms: int) -> Families:
    """`now_ms` is monotonic."""
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
    yield counter(
        "kafka_server_delayedsharefetchmetrics_expires",
        "Share fetches that waited as long as they may.",
        shares.fetches.purgatory.expirations,
    )
    yield from histogram_families(
        "kafka_server_sharegroupmetrics_partitionloadtimems",
        "ms to load the state of a share-partition",
        shares.load_times_ms,
    )
    yield from _fetch_families(shares)
    name = "kafkacompat_share_dead_letters_"
    yield counter(f"{name}written", "Dead letters that were written.", dead_letters.written)
    yield counter(
        f"{name}given_up", "Records that were archived without their dead letter.", dead_letters.given_up
    )
    yield None
    shown = list(islice(_led(shares), SHOWN))
    yield None
    name = "kafka_server_sharepartitionmetrics_"
    yield counters(
        f"{name}acquisitionlocktimeout",
        "Records that were held beyond their locks.",
        _of_each(shown, _bean_labels, lambda led: led.core.expired_records),
    )
    yield gauges(
        f"{name}inflightmessagecount",
        "Records in flight.",
        _of_each(shown, _bean_labels, lambda led: led.core.in_flight_records()),
    )
    yield gauges(
        f"{name}inflightbatchcount",
        "Batches of records in flight.",
        _of_each(shown, _bean_labels, lambda led: led.core.in_flight_batches()),
    )
    yield from _own_families(shown, now_ms)


def _fetch_families(shares: SharePartitionManager) -> Families:
    """By group."""
    meters = [
        ({"group": mbean_value(group_id)}, meter)
        for group_id, meter in islice(shares.cache.fetch_meters.items(), GROUPS_SHOWN)
        if len(group_id) <= NAME_MAX
    ]
    yield None
    name = "kafka_server_sharegroupmetrics_"
    for suffix, text, histograms in (
        (
            "requesttopicpartitionsfetchratio",
            "share-partitions that a fetch has got, in percent of those that it asked for",
            [(labels, meter.acquired_percent) for labels, meter in meters],
        ),
        (
            "topicpartitionsacquiretimems",
            "ms that a fetch waited until it could fetch from a share-partition",
            [(labels, meter.acquire_times_ms) for labels, meter in meters],
        ),
    ):
        yield from labeled_histogram_families(f"{name}{suffix}", text, histograms)


def _own_families(shown: list[LedPartition], now_ms: int) -> Families:
    name = "kafkacompat_share_partition_"
    yield counters(
        f"{name}delivered_records",
        "Records that were given to members, each time counted.",
        _of_each(shown, _labels, lambda led: led.core.delivered_records),
    )
    yield counters(
        f"{name}archived_records",
        "Records that are not delivered any more: rejected, or delivered as often as allowed.",
        _of_each(shown, _labels, lambda led: led.core.archived_records),
    )
    held: list[Sample | None] = []
    ages: list[Sample | None] = []
    units = 0
    for led in shown:
        if led.core.in_flight_batches():
            records, deadline_ms = led.core.held()
            labels = _labels(led)
            held.append((labels, records))
            if deadline_ms is not None:
                taken_ms = deadline_ms - led.settings().record_lock_duration_ms
                ages.append((labels, max(0, now_ms - taken_ms) / 1000))
        units += 1 + led.core.in_flight_records() // RECORDS_A_UNIT
        if units >= COUNTED_A_STEP:
            units = 0
            yield None
    yield gauges(f"{name}held_records", "Records that members hold.", held)
    yield gauges(
        f"{name}oldest_lock_seconds",
        "Time since the oldest lock that is held was taken or renewed.",
        ages,
    )


def _led(shares: SharePartitionManager) -> Iterator[LedPartition]:
    for group_id, group in shares.cache.groups.items():
        if len(group_id) <= NAME_MAX:
            yield from group.values()


def _of_each(
    shown: list[LedPartition],
    labels: Callable[[LedPartition], Labels],
    value: Callable[[LedPartition], int],
) -> Iterator[Sample | None]:
    for count, led in enumerate(shown, 1):
        yield labels(led), value(led)
        if not count % COUNTED_A_STEP:
            yield None


def _labels(led: LedPartition) -> Labels:
    return {"group": led.key.group_id, "topic": led.name.topic, "partition": str(led.name.partition)}


def _bean_labels(led: LedPartition) -> Labels:
    return {name: mbean_value(text) for name, text in _labels(led).items()}
