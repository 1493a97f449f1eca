"""A classic group: its members, state and generation, and the record from which it is restored.

A member has the data of its requests, and its parked requests. The table of transitions, and counts derived from the
members, keep them consistent. Follows Kafka's classic rebalance protocol (KIP-62, KIP-345, KIP-394).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any

from kafkacompat.coordinator.core import OperationRefused
from kafkacompat.group.consumer_protocol import MalformedSubscription, topics_of_all
from kafkacompat.group.records import GroupKind, GroupMetadataRecord
from kafkacompat.group.sizes import size_of_classic_member, size_of_group, size_of_topics
from kafkacompat.memory import NO_CONNECTION
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.group_metadata_value import GroupMetadataValue, MemberMetadata

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkacompat.coordinator.core import Caller, Reply
    from kafkacompat.group.records import GroupRecord, OffsetAndMetadata
    from kafkacompat.memory import Held, Memory
    from kafkacompat.wire.messages.join_group_response import JoinGroupResponse
    from kafkacompat.wire.messages.sync_group_response import SyncGroupResponse


Protocols = tuple[tuple[str, bytes], ...]
"""(name, metadata) pairs in the member's order of preference."""

EMPTY_ASSIGNMENT = b""


class ClassicGroupMember:
    """`awaiting_join` and `awaiting_sync` are the parked requests, at most one of each.

    `is_new` is true from the first join to its answer. Such a member has a longer deadline, because it cannot send
    heartbeats before it knows its id. Timeouts in ms.
    """

    __slots__ = (
        "assignment",
        "awaiting_join",
        "awaiting_sync",
        "client_host",
        "client_id",
        "connection_id",
        "group_instance_id",
        "held",
        "is_new",
        "member_id",
        "protocol_type",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
    )

    def __init__(
        self,
        member_id: str,
        group_instance_id: str | None,
        client_id: str,
        client_host: str,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocol_type: str,
        protocols: Protocols,
        assignment: bytes = EMPTY_ASSIGNMENT,
        connection_id: int = NO_CONNECTION,
    ) -> None:
        """`connection_id`: that of the member's last join. NO_CONNECTION if the member was loaded."""
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.client_id = client_id
        self.client_host = client_host
        """With the leading slash of Java's InetAddress, as in records and DescribeGroups."""
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.protocol_type = protocol_type
        self.protocols = protocols
        self.assignment = assignment
        self.awaiting_join: Caller | None = None
        self.awaiting_sync: Caller | None = None
        self.is_new = False
        self.connection_id = connection_id
        self.held: Held | None = None
        """The memory that the group counts for the member."""

    def size(self) -> int:
        """The bytes of memory that the member takes."""
        instance_id = self.group_instance_id or ""
        names = (self.member_id, self.client_id, self.client_host, instance_id, self.protocol_type)
        return size_of_classic_member(names, self.protocols) + len(self.assignment)

    def metadata(self, protocol_name: str) -> bytes:
        """The member's metadata for this protocol. Raises KeyError if the member does not support it."""
        for name, metadata in self.protocols:
            if name == protocol_name:
                return metadata
        raise KeyError(protocol_name)

    def vote(self, candidates: Collection[str]) -> str:
        """The member's preferred protocol among the candidates. Raises KeyError if it supports none."""
        for name, _ in self.protocols:
            if name in candidates:
                return name
        raise KeyError(f"member {self.member_id} speaks none of {sorted(candidates)}")

    def answer_sync(self, message: SyncGroupResponse) -> Sequence[Reply]:
        """The reply to the parked SyncGroup, which then is no longer parked. None if there is none."""
        caller, self.awaiting_sync = self.awaiting_sync, None
        return () if caller is None else ((caller, message),)

    def has_satisfied_heartbeat(self) -> bool:
        """A parked request proves that the member is alive. Exception: a new member, whose client may have
        disconnected unnoticed."""
        return not self.is_new and (self.awaiting_join is not None or self.awaiting_sync is not None)


CONSUMER_PROTOCOL_TYPE = "consumer"


