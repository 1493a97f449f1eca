"""Opening a partition's directory, as Kafka's LogLoader does at a start, after a clean or an unclean shutdown.

It removes leftovers, finishes interrupted swaps and loads the segments. After an unclean stop it checks and reindexes
every batch from the recovery point on. It rebuilds the producers' state. All of it blocks on the disk.

- A crash may leave an incomplete last batch (cut off), index files that lag (rebuilt), snapshots at offsets that are
  gone (removed), and outdated epochs (replaced by those in the batches).
- A checkpoint that cannot be true for this log belongs to another log or to data that the disk has lost. It is
  ignored.
- A damaged batch in the middle ends the log there. The segments after it are renamed to `.deleted`, as in Kafka.
- A clean stop syncs all batches, so after it only a damaged disk or an outside change explains damage. Only the tail to
  which the next batch is appended is checked then, and damage is skipped.
- A full disk must not make its data unreadable. The indexes of the active segment then stay in memory, as during
  appends, and are written with the next flush or close. The indexes of a closed segment must be in their files, because
  no flush writes them.
"""

from __future__ import annotations

import posixpath
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kafkacompat.ids import is_base_offset
from kafkacompat.log import file_records
from kafkacompat.log.checkpoint import (
    LEADER_EPOCH_FILE,
    REMOTE_CLEANING,
    SYNC_FAILED_FILE,
    CheckpointCorrupt,
    format_epochs,
    parse_epochs,
)
from kafkacompat.log.index import MAX_OFFSET, MAX_RELATIVE_OFFSET
from kafkacompat.log.index_cache import IndexCache
from kafkacompat.log.leader_epoch_file_cache import LeaderEpochFileCache
from kafkacompat.log.log_segment import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    LOG_SUFFIX,
    SCAN_CHUNK,
    SWAP_SUFFIX,
    LogSegment,
)
from kafkacompat.log.producer_snapshots import SnapshotStore
from kafkacompat.log.producer_state import ProducerStateManager
from kafkacompat.log.replay import apply_batch, replay_segments
from kafkacompat.log.segment_indexes import INDEX_SUFFIX, REBUILT_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX
from kafkacompat.log.unified_log import LogParts
from kafkacompat.ports import is_full
from kafkacompat.records.batch import BatchCorrupt, BatchHeader, has_valid_crc
from kafkacompat.records.compression import DecompressionFailed
from kafkacompat.records.record import RecordMalformed

if TYPE_CHECKING:
    from kafkacompat.config import LogConfig
    from kafkacompat.ports import Disk

SEGMENT_SUFFIXES = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)
Note = Callable[[str], None]
DAMAGE = (BatchCorrupt, RecordMalformed, DecompressionFailed, struct.error)
"""The errors of reading a damaged file. struct.error means an offset that no index entry can hold."""

OWN_CACHE_BYTES = 64 * 1024
"""Cache size for a log that does not share a node's index cache."""


def open_directory(
    disk: Disk,
    directory: str,
    config: LogConfig,
    now_ms: int,
    *,
    clean: bool,
    recovery_point: int = 0,
    log_start_offset: int = 0,
    may_be_tiered: bool = False,
    note: Note = lambda text: None,
    cache: IndexCache | None = None,
) -> LogParts:
    """Open a directory and return the parts of a UnifiedLog. With `clean`, the last stop was clean and only the tail
    is checked. `note` gets a line about each problem. `cache` is the node's index cache; without it the log gets its
    own. If the log `may_be_tiered`, what is below its first segment may be in the remote storage, so its start and the
    epochs from there on are kept.

    The mark of a failed sync stays: the caller ends with `trust_syncs_again`. Raises OSError.
    """
    disk.make_directory(directory)
    names = disk.list_directory(directory)
    if REMOTE_CLEANING in names:
        disk.remove_tree(f"{directory}/{REMOTE_CLEANING}")
    if finish_interrupted_work(disk, directory, names, note):
        names = disk.list_directory(directory)
    cache = IndexCache(OWN_CACHE_BYTES) if cache is None else cache
    log = _OpeningLog(
        disk,
        directory,
        names,
        config,
        now_ms,
        cache,
        note,
        clean,
        recovery_point,
        log_start_offset,
        may_be_tiered,
    )
    log.forget_what_was_not_synced()
    log.load()
    log.recover_what_is_in_doubt()
    log.make_missing_indexes()
    log.settle_start_and_end()
    log.complete_epochs()
    log.rebuild_producer_state()
    log.let_files_go()
    return log.parts()


