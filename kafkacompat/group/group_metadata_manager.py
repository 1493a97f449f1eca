"""One shard of the group coordinator: all groups of one partition of `__consumer_offsets`, replayed from its records.

It has the groups and offsets, and applies records to them. The runtime's order is: operation, append, replay, replies.
records.py has the records and their bytes.

Expiry and deletion walk the places where offsets may be, a bounded number at a time, and return the tombstones. The
state may change between two stretches, so each place is checked in its turn, and the tombstones must be written
before other code runs. Share groups do not expire. Follows KIP-211 and offsets.retention.minutes.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from kafkacompat.coordinator.core import ELEMENT_COST, CoordinatorResult, HasMachine, OperationRefused, Reply
from kafkacompat.faults import report
from kafkacompat.group.classic.classic_group import ClassicGroup, ClassicGroupMember, ClassicGroupState
from kafkacompat.group.classic.rebalance import end_group, prepare_rebalance, reschedule_heartbeat
from kafkacompat.group.consumer.consumer_group import ConsumerGroup, replay_consumer_record
from kafkacompat.group.consumer.conversion import resume_downgrade
from kafkacompat.group.consumer.membership import fence_members
from kafkacompat.group.environment import (
    Environment,
    GroupResult,
    GroupSettings,
    GroupTasks,
    GroupTimers,
    RebalanceMeters,
    heartbeat_key,
)
from kafkacompat.group.modern_group import ModernGroup, take_up
from kafkacompat.group.offset_metadata_manager import OffsetMetadataManager, begin_simple_group, is_gone
from kafkacompat.group.records import (
    ConsumerGroupRecord,
    GroupMetadataRecord,
    GroupRecord,
    OffsetAndMetadata,
    OffsetRecord,
    ShareGroupRecord,
    StreamsGroupRecord,
    decode_large,
    decode_record,
    encode_record,
)
from kafkacompat.group.share.heartbeat import fence_member as fence_share_member
from kafkacompat.group.share.share_group import ShareGroup, replay_share_record
from kafkacompat.group.share.states import forget_absent_topics
from kafkacompat.group.streams.heartbeat import fence_member as fence_streams_member
from kafkacompat.group.streams.heartbeat import initial_rebalance_key
from kafkacompat.group.streams.streams_group import replay_streams_record
from kafkacompat.ids import Uuid
from kafkacompat.tasks import Work, at_once
from kafkacompat.wire.errors import ErrorCode

if TYPE_CHECKING:
    from kafkacompat.config.group import GroupConfigManager
    from kafkacompat.group.group import Group
    from kafkacompat.group.topics import Topics
    from kafkacompat.memory import Memory
    from kafkacompat.ports import Random
    from kafkacompat.wire.messages.group_metadata_value import GroupMetadataValue


def _fence(env: Environment, group: Any, members: Sequence[Any], now_ms: int) -> GroupResult:
    if isinstance(group, ConsumerGroup):
        return fence_members(env, group, members, now_ms)
    (member,) = members
    if isinstance(group, ShareGroup):
        return fence_share_member(env, group, member)
    return fence_streams_member(env, group, member)


class GroupMetadataManager:
    __slots__ = ("env", "groups", "offsets")

    def __init__(
        self,
        settings: GroupSettings,
        configs: GroupConfigManager,
        timers: GroupTimers,
        tasks: GroupTasks,
        random: Random,
        memory: Memory | None = None,
        meters: RebalanceMeters | None = None,
    ) -> None:
        """`configs`: the settings that groups have of their own. `memory`: of the groups of all shards of this node."""
        self.groups: dict[str, Group] = {}
        """By group id, of every kind."""
        self.env = Environment(settings, configs, timers, tasks, random, self.groups, _fence, memory, meters)
        self.offsets = OffsetMetadataManager(self.env)

    def encode(self, record: GroupRecord) -> tuple[bytes, bytes | None]:
        return encode_record(record)

    def decode(self, key: bytes, value: bytes | None) -> GroupRecord | None:
        return decode_record(key, value)

    def replay(self, record: GroupRecord, offset: int, producer_id: int) -> None:
        if isinstance(record, OffsetRecord):
            if record.value is not None:
                begin_simple_group(self.env, record.group_id, record.value.commit_timestamp)
            self.offsets.replay(record, offset, producer_id)
        elif isinstance(record, GroupMetadataRecord):
            if record.value is None:
                group = self.env.classic_group(record.group_id)
                if group is not None:
                    del self.groups[record.group_id]
                    # Whoever writes this record has answered all requests that were parked.
                    end_group(self.env, group, ErrorCode.UNKNOWN_MEMBER_ID, group.current_state_timestamp_ms)
            else:
                self._put(restored_group(record.group_id, record.value, self.env.memory))
        elif isinstance(record, ConsumerGroupRecord):
            replay_consumer_record(self.groups, self.env.subscribers, record, self.env.memory)
        elif isinstance(record, ShareGroupRecord):
            replay_share_record(self.groups, self.env.subscribers, record, self.env.memory)
        elif isinstance(record, StreamsGroupRecord):
            replay_streams_record(self.groups, self.env.subscribers, record, self.env.memory)
            if record.group_id not in self.groups:
                self.env.timers.cancel(initial_rebalance_key(record.group_id))

    def load_large(
        self, key: bytes, value: bytes, offset: int, producer_id: int
    ) -> Generator[int, None, bool]:
        record = yield from decode_large(key, value)
        if record is None:
            return False
        if isinstance(record, GroupMetadataRecord) and record.value is not None:
            self._put((yield from restored_in_steps(record.group_id, record.value, self.env.memory)))
        else:
            self.replay(record, offset, producer_id)
        return True

    def _put(self, group: ClassicGroup) -> None:
        former = self.groups.get(group.group_id)
        if isinstance(former, ModernGroup):
            former.unsubscribe_from_all()
        self.groups[group.group_id] = group

    def replay_end_transaction(
        self, producer_id: int, producer_epoch: int, committed: bool, offset: int
    ) -> Work[None]:
        yield from self.offsets.replay_end_transaction(producer_id, committed)

    def on_loaded(self, now_ms: int) -> Iterator[CoordinatorResult[GroupRecord, None] | None]:
        """Every member gets a full session, but for one that has joined since the load and waits for its first answer: it keeps
        the time that it has for that. A group that is larger than the present group.max.size is rebalanced."""
        for group in list(self.groups.values()):
            if isinstance(group, ModernGroup):
                yield from self._take_up(group, now_ms)
            if not isinstance(group, ClassicGroup):
                continue
            for member in list(group.members.values()):
                if group.members.get(member.member_id) is member and not member.is_new:
                    reschedule_heartbeat(self.env, group, member)
                yield None
            is_too_large = len(group.members) > self.env.settings.max_size
            yield (
                prepare_rebalance(self.env, group, now_ms) if is_too_large and group.can_rebalance() else None
            )

    def _take_up(
        self, group: ModernGroup[Any, Any], now_ms: int
    ) -> Iterator[CoordinatorResult[GroupRecord, None] | None]:
        """Topics of a share group that were deleted while no coordinator looked are forgotten."""
        env, any_group = self.env, cast("Group", group)
        for member_id in list(group.members):
            found = group.members.get(member_id)
            if found is not None and self.groups.get(group.group_id) is any_group:
                take_up(env, group, (found,))
            yield None
        if self.groups.get(group.group_id) is not any_group:
            return
        if isinstance(group, ConsumerGroup):
            resume_downgrade(env, group, now_ms)
        elif isinstance(group, ShareGroup):
            record = forget_absent_topics(env, group)
            yield None if record is None else CoordinatorResult((record,), None)

    def unload(self, now_ms: int) -> Iterator[tuple[int, Sequence[Reply]]]:
        for group in list(self.groups.values()):
            if not isinstance(group, ClassicGroup):
                yield 1, ()
                continue
            size = len(group.members) + 1
            yield 2 * size, end_group(self.env, group, ErrorCode.NOT_COORDINATOR, now_ms)

    def take_apart(self) -> Iterator[int]:
        while self.groups:
            _, group = self.groups.popitem()
            yield 1
            if isinstance(group, ModernGroup):
                while group.members:
                    group.members.popitem()
                    yield 1
        yield from self.offsets.take_apart()

    def on_topics(self, topics: Topics, changed: set[str], has_new: bool) -> int:
        """The groups that subscribe to a changed topic look at it with their next heartbeat. Returns how many were told, some
        several times.

        Each shard looks at its own topics or at the changed ones, whichever are fewer: the first image changes all.
        """
        env = self.env
        env.topics = topics
        if has_new or env.new_topics_version < 0:
            env.new_topics_version = topics.version
        for name in changed & env.topic_hashes.keys():
            del env.topic_hashes[name]
        told = 0
        for name in changed & env.subscribers.keys():
            told += len(env.subscribers[name])
            for group_id in env.subscribers[name]:
                group = self.groups.get(group_id)
                if isinstance(group, ModernGroup):
                    group.request_metadata_refresh()
        return told


def machine_of(shard: HasMachine) -> GroupMetadataManager:
    """The groups of a shard of the group coordinator."""
    machine = shard.machine
    assert isinstance(machine, GroupMetadataManager)
    return machine


def restored_group(group_id: str, value: GroupMetadataValue, memory: Memory | None = None) -> ClassicGroup:
    """A group as in its last record: stable with members, empty without."""
    return at_once(restored_in_steps(group_id, value, memory))


def restored_in_steps(
    group_id: str, value: GroupMetadataValue, memory: Memory | None = None
) -> Generator[int, None, ClassicGroup]:
    group = ClassicGroup(
        group_id,
        generation_id=value.generation,
        protocol_type=value.protocol_type or None,
        protocol_name=value.protocol,
        leader_id=value.leader,
        current_state_timestamp_ms=value.current_state_timestamp,
        memory=memory,
    )
    name = value.protocol or ""
    for each in value.members:
        group.add(
            ClassicGroupMember(
                each.member_id,
                each.group_instance_id,
                each.client_id,
                each.client_host,
                each.session_timeout if each.rebalance_timeout == -1 else each.rebalance_timeout,
                each.session_timeout,
                value.protocol_type,
                ((name, bytes(each.subscription)),),
                bytes(each.assignment),
            )
        )
        yield ELEMENT_COST
    if group.members:
        group.state = ClassicGroupState.STABLE
    group.update_subscribed_topics()
    return group


# --- expiry and deletion


class Place(NamedTuple):
    """A place where an offset may be. Without a topic it is the end of its group, where the group itself is checked."""

    group_id: str
    topic: str | None = None
    partition: int = -1


# --- expiry


def places(machine: GroupMetadataManager) -> Iterator[Place]:
    """All places that may expire: offsets, and each group after its offsets."""
    for group_id in list(machine.groups):
        for topic, partition in machine.offsets.places(group_id):
            yield Place(group_id, topic, partition)
        yield Place(group_id)


def expired_offset_records(
    machine: GroupMetadataManager, stretch: Iterable[Place], now_ms: int
) -> list[GroupRecord]:
    """Tombstones for everything past its retention. A group's tombstones come after those of its offsets."""
    records: list[GroupRecord] = []
    going: dict[str, int] = {}
    for place in stretch:
        try:
            found = _expired(machine, place, now_ms, going.get(place.group_id, 0))
        except Exception as error:
            report(f"the expiry of {place}", error)
            continue
        if found:
            records += found
            going[place.group_id] = going.get(place.group_id, 0) + 1
    return records


