"""The requests for one share-partition: which record each writes, and its answer.

They follow the operations of Kafka's ShareCoordinatorShard, with its errors in its order. The runtime replays the
record before the next operation of the same share-partition.
"""

from __future__ import annotations

from typing import NamedTuple, TypeVar

from kafkacompat.api.share_services import (
    UNKNOWN_DELIVERY_COMPLETE_COUNT,
    ReadState,
    ShareError,
    SharePartitionKey,
    StateSummary,
    WriteState,
)
from kafkacompat.ids import NO_EPOCH, NO_OFFSET
from kafkacompat.share.state.batches import NO_BATCHES, are_sound, combine
from kafkacompat.share.state.records import ShareRecord
from kafkacompat.share.state.share_coordinator_shard import ShareCoordinatorShard
from kafkacompat.share.state.states import (
    FIRST_EPOCH,
    ShareGroupOffset,
    ShareState,
    ShareUpdate,
    initial_offset,
)
from kafkacompat.wire.error_texts import error_text
from kafkacompat.wire.errors import ErrorCode

T = TypeVar("T")
Decision = tuple[ShareRecord | None, T]
"""The record to write, if any, and the answer."""

WRITTEN_BATCHES_MAX = 5_000
"""Batches of one write. Kafka has no bound. An in-flight window of 2,000 records, its default, has no more than that."""
STATE_BATCHES_MAX = 10_000
"""Batches of one share-partition. Kafka is bounded by the size of a record only, and writes no state beyond it again."""
NEGATIVE_PARTITION = ShareError(ErrorCode.INVALID_REQUEST, "The partition id cannot be a negative number.")
READ_UNINITIALIZED = ShareError(
    ErrorCode.INVALID_REQUEST, "Read operation on uninitialized share partition not allowed."
)
WRITE_UNINITIALIZED = ShareError(
    ErrorCode.INVALID_REQUEST, "Write operation on uninitialized share partition not allowed."
)
UNSOUND_BATCHES = ShareError(ErrorCode.INVALID_REQUEST, "A state batch ends before it begins.")
TOO_MANY_BATCHES = ShareError(
    ErrorCode.UNKNOWN_SERVER_ERROR, "The share partition has too many state batches."
)
DONE = ShareError()


class Initialization(NamedTuple):
    state_epoch: int
    start_offset: int


def error_of(code: ErrorCode) -> ShareError:
    return ShareError(code, error_text(code))


