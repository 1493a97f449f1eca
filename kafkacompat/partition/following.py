"""How a follower applies a leader's response to its log: append, truncate, update watermarks.

The functions work on a Copy. Requests and other partitions are unknown here. Follows Kafka's AbstractFetcherThread:
the end of the last common epoch decides where logs diverge (KIP-101, KIP-279). Raises LogRefused and OSError.
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
    """A log that follows another: a Partition follows its leader, a future log follows the current one."""

    @property
    def topic_partition(self) -> TopicPartition: ...

    @property
    def log(self) -> Log: ...


BATCHES_AT_ONCE = 1024
"""Batches appended in one step of the loop, at 5 to 10 microseconds each. One MiB can have 13,000 batches."""


def append_in_steps(
    core: Copy, records: Buffer, leader_epoch: int, is_wanted: Callable[[], bool]
) -> Steps[int]:
    """`append_fetched` with turns of the loop in between. Returns the number of batches in the last step. Returns -1
    if the records are not wanted any more, or the log has changed meanwhile."""
    view = memoryview(records)
    start = 0
    while True:
        end, last, count = end_of_some(view, start, BATCHES_AT_ONCE)
        append_fetched(core, view[start:end], leader_epoch)
        if end >= len(view):
            return count
        log_end = core.log.log_end_offset
        if parse_header(view, last).last_offset + 1 != log_end:
            return count  # the rest is of a later epoch
        start = end
        yield None
        if not is_wanted() or core.log.log_end_offset != log_end:
            return -1


def append_fetched(core: Copy, records: Buffer, leader_epoch: int) -> None:
    """Append whole batches unchanged. The first batch in an empty log may begin before the log start, because the
    leader sends whole batches."""
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
    """The first and last offset of the first batch. None if there is no complete batch."""
    try:
        for header in iterate_batches(records):
            return header.base_offset, header.last_offset
    except BatchCorrupt:
        pass
    return None


def take_watermarks(core: Copy, high_watermark: int, log_start_offset: int) -> bool:
    """Take over the leader's high watermark, as far as the log reaches, and its log start. Returns whether the high
    watermark moved."""
    log = core.log
    before = log.high_watermark
    log.set_high_watermark(min(high_watermark, log.log_end_offset))
    start = min(log_start_offset, log.high_watermark)
    if start > log.log_start_offset:
        log.increment_log_start_offset(start)
    return log.high_watermark > before


def divergence(log: Log, diverging: EpochEndOffset) -> int:
    """The offset up to which the log equals the leader's.

    `diverging` is the leader's largest epoch that is not above our last one, with its end offset there. If we do not
    have that epoch, we truncate to the end of our largest smaller one and fetch again with that.
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
    """Truncate what the leader does not have. Returns a line for the node's log."""
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
    """Whether the log diverges from the leader's below its own start.

    It must then start empty at the leader's log start, because otherwise it would lack what the leader has below. A
    log that diverges exactly at its start is truncated as usual: everything below was committed and deleted, and those
    offsets may not be reused.
    """
    return offset < log.log_start_offset


def take_latest(core: Copy, leader_end: int) -> bool:
    """Handle an out-of-range fetch with the leader's log end. Returns True if that settles it, False if the leader's
    log start is needed."""
    log = core.log
    if leader_end >= log.log_end_offset:
        return False
    log.truncate_to(leader_end)
    return True


def take_earliest(core: Copy, leader_start: int, *, anew: bool = False) -> None:
    """Handle an out-of-range fetch with the leader's log start. If that is beyond our end, the log starts empty there.
    The same if `anew`: nothing in our log is the leader's."""
    if anew or leader_start > core.log.log_end_offset:
        core.log.truncate_fully_and_start_at(leader_start)
