"""What a copy of a log within this node does with the log it is made from: follow its truncations, append, take watermarks over.

Pure functions over two logs. A copy is to the current log what a follower is to its leader (following.py), save that both are at
hand: where histories part is asked of the epochs of both, before each piece.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkacompat.partition.following import append_fetched, take_watermarks, truncate_to_divergence
from kafkacompat.wire.messages.fetch_response import EpochEndOffset

if TYPE_CHECKING:
    from kafkacompat.partition.following import Copy
    from kafkacompat.ports import Buffer, Log

ANY_EPOCH = 2**31 - 1
"""What the current log has, its replica was allowed to append."""


def settle(copy: Copy, current: Log) -> str | None:
    """Drop what the current log does not have, or has no longer; a line for the node's log when something went. OSError."""
    log = copy.log
    before = log.log_end_offset
    if before < current.log_start_offset:
        return _begin_at_start(copy, current)
    note = None
    while (epoch := log.latest_epoch()) >= 0:
        ours = current.end_offset_for_epoch(epoch)
        if ours.epoch == epoch and ours.offset >= log.log_end_offset:
            break
        if ours.epoch < 0:
            # Everything of the copy is older than what the current log still has.
            return _begin_at_start(copy, current)
        known = log.log_end_offset, epoch
        note = truncate_to_divergence(
            copy, EpochEndOffset(epoch=ours.epoch, end_offset=min(ours.offset, current.log_end_offset))
        )
        if (log.log_end_offset, log.latest_epoch()) == known:
            break
    if log.log_end_offset > current.log_end_offset:
        log.truncate_to(current.log_end_offset)
        note = f"truncated from {before} to {log.log_end_offset}, where the current log ends"
    return note


def _begin_at_start(copy: Copy, current: Log) -> str:
    copy.log.truncate_fully_and_start_at(current.log_start_offset)
    return f"begins anew at {current.log_start_offset}, where the current log begins"


def copy_records(copy: Copy, current: Log, records: Buffer) -> None:
    """Append whole batches that the current log has at the copy's end. OSError, LogRefused."""
    append_fetched(copy, records, ANY_EPOCH)
    take_over_watermarks(copy, current)


def take_over_watermarks(copy: Copy, current: Log) -> None:
    take_watermarks(copy, current.high_watermark, current.log_start_offset)
