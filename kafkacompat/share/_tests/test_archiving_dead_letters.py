"""Records of a group with a dead-letter topic: they are archived when their dead letter is written, and not before."""

from __future__ import annotations

from kafkacompat.share.dead_letters import Cause, DeadLetters
from kafkacompat.share.service import ReadState, ShareError, SharePartitionKey, StateBatch
from kafkacompat.share.share_partition import SharePartition
from kafkacompat.share.transitions import joined
from kafkacompat.share.values import (
    SUCCEEDED,
    AcknowledgementBatch,
    AcknowledgeType,
    Acquired,
    AcquireMode,
    FetchedBatch,
    PendingWrite,
    ShareSettings,
)
from kafkacompat.wire.errors import ErrorCode

FAILED = ShareError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
LOCK_MS = 1_000
ARCHIVING, ARCHIVED = 3, 4


class ArchivingPartition:
    def __init__(self, *batches: StateBatch, limit: int = 2) -> None:
        self.settings = ShareSettings(
            record_lock_duration_ms=LOCK_MS, delivery_count_limit=limit, has_dead_letters=True
        )
        self.partition = SharePartition(SharePartitionKey("g", bytes(16), 0), "t", 0, lambda: self.settings)
        self.partition.begin_initialization()
        self.partition.initialize(ReadState(start_offset=0, batches=batches), 0)
        self.now_ms = 0

    def acquire(self, last: int = 9, member: str = "m") -> Acquired:
        offset = self.partition.next_fetch_offset()
        return self.partition.acquire(
            member,
            AcquireMode.BATCH_OPTIMIZED,
            100,
            100,
            offset,
            [FetchedBatch(0, last)],
            (),
            False,
            self.now_ms,
        )

    def acknowledge(self, first: int, last: int, kind: AcknowledgeType) -> PendingWrite:
        write = self.partition.acknowledge("m", [AcknowledgementBatch(first, last, [kind])], self.now_ms)
        assert isinstance(write, PendingWrite)
        return write

    def done(self, write: PendingWrite | None, error: ShareError = SUCCEEDED) -> None:
        assert write is not None
        self.partition.write_completed(write.token, error, self.now_ms)


def states(write: PendingWrite | None) -> list[tuple[int, int, int]]:
    assert write is not None
    return [(first, last, state) for first, last, state, _ in joined(write.state.batches)]


def test_a_rejected_record_is_archived_after_its_dead_letter() -> None:
    world = ArchivingPartition()
    world.acquire()
    write = world.acknowledge(0, 2, AcknowledgeType.REJECT)
    assert states(write) == [(0, 2, ARCHIVING)]
    assert world.partition.take_dead_letters() == []
    world.done(write)
    (letters,) = world.partition.take_dead_letters()
    assert letters == DeadLetters(0, 2, 1, Cause.CLIENT_REJECT)
    assert world.partition.take_dead_letters() == []
    assert (world.partition.start_offset, world.partition.delivery_complete_count) == (0, 0)
    archived = world.partition.dead_letters_written(letters)
    assert states(archived) == [(0, 2, ARCHIVED)]
    world.done(archived)
    assert world.partition.start_offset == 3


def test_a_record_in_between_is_not_delivered_again() -> None:
    world = ArchivingPartition()
    world.acquire(0)
    world.done(world.acknowledge(0, 0, AcknowledgeType.REJECT))
    assert world.partition.next_fetch_offset() == 1
    assert world.acquire(0, "other").records == []


def test_a_rejection_that_is_not_written_gives_the_record_back() -> None:
    world = ArchivingPartition()
    world.acquire()
    world.done(world.acknowledge(0, 9, AcknowledgeType.REJECT), FAILED)
    assert world.partition.take_dead_letters() == []
    world.done(world.acknowledge(0, 9, AcknowledgeType.ACCEPT))
    assert world.partition.start_offset == 10


def test_neighbours_are_archived_each_after_its_own_dead_letter() -> None:
    """A leader that dies between the two leaves the second to the next one."""
    world = ArchivingPartition()
    world.acquire()
    world.done(world.acknowledge(0, 2, AcknowledgeType.REJECT))
    world.done(world.acknowledge(3, 5, AcknowledgeType.REJECT))
    first, second = world.partition.take_dead_letters()
    archived = world.partition.dead_letters_written(first)
    assert states(archived) == [(0, 2, ARCHIVED)]
    world.done(archived)
    assert world.partition.start_offset == 3
    assert states(world.partition.dead_letters_written(second)) == [(3, 5, ARCHIVED)]


def test_a_gap_has_no_dead_letter() -> None:
    world = ArchivingPartition()
    world.acquire()
    write = world.acknowledge(0, 9, AcknowledgeType.GAP)
    assert states(write) == [(0, 9, ARCHIVED)]
    world.done(write)
    assert world.partition.take_dead_letters() == []


def test_the_last_release_makes_a_dead_letter() -> None:
    world = ArchivingPartition()
    for _ in range(2):
        world.acquire(0)
        world.done(world.acknowledge(0, 0, AcknowledgeType.RELEASE))
    assert world.partition.take_dead_letters() == [DeadLetters(0, 0, 2, Cause.DELIVERY_COUNT_EXCEEDED)]


