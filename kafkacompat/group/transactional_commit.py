"""TxnOffsetCommit of one group: offsets that count once the transaction is committed.

It checks who may commit in a transaction, and turns the request into records. A producer that sends no consumer
membership (before KIP-447) is accepted, as in Kafka.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkacompat.coordinator.core import CoordinatorResult, Refused
from kafkacompat.group.classic_group import ClassicGroup, ClassicGroupState
from kafkacompat.group.commit import java_length
from kafkacompat.group.records import GroupKind, GroupRecord, OffsetAndMetadata, OffsetRecord
from kafkacompat.ids import ZERO_UUID
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.txn_offset_commit_response import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

if TYPE_CHECKING:
    from kafkacompat.group.machine import GroupMachine
    from kafkacompat.wire.messages.txn_offset_commit_request import TxnOffsetCommitRequest


def commit_transactional_offsets(
    machine: GroupMachine, request: TxnOffsetCommitRequest, now_ms: int
) -> CoordinatorResult[GroupRecord, TxnOffsetCommitResponse]:
    """Raises Refused for the whole request."""
    group_id = request.group_id
    group = machine.groups.get(group_id)
    if group is not None:
        _validate(group, request)
    else:
        _validate_elsewhere(machine, request)
    limit = machine.env.settings.offset_metadata_max_size
    records: list[GroupRecord] = []
    topics = []
    for topic in request.topics:
        answers = []
        for each in topic.partitions:
            metadata = each.committed_metadata or ""
            error = ErrorCode.NONE
            if java_length(metadata) > limit:
                error = ErrorCode.OFFSET_METADATA_TOO_LARGE
            else:
                value = OffsetAndMetadata(
                    each.committed_offset, each.committed_leader_epoch, metadata, now_ms, -1, ZERO_UUID
                )
                records.append(OffsetRecord(group_id, topic.name, each.partition_index, value))
            answers.append(
                TxnOffsetCommitResponsePartition(partition_index=each.partition_index, error_code=error)
            )
        topics.append(TxnOffsetCommitResponseTopic(name=topic.name, partitions=answers))
    return CoordinatorResult(tuple(records), TxnOffsetCommitResponse(topics=topics))


def _names_a_member(request: TxnOffsetCommitRequest) -> bool:
    return request.generation_id >= 0 or request.member_id != "" or request.group_instance_id is not None


def _validate(group: ClassicGroup, request: TxnOffsetCommitRequest) -> None:
    if group.state is ClassicGroupState.DEAD:
        raise Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    if not _names_a_member(request) or (request.generation_id < 0 and group.state is ClassicGroupState.EMPTY):
        return
    error = group.validate_member(request.member_id, request.group_instance_id)
    if error is not ErrorCode.NONE:
        raise Refused(error)
    if request.generation_id != group.generation_id:
        raise Refused(ErrorCode.ILLEGAL_GENERATION)


def _validate_elsewhere(machine: GroupMachine, request: TxnOffsetCommitRequest) -> None:
    """For a missing group, or one of an unsupported kind whose records are only kept. No member of it can be valid
    here."""
    carried = machine.carried.get(request.group_id)
    if carried is None:
        if request.generation_id >= 0:
            raise Refused(ErrorCode.ILLEGAL_GENERATION)
    elif carried.kind is GroupKind.SHARE:
        raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {request.group_id} is not a consumer group.")
    elif _names_a_member(request) and (request.generation_id >= 0 or not carried.is_empty()):
        raise Refused(ErrorCode.UNKNOWN_MEMBER_ID)
