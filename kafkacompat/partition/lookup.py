"""Offsets looked up in one partition, and records deleted from its front: ListOffsets and DeleteRecords.

Functions over a PartitionCore; they know neither versions (which special timestamps a client may use) nor requests.
Special timestamps are Kafka's; there is no tiered storage, so its two answer "none".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkacompat.api.context import OffsetLookup
from kafkacompat.records.batch import BatchCorrupt
from kafkacompat.wire.errors import ErrorCode

if TYPE_CHECKING:
    from kafkacompat.partition.core import PartitionCore

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6
DEBUGGING_REPLICA = -2


def look_up(
    core: PartitionCore, timestamp_ms: int, read_committed: bool, current_leader_epoch: int, replica_id: int
) -> OffsetLookup:
    """The offset at a timestamp (ms) or special value; consumers see nothing at or past what they may fetch."""
    error = core.check_leader(current_leader_epoch)
    if error is ErrorCode.NOT_LEADER_OR_FOLLOWER and replica_id == DEBUGGING_REPLICA:
        error = ErrorCode.NONE
    if error is not ErrorCode.NONE:
        return OffsetLookup(error)
    log = core.log
    if replica_id >= 0:
        end = log.log_end_offset
    elif read_committed:
        end = log.last_stable_offset
    else:
        end = log.high_watermark
    available = replica_id >= 0 or core.offsets_are_available()
    if timestamp_ms == LATEST:
        if not available:
            return OffsetLookup(ErrorCode.OFFSET_NOT_AVAILABLE)
        return OffsetLookup(ErrorCode.NONE, -1, end, core.leader_epoch)
    if timestamp_ms in (EARLIEST, EARLIEST_LOCAL):
        start = log.log_start_offset
        return OffsetLookup(ErrorCode.NONE, -1, start, log.epoch_for_offset(start))
    if timestamp_ms in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return OffsetLookup(ErrorCode.NONE)
    try:
        if timestamp_ms == MAX_TIMESTAMP:
            found = log.offset_of_max_timestamp()
        elif timestamp_ms >= 0:
            found = log.offset_for_timestamp(timestamp_ms)
        else:
            return OffsetLookup(ErrorCode.UNSUPPORTED_VERSION)
    except BatchCorrupt:
        return OffsetLookup(ErrorCode.CORRUPT_MESSAGE)
    except OSError:
        return OffsetLookup(ErrorCode.KAFKA_STORAGE_ERROR)
    if found is not None and found.offset < end:
        return OffsetLookup(ErrorCode.NONE, found.timestamp_ms, found.offset, found.leader_epoch)
    if not available:
        return OffsetLookup(ErrorCode.OFFSET_NOT_AVAILABLE)
    return OffsetLookup(ErrorCode.NONE)


def delete_to(core: PartitionCore, offset: int) -> tuple[ErrorCode, int]:
    """Move the log's start up to an offset (-1: the high watermark). (error, that offset), -1 with an error (E27)."""
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