def _expired(machine: GroupMetadataManager, place: Place, now_ms: int, going: int) -> Sequence[GroupRecord]:
    """`going` is the number of the group's offsets that are about to be removed but are still present.

    A group without members and offsets goes with the next round. A share group stays: the share coordinator has its offsets, and
    `ShareGroup.states` tells of which partitions."""
    group = machine.groups.get(place.group_id)
    if group is None or isinstance(group, ShareGroup):
        return ()
    if place.topic is None:
        stays = (
            not group.is_empty()
            or group.is_dead()
            or (isinstance(group, ClassicGroup) and group.pending_join)
            or machine.offsets.has_more_than(place.group_id, going)
            or machine.offsets.has_open_transaction(place.group_id)
        )
        return () if stays else group.tombstones()
    stored = machine.offsets.get(*place)  # type: ignore[arg-type]  # the place has a topic
    if stored is None or not _has_expired(machine, group, place.topic, stored, now_ms):
        return ()
    if machine.offsets.is_pending(place.group_id, place.topic, place.partition):
        return ()
    return (OffsetRecord(place.group_id, place.topic, place.partition, None),)


def _has_expired(
    machine: GroupMetadataManager, group: Group, topic: str, stored: OffsetAndMetadata, now_ms: int
) -> bool:
    since_ms = group.expires_since_ms(stored)
    if since_ms is None or group.is_subscribed_to(topic):
        return False
    if stored.expire_timestamp >= 0:
        return now_ms >= stored.expire_timestamp
    return now_ms - since_ms >= machine.env.settings.offsets_retention_ms


