"""Who may commit offsets within a transaction, row by row."""

from __future__ import annotations

from typing import Any

import pytest

from kafkacompat.coordinator.core import OperationRefused
from kafkacompat.group.classic.classic_group import ClassicGroup, ClassicGroupMember, ClassicGroupState
from kafkacompat.group.environment import GroupSettings
from kafkacompat.group.group_metadata_manager import GroupMetadataManager
from kafkacompat.group.offset_metadata_manager import commit_transactional_offsets
from kafkacompat.group.records import OffsetRecord
from kafkacompat.wire.errors import ErrorCode as E
from kafkacompat.wire.messages.txn_offset_commit_request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

NOW_MS = 1_000


def machine(state: ClassicGroupState | None) -> GroupMetadataManager:
    """A machine with the group `g` in a state, generation 3, member `m`, static as `i`. None: no group."""
    unused: Any = None
    made = GroupMetadataManager(GroupSettings(), unused, unused, unused, unused)
    if state is not None:
        group = ClassicGroup("g", generation_id=3, protocol_type="consumer")
        if state is not ClassicGroupState.EMPTY:
            group.add(ClassicGroupMember("m", "i", "c", "h", 1000, 1000, "consumer", (("range", b""),)))
        group.state = state
        made.groups["g"] = group
    return made


def commit(made: GroupMetadataManager, metadata: str = "", **fields: Any) -> Any:
    partition = TxnOffsetCommitRequestPartition(
        partition_index=1, committed_offset=5, committed_metadata=metadata
    )
    topics = [TxnOffsetCommitRequestTopic(name="t", partitions=[partition])]
    request = TxnOffsetCommitRequest(
        transactional_id="tx", group_id="g", producer_id=7, producer_epoch=0, topics=topics, **fields
    )
    try:
        result = commit_transactional_offsets(made.offsets, request, 5, NOW_MS)
    except OperationRefused as refusal:
        return refusal.code
    (record,) = result.records
    assert isinstance(record, OffsetRecord)
    assert record.value is not None
    assert (record.topic, record.partition, record.value.offset) == ("t", 1, 5)
    return E(result.response.topics[0].partitions[0].error_code)


S = ClassicGroupState
MEMBER = {"member_id": "m", "group_instance_id": "i", "generation_id_or_member_epoch": 3}


@pytest.mark.parametrize(
    ("state", "fields", "code"),
    [
        (None, {}, E.NONE),
        (None, {"generation_id_or_member_epoch": 0, "member_id": "m"}, E.ILLEGAL_GENERATION),
        (S.EMPTY, {}, E.NONE),
        (S.EMPTY, {"member_id": "m"}, E.NONE),
        (S.EMPTY, {"member_id": "m", "generation_id_or_member_epoch": 3}, E.UNKNOWN_MEMBER_ID),
        (S.STABLE, {}, E.NONE),
        (S.STABLE, MEMBER, E.NONE),
        (S.COMPLETING_REBALANCE, MEMBER, E.NONE),
        (S.PREPARING_REBALANCE, MEMBER, E.NONE),
        (S.STABLE, MEMBER | {"generation_id_or_member_epoch": 2}, E.ILLEGAL_GENERATION),
        (S.STABLE, MEMBER | {"member_id": "other", "group_instance_id": None}, E.UNKNOWN_MEMBER_ID),
        (S.STABLE, MEMBER | {"member_id": "other"}, E.FENCED_INSTANCE_ID),
        (S.STABLE, {"member_id": "other"}, E.UNKNOWN_MEMBER_ID),
        (S.STABLE, {"member_id": "m", "group_instance_id": "i"}, E.ILLEGAL_GENERATION),
        (S.DEAD, {}, E.COORDINATOR_NOT_AVAILABLE),
    ],
)
def test_which_members_may_commit_in_a_transaction(state: S | None, fields: dict[str, Any], code: E) -> None:
    assert commit(machine(state), **fields) is code


def test_metadata_has_a_bound() -> None:
    made = machine(None)
    assert commit(made, "x" * 4096) is E.NONE
    request = TxnOffsetCommitRequest(
        group_id="g",
        topics=[
            TxnOffsetCommitRequestTopic(
                name="t", partitions=[TxnOffsetCommitRequestPartition(committed_metadata="x" * 4097)]
            )
        ],
    )
    result = commit_transactional_offsets(made.offsets, request, 5, NOW_MS)
    assert result.records == ()
    assert result.response.topics[0].partitions[0].error_code == E.OFFSET_METADATA_TOO_LARGE
