"""The log cleaner of a node: picks logs, lets workers rewrite closed segments, swaps the results in.

It tracks which partitions are being cleaned and how each cleaning ended, and writes the checkpoint of clean offsets.
It has no threads or timers: it makes plans whose `run` blocks, and node/log_maintenance.py runs them. Everything except `run`
is for the loop's thread, so a reader finds either the old segments or the new one. A truncation, retention, move or
new cleanup policy of the log cancels its cleaning.

When memory is short the kernel kills the cleaner's process. A cleaning inside the broker would then put the broker at risk.
So a log that lost a process waits (`CleaningBackoff`), longer each time, and returns with half the buffers. Also no process
starts for a while, since the shortage may have another cause than this log.

All threads together are limited to log.cleaner.io.max.bytes.per.second (`Throttler`).
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Generic, TypeVar

from kafkacompat.log.checkpoint import CLEANER_FILE
from kafkacompat.log.cleaner.candidates import LogToClean, Search, candidate
from kafkacompat.log.cleaner.cleaner import (
    UNREADABLE,
    Cleaner,
    CleanerStats,
    CleaningStopped,
    Pace,
    Stage,
    remove_cleaned,
)
from kafkacompat.log.cleaner.filtering import TooLargeHere, last_records_of
from kafkacompat.log.cleaner.job import CleanerLimits, CleaningJob, SegmentFile
from kafkacompat.log.cleaner.process import Children, CleaningProcess, ProcessLost
from kafkacompat.log.directory import CheckpointPlan
from kafkacompat.ports import HalfDone, LogRefused, SyncFailed
from kafkacompat.records.compression import UNPACKED_BYTES_MAX

if TYPE_CHECKING:
    from kafkacompat.config import ServerConfig
    from kafkacompat.ids import TopicPartition
    from kafkacompat.log.log_manager import LogManager
    from kafkacompat.log.log_segment import LogSegment
    from kafkacompat.log.unified_log import UnifiedLog
    from kafkacompat.ports import Disk

REST_MS = 60_000
REST_MOST_MS = 3_600_000
"""A log's rest doubles with each loss, up to this."""
PROCESS_REST_MS = 5_000
PROCESS_REST_MOST_MS = 300_000
"""The longest time without a process after consecutive losses."""
LEAST_MAP_BYTES = 1 << 20
LEAST_IO_BYTES = 64 << 10
"""The lower bound of the I/O buffers."""
LONGEST_WAIT_S = 1.0
"""Seconds after which the rate is read again."""

OWN_PROCESS_BYTES = 8 << 20
"""A log with more bytes to read is cleaned in a separate process only. Opening records takes time from the loop's
thread, and memory that the broker needs. For fewer bytes, starting a process costs more than it saves."""

OWN_PROCESS_OFFSETS = 500_000
"""A log with more offsets to read is also cleaned in a process, because a batch of a kilobyte can expand to millions
of records. In a log that was compacted before, the offsets overstate the records; this costs at most the start of a
process."""

IN_THREAD_BYTES = 4 << 20
"""A log with a batch that expands to more bytes is also cleaned in a process. Searching so many bytes in one call
blocks the loop."""


def cleaner_limits(config: ServerConfig) -> CleanerLimits:
    """The limits of one thread. The buffers are divided by the threads. Half of the I/O buffer is for reading and half
    for writing, as in Kafka."""
    threads = max(config.get_int("log.cleaner.threads"), 1)
    return CleanerLimits(
        map_bytes=config.get_int("log.cleaner.dedupe.buffer.size") // threads,
        load_factor=config.get_double("log.cleaner.io.buffer.load.factor"),
        io_bytes=config.get_int("log.cleaner.io.buffer.size") // threads // 2,
    )


