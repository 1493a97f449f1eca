"""The log cleaner of a node: picks logs, lets workers rewrite closed segments, swaps the results in.

Duty: which partition is being cleaned, what became of it, the checkpoint of what is clean. Must not know: threads, timers (it
gives plans whose `run` blocks; node/cleaning.py runs them). Everything but `run` is in the loop's thread, so that a reader finds
either the old segments or the new one. What happens to a log meanwhile (truncation, retention, a move, a new policy) calls it off.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from kafkacompat.log.checkpoint import CLEANER_FILE
from kafkacompat.log.checkpointing import CheckpointPlan
from kafkacompat.log.cleaner.candidates import Candidate, Search, candidate
from kafkacompat.log.cleaner.cleaned_segment import remove_cleaned
from kafkacompat.log.cleaner.filtering import LastRecord, TooLargeHere
from kafkacompat.log.cleaner.job import CleanerLimits, CleaningJob, SegmentFile
from kafkacompat.log.cleaner.process import Children, CleaningProcess, ProcessLost
from kafkacompat.log.cleaner.rests import Rests
from kafkacompat.log.cleaner.work import UNREADABLE, CleanerStats, CleaningStopped, CleaningWork, Pace
from kafkacompat.ports import HalfDone, SyncFailed
from kafkacompat.records.compression import UNPACKED_BYTES_MAX

if TYPE_CHECKING:
    from kafkacompat.config import ServerConfig
    from kafkacompat.ids import TopicPartition
    from kafkacompat.log.log import PartitionLog
    from kafkacompat.log.manager import LogManager
    from kafkacompat.log.segment import Segment
    from kafkacompat.ports import Disk

OWN_PROCESS_BYTES = 8 << 20
"""A log that has more to be read is cleaned in a process of its own, and nowhere else: opening records takes time from the loop's
thread, and memory that the broker must not miss. For less the process's start would cost more than it spares."""

OWN_PROCESS_OFFSETS = 500_000
"""A log that has more offsets to be read is cleaned there too: a batch of a kilobyte can unfold to millions of records. Of a
log that was compacted before they say more than there is, which costs no more than a process's start."""

IN_THREAD_BYTES = 4 << 20
"""A log with a batch that unfolds to more is cleaned there too. What looks through so much at once does not let go of the loop."""


def cleaner_limits(config: ServerConfig) -> CleanerLimits:
    """Of one thread: the buffers are shared out, and the I/O buffer is half for reading, half for writing, as in Kafka."""
    threads = max(config.get_int("log.cleaner.threads"), 1)
    return CleanerLimits(
        config.get_int("log.cleaner.dedupe.buffer.size") // threads,
        config.get_double("log.cleaner.io.buffer.load.factor"),
        config.get_int("log.cleaner.io.buffer.size") // threads // 2,
    )


