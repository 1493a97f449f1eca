"""TxnOffsetCommit of one group: offsets that count once the transaction is committed.

It checks who may commit in a transaction, and turns the request into records. A producer that sends no consumer
membership (before KIP-447) is accepted, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kafkacompat.coordinator.core import CoordinatorResult, Refused
from kafkacompat.group.commit import java_length, throw_if_no_room, validated
from kafkacompat.group.records import GroupRecord, OffsetAndMetadata, OffsetRecord
from kafkacompat.ids import ZERO_UUID
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.txn_offset_commit_response import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

if TYPE_CHECKING:
    from kafkacompat.group.group import CommitPartitionValidator
    from kafkacompat.group.group_metadata_manager import GroupMetadataManager
    from kafkacompat.wire.messages.txn_offset_commit_request import TxnOffsetCommitRequest


def commit_transactional_offsets(
    machine: GroupMetadataManager, request: TxnOffsetCommitRequest, api_version: int, now_ms: int
) -> CoordinatorResult[GroupRecord, TxnOffsetCommitResponse]:
    """Raises Refused for the whole request."""
    group_id = request.group_id
    may_commit = _validated(machine, request, api_version)
    limit = machine.env.settings.offset_metadata_max_size
    records: list[OffsetRecord] = []
    topics = []
    for topic in request.topics:
        check = None if may_commit is None else _check_of(may_commit, machine, topic.name)
        answers = []
        for each in topic.partitions:
            metadata = each.committed_metadata or ""
            error = ErrorCode.NONE
            if java_length(metadata) > limit:
                error = ErrorCode.OFFSET_METADATA_TOO_LARGE
            else:
                if check is not None:
                    check(each.partition_index)
                value = OffsetAndMetadata(
                    each.committed_offset, each.committed_leader_epoch, metadata, now_ms, -1, ZERO_UUID
                )
                records.append(OffsetRecord(group_id, topic.name, each.partition_index, value))
            answers.append(
                TxnOffsetCommitResponsePartition(partition_index=each.partition_index, error_code=error)
            )
        topics.append(TxnOffsetCommitResponseTopic(name=topic.name, partitions=answers))
    throw_if_no_room(machine, records)
    return CoordinatorResult(tuple(records), TxnOffsetCommitResponse(topics=topics))


def _validated(
    machine: GroupMetadataManager, request: TxnOffsetCommitRequest, api_version: int
) -> CommitPartitionValidator | None:
    with _stale_epochs_as_generations():
        return validated(
            machine,
            request.group_id,
            request.member_id,
            request.group_instance_id,
            request.generation_id,
            api_version,
            is_transactional=True,
        )


def _check_of(
    may_commit: CommitPartitionValidator, machine: GroupMetadataManager, topic: str
) -> Callable[[int], None]:
    """The check of a topic's partitions. The request has no topic ids. Raises Refused for a topic that does not exist,
    because it is assigned to nobody."""
    known = machine.env.topics.by_name.get(topic)
    if known is None:
        raise Refused(ErrorCode.ILLEGAL_GENERATION)

    def check(partition: int) -> None:
        with _stale_epochs_as_generations():
            may_commit(topic, known.id, partition)

    return check


@contextmanager
def _stale_epochs_as_generations() -> Iterator[None]:
    """The API has no STALE_MEMBER_EPOCH."""
    try:
        yield
    except Refused as refusal:
        if refusal.code is ErrorCode.STALE_MEMBER_EPOCH:
            raise Refused(ErrorCode.ILLEGAL_GENERATION, refusal.message) from None
        raise
