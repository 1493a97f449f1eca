"""Opening a partition's directory, as Kafka does at a start, after a clean or an unclean shutdown.

It removes leftovers, finishes interrupted swaps and loads the segments. After an unclean stop it checks and reindexes
every batch from the recovery point on. It rebuilds the producers' state.

- A crash may leave an incomplete last batch (cut off), index files that lag (rebuilt), snapshots at offsets that are
  gone (removed), and outdated epochs (replaced by those in the batches).
- A checkpoint that cannot be true for this log belongs to another log or to data that the disk has lost. It is
  ignored.
- A damaged batch in the middle ends the log there. The segments after it are renamed to `.deleted`, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kafkacompat.ids import is_base_offset
from kafkacompat.log.checkpoint import (
    LEADER_EPOCH_FILE,
    SYNC_FAILED_FILE,
    CheckpointCorrupt,
    format_epochs,
    parse_epochs,
)
from kafkacompat.log.epoch_cache import LeaderEpochCache
from kafkacompat.log.index_cache import IndexCache
from kafkacompat.log.leftovers import SEGMENT_SUFFIXES, finish_interrupted_work
from kafkacompat.log.log_segment import LOG_SUFFIX, LogSegment
from kafkacompat.log.producer_state import ProducerStateManager
from kafkacompat.log.segment_indexes import REBUILT_SUFFIX
from kafkacompat.log.segment_recovery import make_missing_indexes, recover_segments, set_aside
from kafkacompat.log.snapshots import SnapshotStore
from kafkacompat.log.soundness import DAMAGE, Note, replay_what_can_be_read, unsound_tail, unsound_txn_index
from kafkacompat.log.unified_log import LogParts

if TYPE_CHECKING:
    from kafkacompat.config import LogConfig
    from kafkacompat.ports import Disk
    from kafkacompat.records.batch import BatchHeader

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
    note: Note = lambda text: None,
    cache: IndexCache | None = None,
) -> LogParts:
    """Open a directory and return the parts of a UnifiedLog. With `clean`, the last stop was clean and only the tail
    is checked. `note` gets a line about each problem. `cache` is the node's index cache; without it the log gets its
    own.

    The mark of a failed sync stays: the caller ends with `trust_syncs_again`. Raises OSError.
    """
    disk.make_directory(directory)
    names = disk.list_directory(directory)
    if finish_interrupted_work(disk, directory, names, note):
        names = disk.list_directory(directory)
    cache = IndexCache(OWN_CACHE_BYTES) if cache is None else cache
    log = _OpeningLog(
        disk, directory, names, config, now_ms, cache, note, clean, recovery_point, log_start_offset
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
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._names = names
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
        self._epochs = LeaderEpochCache()
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
            self._note(
                f"{self._directory}: the log ends at {segments[-1].next_offset()}, below its recovery point "
                f"{self._recovery_point}; all of it is checked"
            )
            self._recovery_point = 0
            self._recover(0, first_base)

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
        epochs.truncate_from_start(segments[0].base_offset)
        epochs.truncate_from_end(self._log_end_offset)
        try:
            _complete_epochs(segments, epochs, self._log_start_offset, self._log_end_offset)
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
        return LogParts(
            self._segments,
            self._epochs,
            self._state,
            self._snapshots,
            self._log_start_offset,
            end,
            end if is_sound else min(self._recovery_point, end),
            self._cache,
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
            note(f"{directory}/{name}: an index without a log is removed")
            disk.remove(f"{directory}/{name}")
        elif name[20:] == LOG_SUFFIX:
            interval = config.index_interval_bytes
            segments.append(
                LogSegment(disk, directory, int(name[:20]), interval, now_ms, cache, create=False)
            )
    return segments


def _load_epochs(disk: Disk, directory: str, present: bool, note: Note) -> tuple[LeaderEpochCache, bool]:
    """The epochs, and whether the file was readable. A crash can leave it empty."""
    path = f"{directory}/{LEADER_EPOCH_FILE}"
    if not present:
        return LeaderEpochCache(), False
    try:
        entries = parse_epochs(disk.read_bytes(path))
    except CheckpointCorrupt as error:
        note(f"{path}: {error}; the epochs are taken from the batches")
        cache = LeaderEpochCache()
        cache.changed = True  # the clean-shutdown mark must not be written beside a bad file
        return cache, False
    return LeaderEpochCache(entries), bool(entries)


def _complete_epochs(
    segments: list[LogSegment], epochs: LeaderEpochCache, log_start_offset: int, log_end_offset: int
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
    earlier = LeaderEpochCache()
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