class Cleaning:
    """One log's cleaning, in steps: `run` in a worker, then `finish` in the loop's thread, until `done`.

    After an error in either, the next `run` removes the files in a worker, because a process may take a while to end
    and uses its files until then. Then `finish` tells the cleaner.
    """

    def __init__(
        self,
        cleaner: LogCleaner,
        disk: Disk,
        found: LogToClean,
        job: CleaningJob,
        work: Cleaner | CleaningProcess,
        began_ms: int,
    ) -> None:
        """`began_ms`: monotonic."""
        self._cleaner = cleaner
        self.began_ms = began_ms
        self._disk = disk
        self.log = found.log
        self._segments: list[LogSegment] = list(found.log.segments[: found.segments])
        self._sizes = [segment.size for segment in self._segments]
        self._work = work
        self._mapped = False
        self._group = 0
        self._suffixes: Sequence[str] = ()
        self._error: Exception | None = None
        self._is_cleared = False
        self.done = False
        self.summary = ""
        """The result for the node's log. Empty if the cleaning was abandoned."""
        self.log.truncated = False

    @property
    def has_own_process(self) -> bool:
        return isinstance(self._work, CleaningProcess)

    @property
    def stats(self) -> CleanerStats:
        return self._work.stats

    def run(self) -> None:
        """Run the next step. Blocks; any thread. An error is kept for `finish`."""
        work = self._work
        try:
            if self._error is not None:
                pass
            elif not self._mapped:
                work.build_map()
            elif self._group < len(work.groups):
                self._suffixes = work.clean_group(work.groups[self._group])
            else:
                work.finish()
                self._disk.sync_directory(self.log.directory)
        except BaseException as error:
            # The loop's thread raises it again. There an Exception ends only this cleaning.
            self._error = error if isinstance(error, Exception) else RuntimeError(repr(error))
        if self._error is not None:
            self._clear_away()

    def finish(self, now_ms: int) -> None:
        """Take over the step's result. Raises errors that are bugs; the partition is then not cleaned any more."""
        if self._error is not None:
            if self._is_cleared:
                self.done = True
                self._cleaner.failed(self, self._error)
            return
        if not self._mapped:
            self._mapped = True
            return
        work = self._work
        if self._group == len(work.groups):
            self.done = True
            self.summary = (
                f"{self.log.topic_partition} is clean to {work.end_offset}: {self.stats.map_bytes_read} bytes mapped, "
                f"{self.stats.bytes_read} read, {self.stats.bytes_written} written"
            )
            self._cleaner.succeeded(self, work.end_offset)
            return
        count = len(work.groups[self._group])
        if not self.intact():
            self._error = CleaningStopped("the log has changed")
            return
        try:
            self.log.replace_segments(self._segments[:count], self._suffixes, now_ms)
        except OSError as error:
            self._error = error
            if isinstance(error, HalfDone):
                # Report it now, not after the files are removed: until then no other operation may touch files that
                # are neither old nor new.
                self._cleaner.swap_stopped(self.log, error)
            return
        del self._segments[:count], self._sizes[:count]
        self._group += 1

    def abandon(self) -> None:
        """Make the next step the last one, which removes the files. Called when the node stops."""
        self._error = self._error or CleaningStopped("the node stops")

    def _clear_away(self) -> None:
        self._is_cleared = True
        self._work.close()
        if not self._cleaner.has_successor(self.log):
            # Remove this group's files and those of the next group, which a process may have begun. The next start
            # removes what cannot be removed now.
            with contextlib.suppress(OSError):
                at = 0
                for group in self._work.groups[self._group : self._group + 2]:
                    remove_cleaned(self._disk, self._segments[at].stem)
                    at += len(group)

    def intact(self) -> bool:
        """Whether the segments still to be replaced are unchanged since the cleaning began, and the log may still be
        cleaned."""
        if self.log.truncated or not self._cleaner.may_change(self.log):
            return False
        if not self._segments:
            return True
        log_segments = self.log.segments
        for at, segment in enumerate(log_segments):
            if segment is self._segments[0]:
                now = log_segments[at : at + len(self._segments)]
                return list(now) == self._segments and [one.size for one in now] == self._sizes
        return False


