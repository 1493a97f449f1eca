"""Records that were read are given to a member: those that are available again, and new ones."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from operator import itemgetter

from kafkacompat.ids import NO_PRODUCER_ID
from kafkacompat.share.in_flight import (
    ACQUIRED,
    AVAILABLE,
    InFlightBatch,
    InFlightRecords,
    Run,
    archive_stale,
    room_for,
)
from kafkacompat.share.values import (
    AbortedTransaction,
    AcquiredRecords,
    AcquireMode,
    FetchedBatch,
    ShareSettings,
)

_base_of = itemgetter(0)


LEAST_DELIVERY_COUNT = 2


class Acquisition:
    """One fetch of a member acquires what a read from `fetch_offset` has found."""

    __slots__ = (
        "_batch_size",
        "_batches",
        "_deadline_ms",
        "_exact",
        "_member_id",
        "_records",
        "_settings",
        "acquired",
    )

    def __init__(
        self,
        records: InFlightRecords,
        settings: ShareSettings,
        member_id: str,
        acquire_mode: AcquireMode,
        batch_size: int,
        batches: Sequence[FetchedBatch],
        now_ms: int,
    ) -> None:
        self._records = records
        self._settings = settings
        self._member_id = member_id
        self._exact = acquire_mode is AcquireMode.RECORD_LIMIT
        self._batch_size = batch_size
        self._batches = batches
        self._deadline_ms = now_ms + settings.record_lock_duration_ms
        self.acquired: list[AcquiredRecords] = []

    def run(self, fetch_offset: int, max_records: int) -> int:
        """Return the number of records that were acquired."""
        records = self._records
        batches = self._batches
        if max_records <= 0 or not batches or batches[-1].last_offset < records.start_offset:
            return 0
        last_offset, most = room_for(
            records, fetch_offset, max_records, batches[-1].last_offset, self._settings.max_record_locks
        )
        if most <= 0:
            return 0
        first_offset = batches[0].base_offset
        archive_stale(records, fetch_offset, first_offset)
        self._note_missing_gap(fetch_offset, first_offset)
        if last_offset < first_offset:
            # Only what is in flight may be acquired, and the log has lost it.
            return 0
        base = self._align(first_offset)
        known = records.between(min(first_offset, base), last_offset)
        if not known:
            return self._acquire_new(base, last_offset, most)
        count = 0
        gap_start = base
        for batch in known:
            if count >= most:
                break
            if records.has_gaps():
                if gap_start < batch.first:
                    count += self._acquire_new(gap_start, batch.first - 1, most - count)
                gap_start = batch.last + 1
                if count >= most:
                    break
            taken, is_throttled = self._acquire_known(batch, first_offset, last_offset, most - count, count)
            count += taken
            if is_throttled:
                # Records that are near the delivery limit travel apart from others.
                most = 0
                break
        if count < most and known[-1].last < last_offset:
            count += self._acquire_new(known[-1].last + 1, last_offset, most - count)
        if self.acquired:
            records.move_gap_start(self.acquired[-1].last_offset + 1)
        return count

    def _note_missing_gap(self, fetch_offset: int, first_offset: int) -> None:
        """Where the log has nothing for the first gap of the persisted state, that gap is not read for ever."""
        records = self._records
        gap_start = records.gap_start
        if gap_start is None or not gap_start <= fetch_offset < first_offset or not records.has_gaps():
            return
        for batch in records.from_floor(gap_start, fetch_offset):
            if batch.first > gap_start:
                return
            gap_start = max(gap_start, batch.last + 1)
        if gap_start >= fetch_offset:
            records.gap_start = first_offset

    def _align(self, first_offset: int) -> int:
        """Where acquisition begins: with the batch in flight that has the offset, if there is one."""
        records = self._records
        index = records.floor(first_offset)
        if index < 0:
            return max(first_offset, records.start_offset)
        batch = records.batches[index]
        return batch.first if batch.last >= first_offset else first_offset

    def _acquire_known(
        self, batch: InFlightBatch, first: int, last: int, most: int, count_before: int
    ) -> tuple[int, bool]:
        """Return how many available records of a batch in flight were acquired, and whether that must be all."""
        limit = self._settings.delivery_count_limit
        throttles = is_throttled(batch, first, last, limit)
        if throttles and count_before:
            return 0, True
        if not batch.per_offset:
            run = batch.whole
            if not run.is_acquirable():
                return 0, False
            is_complete = first <= batch.first and batch.last <= last
            if is_complete and not throttles and not (self._exact and batch.size > most):
                self._lock(batch, run)
                self.acquired.append(AcquiredRecords(run.first, run.last, run.delivery_count))
                return batch.size, False
            batch.per_offset = True
        runs = deliverable(batch, first, last, limit, most if self._exact else None)
        taken = self._lock_runs(batch, runs)
        return taken, throttles and taken > 0

    def _lock(self, batch: InFlightBatch, run: Run) -> None:
        run.state = ACQUIRED
        run.delivery_count += 1
        run.member_id = self._member_id
        run.deadline_ms = self._deadline_ms
        self._records.deadlines.add(self._deadline_ms, batch)

    def _lock_runs(self, batch: InFlightBatch, runs: Sequence[Run]) -> int:
        """Neighbours with the same delivery count are given as one range."""
        if not runs:
            return 0
        taken = 0
        ranges: list[AcquiredRecords] = []
        for run in runs:
            self._lock(batch, run)
            taken += run.last - run.first + 1
            if ranges:
                first, last, delivery_count = ranges[-1]
                if last + 1 == run.first and delivery_count == run.delivery_count:
                    ranges[-1] = AcquiredRecords(first, run.last, delivery_count)
                    continue
            ranges.append(AcquiredRecords(run.first, run.last, run.delivery_count))
        self.acquired += ranges
        batch.join(ranges[0].first_offset, ranges[-1].last_offset)
        return taken

    def _acquire_new(self, first: int, last: int, most: int) -> int:
        """Offsets that are not in flight yet. Whole batches of the log come into flight, however many are acquired.

        The log may still have what it has lost officially, before the start offset in the same batch.
        """
        records = self._records
        first = max(first, records.start_offset)
        if last < first:
            return 0
        if most < last - first + 1:
            end = self._end_of_batch_with(first + most - 1)
            last = min(end, last) if records.has_gaps() else end
        ranges = self._new_ranges(first, last)
        if self._exact and last - first + 1 > most:
            taken = self._add_partly(first, last, most)
        else:
            for each in ranges:
                self._add(each.first_offset, each.last_offset)
            taken = last - first + 1
        if records.batches[0].first == first:
            records.start_offset = first
        records.end_offset = max(records.end_offset, last)
        self.acquired += (
            ranges if taken == last - first + 1 else [AcquiredRecords(first, first + taken - 1, 1)]
        )
        records.move_gap_start(first + taken)
        return taken

    def _end_of_batch_with(self, offset: int) -> int:
        index = bisect_right(self._batches, offset, key=_base_of) - 1
        return max(offset, self._batches[index].last_offset) if index >= 0 else offset

    def _new_ranges(self, first: int, last: int) -> list[AcquiredRecords]:
        """Ranges of `batch_size` records or a little more, cut between batches of the log."""
        ranges = []
        size = self._batch_size
        if not self._exact and last - first + 1 > size:
            for batch in self._batches:
                base = batch.base_offset
                if base > last:
                    break
                if base - first >= size:
                    ranges.append(AcquiredRecords(first, base - 1, 1))
                    first = base
        ranges.append(AcquiredRecords(first, last, 1))
        return ranges

    def _add(self, first: int, last: int) -> None:
        batch = InFlightBatch(Run(first, last, ACQUIRED, 1, self._member_id, self._deadline_ms))
        self._records.add(batch)
        self._records.deadlines.add(self._deadline_ms, batch)

    def _add_partly(self, first: int, last: int, most: int) -> int:
        batch = InFlightBatch(Run(first, last, AVAILABLE, 0))
        batch.per_offset = True
        self._records.add(batch)
        self._lock(batch, batch.carve(first, first + most - 1)[0])
        self._records.find_next_fetch_offset = True
        return most


# Records that were delivered often are delivered in small numbers, so that one bad record does not spoil its neighbours.


def throttled_from(delivery_count_limit: int) -> int:
    """The delivery count at which throttling begins."""
    return max(LEAST_DELIVERY_COUNT, (delivery_count_limit + 1) // 2)


def is_throttled(batch: InFlightBatch, first: int, last: int, delivery_count_limit: int) -> bool:
    """Whether a record of the batch between these offsets is acquirable and was delivered often."""
    least = throttled_from(delivery_count_limit)
    if not batch.per_offset:
        run = batch.whole
        return run.delivery_count >= least and run.is_acquirable()
    return any(
        run.delivery_count >= least and run.is_acquirable()
        for run in batch.runs[batch.index_of(first) : batch.index_of(last) + 1]
    )


def deliverable(
    batch: InFlightBatch, first: int, last: int, delivery_count_limit: int, most: int | None
) -> list[Run]:
    """What may be acquired now of the acquirable records between these offsets, at most `most`.

    A record at its last delivery is alone. The first record that was delivered often decides how many go with it: half of
    the batch, and half as many with each further delivery.
    """
    least = throttled_from(delivery_count_limit)
    throttled_most: int | None = None
    found: list[Run] = []
    taken = 0
    index = batch.index_of(first)
    while index < len(batch.runs):
        run = batch.runs[index]
        if run.first > last:
            break
        index += 1
        if not run.is_acquirable():
            continue
        delivery_count = run.delivery_count
        is_last_delivery = delivery_count_limit > 2 and delivery_count == delivery_count_limit - 1
        if is_last_delivery and taken:
            break
        if delivery_count >= least and throttled_most is None:
            throttled_most = max(1, batch.size >> (delivery_count - least + 1))
        begin = max(run.first, first)
        room = 1 if is_last_delivery else min(run.last, last) - begin + 1
        is_over = is_last_delivery
        for bound in (most, throttled_most):
            # More records that were not delivered often may have been found than the bound allows. Then it does not count.
            if bound is not None and 0 < bound - taken <= room:
                room = bound - taken
                is_over = True
        if begin > run.first or begin + room <= run.last:
            index = batch.cut(begin)
            batch.cut(begin + room)
            run = batch.runs[index]
            index += 1
        found.append(run)
        taken += room
        if is_over:
            break
    return found


# Under read_committed, members do not see the records of aborted transactions.


def aborted_batches(
    batches: Sequence[FetchedBatch], aborted_transactions: Sequence[AbortedTransaction]
) -> list[FetchedBatch]:
    """The batches with records of aborted transactions. Markers are not among them: clients skip them as gaps."""
    waiting = sorted(aborted_transactions, key=lambda each: each.first_offset, reverse=True)
    producer_ids: set[int] = set()
    found = []
    for batch in batches:
        if batch.producer_id == NO_PRODUCER_ID:
            continue
        while waiting and waiting[-1].first_offset <= batch.last_offset:
            producer_ids.add(waiting.pop().producer_id)
        if batch.is_abort_marker:
            producer_ids.discard(batch.producer_id)
        elif batch.is_transactional and batch.producer_id in producer_ids:
            found.append(batch)
    return found


def without(acquired: Sequence[AcquiredRecords], batches: Sequence[FetchedBatch]) -> list[AcquiredRecords]:
    """The acquired ranges less the offsets of the batches. Both are in order."""
    left = []
    index = 0
    for first, last, delivery_count in acquired:
        while index < len(batches) and batches[index].last_offset < first:
            index += 1
        at = index
        while at < len(batches) and batches[at].base_offset <= last:
            if first < batches[at].base_offset:
                left.append(AcquiredRecords(first, batches[at].base_offset - 1, delivery_count))
            first = batches[at].last_offset + 1
            at += 1
        if first <= last:
            left.append(AcquiredRecords(first, last, delivery_count))
        index = max(index, at - 1)
    return left
