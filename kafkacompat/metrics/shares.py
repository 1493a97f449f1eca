"""Share sessions, and the records in flight with members of share groups: ShareGroupMetrics, SharePartitionMetrics and
ShareSessionCache of Kafka's MBeans, and by share-partition what Kafka does not tell."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from kafkacompat.metrics.families import (
    COUNTED_A_STEP,
    Families,
    Labels,
    Metrics,
    Sample,
    counter,
    counters,
    gauge,
    gauges,
    histogram,
    histograms,
    mbean_value,
)

if TYPE_CHECKING:
    from kafkacompat.meters import Histogram
    from kafkacompat.share.dead_letter_queue import DeadLetterQueue, GroupLetterMeter
    from kafkacompat.share.share_partition_cache import GroupFetchMeter, LedPartition
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


SESSIONS = "kafka_server_sharesessioncache_"
GROUPS = "kafka_server_sharegroupmetrics_"
IN_FLIGHT = "kafka_server_sharepartitionmetrics_"
OWN = "kafkacompat_share_partition_"
NAMED = ("group", "topic", "partition")

SHARES: Metrics[SharePartitionManager] = Metrics(
    "Share fetches of a broker",
    gauge(f"{SESSIONS}sharesessionscount", "Share sessions.", lambda shares: len(shares.sessions)),
    gauge(
        f"{SESSIONS}sharepartitionscount",
        "Partitions of all share sessions.",
        lambda shares: shares.sessions.partition_count,
    ),
    counter(
        f"{SESSIONS}sharesessionevictions",
        "Share sessions that ended with their connection.",
        lambda shares: shares.sessions.evictions,
    ),
    counters(
        f"{GROUPS}recordacknowledgements",
        "Records that members have acknowledged.",
        ("ackType",),
        lambda shares: [({"ackType": text}, shares.acknowledged[number]) for number, text in TYPES],
    ),
    counter(
        "kafka_server_delayedsharefetchmetrics_expires",
        "Share fetches that waited as long as they may.",
        lambda shares: shares.fetches.purgatory.expirations,
    ),
    histogram(
        f"{GROUPS}partitionloadtimems",
        "ms to load the state of a share-partition",
        lambda shares: shares.cache.load_times_ms,
    ),
)


def _ratios(meters: Sequence[tuple[Labels, GroupFetchMeter]]) -> list[tuple[Labels, Histogram]]:
    return [(labels, meter.acquired_percent) for labels, meter in meters]


def _waits(meters: Sequence[tuple[Labels, GroupFetchMeter]]) -> list[tuple[Labels, Histogram]]:
    return [(labels, meter.acquire_times_ms) for labels, meter in meters]


FETCHES: Metrics[Sequence[tuple[Labels, GroupFetchMeter]]] = Metrics(
    "Share fetches of each group",
    histograms(
        f"{GROUPS}requesttopicpartitionsfetchratio",
        "share-partitions that a fetch has got, in percent of those that it asked for",
        ("group",),
        _ratios,
    ),
    histograms(
        f"{GROUPS}topicpartitionsacquiretimems",
        "ms that a fetch waited until it could fetch from a share-partition",
        ("group",),
        _waits,
    ),
)


def _counted(
    count: Callable[[GroupLetterMeter], int],
) -> Callable[[Sequence[tuple[Labels, GroupLetterMeter]]], list[Sample]]:
    """As Kafka, which has none of these series before there is something to count."""
    return lambda meters: [(labels, count(meter)) for labels, meter in meters if count(meter)]


LETTERS: Metrics[Sequence[tuple[Labels, GroupLetterMeter]]] = Metrics(
    "Dead letters of each group",
    counters(
        f"{GROUPS}deadletterqueuerecordcount_count",
        "Dead letters that were written.",
        ("group",),
        _counted(lambda meter: meter.written),
    ),
    counters(
        f"{GROUPS}deadletterqueuetotalproducerequests",
        "Produce requests with dead letters, with those that were sent again.",
        ("group",),
        _counted(lambda meter: meter.requests),
    ),
    counters(
        f"{GROUPS}deadletterqueuefailedproducerequests",
        "Ranges of dead letters that were given up because their Produce request failed.",
        ("group",),
        _counted(lambda meter: meter.failed),
    ),
)
LOST_LETTERS: Metrics[DeadLetterQueue] = Metrics(
    "Lost dead letters",
    counter(
        "kafkacompat_share_dead_letters_given_up",
        "Records that were archived without their dead letter, for whatever reason.",
        lambda queue: queue.given_up,
    ),
)


def _of_each(
    labels: Callable[[LedPartition], Labels], value: Callable[[LedPartition], int]
) -> Callable[[ShownPartitions], Iterator[Sample | None]]:
    def samples(shown: ShownPartitions) -> Iterator[Sample | None]:
        for count, led in enumerate(shown.partitions, 1):
            yield labels(led), value(led)
            if not count % COUNTED_A_STEP:
                yield None

    return samples


def _labels(led: LedPartition) -> Labels:
    return {"group": led.key.group_id, "topic": led.name.topic, "partition": str(led.name.partition)}


def _bean_labels(led: LedPartition) -> Labels:
    return {name: mbean_value(text) for name, text in _labels(led).items()}


class ShownPartitions(NamedTuple):
    partitions: list[LedPartition]
    held: list[Sample]
    ages: list[Sample]


SHARE_PARTITIONS: Metrics[ShownPartitions] = Metrics(
    "Each share-partition that a broker leads",
    counters(
        f"{IN_FLIGHT}acquisitionlocktimeout",
        "Records that were held beyond their locks.",
        NAMED,
        _of_each(_bean_labels, lambda led: led.core.expired_records),
    ),
    gauges(
        f"{IN_FLIGHT}inflightmessagecount",
        "Records in flight: between the start offset and the last acquired record, in any state.",
        NAMED,
        _of_each(_bean_labels, lambda led: led.core.in_flight_records()),
    ),
    gauges(
        f"{IN_FLIGHT}inflightbatchcount",
        "Batches of records in flight.",
        NAMED,
        _of_each(_bean_labels, lambda led: led.core.in_flight_batches()),
    ),
    counters(
        f"{OWN}delivered_records",
        "Records that were given to members, each time counted. From 0 when a leader loads the state.",
        NAMED,
        _of_each(_labels, lambda led: led.core.delivered_records),
    ),
    counters(
        f"{OWN}archived_records",
        "Records that are not delivered any more: rejected, or delivered as often as allowed. From 0 when a leader "
        "loads the state.",
        NAMED,
        _of_each(_labels, lambda led: led.core.archived_records),
    ),
    gauges(
        f"{OWN}held_records",
        "Records that members hold. Only while there is one.",
        NAMED,
        lambda shown: shown.held,
    ),
    gauges(
        f"{OWN}oldest_lock_seconds",
        "Time since the oldest lock that is held was taken or renewed, by the lock duration of now. Only while there is one.",
        NAMED,
        lambda shown: shown.ages,
    ),
)


def share_families(shares: SharePartitionManager, dead_letters: DeadLetterQueue, now_ms: int) -> Families:
    """`now_ms` is monotonic."""
    yield from SHARES.of(shares)
    meters: list[tuple[Labels, GroupFetchMeter]] = [
        ({"group": mbean_value(group_id)}, meter)
        for group_id, meter in islice(shares.cache.fetch_meters.items(), GROUPS_SHOWN)
        if len(group_id) <= NAME_MAX
    ]
    yield None
    yield from FETCHES.of(meters)
    yield None
    letters: list[tuple[Labels, GroupLetterMeter]] = [
        ({"group": mbean_value(group_id)}, meter) for group_id, meter in dead_letters.meters.items()
    ]
    yield None
    yield from LETTERS.of(letters)
    yield from LOST_LETTERS.of(dead_letters)
    yield None
    shown = ShownPartitions(list(islice(_led(shares), SHOWN)), [], [])
    yield None
    units = 0
    for led in shown.partitions:
        if led.core.in_flight_batches():
            records, deadline_ms = led.core.held()
            labels = _labels(led)
            shown.held.append((labels, records))
            if deadline_ms is not None:
                taken_ms = deadline_ms - led.settings().record_lock_duration_ms
                shown.ages.append((labels, max(0, now_ms - taken_ms) / 1000))
        units += 1 + led.core.in_flight_records() // RECORDS_A_UNIT
        if units >= COUNTED_A_STEP:
            units = 0
            yield None
    yield from SHARE_PARTITIONS.of(shown)


def _led(shares: SharePartitionManager) -> Iterator[LedPartition]:
    for group_id, group in shares.cache.groups.items():
        if len(group_id) <= NAME_MAX:
            yield from group.values()
