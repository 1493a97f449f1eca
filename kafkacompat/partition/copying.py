"""How a copy of a log on this node follows its source: apply truncations, append, take over watermarks.

Pure functions over two logs. A copy follows the current log as a follower follows its leader (following.py). Both logs
are at hand, so before each piece the epochs of both show where they diverge.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkacompat.partition.following import append_fetched, take_watermarks, truncate_to_divergence
from kafkacompat.wire.messages.fetch_response import EpochEndOffset

if TYPE_CHECKING:
    from kafkacompat.partition.following import Copy
    from kafkacompat.ports import Buffer, Log

ANY_EPOCH = 2**31 - 1
"""An epoch limit that accepts everything in the current log."""


def settle(copy: Copy, current: Log) -> str | None:
    """Truncate the copy to what the current log has. Returns a line for the node's log if something was dropped.
    Raises OSError."""
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
            # Everything in the copy is older than the start of the current log.
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
    """Append whole batches of the current log from the copy's end. Raises OSError or LogRefused."""
    append_fetched(copy, records, ANY_EPOCH)
    take_over_watermarks(copy, current)


def take_over_watermarks(copy: Copy, current: Log) -> None:
    take_watermarks(copy, current.high_watermark, current.log_start_offset)