# --- deletion of a group


def begin_deletion(machine: GroupMetadataManager, group_id: str) -> Group:
    """The group, if it may be deleted. Raises OperationRefused."""
    group = machine.groups.get(group_id)
    if group is None or group.is_dead():
        raise OperationRefused(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
    if not group.is_empty():
        raise OperationRefused(ErrorCode.NON_EMPTY_GROUP)
    return group


def mark_dead(machine: GroupMetadataManager, group: Group, now_ms: int) -> None:
    """Mark the group as dead, so that no request uses it while its offsets are removed step by step."""
    if isinstance(group, ClassicGroup):
        for member_id in list(group.pending_join):
            machine.env.timers.cancel(heartbeat_key(group, member_id))
    group.mark_dead(now_ms)


def places_of_group(machine: GroupMetadataManager, group_id: str) -> Iterator[Place]:
    """All offsets of the group, including those of open transactions, and the group last."""
    for topic, partition in machine.offsets.places(group_id):
        yield Place(group_id, topic, partition)
    for topic, partition in machine.offsets.pending_places(group_id):
        yield Place(group_id, topic, partition)
    yield Place(group_id)


def deletion_records(machine: GroupMetadataManager, stretch: Iterable[Place]) -> list[GroupRecord]:
    found: dict[Place, None] = {}
    for place in stretch:
        if place.topic is None:
            # A transaction may have ended meanwhile, and its offsets are where the walk has been.
            found.update(dict.fromkeys(places_of_group(machine, place.group_id)))
        elif machine.offsets.is_tracked(place.group_id, place.topic, place.partition):
            found[place] = None
    records: list[GroupRecord] = []
    for place in found:
        if place.topic is None:
            group = machine.groups.get(
                place.group_id
            )  # None if the shard was unloaded, which refuses the write
            records += [GroupMetadataRecord(place.group_id, None)] if group is None else group.tombstones()
        else:
            records.append(OffsetRecord(place.group_id, place.topic, place.partition, None))
    return records


# --- deletion of topics

DeletedTopics = Mapping[str, Mapping[Uuid, int]]
"""Name -> id -> end of the offsets' log when the topic was deleted. Later records belong to a later topic."""


def places_of_topics(machine: GroupMetadataManager, topics: DeletedTopics) -> Iterator[Place]:
    """Places of these topics' offsets, with empty places in between, so that each step costs about the same."""
    for group_id in machine.offsets.group_ids():
        yield Place(group_id)
        # First, because what a transaction has written may be committed meanwhile, and is then found below.
        for topic, partition in machine.offsets.pending_places(group_id):
            yield Place(group_id, topic if topic in topics else None, partition)
        for topic in topics:
            yield Place(group_id)
            for partition in list(machine.offsets.of_group(group_id).get(topic, ())):
                yield Place(group_id, topic, partition)


def deleted_topic_records(
    machine: GroupMetadataManager, stretch: Iterable[Place], topics: DeletedTopics
) -> list[GroupRecord]:
    """Tombstones for the offsets of deleted topics. An offset with another topic id, or a later one, belongs to the
    new topic and stays.

    A tombstone also removes the offsets of open transactions. So no tombstone is written if one of those belongs to
    the new topic.
    """
    gone: dict[Place, None] = {}
    for place in stretch:
        if place.topic is None:
            continue
        ids = topics[place.topic]
        stored = machine.offsets.get(place.group_id, place.topic, place.partition)
        pending = list(machine.offsets.pending(place.group_id, place.topic, place.partition))
        if not all(is_gone(each, ids) for each in pending):
            continue
        if pending if stored is None else is_gone(stored, ids):
            gone[place] = None
    return [OffsetRecord(place.group_id, place.topic or "", place.partition, None) for place in gone]
