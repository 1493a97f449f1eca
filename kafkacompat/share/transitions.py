"""Changes of state that count once the persister has written them, and are undone if it cannot."""

from __future__ import annotations

from collections.abc import Iterable

from kafkacompat.share.dead_letters import Cause, DeadLetters
from kafkacompat.share.in_flight import (
    ACQUIRED,
    ARCHIVED,
    ARCHIVING,
    AVAILABLE,
    InFlightBatch,
    InFlightRecords,
    Run,
)
from kafkacompat.share.service import StateBatch
from kafkacompat.share.values import NO_MEMBER, RecordState, ShareSettings

AS_KAFKA_MAX = 50
"""Batches of a write that are those of Kafka: one for each batch in flight, or for each offset of one that is treated per
offset. The next snapshot of the state depends on it. Of a larger write neighbours with the same state are one batch."""


class StateBatches:
    """What the persister is to write."""

    __slots__ = ("_joins", "batches")

    def __init__(self) -> None:
        self.batches: list[StateBatch] = []
        self._joins = False

    def add(self, batch: InFlightBatch, run: Run) -> None:
        state, count, batches = int(run.state), run.delivery_count, self.batches
        if not self._joins:
            if len(batches) + (run.last - run.first if batch.per_offset else 0) < AS_KAFKA_MAX:
                if batch.per_offset:
                    batches += [
                        StateBatch(each, each, state, count) for each in range(run.first, run.last + 1)
                    ]
                else:
                    batches.append(StateBatch(run.first, run.last, state, count))
                return
            self._joins = True
            self.batches = joined(batches)
        _add_joined(self.batches, StateBatch(run.first, run.last, state, count))

    def complete(self) -> None:
        """The changes are written."""

    def undo(self, now_ms: int) -> None:
        """The persister cannot write them."""


def joined(batches: Iterable[StateBatch]) -> list[StateBatch]:
    """Neighbours with the same state as one batch."""
    found: list[StateBatch] = []
    for each in batches:
        _add_joined(found, each)
    return found


def _add_joined(batches: list[StateBatch], new: StateBatch) -> None:
    if batches:
        first, last, state, count = batches[-1]
        if last + 1 == new[0] and (state, count) == new[2:]:
            batches[-1] = StateBatch(first, new[1], state, count)
            return
    batches.append(new)


class EndedLocks(StateBatches):
    """Locks that have ended: the records are free or undeliverable whatever becomes of the write.

    Dead letters wait for its outcome. A leader that was deposed meanwhile is fenced: its share-partition is dropped before
    anybody takes them, and the next leader delivers the records again.
    """

    __slots__ = ("_letters", "_records", "count")

    def __init__(self, records: InFlightRecords) -> None:
        super().__init__()
        self._records = records
        self._letters: list[DeadLetters] = []
        self.count = 0
        """How many records were held too long."""

    def add(self, batch: InFlightBatch, run: Run) -> None:
        super().add(batch, run)
        self.count += run.last - run.first + 1
        if run.state is ARCHIVING:
            letters = DeadLetters(run.first, run.last, run.delivery_count, Cause.DELIVERY_COUNT_EXCEEDED)
            self._letters.append(letters)

    def complete(self) -> None:
        self._records.dead_letters += self._letters

    def undo(self, now_ms: int) -> None:
        self.complete()


