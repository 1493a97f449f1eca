"""Reads the cluster's state once through the client library's AdminClient. Blocking: called in a worker thread.

The result is a Snapshot. This module knows no rates, no views and no clock, and never changes the cluster.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_right
from concurrent.futures import Future
from typing import Any, TypeVar

from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec

from kafkacompat.console.clients import common_settings, quiet_logger
from kafkacompat.console.core.result_topics import RESULT_TOPICS
from kafkacompat.console.core.snapshot import (
    MAX_MEMBERS_SHOWN,
    NO_LEADER,
    GroupSeen,
    MemberSeen,
    NodeSeen,
    PartitionSeen,
    Places,
    Snapshot,
    TopicSeen,
)
from kafkacompat.console.failure import BrokerAway
from kafkacompat.security.cluster_address import ClusterAddress

LOOK_TIMEOUT_S = 10.0
"""A busy broker may need this long. A broker that is gone is noticed by a probe (looking.py), not by this timeout."""
DETAIL_TIMEOUT_S = 4.0
"""Offsets and groups are requested from many nodes. Answers that come later are replaced by those of the previous look."""
MAX_TOPICS = 1_000
"""The result topics are always included, because without them the page would be empty."""
MAX_PARTITIONS = 5_000
GROUPS_A_LOOK = 100
MAX_GROUPS = 5_000
"""Groups whose lag is shown. If they are too many for one look, each lag is as old as the looks that it takes to ask for all."""
UNREADABLE = (RuntimeError, ValueError, TypeError, SystemError)
"""Exceptions of the library for answers that it cannot represent: a name that is not UTF-8, or one it did not ask for."""

Result = TypeVar("Result")
Place = tuple[str, int]
Offsets = dict[Place, int]


class ClusterClient:
    """Reads the state of one cluster. `look` may be called any number of times, also after failures."""

    __slots__ = ("_admin", "_asked_last", "_earliest", "_groups", "_ids", "_latest")

    def __init__(self, bootstrap: ClusterAddress) -> None:
        self._admin = AdminClient(common_settings(bootstrap), logger=quiet_logger())
        self._earliest: Offsets = {}
        self._latest: Offsets = {}
        self._groups: dict[str, GroupSeen] = {}
        self._asked_last = ""
        """The last group, in order of names, that the previous look asked about."""
        self._ids: dict[str, str] = {}

    def look(self, now_ms: int) -> Snapshot:
        """Return the cluster's current state without sizes. Raises BrokerAway with the reason if the broker does not answer."""
        try:
            asked = self._admin.describe_cluster(request_timeout=LOOK_TIMEOUT_S)
            listed_topics = self._admin.list_topics(timeout=LOOK_TIMEOUT_S).topics
            names = sorted(listed_topics, key=lambda name: (name not in RESULT_TOPICS, name))
            cluster = _answer(asked)
            described = self._describe(names[:MAX_TOPICS])
            listed = self._admin.list_consumer_groups(request_timeout=DETAIL_TIMEOUT_S)
            self._ask_offsets(described)
            groups, groups_hidden = self._look_at_groups(listed)
        except KafkaException as error:
            raise BrokerAway(reason_of(error)) from error
        nodes = tuple(
            NodeSeen(node.id, str(node.host), int(node.port), node.rack or None)
            for node in sorted(cluster.nodes, key=lambda node: node.id)
        )
        topics = tuple(
            TopicSeen(
                topic.name,
                str(topic.topic_id),
                bool(topic.is_internal),
                tuple(
                    _partition(topic.name, partition, self._earliest, self._latest)
                    for partition in sorted(topic.partitions, key=lambda partition: partition.id)
                ),
            )
            for topic in sorted(described, key=lambda topic: topic.name)
        )
        return Snapshot(
            now_ms,
            cluster.cluster_id or "",
            cluster.controller.id if cluster.controller is not None else -1,
            nodes,
            topics,
            groups,
            topics_hidden=len(names) - len(topics),
            groups_hidden=groups_hidden,
        )

    def _describe(self, names: list[str]) -> list[Any]:
        if not names:
            return []
        asked = self._admin.describe_topics(TopicCollection(names), request_timeout=LOOK_TIMEOUT_S)
        found, refused = [], None
        for future in asked.values():
            try:
                found.append(_answer(future))
            except KafkaException as error:
                # A topic may be deleted between the list and the description. For some topics the description fails.
                if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    refused = error
        if refused is not None and not found:
            raise refused
        return found

    def _ask_offsets(self, topics: list[Any]) -> None:
        led = [
            (topic.name, partition.id)
            for topic in topics
            for partition in topic.partitions
            if partition.leader is not None and partition.leader.id != NO_LEADER
        ][:MAX_PARTITIONS]
        # Offsets of an earlier topic with the same name are not reused.
        ids = {topic.name: str(topic.topic_id) for topic in topics}
        same = [place for place in led if self._ids.get(place[0]) == ids[place[0]]]
        self._ids = ids
        self._earliest = {place: self._earliest[place] for place in same if place in self._earliest}
        self._latest = {place: self._latest[place] for place in same if place in self._latest}
        if not led:
            return
        asked = [
            (known, self._admin.list_offsets(wanted, request_timeout=DETAIL_TIMEOUT_S))
            for known, which in (
                (self._earliest, OffsetSpec.earliest()),  # type: ignore[no-untyped-call]
                (self._latest, OffsetSpec.latest()),  # type: ignore[no-untyped-call]
            )
            for wanted in [{TopicPartition(*place): which for place in led}]
        ]
        for known, futures in asked:
            for place, future in futures.items():
                with contextlib.suppress(KafkaException):
                    known[place.topic, place.partition] = int(_answer(future).offset)

    def _look_at_groups(self, listed: Future[Any]) -> tuple[tuple[GroupSeen, ...], int]:
        try:
            answer = _answer(listed)
        except KafkaException:
            return tuple(self._groups.values()), 0
        names = {group.group_id for group in answer.valid}
        if answer.errors:
            # A node that did not answer may coordinate groups that are already known.
            names |= self._groups.keys()
        self._groups = {name: seen for name, seen in self._groups.items() if name in names}
        shown = self._next_groups(names)
        described: dict[str, Future[Any]] = {}
        if shown:
            described = self._admin.describe_consumer_groups(shown, request_timeout=DETAIL_TIMEOUT_S)
        committed = {
            name: self._admin.list_consumer_group_offsets(
                [ConsumerGroupTopicPartitions(name)], request_timeout=DETAIL_TIMEOUT_S
            )[name]
            for name in shown
        }
        for name in shown:
            with contextlib.suppress(KafkaException):
                self._groups[name] = _group(name, _answer(described[name]), _answer(committed[name]))
        seen = tuple(self._groups[name] for name in sorted(self._groups))
        return seen, len(names) - len(seen)

    def _next_groups(self, names: set[str]) -> list[str]:
        """Return the groups for this look. If there are more than GROUPS_A_LOOK, all groups take turns."""
        # Kafka accepts commits of the group "" (KIP-289), but the library refuses to ask about it.
        known = sorted(names - {""})[:MAX_GROUPS]
        start = bisect_right(known, self._asked_last) if len(known) > GROUPS_A_LOOK else 0
        shown = [*known[start:], *known[:start]][:GROUPS_A_LOOK]
        self._asked_last = shown[-1] if shown else ""
        return shown