class LogCleaner:
    """The cleaner of a node. `limits` returns the settings in force. `pace_for` returns the function that a cleaning
    calls with the bytes it moves."""

    def __init__(
        self,
        manager: LogManager,
        disk: Disk,
        limits: Callable[[], CleanerLimits],
        pace_for: Callable[[], Pace],
        note: Callable[[str], None],
        *,
        own_process_bytes: int | None = None,
        monotonic_ms: Callable[[], int] = lambda: time.monotonic_ns() // 1_000_000,
    ) -> None:
        """`own_process_bytes`: see OWN_PROCESS_BYTES. None keeps all work in threads, for disks that another process
        cannot open."""
        self._manager = manager
        self._disk = disk
        self._limits = limits
        self._pace_for = pace_for
        self._note = note
        self._own_process_bytes = own_process_bytes
        self._in_progress: set[TopicPartition] = set()
        self._monotonic_ms = monotonic_ms
        self.uncleanable: dict[TopicPartition, UnifiedLog] = {}
        """Logs that could not be read. They are not cleaned until the next start, as in Kafka."""
        self._backoff: CleaningBackoff[UnifiedLog] = CleaningBackoff()
        self._unfolding: set[UnifiedLog] = set()
        """Logs with a batch that is too large to be opened in a thread."""
        self._refused: Refused[UnifiedLog] = Refused()
        self.cleaned_logs = 0
        self.meter = CleanerMeter(monotonic_ms())
        self._search: Search | None = None
        self._children = Children()
        self._is_stopping = False

    def interrupt(self) -> None:
        """Let running cleanings end as soon as possible, because the node stops."""
        self._is_stopping = True
        self._children.interrupt()

    def close(self) -> None:
        """End the idle process. Blocks shortly. No cleaning may follow."""
        self._children.close()

    def begin(self, now_ms: int) -> Cleaning | None:
        """Begin cleaning the dirtiest log that is not being cleaned. Returns None if there is none, if the log cannot
        be read (call again), or if the search is not complete (`is_looking`). An OSError takes the log's directory
        offline."""
        self._children.reap()
        manager = self._manager
        for name in [name for name, log in self.uncleanable.items() if manager.get(name) is not log]:
            del self.uncleanable[name]
        self._backoff.keep(lambda log: manager.get(log.topic_partition) is log)
        self._unfolding = {log for log in self._unfolding if manager.get(log.topic_partition) is log}
        self._refused.keep(lambda log: manager.get(log.topic_partition) is log)
        search = self._search or Search(
            manager.logs.values(), now_ms, self._may_begin, self._cannot_be_read, self._refused.rests
        )
        self._search = None
        if not search.step():
            self._search = search
            return None
        self.meter.searched(search.highest_ratio, search.overdue_ms, self._monotonic_ms())
        found = search.best
        if found is None or not self._may_begin(found.log):
            return None  # an error of another log has taken the directory offline
        log = found.log
        if search.steps > 1:
            # The log may have changed since it was examined.
            try:
                found = candidate(log, now_ms)
            except (OSError, *UNREADABLE) as error:
                self._leave(log.topic_partition, error)
                return None
            except LogRefused:
                return None  # the log's indexes are being rebuilt
            if found is None:
                return None
        closed = [
            SegmentFile(segment.stem, segment.base_offset, following.base_offset, segment.size)
            for segment, following in itertools.pairwise(log.segments)
        ]
        try:
            aborted = log.segments[-1].aborted.find(closed[0].base_offset, found.end_offset)[0]
        except (OSError, *UNREADABLE) as error:
            self._leave(log.topic_partition, error)
            return None
        config = log.config
        job = CleaningJob(
            log.directory,
            closed[: found.segments],
            found.first_dirty_offset,
            found.end_offset,
            closed[found.segments :],
            aborted,
            last_records_of(log.producer_state),
            now_ms,
            config.delete_retention_ms,
            config.internal_segment_bytes or config.segment_bytes,
            config.segment_index_bytes,
            config.index_interval_bytes,
            self._backoff.limits(log, self._limits()),
            log.is_tiered,
        )
        self._in_progress.add(log.topic_partition)
        self._refused.begins(log)
        return Cleaning(self, self._disk, found, job, self._work_for(log, job), self._monotonic_ms())

    @property
    def is_looking(self) -> bool:
        """Whether the search is not complete. Call `begin` again soon."""
        return self._search is not None

    def _cannot_be_read(self, log: UnifiedLog, error: Exception) -> None:
        self._leave(log.topic_partition, error)

    def _may_begin(self, log: UnifiedLog) -> bool:
        name = log.topic_partition
        if name in self._in_progress or name in self.uncleanable or not self.may_change(log):
            return False
        now_ms, backoff = self._monotonic_ms(), self._backoff
        if not backoff.may_clean(log, now_ms):
            return False
        return backoff.may_begin_process(now_ms) or not self._needs_process(
            log, log.segments, log.segments[-1].base_offset
        )

    def _needs_process(
        self, log: UnifiedLog, segments: Sequence[LogSegment] | Sequence[SegmentFile], end_offset: int
    ) -> bool:
        if self._own_process_bytes is None:
            return False
        # A small log that once used up the memory may have a batch that expands to much more.
        return (
            self._backoff.has_lost(log)
            or log in self._unfolding
            or end_offset - segments[0].base_offset >= OWN_PROCESS_OFFSETS
            or sum(each.size for each in segments) >= self._own_process_bytes
        )

    def _work_for(self, log: UnifiedLog, job: CleaningJob) -> Cleaner | CleaningProcess:
        if self._needs_process(log, job.segments, job.segments[-1].end_offset):
            return CleaningProcess(job, self._pace_for(), self._children)
        bytes_most = UNPACKED_BYTES_MAX if self._own_process_bytes is None else IN_THREAD_BYTES
        return Cleaner(self._disk, job, self._pace_for(), bytes_most)

    def limits(self) -> CleanerLimits:
        """The limits of one thread."""
        return self._limits()

    def pace(self) -> Pace:
        return self._pace_for()

    def work_on_staged(self, job: CleaningJob, pace: Pace, stage: Stage) -> Cleaner | CleaningProcess:
        """What cleans segments that do not lie in a log."""
        if self._own_process_bytes is not None:
            return CleaningProcess(job, pace, self._children, stage)
        return Cleaner(self._disk, job, pace, stage=stage)

    def may_change(self, log: UnifiedLog) -> bool:
        """Whether the log is served, still compacted and not being copied. A copy may already have a record, or the
        data of a transaction. It would then miss a tombstone or marker that is cleaned away before the copy reaches
        it."""
        manager, name = self._manager, log.topic_partition
        is_served = manager.get(name) is log and not manager.closed
        return is_served and log.config.compact and name not in manager.futures.logs

    def has_successor(self, log: UnifiedLog) -> bool:
        """Whether another log now has this log's name."""
        return self._manager.get(log.topic_partition) not in (None, log)

    def succeeded(self, cleaning: Cleaning, end_offset: int) -> None:
        log = cleaning.log
        self._in_progress.discard(log.topic_partition)
        self.cleaned_logs += 1
        self.meter.cleaned(cleaning.stats, self._monotonic_ms() - cleaning.began_ms)
        self._backoff.went_well(log, cleaning.has_own_process)
        self._refused.went_well(log)
        if not log.truncated:
            log.cleaned_to = end_offset

    def swap_stopped(self, log: UnifiedLog, error: HalfDone) -> None:
        self._manager.log_failed(log, error)

    def failed(self, cleaning: Cleaning, error: Exception) -> None:
        """Handle a failed cleaning; nothing of it is in the log. Errors that are bugs are raised again."""
        log = cleaning.log
        name = log.topic_partition
        self._in_progress.discard(name)
        if self._is_stopping:
            return
        if isinstance(error, TooLargeHere):
            self._unfolding.add(log)
            return
        if isinstance(error, (ProcessLost, MemoryError)):
            rest_ms = self._backoff.lost(log, self._monotonic_ms())
            self._note(
                f"cleaning {name} has failed: {str(error) or 'no memory'}; "
                f"it is tried again with smaller buffers in {rest_ms // 1000} s"
            )
            return
        if isinstance(error, SyncFailed):
            # Of a disk that loses written data: report this even if the log has changed meanwhile.
            self._manager.log_failed(log, error)
            return
        if isinstance(error, CleaningStopped) or not cleaning.intact():
            return
        self._leave(name, error)
        if not isinstance(error, (OSError, *UNREADABLE)):
            raise error

    def _leave(self, name: TopicPartition, error: Exception) -> None:
        log = self._manager.get(name)
        if isinstance(error, OSError):
            if log is not None:
                self._refused.add(log)
            self._manager.partition_failed(name, error)
            return
        if log is not None:
            self.uncleanable[name] = log
        self._note(f"Marking partition {name} as uncleanable until the next start: {error}")

    def checkpoint(self) -> CheckpointPlan | None:
        """Write the cleaner checkpoint of every directory where an offset has changed."""
        return self._manager.checkpoints.plan(CLEANER_FILE)


