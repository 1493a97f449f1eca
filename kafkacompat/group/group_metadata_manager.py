"""One shard of the group coordinator: all groups of one partition of `__consumer_offsets`, replayed from its records.

It has the groups and offsets, applies records to them, and keeps the records of group kinds that are not supported
yet. The runtime's order is: operation, append, replay, replies. Follows Kafka's record kinds in `__consumer_offsets`;
see records.py for their bytes.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from kafkacompat.coordinator.core import ELEMENT_COST, CoordinatorResult, LoadFailure, Reply
from kafkacompat.group.carried_group import CarriedGroup
from kafkacompat.group.classic.classic_group import ClassicGroup, ClassicGroupState
from kafkacompat.group.classic.classic_group_member import ClassicGroupMember
from kafkacompat.group.classic.rebalance import end_group, prepare_rebalance, reschedule_heartbeat
from kafkacompat.group.consumer.consumer_group import ConsumerGroup
from kafkacompat.group.consumer.large_conversion import resume_downgrade
from kafkacompat.group.consumer.leaving import fence_members
from kafkacompat.group.consumer.records import ConsumerGroupRecord
from kafkacompat.group.consumer.replay import replay_consumer_record
from kafkacompat.group.consumer.sessions import take_up
from kafkacompat.group.environment import Environment, GroupSettings, GroupTasks, GroupTimers
from kafkacompat.group.modern_group import ModernGroup
from kafkacompat.group.offsets import OffsetStore
from kafkacompat.group.records import (
    MEMBER_TYPES,
    CarriedRecord,
    GroupMetadataRecord,
    GroupRecord,
    OffsetRecord,
    decode_large,
    decode_record,
    encode_record,
)
from kafkacompat.group.share.initialization import forget_absent_topics
from kafkacompat.group.share.records import ShareGroupRecord
from kafkacompat.group.share.replay import replay_share_record
from kafkacompat.group.share.sessions import schedule_session_timeout
from kafkacompat.group.share.share_group import ShareGroup
from kafkacompat.tasks import at_once
from kafkacompat.wire.errors import ErrorCode

if TYPE_CHECKING:
    from kafkacompat.group.group import Group
    from kafkacompat.group.topics import Topics
    from kafkacompat.ids import Uuid
    from kafkacompat.memory import Memory
    from kafkacompat.ports import Random
    from kafkacompat.wire.messages.group_metadata_value import GroupMetadataValue


class GroupMetadataManager:
    __slots__ = ("deleting", "env", "groups", "offsets")

    def __init__(
        self,
        settings: GroupSettings,
        timers: GroupTimers,
        tasks: GroupTasks,
        random: Random,
        memory: Memory | None = None,
    ) -> None:
        """`memory`: of the groups of all shards of this node."""
        self.groups: dict[str, Group] = {}
        """By group id, of every kind."""
        self.deleting: dict[str, dict[Uuid, int]] = {}
        """Deleted topics whose offsets must still be removed: name -> id -> end of the log at the deletion."""
        self.env = Environment(settings, timers, tasks, random, self.groups, memory)
        self.offsets = OffsetStore(self.env.memory)
        self.env.fence = partial(fence_members, self.env)

    def encode(self, record: GroupRecord) -> tuple[bytes, bytes | None]:
        return encode_record(record)

    def decode(self, key: bytes, value: bytes | None) -> GroupRecord | None:
        return decode_record(key, value)

    def replay(self, record: GroupRecord, offset: int, producer_id: int) -> None:
        if isinstance(record, OffsetRecord):
            group_id = record.group_id
            if record.value is not None and group_id not in self.groups:
                # Commits alone create a simple group: empty, without a protocol.
                self.groups[group_id] = ClassicGroup(
                    group_id,
                    current_state_timestamp_ms=record.value.commit_timestamp_ms,
                    memory=self.env.memory,
                )
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
        elif isinstance(record, CarriedRecord):
            self._replay_carried(record)

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
            former.forget()
        self.groups[group.group_id] = group

    def replay_end_transaction(
        self, producer_id: int, producer_epoch: int, committed: bool, offset: int
    ) -> None:
        self.offsets.replay_end_transaction(producer_id, committed)

    def on_loaded(self, now_ms: int) -> Iterator[CoordinatorResult[GroupRecord, None] | None]:
        """Every member gets a full session. A group that is larger than the present group.max.size is rebalanced."""
        for group in list(self.groups.values()):
            if isinstance(group, ConsumerGroup):
                for member_id in list(group.members):
                    found = group.members.get(member_id)
                    if found is not None and self.groups.get(group.group_id) is group:
                        take_up(self.env, group, (found,))
                    yield None
                if self.groups.get(group.group_id) is group:
                    resume_downgrade(self.env, group, now_ms)
            elif isinstance(group, ShareGroup):
                yield from self._take_up_share_group(group)
            if not isinstance(group, ClassicGroup):
                continue
            for member in list(group.members.values()):
                if group.members.get(member.member_id) is member:
                    reschedule_heartbeat(self.env, group, member)
                yield None
            is_too_large = len(group.members) > self.env.settings.max_size
            yield (
                prepare_rebalance(self.env, group, now_ms) if is_too_large and group.can_rebalance() else None
            )

    def _take_up_share_group(
        self, group: ShareGroup
    ) -> Iterator[CoordinatorResult[GroupRecord, None] | None]:
        """Topics that were deleted while no coordinator looked are forgotten."""
        env = self.env
        for member_id in list(group.members):
            if member_id in group.members and self.groups.get(group.group_id) is group:
                schedule_session_timeout(env, group.group_id, member_id)
            yield None
        if self.groups.get(group.group_id) is group:
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

    def _replay_carried(self, record: CarriedRecord) -> None:
        group = self.groups.get(record.group_id)
        if not record.live:
            if isinstance(group, CarriedGroup) and record.key in group.live_keys:
                group.live_keys.discard(record.key)
                group.member_count -= record.record_type in MEMBER_TYPES
                if not group.live_keys:
                    del self.groups[record.group_id]
            return
        if isinstance(group, ClassicGroup) and group.protocol_type is None and group.generation_id == 0:
            group = None  # commits alone have created it
        if group is None:
            group = self.groups[record.group_id] = CarriedGroup(record.group_id, record.kind)
        if not isinstance(group, CarriedGroup) or group.kind is not record.kind:
            raise LoadFailure(
                f"group {record.group_id} is {group.kind.value} and {record.kind.value} at once"
            )
        if record.key not in group.live_keys:
            group.live_keys.add(record.key)
            group.member_count += record.record_type in MEMBER_TYPES

    def on_topics(self, topics: Topics, changed: set[str], has_new: bool) -> None:
        """The groups that subscribe to a changed topic look at it with their next heartbeat.

        Each shard looks at its own topics or at the changed ones, whichever are fewer: the first image changes all.
        """
        env = self.env
        env.topics = topics
        if has_new or env.new_topics_version < 0:
            env.new_topics_version = topics.version
        for name in changed & env.topic_hashes.keys():
            del env.topic_hashes[name]
        for name in changed & env.subscribers.keys():
            for group_id in env.subscribers[name]:
                group = self.groups.get(group_id)
                if isinstance(group, ModernGroup):
                    group.request_metadata_refresh()


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
    group.subscribed_topics = group.compute_subscribed_topics()
    return group
