"""Recovery of segments after an unclean stop: check every batch, reindex, and cut the file at the first bad batch.

A full disk must not make its data unreadable. The indexes of the active segment then stay in memory, as during
appends, and are written with the next flush or close. The indexes of a closed segment must be in their files, because
no flush writes them.
"""

from __future__ import annotations

import errno
import posixpath
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kafkacompat.log.log_segment import DELETED_SUFFIX, LOG_SUFFIX
from kafkacompat.log.producer_state import ProducerStateManager
from kafkacompat.log.replay import apply_batch
from kafkacompat.log.segment_indexes import INDEX_SUFFIX, TIME_INDEX_SUFFIX
from kafkacompat.log.soundness import DAMAGE, Note, check_order, replay_what_can_be_read
from kafkacompat.ports import SyncFailed

if TYPE_CHECKING:
    from kafkacompat.log.epoch_cache import LeaderEpochCache
    from kafkacompat.log.log_segment import LogSegment
    from kafkacompat.log.snapshots import SnapshotStore
    from kafkacompat.ports import Disk
    from kafkacompat.records.batch import BatchHeader

NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


@contextmanager
def spared_on_a_full_disk() -> Iterator[None]:
    """Ignore errors of a full disk. For work that a later start repeats or does not need."""
    try:
        yield
    except OSError as error:
        if not _is_full(error):
            raise


def _is_full(error: OSError) -> bool:
    return error.errno in NO_ROOM and not isinstance(error, SyncFailed)


def recover_segments(
    disk: Disk,
    segments: list[LogSegment],
    snapshots: SnapshotStore,
    epochs: LeaderEpochCache,
    recovery_point: int,
    log_start_offset: int,
    note: Note,
) -> None:
    """Check and reindex the segments from the one that contains the recovery point on."""
    first = max((at for at, s in enumerate(segments) if s.base_offset <= recovery_point), default=0)
    state = ProducerStateManager()
    snapshots.load_latest(
        state, log_start_offset - 1 if log_start_offset else -1, segments[first].base_offset
    )
    if state.end_offset < segments[first].base_offset:
        replay_what_can_be_read(state, segments[:first], segments[first].base_offset, note)
    at = first

    def set_following_aside() -> None:
        set_aside(disk, segments[at + 1 :])

    for at in range(first, len(segments)):
        segment = segments[at]
        if segment.base_offset > state.end_offset:
            state.end_offset = segment.base_offset
        if at > first:
            with spared_on_a_full_disk():
                # The snapshot only shortens a later start.
                snapshots.take(state)
        is_active = at == len(segments) - 1
        cut = recover_segment(segment, state, epochs, set_following_aside, is_active=is_active)
        if cut:
            note(
                f"{segment.stem}{LOG_SUFFIX}: {cut} bytes after offset {state.end_offset - 1} are no whole batches"
            )
            if segments[at + 1 :]:
                note(f"{segment.stem}{LOG_SUFFIX}: {len(segments) - at - 1} segments after it are set aside")
            for later in segments[at + 1 :]:
                snapshots.remove(later.base_offset)
            del segments[at + 1 :]
            break


def recover_segment(
    segment: LogSegment,
    state: ProducerStateManager,
    epochs: LeaderEpochCache,
    before_cut: Callable[[], None],
    *,
    is_active: bool,
) -> int:
    """Check one segment, and update state and epochs with its batches. Returns the number of bytes cut.

    `before_cut` removes the following segments first: a segment after a cut one would show no damage at the next
    start.
    """
    index = _Indexing(segment, may_wait=is_active)
    segment.begin_reindex()
    segment.aborted.begin()
    valid, after = 0, segment.base_offset
    try:
        for header, batch in segment.checked_batches():
            check_order(segment, header, after)
            after = header.last_offset + 1
            if header.magic == 2:
                if header.leader_epoch >= 0:
                    epochs.confirm(header.leader_epoch, header.base_offset)
                apply_batch(state, header, batch, segment)
            index.add(header)
            valid = header.position + header.size
    except DAMAGE:
        pass
    cut = segment.size - valid
    if cut:
        before_cut()
    segment.cut(valid)
    index.finish()
    return cut


class _Indexing:
    """Writes the indexes page by page, or keeps them in memory once the disk is full."""

    def __init__(self, segment: LogSegment, *, may_wait: bool) -> None:
        self._segment = segment
        self._may_wait = may_wait
        self._in_memory = False

    def add(self, header: BatchHeader) -> None:
        try:
            self._segment.index_batch(header, in_memory=self._in_memory)
        except OSError as error:
            if not self._may_wait or not _is_full(error):
                raise
            self._in_memory = True
            self._segment.index_batch(header, in_memory=True)

    def finish(self) -> None:
        try:
            self._segment.finish_reindex()
        except OSError as error:
            if not self._may_wait or not _is_full(error):
                raise


def set_aside(disk: Disk, segments: list[LogSegment]) -> None:
    """Rename segments to `.deleted`, the last one first, so that an interruption leaves the beginning of the log.
    Durable on return."""
    for segment in reversed(segments):
        for path in segment.paths():
            disk.rename(path, path + DELETED_SUFFIX)
        segment.release()
    if segments:
        disk.sync_directory(posixpath.dirname(segments[0].stem))


def make_missing_indexes(disk: Disk, segments: list[LogSegment], names: list[str], note: Note) -> None:
    """Rebuild missing index files of segments that were not checked. Checked segments already have new indexes, if
    only in memory."""
    present = set(names)
    for segment in segments:
        if segment.indexes.wait_for_their_files():
            continue
        stem = f"{segment.base_offset:020d}"
        missing = {stem + INDEX_SUFFIX, stem + TIME_INDEX_SUFFIX} - present
        if segment.size and any(not disk.exists(f"{segment.stem}{name[20:]}") for name in missing):
            try:
                segment.rebuild_indexes()
            except DAMAGE as damage:
                note(f"{segment.stem}: the missing index cannot be made: {damage}")
