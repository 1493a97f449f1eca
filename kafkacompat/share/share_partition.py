"""One share-partition at the leader of its partition: which records are in flight, with whom, and what comes next.

Synchronous and pure. The shell reads the log and calls the persister; it tells the time with each call.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

from kafkacompat.ids import NO_OFFSET, uuid_to_text
from kafkacompat.share.acknowledgement import Acknowledgement
from kafkacompat.share.acquisition import Acquisition, aborted_batches, without
from kafkacompat.share.dead_letters import DeadLetters
from kafkacompat.share.in_flight import (
    ARCHIVING,
    Held,
    InFlightBatch,
    InFlightRecords,
    Run,
    advance_start_offset,
    archive_acquired,
    can_acquire,
    follow_log_start,
    next_fetch_offset,
)
from kafkacompat.share.service import ReadState, ShareError, SharePartitionKey, StateBatch, WriteState
from kafkacompat.share.transitions import (
    StateBatches,
    Transition,
    archive_dead_letters,
    cause_of,
    end_locks,
    release_acquired,
)
from kafkacompat.share.values import (
    NOTHING_ACQUIRED,
    SUCCEEDED,
    AbortedTransaction,
    AcknowledgementBatch,
    Acquired,
    AcquireMode,
    FetchedBatch,
    PendingWrite,
    RecordState,
    SharePartitionState,
    ShareSettings,
    persister_error,
)
from kafkacompat.tasks import Work, at_once
from kafkacompat.wire.errors import ErrorCode


def needs_reset_offset(read: ReadState) -> bool:
    """Whether the group has no offset yet, so that the shell must find the one of `share.auto.offset.reset`."""
    return read.error.code is ErrorCode.NONE and read.start_offset == NO_OFFSET


class SharePartition:
    """Decides as Kafka's SharePartition, except where that would stop for ever or move back (docs/reference/compatibility.md)."""

    def __init__(
        self,
        key: SharePartitionKey,
        topic: str,
        leader_epoch: int,
        settings: Callable[[], ShareSettings],
    ) -> None:
        """`settings` is asked whenever a setting counts, so that a change holds at once."""
        self.key = key
        self.topic = topic
        self.leader_epoch = leader_epoch
        self.state = SharePartitionState.EMPTY
        self.state_epoch = 0
        self.expired_records = 0
        """How many records were held beyond their locks."""
        self.delivered_records = 0
        """How many records were given to members, each time counted."""
        self._settings = settings
        self._records = InFlightRecords()
        self._writes: dict[int, StateBatches] = {}
        self._last_token = 0
        self._fetch_lock: tuple[Hashable, int] | None = None
        """Who holds it, and since when."""

    @property
    def start_offset(self) -> int:
        """Everything below it is terminal, or deleted from the log."""
        return self._records.start_offset

    @property
    def end_offset(self) -> int:
        """The last offset that was ever acquired here. While nothing is in flight, the next offset to fetch."""
        return self._records.end_offset

    @property
    def delivery_complete_count(self) -> int:
        """How many records in flight are acknowledged or archived."""
        return self._records.delivery_complete_count

    # Initialization

    def begin_initialization(self) -> ShareError | None:
        """Become INITIALIZING and return None if EMPTY; the shell then reads the state. Otherwise return what holds:

        no error if ACTIVE, LEADER_NOT_AVAILABLE if INITIALIZING or FENCED, UNKNOWN_SERVER_ERROR if FAILED.
        """
        if self.state is SharePartitionState.EMPTY:
            self.state = SharePartitionState.INITIALIZING
            return None
        if self.state is SharePartitionState.ACTIVE:
            return SUCCEEDED
        if self.state is SharePartitionState.FAILED:
            return self._failed("Share partition failed to load")
        doing = "already initializing" if self.state is SharePartitionState.INITIALIZING else "fenced"
        return ShareError(ErrorCode.LEADER_NOT_AVAILABLE, f"Share partition is {doing} {self._name()}")

    def initialize(self, read: ReadState, reset_offset: int) -> ShareError:
        """Become ACTIVE with the persisted state, or FAILED with the returned error.

        `reset_offset` is what `share.auto.offset.reset` says. It counts only if `needs_reset_offset(read)`.
        """
        if read.error.code is not ErrorCode.NONE:
            self.fail()
            return persister_error(read.error)
        self.state_epoch = read.state_epoch
        first = reset_offset if read.start_offset == NO_OFFSET else read.start_offset
        try:
            load_state(self._records, first, read.batches, self._settings().delivery_count_limit)
        except InvalidState as invalid:
            self.fail()
            if str(invalid):
                return ShareError(ErrorCode.UNKNOWN_SERVER_ERROR, str(invalid))
            return self._failed("Failed to initialize the share partition")
        if self.state is SharePartitionState.INITIALIZING:
            self.state = SharePartitionState.ACTIVE
        return SUCCEEDED

    def fail(self) -> None:
        """The state or the offset to begin at cannot be found out."""
        self.state = SharePartitionState.FAILED

    def mark_fenced(self) -> None:
        self.state = SharePartitionState.FENCED

    def _failed(self, what: str) -> ShareError:
        return ShareError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{what} {self._name()}")

    def _name(self) -> str:
        key = self.key
        return f"{key.group_id}-{uuid_to_text(key.topic_id)}:{self.topic}-{key.partition}"

    # Fetches

    def maybe_acquire_fetch_lock(self, fetch_id: Hashable, now_ms: int) -> bool:
        """One fetch at a time reads and acquires. False if another holds the lock, or if this is not ACTIVE."""
        if self.state is not SharePartitionState.ACTIVE or self._fetch_lock is not None:
            return False
        self._fetch_lock = (fetch_id, now_ms)
        return True

    def release_fetch_lock(self, fetch_id: Hashable, now_ms: int) -> int | None:
        """How long the fetch has held the lock; None if it did not hold it. The lock is free now in any case."""
        lock = self._fetch_lock
        self._fetch_lock = None
        return now_ms - lock[1] if lock is not None and lock[0] == fetch_id else None

    def can_acquire_records(self) -> bool:
        """False if as many records are in flight as may be, and none of them is available."""
        return can_acquire(self._records, self._settings().max_record_locks)

    def next_fetch_offset(self) -> int:
        return next_fetch_offset(self._records)

    def acquire(
        self,
        member_id: str,
        acquire_mode: AcquireMode,
        batch_size: int,
        max_fetch_records: int,
        fetch_offset: int,
        batches: Sequence[FetchedBatch],
        aborted_transactions: Sequence[AbortedTransaction],
        read_committed: bool,
        now_ms: int,
    ) -> Acquired:
        """Give available and new records of the batches to the member. `batches` were read from `fetch_offset`."""
        if self.state is not SharePartitionState.ACTIVE:
            return NOTHING_ACQUIRED
        acquisition = Acquisition(
            self._records, self._settings(), member_id, acquire_mode, batch_size, batches, now_ms
        )
        count = acquisition.run(fetch_offset, max_fetch_records)
        acquired = acquisition.acquired
        if not read_committed or not aborted_transactions or not acquired:
            self.delivered_records += count
            return Acquired(acquired, count)
        aborted = aborted_batches(batches, aborted_transactions)
        for batch in aborted:
            archive_acquired(self._records, batch.base_offset, batch.last_offset)
        acquired = without(acquired, aborted)
        count = sum(each.last_offset - each.first_offset + 1 for each in acquired)
        self.delivered_records += count
        return Acquired(acquired, count)

    # Acknowledgements

    def acknowledge(
        self, member_id: str, batches: Sequence[AcknowledgementBatch], now_ms: int
    ) -> PendingWrite | ShareError:
        """`acknowledge_in_turns` at once."""
        return at_once(self.acknowledge_in_turns(member_id, batches, now_ms))

    def acknowledge_in_turns(
        self, member_id: str, batches: Sequence[AcknowledgementBatch], now_ms: int
    ) -> Work[PendingWrite | ShareError]:
        """Acknowledge records that the member has acquired. The batches are valid, in order and do not overlap.

        Returns what must be written, or no error if there is nothing to write, or the error after all is undone. Other
        calls may come between two steps. A request of a few hundred records takes one step.
        """
        acknowledgement = Acknowledgement(self._records, self._settings(), member_id, now_ms)
        error = yield from acknowledgement.work(batches)
        if error is SUCCEEDED:
            return self._write(acknowledgement.transition) or SUCCEEDED
        acknowledgement.transition.undo(now_ms)
        return error

    def release_acquired_records(self, member_id: str) -> PendingWrite | ShareError:
        """Make available whatever the member holds: its session is over. Returns as `acknowledge`."""
        transition = Transition(self._records, member_id, self._settings())
        release_acquired(self._records, member_id, transition)
        return self._write(transition) or SUCCEEDED

    def _write(self, change: StateBatches) -> PendingWrite | None:
        if not change.batches:
            return None
        self._last_token += 1
        self._writes[self._last_token] = change
        records = self._records
        state = WriteState(
            self.state_epoch,
            self.leader_epoch,
            records.start_offset,
            records.delivery_complete_count,
            change.batches,
        )
        return PendingWrite(self._last_token, state)

    def write_completed(self, token: int, error: ShareError, now_ms: int) -> ShareError:
        """The persister has answered. Returns what the requester is told: no error, or the persister's as clients see it.

        Each PendingWrite is completed exactly once. The shell also marks the share-partition fenced and drops it if the
        returned error is NOT_LEADER_OR_FOLLOWER, as Kafka does.
        """
        change = self._writes.pop(token)
        if error.code is ErrorCode.NONE:
            change.complete()
            advance_start_offset(self._records)
            return SUCCEEDED
        change.undo(now_ms)
        if not isinstance(change, Transition):
            advance_start_offset(self._records)
        return persister_error(error)

    # Time and the log

    def next_lock_deadline_ms(self) -> int | None:
        """When `expire_locks` should run next. It may be too early, never too late."""
        return self._records.deadlines.next_ms()

    def expire_locks(self, now_ms: int) -> PendingWrite | None:
        """Make available or archive what was held too long. That holds whatever becomes of the write."""
        ended = end_locks(self._records, now_ms, self._settings())
        self.expired_records += ended.count
        return self._write(ended)

    def update_cache_and_offsets(self, log_start_offset: int) -> None:
        """The log now begins at this offset."""
        follow_log_start(self._records, log_start_offset)

    def take_wakeup(self) -> bool:
        """Whether records may have become acquirable since the last call. Waiting share fetches should then look again."""
        wakeup = self._records.wakeup
        self._records.wakeup = False
        return wakeup

    # Dead letters

    def take_dead_letters(self) -> list[DeadLetters]:
        """Records of which the dead letters are to be written now. `dead_letters_written` is then called for each."""
        taken = self._records.dead_letters
        if taken:
            self._records.dead_letters = []
        return taken

    def dead_letters_written(self, letters: DeadLetters) -> PendingWrite | None:
        """The dead letters are written or given up: archive the records. That holds whatever becomes of the write."""
        return self._write(archive_dead_letters(self._records, letters))

    # Numbers

    def in_flight_records(self) -> int:
        return self._records.count()

    def in_flight_batches(self) -> int:
        return len(self._records.batches)

    @property
    def archived_records(self) -> int:
        """How many records are not delivered any more, because they were rejected or delivered as often as allowed.

        Since the state was loaded. Records that the log has lost and those of aborted transactions do not count.
        """
        return self._records.archived_records

    def held(self) -> Held:
        """The cost follows the records in flight."""
        return self._records.held()


