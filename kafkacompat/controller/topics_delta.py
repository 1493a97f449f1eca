"""Changes of topics and their partitions by records. Pure.

The map of topics is copied before the first write, a topic's partitions before the first change of one of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from kafkacompat.controller.image import MetadataImage, PartitionRegistration, TopicChanges, TopicImage
from kafkacompat.controller.records import ReplayError
from kafkacompat.ids import DIRECTORY_MIGRATING, Uuid

if TYPE_CHECKING:
    from kafkacompat.wire.messages.clear_elr_record import ClearElrRecord
    from kafkacompat.wire.messages.partition_change_record import PartitionChangeRecord
    from kafkacompat.wire.messages.partition_record import PartitionRecord
    from kafkacompat.wire.messages.remove_topic_record import RemoveTopicRecord
    from kafkacompat.wire.messages.topic_record import TopicRecord

RECOVERING = 1
"""The leader recovery state of a leader that was elected uncleanly (KIP-704)."""


class TopicsDelta:
    __slots__ = (
        "_base",
        "_eligible_elections",
        "_ids",
        "_partitions",
        "_topics",
        "_topics_by_id",
        "_unclean_elections",
    )

    def __init__(self, base: MetadataImage) -> None:
        self._base = base
        self._topics: dict[str, TopicImage] | None = None
        self._topics_by_id: dict[Uuid, TopicImage] = {}
        self._partitions: dict[Uuid, dict[int, PartitionRegistration]] = {}
        """Partitions of the topics with changes."""
        self._ids: dict[Uuid, None] = {}
        """All topics that the records created, changed or deleted."""
        self._unclean_elections = 0
        self._eligible_elections = 0

    def apply(self) -> tuple[Mapping[str, TopicImage], Mapping[Uuid, TopicImage], TopicChanges]:
        """(topics by name, topics by id, what has changed)."""
        base = self._base
        if self._topics is None:
            return base.topics, base.topics_by_id, base.topic_changes
        for topic_id, partitions in self._partitions.items():
            name = self._topics_by_id[topic_id].name
            self._topics[name] = self._topics_by_id[topic_id] = TopicImage(name, topic_id, partitions)
        since = base.topic_changes.state if base.offset >= 0 else None
        changes = TopicChanges(since, tuple(self._ids), self._unclean_elections, self._eligible_elections)
        return self._topics, self._topics_by_id, changes

    def _editable(self) -> dict[str, TopicImage]:
        if self._topics is None:
            self._topics = dict(self._base.topics)
            self._topics_by_id = dict(self._base.topics_by_id)
        return self._topics

    def _editable_partitions(self, topic_id: Uuid) -> dict[int, PartitionRegistration]:
        partitions = self._partitions.get(topic_id)
        if partitions is None:
            self._editable()
            topic = self._topics_by_id.get(topic_id)
            if topic is None:
                raise ReplayError(f"a record names topic id {topic_id.hex()}, which does not exist")
            partitions = self._partitions[topic_id] = dict(topic.partitions)
            self._ids[topic_id] = None
        return partitions

    def replay_topic(self, record: TopicRecord) -> None:
        topics = self._editable()
        if record.name in topics or record.topic_id in self._topics_by_id:
            raise ReplayError(f"a TopicRecord creates {record.name!r} a second time")
        topic = TopicImage(record.name, record.topic_id, {})
        topics[record.name] = topic
        self._topics_by_id[record.topic_id] = topic
        self._ids[record.topic_id] = None

    def replay_partition(self, record: PartitionRecord) -> None:
        replicas = tuple(record.replicas)
        partitions = self._editable_partitions(record.topic_id)
        former = partitions.get(record.partition_id)
        if former is not None:
            self._count_elections(former, record.leader, record.leader_recovery_state)
        partitions[record.partition_id] = PartitionRegistration(
            replicas=replicas,
            directories=tuple(record.directories) or (DIRECTORY_MIGRATING,) * len(replicas),
            isr=tuple(record.isr),
            removing_replicas=tuple(record.removing_replicas),
            adding_replicas=tuple(record.adding_replicas),
            eligible_leader_replicas=tuple(record.eligible_leader_replicas or ()),
            last_known_elr=tuple(record.last_known_elr or ()),
            leader=record.leader,
            leader_recovering=record.leader_recovery_state == 1,
            leader_epoch=record.leader_epoch,
            partition_epoch=record.partition_epoch,
        )

    def replay_partition_change(self, record: PartitionChangeRecord) -> None:
        partitions = self._editable_partitions(record.topic_id)
        old = partitions.get(record.partition_id)
        if old is None:
            raise ReplayError(
                f"a PartitionChangeRecord names partition {record.partition_id} of topic id "
                f"{record.topic_id.hex()}, which does not exist"
            )
        self._count_elections(old, record.leader, record.leader_recovery_state)
        partitions[record.partition_id] = old.merge(record)

    def _count_elections(self, former: PartitionRegistration, leader: int, recovery_state: int) -> None:
        """As Kafka's TopicDelta counts them."""
        self._unclean_elections += recovery_state == RECOVERING
        self._eligible_elections += leader in former.eligible_leader_replicas

    def replay_clear_elr(self, record: ClearElrRecord) -> None:
        topics = self._editable()
        for name in [record.topic_name] if record.topic_name else list(topics):
            topic = topics.get(name)
            if topic is None:
                raise ReplayError(f"a ClearElrRecord names topic {name!r}, which does not exist")
            partitions = self._partitions.get(topic.id, topic.partitions)
            if any(each.eligible_leader_replicas or each.last_known_elr for each in partitions.values()):
                self._clear_elr(topic.id)

    def _clear_elr(self, topic_id: Uuid) -> None:
        partitions = self._editable_partitions(topic_id)
        for index, each in partitions.items():
            if each.eligible_leader_replicas or each.last_known_elr:
                partitions[index] = replace(
                    each,
                    eligible_leader_replicas=(),
                    last_known_elr=(),
                    partition_epoch=each.partition_epoch + 1,
                )

    def replay_remove_topic(self, record: RemoveTopicRecord) -> str:
        """Returns the name of the removed topic."""
        topics = self._editable()
        topic = self._topics_by_id.pop(record.topic_id, None)
        if topic is None:
            raise ReplayError(
                f"a RemoveTopicRecord names topic id {record.topic_id.hex()}, which does not exist"
            )
        self._ids[record.topic_id] = None
        del topics[topic.name]
        self._partitions.pop(record.topic_id, None)
        return topic.name
