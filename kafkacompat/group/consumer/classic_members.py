"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup of members that use the classic protocol in a consumer group.

The coordinator assigns for them too. It tells them to rejoin when their assignment changes, and hides all other members,
so that none of them leads. Follows Kafka's GroupMetadataManager.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from kafkacompat.coordinator.core import Caller, CoordinatorResult, OperationRefused
from kafkacompat.group.classic.members import JoinCaller
from kafkacompat.group.classic.rebalance import join_refusal
from kafkacompat.group.consumer.consumer_group import (
    CONSUMER_PROTOCOL_TYPE,
    NO_PARTITIONS,
    ConsumerGroup,
    cancel_join_timeout,
    cancel_sync_timeout,
    schedule_join_timeout_if_absent,
    schedule_sync_timeout,
)
from kafkacompat.group.consumer.consumer_group_member import (
    ClassicMemberMetadata,
    ConsumerGroupMember,
    MemberState,
)
from kafkacompat.group.consumer.conversion import (
    CONVERTED_AT_ONCE,
    downgrade_later,
    downgraded,
    may_downgrade_replacing,
)
from kafkacompat.group.consumer.membership import (
    fence_members,
    maybe_update_epoch,
    note_member,
    reconcile,
    static_member_for,
)
from kafkacompat.group.consumer.regular_expressions import RegexUpdate, maybe_update_regular_expressions
from kafkacompat.group.consumer.target_assignment_builder import Change, ConsumerTarget, maybe_update_target
from kafkacompat.group.consumer_protocol import (
    METADATA_BYTES_MAX,
    are_too_many,
    assignment_bytes,
    subscription_of,
    version_of,
)
from kafkacompat.group.environment import Environment, GroupResult, replied
from kafkacompat.group.modern_group import schedule_session_timeout, throw_if_fenced, throw_if_full
from kafkacompat.group.records import GroupRecord
from kafkacompat.wire.errors import ErrorCode, WireError
from kafkacompat.wire.messages.consumer_group_heartbeat_request import TopicPartitions
from kafkacompat.wire.messages.join_group_response import JoinGroupResponse
from kafkacompat.wire.messages.leave_group_response import LeaveGroupResponse, MemberResponse
from kafkacompat.wire.messages.sync_group_response import SyncGroupResponse

if TYPE_CHECKING:
    from kafkacompat.wire.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
    from kafkacompat.wire.messages.heartbeat_request import HeartbeatRequest
    from kafkacompat.wire.messages.join_group_request import JoinGroupRequest
    from kafkacompat.wire.messages.leave_group_request import MemberIdentity
    from kafkacompat.wire.messages.sync_group_request import SyncGroupRequest


