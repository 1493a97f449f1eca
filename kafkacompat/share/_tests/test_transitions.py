"""Writes of the persister that fail or come late, and members that go away or hold records too long."""

from __future__ import annotations

import pytest

from kafkacompat.share._tests.leader import (
    ACCEPT,
    ACKNOWLEDGED,
    ACQUIRED,
    ARCHIVED,
    AVAILABLE,
    LOCK_MS,
    REJECT,
    RELEASE,
    Leader,
    batches_of,
    separate_batches_of,
)
from kafkacompat.share.in_flight import Run
from kafkacompat.share.service import ShareError
from kafkacompat.share.transitions import AS_KAFKA_MAX
from kafkacompat.share.values import SUCCEEDED, RecordState
from kafkacompat.wire.errors import ErrorCode


@pytest.fixture
def leader() -> Leader:
    leader = Leader()
    leader.fetch((0, 4))
    leader.fetch((5, 9), member="b")
    return leader


class TestFailedWrites:
    @pytest.mark.parametrize("kind", [ACCEPT, RELEASE, REJECT])
    def test_the_member_holds_the_records_again(self, leader: Leader, kind: int) -> None:
        leader.not_written(leader.acknowledge(0, 4, kind))
        assert leader.runs[0] == (0, 4, ACQUIRED, 1)
        assert leader.partition.delivery_complete_count == 0
        assert leader.fetch((0, 4)) == []
        leader.finish(0, 4, ACCEPT)
        assert leader.offsets == (5, 9)

    def test_single_offsets_too(self, leader: Leader) -> None:
        leader.not_written(leader.acknowledge(0, 4, 1, 2, 3, 0, 1))
        assert leader.runs[0] == (0, 4, ACQUIRED, 1)
        leader.finish(0, 4, ACCEPT)
        assert leader.offsets == (5, 9)

    def test_locks_go_on(self, leader: Leader) -> None:
        leader.now_ms = 500
        leader.not_written(leader.acknowledge(0, 4, ACCEPT))
        assert leader.expire(LOCK_MS - 1) is None
        assert batches_of(leader.expire(LOCK_MS)) == [(0, 9, AVAILABLE, 1)]

    def test_locks_go_on_although_others_of_the_batch_have_ended_meanwhile(self, leader: Leader) -> None:
        leader.finish(0, 1, RELEASE)
        leader.now_ms = 600
        leader.fetch((0, 4))
        write = leader.acknowledge(0, 1, ACCEPT)
        assert batches_of(leader.expire(LOCK_MS)) == [(2, 9, AVAILABLE, 1)]
        leader.not_written(write)
        assert batches_of(leader.expire(600 + LOCK_MS)) == [(0, 1, AVAILABLE, 2)]

    def test_a_lock_that_has_ended_meanwhile(self, leader: Leader) -> None:
        write = leader.acknowledge(0, 4, ACCEPT)
        assert batches_of(leader.expire(LOCK_MS)) == [(5, 9, AVAILABLE, 1)]
        leader.partition.take_wakeup()
        leader.not_written(write)
        assert leader.runs[0] == (0, 4, AVAILABLE, 1)
        assert leader.partition.delivery_complete_count == 0
        assert leader.partition.take_wakeup()
        assert leader.partition.next_fetch_offset() == 0

    def test_a_lock_that_has_ended_at_the_last_delivery(self) -> None:
        leader = Leader(0, [(0, 0, AVAILABLE, 4)])
        leader.fetch((0, 0))
        write = leader.acknowledge(0, 0, ACCEPT)
        leader.expire(LOCK_MS)
        leader.not_written(write)
        assert leader.runs == [(0, 0, ARCHIVED, 5)]
        assert leader.partition.delivery_complete_count == 1

    def test_the_limit_is_that_of_the_acknowledgement(self, leader: Leader) -> None:
        write = leader.acknowledge(0, 4, ACCEPT)
        leader.configure(delivery_count_limit=1)
        leader.expire(LOCK_MS)
        leader.not_written(write)
        assert leader.runs[0] == (0, 4, AVAILABLE, 1)

    def test_the_log_start_has_passed_meanwhile(self, leader: Leader) -> None:
        write = leader.acknowledge(0, 4, ACCEPT)
        leader.partition.update_cache_and_offsets(3)
        leader.expire(LOCK_MS)
        leader.not_written(write)
        assert leader.runs[:2] == [(0, 2, ARCHIVED, 1), (3, 4, AVAILABLE, 1)]
        assert leader.partition.next_fetch_offset() == 3
        assert leader.partition.delivery_complete_count == 0

    def test_a_release_that_the_log_start_has_passed_stays_archived(self, leader: Leader) -> None:
        write = leader.acknowledge(0, 4, RELEASE)
        leader.partition.update_cache_and_offsets(3)
        assert leader.runs[:2] == [(0, 2, ARCHIVED, 1), (3, 4, AVAILABLE, 1)]
        assert leader.partition.next_fetch_offset() == 10
        leader.not_written(write)
        assert leader.runs[:2] == [(0, 2, ARCHIVED, 1), (3, 4, ACQUIRED, 1)]

    @pytest.mark.parametrize("code", [ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.FENCED_STATE_EPOCH])
    def test_a_fenced_leader_is_told(self, leader: Leader, code: ErrorCode) -> None:
        write = leader.acknowledge(0, 4, ACCEPT)
        outcome = leader.partition.write_completed(write.token, ShareError(code, "new leader"), 0)
        assert outcome == ShareError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "new leader")

    def test_each_write_is_answered_once(self, leader: Leader) -> None:
        write = leader.acknowledge(0, 4, ACCEPT)
        leader.written(write)
        with pytest.raises(KeyError):
            leader.written(write)


