"""Checks of a log whose batches were not all checked: whether its end is valid, and what can be read.

It checks the tail to which the next batch is appended, and skips damage. recovery.py decides what happens to a damaged
log. A clean stop syncs all batches, so after it only a damaged disk or an outside change explains damage.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from kafkacompat.log import scan
from kafkacompat.log.aborted import TXN_INDEX_SUFFIX
from kafkacompat.log.index import MAX_OFFSET, MAX_RELATIVE_OFFSET
from kafkacompat.log.log_segment import LOG_SUFFIX, SCAN_CHUNK
from kafkacompat.log.replay import replay_segments
from kafkacompat.records.batch import BatchCorrupt, BatchHeader, has_valid_crc
from kafkacompat.records.compression import DecompressionFailed
from kafkacompat.records.record import RecordMalformed

if TYPE_CHECKING:
    from kafkacompat.log.log_segment import LogSegment
    from kafkacompat.log.producer_state import ProducerStateManager

Note = Callable[[str], None]
DAMAGE = (BatchCorrupt, RecordMalformed, DecompressionFailed, struct.error)
"""The errors of reading a damaged file. struct.error means an offset that no index entry can hold."""


def check_order(segment: LogSegment, header: BatchHeader, after: int) -> None:
    """Raise BatchCorrupt if a batch cannot be in this segment, or cannot follow offset `after`. The CRC does not cover
    offsets."""
    if not after <= header.last_offset <= segment.base_offset + MAX_RELATIVE_OFFSET or (
        header.magic == 2 and not after <= header.base_offset <= header.last_offset
    ):
        raise BatchCorrupt(f"offset {header.last_offset} where {after} is next in {segment.stem}{LOG_SUFFIX}")


def end_of(segment: LogSegment) -> int:
    """The offset after the last batch. The batches from the last index entry on are checked.

    Raises one of DAMAGE if they are invalid or out of order, or if other bytes follow them.
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
    state: ProducerStateManager, segments: Sequence[LogSegment], end_offset: int, note: Note
) -> None:
    """Like replay_segments, but the rest of a damaged segment is skipped."""
    for at, segment in enumerate(segments):
        end = segments[at + 1].base_offset if at + 1 < len(segments) else end_offset
        try:
            replay_segments(state, [segment], end)
        except DAMAGE as damage:
            note(
                f"{segment.stem}{LOG_SUFFIX}: {damage}; what producers wrote after offset {state.end_offset} there is not known"
            )
            state.end_offset = end


def unsound_txn_index(segments: list[LogSegment], names: list[str], note: Note) -> int | None:
    """Base offset of the first segment with an unreadable transaction index. Its batches tell which entries belong
    there."""
    present = set(names)
    for segment in segments:
        name = f"{segment.base_offset:020d}{TXN_INDEX_SUFFIX}"
        if name not in present:
            segment.aborted.note_absence()
        elif not segment.aborted.is_sound():
            note(
                f"{segment.stem}{TXN_INDEX_SUFFIX}: not an index of this segment; the log is checked from there on"
            )
            return segment.base_offset
    return None


def unsound_tail(active: LogSegment, note: Note) -> int | None:
    """The base offset of the active segment if its tail is damaged. The segment must then be checked as after a crash."""
    if not active.size:
        return None
    try:
        end_of(active)
    except DAMAGE as damage:
        note(f"{active.stem}{LOG_SUFFIX}: {damage}; the segment is checked")
        return active.base_offset
    return None