def join_consumer_group(
    env: Environment, group: ConsumerGroup, request: JoinGroupRequest, caller: JoinCaller, now_ms: int
) -> GroupResult:
    """Answers the caller when the records are committed. Raises OperationRefused."""
    if not env.settings.consumer.allows_classic_members:
        raise OperationRefused(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"Cannot join the consumer group {group.group_id} with the classic protocol because the group migration is "
            "disabled.",
        )
    if sum(len(protocol.metadata) for protocol in request.protocols) > METADATA_BYTES_MAX:
        raise OperationRefused(ErrorCode.UNKNOWN_SERVER_ERROR)
    if request.protocols and are_too_many(request.protocols[0].metadata):
        raise OperationRefused(ErrorCode.UNKNOWN_SERVER_ERROR)
    is_unknown = request.member_id == ""
    member_id = request.member_id or env.new_uuid()
    throw_if_full(group, env.settings.consumer.max_size, member_id, request.group_instance_id)
    protocols = tuple((protocol.name, bytes(protocol.metadata)) for protocol in request.protocols)
    if not group.supports_classic_protocols(request.protocol_type, [name for name, _ in protocols]):
        raise OperationRefused(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"Member {member_id}'s protocols are not supported."
        )
    if is_unknown and request.group_instance_id is None and caller.requires_known_member_id:
        return replied(caller.caller, join_refusal(member_id, ErrorCode.MEMBER_ID_REQUIRED))
    records: list[GroupRecord] = []
    replaced = group.static_member(request.group_instance_id)
    if request.group_instance_id is None:
        member = group.members.get(member_id) or ConsumerGroupMember(member_id)
    else:
        member = static_member_for(
            group, member_id, request.group_instance_id, is_unknown, records, epoch_of=None
        )
    try:
        subscription = subscription_of(protocols[0][1])
    except WireError:
        raise OperationRefused(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            "Malformed embedded consumer protocol in subscription deserialization.",
        ) from None
    may_downgrade = replaced is not None and may_downgrade_replacing(env, group, replaced)
    downgrades = may_downgrade and len(group.members) <= CONVERTED_AT_ONCE
    if may_downgrade and not downgrades:
        downgrade_later(env, group, now_ms)
    updated = replace(
        member,
        instance_id=member.instance_id if request.group_instance_id is None else request.group_instance_id,
        rack_id=subscription.rack_id or member.rack_id,
        rebalance_timeout_ms=member.rebalance_timeout_ms
        if request.rebalance_timeout_ms == -1
        else request.rebalance_timeout_ms,
        subscribed_topic_names=frozenset(subscription.topics),
        subscribed_topic_regex="",
        client_id=caller.client_id,
        client_host=caller.client_host,
        classic=ClassicMemberMetadata(request.session_timeout_ms, protocols),
    )
    env.throw_if_no_room(group.growth(updated), caller.connection_id)
    names_changed = note_member(group, member, updated, records)
    regex = maybe_update_regular_expressions(
        env, group, member, updated, caller.may_describe, records, now_ms
    )
    has_changed = names_changed or regex is not RegexUpdate.NO_CHANGE
    change = Change(member, updated)
    group_epoch, homogeneous = maybe_update_epoch(env, group, change, has_changed, records, now_ms)
    owned = _owned(env, subscription)
    if downgrades:
        assert replaced is not None
        rebalance = group.assignment_epoch < group_epoch
        if not rebalance:
            target = ConsumerTarget(
                group.assignment_epoch, group.target_of(updated.member_id, updated.instance_id, NO_PARTITIONS)
            )
            updated = reconcile(env, group, updated, target, has_changed, owned, records)
        result = downgraded(env, group, (), now_ms, updated, records, rebalance)
    else:
        target = maybe_update_target(env, group, group_epoch, change, homogeneous, records, now_ms)
        updated = reconcile(env, group, updated, target, has_changed, owned, records)
        result = CoordinatorResult(tuple(records), None)
        # Also a member whose client hears of a failure may be in the log, and must not stay for ever.
        schedule_session_timeout(env, request.group_id, updated.member_id, request.session_timeout_ms)
    response = JoinGroupResponse(
        member_id=updated.member_id,
        generation_id=updated.member_epoch,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        protocol_name=protocols[0][0],
    )

    def committed(error: ErrorCode, at_ms: int) -> GroupResult:
        if error is not ErrorCode.NONE:
            return replied(caller.caller, join_refusal("", error))
        cancel_join_timeout(env, request.group_id, updated.member_id)
        if not downgrades:
            schedule_session_timeout(env, request.group_id, updated.member_id, request.session_timeout_ms)
            schedule_sync_timeout(env, request.group_id, updated.member_id, request.rebalance_timeout_ms)
        return replied(caller.caller, response)

    return replace(result, committed=committed)


def _owned(env: Environment, subscription: ConsumerProtocolSubscription) -> list[TopicPartitions]:
    by_name = env.topics.by_name
    return [
        TopicPartitions(topic_id=topic.id, partitions=list(each.partitions))
        for each in subscription.owned_partitions
        if (topic := by_name.get(each.topic)) is not None
    ]


