"""ConsumerGroupHeartbeat (KIP-848): members join, report, and leave a consumer group by it.

A heartbeat updates the member, then the target assignment if the group epoch is ahead of it, then the member's own
assignment. Each step adds records, and nothing changes before the log has them. Follows Kafka's GroupMetadataManager.

Nearly all heartbeats are of a member to whom nothing happens: it tells nothing new, has what it should have, and
learns nothing. One that was carried out once is carried out again by a few comparisons (SteadyHeartbeat), with the
effects that consumer_group_heartbeat would have: the session goes on, and expressions are resolved when that is due.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from enum import Enum
from typing import TYPE_CHECKING
from weakref import ref

from kafkacompat.coordinator.core import CoordinatorResult, OperationRefused
from kafkacompat.dataclass import dataclass
from kafkacompat.group.classic.rebalance import refuse_all_parked
from kafkacompat.group.consumer.consumer_group import ConsumerGroup
from kafkacompat.group.consumer.consumer_group_member import (
    LEAVE_GROUP_STATIC_MEMBER_EPOCH,
    ConsumerGroupMember,
    MemberState,
    OwnedPartitions,
)
from kafkacompat.group.consumer.conversion import (
    is_upgraded_at_once,
    upgraded,
    upgraded_if_prepared,
    validate_online_upgrade,
)
from kafkacompat.group.consumer.membership import (
    check_epoch,
    fence_members,
    maybe_update_epoch,
    note_member,
    reconcile,
    static_member_for,
)
from kafkacompat.group.consumer.regular_expressions import (
    MayDescribe,
    RegexUpdate,
    maybe_update_regular_expressions,
)
from kafkacompat.group.consumer.target_assignment_builder import Change, maybe_update_target
from kafkacompat.group.environment import Environment
from kafkacompat.group.modern_group import (
    LEAVE_GROUP_MEMBER_EPOCH,
    group_of_kind,
    is_blank,
    schedule_session_timeout,
    session_key,
    session_timeout_ms,
    static_member_or_refused,
    throw_if_full,
)
from kafkacompat.group.records import GroupRecord, consumer_current_assignment_record
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.consumer_group_heartbeat_response import Assignment as ToldAssignment
from kafkacompat.wire.messages.consumer_group_heartbeat_response import (
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkacompat.group.classic.classic_group import ClassicGroup
    from kafkacompat.wire.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest


CLIENT_MEMBER_IDS_SINCE = 1
"""From this version on the clients make the member ids."""


def validate_heartbeat(
    request: ConsumerGroupHeartbeatRequest, api_version: int, assignors: Sequence[str]
) -> None:
    """Raises OperationRefused INVALID_REQUEST or UNSUPPORTED_ASSIGNOR."""
    epoch = request.member_epoch
    if api_version >= CLIENT_MEMBER_IDS_SINCE or epoch > 0 or epoch == LEAVE_GROUP_MEMBER_EPOCH:
        _refuse_if(is_blank(request.member_id), "MemberId can't be empty.")
    _refuse_if(is_blank(request.group_id), "GroupId can't be empty.")
    _refuse_if(is_blank(request.instance_id), "InstanceId can't be empty.")
    _refuse_if(is_blank(request.rack_id), "RackId can't be empty.")
    if epoch == 0:
        _refuse_if(
            request.rebalance_timeout_ms == -1, "RebalanceTimeoutMs must be provided in first request."
        )
        _refuse_if(request.topic_partitions != [], "TopicPartitions must be empty when (re-)joining.")
        subscribes = request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
        _refuse_if(
            not subscribes,
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
        )
    elif epoch == LEAVE_GROUP_STATIC_MEMBER_EPOCH:
        _refuse_if(request.instance_id is None, "InstanceId can't be null.")
    else:
        _refuse_if(epoch < LEAVE_GROUP_STATIC_MEMBER_EPOCH, "MemberEpoch is invalid.")
    if request.server_assignor is not None and request.server_assignor not in assignors:
        raise OperationRefused(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.server_assignor} is not supported. Supported assignors: {', '.join(assignors)}.",
        )


def _refuse_if(is_so: bool, message: str) -> None:
    if is_so:
        raise OperationRefused(ErrorCode.INVALID_REQUEST, message)


Result = CoordinatorResult[GroupRecord, ConsumerGroupHeartbeatResponse]


class Part(Enum):
    """How far a heartbeat is carried out. What a part has written is a state like any other, and the next part goes on
    from whatever the state is then."""

    MEMBER = "the member and the group's epoch"
    TARGET = "the target assignment as well"
    WHOLE = "the member's assignment and the answer as well"


@dataclass(frozen=True, slots=True)
class HeartbeatCaller:
    client_id: str
    client_host: str
    """With the leading slash of Java's InetAddress."""
    may_describe: MayDescribe | None = None
    """None if everybody may describe every topic."""
    part: Part = Part.WHOLE