class Cleaning:
    """One log's cleaning, in steps: `run` in a worker, then `finish` in the loop's thread, until `done`.

    What goes wrong, in either, is cleared away by a worker, since a process may take a while to go, and until then its files are
    its own; `finish` then tells the cleaner.
    """

    def __init__(
        self,
        cleaner: LogCleaner,
        disk: Disk,
        found: Candidate,
        job: CleaningJob,
        work: CleaningWork | CleaningProcess,
    ) -> None:
        self._cleaner = cleaner
        self._disk = disk
        self.log = found.log
        self._segments: list[Segment] = list(found.log.segments[: found.segments])
        self._sizes = [segment.size for segment in self._segments]
        self._work = work
        self._mapped = False
        self._group = 0
        self._suffixes: Sequence[str] = ()
        self._error: Exception | None = None
        self._is_cleared = False
        self.done = False
        self.summary = ""
        """What came of it, for the node's log; nothing when it was given up."""
        self.log.truncated = False

    @property
    def has_own_process(self) -> bool:
        return isinstance(self._work, CleaningProcess)

    @property
    def stats(self) -> CleanerStats:
        return self._work.stats

    def run(self) -> None:
        """The next step. Blocks; any thread; what goes wrong is kept for `finish`."""
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
            # Raised again in the loop's thread, where only an Exception ends nothing but this.
            self._error = error if isinstance(error, Exception) else RuntimeError(repr(error))
        if self._error is not None:
            self._clear_away()

    def finish(self, now_ms: int) -> None:
        """Take over what the step came to. Raises what no step should run into; the partition is then left alone."""
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
                # Now, and not when it is cleared away: nothing may be done meanwhile to files that are neither old nor new.
                self._cleaner.swap_stopped(self.log, error)
            return
        del self._segments[:count], self._sizes[:count]
        self._group += 1

    def abandon(self) -> None:
        """The node stops: the next step is the last and clears away."""
        self._error = self._error or CleaningStopped("the node stops")

    def _clear_away(self) -> None:
        self._is_cleared = True
        self._work.close()
        if not self._cleaner.has_successor(self.log):
            # Of this group, and of the next one that a process has begun. What cannot be removed now goes at the next start.
            with contextlib.suppress(OSError):
                at = 0
                for group in self._work.groups[self._group : self._group + 2]:
                    remove_cleaned(self._disk, self._segments[at].stem)
                    at += len(group)

    def intact(self) -> bool:
        """Whether what is still to be replaced is as it was when the cleaning began, and the log may still be cleaned."""
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
    """`limits` gives the settings in force, `pace_for` what a cleaning's work calls with the bytes it moves."""

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
        """`own_process_bytes`: see OWN_PROCESS_BYTES; None keeps all work in the threads, as on disks that no process shares."""
        self._manager = manager
        self._disk = disk
        self._limits = limits
        self._pace_for = pace_for
        self._note = note
        self._own_process_bytes = own_process_bytes
        self._in_progress: set[TopicPartition] = set()
        self._monotonic_ms = monotonic_ms
        self.uncleanable: dict[TopicPartition, PartitionLog] = {}
        """Logs in which something could not be read; left alone until the next start, as in Kafka."""
        self._rests: Rests[PartitionLog] = Rests()
        self._unfolding: set[PartitionLog] = set()
        """Logs that were found to hold a batch too large to be opened in a thread."""
        self.cleaned_logs = 0
        self._search: Search | None = None
        self._children = Children()
        self._is_stopping = False

    def interrupt(self) -> None:
        """The node stops: let what runs end as soon as it can."""
        self._is_stopping = True
        self._children.interrupt()

    def close(self) -> None:
        """Nothing is cleaned any more: end what waits for work. Blocks shortly."""
        self._children.close()

    def begin(self, now_ms: int) -> Cleaning | None:
        """The dirtiest log that nobody cleans yet; None when there is none to be cleaned, or it cannot be read: another look finds
        the next; or when not all have been looked at, `is_looking` then. OSError takes its directory along."""
        self._children.reap()
        manager = self._manager
        for name in [name for name, log in self.uncleanable.items() if manager.get(name) is not log]:
            del self.uncleanable[name]
        self._rests.keep(lambda log: manager.get(log.topic_partition) is log)
        self._unfolding = {log for log in self._unfolding if manager.get(log.topic_partition) is log}
        search = self._search or Search(manager.logs.values(), now_ms, self._may_begin, self._cannot_be_read)
        self._search = None
        if not search.step():
            self._search = search
            return None
        found = search.best
        if found is None or not self._may_begin(found.log):
            return None  # its directory has failed by another log
        log = found.log
        if search.steps > 1:
            # It may have changed since it was looked at.
            try:
                found = candidate(log, now_ms)
            except (OSError, *UNREADABLE) as error:
                self._leave(log.topic_partition, error)
                return None
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
            {
                producer_id: LastRecord(
                    producer.batches[-1].last_offset if producer.batches else -1, producer.epoch
                )
                for producer_id, producer in log.producer_state.producers.items()
            },
            now_ms,
            config.delete_retention_ms,
            config.internal_segment_bytes or config.segment_bytes,
            config.segment_index_bytes,
            config.index_interval_bytes,
            self._rests.limits(log, self._limits()),
        )
        self._in_progress.add(log.topic_partition)
        return Cleaning(self, self._disk, found, job, self._work_for(log, job))

    @property
    def is_looking(self) -> bool:
        """`begin` has more to look at and is to be called again soon."""
        return self._search is not None

    def _cannot_be_read(self, log: PartitionLog, error: Exception) -> None:
        self._leave(log.topic_partition, error)

    def _may_begin(self, log: PartitionLog) -> bool:
        name = log.topic_partition
        if name in self._in_progress or name in self.uncleanable or not self.may_change(log):
            return False
        now_ms, rests = self._monotonic_ms(), self._rests
        if not rests.may_clean(log, now_ms):
            return False
        return rests.may_begin_process(now_ms) or not self._needs_process(
            log, log.segments, log.segments[-1].base_offset
        )

    def _needs_process(
        self, log: PartitionLog, segments: Sequence[Segment] | Sequence[SegmentFile], end_offset: int
    ) -> bool:
        if self._own_process_bytes is None:
            return False
        # A small one that took all memory once may hold a batch that opens to much more.
        return (
            self._rests.has_lost(log)
            or log in self._unfolding
            or end_offset - segments[0].base_offset >= OWN_PROCESS_OFFSETS
            or sum(each.size for each in segments) >= self._own_process_bytes
        )

    def _work_for(self, log: PartitionLog, job: CleaningJob) -> CleaningWork | CleaningProcess:
        if self._needs_process(log, job.segments, job.segments[-1].end_offset):
            return CleaningProcess(job, self._pace_for(), self._children)
        bytes_most = UNPACKED_BYTES_MAX if self._own_process_bytes is None else IN_THREAD_BYTES
        return CleaningWork(self._disk, job, self._pace_for(), bytes_most)

    def may_change(self, log: PartitionLog) -> bool:
        """Whether it is served, still to be compacted, and no copy of it is being made: that may have a record, or the data of a
        transaction, and would not get the tombstone or the marker that is cleaned away before the copy has got so far."""
        manager, name = self._manager, log.topic_partition
        is_served = manager.get(name) is log and not manager.closed
        return is_served and log.config.compact and name not in manager.futures.logs

    def has_successor(self, log: PartitionLog) -> bool:
        """Whether another log lies under its name by now."""
        return self._manager.get(log.topic_partition) not in (None, log)

    def succeeded(self, cleaning: Cleaning, end_offset: int) -> None:
        log = cleaning.log
        self._in_progress.discard(log.topic_partition)
        self.cleaned_logs += 1
        self._rests.went_well(log, cleaning.has_own_process)
        if not log.truncated:
            log.cleaned_to = end_offset

    def swap_stopped(self, log: PartitionLog, error: HalfDone) -> None:
        self._manager.log_failed(log, error)

    def failed(self, cleaning: Cleaning, error: Exception) -> None:
        """Nothing of it is in the log. Errors that tell of a bug are raised again."""
        log = cleaning.log
        name = log.topic_partition
        self._in_progress.discard(name)
        if self._is_stopping:
            return
        if isinstance(error, TooLargeHere):
            self._unfolding.add(log)
            return
        if isinstance(error, (ProcessLost, MemoryError)):
            rest_ms = self._rests.lost(log, self._monotonic_ms())
            self._note(
                f"cleaning {name} has failed: {str(error) or 'no memory'}; "
                f"it is tried again with smaller buffers in {rest_ms // 1000} s"
            )
            return
        if isinstance(error, SyncFailed):
            # Of a disk that loses what it was given, whatever has become of the log meanwhile.
            self._manager.log_failed(log, error)
            return
        if isinstance(error, CleaningStopped) or not cleaning.intact():
            return
        self._leave(name, error)
        if not isinstance(error, (OSError, *UNREADABLE)):
            raise error

    def _leave(self, name: TopicPartition, error: Exception) -> None:
        if isinstance(error, OSError):
            self._manager.partition_failed(name, error)
            return
        log = self._manager.get(name)
        if log is not None:
            self.uncleanable[name] = log
        self._note(f"{name} cannot be cleaned and is left as it is until the next start: {error}")

    def checkpoint(self) -> CheckpointPlan | None:
        """The checkpoint of every directory where something has moved."""
        return self._manager.checkpoints.plan(CLEANER_FILE)
