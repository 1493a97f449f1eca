"""Spark's streaming queries as consumer groups: each query commits to a group what it has finished, so that its lag shows
in Kafka's tools.

    commits = GroupCommits(kafka_options)
    spark.streams.addListener(commits)

This works with any program of PySpark and any Kafka. `kafka_options` are the options that Spark's Kafka source gets:
kafka.bootstrap.servers, and kafka.security.protocol and the like. The group of a query is its name.

Spark does not commit. It reads on from its checkpoint, and a query never reads what a group has committed, unless
`starting_offsets` gives it to a query without a checkpoint. So a commit is for people, and is never ahead of the
checkpoint: Spark reports the progress of a batch after commits/N of the checkpoint is written (micro-batches, without
asyncProgressTrackingEnabled). A program that dies between the two leaves the group one batch behind. `finished_in`
reads the checkpoint, to catch up at the next start.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.streaming.listener import StreamingQueryListener

from kafkacompat.pipeline.file_systems import names_in, read_text
from kafkacompat.security.cluster_address import ClusterAddress

if TYPE_CHECKING:
    from concurrent.futures import Future

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

OPTION_PREFIX: Final = "kafka."
SERVERS: Final = "bootstrap.servers"
TIMEOUT_S: Final = 15.0
CLOSE_TIMEOUT_S: Final = 5.0
RETRY_S: Final = 5.0
RENEW_S: Final = 3600.0
"""An unchanged position is committed again after this time: a broker forgets the commits of a group without members after
offsets.retention.minutes."""
OTHERWISE: Final = {"earliest": -2, "latest": -1}
"""What Spark's JSON of offsets has for a partition without an offset."""

Offsets = dict[tuple[str, int], int]
"""The next offset to read, by topic and partition."""


@dataclass(frozen=True, slots=True)
class Finished:
    """A batch that a query has finished, and the offsets up to which it has read then."""

    query: str
    query_id: str
    batch: int
    offsets: Offsets

    @property
    def metadata(self) -> str:
        """What is committed with each offset."""
        return metadata_of(self.query, self.query_id, self.batch)


def metadata_of(query: str, query_id: str, batch: int) -> str:
    """Return the metadata of an offset: JSON with the query's name, the id that its checkpoint has, and the batch.

    confluent-kafka adds a byte 0 on the way to the broker, and removes it when it reads.
    """
    return json.dumps({"query": query, "id": query_id, "batch": batch}, separators=(",", ":"))


def batch_of(metadata: str | None, query_id: str) -> int | None:
    """Return the batch in the metadata of an offset. None if there is none of the query with this id."""
    try:
        told: Any = json.loads((metadata or "").rstrip("\0"))
    except ValueError:
        return None
    if not isinstance(told, dict) or told.get("id") != query_id or not isinstance(told.get("batch"), int):
        return None
    return int(told["batch"])


def address_of_options(options: Mapping[str, str]) -> ClusterAddress:
    """Return the cluster of the options of Spark's Kafka source or sink. Other options than kafka.* are ignored. KeyError
    without kafka.bootstrap.servers."""
    properties = {
        name.removeprefix(OPTION_PREFIX): value
        for name, value in options.items()
        if name.startswith(OPTION_PREFIX)
    }
    if SERVERS not in properties:
        raise KeyError(f"the options have no {OPTION_PREFIX}{SERVERS}")
    return ClusterAddress(properties.pop(SERVERS), properties)


def finished_by(progress: Mapping[str, Any]) -> Finished | None:
    """Return what a query has finished by its StreamingQueryProgress. None if it reads no topics, or none yet."""
    offsets = _offsets(source.get("endOffset") for source in progress.get("sources", ()))
    # A query without new records reports the batch that it would run next. Such a report has no time of a batch.
    is_batch = "addBatch" in progress.get("durationMs", {})
    batch = int(progress["batchId"]) - (0 if is_batch else 1)
    if not offsets or batch < 0:
        return None
    query_id = str(progress["id"])
    return Finished(str(progress.get("name") or query_id), query_id, batch, offsets)


