"""A share-partition in the plainest form: one entry for each offset in flight, and every question answered by a walk over all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from kafkacompat.share.dead_letters import Cause
from kafkacompat.share.service import StateBatch
from kafkacompat.share.values import (
    AbortedTransaction,
    AcknowledgementBatch,
    AcquiredRecords,
    FetchedBatch,
    RecordState,
    ShareSettings,
)

AVAILABLE, ACQUIRED = RecordState.AVAILABLE, RecordState.ACQUIRED
ARCHIVING, ARCHIVED = RecordState.ARCHIVING, RecordState.ARCHIVED
TERMINAL = (RecordState.ACKNOWLEDGED, ARCHIVED)
TYPES = {0: ARCHIVED, 1: RecordState.ACKNOWLEDGED, 2: AVAILABLE}
Buried = list[tuple[int, int, Cause]]
"""Offset, delivery count and cause of records whose dead letters are to be written."""


@dataclass
class Entry:
    state: RecordState
    count: int
    member: str = ""
    deadline: int | None = None
    pending: Change | None = None
    is_archived_for_good: bool = False

    @property
    def is_acquirable(self) -> bool:
        return self.state is AVAILABLE and self.pending is None

    @property
    def is_settled(self) -> bool:
        return self.state in TERMINAL and self.pending is None

    def archive(self) -> None:
        self.state = ARCHIVED
        self.member = ""
        self.deadline = None
        self.is_archived_for_good = True


@dataclass(eq=False)
class Change:
    member: str
    limit: int
    undeliverable: RecordState
    """What becomes of a record that is not delivered any more."""
    offsets: list[int] = field(default_factory=list)
    written: dict[int, tuple[int, int]] = field(default_factory=dict)
    rejected: set[int] = field(default_factory=set)


@dataclass
class Batch:
    first: int
    last: int
    is_split: bool = False

    @property
    def offsets(self) -> range:
        return range(self.first, self.last + 1)


class Refusal(Exception):
    pass


class Model:
    def __init__(self, settings: ShareSettings) -> None:
        self.settings = settings
        self.batches: list[Batch] = []
        self.entries: dict[int, Entry] = {}
        self.start = 0
        self.end = 0
        self.buried: Buried = []
        """Those that nobody has taken yet."""
        self.gap: tuple[int, int] | None = None
        """Where the first gap of the persisted state may be, and the end offset up to which gaps count."""

    # What is asked

    @property
    def complete_count(self) -> int:
        return sum(entry.state in TERMINAL for offset, entry in self.entries.items() if offset >= self.start)

    @property
    def in_flight(self) -> int:
        return self.end - self.start + 1 if self.batches else 0

    @property
    def has_gaps(self) -> bool:
        return self.gap is not None and self.gap[1] == self.end

    def next_fetch_offset(self) -> int:
        if not self.batches or self.start > self.batches[-1].last:
            return self.end
        gap = self.gap[0] if self.gap is not None and self.has_gaps else None
        for batch in self.batches:
            if gap is not None:
                if batch.first > gap:
                    return gap
                gap = max(gap, batch.last + 1)
            for offset in batch.offsets:
                if self.entries[offset].is_acquirable:
                    return offset
        return self.end + 1

    def can_acquire(self) -> bool:
        most = self.settings.max_record_locks
        if self.next_fetch_offset() != self.end + 1 or self.in_flight < most:
            return True
        self.gap = None
        self.advance()
        return self.in_flight < most

    # Persisted state

    def load(self, start: int, batches: Sequence[StateBatch]) -> None:
        self.start = self.end = start
        expected = start
        gap = None
        for first, last, state, count in batches:
            if gap is None and first > expected:
                gap = expected
            expected = last + 1
            self.add(Batch(first, last), [Entry(RecordState(state), count) for _ in range(first, last + 1)])
            if state == ARCHIVING:
                self.bury(range(first, last + 1), self.settings.delivery_count_limit)
            self.end = last
        if gap is not None:
            self.gap = (gap, self.end)
        self.advance()

    def add(self, batch: Batch, entries: Sequence[Entry]) -> None:
        self.batches.append(batch)
        self.batches.sort(key=lambda each: each.first)
        self.entries.update(zip(batch.offsets, entries, strict=True))

    # Start offset

    def advance(self) -> None:
        if not self.batches:
            return
        at = [batch for batch in self.batches if batch.first <= self.start]
        if not at and self.has_gaps:
            return
        holder = at[-1] if at else self.batches[0]
        if not self.entries[max(holder.first, min(self.start, holder.last))].is_settled:
            return
        last = None
        for batch in self.batches:
            if self.has_gaps and self.gap is not None and batch.last >= self.gap[0]:
                break
            settled = [offset for offset in batch.offsets if self.entries[offset].is_settled]
            front = [offset for index, offset in enumerate(settled) if offset == batch.first + index]
            last = front[-1] if front else last
            if len(front) < len(batch.offsets):
                break
        if last is None:
            return
        gone = [batch for batch in self.batches if batch.last <= last]
        left = [batch for batch in self.batches if batch.last > last]
        if not left:
            self.start = self.end = max(self.start, last + 1)
        elif gone and gone[-1].last == last:
            start = left[0].first
            if self.has_gaps and self.gap is not None:
                start = min(start, self.gap[0])
            self.start = max(self.start, start)
        else:
            self.start = max(self.start, last + 1)
        for batch in gone:
            for offset in batch.offsets:
                del self.entries[offset]
        self.batches = left

    def follow_log_start(self, log_start: int) -> None:
        if log_start <= self.start:
            return
        if not self.batches:
            self.start = self.end = log_start
            return
        self.archive(self.start, log_start - 1, AVAILABLE)
        self.start = log_start
        self.end = max(self.end, log_start)
        if self.gap is not None:
            self.gap = (max(self.gap[0], log_start), self.gap[1])

    def archive(self, first: int, last: int, state: RecordState) -> None:
        for batch in self.batches:
            if batch.last < first or batch.first > last:
                continue
            is_whole = first <= batch.first and batch.last <= last
            if not batch.is_split:
                if self.entries[batch.first].state is not state:
                    continue
                batch.is_split = not is_whole
            for offset in batch.offsets:
                if first <= offset <= last and self.entries[offset].state is state:
                    self.entries[offset].archive()

    # Acquisition

    def acquire(
        self,
        member: str,
        exact: bool,
        batch_size: int,
        most: int,
        fetch_offset: int,
        log: Sequence[FetchedBatch],
        aborted: Sequence[AbortedTransaction],
        now: int,
    ) -> list[AcquiredRecords]:
        """`aborted` is empty unless under read_committed."""
        read_to = log[-1].last_offset
        first = log[0].base_offset
        if most <= 0 or read_to < self.start:
            return []
        room = min(most, self.settings.max_record_locks - self.in_flight)
        if room <= 0:
            if fetch_offset > self.end:
                return []
            room = min(most, self.end - fetch_offset + 1)
            read_to = min(read_to, self.end)
        if fetch_offset < first and self.batches:
            self.archive(fetch_offset, first - 1, AVAILABLE)
        self.forget_gap_before(fetch_offset, first)
        if read_to < first:
            return []
        acquired = self._acquire(member, exact, batch_size, room, first, read_to, log, now)
        hidden = self._aborted_offsets(log, aborted)
        if not hidden:
            return acquired
        for batch in log:
            if batch.base_offset in hidden:
                self.archive(batch.base_offset, batch.last_offset, ACQUIRED)
        seen = []
        for begin, end, count in acquired:
            seen += merged((offset, count) for offset in range(begin, end + 1) if offset not in hidden)
        return seen

    def forget_gap_before(self, fetch_offset: int, first: int) -> None:
        if self.gap is None or not self.has_gaps or not self.gap[0] <= fetch_offset < first:
            return
        if all(offset in self.entries for offset in range(self.gap[0], fetch_offset)):
            self.gap = (first, self.gap[1])

    def _acquire(
        self,
        member: str,
        exact: bool,
        batch_size: int,
        room: int,
        first: int,
        read_to: int,
        log: Sequence[FetchedBatch],
        now: int,
    ) -> list[AcquiredRecords]:
        deadline = now + self.settings.record_lock_duration_ms
        base = first
        before = [batch for batch in self.batches if batch.first <= first]
        if not before:
            base = max(first, self.start)
        elif before[-1].last >= first:
            base = before[-1].first
        known = [batch for batch in self.batches if min(first, base) <= batch.first <= read_to]
        result: list[AcquiredRecords] = []
        taken = 0

        def new(begin: int, end: int) -> int:
            found, count = self._acquire_new(
                member, exact, batch_size, room - taken, begin, end, log, deadline
            )
            result.extend(found)
            return count

        if not known:
            new(base, read_to)
            return result
        gap = base
        for batch in known:
            if taken >= room:
                break
            if self.has_gaps:
                if gap < batch.first:
                    taken += new(gap, batch.first - 1)
                gap = batch.last + 1
                if taken >= room:
                    break
            offsets = [
                offset
                for offset in batch.offsets
                if first <= offset <= read_to and self.entries[offset].is_acquirable
            ]
            is_often = any(self.entries[offset].count >= self.often for offset in offsets)
            if is_often and taken:
                room = 0
                break
            is_whole = first <= batch.first and batch.last <= read_to
            if not batch.is_split:
                if not offsets:
                    continue
                batch.is_split = not is_whole or is_often or (exact and len(batch.offsets) > room - taken)
            if batch.is_split:
                offsets = self._deliverable(offsets, len(batch.offsets), room - taken if exact else None)
            for offset in offsets:
                entry = self.entries[offset]
                entry.state, entry.member, entry.deadline = ACQUIRED, member, deadline
                entry.count += 1
            taken += len(offsets)
            result += merged((offset, self.entries[offset].count) for offset in offsets)
            if is_often and offsets:
                room = 0
                break
        if taken < room and known[-1].last < read_to:
            taken += new(known[-1].last + 1, read_to)
        if result:
            self._move_gap(result[-1].last_offset + 1)
        return result

    @property
    def often(self) -> int:
        return max(2, -(-self.settings.delivery_count_limit // 2))

    def _deliverable(self, offsets: Sequence[int], size: int, most: int | None) -> list[int]:
        limit = self.settings.delivery_count_limit
        taken: list[int] = []
        throttled = None
        for offset in offsets:
            count = self.entries[offset].count
            is_last_delivery = limit > 2 and count == limit - 1
            if is_last_delivery and taken:
                break
            if throttled is None and count >= self.often:
                throttled = max(1, size >> (count - self.often + 1))
            taken.append(offset)
            if is_last_delivery or len(taken) in (most, throttled):
                break
        return taken

    def _acquire_new(
        self,
        member: str,
        exact: bool,
        batch_size: int,
        most: int,
        first: int,
        last: int,
        log: Sequence[FetchedBatch],
        deadline: int,
    ) -> tuple[list[AcquiredRecords], int]:
        first = max(first, self.start)
        if last < first:
            return [], 0
        if most < last - first + 1:
            end = first + most - 1
            end = max(
                [end, *(each.last_offset for each in log if each.base_offset <= end <= each.last_offset)]
            )
            last = min(last, end) if self.has_gaps else end
        begins = [first]
        if not exact and last - first + 1 > batch_size:
            for each in log:
                if begins[-1] + batch_size <= each.base_offset <= last:
                    begins.append(each.base_offset)
        ranges = list(zip(begins, [*(begin - 1 for begin in begins[1:]), last], strict=True))
        acquired_to = first + most - 1 if exact and last - first + 1 > most else last
        for begin, end in ranges:
            entries = [
                Entry(ACQUIRED, 1, member, deadline) if offset <= acquired_to else Entry(AVAILABLE, 0)
                for offset in range(begin, end + 1)
            ]
            self.add(Batch(begin, end, is_split=acquired_to < end), entries)
        if self.batches[0].first == first:
            self.start = first
        self.end = max(self.end, last)
        self._move_gap(acquired_to + 1)
        return [
            AcquiredRecords(begin, min(end, acquired_to), 1) for begin, end in ranges
        ], acquired_to - first + 1

    def _move_gap(self, offset: int) -> None:
        if self.gap is not None:
            self.gap = (offset, self.gap[1]) if self.has_gaps and offset <= self.gap[1] else None

    def _aborted_offsets(
        self, log: Sequence[FetchedBatch], aborted: Sequence[AbortedTransaction]
    ) -> set[int]:
        """A transaction lasts from its first offset to the next marker of its producer."""
        hidden: set[int] = set()
        for producer_id, first in aborted:
            for batch in log:
                if batch.producer_id != producer_id or batch.last_offset < first:
                    continue
                if batch.is_abort_marker:
                    break
                if batch.is_transactional:
                    hidden.update(range(batch.base_offset, batch.last_offset + 1))
        return hidden

    # Changes

    @property
    def undeliverable(self) -> RecordState:
        return ARCHIVING if self.settings.has_dead_letters else ARCHIVED

    def _change(self, member: str) -> Change:
        return Change(member, self.settings.delivery_count_limit, self.undeliverable)

    def acknowledge(self, member: str, requests: Sequence[AcknowledgementBatch], now: int) -> Change:
        """Raises Refusal with Kafka's message after everything but renewals is undone."""
        change = self._change(member)
        try:
            for request in requests:
                self._acknowledge(member, request, change, now)
        except Refusal:
            self.undo(change, now)
            raise
        return change

    def _acknowledge(self, member: str, request: AcknowledgementBatch, change: Change, now: int) -> None:
        first, last, types = request
        if any(each not in range(5) for each in types):
            raise Refusal(f"Invalid acknowledge type: [{', '.join(str(each) for each in types)}]")
        if last < self.start:
            return
        before = [batch for batch in self.batches if batch.first <= first]
        if not before and (not self.batches or not first < self.start <= last):
            raise Refusal("Batch record not found. The request batch offsets are not found in the cache.")
        begin = before[-1].first if before else min(first, self.batches[0].first)
        if not before:
            at = [batch for batch in self.batches if batch.first <= self.start]
            begin = at[-1].first if at else begin
        batches = [batch for batch in self.batches if begin <= batch.first <= last]
        if not batches or batches[-1].last < first:
            raise Refusal("Batch record not found. The first offset in request is past acquired records.")
        if last > batches[-1].last:
            raise Refusal("Batch record not found. The last offset in request is past acquired records.")
        for batch in batches:
            if batch.last < self.start:
                continue
            is_whole = max(first, self.start) <= batch.first and batch.last <= last and len(types) == 1
            if not batch.is_split:
                owner = self.entries[batch.first].member
                if not owner:
                    raise Refusal("The batch cannot be acknowledged. The batch is not in the acquired state.")
                if owner != member:
                    raise Refusal("Member is not the owner of batch record")
                batch.is_split = not is_whole
            for offset in batch.offsets:
                if max(first, self.start) <= offset <= last:
                    kind = types[0] if len(types) == 1 else types[offset - first]
                    self._acknowledge_one(member, offset, kind, change, now)

    def _acknowledge_one(self, member: str, offset: int, kind: int, change: Change, now: int) -> None:
        entry = self.entries[offset]
        if entry.state is not ACQUIRED:
            raise Refusal("The offset cannot be acknowledged. The offset is not acquired.")
        if entry.member != member:
            raise Refusal("Member is not the owner of offset")
        if kind != 4:
            self._start(offset, TYPES.get(kind, change.undeliverable), change)
        elif self.settings.renew_acknowledge_enabled:
            entry.deadline = now + self.settings.record_lock_duration_ms
        else:
            raise Refusal("Renewing acquisition locks is not enabled for the group.")

    def _start(self, offset: int, state: RecordState, change: Change) -> None:
        entry = self.entries[offset]
        if state is ARCHIVING:
            change.rejected.add(offset)
        elif state is AVAILABLE and entry.count >= change.limit:
            state = change.undeliverable
        entry.state, entry.member, entry.pending = state, "", change
        change.offsets.append(offset)
        change.written[offset] = (int(state), entry.count)

    def release(self, member: str) -> Change:
        change = self._change(member)
        for batch in self.batches:
            held = [
                offset
                for offset in batch.offsets
                if self.entries[offset].state is ACQUIRED and self.entries[offset].member == member
            ]
            if held and batch.first < self.start <= batch.last:
                batch.is_split = True
            for offset in held:
                self._start(offset, AVAILABLE if offset >= self.start else ARCHIVED, change)
        return change

    def batches_of(self, change: Change) -> list[StateBatch]:
        """What Kafka writes of a change that was just made: one for each offset of a batch that is split."""
        changed = set(change.offsets)
        parts: list[tuple[int, int]] = []
        for batch in self.batches:
            if batch.is_split:
                parts += [(offset, offset) for offset in batch.offsets if offset in changed]
            elif batch.first in changed:
                parts.append((batch.first, batch.last))
        return [StateBatch(first, last, *change.written[first]) for first, last in parts]

    def _pending(self, change: Change) -> Iterator[tuple[int, Entry]]:
        for offset in change.offsets:
            entry = self.entries[offset]
            if entry.pending is change:
                yield offset, entry

    def complete(self, change: Change) -> None:
        for offset, entry in self._pending(change):
            entry.pending = entry.deadline = None
            if entry.state is ARCHIVING:
                is_rejected = offset in change.rejected
                cause = Cause.CLIENT_REJECT if is_rejected else Cause.DELIVERY_COUNT_EXCEEDED
                self.buried.append((offset, entry.count, cause))
        self.advance()

    def undo(self, change: Change, now: int) -> None:
        for batch in self.batches:
            if batch.first < self.start <= batch.last and any(
                batch.first <= offset <= batch.last for offset in change.offsets
            ):
                batch.is_split = True
        for offset, entry in self._pending(change):
            entry.pending = None
            if entry.is_archived_for_good or entry.deadline is None:
                continue
            if now < entry.deadline:
                entry.state, entry.member = ACQUIRED, change.member
                continue
            entry.state = self._when_the_lock_has_ended(offset, change.limit, change.undeliverable)
            entry.deadline = None
            if entry.state is ARCHIVING:
                self.bury([offset], change.limit)

    def expire(self, now: int) -> dict[int, tuple[int, int]]:
        """What is written: the state and delivery count of each offset."""
        written = {}
        for batch in self.batches:
            if batch.first < self.start <= batch.last and any(
                self.entries[offset].state is ACQUIRED and (self.entries[offset].deadline or 0) <= now
                for offset in batch.offsets
            ):
                batch.is_split = True
            for offset in batch.offsets:
                entry = self.entries[offset]
                if entry.state is not ACQUIRED or entry.deadline is None or entry.deadline > now:
                    continue
                limit = self.settings.delivery_count_limit
                entry.state = self._when_the_lock_has_ended(offset, limit, self.undeliverable)
                entry.member, entry.deadline = "", None
                written[offset] = (int(entry.state), entry.count)
        return written

    def _when_the_lock_has_ended(self, offset: int, limit: int, undeliverable: RecordState) -> RecordState:
        if offset < self.start:
            return ARCHIVED
        return undeliverable if self.entries[offset].count >= limit else AVAILABLE

    # Dead letters

    def bury(self, offsets: Iterable[int], limit: int) -> None:
        for offset in offsets:
            count = self.entries[offset].count
            cause = Cause.DELIVERY_COUNT_EXCEEDED if count >= limit else Cause.CLIENT_REJECT
            self.buried.append((offset, count, cause))

    def take_buried(self) -> Buried:
        taken, self.buried = self.buried, []
        return taken

    def letters_written(self, offsets: Iterable[int]) -> dict[int, tuple[int, int]]:
        """What is written: the state and delivery count of each offset."""
        written = {}
        for offset in offsets:
            entry = self.entries.get(offset)
            if entry is not None and entry.state is ARCHIVING and entry.pending is None:
                entry.state = ARCHIVED
                written[offset] = (int(ARCHIVED), entry.count)
        return written


def merged(counts: Iterator[tuple[int, int]]) -> list[AcquiredRecords]:
    """Ranges of neighbouring offsets with the same delivery count."""
    ranges: list[AcquiredRecords] = []
    for offset, count in counts:
        if ranges and ranges[-1].last_offset == offset - 1 and ranges[-1].delivery_count == count:
            ranges[-1] = ranges[-1]._replace(last_offset=offset)
        else:
            ranges.append(AcquiredRecords(offset, offset, count))
    return ranges
