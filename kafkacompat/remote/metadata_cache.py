"""What is known of one partition's segments in the remote store, by leader epoch (Kafka's RemoteLogMetadataCache). Pure.

Each leader epoch has a history of its own, because leaders of different epochs may have copied the same offsets. Within an epoch,
copies that may be read are found by the first offset that they have of it. Copies that are begun, being deleted, or superseded
by a larger copy of the same records are only listed, so that their bytes are deleted some time.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from kafkacompat.remote.metadata import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    mark_of,
    may_follow,
)

NOWHERE = -1


class _LeaderEpochState:
    """Copies that contain one leader epoch. `starts` and `ids`: those that may be read, by the first offset with this epoch."""

    __slots__ = ("highest_offset", "ids", "starts", "unreferenced")

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.ids: list[RemoteLogSegmentId] = []
        self.unreferenced: dict[RemoteLogSegmentId, None] = {}
        """The others, in the order in which they became so."""
        self.highest_offset: int | None = None
        """Of all that were ever copied whole. A deletion does not lower it: what is deleted is not copied again."""

    def place_of(self, offset: int) -> int:
        """The place of the last copy that begins at or before this offset. -1 if there is none."""
        return bisect_right(self.starts, offset) - 1

    def forget(self, start: int, segment_id: RemoteLogSegmentId) -> None:
        """It may not be read any more."""
        place = bisect_left(self.starts, start)
        if place < len(self.starts) and self.starts[place] == start and self.ids[place] == segment_id:
            del self.starts[place], self.ids[place]


class Piece(NamedTuple):
    """A part of a copy, with whole batches."""

    start_offset: int
    next_offset: int
    metadata: RemoteLogSegmentMetadata


def lay_over(pieces: list[Piece], laid: Piece) -> None:
    """Put a piece into pieces that are ordered by offset, in place of what they have of its offsets."""
    first, last = _overlapping(pieces, laid.start_offset, laid.next_offset)
    covered = pieces[first:last]
    parts = [laid]
    if covered and covered[0].start_offset < laid.start_offset:
        parts.insert(0, covered[0]._replace(next_offset=laid.start_offset))
    if covered and covered[-1].next_offset > laid.next_offset:
        parts.append(covered[-1]._replace(start_offset=laid.next_offset))
    pieces[first:last] = parts


def _overlapping(pieces: Sequence[Piece], start_offset: int, next_offset: int) -> tuple[int, int]:
    first = bisect_right(pieces, start_offset, key=lambda piece: piece.next_offset)
    return first, bisect_left(pieces, next_offset, lo=first, key=lambda piece: piece.start_offset)


def _joined(pieces: Sequence[Piece]) -> list[Piece]:
    found: list[Piece] = []
    for piece in pieces:
        if found and (found[-1].next_offset, found[-1].metadata) == (piece.start_offset, piece.metadata):
            found[-1] = found[-1]._replace(next_offset=piece.next_offset)
        else:
            found.append(piece)
    return found


def _whole(metadata: RemoteLogSegmentMetadata) -> Piece:
    return Piece(metadata.start_offset, metadata.end_offset + 1, metadata)


class _Finished(NamedTuple):
    """A copy that may be read."""

    start_offset: int
    place: int
    """In the order in which copies became readable."""
    end_offset: int
    segment_id: RemoteLogSegmentId


class _FinishedCopies:
    """The copies that may be read, by offset. They may overlap."""

    __slots__ = ("_copies", "_last_place", "_reach")

    def __init__(self) -> None:
        self._copies: list[_Finished] = []
        self._reach: list[int] = []
        """The largest end offset of the copies up to there."""
        self._last_place = 0

    def add(self, metadata: RemoteLogSegmentMetadata) -> _Finished:
        self._last_place += 1
        copy = _Finished(
            metadata.start_offset, self._last_place, metadata.end_offset, metadata.remote_log_segment_id
        )
        at = bisect_left(self._copies, copy)
        self._copies.insert(at, copy)
        self._reach.insert(at, NOWHERE)
        self._find_reach(at)
        return copy

    def remove(self, copy: _Finished) -> None:
        at = bisect_left(self._copies, copy)
        del self._copies[at], self._reach[at]
        self._find_reach(at)

    def _find_reach(self, changed: int) -> None:
        reach = self._reach[changed - 1] if changed else NOWHERE
        for at in range(changed, len(self._copies)):
            reach = max(reach, self._copies[at].end_offset)
            if self._reach[at] == reach:
                return
            self._reach[at] = reach

    def within(self, start_offset: int, next_offset: int) -> list[_Finished]:
        """Those that have some of these offsets."""
        first = bisect_left(self._reach, start_offset)
        last = bisect_left(self._copies, next_offset, lo=first, key=lambda copy: copy.start_offset)
        return [each for each in self._copies[first:last] if each.end_offset >= start_offset]


class RemoteLogMetadataCache:
    """Knows each copy until its deletion is finished."""

    __slots__ = (
        "_by_offset",
        "_epochs",
        "_finished",
        "_latest_leader_epoch",
        "_pieces",
        "_segments",
    )

    def __init__(self) -> None:
        self._segments: dict[RemoteLogSegmentId, RemoteLogSegmentMetadata] = {}
        self._epochs: dict[int, _LeaderEpochState] = {}
        self._finished: dict[RemoteLogSegmentId, _Finished] = {}
        self._by_offset = _FinishedCopies()
        self._pieces: list[Piece] = []
        self._latest_leader_epoch = -1
        """Of the leaders that have made these copies."""

    def __len__(self) -> int:
        return len(self._segments)

    def add_copy_in_progress_segment(self, metadata: RemoteLogSegmentMetadata) -> bool:
        """A copy begins. Whether it is taken: not if the state is another, or the same copy is already beyond it."""
        segment_id = metadata.remote_log_segment_id
        known = self._segments.get(segment_id)
        if metadata.state is not RemoteLogSegmentState.COPY_SEGMENT_STARTED or not may_follow(
            None if known is None else known.state, metadata.state
        ):
            return False
        for epoch, _ in () if known is None else known.segment_leader_epochs:
            self._epochs[epoch].unreferenced.pop(segment_id, None)
        for epoch, _ in metadata.segment_leader_epochs:
            self._epochs.setdefault(epoch, _LeaderEpochState()).unreferenced[segment_id] = None
        self._segments[segment_id] = metadata
        return True

    def update_remote_log_segment_metadata(self, update: RemoteLogSegmentMetadataUpdate) -> bool:
        """A copy passes to another state. Whether it does: not if it is not known or its state does not allow the step."""
        segment_id = update.remote_log_segment_id
        known = self._segments.get(segment_id)
        if (
            known is None
            or update.state is RemoteLogSegmentState.COPY_SEGMENT_STARTED
            or not may_follow(known.state, update.state)
        ):
            return False
        metadata = known.with_update(update)
        if update.state is RemoteLogSegmentState.DELETE_SEGMENT_FINISHED:
            del self._segments[segment_id]
        else:
            self._segments[segment_id] = metadata
        if update.state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED:
            self._put_in(metadata)
        elif segment_id in self._finished:
            self._take_out(known)
        for epoch, start in metadata.segment_leader_epochs:
            state = self._epochs.setdefault(epoch, _LeaderEpochState())
            if update.state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED:
                self._offer(state, epoch, start, metadata)
            else:
                state.forget(start, segment_id)
                if update.state is RemoteLogSegmentState.DELETE_SEGMENT_STARTED:
                    state.unreferenced[segment_id] = None
                else:
                    state.unreferenced.pop(segment_id, None)
        return True

    def _offer(
        self, state: _LeaderEpochState, epoch: int, start: int, metadata: RemoteLogSegmentMetadata
    ) -> None:
        """The copy may be read from now on, unless a copy that contains the same records is there already.

        After an election, the new leader may copy again what the old one has copied, in segments with other limits. The one with
        more records is read. Apache Kafka prefers the later one if both begin with the same record."""
        segment_id = metadata.remote_log_segment_id
        end = metadata.end_offset_of_epoch(epoch)
        place = state.place_of(start)
        if place >= 0 and state.ids[place] != segment_id:
            covers = self._segments[state.ids[place]]
            if covers.end_offset_of_epoch(epoch) > end:
                state.unreferenced[segment_id] = None
                return
        if state.highest_offset is None or state.highest_offset <= end:
            while state.starts and state.starts[-1] >= start:
                state.starts.pop()
                state.unreferenced[state.ids.pop()] = None
        place = bisect_left(state.starts, start)
        if place < len(state.starts) and state.starts[place] == start:
            state.unreferenced[state.ids[place]] = None
            state.ids[place] = segment_id
        else:
            state.starts.insert(place, start)
            state.ids.insert(place, segment_id)
        state.unreferenced.pop(segment_id, None)
        state.highest_offset = end if state.highest_offset is None else max(state.highest_offset, end)

    def remote_log_segment_metadata(self, leader_epoch: int, offset: int) -> RemoteLogSegmentMetadata | None:
        """The copy that has this offset with this leader epoch and may be read."""
        state = self._epochs.get(leader_epoch)
        place = -1 if state is None else state.place_of(offset)
        if state is None or place < 0:
            return None
        found = self._segments[state.ids[place]]
        return found if offset <= found.end_offset_of_epoch(leader_epoch) else None

    def pieces(self) -> Sequence[Piece]:
        """The parts of all whole copies that are read of a compacted topic, by offset: of copies of the same offsets that of the
        latest leader, and the one that was finished last. The replicas of such a topic are cleaned each for itself, so they
        may disagree where leader epochs begin. It changes with the next step of a copy."""
        return self._pieces

    def _put_in(self, metadata: RemoteLogSegmentMetadata) -> None:
        is_known = metadata.remote_log_segment_id in self._finished
        if not is_known:
            self._finished[metadata.remote_log_segment_id] = self._by_offset.add(metadata)
        leader_epoch = mark_of(metadata).leader_epoch
        if leader_epoch >= self._latest_leader_epoch and not is_known:
            self._latest_leader_epoch = leader_epoch
            lay_over(self._pieces, _whole(metadata))
        else:
            self._lay_again(metadata.start_offset, metadata.end_offset + 1)

    def _take_out(self, metadata: RemoteLogSegmentMetadata) -> None:
        self._by_offset.remove(self._finished.pop(metadata.remote_log_segment_id))
        first, last = _overlapping(self._pieces, metadata.start_offset, metadata.end_offset + 1)
        held = [piece for piece in self._pieces[first:last] if piece.metadata == metadata]
        if held:
            self._lay_again(held[0].start_offset, held[-1].next_offset)

    def _lay_again(self, start_offset: int, next_offset: int) -> None:
        """Find anew what is read of a range."""
        first, last = _overlapping(self._pieces, start_offset, next_offset)
        if first < last:
            start_offset = min(start_offset, self._pieces[first].start_offset)
            next_offset = max(next_offset, self._pieces[last - 1].next_offset)
        found: list[Piece] = []
        in_order = sorted(self._by_offset.within(start_offset, next_offset), key=lambda copy: copy.place)
        copies = [self._segments[copy.segment_id] for copy in in_order]
        for each in sorted(copies, key=lambda each: mark_of(each).leader_epoch):
            lay_over(
                found,
                Piece(max(each.start_offset, start_offset), min(each.end_offset + 1, next_offset), each),
            )
        before = max(first - 1, 0)
        parts = [*self._pieces[before:first], *found, *self._pieces[last : last + 1]]
        self._pieces[before : last + 1] = _joined(parts)

    def piece_at(self, offset: int) -> Piece | None:
        pieces = self._pieces
        place = bisect_right(pieces, offset, key=lambda piece: piece.start_offset) - 1
        return pieces[place] if place >= 0 and offset < pieces[place].next_offset else None

    def next_segment_with_txn_index(self, leader_epoch: int, offset: int) -> RemoteLogSegmentMetadata | None:
        """The first copy that may have aborted transactions, from the one with this offset on, as far as copies of this
        leader epoch join."""
        found = self.remote_log_segment_metadata(leader_epoch, offset)
        if found is None or not found.txn_idx_empty:
            return found
        state = self._epochs[leader_epoch]
        starts, ids = state.starts, state.ids
        place = state.place_of(offset)
        while True:
            wanted = found.end_offset + 1
            before = place
            while place + 1 < len(starts) and starts[place + 1] <= wanted:
                place += 1
            found = self._segments[ids[place]]
            if place == before or found.end_offset_of_epoch(leader_epoch) < wanted:
                return None
            if not found.txn_idx_empty:
                return found

    def highest_offset_for_epoch(self, leader_epoch: int) -> int | None:
        """The highest offset with this leader epoch that was ever copied whole."""
        state = self._epochs.get(leader_epoch)
        return None if state is None else state.highest_offset

    def list_all_remote_log_segments(self) -> list[RemoteLogSegmentMetadata]:
        """Each copy of which something may be in the remote store, in the order in which they were begun."""
        return list(self._segments.values())

    def list_remote_log_segments(self, leader_epoch: int) -> list[RemoteLogSegmentMetadata]:
        """The same of those that contain this leader epoch, by start offset."""
        return sorted(self._of_epoch(leader_epoch), key=lambda each: each.start_offset)

    def remote_log_size(self, leader_epoch: int) -> int:
        """Bytes of all copies that contain this leader epoch, each with its whole size."""
        return sum(each.segment_size_in_bytes for each in self._of_epoch(leader_epoch))

    def _of_epoch(self, leader_epoch: int) -> Iterator[RemoteLogSegmentMetadata]:
        state = self._epochs.get(leader_epoch)
        if state is not None:
            for segment_id in (*state.ids, *state.unreferenced):
                yield self._segments[segment_id]