class Transition(StateBatches):
    """The changes of one request: records that one member holds become available, acknowledged or archived."""

    __slots__ = (
        "_archived",
        "_delivery_count_limit",
        "_letters",
        "_parts",
        "_records",
        "_undeliverable",
        "member_id",
    )

    def __init__(self, records: InFlightRecords, member_id: str, settings: ShareSettings) -> None:
        super().__init__()
        self._records = records
        self.member_id = member_id
        self._delivery_count_limit = settings.delivery_count_limit
        self._undeliverable = undeliverable(settings)
        self._archived = 0
        """Records that are not delivered any more once this is written."""
        self._letters: list[DeadLetters] = []
        """To be written then."""
        self._parts: list[tuple[InFlightBatch, int, int]] = []
        """Offsets of batches. Only those runs count that have this transition."""

    def start(self, batch: InFlightBatch, run: Run, state: RecordState) -> None:
        """Change a run that the member holds. A record that was delivered as often as allowed is not available again."""
        cause = Cause.CLIENT_REJECT if state is ARCHIVING else Cause.DELIVERY_COUNT_EXCEEDED
        if state is AVAILABLE and run.delivery_count >= self._delivery_count_limit:
            state = self._undeliverable
            self._archived += run.last - run.first + 1
        run.state = state
        run.member_id = NO_MEMBER
        run.transition = self
        self.add(batch, run)
        if run.is_terminal():
            self._records.delivery_complete_count += self._records.count_between(run.first, run.last)
        parts = self._parts
        if state is ARCHIVING:
            letters = DeadLetters(run.first, run.last, run.delivery_count, cause)
            self._note_letters(letters, is_same_batch=bool(parts) and parts[-1][0] is batch)
        if parts and parts[-1][0] is batch and parts[-1][1] <= run.first:
            parts[-1] = (batch, parts[-1][1], run.last)
        else:
            parts.append((batch, run.first, run.last))

    def reject(self, batch: InFlightBatch, run: Run) -> None:
        """The member has no use for the run, now or later."""
        self._archived += run.last - run.first + 1
        self.start(batch, run, self._undeliverable)

    def _note_letters(self, letters: DeadLetters, *, is_same_batch: bool) -> None:
        """Neighbours of a batch with the same cause have theirs together. Later their runs cannot tell the cause: a record
        that was rejected and one that was released may be one run."""
        if is_same_batch and self._letters:
            before = self._letters[-1]
            if before.last_offset + 1 == letters.first_offset and before[2:] == letters[2:]:
                self._letters[-1] = before._replace(last_offset=letters.last_offset)
                return
        self._letters.append(letters)

    def complete(self) -> None:
        """The changes are written."""
        self._records.archived_records += self._archived
        self._records.dead_letters += self._letters
        for batch, first, last in self._parts:
            for run in batch.runs[batch.index_of(first) : batch.index_of(last) + 1]:
                if run.transition is not self:
                    continue
                run.transition = None
                run.deadline_ms = None
                if run.state is AVAILABLE:
                    self._records.became_acquirable()
            batch.join(first, last)

    def undo(self, now_ms: int) -> None:
        """The records are held by the member again, as far as its locks last."""
        records = self._records
        for batch, first, last in self._parts:
            if records.begins_within(batch):
                batch.cut(records.start_offset)
                batch.per_offset = True
                first = min(first, records.start_offset)
                last = max(last, records.start_offset)
            for run in batch.runs[batch.index_of(first) : batch.index_of(last) + 1]:
                if run.transition is self:
                    self._undo(batch, run, now_ms)
            batch.join(first, last)

    def _undo(self, batch: InFlightBatch, run: Run, now_ms: int) -> None:
        records = self._records
        run.transition = None
        deadline_ms = run.deadline_ms
        if deadline_ms is None:
            return
        was_terminal = run.is_terminal()
        if now_ms < deadline_ms:
            run.state = ACQUIRED
            run.member_id = self.member_id
            records.deadlines.add(deadline_ms, batch)
        else:
            run.deadline_ms = None
            if run.last < records.start_offset:
                run.state = ARCHIVED
            elif run.delivery_count >= self._delivery_count_limit:
                run.state = self._undeliverable
                records.archived_records += run.last - run.first + 1
                if run.state is ARCHIVING:
                    records.bury(run, Cause.DELIVERY_COUNT_EXCEEDED)
            else:
                run.state = AVAILABLE
                records.became_acquirable()
        if was_terminal and not run.is_terminal():
            records.delivery_complete_count -= records.count_between(run.first, run.last)


