"""Cleans the remote part of a compacted topic: reads its copies, drops what later records of their keys replace, and makes larger
copies of what is left.

The local cleaner keeps tombstones and the markers of transactions as long as a topic is tiered, because what they delete may be in
the remote storage only. So they go here, and only here: in the remote part there is nothing below it that they could delete. As in
the local files, `delete.retention.ms` passes between the cleaning that meets them first, which drops what they delete, and the one
that drops them (KIP-534).

`plan` decides, and is pure. The rest blocks, in threads of the remote storage. A copy is fetched to the local disk when it is read,
one at a time, so that a cleaning needs room for two segments.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from kafkacompat.log.checkpoint import REMOTE_CLEANING
from kafkacompat.log.cleaner.cleaner import CleaningStopped
from kafkacompat.log.cleaner.job import SegmentFile
from kafkacompat.log.log_segment import CLEANED_SUFFIX, LOG_SUFFIX, file_stem
from kafkacompat.log.producer_snapshots import SnapshotCorrupt, decode_snapshot, encode_snapshot
from kafkacompat.log.producer_state import ProducerStateManager
from kafkacompat.log.segment_indexes import INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX
from kafkacompat.remote.manager_core import Epochs, trusted_up_to
from kafkacompat.remote.metadata import RemoteLogSegmentState, mark_of
from kafkacompat.remote.metadata_cache import Piece
from kafkacompat.remote.ports import IndexType, LogSegmentData, RemoteStorageException
from kafkacompat.remote.remote_index_cache import fetch_whole

if TYPE_CHECKING:
    from kafkacompat.log.cleaner.cleaner import Pace, Stage
    from kafkacompat.log.cleaner.job import CleanerLimits, CleaningJob
    from kafkacompat.log.index import AbortedTxn
    from kafkacompat.ports import Disk
    from kafkacompat.remote.metadata import RemoteLogSegmentId, RemoteLogSegmentMetadata
    from kafkacompat.remote.ports import RemoteStorageManager
    from kafkacompat.remote.remote_reads import RemoteSegmentReader


class Plan(NamedTuple):
    pieces: Sequence[Piece]
    """Without gaps."""
    first_dirty_offset: int
    """Below it no record has a later one of the same key."""

    @property
    def end_offset(self) -> int:
        return self.pieces[-1].next_offset


def plan(
    pieces: Iterable[Piece],
    copies: Iterable[RemoteLogSegmentMetadata],
    being_copied: Collection[RemoteLogSegmentId],
    epochs: Epochs,
    log_start_offset: int,
    least_dirty_ratio: float,
) -> Plan | None:
    """What is to be cleaned now. None: nothing, or not now.

    A copy that another leader has begun might become whole after a tombstone is dropped here that deletes records of it. So its end
    is waited for. What is not read any more is deleted first."""
    taken: list[Piece] = []
    for piece in pieces:
        if taken and piece.start_offset > taken[-1].next_offset:
            break
        if piece.next_offset > trusted_up_to(piece.metadata, epochs):
            break
        if piece.next_offset > log_start_offset:
            taken.append(piece)
    read = {piece.metadata.remote_log_segment_id for piece in taken}
    ends = {piece.metadata.end_offset for piece in taken}
    for each in copies:
        is_unread = each.state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED and (
            each.remote_log_segment_id not in read and each.end_offset < max(ends, default=-1)
        )
        is_unfinished = (
            each.state is RemoteLogSegmentState.COPY_SEGMENT_STARTED
            and each.remote_log_segment_id not in being_copied
        )
        if is_unread or is_unfinished:
            return None
    first_dirty = first_dirty_offset(taken)
    dirty = sum(_size_from(piece, first_dirty) for piece in taken)
    if not dirty or dirty <= least_dirty_ratio * sum(_size_from(piece, 0) for piece in taken):
        return None
    return Plan(taken, first_dirty)


def first_dirty_offset(pieces: Sequence[Piece]) -> int:
    """Up to where each record is the last one of its key."""
    if not pieces:
        return 0
    clean_to = least = mark_of(pieces[0].metadata).cleaned_to
    for piece in pieces:
        least = min(least, mark_of(piece.metadata).cleaned_to)
        if least < piece.next_offset:
            return max(piece.start_offset, least)
        clean_to = piece.next_offset
    return clean_to


def _size_from(piece: Piece, offset: int) -> int:
    offsets = piece.metadata.end_offset + 1 - piece.metadata.start_offset
    own = max(0, piece.next_offset - max(piece.start_offset, offset))
    return piece.metadata.segment_size_in_bytes * own // offsets


def epochs_of(pieces: Sequence[Piece]) -> list[tuple[int, int]]:
    """The leader epochs of the records of neighbouring pieces. A replica may not know an epoch of which it has no record."""
    found: list[tuple[int, int]] = []
    for piece in pieces:
        own = piece.metadata.segment_leader_epochs
        for at, (epoch, start) in enumerate(own):
            end = own[at + 1][1] if at + 1 < len(own) else piece.metadata.end_offset + 1
            start = max(start, piece.start_offset)
            if start < min(end, piece.next_offset) and (not found or epoch > found[-1][0]):
                found.append((epoch, start))
    return found


class CleaningWork(Protocol):
    """Cleaner or CleaningProcess."""

    groups: list[list[SegmentFile]]
    end_offset: int

    def build_map(self) -> None: ...

    def clean_group(self, group: Sequence[SegmentFile]) -> list[str]: ...

    def finish(self) -> None: ...

    def close(self) -> None: ...


class RemoteCleaner(Protocol):
    """The node's log cleaner, whose limits hold for the remote part too."""

    def limits(self) -> CleanerLimits: ...

    def pace(self) -> Pace: ...

    def work_on_staged(self, job: CleaningJob, pace: Pace, stage: Stage) -> CleaningWork: ...