class _OpeningLog:
    """A log while its directory is opened. The methods are the steps, in order."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        names: list[str],
        config: LogConfig,
        now_ms: int,
        cache: IndexCache,
        note: Note,
        clean: bool,
        recovery_point: int,
        log_start_offset: int,
        may_be_tiered: bool,
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._names = names
        self._may_be_tiered = may_be_tiered
        self._config = config
        self._now_ms = now_ms
        self._cache = cache
        self._note = note
        self._clean = clean
        self._durable_to = recovery_point
        """The checkpoint's recovery point. `_recovery_point` is 0 if it is ignored."""
        self._recovery_point = recovery_point
        self._log_start_offset = log_start_offset
        self._log_end_offset = log_start_offset
        self._segments: list[LogSegment] = []
        self._snapshots = SnapshotStore(disk, directory, names)
        self._epochs = LeaderEpochFileCache()
        self._epochs_known = False
        self._unsound: int | None = None
        """Base offset of a segment that must be checked even after a clean stop."""
        self._state = ProducerStateManager()

    def forget_what_was_not_synced(self) -> None:
        """After a failed sync, read from the disk: the page cache may have data that the disk lacks."""
        if SYNC_FAILED_FILE in self._names:
            self._clean = False
            self._note(
                f"{self._directory}: a sync has failed; what follows offset {self._recovery_point} is read from the disk"
            )
            _forget_cached(self._disk, self._directory, self._names, self._recovery_point)

    def load(self) -> None:
        """Load the segments and leader epochs from their files."""
        self._segments = _load_segments(
            self._disk, self._directory, self._names, self._config, self._now_ms, self._cache, self._note
        )
        self._epochs, self._epochs_known = _load_epochs(
            self._disk, self._directory, LEADER_EPOCH_FILE in self._names, self._note
        )

    def recover_what_is_in_doubt(self) -> None:
        """Check the log after an unclean stop, or if a file cannot come from a clean one."""
        segments, clean = self._segments, self._clean
        unsound = unsound_txn_index(segments, self._names, self._note)
        if clean and segments and unsound is None:
            unsound = unsound_tail(segments[-1], self._note)
        self._unsound = unsound
        if not segments or (clean and unsound is None):
            return
        start = self._recovery_point if self._epochs_known or self._recovery_point == 0 else 0
        if unsound is not None:
            start = unsound if clean else min(start, unsound)
        first_base = segments[0].base_offset
        self._recover(max(start, 0), max(self._log_start_offset, first_base))
        if not clean and self._recovery_point > segments[-1].next_offset():
            start = 0
            self._note(
                f"{self._directory}: the log ends at {segments[-1].next_offset()}, below its recovery point "
                f"{self._recovery_point}; all of it is checked"
            )
            self._recover(0, first_base)
        # The next sync must include the indexes that the check has written anew.
        self._recovery_point = min(self._recovery_point, max(start, 0))

    def _recover(self, recovery_point: int, log_start_offset: int) -> None:
        recover_segments(
            self._disk,
            self._segments,
            self._snapshots,
            self._epochs,
            recovery_point,
            log_start_offset,
            self._note,
        )

    def make_missing_indexes(self) -> None:
        make_missing_indexes(self._disk, self._segments, self._names, self._note)

    def settle_start_and_end(self) -> None:
        """Set log start and log end. Checkpointed offsets that cannot be true for this log are ignored."""
        if self._segments:
            self._log_end_offset = self._segments[-1].next_offset()
        if self._log_end_offset < self._log_start_offset:
            self._settle_end_below_start()
        if self._clean and self._log_end_offset < self._durable_to:
            self._note(
                f"{self._directory}: the log ends at {self._log_end_offset}, and what lay there up to "
                f"{self._durable_to} is gone"
            )
        if not self._segments:
            self._segments = [self._first_segment()]
        if not self._may_be_tiered:
            self._log_start_offset = max(self._log_start_offset, self._segments[0].base_offset)

    def _settle_end_below_start(self) -> None:
        end = f"{self._directory}: the log ends at {self._log_end_offset}, below its start {self._log_start_offset}"
        if self._clean and self._durable_to >= self._log_start_offset:
            # The start is this log's own: a truncation or damage has left a gap below it.
            self._note(f"{end}, and begins anew there")
            set_aside(self._disk, self._segments)
            self._segments = []
            self._snapshots.remove_all()
            self._log_end_offset = self._log_start_offset
        else:
            self._note(f"{end}, which is not believed")
            self._log_start_offset = self._segments[0].base_offset

    def _first_segment(self) -> LogSegment:
        interval = self._config.index_interval_bytes
        return LogSegment(
            self._disk,
            self._directory,
            self._log_start_offset,
            interval,
            self._now_ms,
            self._cache,
            create=True,
        )

    def complete_epochs(self) -> None:
        epochs, segments = self._epochs, self._segments
        first_base = segments[0].base_offset
        epochs.truncate_from_start(min(self._log_start_offset, first_base))
        epochs.truncate_from_end(self._log_end_offset)
        try:
            _complete_epochs(segments, epochs, max(self._log_start_offset, first_base), self._log_end_offset)
        except DAMAGE as damage:
            self._note(f"{self._directory}: {damage}; leader epochs of what lies before it are not known")

    def rebuild_producer_state(self) -> None:
        """Load the newest snapshot and apply the batches after it."""
        state, segments, end = self._state, self._segments, self._log_end_offset
        self._snapshots.remove_strays([segment.base_offset for segment in segments])
        self._snapshots.load_latest(state, self._log_start_offset, end)
        if state.end_offset < end:
            replay_what_can_be_read(state, _from(segments, state.end_offset), end, self._note)

    def let_files_go(self) -> None:
        """Close all files: a partition that is not used holds no descriptor. The next read or append opens the file
        again."""
        if SYNC_FAILED_FILE in self._names:
            # If the file is in the page cache only, a later sync would find nothing to write. So write it again.
            path = f"{self._directory}/{LEADER_EPOCH_FILE}"
            self._disk.write_atomic(path, format_epochs(self._epochs.entries))
        self._segments[-1].largest_timestamp()  # appends compare their timestamps with it
        for segment in self._segments:
            segment.release()
            segment.let_go()

    def parts(self) -> LogParts:
        is_sound = self._clean and self._unsound is None
        end = self._log_end_offset
        # The next sync must include what the check has cut off or written, also if another segment begins at the log's end.
        unsynced_from = self._segments[-1].base_offset
        recovery_point = end if is_sound else min(self._recovery_point, unsynced_from)
        return LogParts(
            self._segments,
            self._epochs,
            self._state,
            self._snapshots,
            self._log_start_offset,
            end,
            recovery_point,
            self._cache,
            names_are_durable=is_sound,
        )