def undeliverable(settings: ShareSettings) -> RecordState:
    """The state of a record that is not delivered any more."""
    return ARCHIVING if settings.has_dead_letters else ARCHIVED


def cause_of(run: Run, delivery_count_limit: int) -> Cause:
    """Of a record that an earlier leader has left. The persister does not keep the cause, so the number of deliveries tells
    it, as in Kafka: a record that was rejected at its last delivery counts as one that exceeds the limit."""
    exceeds = run.delivery_count >= delivery_count_limit
    return Cause.DELIVERY_COUNT_EXCEEDED if exceeds else Cause.CLIENT_REJECT


# Records that members hold become available again: their session is over, or their locks have ended.


def release_acquired(records: InFlightRecords, member_id: str, transition: Transition) -> None:
    """Whatever the member holds. Below the start offset it is archived."""
    for batch in records.batches:
        if not any(run.state is ACQUIRED and run.member_id == member_id for run in batch.runs):
            continue
        _cut_at_start(records, batch)
        for run in batch.runs:
            if run.state is ACQUIRED and run.member_id == member_id:
                transition.start(batch, run, ARCHIVED if run.last < records.start_offset else AVAILABLE)
        batch.join(batch.first, batch.last)


def end_locks(records: InFlightRecords, now_ms: int, settings: ShareSettings) -> EndedLocks:
    """End the locks that are due. Returns what is to be written.

    A record with a pending transition is left alone: it becomes available if that is undone.
    """
    ended = EndedLocks(records)
    for batch in sorted(records.deadlines.due(now_ms), key=lambda each: each.first):
        if any(_is_expired(run, now_ms) for run in batch.runs):
            _cut_at_start(records, batch)
            for run in batch.runs:
                if _is_expired(run, now_ms):
                    _expire(records, run, settings)
                    ended.add(batch, run)
            batch.join(batch.first, batch.last)
        # What has a pending transition is queued again if that is undone.
        next_ms = min(
            (run.deadline_ms for run in batch.runs if run.state is ACQUIRED and run.deadline_ms is not None),
            default=None,
        )
        if next_ms is not None:
            records.deadlines.add(next_ms, batch)
    return ended


def _is_expired(run: Run, now_ms: int) -> bool:
    return run.state is ACQUIRED and run.deadline_ms is not None and run.deadline_ms <= now_ms


def _expire(records: InFlightRecords, run: Run, settings: ShareSettings) -> None:
    run.member_id = NO_MEMBER
    run.deadline_ms = None
    if run.last < records.start_offset:
        run.state = ARCHIVED
    elif run.delivery_count >= settings.delivery_count_limit:
        run.state = undeliverable(settings)
        records.archived_records += run.last - run.first + 1
    else:
        run.state = AVAILABLE
        records.became_acquirable()
    if run.state is ARCHIVED:
        records.delivery_complete_count += records.count_between(run.first, run.last)


def archive_dead_letters(records: InFlightRecords, letters: DeadLetters) -> StateBatches:
    """The dead letters are written, or given up. Returns what is to be written."""
    written = StateBatches()
    for batch in records.from_floor(letters.first_offset, letters.last_offset):
        if batch.last < letters.first_offset:
            continue
        # Neighbours of the same fate are one run, although each request has dead letters of its own.
        for run in batch.carve(letters.first_offset, letters.last_offset):
            if run.state is ARCHIVING and run.transition is None:
                run.state = ARCHIVED
                records.delivery_complete_count += records.count_between(run.first, run.last)
                written.add(batch, run)
        batch.join(letters.first_offset, letters.last_offset)
    return written


def _cut_at_start(records: InFlightRecords, batch: InFlightBatch) -> None:
    if records.begins_within(batch) and (batch.per_offset or batch.whole.state is ACQUIRED):
        batch.cut(records.start_offset)
        batch.per_offset = True
