"""The APIs of the classic protocol in the coordinator: to classic groups, and to consumer groups with classic members."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kafkacompat.coordinator.core import Caller, CoordinatorResult, OperationRefused, or_refused
from kafkacompat.deferred import Deferred
from kafkacompat.group.classic.classic_group import ClassicGroup
from kafkacompat.group.classic.members import JoinCaller, heartbeat, join, leave, sync
from kafkacompat.group.classic.rebalance import join_refusal
from kafkacompat.group.consumer.classic_members import (
    heartbeat_of_classic_member,
    join_consumer_group,
    leave_consumer_group,
    sync_consumer_group,
)
from kafkacompat.group.consumer.consumer_group import ConsumerGroup
from kafkacompat.group.environment import MEMBER_BYTES_MAX
from kafkacompat.group.sweeps import machine_of
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.heartbeat_response import HeartbeatResponse
from kafkacompat.wire.messages.leave_group_response import LeaveGroupResponse
from kafkacompat.wire.messages.sync_group_response import SyncGroupResponse

if TYPE_CHECKING:
    from kafkacompat.api.request_context import RequestContext
    from kafkacompat.coordinator.shard import Shard
    from kafkacompat.group.consumer.regular_expressions import MayDescribe
    from kafkacompat.group.environment import GroupResult, GroupSettings
    from kafkacompat.group.records import GroupRecord
    from kafkacompat.wire.messages.heartbeat_request import HeartbeatRequest
    from kafkacompat.wire.messages.join_group_request import JoinGroupRequest
    from kafkacompat.wire.messages.join_group_response import JoinGroupResponse
    from kafkacompat.wire.messages.leave_group_request import LeaveGroupRequest
    from kafkacompat.wire.messages.sync_group_request import SyncGroupRequest

KNOWN_MEMBER_ID_SINCE = 4
SKIP_ASSIGNMENT_SINCE = 9
PROTOCOLS_MAX = 100
"""Protocols of one member. Each rebalance examines those of all members. Clients name one to five."""

ShardOf = Callable[[str], "Shard"]
"""The shard of a group. Raises OperationRefused."""


def join_group(
    shard_of: ShardOf,
    settings: GroupSettings,
    request: JoinGroupRequest,
    context: RequestContext,
    may_describe: MayDescribe | None,
) -> Deferred[JoinGroupResponse]:
    error = _join_refused(settings, request)
    if error is not None:
        return Deferred.of(join_refusal(request.member_id, error))

    def operation(told: Caller, now_ms: int) -> GroupResult:
        caller = JoinCaller(
            caller=told,
            protocols=tuple([(protocol.name, protocol.metadata) for protocol in request.protocols]),
            client_id=context.client_id or "",
            client_host=f"/{context.client_host}",
            requires_known_member_id=context.api_version >= KNOWN_MEMBER_ID_SINCE,
            can_skip_assignment=context.api_version >= SKIP_ASSIGNMENT_SINCE,
            connection_id=context.connection_id,
            may_describe=may_describe,
        )
        env = machine_of(shard).env
        group = env.groups.get(request.group_id)
        if group is None or isinstance(group, ClassicGroup):
            return join(env, request, caller, now_ms)
        if group.is_dead():
            raise OperationRefused(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if not isinstance(group, ConsumerGroup):
            raise OperationRefused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if group.is_empty():
            return join(env, request, caller, now_ms)
        return join_consumer_group(env, group, request, caller, now_ms)

    def refused(refusal: OperationRefused) -> JoinGroupResponse:
        # Kafka names the member only in refusals from before the lookup of the coordinator.
        return join_refusal("", refusal.code)

    try:
        shard = shard_of(request.group_id)
        return or_refused(shard.ask(operation), refused)
    except OperationRefused as refusal:
        return Deferred.of(refused(refusal))


def _join_refused(settings: GroupSettings, request: JoinGroupRequest) -> ErrorCode | None:
    """Checks of the request itself."""
    if not request.group_id:
        return ErrorCode.INVALID_GROUP_ID
    shortest, longest = settings.min_session_timeout_ms, settings.max_session_timeout_ms
    if not shortest <= request.session_timeout_ms <= longest:
        return ErrorCode.INVALID_SESSION_TIMEOUT
    if len(request.protocols) > PROTOCOLS_MAX:
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if sum([len(protocol.metadata) for protocol in request.protocols]) > MEMBER_BYTES_MAX:
        return ErrorCode.UNKNOWN_SERVER_ERROR
    return None


def sync_group(shard_of: ShardOf, request: SyncGroupRequest) -> Deferred[SyncGroupResponse]:
    def operation(caller: Caller, now_ms: int) -> GroupResult:
        env = machine_of(shard).env
        group = env.groups.get(request.group_id)
        if isinstance(group, ConsumerGroup) and not group.is_empty():
            return sync_consumer_group(env, group, request, caller)
        return sync(env, request, caller)

    def refused(refusal: OperationRefused) -> SyncGroupResponse:
        return SyncGroupResponse(error_code=refusal.code)

    try:
        shard = shard_of(request.group_id)
        return or_refused(shard.ask(operation), refused)
    except OperationRefused as refusal:
        return Deferred.of(refused(refusal))


def heartbeat_of_member(shard_of: ShardOf, request: HeartbeatRequest) -> Deferred[HeartbeatResponse]:
    def operation() -> HeartbeatResponse:
        env = machine_of(shard).env
        group = env.groups.get(request.group_id)
        if isinstance(group, ConsumerGroup):
            return HeartbeatResponse(error_code=heartbeat_of_classic_member(env, group, request))
        return HeartbeatResponse(error_code=heartbeat(env, request))

    try:
        shard = shard_of(request.group_id)
        answer = shard.read(operation)
    except OperationRefused as refusal:
        if refusal.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            # Members of a loading group keep their assignments and continue.
            return Deferred.of(HeartbeatResponse())
        return Deferred.of(HeartbeatResponse(error_code=refusal.code))
    return or_refused(answer, lambda refusal: HeartbeatResponse(error_code=refusal.code))


def leave_group(shard_of: ShardOf, request: LeaveGroupRequest) -> Deferred[LeaveGroupResponse]:
    """`request.members` has the batched form in every client version."""

    def operation(now_ms: int) -> CoordinatorResult[GroupRecord, LeaveGroupResponse]:
        env = machine_of(shard).env
        group = env.groups.get(request.group_id)
        if isinstance(group, ConsumerGroup):
            return leave_consumer_group(env, group, request.members, now_ms)
        return leave(env, request.group_id, request.members, now_ms)

    def refused(refusal: OperationRefused) -> LeaveGroupResponse:
        return LeaveGroupResponse(error_code=refusal.code)

    try:
        shard = shard_of(request.group_id)
        answer = shard.write(operation)
    except OperationRefused as refusal:
        return Deferred.of(refused(refusal))
    return or_refused(answer, refused)
