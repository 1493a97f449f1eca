"""The records in flight of one share-partition, in batches as they were acquired.

A batch is acquired, acknowledged and released as a whole while clients treat it so. Otherwise each offset has a state of
its own. Neighbours with the same state form one run, so that the cost follows the number of runs and not of records.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from operator import attrgetter
from typing import NamedTuple

from kafkacompat.share.dead_letters import Cause, DeadLetters
from kafkacompat.share.locks import LockDeadlines, Locked
from kafkacompat.share.values import NO_MEMBER, RecordState

AVAILABLE = RecordState.AVAILABLE
ACQUIRED = RecordState.ACQUIRED
ACKNOWLEDGED = RecordState.ACKNOWLEDGED
ARCHIVING = RecordState.ARCHIVING
ARCHIVED = RecordState.ARCHIVED

_first_of = attrgetter("first")


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