class TestLateWrites:
    def test_the_start_offset_waits(self, leader: Leader) -> None:
        first = leader.acknowledge(0, 4, ACCEPT)
        second = leader.acknowledge(5, 9, ACCEPT, member="b")
        assert second.state.start_offset == 0
        assert second.state.delivery_complete_count == 10
        leader.written(second)
        assert leader.offsets == (0, 9)
        leader.written(first)
        assert leader.offsets == (10, 10)
        assert leader.partition.delivery_complete_count == 0

    def test_each_is_undone_by_itself(self, leader: Leader) -> None:
        first = leader.acknowledge(0, 1, ACCEPT)
        second = leader.acknowledge(2, 4, ACCEPT)
        leader.not_written(first)
        assert leader.runs[:2] == [(0, 1, ACQUIRED, 1), (2, 4, ACKNOWLEDGED, 1)]
        assert leader.partition.delivery_complete_count == 3
        leader.written(second)
        leader.finish(0, 1, REJECT)
        assert leader.offsets == (5, 9)

    def test_a_lock_that_ends_while_the_write_is_under_way_changes_nothing(self, leader: Leader) -> None:
        write = leader.acknowledge(0, 4, ACCEPT)
        leader.expire(LOCK_MS)
        leader.written(write)
        assert leader.offsets == (5, 9)

    def test_the_log_start_moves_while_records_are_pending(self, leader: Leader) -> None:
        write = leader.acknowledge(0, 4, ACCEPT)
        assert leader.partition.delivery_complete_count == 5
        leader.partition.update_cache_and_offsets(3)
        assert leader.partition.delivery_complete_count == 2
        leader.not_written(write)
        assert leader.partition.delivery_complete_count == 0