def sync_consumer_group(
    env: Environment, group: ConsumerGroup, request: SyncGroupRequest, caller: Caller
) -> GroupResult:
    """Answers the caller when everything before is committed. Raises OperationRefused."""
    member = _classic_member(group, request.member_id, request.group_instance_id, request.generation_id)
    assert member.classic is not None
    name, metadata = member.classic.protocols[0]
    if request.protocol_type not in (None, CONSUMER_PROTOCOL_TYPE) or request.protocol_name not in (
        None,
        name,
    ):
        raise OperationRefused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    is_behind = group.assignment_epoch > member.member_epoch
    if is_behind and member.state is not MemberState.UNREVOKED_PARTITIONS:
        schedule_join_timeout_if_absent(env, group.group_id, member)
        raise OperationRefused(ErrorCode.REBALANCE_IN_PROGRESS)
    session_timeout_ms = member.classic.session_timeout_ms

    def committed(error: ErrorCode, at_ms: int) -> GroupResult:
        if error is not ErrorCode.NONE:
            return replied(caller, SyncGroupResponse(error_code=error))
        cancel_sync_timeout(env, group.group_id, member.member_id)
        schedule_session_timeout(env, group.group_id, member.member_id, session_timeout_ms)
        assigned = {topic_id: frozenset(epochs) for topic_id, epochs in member.assigned.items()}
        return replied(
            caller,
            SyncGroupResponse(
                protocol_type=request.protocol_type,
                protocol_name=request.protocol_name,
                assignment=assignment_bytes(assigned, env.topics, version_of(metadata)),
            ),
        )

    return CoordinatorResult((), None, committed=committed)


def heartbeat_of_classic_member(
    env: Environment, group: ConsumerGroup, request: HeartbeatRequest
) -> ErrorCode:
    """REBALANCE_IN_PROGRESS if the member should rejoin for its next step. Raises OperationRefused."""
    member = _classic_member(group, request.member_id, request.group_instance_id, request.generation_id)
    assert member.classic is not None
    schedule_session_timeout(env, group.group_id, member.member_id, member.classic.session_timeout_ms)
    is_unreleased = member.state is MemberState.UNRELEASED_PARTITIONS
    if (
        member.member_epoch < group.assignment_epoch
        or member.state is MemberState.UNREVOKED_PARTITIONS
        or (is_unreleased and not group.waits_for_unreleased_partition(member))
    ):
        schedule_join_timeout_if_absent(env, group.group_id, member)
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def _classic_member(
    group: ConsumerGroup, member_id: str, instance_id: str | None, generation_id: int
) -> ConsumerGroupMember:
    """Raises OperationRefused."""
    if instance_id is None:
        member = group.member(member_id)
    else:
        found = group.static_member(instance_id)
        if found is None:
            raise OperationRefused(ErrorCode.UNKNOWN_MEMBER_ID)
        throw_if_fenced(found, member_id, instance_id)
        member = found
    if not member.uses_classic_protocol:
        raise OperationRefused(ErrorCode.UNKNOWN_MEMBER_ID)
    if member.member_epoch != generation_id:
        raise OperationRefused(ErrorCode.ILLEGAL_GENERATION)
    return member


def leave_consumer_group(
    env: Environment, group: ConsumerGroup, members: Sequence[MemberIdentity], now_ms: int
) -> CoordinatorResult[GroupRecord, LeaveGroupResponse]:
    """One answer a member, in the order of the request. Members of both protocols may leave so."""
    answers = []
    leaving: dict[str, ConsumerGroupMember] = {}
    for identity in members:
        answer = MemberResponse(member_id=identity.member_id, group_instance_id=identity.group_instance_id)
        try:
            member = _leaving(group, identity)
        except OperationRefused as refusal:
            answer.error_code = refusal.code
        else:
            leaving[member.member_id] = member
        answers.append(answer)
    return fence_members(env, group, list(leaving.values()), now_ms).answering(
        LeaveGroupResponse(members=answers)
    )


def _leaving(group: ConsumerGroup, identity: MemberIdentity) -> ConsumerGroupMember:
    instance_id = identity.group_instance_id
    if instance_id is None:
        return group.member(identity.member_id)
    member = group.static_member(instance_id)
    if member is None:
        raise OperationRefused(ErrorCode.UNKNOWN_MEMBER_ID)
    if identity.member_id:  # an administrator removes an instance without knowing its member id
        throw_if_fenced(member, identity.member_id, instance_id)
    return member