class CleanerMeter:
    """Of the last search for a dirty log and the last cleaning. With several threads, of whichever ended last; Kafka
    shows the maximum over the last ones of all threads."""

    __slots__ = (
        "buffer_utilization",
        "clean_time_ms",
        "dirty_ratio",
        "overdue_ms",
        "recopied",
        "searched_ms",
    )

    def __init__(self, now_ms: int) -> None:
        self.searched_ms = now_ms
        """When the last search ended, monotonic."""
        self.dirty_ratio = 0.0
        """Of the dirtiest log that could be cleaned then."""
        self.overdue_ms = 0
        """For how long the cleaning of the most overdue log had been due then, by max.compaction.lag.ms."""
        self.buffer_utilization = 0.0
        """The share of the offset map that the last cleaning filled."""
        self.clean_time_ms = 0
        self.recopied = 0.0
        """Bytes written by bytes read."""

    def searched(self, dirty_ratio: float, overdue_ms: int, now_ms: int) -> None:
        self.dirty_ratio = dirty_ratio
        self.overdue_ms = overdue_ms
        self.searched_ms = now_ms

    def cleaned(self, stats: CleanerStats, duration_ms: int) -> None:
        self.buffer_utilization = stats.map_utilization
        self.clean_time_ms = duration_ms
        self.recopied = stats.bytes_written / max(stats.bytes_read, 1)