def finished_in(session: SparkSession, checkpoint: str, query: str) -> Finished | None:
    """Return what a query has finished by the logs in the folder of its checkpoint. None if there is no finished batch, or
    it reads no topics."""
    ended = [int(name) for name in names_in(session, f"{checkpoint}/commits") if name.isdigit()]
    if not ended:
        return None
    batch = max(ended)
    planned = read_text(session, f"{checkpoint}/offsets/{batch}")
    identity = read_text(session, f"{checkpoint}/metadata")
    if planned is None or identity is None:
        return None
    offsets = logged_offsets(planned)
    return Finished(query, str(json.loads(identity)["id"]), batch, offsets) if offsets else None


def logged_offsets(planned: str) -> Offsets:
    """Return the offsets of topics in the text of a file offsets/N: a version, metadata, and a line for each source."""
    found: list[Any] = []
    for line in planned.splitlines()[2:]:
        try:
            found.append(json.loads(line))
        except ValueError:
            # A source without offsets has a dash.
            continue
    return _offsets(found)


def _offsets(sources: Iterable[Any]) -> Offsets:
    """Return the offsets of the sources that are Kafka's: {topic: {partition: offset}}."""
    found: Offsets = {}
    for source in sources:
        if not isinstance(source, dict):
            continue
        for topic, partitions in source.items():
            if isinstance(partitions, dict):
                for partition, offset in partitions.items():
                    if partition.isdigit() and isinstance(offset, int) and offset >= 0:
                        # Two sources may read one partition. What both have read is finished.
                        place = (topic, int(partition))
                        found[place] = min(offset, found.get(place, offset))
    return found


class _Group:
    """One group: what is to be committed, and the request that is under way."""

    __slots__ = ("committed", "next", "refusal", "sent", "sent_s", "under_way")

    def __init__(self) -> None:
        self.next: Finished | None = None
        self.sent: Finished | None = None
        self.sent_s = 0.0
        self.under_way: Future[Any] | None = None
        self.committed: Finished | None = None
        self.refusal: str | None = None


