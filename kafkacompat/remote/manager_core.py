"""What the remote log manager decides: which segments are copied, which copies are deleted, where a log begins and up to
where it is copied (KIP-405, KIP-956, KIP-1241).

Pure. Leader epochs are (epoch, start offset) pairs in ascending order, as the log's leader epoch cache has them: the lineage
of the log. A copy that does not belong to it was made by a leader whose records were truncated later.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import islice, pairwise
from typing import NamedTuple, TypeAlias

from kafkacompat.dataclass import dataclass
from kafkacompat.quota.rate import Rate
from kafkacompat.remote.metadata import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    mark_of,
)
from kafkacompat.remote.metadata_cache import Piece
from kafkacompat.tasks import Work

Epochs: TypeAlias = Sequence[tuple[int, int]]
UNLIMITED = 2**63 - 1
LOOKUP_COST = 10
"""Microseconds for each copy that is looked at."""
UNFINISHED_KEPT_MS = 3_600_000
"""The age of a copy that was begun and never finished at which it is deleted. Before that, the broker that has begun it may
still record that it is whole: a former leader does not know at once that it leads no longer."""


class LocalSegment(NamedTuple):
    """The facts of a segment in the local log."""

    base_offset: int
    size: int
    largest_timestamp_ms: int


class Candidate(NamedTuple):
    segment: LocalSegment
    next_offset: int
    """The base offset of the next segment."""


def copy_lag(lag: int, local_retention: int, retention: int) -> int:
    """remote.copy.lag.ms or remote.copy.lag.bytes in force. -1 is the local retention, because a segment is deleted here only
    when it is copied, and the local retention is -2 if it is the same as retention.*."""
    if lag != -1:
        return lag
    return retention if local_retention == -2 else local_retention


def candidate_log_segments(
    segments: Sequence[LocalSegment],
    *,
    from_offset: int,
    last_stable_offset: int,
    copy_lag_ms: int,
    copy_lag_bytes: int,
    now_ms: int,
) -> list[Candidate]:
    """The segments to copy now, oldest first. The last of `segments` is active and is not copied.

    A segment must end at or below the last stable offset. The two lags, from `copy_lag`, keep the newest ones back: whichever
    is reached first lets a segment go, 0 lets all go, and -1 is no reason to let one go."""
    first = 0
    for at, segment in enumerate(segments):
        if segment.base_offset <= from_offset:
            first = at
    rest = segments[first:]
    left = sum(segment.size for segment in rest)
    found: list[Candidate] = []
    for segment, following in pairwise(rest):
        left -= segment.size
        if following.base_offset > last_stable_offset:
            break
        age_ms = now_ms - segment.largest_timestamp_ms
        is_due = (
            0 in (copy_lag_ms, copy_lag_bytes)
            or (copy_lag_ms > 0 and (age_ms < 0 or age_ms >= copy_lag_ms))
            or (0 < copy_lag_bytes <= left)
        )
        if not is_due:
            break
        found.append(Candidate(segment, following.base_offset))
    return found


def copyable_up_to(cleaned_to: int, end_offset_at_first: int) -> int:
    """Up to where segments of a compacted log may be copied: as far as it is clean, and only when all is clean that it had when
    this leader began. Before a topic was tiered, other replicas may have dropped tombstones up to there, of which this one still
    has earlier values."""
    return cleaned_to if cleaned_to >= end_offset_at_first else -1


def trusted_up_to(metadata: RemoteLogSegmentMetadata, epochs: Epochs) -> int:
    """Up to where a copy of a compacted log can be of this log's history: no leader has copied records of a later epoch than
    its own. After an unclean election a copy may go on with others."""
    made_in = mark_of(metadata).leader_epoch
    return next((start for epoch, start in epochs if epoch > made_in), UNLIMITED)


def covered_by(
    pieces: Sequence[Piece], epochs: Epochs, log_end_offset: int, local_log_start_offset: int
) -> int:
    """The last offset up to which a compacted log is copied from the start of its local files on, without a gap."""
    offset = local_log_start_offset
    for piece in islice(pieces, bisect_right(pieces, offset, key=lambda piece: piece.next_offset), None):
        if piece.start_offset > offset:
            break
        offset = max(offset, min(piece.next_offset, trusted_up_to(piece.metadata, epochs)))
        if offset < piece.next_offset:
            break
    return min(offset, log_end_offset) - 1


def with_epochs_from(epochs: Epochs, log_start_offset: int) -> Epochs:
    """The epochs of a compacted log. A replica learns them from batches, and the first ones may be gone."""
    if not epochs or epochs[0][1] <= log_start_offset:
        return epochs
    return [(epochs[0][0], log_start_offset), *epochs[1:]]


def epochs_in_range(epochs: Epochs, start_offset: int, end_offset: int) -> list[tuple[int, int]]:
    """The epochs of the records from `start_offset` up to `end_offset`, exclusive. The first one starts there."""
    found: list[tuple[int, int]] = []
    for epoch, start in epochs:
        if start >= end_offset:
            break
        if start <= start_offset:
            found = [(epoch, start_offset)]
        else:
            found.append((epoch, start))
    return found


def epoch_for_offset(epochs: Epochs, offset: int) -> int | None:
    """The epoch of an offset. None below the first one."""
    found = None
    for epoch, start in epochs:
        if start > offset:
            break
        found = epoch
    return found


class Copied(NamedTuple):
    offset: int
    """The last offset that is copied. -1 if none is."""
    epoch: int


def find_highest_remote_offset(
    epochs: Epochs, log_end_offset: int, highest_offset_for_epoch: Callable[[int], int | None]
) -> Copied:
    """Up to where this log is copied, by the newest epoch of which anything is. Records of that epoch behind the log's own end
    of it belong to another history."""
    end = log_end_offset
    for epoch, start in reversed(epochs):
        highest = highest_offset_for_epoch(epoch)
        if highest is not None:
            return Copied(min(highest, end - 1), epoch)
        end = start
    return Copied(-1, -1)


def covered_up_to(
    epochs: Epochs,
    log_end_offset: int,
    local_log_start_offset: int,
    highest_offset: int,
    segment_at: Callable[[int], RemoteLogSegmentMetadata | None],
) -> Work[int]:
    """Up to where copies exist of what is in the local files, `highest_offset` at most. A copy may be gone although its records
    are not below the log start: it was deleted when tiering was disabled, or by a leader that took it for a failed one."""
    offset = local_log_start_offset
    while offset <= highest_offset:
        metadata = segment_at(offset)
        if metadata is None:
            return offset - 1
        end = common_end_offset(metadata, epochs, log_end_offset, offset)
        if end <= offset:
            return offset - 1
        offset = end
        yield LOOKUP_COST + len(epochs)
    return highest_offset


def find_log_start_offset(
    epochs: Epochs,
    local_log_start_offset: int,
    copies: Iterable[RemoteLogSegmentMetadata],
) -> int:
    """Where the log begins, as a new leader finds it: with the first copy of its lineage that is read. What a copy has
    below the first epoch cannot be read."""
    starts: dict[int, int] = {}
    for each in copies:
        if each.state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED:
            for epoch, _ in each.segment_leader_epochs:
                starts[epoch] = min(each.start_offset, starts.get(epoch, each.start_offset))
    for epoch, _ in epochs:
        if epoch in starts:
            return min(max(starts[epoch], epochs[0][1]), local_log_start_offset)
    return local_log_start_offset


def without_empty_epochs(epochs: Epochs) -> dict[int, int]:
    """The epochs that have records: an epoch that starts where the next one does has none."""
    found: dict[int, int] = {}
    for at, (epoch, start) in enumerate(epochs):
        if at + 1 == len(epochs) or epochs[at + 1][1] != start:
            found[epoch] = start
    return found


def is_within_leader_epochs(
    metadata: RemoteLogSegmentMetadata, log_end_offset: int, lineage: dict[int, int]
) -> bool:
    """Whether a copy has nothing but records of this log. `lineage` is from `without_empty_epochs`. Epochs of the copy below
    the first one of the lineage lie below the log start, and are not looked at."""
    own = without_empty_epochs(metadata.segment_leader_epochs)
    if not lineage or metadata.end_offset >= log_end_offset:
        return False
    epochs = sorted(lineage)
    last = max(own)
    counted = sorted(epoch for epoch in own if epoch >= epochs[0])
    if not counted or last > epochs[-1]:
        return False
    for at, epoch in enumerate(counted):
        if epoch not in lineage:
            return False
        if at == 0 and epoch != epochs[0] and own[epoch] < lineage[epoch]:
            return False
        later = [(each, lineage[each]) for each in epochs if each > epoch][:1]
        if epoch == last:
            if later and metadata.end_offset >= later[0][1]:
                return False
        elif later != [(counted[at + 1], own[counted[at + 1]])]:
            return False
    return True


def common_end_offset(
    metadata: RemoteLogSegmentMetadata, epochs: Epochs, log_end_offset: int, offset: int
) -> int:
    """Up to where a copy has the same records as the log, from an offset on that both have with the same epoch. After an
    unclean election a copy may go on with records of another history."""
    own = [(epoch, start) for epoch, start in metadata.segment_leader_epochs if start > offset]
    later = [(epoch, start) for epoch, start in epochs if start > offset]
    end = metadata.end_offset + 1
    own_ends = [*own, (-1, end)]
    for at, (epoch, start) in enumerate(own_ends):
        of_log = later[at] if at < len(later) else (-2, log_end_offset)
        if start < of_log[1]:
            # The copy ends first, or goes on with another epoch.
            return start
        if start > of_log[1] or epoch != of_log[0]:
            return of_log[1]
    return end


@dataclass(frozen=True, slots=True)
class Retention:
    """The facts that decide which copies a log keeps."""

    epochs: Epochs
    log_start_offset: int
    log_end_offset: int
    retention_ms: int
    """-1: no limit. The same for `retention_bytes`."""
    retention_bytes: int
    only_local_bytes: int
    """Of the segments that are not copied."""
    now_ms: int


class Expired(NamedTuple):
    """What goes."""

    segments: list[RemoteLogSegmentMetadata]
    log_start_offset: int | None
    """Where the log begins from now on, before anything is deleted. None if it stays."""


def expired_segments(
    facts: Retention,
    copies: Iterable[RemoteLogSegmentMetadata],
    being_copied: Collection[RemoteLogSegmentId] = (),
    pieces: Sequence[Piece] | None = None,
) -> Expired:
    """The copies to delete, in order: those whose deletion has begun, those below the log start, those that retention.ms and
    retention.bytes let go, and those of other histories.

    Retention goes from the oldest copy of the lineage on and stops at the first that stays. What was never finished goes too
    when nobody can finish it any more or nobody needs it: a new attempt has another id. Of a compacted log what `pieces` does
    not have goes, because something else is read in its place."""
    lineage = without_empty_epochs(facts.epochs)
    in_order = sorted(
        copies, key=lambda each: (each.start_offset, each.end_offset, each.remote_log_segment_id.id)
    )
    started, finished, deleting = (
        [each for each in in_order if each.state is state]
        for state in (
            RemoteLogSegmentState.COPY_SEGMENT_STARTED,
            RemoteLogSegmentState.COPY_SEGMENT_FINISHED,
            RemoteLogSegmentState.DELETE_SEGMENT_STARTED,
        )
    )
    gone = list(deleting)
    gone += [
        each
        for each in started
        if each.remote_log_segment_id not in being_copied
        and (
            each.end_offset < facts.log_start_offset
            or facts.now_ms - each.event_timestamp_ms >= UNFINISHED_KEPT_MS
        )
    ]
    valid: list[RemoteLogSegmentMetadata] = []
    read = None if pieces is None else {piece.metadata.remote_log_segment_id for piece in pieces}
    for each in finished:
        if read is not None:
            (valid if each.remote_log_segment_id in read else gone).append(each)
        elif is_within_leader_epochs(each, facts.log_end_offset, lineage):
            valid.append(each)
        elif _is_of_the_past(each, facts, lineage):
            gone.append(each)
    sizes = _own_bytes(valid)
    surplus = facts.only_local_bytes + sum(sizes) - facts.retention_bytes
    log_start_offset: int | None = None
    is_over = False
    for each, size in zip(valid, sizes, strict=True):
        if each.end_offset < facts.log_start_offset:
            surplus -= size
            gone.append(each)
            continue
        if is_over:
            continue
        by_time = 0 <= facts.retention_ms < facts.now_ms - each.max_timestamp_ms
        by_size = facts.retention_bytes >= 0 and surplus >= size
        if by_time or by_size:
            surplus -= size
            gone.append(each)
            log_start_offset = max(log_start_offset or 0, each.end_offset + 1)
        else:
            is_over = True
    return Expired(gone, log_start_offset)


def size_of_finished(copies: Iterable[RemoteLogSegmentMetadata]) -> int:
    """The bytes of the copies that are whole."""
    return sum(
        [
            each.segment_size_in_bytes
            for each in copies
            if each.state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED
        ]
    )


def _own_bytes(copies: Sequence[RemoteLogSegmentMetadata]) -> list[int]:
    """The bytes that each adds to those before it. Two leaders may have copied the same records."""
    found: list[int] = []
    end_offset = -1
    for each in copies:
        offsets = each.end_offset + 1 - each.start_offset
        own = max(0, each.end_offset - max(end_offset, each.start_offset - 1))
        found.append(each.segment_size_in_bytes * own // offsets)
        end_offset = max(end_offset, each.end_offset)
    return found


def _is_of_the_past(metadata: RemoteLogSegmentMetadata, facts: Retention, lineage: dict[int, int]) -> bool:
    """Whether no later leader can need a copy that is not of this lineage: all its epochs are older than the first one that
    the log has. Of other copies a leader that comes back by an unclean election may still know more."""
    if not lineage:
        return False
    first = min(lineage)
    epochs = [epoch for epoch, _ in metadata.segment_leader_epochs]
    if all(epoch < first for epoch in epochs):
        return True
    return all(epoch <= first for epoch in epochs) and metadata.end_offset < facts.log_start_offset


class RLMQuotaManager:
    """A bound on bytes a second, of copies or of reads (KIP-956). What exceeds it is paid for by a wait before the next."""

    __slots__ = ("_rate", "bytes_per_second")

    def __init__(self, bytes_per_second: int, windows: int, window_s: int) -> None:
        self.bytes_per_second = bytes_per_second
        self._rate = Rate(windows, window_s * 1000)

    def record(self, size: int, now_ms: int) -> None:
        self._rate.record(size, now_ms)

    def throttle_ms(self, now_ms: int) -> int:
        """How long to wait before anything more begins. 0 if it may begin now."""
        if self.bytes_per_second == UNLIMITED:
            return 0
        return self._rate.throttle_ms(self.bytes_per_second, now_ms)