def consumer_group_heartbeat(
    env: Environment, request: ConsumerGroupHeartbeatRequest, caller: HeartbeatCaller, now_ms: int
) -> Result:
    """Raises OperationRefused."""
    if request.member_epoch in (LEAVE_GROUP_MEMBER_EPOCH, LEAVE_GROUP_STATIC_MEMBER_EPOCH):
        return _leave(env, request, now_ms)
    return _heartbeat(env, request, caller, now_ms)


def _heartbeat(
    env: Environment, request: ConsumerGroupHeartbeatRequest, caller: HeartbeatCaller, now_ms: int
) -> Result:
    records: list[GroupRecord] = []
    joins = request.member_epoch == 0
    classic = env.classic_group(request.group_id) if joins else None
    group = _group_for(env, request.group_id, joins, records, now_ms)
    throw_if_full(group, env.settings.consumer.max_size, request.member_id, request.instance_id)
    member_id = request.member_id or env.new_uuid()
    if request.instance_id is None:
        member = group.members.get(member_id) or _new_or_refused(group, member_id, joins)
        check_epoch(group, member, request)
    else:
        member = static_member_for(group, member_id, request.instance_id, joins, records, epoch_of=request)
    updated = told_of(request, caller, member)
    env.throw_if_no_room(group.growth(updated))
    names_changed = note_member(group, member, updated, records)
    regex = maybe_update_regular_expressions(
        env, group, member, updated, caller.may_describe, records, now_ms
    )
    change = Change(member, updated)
    bump = (
        names_changed
        or regex is RegexUpdate.UPDATED_AND_RESOLVED
        or has_assignor_changed(group, member, updated, env.settings.consumer.assignors[0])
    )
    group_epoch, homogeneous = maybe_update_epoch(env, group, change, bump, records, now_ms)
    schedule_session_timeout(env, group.group_id, member_id, session_timeout_ms(env, group))
    if caller.part is Part.MEMBER:
        return _written(records, ConsumerGroupHeartbeatResponse(), classic)
    target = maybe_update_target(env, group, group_epoch, change, homogeneous, records, now_ms)
    if caller.part is Part.TARGET:
        return _written(records, ConsumerGroupHeartbeatResponse(), classic)
    has_changed = names_changed or regex is not RegexUpdate.NO_CHANGE
    updated = reconcile(env, group, updated, target, has_changed, request.topic_partitions, records)
    response = ConsumerGroupHeartbeatResponse(
        member_id=updated.member_id,
        member_epoch=updated.member_epoch,
        heartbeat_interval_ms=env.configs.get_int(group.group_id, "consumer.heartbeat.interval.ms"),
    )
    if joins or is_full(request) or updated.assigned != member.assigned:
        response.assignment = _told_assignment(updated.assigned)
    return _written(records, response, classic)


def _written(
    records: list[GroupRecord], response: ConsumerGroupHeartbeatResponse, classic: ClassicGroup | None
) -> Result:
    """`classic`: the group that these records replace. Its members have to rejoin."""
    if classic is None:
        return CoordinatorResult(tuple(records), response)
    replies = refuse_all_parked(classic, ErrorCode.REBALANCE_IN_PROGRESS)
    return CoordinatorResult(tuple(records), response, replies=replies)


def _group_for(
    env: Environment, group_id: str, creates: bool, records: list[GroupRecord], now_ms: int
) -> ConsumerGroup:
    """The group, or one that comes to be with these records. An empty classic group is replaced, another is converted.
    Raises OperationRefused."""
    group = env.groups.get(group_id)
    if group is not None and group.is_dead():
        raise OperationRefused(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    if isinstance(group, ConsumerGroup):
        return group
    if not creates:
        reason = (
            f"Consumer group {group_id} not found."
            if group is None
            else f"Group {group_id} is not a consumer group."
        )
        raise OperationRefused(ErrorCode.GROUP_ID_NOT_FOUND, reason)
    classic = env.classic_group(group_id)
    if group is None:
        return ConsumerGroup(group_id, {})
    if classic is None:
        raise OperationRefused(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")
    if classic.is_empty():
        records += classic.tombstones()
        return ConsumerGroup(group_id, {})
    validate_online_upgrade(env, classic)
    if is_upgraded_at_once(classic):
        return upgraded(env, classic, records)
    return upgraded_if_prepared(env, classic, records, now_ms)


def has_assignor_changed(
    group: ConsumerGroup, member: ConsumerGroupMember, updated: ConsumerGroupMember, default: str
) -> bool:
    """Whether another assignor assigns the group's partitions now."""
    if updated.server_assignor == member.server_assignor:
        return False
    before, after = group.preferred_assignor(), group.preferred_assignor(member, updated)
    return (before or default) != (after or default)


def _new_or_refused(group: ConsumerGroup, member_id: str, joins: bool) -> ConsumerGroupMember:
    return ConsumerGroupMember(member_id) if joins else group.member(member_id)


def told_of(
    request: ConsumerGroupHeartbeatRequest, caller: HeartbeatCaller, member: ConsumerGroupMember
) -> ConsumerGroupMember:
    """The member with what the request tells. None means unchanged."""
    tells_nothing = (
        request.subscribed_topic_names is None
        and request.subscribed_topic_regex is None
        and request.rebalance_timeout_ms == -1
        and request.server_assignor is None
        and request.rack_id is None
        and request.instance_id in (None, member.instance_id)
    )
    if tells_nothing and (caller.client_id, caller.client_host, None) == (
        member.client_id,
        member.client_host,
        member.classic,
    ):
        return member
    names = member.subscribed_topic_names
    if request.subscribed_topic_names is not None:
        told = frozenset(request.subscribed_topic_names)
        names = names if told == names else told
    updated = replace(
        member,
        instance_id=member.instance_id if request.instance_id is None else request.instance_id,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        rebalance_timeout_ms=member.rebalance_timeout_ms
        if request.rebalance_timeout_ms == -1
        else request.rebalance_timeout_ms,
        server_assignor=member.server_assignor
        if request.server_assignor is None
        else request.server_assignor,
        subscribed_topic_names=names,
        subscribed_topic_regex=member.subscribed_topic_regex
        if request.subscribed_topic_regex is None
        else request.subscribed_topic_regex,
        client_id=caller.client_id,
        client_host=caller.client_host,
        classic=None,
    )
    return member if updated == member else updated


def is_full(request: ConsumerGroupHeartbeatRequest) -> bool:
    """A member sends everything when it joins and after an error, and then needs everything back."""
    subscribes = request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
    return request.rebalance_timeout_ms != -1 and subscribes and request.topic_partitions is not None


def _told_assignment(assigned: OwnedPartitions) -> ToldAssignment:
    return ToldAssignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, partitions=sorted(partitions))
            for topic_id, partitions in assigned.items()
        ]
    )