_UNKNOWN = error_of(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
_FENCED_LEADER = error_of(ErrorCode.FENCED_LEADER_EPOCH)
_FENCED_STATE = error_of(ErrorCode.FENCED_STATE_EPOCH)


def initialize_state(
    machine: ShareCoordinatorShard, key: SharePartitionKey, asked: Initialization, now_ms: int
) -> Decision[ShareError]:
    """A new state, whatever was known before."""
    if key.partition < 0:
        return None, NEGATIVE_PARTITION
    state = machine.states.get(key)
    if state is not None and _is_fenced(state.state_epoch, asked.state_epoch):
        return None, _FENCED_STATE
    if not _exists(machine, key):
        return None, _UNKNOWN
    snapshot_epoch = FIRST_EPOCH if state is None else state.offset.snapshot_epoch + 1
    value = initial_offset(snapshot_epoch, asked.state_epoch, asked.start_offset, now_ms)
    return ShareRecord(key, value), DONE


def read_state(
    machine: ShareCoordinatorShard, key: SharePartitionKey, leader_epoch: int, now_ms: int
) -> Decision[ReadState]:
    """The state. A leader of a newer epoch is recorded: from then on older leaders are fenced."""
    if key.partition < 0:
        return None, ReadState(NEGATIVE_PARTITION)
    state = machine.states.get(key)
    if state is None:
        return None, ReadState(READ_UNINITIALIZED)
    if state.leader_epoch > leader_epoch:
        return None, ReadState(_FENCED_LEADER)
    if not _exists(machine, key):
        return None, ReadState(_UNKNOWN)
    offset = state.offset
    answer = ReadState(DONE, offset.state_epoch, offset.start_offset, offset.batches.items)
    if leader_epoch in (NO_EPOCH, state.leader_epoch):
        return None, answer
    write = WriteState(
        offset.state_epoch, leader_epoch, offset.start_offset, offset.delivery_complete_count, ()
    )
    return ShareRecord(key, _update_or_snapshot(machine, state, write, leader_epoch, now_ms)), answer


def write_state(
    machine: ShareCoordinatorShard, key: SharePartitionKey, asked: WriteState, now_ms: int
) -> Decision[ShareError]:
    if key.partition < 0:
        return None, NEGATIVE_PARTITION
    state = machine.states.get(key)
    if state is None:
        return None, WRITE_UNINITIALIZED
    if _is_fenced(state.leader_epoch, asked.leader_epoch):
        return None, _FENCED_LEADER
    if _is_fenced(state.state_epoch, asked.state_epoch):
        return None, _FENCED_STATE
    if not _exists(machine, key):
        return None, _UNKNOWN
    batches = asked.batches
    if len(batches) > WRITTEN_BATCHES_MAX:
        return None, TOO_MANY_BATCHES
    if not are_sound(batches):
        return None, UNSOUND_BATCHES
    if _grows_too_large(state.offset, asked):
        return None, TOO_MANY_BATCHES
    leader_epoch = state.offset.leader_epoch  # only a read makes a newer one known
    return ShareRecord(key, _update_or_snapshot(machine, state, asked, leader_epoch, now_ms)), DONE


def delete_state(
    machine: ShareCoordinatorShard, key: SharePartitionKey, asked: None, now_ms: int
) -> Decision[ShareError]:
    """A share-partition without state is deleted already."""
    if key.partition < 0:
        return None, NEGATIVE_PARTITION
    if not _exists(machine, key):
        return None, _UNKNOWN
    return None if key not in machine.states else ShareRecord(key, None), DONE


def read_state_summary(
    machine: ShareCoordinatorShard, key: SharePartitionKey, leader_epoch: int, now_ms: int
) -> Decision[StateSummary]:
    """Without a state this is not an error. The leader epoch fences nobody."""
    if key.partition < 0:
        return None, StateSummary(NEGATIVE_PARTITION)
    if not _exists(machine, key):
        return None, StateSummary(_UNKNOWN)
    state = machine.states.get(key)
    if state is None:
        return None, StateSummary(DONE, FIRST_EPOCH, FIRST_EPOCH, NO_OFFSET, UNKNOWN_DELIVERY_COMPLETE_COUNT)
    offset = state.offset
    return None, StateSummary(
        DONE, offset.state_epoch, offset.leader_epoch, offset.start_offset, offset.delivery_complete_count
    )


def _update_or_snapshot(
    machine: ShareCoordinatorShard, state: ShareState, write: WriteState, leader_epoch: int, now_ms: int
) -> ShareUpdate | ShareGroupOffset:
    """After enough updates a snapshot takes the place of the next one."""
    offset = state.offset
    if state.updates < machine.env.updates_per_snapshot:
        return ShareUpdate(
            offset.snapshot_epoch,
            leader_epoch,
            write.start_offset,
            write.delivery_complete_count,
            combine(NO_BATCHES, write.batches, write.start_offset),
        )
    start_offset = offset.start_offset if write.start_offset == NO_OFFSET else write.start_offset
    return ShareGroupOffset(
        offset.snapshot_epoch + 1,
        offset.state_epoch,
        leader_epoch,
        start_offset,
        write.delivery_complete_count,
        combine(offset.batches, write.batches, start_offset),
        now_ms,
        now_ms,
    )


def batches_if_due(machine: ShareCoordinatorShard, key: SharePartitionKey) -> int:
    """How many batches the state has if the next record of it is a snapshot, otherwise 0."""
    state = machine.states.get(key)
    if state is None or state.updates < machine.env.updates_per_snapshot:
        return 0
    return len(state.offset.batches.items)


def _grows_too_large(offset: ShareGroupOffset, write: WriteState) -> bool:
    """A state at its bound still takes what does not make it larger. Otherwise nothing could make it smaller again: the
    start offset comes with the write of the records before it."""
    before = len(offset.batches.items)
    if len(write.batches) + before <= STATE_BATCHES_MAX:
        return False
    start_offset = offset.start_offset if write.start_offset == NO_OFFSET else write.start_offset
    after = len(combine(offset.batches, write.batches, start_offset).items)
    return after > max(before, STATE_BATCHES_MAX)


def _is_fenced(known: int, asked: int) -> bool:
    return asked != NO_EPOCH and known > asked


def _exists(machine: ShareCoordinatorShard, key: SharePartitionKey) -> bool:
    count = machine.env.partition_count(key.topic_id)
    return count is not None and key.partition < count
