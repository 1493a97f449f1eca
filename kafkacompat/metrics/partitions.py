"""Partitions of a broker: ReplicaManager, Partition, Log and LogManager of Kafka's MBeans."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkacompat.metrics.families import COUNTED_A_STEP, Families, Labels, Sample, gauge, gauges, mbean_value
from kafkacompat.metrics.histograms import histogram_families

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from kafkacompat.log.log_manager import LogManager
    from kafkacompat.log.unified_log import UnifiedLog
    from kafkacompat.partition.hosted_partitions import HostedPartitions
    from kafkacompat.partition.partition import Partition


LATE_MS = 300_000
"""A transaction is late so long after the longest time that one may take, as in Kafka."""


def replica_families(hosted: HostedPartitions, late_before_ms: int) -> Families:
    """Counts over the partitions of this broker. `late_before_ms`: a transaction is late if its producer has written
    nothing since then, by the wall clock."""
    cores = list(hosted.by_id.values())
    led = under_replicated = under_min_isr = at_min_isr = reassigning = producers = late = 0
    topics = hosted.image.topics
    for number, core in enumerate(cores, 1):
        producers += core.log.producer_count
        if core.is_leader:
            led += 1
            under_replicated += is_under_replicated(core)
            under_min_isr += is_under_min_isr(core)
            at_min_isr += is_at_min_isr(core)
            late += 0 < core.log.oldest_open_timestamp_ms() < late_before_ms
            topic, partition = core.topic_partition
            known = topics.get(topic)
            image = None if known is None else known.partitions.get(partition)
            reassigning += image is not None and bool(image.adding_replicas or image.removing_replicas)
        if number % COUNTED_A_STEP == 0:
            yield None
    name = "kafka_server_replicamanager_"
    offline = hosted.offline_count
    yield gauge(
        f"{name}partitioncount", "Partitions that this broker has a replica of.", len(cores) + offline
    )
    yield gauge(f"{name}produceridcount", "Producer ids that the logs remember, by partition.", producers)
    yield gauge(
        f"{name}partitionswithlatetransactionscount",
        "Led partitions with a transaction that is open for longer than any may be: its producer or coordinator hangs.",
        late,
    )
    yield gauge(f"{name}leadercount", "Partitions that this broker leads.", led)
    yield gauge(
        f"{name}underreplicatedpartitions", "Led partitions with replicas out of sync.", under_replicated
    )
    yield gauge(
        f"{name}underminisrpartitioncount",
        "Led partitions with less than min.insync.replicas in sync.",
        under_min_isr,
    )
    yield gauge(
        f"{name}atminisrpartitioncount",
        "Led partitions with exactly min.insync.replicas in sync.",
        at_min_isr,
    )
    yield gauge(f"{name}reassigningpartitions", "Led partitions that are being reassigned.", reassigning)
    yield gauge(f"{name}offlinereplicacount", "Replicas in log directories that are offline.", offline)


def is_under_replicated(core: Partition) -> bool:
    return core.is_leader and len(core.isr) < len(core.replicas)


def is_under_min_isr(core: Partition) -> bool:
    return core.is_leader and not core.has_min_isr()


def is_at_min_isr(core: Partition) -> bool:
    """Of a partition with fewer replicas than min.insync.replicas, all of them count as that minimum."""
    least = min(core.log.config.min_insync_replicas, len(core.replicas))
    return core.is_leader and len(core.isr) == least


def partition_families(hosted: HostedPartitions) -> Families:
    """Series for each partition."""
    cores = list(hosted.by_id.values())
    name = "kafka_cluster_partition_"
    shown: tuple[tuple[str, str, Callable[[Partition], float]], ...] = (
        ("underreplicated", "1: led here, and replicas are out of sync.", is_under_replicated),
        ("underminisr", "1: led here, with less than min.insync.replicas in sync.", is_under_min_isr),
        ("atminisr", "1: led here, with exactly min.insync.replicas in sync.", is_at_min_isr),
        ("insyncreplicascount", "Replicas in sync; 0 where it is not led here.", _in_sync),
        ("replicascount", "Replicas; 0 where it is not led here.", _replicas),
        ("laststableoffsetlag", "Offsets between last stable offset and high watermark.", _stable_lag),
    )
    for suffix, text, value_of in shown:
        yield gauges(f"{name}{suffix}", text, _each_partition(cores, value_of))


def _in_sync(core: Partition) -> int:
    return len(core.isr) if core.is_leader else 0


def _replicas(core: Partition) -> int:
    return len(core.replicas) if core.is_leader else 0


def _stable_lag(core: Partition) -> int:
    return core.log.high_watermark - core.log.last_stable_offset


def _each_partition(cores: Sequence[Partition], value_of: Callable[[Partition], float]) -> Iterator[Sample]:
    for core in cores:
        topic, partition = core.topic_partition
        yield {"partition": str(partition), "topic": topic}, value_of(core)


def log_families(manager: LogManager) -> Families:
    """Series for each log but those that are copied to another directory, and the log directories."""
    logs = [
        ({"partition": str(name.partition), "topic": name.topic}, log) for name, log in manager.logs.items()
    ]
    yield None
    name = "kafka_log_log_"
    shown: tuple[tuple[str, str, Callable[[UnifiedLog], float]], ...] = (
        ("size", "Size of a log in bytes.", lambda log: log.size_bytes()),
        ("numlogsegments", "Segments of a log.", lambda log: len(log.segments)),
        ("logstartoffset", "First offset of a log.", lambda log: log.log_start_offset),
        ("logendoffset", "Offset that the next record of a log gets.", lambda log: log.log_end_offset),
        ("retentionsizeinpercent", "Size of a log in percent of retention.bytes; 0 without.", _of_retention),
    )
    for suffix, text, value_of in shown:
        yield gauges(f"{name}{suffix}", text, _each_log(logs, value_of))
    yield from histogram_families(
        "kafka_log_logflushstats_logflushrateandtimems", "ms of a flush of a log", manager.flush_times_ms
    )
    space = [(mbean_value(each.path), manager.space(each)) for each in manager.directories]
    for at, kind in enumerate(("total", "usable")):
        yield gauges(
            f"kafkacompat_log_directory_{kind}_bytes",
            f"Bytes of the file system of a log directory: {kind}.",
            [({"logDirectory": path}, sizes[at]) for path, sizes in space if sizes[at] >= 0],
        )
    name = "kafka_log_logmanager_"
    offline = [(mbean_value(each.path), not each.online) for each in manager.directories]
    yield gauge(
        f"{name}offlinelogdirectorycount",
        "Log directories that failed.",
        sum(is_offline for _, is_offline in offline),
    )
    yield gauges(
        f"{name}logdirectoryoffline",
        "1 for a log directory that failed.",
        [({"logDirectory": path}, is_offline) for path, is_offline in offline],
    )
    cordoned = [
        (mbean_value(each.path), each.directory_id in manager.cordoned) for each in manager.directories
    ]
    yield gauge(
        f"{name}cordonedlogdirectorycount",
        "Log directories that get no new replicas (cordoned.log.dirs).",
        sum(is_cordoned for _, is_cordoned in cordoned),
    )
    yield gauges(
        f"{name}logdirectorycordoned",
        "1 for a log directory that gets no new replicas.",
        [({"logDirectory": path}, is_cordoned) for path, is_cordoned in cordoned],
    )


def _of_retention(log: UnifiedLog) -> int:
    most = log.config.retention_bytes
    return 100 * log.size_bytes() // most if most > 0 else 0


def _each_log(
    logs: Sequence[tuple[Labels, UnifiedLog]], value_of: Callable[[UnifiedLog], float]
) -> Iterator[Sample]:
    for labels, log in logs:
        yield labels, value_of(log)
