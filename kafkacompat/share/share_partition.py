"""One share-partition at the leader of its partition: which records are in flight, with whom, and what comes next.

Synchronous and pure. The shell reads the log and calls the persister; it tells the time with each call.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

from kafkacompat.api.share_services import ReadState, ShareError, SharePartitionKey
from kafkacompat.share.values import (
    AbortedTransaction,
    AcknowledgementBatch,
    Acquired,
    AcquireMode,
    FetchedBatch,
    PendingWrite,
    SharePartitionState,
    ShareSettings,
)
from kafkacompat.stepping.jobs import Steps


class SharePartition:
    """Follows Kafka's SharePartition."""

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
        self.start_offset = 0
        """Everything below it is terminal, or deleted from the log."""
        self.end_offset = 0
        """The last offset that was ever acquired here. While nothing is in flight, the next offset to fetch."""
        self.delivery_complete_count = 0
        """How many records in flight are acknowledged or archived."""

    # Initialization

    def begin_initialization(self) -> ShareError | None:
        """Become INITIALIZING and return None if EMPTY; the shell then reads the state. Otherwise return what holds:

        no error if ACTIVE, LEADER_NOT_AVAILABLE if INITIALIZING or FENCED, UNKNOWN_SERVER_ERROR if FAILED.
        """
        raise NotImplementedError

    def initialize(self, read: ReadState, reset_offset: int) -> ShareError:
        """Become ACTIVE with the persisted state, or FAILED with the returned error.

        `reset_offset` is what `share.auto.offset.reset` says. It counts only if `needs_reset_offset(read)`.
        """
        raise NotImplementedError

    def fail(self) -> None:
        """The state or the offset to begin at cannot be found out."""
        raise NotImplementedError

    def mark_fenced(self) -> None:
        raise NotImplementedError

    # Fetches

    def maybe_acquire_fetch_lock(self, fetch_id: Hashable, now_ms: int) -> bool:
        """One fetch at a time reads and acquires. False if another holds the lock, or if this is not ACTIVE."""
        raise NotImplementedError

    def release_fetch_lock(self, fetch_id: Hashable, now_ms: int) -> None:
        raise NotImplementedError

    def can_acquire_records(self) -> bool:
        """False if as many records are in flight as may be, and none of them is available."""
        raise NotImplementedError

    def next_fetch_offset(self) -> int:
        raise NotImplementedError

    def fetch_offset_metadata(self, next_fetch_offset: int) -> object | None:
        """What `update_fetch_offset_metadata` last kept, if for this offset."""
        raise NotImplementedError

    def update_fetch_offset_metadata(self, next_fetch_offset: int, metadata: object | None) -> None:
        raise NotImplementedError

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
        raise NotImplementedError

    # Acknowledgements

    def acknowledge(
        self, member_id: str, batches: Sequence[AcknowledgementBatch], now_ms: int
    ) -> PendingWrite | ShareError:
        """All steps of `acknowledge_steps` at once."""
        raise NotImplementedError

    def acknowledge_steps(
        self, member_id: str, batches: Sequence[AcknowledgementBatch], now_ms: int
    ) -> Steps[PendingWrite | ShareError]:
        """Acknowledge records that the member has acquired. The batches are valid, in order and do not overlap.

        Returns what must be written, or no error if there is nothing to write, or the error after all is undone. Other
        calls may come between two steps. A request of a few thousand records takes one step.
        """
        raise NotImplementedError
        yield

    def release_acquired_records(self, member_id: str, now_ms: int) -> PendingWrite | ShareError:
        """Make available whatever the member holds: its session is over. Returns as `acknowledge`."""
        raise NotImplementedError

    def write_completed(self, token: int, error: ShareError, now_ms: int) -> ShareError:
        """The persister has answered. Returns what the requester is told: no error, or the persister's as clients see it.

        Each PendingWrite is completed exactly once. The shell also marks the share-partition fenced and drops it if the
        returned error is NOT_LEADER_OR_FOLLOWER, as Kafka does.
        """
        raise NotImplementedError

    # Time and the log

    def next_lock_deadline_ms(self) -> int | None:
        """When `expire_locks` should run next. It may be too early, never too late."""
        raise NotImplementedError

    def expire_locks(self, now_ms: int) -> PendingWrite | None:
        """Make available or archive what was held too long. That holds whatever becomes of the write."""
        raise NotImplementedError

    def update_cache_and_offsets(self, log_start_offset: int) -> None:
        """The log now begins at this offset."""
        raise NotImplementedError

    def take_wakeup(self) -> bool:
        """Whether records may have become acquirable since the last call. Waiting share fetches should then look again."""
        raise NotImplementedError

    # Numbers

    def in_flight_records(self) -> int:
        raise NotImplementedError

    def in_flight_batches(self) -> int:
        raise NotImplementedError


def needs_reset_offset(read: ReadState) -> bool:
    """Whether the group has no offset yet, so that the shell must find the one of `share.auto.offset.reset`."""
    raise NotImplementedError