class TestClosedSessions:
    def test_everything_that_the_member_holds(self, leader: Leader) -> None:
        leader.finish(2, 2, ACCEPT)
        leader.fetch((10, 14))
        write = leader.release()
        assert batches_of(write) == [(0, 1, AVAILABLE, 1), (3, 4, AVAILABLE, 1), (10, 14, AVAILABLE, 1)]
        leader.written(write)
        assert leader.partition.next_fetch_offset() == 0
        assert leader.fetch((0, 4), (5, 9), (10, 14)) == [(0, 1, 2), (3, 4, 2), (10, 14, 2)]

    def test_nothing(self, leader: Leader) -> None:
        assert leader.partition.release_acquired_records("c") == SUCCEEDED
        leader.release()
        assert leader.partition.release_acquired_records("a") == SUCCEEDED

    def test_the_last_delivery(self) -> None:
        leader = Leader(0, [(0, 0, AVAILABLE, 4)])
        leader.fetch((0, 0))
        assert batches_of(leader.release()) == [(0, 0, ARCHIVED, 5)]
        assert leader.partition.delivery_complete_count == 1

    def test_below_the_start_offset_it_is_archived(self, leader: Leader) -> None:
        leader.partition.update_cache_and_offsets(3)
        write = leader.release()
        assert batches_of(write) == [(0, 2, ARCHIVED, 1), (3, 4, AVAILABLE, 1)]
        assert write.state.delivery_complete_count == 0

    def test_whole_batches_below_the_start_offset(self, leader: Leader) -> None:
        leader.partition.update_cache_and_offsets(7)
        assert batches_of(leader.release()) == [(0, 4, ARCHIVED, 1)]
        assert batches_of(leader.release("b")) == [(5, 6, ARCHIVED, 1), (7, 9, AVAILABLE, 1)]

    def test_a_failed_write_leaves_them_to_their_locks(self, leader: Leader) -> None:
        leader.not_written(leader.release())
        assert leader.runs[0] == (0, 4, ACQUIRED, 1)
        assert batches_of(leader.expire(LOCK_MS)) == [(0, 9, AVAILABLE, 1)]


class TestWrittenBatches:
    """They are Kafka's, because the next snapshot of the state depends on how the changes of its write are cut."""

    def test_batches_that_are_treated_as_a_whole(self, leader: Leader) -> None:
        leader.fetch((10, 10))
        leader.fetch((11, 14))
        assert separate_batches_of(leader.release()) == [(0, 4, 0, 1), (10, 10, 0, 1), (11, 14, 0, 1)]

    def test_a_batch_that_is_treated_per_offset(self, leader: Leader) -> None:
        leader.finish(1, 1, ACCEPT)
        assert separate_batches_of(leader.release()) == [
            (0, 0, 0, 1),
            (2, 2, 0, 1),
            (3, 3, 0, 1),
            (4, 4, 0, 1),
        ]

    def test_acknowledgements_of_neighbours(self, leader: Leader) -> None:
        write = leader.acknowledge(1, 3, ACCEPT)
        assert separate_batches_of(write) == [(1, 1, 2, 1), (2, 2, 2, 1), (3, 3, 2, 1)]

    def test_locks_that_end(self, leader: Leader) -> None:
        leader.finish(1, 2, ACCEPT)
        write = leader.expire(LOCK_MS)
        assert separate_batches_of(write) == [(0, 0, 0, 1), (3, 3, 0, 1), (4, 4, 0, 1), (5, 9, 0, 1)]

    def test_a_large_write_has_neighbours_as_one(self) -> None:
        leader = Leader()
        leader.fetch((0, AS_KAFKA_MAX))
        leader.finish(0, 0, ACCEPT)
        assert separate_batches_of(leader.acknowledge(1, AS_KAFKA_MAX, RELEASE)) == [
            (each, each, AVAILABLE, 1) for each in range(1, AS_KAFKA_MAX + 1)
        ]
        leader.fetch((200, 201 + AS_KAFKA_MAX), at=200)
        leader.fetch((300, 304), at=300)
        leader.finish(200, 200, ACCEPT)
        leader.finish(300, 300, ACCEPT)
        assert separate_batches_of(leader.release()) == [
            (201, 201 + AS_KAFKA_MAX, AVAILABLE, 1),
            (301, 304, AVAILABLE, 1),
        ]