def _group(name: str, about: Any, offsets: Any) -> GroupSeen:
    return GroupSeen(
        name,
        _word(about.type),
        _word(about.state),
        len(about.members),
        about.coordinator.id if about.coordinator is not None else None,
        {
            (place.topic, place.partition): place.offset
            for place in offsets.topic_partitions or []
            if place.error is None and place.offset >= 0
        },
        about.partition_assignor or "",
        tuple(
            MemberSeen(
                member.member_id,
                member.client_id or "",
                member.host or "",
                member.group_instance_id,
                _places(member.assignment),
                None if member.target_assignment is None else _places(member.target_assignment),
            )
            for member in sorted(about.members, key=lambda each: each.member_id)[:MAX_MEMBERS_SHOWN]
        ),
    )


def _places(assignment: Any) -> Places:
    found = () if assignment is None else assignment.topic_partitions
    return tuple(sorted((place.topic, place.partition) for place in found))


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
    except UNREADABLE as error:
        said = f"the client library cannot read the answer: {error}"
        raise KafkaException(KafkaError(KafkaError._BAD_MSG, said)) from error


def _word(state: Any) -> str:
    return str(getattr(state, "name", state)).replace("_", " ").lower()


def reason_of(error: KafkaException) -> str:
    """Return the library's message without its prefix and suffix."""
    said = error.args[0]
    return str(said.str() or said.name())
