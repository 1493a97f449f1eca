"""Opening a partition's directory: what Kafka does at start, with and without a clean shutdown.

Duty: remove leftovers, finish interrupted swaps, load segments, after an unclean stop check every batch from the recovery
point on and index it anew, rebuild producer state. Must not know: topics, images, other partitions.
What a crash leaves: a torn last batch (cut off), index files that lag (built anew), snapshots of offsets that are gone
(removed), epochs of before (the batches tell better ones). What a checkpoint says that cannot be true of the log that is found,
it says of another one or of what the disk has lost: it is not believed. A damaged batch in the middle ends the log there; what
follows it is set aside as `.deleted`, as Kafka does.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from kafkacompat.log.aborted import TXN_INDEX_SUFFIX
from kafkacompat.log.checkpoint import (
    LEADER_EPOCH_FILE,
    SYNC_FAILED_FILE,
    CheckpointCorrupt,
    format_epochs,
    parse_epochs,
)
from kafkacompat.log.epoch_cache import LeaderEpochCache
from kafkacompat.log.index_cache import IndexCache
from kafkacompat.log.producer_state import ProducerStateManager
from kafkacompat.log.reading import LogParts
from kafkacompat.log.segment import Segment
from kafkacompat.log.segment_batches import CLEANED_SUFFIX, DELETED_SUFFIX, LOG_SUFFIX, SWAP_SUFFIX
from kafkacompat.log.segment_indexes import INDEX_SUFFIX, REBUILT_SUFFIX, TIME_INDEX_SUFFIX
from kafkacompat.log.segment_recovery import recover_segment, spared_on_a_full_disk
from kafkacompat.log.snapshots import SnapshotStore
from kafkacompat.log.soundness import DAMAGE, end_of, replay_what_can_be_read
from kafkacompat.records.batch import iterate_batches

if TYPE_CHECKING:
    from kafkacompat.config import LogConfig
    from kafkacompat.ports import Disk
    from kafkacompat.records.batch import BatchHeader

_SEGMENT_SUFFIXES = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)
OWN_CACHE_BYTES = 64 * 1024
"""Index pages of a log that has no part in a node's cache."""
Note = Callable[[str], None]


def open_directory(
    disk: Disk,
    directory: str,
    config: LogConfig,
    now_ms: int,
    *,
    clean: bool,
    recovery_point: int = 0,
    log_start_offset: int = 0,
    note: Note = lambda text: None,
    cache: IndexCache | None = None,
) -> LogParts:
    """The parts of a PartitionLog. `clean`: the stop before was clean, only the tail is checked. `note` gets what was amiss.
    `cache` is that of the node's indexes; without it the log has one of its own.

    The mark of a failed sync stays: the caller ends with `trust_syncs_again`. OSError passes through.
    """
    cache = IndexCache(OWN_CACHE_BYTES) if cache is None else cache
    disk.make_directory(directory)
    names = disk.list_directory(directory)
    if _finish_interrupted_work(disk, directory, names, note):
        names = disk.list_directory(directory)
    if SYNC_FAILED_FILE in names:
        clean = False
        note(f"{directory}: a sync has failed; what follows offset {recovery_point} is read from the disk")
        _forget_cached(disk, directory, names, recovery_point)
    segments = _load_segments(disk, directory, names, config, now_ms, cache, note)
    snapshots = SnapshotStore(disk, directory, names)
    epochs, epochs_known = _load_epochs(disk, directory, LEADER_EPOCH_FILE in names, note)
    first_base = segments[0].base_offset if segments else log_start_offset
    unsound = _unsound_txn_index(segments, names, note)
    if clean and segments and unsound is None:
        unsound = _unsound_tail(segments[-1], note)
    durable_to = recovery_point
    if segments and (unsound is not None or not clean):
        start = recovery_point if epochs_known or recovery_point == 0 else 0
        if unsound is not None:
            start = unsound if clean else min(start, unsound)
        _recover(disk, segments, snapshots, epochs, max(start, 0), max(log_start_offset, first_base), note)
        if not clean and recovery_point > segments[-1].next_offset():
            note(
                f"{directory}: the log ends at {segments[-1].next_offset()}, below its recovery point {recovery_point}; "
                "all of it is checked"
            )
            recovery_point = 0
            _recover(disk, segments, snapshots, epochs, 0, first_base, note)
    _make_missing_indexes(disk, segments, names, note)
    log_end_offset = segments[-1].next_offset() if segments else log_start_offset
    if log_end_offset < log_start_offset:
        if clean and durable_to >= log_start_offset:
            # It was this log's: a truncation or damage has left a gap below its start.
            note(
                f"{directory}: the log ends at {log_end_offset}, below its start {log_start_offset}, and begins anew there"
            )
            _set_aside(disk, segments)
            segments = []
            snapshots.remove_all()
            log_end_offset = log_start_offset
        else:
            note(
                f"{directory}: the log ends at {log_end_offset}, below its start {log_start_offset}, which is not believed"
            )
            log_start_offset = first_base
    if clean and log_end_offset < durable_to:
        note(f"{directory}: the log ends at {log_end_offset}, and what lay there up to {durable_to} is gone")
    if not segments:
        segments = [
            Segment(
                disk, directory, log_start_offset, config.index_interval_bytes, now_ms, cache, create=True
            )
        ]
    log_start_offset = max(log_start_offset, segments[0].base_offset)
    epochs.truncate_from_start(segments[0].base_offset)
    epochs.truncate_from_end(log_end_offset)
    try:
        _complete_epochs(segments, epochs, log_start_offset, log_end_offset)
    except DAMAGE as damage:
        note(f"{directory}: {damage}; leader epochs of what lies before it are not known")
    snapshots.remove_strays([segment.base_offset for segment in segments])
    state = ProducerStateManager()
    snapshots.load_latest(state, log_start_offset, log_end_offset)
    if state.end_offset < log_end_offset:
        replay_what_can_be_read(state, _from(segments, state.end_offset), log_end_offset, note)
    if SYNC_FAILED_FILE in names:
        # A sync that comes later would find nothing to write of what is in the page cache only.
        disk.write_atomic(f"{directory}/{LEADER_EPOCH_FILE}", format_epochs(epochs.entries))
    segments[-1].largest_timestamp()  # to which appends compare theirs
    for segment in segments:
        # A partition that nobody uses holds no descriptor; the file is opened again with the first read or append.
        segment.release()
        segment.let_go()
    return LogParts(
        segments,
        epochs,
        state,
        snapshots,
        log_start_offset,
        log_end_offset,
        log_end_offset if clean and unsound is None else min(recovery_point, log_end_offset),
        cache,
    )


