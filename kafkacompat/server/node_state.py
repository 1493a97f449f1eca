"""What a node knows at this moment, for the reasons of its refusals. It is read in the node's thread, and nothing is changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kafkacompat.coordinator.shard import ShardState
from kafkacompat.exchanges.causes import Causes
from kafkacompat.exchanges.reasons import GroupState, PartitionState, ProducerState, TransactionState
from kafkacompat.ids import OFFSETS_TOPIC, TRANSACTION_TOPIC, TopicPartition, partition_for_key

if TYPE_CHECKING:
    from kafkacompat.controller.image import MetadataImage
    from kafkacompat.exchanges.causes import Stand
    from kafkacompat.ids import Uuid
    from kafkacompat.server.raft_server import KafkaRaftServer


class NodeState:
    """Implements State of reasons.py."""

    def __init__(self, server: KafkaRaftServer, node: int, causes: Causes | None = None) -> None:
        self.causes = causes or Causes()
        self._server = server
        self._node = node

    @property
    def node(self) -> int:
        return self._node

    @property
    def _image(self) -> MetadataImage:
        assert self._server.shared is not None
        return self._server.shared.machine.image

    def stand(self) -> Stand:
        """How all partitions stand."""
        return {
            (name, index): (each.leader_epoch, frozenset(each.isr))
            for name, topic in self._image.topics.items()
            for index, each in topic.partitions.items()
        }

    def topics(self) -> Mapping[str, int]:
        return {name: len(topic.partitions) for name, topic in self._image.topics.items()}

    def name_of(self, topic_id: Uuid) -> str | None:
        topic = self._image.topics_by_id.get(topic_id)
        return None if topic is None else topic.name

    def topic_id(self, name: str) -> Uuid:
        """Raises LookupError."""
        topic = self._image.topics.get(name)
        if topic is None:
            raise LookupError(f"there is no topic {name!r}")
        return topic.id

    def partition(self, topic: str, index: int) -> PartitionState | None:
        found = self._image.topics.get(topic)
        registered = None if found is None else found.partitions.get(index)
        if registered is None:
            return None
        log = self._log(topic, index)
        return PartitionState(
            registered.leader,
            registered.leader_epoch,
            registered.replicas,
            registered.isr,
            None if log is None else log.log_start_offset,
            None if log is None else log.high_watermark,
            1 if log is None else log.config.min_insync_replicas,
            None if log is None else log.config.max_message_bytes,
        )

    def _log(self, topic: str, index: int) -> Any:
        broker = self._server.broker
        return None if broker is None else broker.logs.get(TopicPartition(topic, index))

    def producer(self, topic: str, index: int, producer_id: int) -> ProducerState | None:
        broker = self._server.broker
        if broker is None or self._log(topic, index) is None:
            return None
        for each in broker.partitions.active_producers(TopicPartition(topic, index)):
            if each.producer_id == producer_id:
                return ProducerState(each.producer_epoch, each.last_sequence)
        return None

    def _coordinators(self) -> Any:
        """None while nobody has asked for one."""
        broker = self._server.broker
        return broker.coordinators if broker is not None and broker.has_coordinators else None

    def group_shard(self, group: str) -> Any:
        """The loaded shard with a group. None if this node has none."""
        coordinators = self._coordinators()
        return (
            None if coordinators is None else _shard(coordinators.groups, OFFSETS_TOPIC, group, self._image)
        )

    def group(self, group: str) -> GroupState | None:
        shard = self.group_shard(group)
        found = None if shard is None else shard.machine.groups.get(group)
        if found is None:
            return None
        if hasattr(found, "generation_id"):
            members = dict.fromkeys(found.members, -1)
            return GroupState(found.state_name, found.generation_id, members, found.awaiting_join_count)
        epochs = {name: member.member_epoch for name, member in found.members.items()}
        return GroupState(found.state_name, found.group_epoch, epochs)

    def transaction(self, transactional_id: str) -> TransactionState | None:
        coordinators = self._coordinators()
        if coordinators is None:
            return None
        shard = _shard(coordinators.transactions, TRANSACTION_TOPIC, transactional_id, self._image)
        found = None if shard is None else shard.machine.transactions.get(transactional_id)
        if found is None:
            return None
        state = found.values.state if found.pending_state is None else found.pending_state
        name = "".join(word.capitalize() for word in state.name.split("_"))
        return TransactionState(name, found.values.producer_id, found.values.epoch)

    def group_coordinator(self, group: str) -> str | None:
        return self._led_by(OFFSETS_TOPIC, group)

    def transaction_coordinator(self, transactional_id: str) -> str | None:
        return self._led_by(TRANSACTION_TOPIC, transactional_id)

    def _led_by(self, topic: str, key: str) -> str | None:
        found = self._image.topics.get(topic)
        if found is None:
            return f"nobody, because {topic} does not exist yet"
        index = partition_for_key(key, len(found.partitions))
        leader = found.partitions[index].leader
        return (
            f"node {leader}, which leads {topic}-{index}"
            if leader >= 0
            else f"nobody, because {topic}-{index} has no leader"
        )

    def controller(self) -> int:
        assert self._server.shared is not None
        return self._server.shared.driver.leader_id


def _shard(coordinator: Any, topic: str, key: str, image: MetadataImage) -> Any:
    """The loaded shard of a key, which this node has. Otherwise None."""
    found = image.topics.get(topic)
    shard = None if found is None else coordinator._shards.get(partition_for_key(key, len(found.partitions)))
    return None if shard is None or shard.state is not ShardState.ACTIVE else shard