def trust_syncs_again(disk: Disk, directory: str) -> None:
    """Remove the mark of a failed sync, if it exists. Data that may have been in the page cache only must be durable
    before."""
    mark = f"{directory}/{SYNC_FAILED_FILE}"
    if disk.exists(mark):
        disk.remove(mark)


def _forget_cached(disk: Disk, directory: str, names: list[str], recovery_point: int) -> None:
    """Drop the page cache of the segment that contains the recovery point, and of all later ones."""
    logs = sorted(name for name in names if name.endswith(LOG_SUFFIX) and is_base_offset(name[:20]))
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
) -> list[LogSegment]:
    present = set(names)
    segments = []
    for name in names:
        if len(name) < 24 or not is_base_offset(name[:20]):
            continue
        if name.endswith(REBUILT_SUFFIX):
            disk.remove(f"{directory}/{name}")
        elif name[20:] in SEGMENT_SUFFIXES[1:] and name[:20] + LOG_SUFFIX not in present:
            note(f"Found an orphaned index file {directory}/{name}, with no corresponding log file")
            disk.remove(f"{directory}/{name}")
        elif name[20:] == LOG_SUFFIX:
            interval = config.index_interval_bytes
            segments.append(
                LogSegment(disk, directory, int(name[:20]), interval, now_ms, cache, create=False)
            )
    return segments


def _load_epochs(disk: Disk, directory: str, present: bool, note: Note) -> tuple[LeaderEpochFileCache, bool]:
    """The epochs, and whether the file was readable. A crash can leave it empty."""
    path = f"{directory}/{LEADER_EPOCH_FILE}"
    if not present:
        return LeaderEpochFileCache(), False
    try:
        entries = parse_epochs(disk.read_bytes(path))
    except CheckpointCorrupt as error:
        note(f"{path}: {error}; the epochs are taken from the batches")
        cache = LeaderEpochFileCache()
        cache.changed = True  # the clean-shutdown mark must not be written beside a bad file
        return cache, False
    return LeaderEpochFileCache(entries), bool(entries)