def trust_syncs_again(disk: Disk, directory: str) -> None:
    """Take away the mark of a failed sync, if there is one. What the page cache alone may have held has to be durable before."""
    mark = f"{directory}/{SYNC_FAILED_FILE}"
    if disk.exists(mark):
        disk.remove(mark)


def _finish_interrupted_work(disk: Disk, directory: str, found: list[str], note: Note) -> bool:
    """Remove `.deleted` and `.cleaned` files; complete swaps of a compaction that had come far enough. True if it did."""
    if not any(name.endswith((DELETED_SUFFIX, CLEANED_SUFFIX, SWAP_SUFFIX)) for name in found):
        return False
    names = [name for name in found if name[:20].isdigit()]
    least_cleaned = 1 << 63
    swaps: list[str] = []
    for name in names:
        if name.endswith(DELETED_SUFFIX) and ".checkpoint" not in name:
            disk.remove(f"{directory}/{name}")
        elif name.endswith(CLEANED_SUFFIX):
            least_cleaned = min(least_cleaned, int(name[:20]))
            disk.remove(f"{directory}/{name}")
        elif name.endswith(SWAP_SUFFIX):
            swaps.append(name)
    valid = [name for name in swaps if int(name[:20]) < least_cleaned]
    for name in swaps:
        if name not in valid:
            disk.remove(f"{directory}/{name}")
    covered_from, covered_to = 1 << 63, -1
    for name in valid:
        if name.endswith(LOG_SUFFIX + SWAP_SUFFIX):
            base = int(name[:20])
            note(f"{directory}/{name}: an interrupted swap is completed")
            covered_from = min(covered_from, base)
            covered_to = max(covered_to, _swap_end(disk, f"{directory}/{name}", base))
    for name in names:
        if (
            name not in swaps
            and name.endswith(_SEGMENT_SUFFIXES)
            and covered_from <= int(name[:20]) < covered_to
        ):
            disk.remove(f"{directory}/{name}")
    for name in valid:
        disk.rename(f"{directory}/{name}", f"{directory}/{name.removesuffix(SWAP_SUFFIX)}")
    return True


def _swap_end(disk: Disk, path: str, base_offset: int) -> int:
    """The offset after the last batch of a swapped-in segment, which has its final name only later."""
    end = base_offset
    for header in iterate_batches(disk.read_bytes(path)):
        end = header.last_offset + 1
    return end


def _forget_cached(disk: Disk, directory: str, names: list[str], recovery_point: int) -> None:
    """Of the segment that holds the recovery point, and those after it."""
    logs = sorted(name for name in names if name.endswith(LOG_SUFFIX) and name[:20].isdigit())
    for name, following in zip(logs, [*logs[1:], None], strict=True):
        if following is None or int(following[:20]) > recovery_point:
            file = disk.open(f"{directory}/{name}")
            file.forget_cached()
            file.close()


