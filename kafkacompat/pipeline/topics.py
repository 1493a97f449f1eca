"""The pipeline's topics: names, partitions, configs, and their creation.

Every program that writes to or reads from a topic first calls `create_missing`, so the programs may start in any
order. Result topics with a latest value per key are compacted (`cleanup.policy`).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kafkacompat.pipeline.failure import PipelineFailed, require_extra
from kafkacompat.security.cluster_address import ClusterAddress

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient, ClusterMetadata

LOGS_RAW: Final = "logs.raw"
LOGS_REJECTED: Final = "logs.rejected"
LOGS_SUMMARY: Final = "logs.summary"
ACTIVITY_PAGE_VIEWS: Final = "activity.page_views"
ACTIVITY_SEARCHES: Final = "activity.searches"
ACTIVITY_REJECTED: Final = "activity.rejected"
ACTIVITY_SESSIONS: Final = "activity.sessions"
ACTIVITY_TOP_PAGES: Final = "activity.top_pages"
ACTIVITY_VISITORS: Final = "activity.visitors"
METRICS_RAW: Final = "metrics.raw"
METRICS_REJECTED: Final = "metrics.rejected"
METRICS_WINDOWS: Final = "metrics.windows"
METRICS_LATEST: Final = "metrics.latest"
METRICS_ALERTS: Final = "metrics.alerts"
PIPELINE_PROGRESS: Final = "pipeline.progress"

ALERT_KEY: Final = ("service", "rule")
"""The fields of a record of metrics.alerts that say which alert it is about. Its key and its event id have them, and by them
readers find the last record of an alert."""

REJECTED_SUFFIX: Final = ".rejected"
"""How the name of the topic ends that has the rejected records of a job. The job's name is before it."""

LINE_BYTES_MAX: Final = 512 * 1024
"""Maximum length of a line of logs.raw. The collector cuts longer lines, and the job rejects what is longer or was
cut. The value is below `max.message.bytes` (1 MiB), so a broker with default settings accepts every line."""

RECORD_BYTES_MAX: Final = 64 * 1024
"""Maximum length of a record that is no line of logs. A longer one is rejected."""

OVERSIZED: Final = "oversized record"
"""Why a longer line is rejected, and a longer record of any other topic."""

SOURCE_HEADER: Final = "source"
"""The header of a record of logs.raw with the host and the path of the line's file, as in its key."""

FILE_HEADER: Final = "file"
"""The header of a record of logs.raw with the identity of the line's file, which a rename keeps."""

POSITION_HEADER: Final = "position"
"""The header of a record of logs.raw with the byte offset of the line in its file, in decimal. The event id is file@position."""

CUT_HEADER: Final = "cut_from_bytes"
"""The header of a record of logs.raw with only the beginning of a line: the length of the line in its file, in decimal."""

FIELDS_HEADER: Final = "fields"
"""The header of a record of logs.raw with the names of the `#Fields` line that is in force in the file for this line, if there is
one."""

DEFAULT_PARTITIONS: Final = 3
BROKERS_REPLICATION: Final = -1
"""The protocol's value for the broker's default.replication.factor."""
DEFAULT_TIMEOUT_S: Final = 15.0
ASK_AGAIN_S: Final = 0.1
ZERO_TOPIC_ID: Final = "AAAAAAAAAAAAAAAAAAAAAA"
"""The id that the client library returns if the broker has none."""

# Spark's source converts timestamps to microseconds. A timestamp that overflows ends the query, whatever the jobs do.
# With this setting the broker refuses such records. Replays of old events stay far below the limit.
EVENTS_AGE_MAX_MS: Final = 100 * 365 * 24 * 3600 * 1000
EVENTS_RETENTION_MS: Final = 7 * 24 * 3600 * 1000
RESULTS_RETENTION_MS: Final = 2 * 24 * 3600 * 1000
# Compaction leaves out the active segment. Small, short segments keep the topic near one record per key.
RESULTS_SEGMENT_MS: Final = 10 * 60 * 1000
RESULTS_SEGMENT_BYTES: Final = 16 * 1024 * 1024

EVENTS: Final = {
    "cleanup.policy": "delete",
    "retention.ms": str(EVENTS_RETENTION_MS),
    "message.timestamp.before.max.ms": str(EVENTS_AGE_MAX_MS),
}
LATEST: Final = {
    "cleanup.policy": "compact",
    "segment.ms": str(RESULTS_SEGMENT_MS),
    "segment.bytes": str(RESULTS_SEGMENT_BYTES),
    "min.cleanable.dirty.ratio": "0.3",
}
RESULTS: Final = {
    **LATEST,
    "cleanup.policy": "compact,delete",
    "retention.ms": str(RESULTS_RETENTION_MS),
}