# What the persister has kept, when a new leader takes over.


class InvalidState(Exception):
    """The persisted state contradicts itself."""


def load_state(
    records: InFlightRecords, first_offset: int, batches: Sequence[StateBatch], delivery_count_limit: int
) -> None:
    """Begin at the start offset with the batches. What lies between them is acquired first, if the log has it.

    Dead letters that an earlier leader had not finished are written again.
    """
    records.start_offset = first_offset
    expected = first_offset
    gap_start = None
    for first, last, state_id, delivery_count in batches:
        if first < first_offset or last < first:
            raise InvalidState
        if state_id not in _STATES:
            raise InvalidState(f"Unknown record state id: {state_id}")
        if gap_start is None and first > expected:
            gap_start = expected
        expected = last + 1
        run = Run(first, last, _STATES[state_id], delivery_count)
        records.add(InFlightBatch(run))
        if run.is_terminal():
            records.delivery_complete_count += last - first + 1
        elif run.state is ARCHIVING:
            records.bury(run, cause_of(run, delivery_count_limit))
    if not records.batches:
        records.end_offset = first_offset
        return
    records.find_next_fetch_offset = True
    records.end_offset = records.batches[-1].last
    if gap_start is not None:
        records.gap_start = gap_start
        records.gap_end = records.end_offset
    advance_start_offset(records)


_STATES = {int(state): state for state in RecordState}
