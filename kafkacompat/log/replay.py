"""Applies batches that are in the log to the producer state, the transaction index and the epochs.

Recovery, truncation and a follower's append use it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING

from kafkacompat.log.file_records import ITERATE_CHUNK, headers
from kafkacompat.log.index import AbortedTxn
from kafkacompat.log.producer_snapshots import SnapshotCorrupt, decode_snapshot, encode_snapshot
from kafkacompat.log.producer_state import ProducerStateManager
from kafkacompat.ports import LogRefused
from kafkacompat.records.batch import BatchCorrupt, has_valid_crc, iterate_batches, parse_header
from kafkacompat.records.compression import DecompressionFailed
from kafkacompat.records.control import EndTransactionMarker, parse_end_transaction_marker
from kafkacompat.records.read import first_record
from kafkacompat.records.record import RecordMalformed
from kafkacompat.tasks import Pace, at_once
from kafkacompat.wire.errors import ErrorCode

UNREADABLE = (BatchCorrupt, RecordMalformed, DecompressionFailed)
REPLAYED_AT_ONCE = 256
REPLAY_US = 5
"""Of a batch. A read for it has a bound (REPLAY_CHUNK), because a batch may have many megabytes."""
REPLAY_CHUNK = 16 * 1024

if TYPE_CHECKING:
    from kafkacompat.log.log_segment import LogSegment
    from kafkacompat.ports import Buffer, Disk
    from kafkacompat.records.batch import BatchHeader
    from kafkacompat.tasks import Work


def marker_of(batch: Buffer) -> EndTransactionMarker | None:
    """The end marker in a single control batch. None for another kind of control record."""
    record = first_record(batch, parse_header(batch))
    return None if record is None else parse_end_transaction_marker(record)


def follower_batches(view: memoryview, leader_epoch: int, next_offset: int) -> Iterator[BatchHeader]:
    """The batches that a follower may append: complete, valid, in order, and of no later epoch than its own.

    A later epoch or an incomplete batch ends the run. Raises LogRefused: CORRUPT_MESSAGE if the bytes must be fetched
    again, OFFSET_OUT_OF_RANGE if the offsets do not follow. Markers are parsed here too, because after the write it is
    too late to refuse an invalid one.
    """
    try:
        for header in iterate_batches(view):
            if header.leader_epoch > leader_epoch:
                return
            batch = view[header.position : header.position + header.size]
            if not has_valid_crc(batch, header):
                raise LogRefused(ErrorCode.CORRUPT_MESSAGE, f"the crc at {header.position} is wrong")
            if header.is_control and header.producer_id >= 0:
                marker_of(batch)
            if header.base_offset < next_offset:
                raise LogRefused(
                    ErrorCode.OFFSET_OUT_OF_RANGE,
                    f"offset {header.base_offset} came where {next_offset} is next",
                )
            next_offset = header.last_offset + 1
            yield header
    except UNREADABLE as error:
        raise LogRefused(ErrorCode.CORRUPT_MESSAGE, str(error)) from error


def apply_batch(
    state: ProducerStateManager, header: BatchHeader, batch: Buffer | None, segment: LogSegment | None
) -> None:
    """Apply a batch to the state. `batch` is needed for control batches only. With a segment, a marker that aborts a
    transaction is added to its transaction index."""
    if header.producer_id >= 0:
        if not header.is_control:
            state.apply_data(
                header.producer_id,
                header.producer_epoch,
                header.base_sequence,
                header.base_offset,
                header.last_offset,
                header.max_timestamp_ms,
                header.is_transactional,
            )
        elif header.record_count and batch is not None:
            record = first_record(batch, header)
            marker = None if record is None else parse_end_transaction_marker(record)
            if record is not None and marker is not None:
                completed = state.apply_marker(
                    header.producer_id,
                    header.producer_epoch,
                    marker.coordinator_epoch,
                    header.base_offset,
                    record.timestamp_ms,
                    marker.committed,
                )
                if completed is not None and not completed.committed and segment is not None:
                    segment.aborted.append(
                        AbortedTxn(
                            completed.producer_id,
                            completed.first_offset,
                            completed.last_offset,
                            state.stable_offset_after(completed),
                        )
                    )
    state.end_offset = header.last_offset + 1


def replay_segments(state: ProducerStateManager, segments: Iterable[LogSegment], end_offset: int) -> None:
    """Apply all batches from the state's end offset up to `end_offset`. The transaction indexes do not change."""
    at_once(replay_in_pieces(state, segments, end_offset))


def replay_in_pieces(
    state: ProducerStateManager, segments: Iterable[LogSegment], end_offset: int
) -> Work[None]:
    """`replay_segments` as a work. If one of the files is removed or replaced meanwhile, it must not be carried on."""
    pace = Pace(REPLAYED_AT_ONCE)
    for segment in segments:
        if not segment.size:
            continue
        found = segment.find(max(state.end_offset, segment.base_offset))
        if found is None:
            continue
        for header in segment.headers(found[0], chunk=REPLAY_CHUNK):
            if header.base_offset >= end_offset:
                break
            needs_bytes = header.is_control and header.producer_id >= 0
            apply_batch(state, header, segment.read_batch(header) if needs_bytes else None, None)
            if pace.is_over():
                yield REPLAYED_AT_ONCE * REPLAY_US
    state.end_offset = end_offset


def made_snapshot(
    disk: Disk,
    start_offset: int,
    snapshots: Sequence[tuple[int, str]],
    segments: Sequence[tuple[int, str, int]],
    end_offset: int,
) -> bytes:
    """The snapshot of producers at an offset, from files alone, so that a worker thread can make it. Blocks.

    `snapshots` are earlier ones, by offset. `segments`: base offset, path and size of the files with the records from the start
    on."""
    state = ProducerStateManager()
    state.clear(start_offset)
    for offset, path in reversed(snapshots):
        try:
            state.load(decode_snapshot(disk.read_bytes(path)), offset)
        except (SnapshotCorrupt, FileNotFoundError):
            continue
        break
    first = max(bisect_right(segments, state.end_offset, key=itemgetter(0)) - 1, 0)
    for _, path, size in segments[first:]:
        file = disk.open(path)
        try:
            for header in headers(file, 0, size, ITERATE_CHUNK):
                if header.base_offset >= end_offset:
                    break
                if header.last_offset >= state.end_offset:
                    needs_bytes = header.is_control and header.producer_id >= 0
                    batch = file.read_cold(header.position, header.size) if needs_bytes else None
                    apply_batch(state, header, batch, None)
        finally:
            file.close()
    return encode_snapshot(state.producers.values())
