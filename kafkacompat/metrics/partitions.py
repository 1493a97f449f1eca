"""Partitions, logs and topics of a broker: ReplicaManager, Partition, Log, LogManager, LogCleaner and BrokerTopicMetrics of
Kafka's MBeans."""

from __future__ import annotations

from collections import Counter
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from kafkacompat.dataclass import dataclass
from kafkacompat.log.cleaner.candidates import first_dirty_offset
from kafkacompat.metrics.families import (
    COUNTED_A_STEP,
    NO_LABELS,
    Families,
    Labels,
    Metrics,
    Sample,
    counter,
    counters,
    gauge,
    gauges,
    histogram,
    mbean_value,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from kafkacompat.log.cleaner.log_cleaner import LogCleaner
    from kafkacompat.log.log_manager import LogManager
    from kafkacompat.log.unified_log import UnifiedLog
    from kafkacompat.partition.hosted_partitions import HostedPartitions
    from kafkacompat.partition.partition import Partition
    from kafkacompat.partition.traffic import BrokerTraffic, TopicCounters, TopicTraffic, TrafficByTopic


LATE_MS = 300_000
"""A transaction is late so long after the longest time that one may take, as in Kafka."""
REPLICAS = "kafka_server_replicamanager_"
PARTITION = "kafka_cluster_partition_"
LOG = "kafka_log_log_"
LOG_MANAGER = "kafka_log_logmanager_"
TRAFFIC = "kafka_server_brokertopicmetrics_"
CLEANER = "kafka_log_logcleaner_"
CLEANER_MANAGER = "kafka_log_logcleanermanager_"


@dataclass(slots=True)
class ReplicaCounts:
    """Counts over the partitions of a broker. `replica_families` makes them."""

    present: int
    offline: int = 0
    led: int = 0
    under_replicated: int = 0
    under_min_isr: int = 0
    at_min_isr: int = 0
    reassigning: int = 0
    producers: int = 0
    late: int = 0


REPLICA_COUNTS: Metrics[ReplicaCounts] = Metrics(
    "Replicas of a broker",
    gauge(
        f"{REPLICAS}partitioncount",
        "Partitions that this broker has a replica of.",
        lambda counts: counts.present + counts.offline,
    ),
    gauge(
        f"{REPLICAS}produceridcount",
        "Producer ids that the logs remember, by partition.",
        lambda counts: counts.producers,
    ),
    gauge(
        f"{REPLICAS}partitionswithlatetransactionscount",
        "Led partitions with a transaction that is open for five minutes longer than any may be (transaction.max.timeout.ms): its "
        "producer or coordinator hangs.",
        lambda counts: counts.late,
    ),
    gauge(f"{REPLICAS}leadercount", "Partitions that this broker leads.", lambda counts: counts.led),
    gauge(
        f"{REPLICAS}underreplicatedpartitions",
        "Led partitions with fewer replicas in sync than `replicascount` tells.",
        lambda counts: counts.under_replicated,
    ),
    gauge(
        f"{REPLICAS}underminisrpartitioncount",
        "Led partitions with less than min.insync.replicas in sync.",
        lambda counts: counts.under_min_isr,
    ),
    gauge(
        f"{REPLICAS}atminisrpartitioncount",
        "Led partitions with exactly min.insync.replicas in sync.",
        lambda counts: counts.at_min_isr,
    ),
    gauge(
        f"{REPLICAS}reassigningpartitions",
        "Led partitions that are being reassigned.",
        lambda counts: counts.reassigning,
    ),
    gauge(
        f"{REPLICAS}offlinereplicacount",
        "Replicas in log directories that are offline.",
        lambda counts: counts.offline,
    ),
)


def replica_families(hosted: HostedPartitions, late_before_ms: int) -> Families:
    """Counts in steps. `late_before_ms`: a transaction is late if its producer has written nothing since then, by the wall
    clock."""
    cores = list(hosted.by_id.values())
    counts = ReplicaCounts(len(cores))
    topics = hosted.image.topics
    for number, core in enumerate(cores, 1):
        counts.producers += core.log.producer_count
        if core.is_leader:
            counts.led += 1
            counts.under_replicated += is_under_replicated(core)
            counts.under_min_isr += is_under_min_isr(core)
            counts.at_min_isr += is_at_min_isr(core)
            counts.late += 0 < core.log.oldest_open_timestamp_ms() < late_before_ms
            topic, partition = core.topic_partition
            known = topics.get(topic)
            image = None if known is None else known.partitions.get(partition)
            counts.reassigning += image is not None and bool(image.adding_replicas or image.removing_replicas)
        if number % COUNTED_A_STEP == 0:
            yield None
    counts.offline = hosted.offline_count
    yield from REPLICA_COUNTS.of(counts)


def replication_factor(core: Partition) -> int:
    """Of a leader; 0 elsewhere. As in Kafka without the replicas that a reassignment adds: they are not missed while
    they are copied."""
    if not core.is_leader:
        return 0
    adding = core.adding_replicas
    return sum(each not in adding for each in core.replicas) if adding else len(core.replicas)


def is_under_replicated(core: Partition) -> bool:
    in_sync = len(core.isr)
    return core.is_leader and in_sync < len(core.replicas) and in_sync < replication_factor(core)


def is_under_min_isr(core: Partition) -> bool:
    return core.is_leader and not core.has_min_isr()


def is_at_min_isr(core: Partition) -> bool:
    """Of a partition with fewer replicas than min.insync.replicas, all of them count as that minimum."""
    least = min(core.log.config.min_insync_replicas, len(core.replicas))
    return core.is_leader and len(core.isr) == least


def _each_partition(
    value_of: Callable[[Partition], float],
) -> Callable[[Sequence[Partition]], Iterator[Sample]]:
    def samples(cores: Sequence[Partition]) -> Iterator[Sample]:
        for core in cores:
            topic, partition = core.topic_partition
            yield {"partition": str(partition), "topic": topic}, value_of(core)

    return samples


NAMED = ("topic", "partition")

PARTITIONS: Metrics[Sequence[Partition]] = Metrics(
    "Each partition of a broker",
    gauges(
        f"{PARTITION}underreplicated",
        "1: led here, with fewer replicas in sync than `replicascount` tells.",
        NAMED,
        _each_partition(is_under_replicated),
    ),
    gauges(
        f"{PARTITION}underminisr",
        "1: led here, with less than min.insync.replicas in sync.",
        NAMED,
        _each_partition(is_under_min_isr),
    ),
    gauges(
        f"{PARTITION}atminisr",
        "1: led here, with exactly min.insync.replicas in sync.",
        NAMED,
        _each_partition(is_at_min_isr),
    ),
    gauges(
        f"{PARTITION}insyncreplicascount",
        "Replicas in sync; 0 where it is not led here.",
        NAMED,
        _each_partition(lambda core: len(core.isr) if core.is_leader else 0),
    ),
    gauges(
        f"{PARTITION}replicascount",
        "Replicas without those that a reassignment adds; 0 where it is not led here.",
        NAMED,
        _each_partition(replication_factor),
    ),
    gauges(
        f"{PARTITION}laststableoffsetlag",
        "Offsets between last stable offset and high watermark.",
        NAMED,
        _each_partition(lambda core: core.log.high_watermark - core.log.last_stable_offset),
    ),
)


def partition_families(hosted: HostedPartitions) -> Families:
    return PARTITIONS.of(list(hosted.by_id.values()))


def _each_log(
    value_of: Callable[[UnifiedLog], float],
) -> Callable[[Sequence[tuple[Labels, UnifiedLog]]], Iterator[Sample]]:
    def samples(logs: Sequence[tuple[Labels, UnifiedLog]]) -> Iterator[Sample]:
        for labels, log in logs:
            yield labels, value_of(log)

    return samples


def _of_retention(log: UnifiedLog) -> int:
    """0 for what is copied to a remote storage, as in Kafka: `retention.bytes` bounds the remote part too."""
    config = log.config
    if log.is_tiered and not config.remote_log_copy_disable:
        return 0
    most = config.retention_bytes
    return 100 * log.size_bytes() // most if most > 0 else 0


LOGS: Metrics[Sequence[tuple[Labels, UnifiedLog]]] = Metrics(
    "Each log of a broker",
    gauges(f"{LOG}size", "Size of a log in bytes.", NAMED, _each_log(lambda log: log.size_bytes())),
    gauges(f"{LOG}numlogsegments", "Segments of a log.", NAMED, _each_log(lambda log: len(log.segments))),
    gauges(
        f"{LOG}logstartoffset", "First offset of a log.", NAMED, _each_log(lambda log: log.log_start_offset)
    ),
    gauges(
        f"{LOG}logendoffset",
        "Offset that the next record of a log gets.",
        NAMED,
        _each_log(lambda log: log.log_end_offset),
    ),
    gauges(
        f"{LOG}retentionsizeinpercent",
        "Size of a log in percent of retention.bytes; 0 without, and where the log is copied to a remote storage.",
        NAMED,
        _each_log(_of_retention),
    ),
)


def _space(manager: LogManager, at: int) -> Iterator[Sample]:
    for each in manager.directories:
        sizes = manager.space(each)
        if sizes[at] >= 0:
            yield {"logDirectory": mbean_value(each.path)}, sizes[at]


DIRECTORIES: Metrics[LogManager] = Metrics(
    "Log directories",
    histogram(
        "kafka_log_logflushstats_logflushrateandtimems",
        "ms of a flush of a log",
        lambda manager: manager.flush_times_ms,
    ),
    gauges(
        "kafkacompat_log_directory_total_bytes",
        "Bytes of the file system of a log directory. None of a directory that is offline.",
        ("logDirectory",),
        lambda manager: _space(manager, 0),
    ),
    gauges(
        "kafkacompat_log_directory_usable_bytes",
        "Bytes of the file system of a log directory that are left for the node. None of a directory that is offline.",
        ("logDirectory",),
        lambda manager: _space(manager, 1),
    ),
    gauge(
        f"{LOG_MANAGER}offlinelogdirectorycount",
        "Log directories that failed.",
        lambda manager: sum(not each.online for each in manager.directories),
    ),
    gauges(
        f"{LOG_MANAGER}logdirectoryoffline",
        "1 for a log directory that failed.",
        ("logDirectory",),
        lambda manager: [
            ({"logDirectory": mbean_value(each.path)}, not each.online) for each in manager.directories
        ],
    ),
    gauge(
        f"{LOG_MANAGER}cordonedlogdirectorycount",
        "Log directories that get no new replicas (cordoned.log.dirs).",
        lambda manager: sum(each.directory_id in manager.cordoned for each in manager.directories),
    ),
    gauges(
        f"{LOG_MANAGER}logdirectorycordoned",
        "1 for a log directory that gets no new replicas.",
        ("logDirectory",),
        lambda manager: [
            ({"logDirectory": mbean_value(each.path)}, each.directory_id in manager.cordoned)
            for each in manager.directories
        ],
    ),
)


def log_families(manager: LogManager) -> Families:
    """Series for each log but those that are copied to another directory, and the log directories."""
    logs: list[tuple[Labels, UnifiedLog]] = []
    for name, log in list(manager.logs.items()):
        logs.append(({"partition": str(name.partition), "topic": name.topic}, log))
        if len(logs) % COUNTED_A_STEP == 0:
            yield None
    yield None
    yield from LOGS.of(logs)
    yield from DIRECTORIES.of(manager)


class CleanerReading(NamedTuple):
    cleaner: LogCleaner
    manager: LogManager
    moved_bytes: int
    """What the cleaner has read and written."""
    now_ms: int
    """Monotonic."""


def _uncleanable(reading: CleanerReading, amount: Callable[[UnifiedLog], int]) -> Iterator[Sample]:
    """By directory."""
    counts: Counter[str] = Counter()
    for partition, log in reading.cleaner.uncleanable.items():
        home = reading.manager.directory_of(partition)
        if home is not None:
            counts[home.path] += amount(log)
    for each in reading.manager.directories:
        if each.online:
            yield {"logDirectory": mbean_value(each.path)}, counts[each.path]


def _dirty_bytes(log: UnifiedLog) -> int:
    """Of the closed segments."""
    first = first_dirty_offset(log)
    return sum(segment.size for segment, following in pairwise(log.segments) if following.base_offset > first)


CLEANING: Metrics[CleanerReading] = Metrics(
    "The log cleaner",
    counter(
        "kafka_utils_throttler_cleaner_io_count",
        "Bytes that the cleaner has read and written (log.cleaner.io.max.bytes.per.second).",
        lambda each: each.moved_bytes,
    ),
    gauge(
        f"{CLEANER}max_buffer_utilization_percent",
        "Share of the offset map that the last cleaning filled, in percent.",
        lambda each: int(100 * each.cleaner.meter.buffer_utilization),
    ),
    gauge(
        f"{CLEANER}max_clean_time_secs",
        "Time of the last cleaning, in seconds.",
        lambda each: each.cleaner.meter.clean_time_ms // 1000,
    ),
    gauge(
        f"{CLEANER}cleaner_recopy_percent",
        "Bytes that the last cleaning wrote, in percent of those that it read.",
        lambda each: int(100 * each.cleaner.meter.recopied),
    ),
    gauge(
        f"{CLEANER}max_compaction_delay_secs",
        "For how long the cleaning of the most overdue log is due (max.compaction.lag.ms), in seconds.",
        lambda each: each.cleaner.meter.overdue_ms // 1000,
    ),
    gauge(
        f"{CLEANER_MANAGER}max_dirty_percent",
        "Dirty share of the dirtiest log that may be cleaned, in percent.",
        lambda each: int(100 * each.cleaner.meter.dirty_ratio),
    ),
    gauge(
        f"{CLEANER_MANAGER}time_since_last_run_ms",
        "Time since the last search for logs to clean.",
        lambda each: each.now_ms - each.cleaner.meter.searched_ms,
    ),
    gauges(
        f"{CLEANER_MANAGER}uncleanable_partitions_count",
        "Partitions that the cleaner cannot read and leaves as they are.",
        ("logDirectory",),
        lambda each: _uncleanable(each, lambda log: 1),
    ),
    gauges(
        f"{CLEANER_MANAGER}uncleanable_bytes",
        "Bytes of these partitions that are not cleaned.",
        ("logDirectory",),
        lambda each: _uncleanable(each, _dirty_bytes),
    ),
)


class TrafficReading(NamedTuple):
    traffic: BrokerTraffic
    topics: Sequence[tuple[str, TopicTraffic]]


class ReadingByTopic(Protocol):
    @property
    def traffic(self) -> TrafficByTopic[Any]: ...
    @property
    def topics(self) -> Sequence[tuple[str, TopicCounters]]: ...


def topic_samples(field: str, reading: ReadingByTopic) -> Iterator[Sample]:
    yield from sum_samples(field, reading)
    for topic, counted in reading.topics:
        if value := getattr(counted, field):
            yield {"topic": topic}, value


def sum_samples(field: str, reading: ReadingByTopic) -> Iterator[Sample]:
    # What is summed is asked for anew each time: the counts of a topic that ends during the scrape would be there twice.
    yield NO_LABELS, sum(getattr(each, field) for each in reading.traffic.sums())


BY_TOPIC: Metrics[TrafficReading] = Metrics(
    "Traffic by topic, and in all without the label",
    *(
        counters(f"{TRAFFIC}{suffix}", text, ("topic",), partial(topic_samples, field))
        for suffix, field, text in (
            ("messagesin", "messages_in", "Records appended by producers."),
            ("bytesin", "bytes_in", "Bytes appended by producers."),
            ("bytesout", "bytes_out", "Bytes fetched by consumers."),
            ("bytesrejected", "bytes_rejected", "Bytes refused because they are more than a batch may have."),
            ("totalproducerequests", "produces", "Batches to be appended."),
            (
                "failedproducerequests",
                "failed_produces",
                "Batches whose append failed. As in Kafka not those that are too large or corrupt or meet a failed disk, nor what "
                "is refused before: by its structure, or because the partition is not led here.",
            ),
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
    ),
)
IN_ALL: Metrics[TrafficReading] = Metrics(
    "Traffic in all",
    *(
        counters(f"{TRAFFIC}{suffix}", text, (), partial(sum_samples, field))
        for suffix, field, text in (
            ("invalidmessagecrcrecords", "invalid_crcs", "Batches refused because of their crc."),
            (
                "invalidoffsetorsequencerecords",
                "invalid_sequences",
                "Batches refused because of their offsets or sequence number.",
            ),
            (
                "nokeycompactedtopicrecords",
                "no_keys",
                "Records without a key that compacted topics have refused.",
            ),
            ("replicationbytesin", "replication_bytes_in", "Bytes fetched from leaders."),
            ("replicationbytesout", "replication_bytes_out", "Bytes fetched by followers."),
            (
                "reassignmentbytesin",
                "reassignment_bytes_in",
                "Bytes fetched from leaders for replicas that are being added.",
            ),
            (
                "reassignmentbytesout",
                "reassignment_bytes_out",
                "Bytes fetched by followers that are being added.",
            ),
        )
    ),
)


def traffic_families(traffic: BrokerTraffic) -> Families:
    """A topic has a series from its first count on, as in Kafka."""
    reading = TrafficReading(traffic, traffic.topics())
    for metrics in (BY_TOPIC, IN_ALL):
        for family in metrics.of(reading):
            yield None
            yield family
