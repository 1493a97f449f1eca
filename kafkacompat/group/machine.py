"""One shard of the group coordinator: all groups of one partition of `__consumer_offsets`, replayed from its records.

It has the groups and offsets, applies records to them, and keeps the records of group kinds that are not supported
yet. The runtime's order is: operation, append, replay, replies. Follows Kafka's record kinds in `__consumer_offsets`;
see records.py for their bytes.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

from kafkacompat.coordinator.core import ELEMENT_COST, CoordinatorResult, LoadFailure
from kafkacompat.group.classic_group import ClassicGroup, ClassicGroupState
from kafkacompat.group.classic_group_member import ClassicGroupMember
from kafkacompat.group.environment import Environment, GroupSettings, GroupTimers
from kafkacompat.group.offsets import OffsetStore
from kafkacompat.group.rebalance import end_group, prepare_rebalance, reschedule_heartbeat
from kafkacompat.group.records import (
    MEMBER_TYPES,
    CarriedRecord,
    GroupKind,
    GroupMetadataRecord,
    GroupRecord,
    OffsetRecord,
    decode_large,
    decode_record,
    encode_record,
)
from kafkacompat.wire.errors import ErrorCode

if TYPE_CHECKING:
    from kafkacompat.deferred import Deferred
    from kafkacompat.ids import Uuid
    from kafkacompat.ports import Random
    from kafkacompat.wire.messages.group_metadata_value import GroupMetadataValue


class CarriedGroup:
    """A consumer, share or streams group written by Kafka. It exists as long as one of its records does."""

    __slots__ = ("group_id", "kind", "live_keys", "member_count")

    def __init__(self, group_id: str, kind: GroupKind) -> None:
        self.group_id = group_id
        self.kind = kind
        self.live_keys: set[bytes] = set()
        self.member_count = 0

    def is_empty(self) -> bool:
        return self.member_count == 0


class GroupMachine:
    __slots__ = ("carried", "deleting", "env", "groups", "offsets")

    def __init__(self, settings: GroupSettings, timers: GroupTimers, random: Random) -> None:
        self.groups: dict[str, ClassicGroup] = {}
        self.carried: dict[str, CarriedGroup] = {}
        """By group id. A group is never also in `groups`."""
        self.offsets = OffsetStore()
        self.deleting: dict[str, dict[Uuid, int]] = {}
        """Deleted topics whose offsets must still be removed: name -> id -> end of the log at the deletion."""
        self.env = Environment(settings, timers, random, self.groups)

    def encode(self, record: GroupRecord) -> tuple[bytes, bytes | None]:
        return encode_record(record)

    def decode(self, key: bytes, value: bytes | None) -> GroupRecord | None:
        return decode_record(key, value)

    def replay(self, record: GroupRecord, offset: int, producer_id: int) -> None:
        if isinstance(record, OffsetRecord):
            group_id = record.group_id
            if record.value is not None and group_id not in self.groups and group_id not in self.carried:
                # Commits alone create a simple group: empty, without a protocol.
                self.groups[group_id] = ClassicGroup(
                    group_id, current_state_timestamp_ms=record.value.commit_timestamp_ms
                )
            self.offsets.replay(record, offset, producer_id)
        elif isinstance(record, GroupMetadataRecord):
            if record.value is None:
                group = self.groups.pop(record.group_id, None)
                if group is not None:
                    end_group(self.env, group, ErrorCode.UNKNOWN_MEMBER_ID, group.current_state_timestamp_ms)
            else:
                self._put(restored_group(record.group_id, record.value))
        else:
            self._replay_carried(record)

    def load_large(
        self, key: bytes, value: bytes, offset: int, producer_id: int
    ) -> Generator[int, None, bool]:
        record = yield from decode_large(key, value)
        if record is None:
            return False
        if isinstance(record, GroupMetadataRecord) and record.value is not None:
            self._put((yield from restored_in_steps(record.group_id, record.value)))
        else:
            self.replay(record, offset, producer_id)
        return True

    def _put(self, group: ClassicGroup) -> None:
        self.carried.pop(group.group_id, None)
        self.groups[group.group_id] = group

    def replay_end_transaction(
        self, producer_id: int, producer_epoch: int, committed: bool, offset: int
    ) -> None:
        self.offsets.replay_end_transaction(producer_id, committed)

    def on_loaded(self, now_ms: int) -> Iterator[CoordinatorResult[GroupRecord, None] | None]:
        """Every member gets a full session. A group that is larger than the present group.max.size is rebalanced."""
        for group in list(self.groups.values()):
            for member in list(group.members.values()):
                if group.members.get(member.member_id) is member:
                    reschedule_heartbeat(self.env, group, member)
                yield None
            is_too_large = len(group.members) > self.env.settings.max_size
            yield (
                prepare_rebalance(self.env, group, now_ms) if is_too_large and group.can_rebalance() else None
            )

    def unload(self, now_ms: int) -> Iterator[int]:
        for group in list(self.groups.values()):
            size = len(group.members) + 1
            end_group(self.env, group, ErrorCode.NOT_COORDINATOR, now_ms)
            yield 2 * size

    def take_apart(self) -> Iterator[int]:
        for groups in (self.groups, self.carried):
            while groups:
                groups.popitem()
                yield 1
        yield from self.offsets.take_apart()

    def take_replies(self) -> list[tuple[Deferred[Any], Any]]:
        replies = self.env.replies
        if replies:
            self.env.replies = []
        return replies

    def _replay_carried(self, record: CarriedRecord) -> None:
        group = self.carried.get(record.group_id)
        if not record.live:
            if group is not None and record.key in group.live_keys:
                group.live_keys.discard(record.key)
                group.member_count -= record.record_type in MEMBER_TYPES
                if not group.live_keys:
                    del self.carried[record.group_id]
            return
        if group is None:
            classic = self.groups.get(record.group_id)
            if classic is not None:
                if classic.protocol_type is not None or classic.generation_id > 0:
                    raise LoadFailure(f"group {record.group_id} is classic and {record.kind.value} at once")
                del self.groups[record.group_id]
            group = self.carried[record.group_id] = CarriedGroup(record.group_id, record.kind)
        elif group.kind is not record.kind:
            raise LoadFailure(
                f"group {record.group_id} is {group.kind.value} and {record.kind.value} at once"
            )
        if record.key not in group.live_keys:
            group.live_keys.add(record.key)
            group.member_count += record.record_type in MEMBER_TYPES


def restored_group(group_id: str, value: GroupMetadataValue) -> ClassicGroup:
    """A group as in its last record: stable with members, empty without."""
    steps = restored_in_steps(group_id, value)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            group: ClassicGroup = end.value
            return group


def restored_in_steps(group_id: str, value: GroupMetadataValue) -> Generator[int, None, ClassicGroup]:
    group = ClassicGroup(
        group_id,
        generation_id=value.generation,
        protocol_type=value.protocol_type or None,
        protocol_name=value.protocol,
        leader_id=value.leader,
        current_state_timestamp_ms=value.current_state_timestamp,
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