def aborted_within(reader: RemoteSegmentReader, plan: Plan) -> list[AbortedTxn]:
    """The aborted transactions that ended in these pieces. Blocks. Raises RemoteStorageException."""
    found: dict[AbortedTxn, None] = {}
    start_offset = plan.pieces[0].start_offset
    for metadata in {piece.metadata.remote_log_segment_id: piece.metadata for piece in plan.pieces}.values():
        if not metadata.txn_idx_empty:
            found |= dict.fromkeys(reader.aborted_transactions(metadata, start_offset, plan.end_offset)[0])
    return list(found)


def snapshot_after(
    storage: RemoteStorageManager, reader: RemoteSegmentReader, pieces: Sequence[Piece]
) -> bytes:
    """The snapshot of producers at the end of the last of neighbouring pieces. Blocks. Raises RemoteStorageException."""
    replayed: list[Piece] = []
    state = ProducerStateManager()
    state.clear(pieces[0].start_offset)
    for piece in reversed(pieces):
        if piece.next_offset == piece.metadata.end_offset + 1:
            snapshot = fetch_whole(storage, piece.metadata, IndexType.PRODUCER_SNAPSHOT)
            if not replayed:
                return snapshot
            try:
                state.load(decode_snapshot(snapshot), piece.next_offset)
            except SnapshotCorrupt as damage:
                raise RemoteStorageException(
                    f"the producers of {piece.metadata.remote_log_segment_id}: {damage}"
                ) from damage
            break
        replayed.append(piece)
    for piece in reversed(replayed):
        reader.replay(piece.metadata, state, piece.next_offset)
    return encode_snapshot(state.producers.values())


class Staging:
    """Puts the copies of a plan into the local directory, each as long as it is read. Blocks; one thread at a time."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        pieces: Sequence[Piece],
        read: Callable[[RemoteLogSegmentMetadata, int, int], Iterator[memoryview]],
        pace: Pace,
    ) -> None:
        self._disk = disk
        self.directory = f"{directory}/{REMOTE_CLEANING}"
        self._pieces = {piece.start_offset: piece for piece in pieces}
        self._read = read
        self._pace = pace
        self._staged = ""
        self.is_stopped = False

    def segments(self) -> list[SegmentFile]:
        return [
            SegmentFile(
                file_stem(self.directory, piece.start_offset),
                piece.start_offset,
                piece.next_offset,
                piece.metadata.segment_size_in_bytes,
            )
            for piece in self._pieces.values()
        ]

    def begin(self) -> None:
        """Make an empty directory. What is there was left by a node that was killed. Raises CleaningStopped."""
        self.pace(0)
        self.remove()
        self._disk.make_directory(self.directory)

    def cleaned(
        self, base_offset: int, suffixes: Sequence[str], snapshot: bytes, checkpoint: bytes
    ) -> LogSegmentData:
        """The files that a cleaning has left of a group."""
        stem = file_stem(self.directory, base_offset)

        def path(suffix: str) -> str:
            return stem + suffix + CLEANED_SUFFIX

        return LogSegmentData(
            path(LOG_SUFFIX),
            path(INDEX_SUFFIX),
            path(TIME_INDEX_SUFFIX),
            path(TXN_INDEX_SUFFIX) if TXN_INDEX_SUFFIX in suffixes else None,
            snapshot,
            checkpoint,
        )

    def remove(self) -> None:
        if self._disk.exists(self.directory):
            self._disk.remove_tree(self.directory)

    def pace(self, size: int) -> None:
        if self.is_stopped:
            raise CleaningStopped("the partition is not led here any more")
        self._pace(size)

    def __call__(self, segment: SegmentFile) -> SegmentFile:
        """Raises RemoteStorageException, OSError and CleaningStopped."""
        piece = self._pieces[segment.base_offset]
        path = file_stem(self.directory, segment.base_offset) + LOG_SUFFIX
        if self._staged and self._disk.exists(self._staged):
            self._disk.remove(self._staged)
        self._staged = path
        file = self._disk.open(path, create=True)
        size = 0
        try:
            file.truncate(0)
            for batch in self._read(piece.metadata, piece.start_offset, piece.next_offset):
                self.pace(len(batch))
                file.write_now(batch)
                size += len(batch)
        finally:
            file.close()
        return segment._replace(size=size)