class TestLocks:
    def test_records_become_available(self, leader: Leader) -> None:
        assert leader.partition.next_lock_deadline_ms() == LOCK_MS
        leader.partition.take_wakeup()
        write = leader.expire(LOCK_MS)
        assert batches_of(write) == [(0, 9, AVAILABLE, 1)]
        assert leader.partition.take_wakeup()
        assert leader.partition.expired_records == 10
        assert leader.partition.next_lock_deadline_ms() is None
        assert leader.fetch((0, 4), (5, 9)) == [(0, 4, 2), (5, 9, 2)]
        leader.written(write)
        assert leader.runs == [(0, 4, ACQUIRED, 2), (5, 9, ACQUIRED, 2)]

    def test_whatever_becomes_of_the_write(self, leader: Leader) -> None:
        leader.not_written(leader.expire(LOCK_MS))
        assert leader.runs == [(0, 4, AVAILABLE, 1), (5, 9, AVAILABLE, 1)]

    def test_nothing_before_the_deadline(self, leader: Leader) -> None:
        assert leader.expire(LOCK_MS - 1) is None
        assert leader.runs == [(0, 4, ACQUIRED, 1), (5, 9, ACQUIRED, 1)]

    def test_the_last_delivery(self) -> None:
        leader = Leader(0, [(0, 0, AVAILABLE, 4)])
        leader.fetch((0, 0))
        write = leader.expire(LOCK_MS)
        assert batches_of(write) == [(0, 0, ARCHIVED, 5)]
        assert write is not None
        assert write.state.delivery_complete_count == 1
        leader.written(write)
        assert leader.offsets == (1, 1)

    def test_the_start_offset_moves_even_if_the_write_fails(self) -> None:
        leader = Leader(0, [(0, 0, AVAILABLE, 4)])
        leader.fetch((0, 0))
        leader.not_written(leader.expire(LOCK_MS))
        assert leader.offsets == (1, 1)

    def test_below_the_start_offset_they_are_archived(self, leader: Leader) -> None:
        leader.partition.update_cache_and_offsets(7)
        write = leader.expire(LOCK_MS)
        assert batches_of(write) == [(0, 6, ARCHIVED, 1), (7, 9, AVAILABLE, 1)]
        assert write is not None
        assert write.state.delivery_complete_count == 0

    def test_some_offsets_of_a_batch(self, leader: Leader) -> None:
        leader.finish(1, 3, ACCEPT)
        assert batches_of(leader.expire(LOCK_MS))[:2] == [(0, 0, AVAILABLE, 1), (4, 9, AVAILABLE, 1)]
        assert leader.runs[1] == (1, 3, ACKNOWLEDGED, 1)

    def test_each_part_of_a_batch_has_its_own(self, leader: Leader) -> None:
        leader.finish(0, 1, RELEASE)
        leader.now_ms = 600
        leader.fetch((0, 4))
        assert batches_of(leader.expire(LOCK_MS)) == [(2, 9, AVAILABLE, 1)]
        assert leader.partition.next_lock_deadline_ms() == 600 + LOCK_MS
        assert batches_of(leader.expire(600 + LOCK_MS)) == [(0, 1, AVAILABLE, 2)]

    def test_nothing_is_due_for_what_was_acknowledged(self, leader: Leader) -> None:
        leader.finish(0, 4, ACCEPT)
        leader.finish(5, 9, ACCEPT, member="b")
        assert leader.partition.next_lock_deadline_ms() is None
        assert leader.expire(LOCK_MS) is None


def test_a_run_hands_on_all_that_it_has_to_its_rest() -> None:
    """And is joined only with one that has the same, or a record would have what is of its neighbour."""
    run = Run(0, 9, RecordState.AVAILABLE, 0)
    names = [name for name in Run.__slots__ if name not in ("first", "last")]
    for name in names:
        setattr(run, name, object())
    rest = run.split(4)
    assert (run.first, run.last, rest.first, rest.last) == (0, 3, 4, 9)
    for name in names:
        assert getattr(rest, name, None) is getattr(run, name), f"Run.split loses {name}"
    assert run.is_alike(rest)
    for name in names:
        setattr(rest, name, object())
        assert not run.is_alike(rest), f"Run.is_alike passes over {name}"
        setattr(rest, name, getattr(run, name))
