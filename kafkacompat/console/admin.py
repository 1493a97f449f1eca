"""One look at the cluster through the client library's AdminClient. Blocking: called in a worker thread.

Knows no rate, no view and no clock; what it finds is a Snapshot. Never alters anything.
"""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any, TypeVar

from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from kafkacompat.console.clients import common_settings, quiet_logger
from kafkacompat.console.core.snapshot import (
    NO_LEADER,
    GroupSeen,
    NodeSeen,
    PartitionSeen,
    Snapshot,
    TopicSeen,
)
from kafkacompat.console.failure import BrokerAway

LOOK_TIMEOUT_S = 10.0
"""A broker that is busy may take its time; one that is gone is noticed by probing, not by waiting."""
MAX_TOPICS = 1_000
MAX_PARTITIONS = 5_000
MAX_GROUPS = 100

Result = TypeVar("Result")
Place = tuple[str, int]


class ClusterClient:
    """Asks one cluster; look may be called again and again, also after failures."""

    __slots__ = ("_admin", "_bootstrap")

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._admin = AdminClient(common_settings(bootstrap), logger=quiet_logger())

    def look(self, now_ms: int) -> Snapshot:
        """What the cluster is now, but for sizes. BrokerAway with the reason if it does not answer."""
        try:
            cluster = _answer(self._admin.describe_cluster(request_timeout=LOOK_TIMEOUT_S))
            topics, hidden = self._topics()
            groups, groups_hidden = self._groups()
        except KafkaException as error:
            raise BrokerAway(reason_of(error)) from error
        nodes = tuple(
            NodeSeen(node.id, str(node.host), int(node.port), node.rack or None)
            for node in sorted(cluster.nodes, key=lambda node: node.id)
        )
        controller = cluster.controller.id if cluster.controller is not None else -1
        return Snapshot(
            now_ms,
            cluster.cluster_id or "",
            controller,
            nodes,
            topics,
            groups,
            topics_hidden=hidden,
            groups_hidden=groups_hidden,
        )

    def _topics(self) -> tuple[tuple[TopicSeen, ...], int]:
        names = sorted(self._admin.list_topics(timeout=LOOK_TIMEOUT_S).topics)
        shown = names[:MAX_TOPICS]
        if not shown:
            return (), 0
        asked = self._admin.describe_topics(TopicCollection(shown), request_timeout=LOOK_TIMEOUT_S)
        found = []
        for future in asked.values():
            try:
                found.append(_answer(future))
            except KafkaException as error:
                # A topic may be deleted between the list and the description.
                if _code(error) != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise
        led = [
            (topic.name, partition.id)
            for topic in found
            for partition in topic.partitions
            if partition.leader is not None and partition.leader.id != NO_LEADER
        ][:MAX_PARTITIONS]
        earliest = self._offsets(led, OffsetSpec.earliest())  # type: ignore[no-untyped-call]
        latest = self._offsets(led, OffsetSpec.latest())  # type: ignore[no-untyped-call]
        topics = tuple(
            TopicSeen(
                topic.name,
                str(topic.topic_id),
                bool(topic.is_internal),
                tuple(
                    _partition(topic.name, partition, earliest, latest)
                    for partition in sorted(topic.partitions, key=lambda partition: partition.id)
                ),
            )
            for topic in sorted(found, key=lambda topic: topic.name)
        )
        return topics, len(names) - len(shown)

    def _offsets(self, places: list[Place], which: OffsetSpec) -> dict[Place, int]:
        if not places:
            return {}
        wanted = {TopicPartition(*place): which for place in places}
        found: dict[Place, int] = {}
        for place, future in self._admin.list_offsets(wanted, request_timeout=LOOK_TIMEOUT_S).items():
            try:
                found[place.topic, place.partition] = int(_answer(future).offset)
            except KafkaException as error:
                if _is_away(error):
                    raise
        return found

    def _groups(self) -> tuple[tuple[GroupSeen, ...], int]:
        listed = _answer(self._admin.list_consumer_groups(request_timeout=LOOK_TIMEOUT_S)).valid
        listed.sort(key=lambda group: group.group_id)
        shown = listed[:MAX_GROUPS]
        if not shown:
            return (), 0
        ids = [group.group_id for group in shown]
        described = self._admin.describe_consumer_groups(ids, request_timeout=LOOK_TIMEOUT_S)
        committed = {
            group_id: self._admin.list_consumer_group_offsets(
                [ConsumerGroupTopicPartitions(group_id)], request_timeout=LOOK_TIMEOUT_S
            )[group_id]
            for group_id in ids
        }
        seen = []
        for group in shown:
            try:
                about = _answer(described[group.group_id])
                offsets = _answer(committed[group.group_id]).topic_partitions or []
            except KafkaException as error:
                # A group may end between the list and the description, and its coordinator may be moving.
                if _is_away(error):
                    raise
                continue
            seen.append(
                GroupSeen(
                    group.group_id,
                    _word(about.type),
                    _word(about.state),
                    len(about.members),
                    about.coordinator.id if about.coordinator is not None else None,
                    {
                        (place.topic, place.partition): place.offset
                        for place in offsets
                        if place.error is None and place.offset >= 0
                    },
                )
            )
        return tuple(seen), len(listed) - len(shown)


def _partition(topic: str, seen: Any, earliest: dict[Place, int], latest: dict[Place, int]) -> PartitionSeen:
    place = (topic, seen.id)
    return PartitionSeen(
        seen.id,
        NO_LEADER if seen.leader is None else seen.leader.id,
        tuple(node.id for node in seen.replicas),
        tuple(node.id for node in seen.isr),
        earliest.get(place),
        latest.get(place),
    )


def _answer(future: Future[Result]) -> Result:
    try:
        return future.result(LOOK_TIMEOUT_S * 2)
    except TimeoutError as error:
        raise BrokerAway(f"no answer in {LOOK_TIMEOUT_S * 2:.0f} s") from error


def _word(state: Any) -> str:
    return str(getattr(state, "name", state)).replace("_", " ").lower()


def _code(error: KafkaException) -> int:
    return int(error.args[0].code())


def _is_away(error: KafkaException) -> bool:
    return _code(error) in (KafkaError._TRANSPORT, KafkaError._TIMED_OUT, KafkaError._ALL_BROKERS_DOWN)


def reason_of(error: KafkaException) -> str:
    """The library's own words without its decoration."""
    said = error.args[0]
    return str(said.str() or said.name())