Log = TypeVar("Log", bound=Hashable)


class CleaningBackoff(Generic[Log]):
    """`Log` is any object that identifies a log. A new log of the same name must be another object."""

    __slots__ = ("_losses", "_processes_from_ms", "_until_ms", "losses_in_turn")

    def __init__(self) -> None:
        self._losses: dict[Log, int] = {}
        self._until_ms: dict[Log, int] = {}
        self._processes_from_ms = 0
        self.losses_in_turn = 0
        """Losses since a process last completed its work."""

    def lost(self, log: Log, now_ms: int) -> int:
        """Record that a cleaning of this log ran out of memory or lost its process. Returns its rest in ms."""
        losses = self._losses[log] = self._losses.get(log, 0) + 1
        rest_ms = min(REST_MS << min(losses - 1, 16), REST_MOST_MS)
        self._until_ms[log] = now_ms + rest_ms
        wait_ms = min(PROCESS_REST_MS << min(self.losses_in_turn, 16), PROCESS_REST_MOST_MS)
        self._processes_from_ms = now_ms + wait_ms
        self.losses_in_turn += 1
        return rest_ms

    def went_well(self, log: Log, in_process: bool) -> None:
        self._losses.pop(log, None)
        self._until_ms.pop(log, None)
        if in_process:
            self.losses_in_turn = 0

    def keep(self, is_there: Callable[[Log], bool]) -> None:
        """Forget all other logs."""
        for log in [log for log in self._losses if not is_there(log)]:
            del self._losses[log], self._until_ms[log]

    def may_clean(self, log: Log, now_ms: int) -> bool:
        return now_ms >= self._until_ms.get(log, now_ms)

    def may_begin_process(self, now_ms: int) -> bool:
        return now_ms >= self._processes_from_ms

    def has_lost(self, log: Log) -> bool:
        return log in self._losses

    def limits(self, log: Log, limits: CleanerLimits) -> CleanerLimits:
        """The limits with the buffers halved for each loss."""
        losses = self._losses.get(log, 0)
        return limits._replace(
            map_bytes=min(limits.map_bytes, max(limits.map_bytes >> losses, LEAST_MAP_BYTES)),
            io_bytes=min(limits.io_bytes, max(limits.io_bytes >> losses, LEAST_IO_BYTES)),
        )