class ClassicGroupState(Enum):
    """The values are the names in the protocol."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


_S = ClassicGroupState

VALID_PREVIOUS_STATES: dict[ClassicGroupState, frozenset[ClassicGroupState]] = {
    _S.EMPTY: frozenset({_S.PREPARING_REBALANCE}),
    _S.PREPARING_REBALANCE: frozenset({_S.STABLE, _S.COMPLETING_REBALANCE, _S.EMPTY}),
    _S.COMPLETING_REBALANCE: frozenset({_S.PREPARING_REBALANCE}),
    _S.STABLE: frozenset({_S.COMPLETING_REBALANCE}),
    _S.DEAD: frozenset(_S),
}
"""State -> the states from which it may be entered."""


class InvalidTransition(Exception):
    """A transition that is not in the table: a bug in kafkacompat."""


class ClassicGroup:
    """Members are in the order of joining. `protocol_type` None means a simple group, created by commits alone."""

    __slots__ = (
        "__weakref__",
        "_supported",
        "awaiting_join_count",
        "current_state_timestamp_ms",
        "generation_id",
        "group_id",
        "held",
        "held_topics",
        "leader_id",
        "members",
        "memory",
        "new_member_added",
        "pending_join",
        "pending_sync",
        "prepared_upgrade",
        "previous_state",
        "protocol_name",
        "protocol_type",
        "state",
        "static_members",
        "subscribed_topics",
    )

    def __init__(
        self,
        group_id: str,
        state: ClassicGroupState = ClassicGroupState.EMPTY,
        *,
        generation_id: int = 0,
        protocol_type: str | None = None,
        protocol_name: str | None = None,
        leader_id: str | None = None,
        current_state_timestamp_ms: int = -1,
        memory: Memory | None = None,
        connection_id: int = NO_CONNECTION,
    ) -> None:
        """`memory`: where the group and its members are counted. None if they are not. `connection_id`: that of the request
        that creates the group."""
        self.group_id = group_id
        self.state = state
        self.previous_state = ClassicGroupState.DEAD
        self.generation_id = generation_id
        self.protocol_type = protocol_type
        self.protocol_name = protocol_name
        self.leader_id = leader_id
        self.current_state_timestamp_ms = current_state_timestamp_ms
        """When the state was entered, in ms. -1 if unknown."""
        self.members: dict[str, ClassicGroupMember] = {}
        self.static_members: dict[str, str] = {}
        """Instance id -> member id."""
        self.pending_join: dict[str, Held | None] = {}
        """Member ids handed out whose members have not joined yet (KIP-394), and the memory that they take."""
        self.pending_sync: set[str] = set()
        self.awaiting_join_count = 0
        self.new_member_added = False
        self.subscribed_topics: frozenset[str] | None = None
        """None if unknown."""
        self.held_topics: Held | None = None
        """Their memory, which may be many times that of the metadata that name them. It counts for the leader's connection."""
        self.memory = memory
        self.held: Held | None = None
        """The memory of the group itself. It counts for the connection of the member that has given it its type."""
        self._hold_itself(connection_id)
        self.prepared_upgrade: Any = None
        """What group/consumer/conversion has prepared."""
        self._supported: dict[str, int] = {}

    # --- state

    def transition_to(self, state: ClassicGroupState, now_ms: int) -> None:
        if self.state not in VALID_PREVIOUS_STATES[state]:
            raise InvalidTransition(f"group {self.group_id}: {self.state.value} -> {state.value}")
        self.previous_state = self.state
        self.state = state
        self.current_state_timestamp_ms = now_ms

    @property
    def kind(self) -> GroupKind:
        return GroupKind.CLASSIC

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def listed_protocol_type(self) -> str:
        return self.protocol_type or ""

    def is_empty(self) -> bool:
        return self.state is ClassicGroupState.EMPTY

    def is_dead(self) -> bool:
        return self.state is ClassicGroupState.DEAD

    def can_rebalance(self) -> bool:
        return self.state in VALID_PREVIOUS_STATES[ClassicGroupState.PREPARING_REBALANCE]

    def init_next_generation(self, now_ms: int) -> None:
        """End the join phase: the group completes with a protocol that all members support, or becomes empty."""
        self.generation_id += 1
        if self.members:
            self.protocol_name = self.select_protocol()
            self.update_subscribed_topics()
            self.transition_to(ClassicGroupState.COMPLETING_REBALANCE, now_ms)
        else:
            self.protocol_name = None
            self.update_subscribed_topics()
            self.transition_to(ClassicGroupState.EMPTY, now_ms)
        self.pending_sync.clear()

    # --- members

    def add(self, member: ClassicGroupMember, caller: Caller | None = None) -> None:
        if member.group_instance_id is not None:
            if member.group_instance_id in self.static_members:
                raise ValueError(
                    f"static member {member.group_instance_id} is already in group {self.group_id}"
                )
            self.static_members[member.group_instance_id] = member.member_id
        if not self.members:
            self.protocol_type = member.protocol_type
            self._hold_itself(member.connection_id)
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        self._hold(member)
        self._count(member.protocols, 1)
        member.awaiting_join = caller
        if caller is not None:
            self.awaiting_join_count += 1
        self.pending_join.pop(member.member_id, None)

    def remove(self, member_id: str) -> None:
        """Remove a member or a pending id. The leadership moves to the remaining member that joined first."""
        member = self.members.pop(member_id, None)
        if member is not None:
            self._count(member.protocols, -1)
            if member.awaiting_join is not None:
                self.awaiting_join_count -= 1
            if member.group_instance_id is not None:
                self.static_members.pop(member.group_instance_id, None)
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        self.pending_join.pop(member_id, None)
        self.pending_sync.discard(member_id)

    def replace_static_member(
        self, group_instance_id: str, old_member_id: str, new_member_id: str
    ) -> ClassicGroupMember:
        """Give the instance a new member id. It inherits everything, including the leadership, except parked requests."""
        old = self.members.pop(old_member_id)
        if old.awaiting_join is not None or old.awaiting_sync is not None:
            raise ValueError(
                f"member {old_member_id} has a parked call, which must be answered before it is replaced"
            )
        new = ClassicGroupMember(
            new_member_id,
            old.group_instance_id,
            old.client_id,
            old.client_host,
            old.rebalance_timeout_ms,
            old.session_timeout_ms,
            old.protocol_type,
            old.protocols,
            old.assignment,
            old.connection_id,
        )
        self.members[new_member_id] = new
        self._hold(new)
        if self.leader_id == old_member_id:
            self.leader_id = new_member_id
        if old_member_id in self.pending_sync:
            self.pending_sync.discard(old_member_id)
        self.static_members[group_instance_id] = new_member_id
        return new

    def update_member(
        self,
        member: ClassicGroupMember,
        protocols: Protocols,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        caller: Caller | None,
        connection_id: int = NO_CONNECTION,
    ) -> None:
        self._count(member.protocols, -1)
        member.protocols = protocols
        member.connection_id = connection_id
        self._hold(member)
        self._count(protocols, 1)
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms
        self.awaiting_join_count += (caller is not None) - (member.awaiting_join is not None)
        member.awaiting_join = caller

    def assign(self, member: ClassicGroupMember, assignment: bytes) -> None:
        if assignment != member.assignment:
            member.assignment = assignment
            self._hold(member)

    def _hold_itself(self, connection_id: int) -> None:
        if self.memory is not None:
            self.held = None
            self.held = self.memory.hold(size_of_group(self.group_id, self.protocol_type), connection_id)

    def _hold(self, member: ClassicGroupMember) -> None:
        if self.memory is not None:
            member.held = None  # the former memory first: it counts for the same connection
            member.held = self.memory.hold(member.size(), member.connection_id)

    def answer_join(self, member: ClassicGroupMember, message: JoinGroupResponse) -> Sequence[Reply]:
        """The reply to the member's parked JoinGroup, which then is no longer parked. None if there is none."""
        caller = member.awaiting_join
        if caller is None:
            return ()
        member.awaiting_join = None
        self.awaiting_join_count -= 1
        return ((caller, message),)

    def maybe_elect_new_joined_leader(self) -> bool:
        """Whether the leader has joined this rebalance. If the former leader has not, a member that has joined is
        elected."""
        if self.leader_id is None:
            return False
        if self.members[self.leader_id].awaiting_join is not None:
            return True
        for member in self.members.values():
            if member.awaiting_join is not None:
                self.leader_id = member.member_id
                return True
        return False

    def has_all_members_joined(self) -> bool:
        return len(self.members) == self.awaiting_join_count and not self.pending_join

    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def validate_member(self, member_id: str, group_instance_id: str | None) -> ErrorCode:
        """NONE, UNKNOWN_MEMBER_ID, or FENCED_INSTANCE_ID if another member id now has the instance."""
        if group_instance_id is not None:
            holder = self.static_members.get(group_instance_id)
            if holder is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if holder != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    # --- protocols

    def supports_protocols(self, protocol_type: str, protocols: Iterable[tuple[str, bytes]]) -> bool:
        """Whether a member with these protocols may join: all members must keep a common protocol."""
        names = [name for name, _ in protocols]
        if self.state is ClassicGroupState.EMPTY:
            return bool(protocol_type) and bool(names)
        return self.protocol_type == protocol_type and any(
            self._supported.get(name, 0) == len(self.members) for name in names
        )

    def select_protocol(self) -> str:
        """The protocol with the most votes among those that all members support. In a tie the one first voted for
        wins."""
        # Every common protocol is also one of the first member's. The other members may have any number of protocols.
        first = next(iter(self.members.values()))
        candidates = {name for name, _ in first.protocols if self._supported[name] == len(self.members)}
        votes: dict[str, int] = {}
        for member in self.members.values():
            name = member.vote(candidates)
            votes[name] = votes.get(name, 0) + 1
        return max(votes, key=votes.__getitem__)

    def uses_consumer_protocol(self) -> bool:
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    def update_subscribed_topics(self) -> None:
        """Read the members' subscriptions anew. Topics for which there is no room are unknown."""
        self.held_topics = None
        self.subscribed_topics = topics = self._read_subscribed_topics()
        if not topics or self.memory is None:
            return
        leader = self.members.get(self.leader_id or "")
        connection_id = NO_CONNECTION if leader is None else leader.connection_id
        size = size_of_topics(topics)
        if self.memory.has_room(size, connection_id):
            self.held_topics = self.memory.hold(size, connection_id)
        else:
            self.subscribed_topics = None

    def _read_subscribed_topics(self) -> frozenset[str] | None:
        """The topics that the members of a `consumer` group subscribe to. None if they are unknown."""
        if not self.uses_consumer_protocol():
            return None
        if not self.members:
            return frozenset()
        if self.protocol_name is None:
            return None
        name = self.protocol_name
        try:
            return topics_of_all(member.metadata(name) for member in self.members.values())
        except MalformedSubscription:
            return None

    def is_subscribed_to(self, topic: str) -> bool:
        """A `consumer` group whose topics are unknown counts as subscribed to every topic."""
        if self.subscribed_topics is None:
            return self.uses_consumer_protocol()
        return topic in self.subscribed_topics

    # --- offsets

    def validate_offset_commit(
        self,
        member_id: str,
        group_instance_id: str | None,
        member_epoch: int,
        is_transactional: bool,
        api_version: int,
    ) -> None:
        if self.state is ClassicGroupState.DEAD:
            raise OperationRefused(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if member_epoch < 0 and self.state is ClassicGroupState.EMPTY:
            return
        if member_epoch < 0 and member_id == "" and group_instance_id is None:
            if is_transactional:
                return
            raise OperationRefused(ErrorCode.UNKNOWN_MEMBER_ID)
        error = self.validate_member(member_id, group_instance_id)
        if error is not ErrorCode.NONE:
            raise OperationRefused(error)
        if member_epoch != self.generation_id:
            raise OperationRefused(ErrorCode.ILLEGAL_GENERATION)
        if self.state is ClassicGroupState.COMPLETING_REBALANCE and not is_transactional:
            raise OperationRefused(ErrorCode.REBALANCE_IN_PROGRESS)

    def validate_offset_fetch(self, member_id: str | None, member_epoch: int) -> None:
        pass

    def validate_offset_delete(self) -> None:
        if self.state is ClassicGroupState.DEAD:
            raise OperationRefused(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {self.group_id} not found.")
        if self.state is not ClassicGroupState.EMPTY and not self.uses_consumer_protocol():
            raise OperationRefused(ErrorCode.NON_EMPTY_GROUP)

    def expires_since_ms(self, stored: OffsetAndMetadata) -> int | None:
        if self.protocol_type is None:
            return stored.commit_timestamp
        if self.state is ClassicGroupState.EMPTY:
            since_ms = self.current_state_timestamp_ms
            return since_ms if since_ms >= 0 else stored.commit_timestamp
        is_known = self.uses_consumer_protocol() and self.subscribed_topics is not None
        is_stable = self.state is ClassicGroupState.STABLE
        return stored.commit_timestamp if is_known and is_stable else None

    # --- deletion

    def mark_dead(self, now_ms: int) -> None:
        self.pending_join.clear()
        self.transition_to(ClassicGroupState.DEAD, now_ms)

    def mark_alive(self) -> None:
        self.state = ClassicGroupState.EMPTY

    def tombstones(self) -> list[GroupRecord]:
        return [GroupMetadataRecord(self.group_id, None)]

    def _count(self, protocols: Protocols, step: int) -> None:
        for name in dict.fromkeys(name for name, _ in protocols):
            count = self._supported.get(name, 0) + step
            if count:
                self._supported[name] = count
            else:
                self._supported.pop(name, None)


def group_metadata_record(group: ClassicGroup, assignments: Mapping[str, bytes]) -> GroupMetadataRecord:
    """The group's record, from which it can be restored, with these assignments by member id."""
    name = group.protocol_name or ""
    return GroupMetadataRecord(
        group.group_id,
        GroupMetadataValue(
            protocol_type=group.protocol_type or "",
            generation=group.generation_id,
            protocol=group.protocol_name,
            leader=group.leader_id,
            current_state_timestamp=group.current_state_timestamp_ms,
            members=[
                MemberMetadata(
                    member_id=member.member_id,
                    group_instance_id=member.group_instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    rebalance_timeout=member.rebalance_timeout_ms,
                    session_timeout=member.session_timeout_ms,
                    subscription=member.metadata(name),
                    assignment=assignments.get(member.member_id, EMPTY_ASSIGNMENT),
                )
                for member in group.members.values()
            ],
        ),
    )


def empty_group_record(group_id: str, now_ms: int) -> GroupMetadataRecord:
    """A new group that has had no generation yet."""
    return GroupMetadataRecord(
        group_id,
        GroupMetadataValue(
            protocol_type="",
            generation=0,
            protocol=None,
            leader=None,
            current_state_timestamp=now_ms,
            members=[],
        ),
    )