def _complete_epochs(
    segments: list[LogSegment], epochs: LeaderEpochFileCache, log_start_offset: int, log_end_offset: int
) -> None:
    """Read the epochs between the log's start and the first known epoch from the batches.

    The file may begin later than the log, if it was trimmed for a log start that was not checkpointed before a crash.
    Otherwise an earlier epoch would seem to extend to the first known one. A follower's records of that epoch, which
    no other replica has, would then be accepted.
    """
    known = epochs.entries
    end = known[0][1] if known else log_end_offset
    if end <= log_start_offset:
        return
    earlier = LeaderEpochFileCache()
    for header in _headers(segments, log_start_offset, end):
        if header.magic == 2 and header.leader_epoch >= 0:
            earlier.confirm(header.leader_epoch, max(header.base_offset, log_start_offset))
    if earlier.entries:
        epochs.put_before(earlier)


def _headers(segments: list[LogSegment], offset: int, end: int) -> Iterator[BatchHeader]:
    """The headers of the batches from the one that contains an offset up to `end`."""
    for segment in _from(segments, offset):
        found = segment.find(max(offset, segment.base_offset)) if segment.size else None
        if found is not None:
            for header in segment.headers(found[0]):
                if header.base_offset >= end:
                    return
                yield header


def _from(segments: list[LogSegment], offset: int) -> list[LogSegment]:
    return segments[max((at for at, s in enumerate(segments) if s.base_offset <= offset), default=0) :]


def finish_interrupted_work(disk: Disk, directory: str, found: list[str], note: Note) -> bool:
    """Remove `.deleted` and `.cleaned` files, and complete compaction swaps that were far enough. Returns whether it
    completed one."""
    if not any(name.endswith((DELETED_SUFFIX, CLEANED_SUFFIX, SWAP_SUFFIX)) for name in found):
        return False
    names = [name for name in found if is_base_offset(name[:20])]
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
            note(
                f"Found log file {directory}/{name} from interrupted swap operation, which is recoverable from "
                f"{SWAP_SUFFIX} files by renaming"
            )
            covered_from = min(covered_from, base)
            covered_to = max(covered_to, _swap_end(disk, f"{directory}/{name}", base))
    for name in names:
        if (
            name not in swaps
            and name.endswith(SEGMENT_SUFFIXES)
            and covered_from <= int(name[:20]) < covered_to
        ):
            disk.remove(f"{directory}/{name}")
    for name in valid:
        disk.rename(f"{directory}/{name}", f"{directory}/{name.removesuffix(SWAP_SUFFIX)}")
    return True


def _swap_end(disk: Disk, path: str, base_offset: int) -> int:
    """The offset after the last batch of a swapped-in segment that does not have its final name yet. It may have a gibibyte, of
    which only the headers are read."""
    end = base_offset
    file = disk.open(path)
    try:
        for header in file_records.headers(file, 0, file.size(), SCAN_CHUNK):
            end = header.last_offset + 1
    finally:
        file.close()
    return end


@contextmanager
def spared_on_a_full_disk() -> Iterator[None]:
    """Ignore errors of a full disk. For work that a later start repeats or does not need."""
    try:
        yield
    except OSError as error:
        if not is_full(error):
            raise


def recover_segments(
    disk: Disk,
    segments: list[LogSegment],
    snapshots: SnapshotStore,
    epochs: LeaderEpochFileCache,
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
                f"Corruption found in segment {segment.stem}{LOG_SUFFIX}, truncating to offset {state.end_offset} "
                f"({cut} bytes)"
            )
            if segments[at + 1 :]:
                note(f"Deleting segments as part of log recovery: {len(segments) - at - 1} after that one")
            for later in segments[at + 1 :]:
                snapshots.remove(later.base_offset)
            del segments[at + 1 :]
            break


def recover_segment(
    segment: LogSegment,
    state: ProducerStateManager,
    epochs: LeaderEpochFileCache,
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
            if not self._may_wait or not is_full(error):
                raise
            self._in_memory = True
            self._segment.index_batch(header, in_memory=True)

    def finish(self) -> None:
        try:
            self._segment.finish_reindex()
        except OSError as error:
            if not self._may_wait or not is_full(error):
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
                note(
                    "Could not find offset index file corresponding to log file "
                    f"{segment.stem}{LOG_SUFFIX}, and it cannot be rebuilt: {damage}"
                )


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
    for header, batch in file_records.whole_batches(segment.file, segment.size, SCAN_CHUNK, start=start):
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