# --- leaving


def _leave(env: Environment, request: ConsumerGroupHeartbeatRequest, now_ms: int) -> Result:
    group = group_of_kind(env, request.group_id, ConsumerGroup)
    response = ConsumerGroupHeartbeatResponse(member_id=request.member_id, member_epoch=request.member_epoch)
    if request.instance_id is None:
        return fence_members(env, group, [group.member(request.member_id)], now_ms).answering(response)
    member = static_member_or_refused(group, request.member_id, request.instance_id)
    if request.member_epoch == LEAVE_GROUP_MEMBER_EPOCH:
        return fence_members(env, group, [member], now_ms).answering(response)
    # The partitions stay with the instance, and its next member id has them from the beginning.
    left = replace(
        member,
        member_epoch=LEAVE_GROUP_STATIC_MEMBER_EPOCH,
        pending_revocation={},
        assigned={topic_id: dict.fromkeys(epochs, 0) for topic_id, epochs in member.assigned.items()},
    )
    return CoordinatorResult((consumer_current_assignment_record(group.group_id, left),), response)


class SteadyHeartbeat:
    __slots__ = ("_configs", "_instance_id", "_member", "_session_key", "_session_timeout_ms", "group_id")

    def __init__(
        self,
        group_id: str,
        member: ConsumerGroupMember,
        instance_id: str | None,
        session_timeout_ms: int,
        configs: Mapping[str, str],
    ) -> None:
        """`instance_id` is that of the request. `configs`: the group's own settings, on which the answer depends."""
        self.group_id = group_id
        self._member = ref(member)
        """Repetitions are kept for long, and a member that has left may have had many partitions."""
        self._instance_id = instance_id
        self._configs = configs
        self._session_timeout_ms = session_timeout_ms
        self._session_key = session_key(group_id, member.member_id)

    def again(self, env: Environment, now_ms: int) -> bool:
        """Carry the heartbeat out. False, and nothing done, if it might have another answer now or records to write."""
        group = env.groups.get(self.group_id)
        member = self._member()
        if member is None:
            return False
        epoch = member.member_epoch
        if (
            type(group) is not ConsumerGroup
            or group.members.get(member.member_id) is not member
            or group.assignment_epoch != epoch
            or group.group_epoch != epoch
            or group.has_metadata_expired(now_ms)
            or (self._instance_id is not None and group.static_member(self._instance_id) is not member)
            or env.configs.overrides(self.group_id) != self._configs
            or not env.timers.reschedule(self._session_key, self._session_timeout_ms)
        ):
            return False
        if group.regexes:
            maybe_update_regular_expressions(env, group, member, member, None, [], now_ms)
        return True


def steady_heartbeat(
    env: Environment,
    request: ConsumerGroupHeartbeatRequest,
    caller: HeartbeatCaller,
    answer: ConsumerGroupHeartbeatResponse,
) -> SteadyHeartbeat | None:
    """The heartbeat that has just got this answer, if the next one might get it too. `caller` may describe all topics."""
    epoch = request.member_epoch
    if epoch <= 0 or answer.error_code or answer.member_epoch != epoch or answer.assignment is not None:
        return None
    group = env.groups.get(request.group_id)
    if not isinstance(group, ConsumerGroup):
        return None
    member = group.members.get(request.member_id)
    if (
        member is None
        or member.member_epoch != epoch
        or member.state is not MemberState.STABLE
        or told_of(request, caller, member) is not member
    ):
        return None
    return SteadyHeartbeat(
        request.group_id,
        member,
        request.instance_id,
        session_timeout_ms(env, group),
        env.configs.overrides(request.group_id),
    )