RESTS_MOST = 1024


class Refused(Generic[Log]):
    """Logs whose cleaning the disk has refused, for example because it is full. The dirtiest log would keep all others from their
    turn, also those of other directories. So other logs come first, twice as many after each refusal, if there are any."""

    __slots__ = ("_refusals", "_rests")

    def __init__(self) -> None:
        self._refusals: dict[Log, int] = {}
        self._rests: dict[Log, int] = {}
        """How many cleanings of others come first."""

    def add(self, log: Log) -> None:
        refusals = self._refusals[log] = self._refusals.get(log, 0) + 1
        self._rests[log] = min(1 << min(refusals - 1, 16), RESTS_MOST)

    def begins(self, log: Log) -> None:
        """A cleaning of this log begins."""
        self._rests = {each: left - 1 for each, left in self._rests.items() if left > 1 and each is not log}

    def rests(self, log: Log) -> bool:
        return log in self._rests

    def went_well(self, log: Log) -> None:
        self._refusals.pop(log, None)

    def keep(self, is_there: Callable[[Log], bool]) -> None:
        """Forget all other logs."""
        for log in [log for log in self._refusals if not is_there(log)]:
            del self._refusals[log]
            self._rests.pop(log, None)


LEAST_WAIT_S = 1e-9
"""With Kafka's default rate, 1.8e308 bytes a second, all waits are shorter."""


class Throttler:
    """Call it with the number of bytes about to be moved. Any thread. Raises CleaningStopped after `stop`."""

    def __init__(
        self,
        bytes_per_second: Callable[[], float],
        monotonic_s: Callable[[], float] = time.monotonic,
        wait: Callable[[float], bool] | None = None,
    ) -> None:
        """`wait` waits at most the given seconds and returns whether to stop."""
        self._rate = bytes_per_second
        self._monotonic_s = monotonic_s
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._wait = wait or self._stopped.wait
        self.moved_bytes = 0
        """Bytes that were allowed since the start."""
        self._owed = 0.0
        """Bytes already allowed but not yet paid for by elapsed time, as of `_at_s`."""
        self._at_s = monotonic_s()

    def __call__(self, size: int) -> None:
        while True:
            with self._lock:
                wait_s = self._pay()
                if not wait_s:
                    self._owed += size
                    self.moved_bytes += size
            if self._stopped.is_set() or (wait_s and self._wait(min(wait_s, LONGEST_WAIT_S))):
                raise CleaningStopped("the node stops")
            if not wait_s:
                return

    def stop(self) -> None:
        self._stopped.set()

    def _pay(self) -> float:
        """Subtract what the elapsed time was worth. Returns the seconds until nothing is owed."""
        now_s, rate = self._monotonic_s(), self._rate()
        elapsed_s, self._at_s = now_s - self._at_s, now_s
        if not self._owed:
            return 0.0
        if not rate > 0:
            return LONGEST_WAIT_S
        # This order of arguments makes NaN (zero time at an infinite rate) count as nothing owed.
        self._owed = max(0.0, self._owed - elapsed_s * rate)
        wait_s = self._owed / rate
        # No clock need move on in less than that, and one that a test has stopped moves not at all.
        return wait_s if wait_s >= LEAST_WAIT_S else 0.0
