"""What is known of one partition's segments in the remote store, by leader epoch (Kafka's RemoteLogMetadataCache). Pure.

Each leader epoch has a history of its own, because leaders of different epochs may have copied the same offsets. Within an epoch,
copies that may be read are found by the first offset that they have of it. Copies that are begun, being deleted, or superseded
by a larger copy of the same records are only listed, so that their bytes are deleted some time.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from kafkacompat.remote.metadata import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    may_follow,
)


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


class RemoteLogMetadataCache:
    """Knows each copy until its deletion is finished."""

    __slots__ = ("_epochs", "_segments")

    def __init__(self) -> None:
        self._segments: dict[RemoteLogSegmentId, RemoteLogSegmentMetadata] = {}
        self._epochs: dict[int, _LeaderEpochState] = {}

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