class GroupCommits(StreamingQueryListener):
    """Commits what queries have finished. No call waits for the broker, except `close`.

    A group has no members, and at most one commit under way. A later one replaces the one that waits. A commit that is
    refused is told once, and tried again every few seconds. The query goes on.
    """

    def __init__(
        self,
        kafka_options: Mapping[str, str],
        prefix: str = "",
        say: Callable[[str], object] = logging.getLogger(__name__).warning,
    ) -> None:
        """`prefix` is put before the names of queries. `say` gets what is refused, as one line."""
        from confluent_kafka.admin import AdminClient

        settings = address_of_options(kafka_options).librdkafka()
        self._admin = AdminClient({**settings, "client.id": "kafkacompat-groups", "log_level": 0})
        self._prefix = prefix
        self._say = say
        # Spark calls from threads of its own.
        self._lock = threading.RLock()
        self._groups: dict[str, _Group] = {}

    @property
    def committed(self) -> dict[str, Finished]:
        """What was committed last, by group."""
        with self._lock:
            self.poll()
            found = {name: group.committed for name, group in self._groups.items()}
        return {name: each for name, each in found.items() if each is not None}

    @property
    def refusals(self) -> dict[str, str]:
        """Why the last commit of a group was refused, by group, as long as it is."""
        with self._lock:
            self.poll()
            found = {name: group.refusal for name, group in self._groups.items()}
        return {name: each for name, each in found.items() if each is not None}

    def commit(self, finished: Finished) -> None:
        """Commit to the query's group, if that is not what it has."""
        with self._lock:
            group = self._groups.setdefault(f"{self._prefix}{finished.query}", _Group())
            group.next = finished
            self.poll()

    def poll(self) -> None:
        """Take the answers that have come, and send what waits."""
        with self._lock:
            for name, group in self._groups.items():
                if group.under_way is not None and group.under_way.done():
                    self._take(name, group, group.under_way)
                is_due = group.refusal is None or time.monotonic() - group.sent_s >= RETRY_S
                if group.under_way is None and group.next is not None and is_due:
                    self._send(name, group, group.next)

    def renew(self) -> None:
        """Commit again what a broker may forget, and send what waits."""
        with self._lock:
            for group in self._groups.values():
                if group.next is None and group.under_way is None:
                    group.next = group.committed
            self.poll()

    def close(self, timeout_s: float = CLOSE_TIMEOUT_S) -> None:
        """Wait for what is under way and what waits. What was refused is tried once more."""
        from concurrent.futures import wait

        end_s = time.monotonic() + timeout_s
        with self._lock:
            self.poll()
            for name, group in self._groups.items():
                if group.under_way is None and group.next is not None:
                    self._send(name, group, group.next)
            while under_way := [
                each.under_way for each in self._groups.values() if each.under_way is not None
            ]:
                left_s = end_s - time.monotonic()
                if left_s <= 0:
                    return
                wait(under_way, left_s)
                self.poll()

    def _send(self, name: str, group: _Group, finished: Finished) -> None:
        from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition

        now_s = time.monotonic()
        group.next = None
        if finished == group.committed and now_s - group.sent_s < RENEW_S:
            return
        offsets = [
            TopicPartition(topic, partition, offset, metadata=finished.metadata)
            for (topic, partition), offset in sorted(finished.offsets.items())
        ]
        group.sent, group.sent_s = finished, now_s
        asked = [ConsumerGroupTopicPartitions(name, offsets)]
        try:
            group.under_way = self._admin.alter_consumer_group_offsets(asked, request_timeout=TIMEOUT_S)[name]
        except KafkaException as error:
            self._refused(name, group, error.args[0].str())

    def _take(self, name: str, group: _Group, answer: Future[Any]) -> None:
        from confluent_kafka import KafkaError, KafkaException

        group.under_way = None
        try:
            refused = [each.error for each in answer.result().topic_partitions if each.error is not None]
        except KafkaException as error:
            refused = [error.args[0]]
        if not refused:
            group.committed, group.refusal = group.sent, None
            return
        if any(error.code() == KafkaError.UNKNOWN_MEMBER_ID for error in refused):
            why = "it has members, and the group of a query must have none: choose another name or prefix"
        else:
            why = refused[0].str()
        self._refused(name, group, why)

    def _refused(self, name: str, group: _Group, why: str) -> None:
        if group.next is None:
            group.next = group.sent
        if group.refusal != why:
            group.refusal = why
            self._say(f"the offsets of a query cannot be committed to group {name}: {why}; the query goes on")

    # What Spark calls.

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Nothing is finished."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        finished = finished_by(json.loads(event.progress.json))
        if finished is not None:
            self.commit(finished)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Try again what was refused, and renew what may be forgotten."""
        self.renew()

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        self.close()


def starting_offsets(
    kafka_options: Mapping[str, str], group: str, topics: Iterable[str], otherwise: str = "earliest"
) -> str:
    """Return what a group has committed of these topics, for Spark's option startingOffsets.

    `otherwise`: earliest or latest, for partitions without a commit. Spark ignores the option if the query has a
    checkpoint. Raises LookupError for a topic that does not exist, and confluent_kafka's KafkaException.
    """
    from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicCollection
    from confluent_kafka.admin import AdminClient

    settings = address_of_options(kafka_options).librdkafka()
    admin = AdminClient({**settings, "client.id": "kafkacompat-groups", "log_level": 0})
    wanted: dict[str, dict[str, int]] = {}
    # `list_topics` would create a topic that does not exist, where brokers allow it.
    told = admin.describe_topics(TopicCollection(list(topics)), request_timeout=TIMEOUT_S)
    for topic, answer in told.items():
        try:
            partitions = sorted(each.id for each in answer.result().partitions)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise
            raise LookupError(f"topic {topic} does not exist") from None
        wanted[topic] = {str(number): OTHERWISE[otherwise] for number in partitions}
    asked = admin.list_consumer_group_offsets(
        [ConsumerGroupTopicPartitions(group)], require_stable=True, request_timeout=TIMEOUT_S
    )
    for each in asked[group].result().topic_partitions:
        if each.topic in wanted and str(each.partition) in wanted[each.topic] and each.offset >= 0:
            wanted[each.topic][str(each.partition)] = each.offset
    return json.dumps(wanted, separators=(",", ":"))