CONFIGS: Final[dict[str, dict[str, str]]] = {
    LOGS_RAW: EVENTS,
    LOGS_REJECTED: EVENTS,
    LOGS_SUMMARY: RESULTS,
    ACTIVITY_PAGE_VIEWS: EVENTS,
    ACTIVITY_SEARCHES: EVENTS,
    ACTIVITY_REJECTED: EVENTS,
    ACTIVITY_SESSIONS: RESULTS,
    ACTIVITY_TOP_PAGES: RESULTS,
    ACTIVITY_VISITORS: RESULTS,
    METRICS_RAW: EVENTS,
    METRICS_REJECTED: EVENTS,
    METRICS_WINDOWS: RESULTS,
    METRICS_LATEST: LATEST,
    METRICS_ALERTS: EVENTS,
    PIPELINE_PROGRESS: RESULTS,
}
"""Every topic of the pipeline with its topic configs."""


INPUTS: Final = (LOGS_RAW, ACTIVITY_PAGE_VIEWS, ACTIVITY_SEARCHES, METRICS_RAW)
"""The topics to which others write, and that kafkacompat's jobs read."""


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """One topic to create. A replication of -1 means the broker's default.replication.factor."""

    name: str
    partitions: int
    replication: int
    configs: dict[str, str]


def plans(
    names: Iterable[str] | None = None,
    partitions: int = DEFAULT_PARTITIONS,
    replication: int = BROKERS_REPLICATION,
    configs: Mapping[str, Mapping[str, str]] = CONFIGS,
) -> list[TopicPlan]:
    """Return plans for these topics, by default for all of kafkacompat's jobs. A name that is given twice has one plan.

    A topic that is none of `configs` has those of one for events.
    """
    wanted = CONFIGS if names is None else dict.fromkeys(names)
    return [TopicPlan(name, partitions, replication, dict(configs.get(name, EVENTS))) for name in wanted]


def create_missing(
    bootstrap: ClusterAddress, topics: Iterable[TopicPlan], timeout_s: float = DEFAULT_TIMEOUT_S
) -> list[str]:
    """Create the topics that do not exist. Return the names of the created ones.

    Existing topics are not changed, whatever their partitions and configs are. Raises PipelineFailed if no broker
    answers at `bootstrap` (host:port, separated by commas) within timeout_s, or if it refuses.
    """
    require_extra("spark", "confluent_kafka")
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    admin = AdminClient({**bootstrap.librdkafka(), "log_level": 0, "client.id": "kafkacompat-pipeline"})
    present = _metadata(admin, bootstrap, timeout_s).topics
    missing = [plan for plan in topics if plan.name not in present]
    if not missing:
        return []
    requests = [
        NewTopic(
            plan.name,
            num_partitions=plan.partitions,
            replication_factor=plan.replication,
            config=plan.configs,
        )
        for plan in missing
    ]
    created = []
    for name, future in admin.create_topics(requests, request_timeout=timeout_s).items():
        try:
            future.result()
            created.append(name)
        except KafkaException as error:
            # Another command of the pipeline may have created it at the same time.
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise PipelineFailed(f"topic {name} cannot be created: {error.args[0].str()}") from None
    return created


def cluster_of(bootstrap: ClusterAddress, timeout_s: float = DEFAULT_TIMEOUT_S) -> str:
    """Return the cluster's id. Raises PipelineFailed if no broker answers at `bootstrap` within timeout_s."""
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({**bootstrap.librdkafka(), "log_level": 0, "client.id": "kafkacompat-pipeline"})
    return str(_metadata(admin, bootstrap, timeout_s).cluster_id)


def _metadata(admin: AdminClient, bootstrap: ClusterAddress, timeout_s: float) -> ClusterMetadata:
    from confluent_kafka import KafkaException

    try:
        return admin.list_topics(timeout=timeout_s)
    except KafkaException as error:
        raise PipelineFailed(f"no broker answers at {bootstrap}: {error.args[0].str()}") from None


def identity_of(
    bootstrap: ClusterAddress,
    names: Iterable[str],
    timeout_s: float = DEFAULT_TIMEOUT_S,
    *,
    may_lack: bool = False,
) -> tuple[str, dict[str, str]]:
    """Return the cluster's id, and the id of each of these topics by name. Brokers without topic ids return none.

    Some brokers may not know a newly created topic yet, so requests are repeated until timeout_s. Raises
    PipelineFailed after that. may_lack: topics that do not exist are left out.
    """
    from confluent_kafka import KafkaError, KafkaException, TopicCollection
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({**bootstrap.librdkafka(), "log_level": 0, "client.id": "kafkacompat-pipeline"})
    deadline_s = time.monotonic() + timeout_s
    wanted = list(names)
    while True:
        try:
            cluster_id = str(admin.list_topics(timeout=timeout_s).cluster_id)
            told = admin.describe_topics(TopicCollection(wanted), request_timeout=timeout_s)
            ids: dict[str, str] = {}
            for name, future in told.items():
                try:
                    ids[name] = str(future.result().topic_id)
                except KafkaException as error:
                    if not may_lack or error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                        raise
        except KafkaException as error:
            if time.monotonic() >= deadline_s:
                raise PipelineFailed(
                    f"topics {', '.join(wanted)} cannot be described: {error.args[0].str()}"
                ) from None
            time.sleep(ASK_AGAIN_S)
            continue
        return cluster_id, {
            name: "" if topic_id == ZERO_TOPIC_ID else topic_id for name, topic_id in ids.items()
        }