def _load_segments(
    disk: Disk,
    directory: str,
    names: list[str],
    config: LogConfig,
    now_ms: int,
    cache: IndexCache,
    note: Note,
) -> list[Segment]:
    present = set(names)
    segments = []
    for name in names:
        if len(name) < 24 or not name[:20].isdigit():
            continue
        if name.endswith(REBUILT_SUFFIX):
            disk.remove(f"{directory}/{name}")
        elif name[20:] in _SEGMENT_SUFFIXES[1:] and name[:20] + LOG_SUFFIX not in present:
            note(f"{directory}/{name}: an index without a log is removed")
            disk.remove(f"{directory}/{name}")
        elif name[20:] == LOG_SUFFIX:
            interval = config.index_interval_bytes
            segments.append(Segment(disk, directory, int(name[:20]), interval, now_ms, cache, create=False))
    return segments


def _make_missing_indexes(disk: Disk, segments: list[Segment], names: list[str], note: Note) -> None:
    """Of segments that were not checked: those that were have theirs anew, if only in memory."""
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


def _unsound_txn_index(segments: list[Segment], names: list[str], note: Note) -> int | None:
    """Base offset of the first segment whose transaction index cannot be read: its batches tell what must be in it."""
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


def _unsound_tail(active: Segment, note: Note) -> int | None:
    """The base offset of the segment if nothing may be appended to it as it is: it is checked as after a crash."""
    if not active.size:
        return None
    try:
        end_of(active)
    except DAMAGE as damage:
        note(f"{active.stem}{LOG_SUFFIX}: {damage}; the segment is checked")
        return active.base_offset
    return None


def _load_epochs(disk: Disk, directory: str, present: bool, note: Note) -> tuple[LeaderEpochCache, bool]:
    """The epochs and whether the file could be believed; a crash can leave it empty."""
    path = f"{directory}/{LEADER_EPOCH_FILE}"
    if not present:
        return LeaderEpochCache(), False
    try:
        entries = parse_epochs(disk.read_bytes(path))
    except CheckpointCorrupt as error:
        note(f"{path}: {error}; the epochs are taken from the batches")
        cache = LeaderEpochCache()
        cache.changed = (
            True  # written anew at the latest with the clean mark, beside which it would be an error
        )
        return cache, False
    return LeaderEpochCache(entries), bool(entries)


def _recover(
    disk: Disk,
    segments: list[Segment],
    snapshots: SnapshotStore,
    epochs: LeaderEpochCache,
    recovery_point: int,
    log_start_offset: int,
    note: Note,
) -> None:
    """Check the batches of the segments from the one that holds the recovery point on, and index them anew."""
    first = max((at for at, s in enumerate(segments) if s.base_offset <= recovery_point), default=0)
    state = ProducerStateManager()
    snapshots.load_latest(
        state, log_start_offset - 1 if log_start_offset else -1, segments[first].base_offset
    )
    if state.end_offset < segments[first].base_offset:
        replay_what_can_be_read(state, segments[:first], segments[first].base_offset, note)
    at = first

    def set_following_aside() -> None:
        _set_aside(disk, segments[at + 1 :])

    for at in range(first, len(segments)):
        segment = segments[at]
        if segment.base_offset > state.end_offset:
            state.end_offset = segment.base_offset
        if at > first:
            with spared_on_a_full_disk():
                # It only spares a later start some of the way.
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


def _complete_epochs(
    segments: list[Segment], epochs: LeaderEpochCache, log_start_offset: int, log_end_offset: int
) -> None:
    """Take the epochs from the log's start up to the first known one from the batches.

    The file may begin later than the log: it was trimmed with a start that no checkpoint told before a crash. An earlier epoch
    would seem to reach up to the first known one, and a follower's records of it that nobody else has be taken for right.
    """
    known = epochs.entries
    end = known[0][1] if known else log_end_offset
    if end <= log_start_offset:
        return
    earlier = LeaderEpochCache()
    for header in _headers(segments, log_start_offset, end):
        if header.magic == 2 and header.leader_epoch >= 0:
            earlier.confirm(header.leader_epoch, max(header.base_offset, log_start_offset))
    if earlier.entries:
        epochs.put_before(earlier)


def _headers(segments: list[Segment], offset: int, end: int) -> Iterator[BatchHeader]:
    """Of the batches from the one that holds an offset on, below an end."""
    for segment in _from(segments, offset):
        found = segment.find(max(offset, segment.base_offset)) if segment.size else None
        if found is not None:
            for header in segment.headers(found[0]):
                if header.base_offset >= end:
                    return
                yield header


def _set_aside(disk: Disk, segments: list[Segment]) -> None:
    """The last one first, so that the beginning of the log is left wherever it ends. Durable when it returns."""
    for segment in reversed(segments):
        for path in segment.paths():
            disk.rename(path, path + DELETED_SUFFIX)
        segment.release()
    if segments:
        disk.sync_directory(posixpath.dirname(segments[0].stem))


def _from(segments: list[Segment], offset: int) -> list[Segment]:
    return segments[max((at for at, s in enumerate(segments) if s.base_offset <= offset), default=0) :]