def test_the_last_lock_that_ends_makes_a_dead_letter() -> None:
    world = ArchivingPartition()
    write = let_the_last_lock_end(world)
    assert states(write) == [(0, 0, ARCHIVING)]
    world.done(write)
    assert world.partition.take_dead_letters() == [DeadLetters(0, 0, 2, Cause.DELIVERY_COUNT_EXCEEDED)]


def let_the_last_lock_end(world: ArchivingPartition) -> PendingWrite | None:
    world.acquire(0)
    world.now_ms += LOCK_MS
    world.done(world.partition.expire_locks(world.now_ms))
    world.acquire(0)
    world.now_ms += LOCK_MS
    return world.partition.expire_locks(world.now_ms)


def test_the_dead_letter_of_a_lock_that_ends_waits_until_its_state_is_written() -> None:
    """A leader that was deposed learns it by the write. Its successor may deliver the record again."""
    world = ArchivingPartition()
    write = let_the_last_lock_end(world)
    assert world.partition.take_dead_letters() == []
    world.done(write)
    assert world.partition.take_dead_letters() != []


def test_the_dead_letter_of_a_lock_that_ends_is_made_although_its_state_cannot_be_written() -> None:
    world = ArchivingPartition()
    write = let_the_last_lock_end(world)
    world.done(write, FAILED)
    (letters,) = world.partition.take_dead_letters()
    world.done(world.partition.dead_letters_written(letters))
    assert world.partition.start_offset == 1


def test_a_record_that_is_rejected_at_its_last_delivery_has_a_dead_letter_of_the_rejection() -> None:
    world = ArchivingPartition()
    world.acquire(3)
    world.done(world.acknowledge(0, 3, AcknowledgeType.RELEASE))
    world.acquire(3)
    rejects, releases = AcknowledgeType.REJECT, AcknowledgeType.RELEASE
    types = [rejects, rejects, releases, rejects]
    write = world.partition.acknowledge("m", [AcknowledgementBatch(0, 3, types)], 0)
    assert isinstance(write, PendingWrite)
    assert states(write) == [(0, 3, ARCHIVING)]
    world.done(write)
    assert world.partition.take_dead_letters() == [
        DeadLetters(0, 1, 2, Cause.CLIENT_REJECT),
        DeadLetters(2, 2, 2, Cause.DELIVERY_COUNT_EXCEEDED),
        DeadLetters(3, 3, 2, Cause.CLIENT_REJECT),
    ]


def test_a_session_that_ends_at_the_last_delivery_makes_a_dead_letter() -> None:
    world = ArchivingPartition(limit=2)
    world.acquire(0)
    world.done(world.acknowledge(0, 0, AcknowledgeType.RELEASE))
    world.acquire(0)
    write = world.partition.release_acquired_records("m")
    assert isinstance(write, PendingWrite)
    world.done(write)
    assert world.partition.take_dead_letters() == [DeadLetters(0, 0, 2, Cause.DELIVERY_COUNT_EXCEEDED)]


def test_a_lock_that_ends_while_the_release_fails_makes_a_dead_letter() -> None:
    world = ArchivingPartition()
    world.acquire(0)
    world.done(world.acknowledge(0, 0, AcknowledgeType.RELEASE))
    world.acquire(0)
    write = world.acknowledge(0, 0, AcknowledgeType.RELEASE)
    world.now_ms += LOCK_MS
    world.done(write, FAILED)
    assert world.partition.take_dead_letters() == [DeadLetters(0, 0, 2, Cause.DELIVERY_COUNT_EXCEEDED)]


def test_a_new_leader_writes_unfinished_dead_letters_again() -> None:
    world = ArchivingPartition(
        StateBatch(0, 1, ARCHIVING, 1), StateBatch(2, 2, ARCHIVING, 2), StateBatch(3, 3, 0, 1)
    )
    first, second = world.partition.take_dead_letters()
    assert first == DeadLetters(0, 1, 1, Cause.CLIENT_REJECT)
    assert second == DeadLetters(2, 2, 2, Cause.DELIVERY_COUNT_EXCEEDED)
    assert world.partition.next_fetch_offset() == 3
    world.done(world.partition.dead_letters_written(second))
    assert world.partition.start_offset == 0
    world.done(world.partition.dead_letters_written(first))
    assert world.partition.start_offset == 3


def test_without_a_topic_rejected_records_are_archived_at_once() -> None:
    world = ArchivingPartition()
    world.settings = ShareSettings()
    world.acquire()
    write = world.acknowledge(0, 9, AcknowledgeType.REJECT)
    assert states(write) == [(0, 9, ARCHIVED)]


def test_a_dead_letter_of_records_that_the_log_has_lost_archives_nothing_twice() -> None:
    world = ArchivingPartition()
    world.acquire()
    world.done(world.acknowledge(0, 4, AcknowledgeType.REJECT))
    (letters,) = world.partition.take_dead_letters()
    world.partition.update_cache_and_offsets(10)
    assert world.partition.start_offset == 10
    world.done(world.partition.dead_letters_written(letters))
    assert world.partition.dead_letters_written(letters) is None
    assert world.partition.delivery_complete_count == 0
