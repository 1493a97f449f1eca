"""What can be told of a log's files where nobody has checked every batch: whether the end is one, and what of the rest can be read.

Duty: look at the tail to which the next batch is appended; read past damage. Must not know: what becomes of a damaged log
(recovery.py). After a clean stop all batches were synced, so that only a damaged disk or somebody's hand explains what is amiss.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from kafkacompat.log import scan
from kafkacompat.log.index import MAX_OFFSET, MAX_RELATIVE_OFFSET
from kafkacompat.log.replay import replay_segments
from kafkacompat.log.segment_batches import LOG_SUFFIX, SCAN_CHUNK
from kafkacompat.records.batch import BatchCorrupt, BatchHeader, has_valid_crc
from kafkacompat.records.compression import DecompressionFailed
from kafkacompat.records.record import RecordMalformed

if TYPE_CHECKING:
    from kafkacompat.log.producer_state import ProducerStateManager
    from kafkacompat.log.segment import Segment

DAMAGE = (BatchCorrupt, RecordMalformed, DecompressionFailed, struct.error)
"""What reading a damaged file ends in; struct.error is an offset that no index entry can hold."""


def check_order(segment: Segment, header: BatchHeader, after: int) -> None:
    """BatchCorrupt where a batch cannot lie in the segment, or not after what ends at `after`: a crc does not cover offsets."""
    if not after <= header.last_offset <= segment.base_offset + MAX_RELATIVE_OFFSET or (
        header.magic == 2 and not after <= header.base_offset <= header.last_offset
    ):
        raise BatchCorrupt(f"offset {header.last_offset} where {after} is next in {segment.stem}{LOG_SUFFIX}")


def end_of(segment: Segment) -> int:
    """The offset after the last batch, of which the last ones, from the last index entry on, are whole, sound and in order.

    DAMAGE when they are not, or something lies behind them.
    """
    start = segment.position_before(MAX_OFFSET)
    after = segment.base_offset
    for header, batch in scan.whole_batches(segment.file, segment.size, SCAN_CHUNK, start=start):
        check_order(segment, header, after)
        if not has_valid_crc(batch, header):
            raise BatchCorrupt(f"the crc of the batch at {header.position} is wrong")
        after = header.last_offset + 1
    return after


def replay_what_can_be_read(
    state: ProducerStateManager, segments: Sequence[Segment], end_offset: int, note: Callable[[str], None]
) -> None:
    """As replay_segments; what follows damage in a segment is passed over."""
    for at, segment in enumerate(segments):
        end = segments[at + 1].base_offset if at + 1 < len(segments) else end_offset
        try:
            replay_segments(state, [segment], end)
        except DAMAGE as damage:
            note(
                f"{segment.stem}{LOG_SUFFIX}: {damage}; what producers wrote after offset {state.end_offset} there is not known"
            )
            state.end_offset = end
