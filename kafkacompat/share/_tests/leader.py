"""A share-partition for tests, in short words: states as tuples, time as an attribute."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kafkacompat.share.service import ReadState, ShareError, SharePartitionKey, StateBatch
from kafkacompat.share.share_partition import SharePartition
from kafkacompat.share.transitions import joined
from kafkacompat.share.values import (
    SUCCEEDED,
    AbortedTransaction,
    AcknowledgementBatch,
    AcquireMode,
    FetchedBatch,
    PendingWrite,
    ShareSettings,
)
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.one_by_one import OneByOne, Run

KEY = SharePartitionKey("g", bytes(16), 3)
LOCK_MS = 1_000
AVAILABLE, ACQUIRED, ACKNOWLEDGED, ARCHIVED = 0, 1, 2, 4
GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
UNREACHABLE = ShareError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the coordinator moves")


def invalid_state(message: str) -> ShareError:
    return ShareError(ErrorCode.INVALID_RECORD_STATE, message)


def invalid_request(message: str) -> ShareError:
    return ShareError(ErrorCode.INVALID_REQUEST, message)


class Leader:
    def __init__(self, start: int = 0, batches: Sequence[tuple[int, int, int, int]] = ()) -> None:
        """`batches`: what is persisted."""
        self.settings = ShareSettings(record_lock_duration_ms=LOCK_MS)
        self.now_ms = 0
        self.partition = SharePartition(KEY, "t", 7, lambda: self.settings)
        assert self.partition.begin_initialization() is None
        read = ReadState(state_epoch=2, start_offset=start, batches=[StateBatch(*each) for each in batches])
        assert self.partition.initialize(read, -5) == SUCCEEDED

    def configure(self, **settings: int | bool) -> None:
        self.settings = replace(self.settings, **settings)  # type: ignore[arg-type]

    def fetch(
        self,
        *log: tuple[int, int] | FetchedBatch,
        member: str = "a",
        exact: bool = False,
        size: int = 500,
        most: int = 500,
        at: int | None = None,
        aborted: Sequence[AbortedTransaction] = (),
        committed: bool = False,
    ) -> list[tuple[int, int, int]]:
        """Acquire from these batches of the log. Return first offset, last offset and delivery count of the ranges."""
        batches = [FetchedBatch(*each) for each in log]
        acquired = self.partition.acquire(
            member,
            AcquireMode.RECORD_LIMIT if exact else AcquireMode.BATCH_OPTIMIZED,
            size,
            most,
            batches[0].base_offset if at is None and batches else at or 0,
            batches,
            aborted,
            committed,
            self.now_ms,
        )
        assert acquired.count == sum(last - first + 1 for first, last, _ in acquired.records)
        return [tuple(each) for each in acquired.records]

    def ask(self, *batches: tuple[int, int, Sequence[int]], member: str = "a") -> PendingWrite | ShareError:
        return self.partition.acknowledge(
            member, [AcknowledgementBatch(*each) for each in batches], self.now_ms
        )

    def ask_one_by_one(
        self, *runs: tuple[int, Sequence[int]], member: str = "a"
    ) -> PendingWrite | ShareError:
        """A batch for each offset: `runs` have the first offsets, and a type for each."""
        batches = OneByOne(AcknowledgementBatch, [Run(first, bytes(types)) for first, types in runs])
        return self.partition.acknowledge(member, batches, self.now_ms)

    def acknowledge(self, first: int, last: int, *types: int, member: str = "a") -> PendingWrite:
        """The persister has not answered yet."""
        write = self.ask((first, last, types), member=member)
        assert isinstance(write, PendingWrite), write
        return write

    def finish(self, first: int, last: int, *types: int, member: str = "a") -> None:
        self.written(self.acknowledge(first, last, *types, member=member))

    def release(self, member: str = "a") -> PendingWrite:
        write = self.partition.release_acquired_records(member)
        assert isinstance(write, PendingWrite)
        return write

    def written(self, write: PendingWrite | None) -> None:
        assert write is not None
        assert self.partition.write_completed(write.token, SUCCEEDED, self.now_ms) == SUCCEEDED

    def not_written(self, write: PendingWrite | None) -> None:
        assert write is not None
        assert self.partition.write_completed(write.token, UNREACHABLE, self.now_ms) == UNREACHABLE

    def expire(self, now_ms: int) -> PendingWrite | None:
        self.now_ms = now_ms
        return self.partition.expire_locks(now_ms)

    @property
    def offsets(self) -> tuple[int, int]:
        return self.partition.start_offset, self.partition.end_offset

    @property
    def runs(self) -> list[tuple[int, int, int, int]]:
        """First offset, last offset, state and delivery count."""
        return [
            (run.first, run.last, int(run.state), run.delivery_count)
            for batch in self.partition._records.batches
            for run in batch.runs
        ]


def batches_of(write: PendingWrite | None) -> list[tuple[int, int, int, int]]:
    """Neighbours with the same state as one."""
    assert write is not None
    return [tuple(each) for each in joined(write.state.batches)]


def separate_batches_of(write: PendingWrite | None) -> list[tuple[int, int, int, int]]:
    assert write is not None
    return [tuple(each) for each in write.state.batches]
