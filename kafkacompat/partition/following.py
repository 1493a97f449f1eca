"""What a follower does to its log with a leader's answer: append, truncate, take over watermarks.

Functions over a Copy of something; they know neither requests nor other partitions. Follows Kafka's AbstractFetcherThread: the
end of the epoch that both know decides where histories part (KIP-101, KIP-279). LogRefused and OSError pass through.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from kafkacompat.ports import LogRefused
from kafkacompat.records.batch import BatchCorrupt, end_of_some, iterate_batches, parse_header
from kafkacompat.wire.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkacompat.ids import TopicPartition
    from kafkacompat.ports import Buffer, Log
    from kafkacompat.stepping.jobs import Steps
    from kafkacompat.wire.messages.fetch_response import EpochEndOffset


class Copy(Protocol):
    """What follows: a PartitionCore its leader, or a future log the current one."""

    @property
    def topic_partition(self) -> TopicPartition: ...

    @property
    def log(self) -> Log: ...


BATCHES_AT_ONCE = 1024
"""Appended in one step of the loop, 5 to 10 microseconds each: a MiB can hold 13,000 of them."""


def append_in_steps(
    core: Copy, records: Buffer, leader_epoch: int, is_wanted: Callable[[], bool]
) -> Steps[int]:
    """`append_fetched`, with the loop in between. How many batches the last step had; -1 when it is not wanted any more, or the log
    has changed meanwhile.
    """
    view = memoryview(records)
    start = 0
    while True:
        end, last, count = end_of_some(view, start, BATCHES_AT_ONCE)
        append_fetched(core, view[start:end], leader_epoch)
        if end >= len(view):
            return count
        log_end = core.log.log_end_offset
        if parse_header(view, last).last_offset + 1 != log_end:
            return count  # what follows is of a later epoch
        start = end
        yield None
        if not is_wanted() or core.log.log_end_offset != log_end:
            return -1


def append_fetched(core: Copy, records: Buffer, leader_epoch: int) -> None:
    """Whole batches as they came. The first into an empty log may begin before the log does: the leader gives whole batches."""
    log = core.log
    try:
        log.append_as_follower(records, leader_epoch)
    except LogRefused as refused:
        if refused.code is not ErrorCode.OFFSET_OUT_OF_RANGE or log.log_end_offset != log.log_start_offset:
            raise
        first = _first_batch(records)
        if first is None or not first[0] < log.log_end_offset <= first[1]:
            raise
        log.truncate_fully_and_start_at(first[0])
        log.append_as_follower(records, leader_epoch)


def _first_batch(records: Buffer) -> tuple[int, int] | None:
    """Its first and last offset; None when there is no whole batch."""
    try:
        for header in iterate_batches(records):
            return header.base_offset, header.last_offset
    except BatchCorrupt:
        pass
    return None


def take_watermarks(core: Copy, high_watermark: int, log_start_offset: int) -> bool:
    """The leader's high watermark as far as the log reaches, and its log's start. True when the high watermark moved."""
    log = core.log
    before = log.high_watermark
    log.set_high_watermark(min(high_watermark, log.log_end_offset))
    start = min(log_start_offset, log.high_watermark)
    if start > log.log_start_offset:
        log.increment_log_start_offset(start)
    return log.high_watermark > before


def divergence(log: Log, diverging: EpochEndOffset) -> int:
    """Up to where the log is as the leader's.

    `diverging`: the largest epoch the leader knows that is not above our last one, and where it ended there. When we do not
    know that epoch, we drop what is above our largest smaller one, and ask again with that.
    """
    ours = log.end_offset_for_epoch(diverging.epoch)
    if ours.epoch < 0:
        offset = diverging.end_offset
    elif ours.epoch == diverging.epoch:
        offset = min(ours.offset, diverging.end_offset)
    else:
        offset = ours.offset
    return min(offset, log.log_end_offset)


def truncate_to_divergence(core: Copy, diverging: EpochEndOffset) -> str:
    """Drop what the leader does not have; returns a line for the node's log."""
    log = core.log
    end, high_watermark = log.log_end_offset, log.high_watermark
    offset = divergence(log, diverging)
    log.truncate_to(offset)
    below = "" if offset >= high_watermark else f", below its high watermark {high_watermark}"
    return (
        f"{core.topic_partition}: truncated from {end} to {log.log_end_offset}{below}: "
        f"the leader's epoch {diverging.epoch} ended at {diverging.end_offset}"
    )


def parts_below_start(log: Log, offset: int) -> bool:
    """Whether the log parts from the leader's below its own start.

    It then begins anew where the leader's does: in sync from that offset on it would lack what the leader has below. One that
    parts at its start is truncated like any other: all below was committed and deleted, and no offset of it may be given again.
    """
    return offset < log.log_start_offset


def take_latest(core: Copy, leader_end: int) -> bool:
    """The leader's log ends there and our fetch was out of range. True when that settles it; else its start must be known."""
    log = core.log
    if leader_end >= log.log_end_offset:
        return False
    log.truncate_to(leader_end)
    return True


def take_earliest(core: Copy, leader_start: int, *, anew: bool = False) -> None:
    """Where the leader's log begins: beyond our end everything here is gone there, and the log starts anew. So it does when nothing
    here is the leader's."""
    if anew or leader_start > core.log.log_end_offset:
        core.log.truncate_fully_and_start_at(leader_start)
