"""The records in flight of one share-partition, in batches as they were acquired.

A batch is acquired, acknowledged and released as a whole while clients treat it so. Otherwise each offset has a state of
its own. Neighbours with the same state form one run, so that the cost follows the number of runs and not of records.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from heapq import heapify, heappop, heappush
from operator import attrgetter
from typing import Generic, NamedTuple, TypeVar

from kafkacompat.share.dead_letters import Cause, DeadLetters
from kafkacompat.share.values import NO_MEMBER, RecordState

AVAILABLE = RecordState.AVAILABLE
ACQUIRED = RecordState.ACQUIRED
ACKNOWLEDGED = RecordState.ACKNOWLEDGED
ARCHIVING = RecordState.ARCHIVING
ARCHIVED = RecordState.ARCHIVED

USELESS_TOLERATED = 64
"""Entries of locks that have ended, beyond which they are dropped."""

_first_of = attrgetter("first")


class Locked:
    """What locks are held on."""

    __slots__ = ("queued_deadline_ms",)

    def __init__(self) -> None:
        self.queued_deadline_ms: int | None = None
        """The deadline of the entry that counts."""


L = TypeVar("L", bound=Locked)


class LockDeadlines(Generic[L]):
    """The earliest deadline of each batch. One timer serves all of them.

    An entry is not removed when its batch is acknowledged or its lock renewed. It is skipped later, or dropped with many
    others when half of the entries are of no use.
    """

    __slots__ = ("_heap", "_number", "_useless")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, L]] = []
        self._number = 0
        self._useless = 0

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, deadline_ms: int, batch: L) -> None:
        """A lock on a part of the batch ends then."""
        queued = batch.queued_deadline_ms
        if queued is not None:
            if queued <= deadline_ms:
                return
            self._useless += 1
        batch.queued_deadline_ms = deadline_ms
        self._number += 1
        heappush(self._heap, (deadline_ms, self._number, batch))

    def forget(self, batch: L) -> None:
        if batch.queued_deadline_ms is None:
            return
        batch.queued_deadline_ms = None
        self._useless += 1
        if self._useless > USELESS_TOLERATED and self._useless * 2 > len(self._heap):
            self._heap = [entry for entry in self._heap if entry[2].queued_deadline_ms == entry[0]]
            heapify(self._heap)
            self._useless = 0

    def next_ms(self) -> int | None:
        heap = self._heap
        while heap:
            deadline_ms, _, batch = heap[0]
            if batch.queued_deadline_ms == deadline_ms:
                return deadline_ms
            heappop(heap)
            self._useless -= 1
        return None

    def due(self, now_ms: int) -> list[L]:
        """The batches of which a deadline may have passed. They are no longer queued."""
        batches = []
        while (deadline_ms := self.next_ms()) is not None and deadline_ms <= now_ms:
            batch = heappop(self._heap)[2]
            batch.queued_deadline_ms = None
            batches.append(batch)
        return batches


class Run:
    """Neighbouring offsets of a batch with the same state."""

    __slots__ = ("deadline_ms", "delivery_count", "first", "last", "member_id", "state", "transition")

    def __init__(
        self,
        first: int,
        last: int,
        state: RecordState,
        delivery_count: int,
        member_id: str = NO_MEMBER,
        deadline_ms: int | None = None,
        transition: object | None = None,
    ) -> None:
        self.first = first
        self.last = last
        self.state = state
        self.delivery_count = delivery_count
        self.member_id = member_id
        self.deadline_ms = deadline_ms
        """When the lock ends. Kept while a transition is pending, because the transition may be undone."""
        self.transition = transition
        """The pending change that gave the state, until the persister has written it."""

    def is_acquirable(self) -> bool:
        return self.state is AVAILABLE and self.transition is None

    def is_terminal(self) -> bool:
        return self.state is ACKNOWLEDGED or self.state is ARCHIVED

    def is_alike(self, other: Run) -> bool:
        return (
            self.state is other.state
            and self.delivery_count == other.delivery_count
            and self.transition is other.transition
            and self.deadline_ms == other.deadline_ms
            and self.member_id == other.member_id
        )

    def split(self, offset: int) -> Run:
        """End before the offset. Return the rest."""
        rest = Run(
            offset,
            self.last,
            self.state,
            self.delivery_count,
            self.member_id,
            self.deadline_ms,
            self.transition,
        )
        self.last = offset - 1
        return rest

    def archive(self) -> None:
        """For good: even if a pending transition is undone. Such a run is known by its missing deadline."""
        self.state = ARCHIVED
        self.member_id = NO_MEMBER
        self.deadline_ms = None


class InFlightBatch(Locked):
    __slots__ = ("first", "last", "per_offset", "runs")

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.first = run.first
        self.last = run.last
        self.runs = [run]
        """In order, without gaps. One while the batch has one state."""
        self.per_offset = False
        """Whether a part of the batch has ever been treated by itself. Kafka then no longer acquires it as a whole."""

    @property
    def size(self) -> int:
        return self.last - self.first + 1

    @property
    def whole(self) -> Run:
        """The state of a batch that is not treated per offset."""
        return self.runs[0]

    def index_of(self, offset: int) -> int:
        """The run with the offset, or the first run for a lower offset, or one past the last run for a higher one."""
        if offset <= self.first:
            return 0
        if offset > self.last:
            return len(self.runs)
        return bisect_right(self.runs, offset, key=_first_of) - 1

    def cut(self, offset: int) -> int:
        """Make a run begin at the offset. Return its index."""
        index = self.index_of(offset)
        if index == len(self.runs):
            return index
        run = self.runs[index]
        if run.first >= offset:
            return index
        self.runs.insert(index + 1, run.split(offset))
        return index + 1

    def carve(self, first: int, last: int) -> list[Run]:
        """The runs of exactly these offsets, as far as they belong to the batch."""
        begin = self.cut(first)
        return self.runs[begin : self.cut(last + 1)]

    def join(self, first: int, last: int) -> None:
        """Make one run of neighbours that are alike, between and beside these offsets."""
        self.join_runs(self.index_of(first), self.index_of(last) + 1)

    def join_runs(self, begin: int, end: int) -> None:
        """`join` of the runs with these indexes, without the one at the end."""
        begin = max(begin - 1, 0)
        end += 1
        runs = self.runs[begin:end]
        joined = runs[:1]
        for run in runs[1:]:
            before = joined[-1]
            if before.is_alike(run):
                before.last = run.last
            else:
                joined.append(run)
        if len(joined) < len(runs):
            self.runs[begin:end] = joined


class Held(NamedTuple):
    """What members hold of a share-partition."""

    records: int
    first_deadline_ms: int | None
    """When the first of their locks ends. None: there is none."""


class InFlightRecords:
    """The batches in flight in order of offsets, and what is counted over all of them."""

    __slots__ = (
        "_finds",
        "_firsts",
        "archived_records",
        "batches",
        "dead_letters",
        "deadlines",
        "delivery_complete_count",
        "end_offset",
        "gap_end",
        "gap_start",
        "nothing_before",
        "start_offset",
        "wakeup",
    )

    def __init__(self) -> None:
        self.batches: list[InFlightBatch] = []
        self._firsts: list[int] = []
        self.deadlines: LockDeadlines[InFlightBatch] = LockDeadlines()
        self.start_offset = 0
        self.end_offset = 0
        self.delivery_complete_count = 0
        self.archived_records = 0
        """How many records members have rejected, or were delivered as often as allowed, since the state was loaded."""
        self._finds = False
        self.nothing_before = -1
        """No offset below this one is acquirable. Counts while there are no gaps of the persisted state."""
        self.gap_start: int | None = None
        """From here on the persisted state had gaps: records that an earlier leader delivered and nobody acknowledged."""
        self.gap_end = 0
        """The end offset when the state was read. The gaps only count until the end has moved on."""
        self.wakeup = False
        self.dead_letters: list[DeadLetters] = []
        """Those of ARCHIVING records that nobody has taken yet."""

    @property
    def find_next_fetch_offset(self) -> bool:
        """Whether an offset below the end may be acquirable."""
        return self._finds

    @find_next_fetch_offset.setter
    def find_next_fetch_offset(self, finds: bool) -> None:
        """With True, any offset may have become acquirable."""
        self._finds = finds
        self.nothing_before = -1

    def add(self, batch: InFlightBatch) -> None:
        """A batch with the same first offset is replaced."""
        firsts = self._firsts
        if not firsts or batch.first > firsts[-1]:
            firsts.append(batch.first)
            self.batches.append(batch)
            return
        index = bisect_left(firsts, batch.first)
        if firsts[index] == batch.first:
            self.deadlines.forget(self.batches[index])
            self.batches[index] = batch
        else:
            firsts.insert(index, batch.first)
            self.batches.insert(index, batch)

    def remove_first(self, count: int) -> None:
        for batch in self.batches[:count]:
            self.deadlines.forget(batch)
        del self.batches[:count]
        del self._firsts[:count]

    def floor(self, offset: int) -> int:
        """The index of the last batch that begins at the offset or before it; -1 if none does."""
        return bisect_right(self._firsts, offset) - 1

    def between(self, first: int, last: int) -> list[InFlightBatch]:
        """The batches that begin between these offsets, both included."""
        return self.batches[bisect_left(self._firsts, first) : bisect_right(self._firsts, last)]

    def from_floor(self, first: int, last: int) -> list[InFlightBatch]:
        """The batches that begin at `last` or before it, from the last one that begins at `first` or before it."""
        return self.batches[max(self.floor(first), 0) : bisect_right(self._firsts, last)]

    def count(self) -> int:
        """How many records are in flight. Offsets that the log does not have count as well."""
        return self.end_offset - self.start_offset + 1 if self.batches else 0

    def held(self) -> Held:
        """Looks at each run: at most as many as there are records in flight."""
        records = 0
        first_deadline_ms: int | None = None
        for batch in self.batches:
            for run in batch.runs:
                deadline_ms = run.deadline_ms
                if run.state is ACQUIRED and deadline_ms is not None:
                    records += run.last - run.first + 1
                    if first_deadline_ms is None or deadline_ms < first_deadline_ms:
                        first_deadline_ms = deadline_ms
        return Held(records, first_deadline_ms)

    def count_between(self, first: int, last: int) -> int:
        """How many of these offsets have not fallen below the start offset."""
        return max(0, last - max(first, self.start_offset) + 1)

    def begins_within(self, batch: InFlightBatch) -> bool:
        """Whether the start offset has moved into the batch."""
        return batch.first < self.start_offset <= batch.last

    def became_acquirable(self) -> None:
        self.find_next_fetch_offset = True
        self.wakeup = True

    def bury(self, run: Run, cause: Cause) -> None:
        """The record is ARCHIVING from now on, until its dead letter is written."""
        self.dead_letters.append(DeadLetters(run.first, run.last, run.delivery_count, cause))

    # Gaps of the persisted state

    def has_gaps(self) -> bool:
        return self.gap_start is not None and self.gap_end == self.end_offset

    def move_gap_start(self, offset: int) -> None:
        """Records up to the offset were acquired."""
        if self.gap_start is None:
            return
        if self.gap_end == self.end_offset and offset <= self.gap_end:
            self.gap_start = offset
        else:
            self.gap_start = None


# The start offset moves over records that are acknowledged or archived.


def advance_start_offset(records: InFlightRecords) -> bool:
    """Move the start offset as far as it goes, and forget whole batches below it. Return whether anything changed."""
    if not _starts_with_terminal(records):
        return False
    whole, last_terminal, terminal_count = _terminal_front(records)
    if last_terminal is None:
        return False
    batches = records.batches
    if whole == len(batches):
        records.start_offset = max(records.start_offset, last_terminal + 1)
        records.end_offset = records.start_offset
        records.remove_first(whole)
        records.delivery_complete_count = 0
        records.wakeup = True
        return True
    start = last_terminal + 1
    if whole and last_terminal == batches[whole - 1].last:
        # What the log does not have between two batches is passed over, but not what an earlier leader has delivered.
        start = batches[whole].first
        if records.gap_start is not None and records.has_gaps():
            start = min(start, records.gap_start)
    records.start_offset = max(records.start_offset, start)
    records.delivery_complete_count -= terminal_count
    records.remove_first(whole)
    records.wakeup = True
    return True


def _starts_with_terminal(records: InFlightRecords) -> bool:
    if not records.batches:
        return False
    index = records.floor(records.start_offset)
    if index < 0:
        if records.has_gaps():
            return False
        # Nothing is fetched below the first batch any more, so the log has no records there.
        index = 0
    batch = records.batches[index]
    run = batch.runs[batch.index_of(min(records.start_offset, batch.last))]
    return run.transition is None and run.is_terminal()


def _terminal_front(records: InFlightRecords) -> tuple[int, int | None, int]:
    """How many batches are terminal as a whole before the first other record; the last offset before that record; and how
    many records these are that have not fallen below the start offset."""
    last_terminal = None
    count = 0
    gap_start = records.gap_start if records.has_gaps() else None
    for index, batch in enumerate(records.batches):
        if gap_start is not None and batch.last >= gap_start:
            return index, last_terminal, count
        for run in batch.runs:
            if run.transition is not None or not run.is_terminal():
                return index, last_terminal, count
            last_terminal = run.last
            count += records.count_between(run.first, run.last)
    return len(records.batches), last_terminal, count


# Where the share-partition is to be read next, and how much of it may be acquired.


def next_fetch_offset(records: InFlightRecords) -> int:
    """The first acquirable offset in flight, or else the one after the end."""
    batches = records.batches
    if not batches or records.start_offset > batches[-1].last:
        records.find_next_fetch_offset = False
        return records.end_offset
    if not records.find_next_fetch_offset:
        return records.end_offset + 1
    offset = _first_acquirable(records)
    if offset is None:
        records.find_next_fetch_offset = False
        return records.end_offset + 1
    return offset


def _first_acquirable(records: InFlightRecords) -> int | None:
    """Each fetch that waits asks for it at each change, and thousands of records may be in flight."""
    if records.has_gaps():
        return _first_acquirable_or_gap(records)
    batches, searched = records.batches, records.nothing_before
    for index in range(max(records.floor(searched), 0), len(batches)):
        batch = batches[index]
        for at in range(batch.index_of(searched), len(batch.runs)):
            run = batch.runs[at]
            if run.is_acquirable():
                records.nothing_before = run.first
                return run.first
    return None


def _first_acquirable_or_gap(records: InFlightRecords) -> int | None:
    gap_start = records.gap_start
    for batch in records.batches:
        if gap_start is not None:
            if batch.first > gap_start:
                return gap_start
            gap_start = max(batch.last + 1, gap_start)
        for run in batch.runs:
            if run.is_acquirable():
                return run.first
    return None


def can_acquire(records: InFlightRecords, max_record_locks: int) -> bool:
    if next_fetch_offset(records) != records.end_offset + 1 or records.count() < max_record_locks:
        return True
    # The start offset may be held back although nothing is acquirable, and nobody would ever move it. Records that were
    # archived while they were acquired get no acknowledgement, and gaps of the persisted state count until more is acquired.
    records.gap_start = None
    return advance_start_offset(records) and records.count() < max_record_locks


def room_for(
    records: InFlightRecords, fetch_offset: int, max_records: int, last_offset: int, max_record_locks: int
) -> tuple[int, int]:
    """The last offset to acquire and the maximum number of records, for a read that ends at `last_offset`.

    When as many records are in flight as may be, only those are acquired that are in flight already.
    """
    most = min(max_records, max_record_locks - records.count())
    if most > 0 or fetch_offset > records.end_offset:
        return last_offset, most
    return min(last_offset, records.end_offset), min(max_records, records.end_offset - fetch_offset + 1)


# Records that the log no longer has, or that nobody may see, are archived. The persister learns it with the start offset.


def follow_log_start(records: InFlightRecords, log_start_offset: int) -> None:
    """The log has lost its records below the offset. What members hold of them is archived when it is released."""
    if log_start_offset <= records.start_offset:
        return
    records.wakeup = True
    if not records.batches:
        records.start_offset = records.end_offset = log_start_offset
        records.delivery_complete_count = 0
        return
    lost = _count_terminal(records, log_start_offset)
    for batch in records.batches:
        if batch.first >= log_start_offset:
            break
        if _archive(batch, records.start_offset, log_start_offset - 1, AVAILABLE):
            records.find_next_fetch_offset = True
    records.start_offset = log_start_offset
    records.delivery_complete_count -= lost
    records.end_offset = max(records.end_offset, log_start_offset)
    if records.gap_start is not None:
        records.gap_start = max(records.gap_start, log_start_offset)


def archive_stale(records: InFlightRecords, fetch_offset: int, base_offset: int) -> None:
    """A read from `fetch_offset` found its first batch at `base_offset`: compaction has removed what was between."""
    if not records.batches or fetch_offset >= base_offset:
        return
    for batch in records.from_floor(fetch_offset, base_offset - 1):
        if batch.last >= fetch_offset:
            archived = _archive(batch, fetch_offset, base_offset - 1, AVAILABLE)
            records.delivery_complete_count += archived
            if archived:
                records.find_next_fetch_offset = True


def archive_acquired(records: InFlightRecords, first: int, last: int) -> None:
    """The offsets belong to an aborted transaction."""
    for batch in records.from_floor(first, last):
        if batch.last >= first:
            records.delivery_complete_count += _archive(batch, first, last, ACQUIRED)


def _archive(batch: InFlightBatch, first: int, last: int, state: RecordState) -> int:
    """Archive what has the state between the offsets, and return how many records that are."""
    if not batch.per_offset:
        run = batch.whole
        if run.state is not state:
            return 0
        if first <= batch.first and batch.last <= last:
            run.archive()
            return batch.size
        batch.per_offset = True
    archived = 0
    for run in batch.carve(first, last):
        if run.state is state:
            run.archive()
            archived += run.last - run.first + 1
    batch.join(first, last)
    return archived


def _count_terminal(records: InFlightRecords, before: int) -> int:
    """How many records will fall below the start offset that are terminal."""
    count = 0
    for batch in records.batches:
        if batch.first >= before:
            break
        for run in batch.runs:
            if run.is_terminal():
                count += records.count_between(run.first, min(run.last, before - 1))
    return count
