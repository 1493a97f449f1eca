"""Offset lookups in one partition, and deletion of records from its front: ListOffsets and DeleteRecords.

Functions over a Partition. Requests, and the special timestamps that each version allows, are unknown here.
Special timestamps are Kafka's. There is no tiered storage, so its two special timestamps find nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kafkacompat.api.partition_services import OffsetLookup
from kafkacompat.wire.errors import ErrorCode

if TYPE_CHECKING:
    from kafkacompat.partition.partition import Partition
    from kafkacompat.ports import TimestampOffset

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6
DEBUGGING_REPLICA = -2
THIS_NODE = -1
"""The connection id of this node's own questions."""


class Question(NamedTuple):
    """A client's lookup in a partition. The timestamp is in ms, or special."""

    timestamp_ms: int
    read_committed: bool
    current_leader_epoch: int
    replica_id: int
    connection_id: int

    @property
    def searched_timestamp_ms(self) -> int | None:
        """The argument for Log.begin_lookup."""
        return None if self.timestamp_ms == MAX_TIMESTAMP else self.timestamp_ms


def refusal(core: Partition, question: Question) -> OffsetLookup | None:
    error = core.check_leader(question.current_leader_epoch)
    if error is ErrorCode.NOT_LEADER_OR_FOLLOWER and question.replica_id == DEBUGGING_REPLICA:
        error = ErrorCode.NONE
    return None if error is ErrorCode.NONE else OffsetLookup(error)


def look_up(core: Partition, question: Question) -> OffsetLookup | None:
    """The offset for a special timestamp. None if the log must be searched (searches.py)."""
    refused = refusal(core, question)
    if refused is not None:
        return refused
    log, timestamp_ms = core.log, question.timestamp_ms
    if timestamp_ms == LATEST:
        if not _is_available(core, question):
            return OffsetLookup(ErrorCode.OFFSET_NOT_AVAILABLE)
        return OffsetLookup(ErrorCode.NONE, -1, _end(core, question), core.leader_epoch)
    if timestamp_ms in (EARLIEST, EARLIEST_LOCAL):
        start = log.log_start_offset
        return OffsetLookup(ErrorCode.NONE, -1, start, log.epoch_for_offset(start))
    if timestamp_ms in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return OffsetLookup(ErrorCode.NONE)
    if timestamp_ms >= 0 or timestamp_ms == MAX_TIMESTAMP:
        return None
    return OffsetLookup(ErrorCode.UNSUPPORTED_VERSION)


def answer_found(core: Partition, question: Question, found: TimestampOffset | None) -> OffsetLookup:
    """The answer for a valid search result. Consumers get no offset at or above the end of what they may fetch."""
    if found is not None and found.offset < _end(core, question):
        return OffsetLookup(ErrorCode.NONE, found.timestamp_ms, found.offset, found.leader_epoch)
    return OffsetLookup(ErrorCode.NONE if _is_available(core, question) else ErrorCode.OFFSET_NOT_AVAILABLE)


def _end(core: Partition, question: Question) -> int:
    log = core.log
    if question.replica_id >= 0:
        return log.log_end_offset
    return log.last_stable_offset if question.read_committed else log.high_watermark


def _is_available(core: Partition, question: Question) -> bool:
    return question.replica_id >= 0 or core.offsets_are_available()


def delete_records_on_leader(core: Partition, offset: int) -> tuple[ErrorCode, int]:
    """Move the log start up to an offset (-1: the high watermark). Returns (error, that offset), with offset -1 on
    error."""
    error = core.check_leader(-1)
    if error is not ErrorCode.NONE:
        return error, -1
    log = core.log
    if "compact" in log.config.cleanup_policy and "delete" not in log.config.cleanup_policy:
        return ErrorCode.POLICY_VIOLATION, -1
    target = log.high_watermark if offset == -1 else offset
    if target < 0 or target > log.high_watermark:
        return ErrorCode.OFFSET_OUT_OF_RANGE, -1
    log.increment_log_start_offset(target)
    return ErrorCode.NONE, target
