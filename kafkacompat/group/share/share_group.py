"""A share group (KIP-932): its members, epochs, target assignment, and the share-partitions that have a state.

It is changed by the replay of records only. Counts derived from the members keep each check cheap.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kafkacompat.coordinator.core import OperationRefused
from kafkacompat.group.consumer.consumer_group_member import MemberState
from kafkacompat.group.modern_group import (
    LEAVE_GROUP_MEMBER_EPOCH,
    ModernGroup,
    Subscribers,
    assignment_replay,
    member_replay,
    replay_group_metadata,
    replay_modern_record,
    replay_target_metadata,
)
from kafkacompat.group.records import (
    CURRENT_ASSIGNMENT,
    MEMBER_METADATA,
    SHARE_GROUP_METADATA,
    STATE_PARTITIONS,
    TARGET_MEMBER,
    TARGET_METADATA,
    GroupKind,
    ShareGroupRecord,
    partitions_of,
    share_group_tombstones,
    shared_names,
)
from kafkacompat.group.share.share_group_member import Partitions, ShareGroupMember
from kafkacompat.group.share.state_partitions import NO_STATES, NamedPartitions, StatePartitions
from kafkacompat.wire.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkacompat.group.group import Group
    from kafkacompat.group.records import GroupRecord, OffsetAndMetadata
    from kafkacompat.group.topics import Topics
    from kafkacompat.ids import Uuid
    from kafkacompat.memory import Memory


SHARE_PROTOCOL_TYPE = "share"
NO_PARTITIONS: Partitions = {}


class ShareGroup(ModernGroup[ShareGroupMember, Partitions]):
    __slots__ = (
        "_assigned",
        "_is_assignment_pending",
        "alterations",
        "initialized_for",
        "initializing_since_ms",
        "states",
        "topic_names",
    )

    kind = GroupKind.SHARE
    session_timeout = "share.session.timeout.ms"
    assignment_interval = "share.assignment.interval.ms"
    listed_protocol_type = SHARE_PROTOCOL_TYPE

    def __init__(self, group_id: str, subscribers: Subscribers, memory: Memory | None = None) -> None:
        super().__init__(group_id, subscribers, memory)
        self.topic_names: dict[str, int] = {}
        """Subscribed topic -> members that name it."""
        self.states: StatePartitions | None = None
        """None if there is no record of them."""
        self.initializing_since_ms: int | None = None
        """When the states were written last. None if nobody has looked since then."""
        self.alterations = 0
        """Requests for new start offsets that the share coordinator has not answered yet."""
        self.initialized_for: Topics | None = None
        """The topics of which all subscribed partitions have a state."""
        self._assigned: dict[Uuid, dict[int, int]] = {}
        """Topic id -> partition -> members that have it in their target."""
        self._is_assignment_pending: bool | None = None

    def _state_of_members(self) -> str:
        return "Stable"

    # --- members

    def _count(self, old: ShareGroupMember | None, new: ShareGroupMember | None) -> None:
        old_names = frozenset() if old is None else old.subscribed_topic_names
        new_names = frozenset() if new is None else new.subscribed_topic_names
        if old_names is new_names or old_names == new_names:
            return
        self._is_assignment_pending = None
        self.initialized_for = None
        for name in old_names - new_names:
            self.topic_names[name] -= 1
            if not self.topic_names[name]:
                del self.topic_names[name]
                self._unsubscribe(name)
        for name in new_names - old_names:
            if name not in self.topic_names:
                self._subscribe(name)
            self.topic_names[name] = self.topic_names.get(name, 0) + 1

    def topic_counts(self, old: ShareGroupMember | None, new: ShareGroupMember | None) -> Mapping[str, int]:
        """Subscribed topic -> members that name it, with this change of one member."""
        old_names = frozenset() if old is None else old.subscribed_topic_names
        new_names = frozenset() if new is None else new.subscribed_topic_names
        if old_names == new_names:
            return self.topic_names
        counts = dict(self.topic_names)
        for name in old_names - new_names:
            counts[name] -= 1
        for name in new_names - old_names:
            counts[name] = counts.get(name, 0) + 1
        return {name: count for name, count in counts.items() if count > 0}

    # --- target assignment

    def set_target(self, member_id: str, target: Partitions) -> None:
        self.remove_target(member_id)
        self.targets[member_id] = target
        for topic_id, partitions in target.items():
            if not partitions:  # what is left of a topic that a member no longer has
                continue
            counts = self._assigned.setdefault(topic_id, {})
            for partition in partitions:
                counts[partition] = counts.get(partition, 0) + 1

    def remove_target(self, member_id: str) -> None:
        self._is_assignment_pending = None
        for topic_id, partitions in self.targets.pop(member_id, NO_PARTITIONS).items():
            if not partitions:
                continue
            counts = self._assigned[topic_id]
            for partition in partitions:
                counts[partition] -= 1
                if not counts[partition]:
                    del counts[partition]
            if not counts:
                del self._assigned[topic_id]

    def set_states(self, states: StatePartitions | None) -> None:
        self.states = states
        self.initializing_since_ms = None
        self.initialized_for = None
        self._is_assignment_pending = None

    def is_assignment_pending(self) -> bool:
        """Whether the partitions of a subscribed topic that have a state are not those that members have."""
        if self._is_assignment_pending is None:
            states = NO_STATES if self.states is None else self.states
            self._is_assignment_pending = any(
                each.name in self.topic_names and self._assigned.get(topic_id, {}).keys() != each.partitions
                for topic_id, each in states.initialized.items()
            )
        return self._is_assignment_pending

    # --- offsets. A share group has none.

    def validate_offset_commit(
        self,
        member_id: str,
        group_instance_id: str | None,
        member_epoch: int,
        is_transactional: bool,
        api_version: int,
    ) -> None:
        raise self.not_a_consumer_group()

    def validate_offset_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """A fetch finds no offsets, as for a group that does not exist."""

    def validate_offset_delete(self) -> None:
        raise self.not_a_consumer_group()

    def not_a_consumer_group(self) -> OperationRefused:
        return OperationRefused(
            ErrorCode.GROUP_ID_NOT_FOUND, f"Group {self.group_id} is not a consumer group."
        )

    def expires_since_ms(self, stored: OffsetAndMetadata) -> None:
        return None

    def tombstones(self) -> list[GroupRecord]:
        return list(share_group_tombstones(self.group_id))


# --- replay


def replay_share_record(
    groups: dict[str, Group],
    subscribers: Subscribers,
    record: ShareGroupRecord,
    memory: Memory | None = None,
) -> None:
    """Raises LoadFailure for a record that does not fit those before it. A tombstone of nothing is ignored."""
    replay_modern_record(groups, subscribers, record, ShareGroup, _REPLAYS, SHARE_GROUP_METADATA, memory)


def _told(group: ShareGroup, member: ShareGroupMember, value: Any) -> ShareGroupMember:
    return replace(
        member,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        subscribed_topic_names=shared_names(group.members, member, frozenset(value.subscribed_topic_names)),
    )


def _target_member(group: ShareGroup, key: Any, value: Any) -> None:
    if value is None:
        group.remove_target(key.member_id)
    else:
        group.set_target(key.member_id, partitions_of(value.topic_partitions))


def _assigned(member: ShareGroupMember, value: Any) -> ShareGroupMember:
    return replace(
        member,
        member_epoch=value.member_epoch,
        previous_member_epoch=value.previous_member_epoch,
        state=MemberState(value.state),
        assigned=partitions_of(value.assigned_partitions),
    )


def _left(member: ShareGroupMember) -> ShareGroupMember:
    return replace(
        member,
        member_epoch=LEAVE_GROUP_MEMBER_EPOCH,
        previous_member_epoch=LEAVE_GROUP_MEMBER_EPOCH,
        assigned={},
    )


def _state_partitions(group: ShareGroup, key: Any, value: Any) -> None:
    group.set_states(
        None
        if value is None
        else StatePartitions(
            _named(value.initializing_topics),
            _named(value.initialized_topics),
            frozenset([topic.topic_id for topic in value.deleting_topics]),
        )
    )


def _named(topics: Any) -> dict[bytes, NamedPartitions]:
    return {
        topic.topic_id: NamedPartitions(topic.topic_name, frozenset(topic.partitions)) for topic in topics
    }


_REPLAYS: dict[int, Callable[[ShareGroup, Any, Any], None]] = {
    MEMBER_METADATA: member_replay(ShareGroupMember, _told),
    SHARE_GROUP_METADATA: replay_group_metadata,
    TARGET_METADATA: replay_target_metadata,
    TARGET_MEMBER: _target_member,
    CURRENT_ASSIGNMENT: assignment_replay(ShareGroupMember, _assigned, _left),
    STATE_PARTITIONS: _state_partitions,
}
