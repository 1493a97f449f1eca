from __future__ import annotations

from kafkacompat.share._tests.leader import (
    ACKNOWLEDGED,
    ACQUIRED,
    ARCHIVED,
    AVAILABLE,
    LOCK_MS,
    Leader,
    batches_of,
)
from kafkacompat.share.values import AbortedTransaction, FetchedBatch


class TestNewRecords:
    def test_one_range_for_all_that_was_read(self) -> None:
        leader = Leader(5)
        assert leader.fetch((5, 9), (10, 14)) == [(5, 14, 1)]
        assert leader.offsets == (5, 14)
        assert leader.partition.next_fetch_offset() == 15
        assert leader.partition.in_flight_batches() == 1

    def test_ranges_are_cut_between_batches_when_the_size_is_reached(self) -> None:
        leader = Leader()
        assert leader.fetch((0, 4), (5, 9), (10, 10), (11, 30), (31, 35), size=10) == [
            (0, 9, 1),
            (10, 30, 1),
            (31, 35, 1),
        ]
        assert leader.partition.in_flight_batches() == 3

    def test_a_batch_of_the_log_is_never_cut(self) -> None:
        leader = Leader()
        assert leader.fetch((0, 99), size=10) == [(0, 99, 1)]

    def test_the_maximum_is_exceeded_to_the_end_of_a_batch(self) -> None:
        leader = Leader()
        assert leader.fetch((0, 4), (5, 9), (10, 14), most=6) == [(0, 9, 1)]
        assert leader.offsets == (0, 9)

    def test_the_maximum_counts_offsets_that_the_log_lacks(self) -> None:
        leader = Leader()
        assert leader.fetch((0, 4), (20, 24), most=8) == [(0, 7, 1)]

    def test_nothing_without_room_or_records(self) -> None:
        leader = Leader()
        assert leader.fetch((0, 4), most=0) == []
        assert leader.fetch() == []
        leader.partition.mark_fenced()
        assert leader.fetch((0, 4)) == []

    def test_nothing_below_the_start_offset(self) -> None:
        assert Leader(10).fetch((0, 9)) == []

    def test_a_batch_of_the_log_begins_before_the_start_offset(self) -> None:
        leader = Leader(5)
        assert leader.fetch((0, 9), at=5) == [(5, 9, 1)]
        assert leader.offsets == (5, 9)

    def test_the_log_begins_after_the_start_offset(self) -> None:
        leader = Leader(5)
        assert leader.fetch((8, 9), at=5) == [(8, 9, 1)]
        assert leader.offsets == (8, 9)

    def test_what_was_removed_from_flight_is_not_acquired_again(self) -> None:
        leader = Leader()
        leader.fetch((0, 9))
        leader.finish(0, 9, 1)
        assert leader.fetch((0, 19), at=10) == [(10, 19, 1)]

    def test_what_the_log_start_has_passed_is_not_acquired_although_the_batch_has_it(self) -> None:
        leader = Leader()
        leader.fetch((0, 4))
        leader.partition.update_cache_and_offsets(8)
        assert leader.partition.next_fetch_offset() == 8
        assert leader.fetch((5, 14), at=8) == [(8, 14, 1)]


class TestKnownRecords:
    def test_what_is_held_is_left_alone(self) -> None:
        leader = Leader()
        leader.fetch((0, 9))
        assert leader.fetch((0, 9), (10, 14), member="b") == [(10, 14, 1)]
        assert leader.fetch((0, 9), (10, 14), member="b") == []

    def test_a_released_batch_is_acquired_as_a_whole(self) -> None:
        leader = Leader()
        leader.fetch((0, 9))
        leader.finish(0, 9, 2)
        assert leader.partition.next_fetch_offset() == 0
        assert leader.fetch((0, 9), (10, 19), member="b") == [(0, 9, 2), (10, 19, 1)]
        assert leader.runs == [(0, 9, ACQUIRED, 2), (10, 19, ACQUIRED, 1)]

    def test_known_batches_stay_ranges_of_their_own(self) -> None:
        leader = Leader()
        leader.fetch((0, 4))
        leader.fetch((5, 9))
        leader.written(leader.release())
        assert leader.fetch((0, 9), size=500) == [(0, 4, 2), (5, 9, 2)]

    def test_a_part_of_a_known_batch(self) -> None:
        leader = Leader()
        leader.fetch((0, 4), (5, 9))
        leader.finish(0, 9, 2)
        assert leader.fetch((5, 9), at=5) == [(5, 9, 2)]
        assert leader.runs == [(0, 4, AVAILABLE, 1), (5, 9, ACQUIRED, 2)]
        assert leader.partition.next_fetch_offset() == 0

    def test_single_offsets_are_given_as_ranges(self) -> None:
        leader = Leader()
        leader.fetch((0, 9))
        leader.finish(0, 9, 2, 2, 1, 2, 2, 2, 3, 2, 1, 1)
        assert leader.fetch((0, 9)) == [(0, 1, 2), (3, 5, 2), (7, 7, 2)]

    def test_ranges_have_one_delivery_count_each(self) -> None:
        leader = Leader()
        leader.configure(delivery_count_limit=10)
        leader.fetch((0, 9))
        leader.finish(3, 5, 2)
        assert leader.fetch((0, 9)) == [(3, 5, 2)]
        leader.written(leader.release())
        assert leader.fetch((0, 9)) == [(0, 2, 2), (3, 5, 3), (6, 9, 2)]

    def test_a_pending_release_is_not_acquirable(self) -> None:
        leader = Leader()
        leader.fetch((0, 9))
        write = leader.acknowledge(0, 9, 2)
        assert leader.partition.next_fetch_offset() == 10
        assert leader.fetch((0, 9)) == []
        leader.written(write)
        assert leader.fetch((0, 9)) == [(0, 9, 2)]

    def test_a_pending_release_of_some_offsets_is_not_acquirable(self) -> None:
        leader = Leader()
        leader.fetch((0, 9))
        write = leader.acknowledge(3, 5, 2)
        assert leader.partition.next_fetch_offset() == 10
        assert leader.fetch((0, 9)) == []
        leader.written(write)
        assert leader.partition.next_fetch_offset() == 3

    def test_the_maximum_stops_between_known_batches(self) -> None:
        leader = Leader()
        for first in range(0, 15, 5):
            leader.fetch((first, first + 4))
        leader.written(leader.release())
        assert leader.fetch((0, 19), most=6) == [(0, 4, 2), (5, 9, 2)]
        assert leader.partition.next_fetch_offset() == 10


class TestRecordLimit:
    def test_new_records(self) -> None:
        leader = Leader()
        assert leader.fetch((0, 4), (5, 9), (10, 14), most=6, exact=True) == [(0, 5, 1)]
        assert leader.runs == [(0, 5, ACQUIRED, 1), (6, 9, AVAILABLE, 0)]
        assert leader.offsets == (0, 9)
        assert leader.partition.next_fetch_offset() == 6
        assert leader.fetch((5, 9), at=6, most=100, exact=True, member="b") == [(6, 9, 1)]

    def test_the_size_of_batches_does_not_count(self) -> None:
        leader = Leader()
        assert leader.fetch((0, 4), (5, 9), size=5, exact=True) == [(0, 9, 1)]

    def test_a_known_batch_is_cut(self) -> None:
        leader = Leader()
        leader.fetch((0, 9))
        leader.finish(0, 9, 2)
        assert leader.fetch((0, 9), most=4, exact=True) == [(0, 3, 2)]
        assert leader.fetch((0, 9), most=4, exact=True) == [(4, 7, 2)]

    def test_the_maximum_counts_over_all_batches(self) -> None:
        leader = Leader()
        leader.fetch((0, 9))
        leader.finish(2, 4, 2)
        assert leader.fetch((0, 14), (15, 20), most=5, exact=True) == [(2, 4, 2), (10, 11, 1)]

    def test_what_was_not_acquired_is_not_locked(self) -> None:
        leader = Leader()
        leader.fetch((0, 9), most=6, exact=True)
        assert batches_of(leader.expire(LOCK_MS)) == [(0, 5, AVAILABLE, 1)]
        assert leader.runs == [(0, 5, AVAILABLE, 1), (6, 9, AVAILABLE, 0)]


class TestRecordLocks:
    """The number of records in flight is bounded."""

    def test_room_for_some(self) -> None:
        leader = Leader()
        leader.configure(max_record_locks=12)
        leader.fetch((0, 9))
        assert leader.partition.can_acquire_records()
        assert leader.fetch((10, 14), (15, 20)) == [(10, 14, 1)]
        assert leader.partition.in_flight_records() == 15
        assert not leader.partition.can_acquire_records()
        assert leader.fetch((15, 20)) == []

    def test_what_was_released_is_acquired_although_there_is_no_room(self) -> None:
        leader = Leader()
        leader.configure(max_record_locks=10)
        leader.fetch((0, 9))
        leader.finish(4, 4, 2)
        assert leader.partition.can_acquire_records()
        assert leader.fetch((0, 19), at=4) == [(4, 4, 2)]
        assert leader.offsets == (0, 9)

    def test_acknowledged_records_count_until_the_start_offset_has_passed(self) -> None:
        leader = Leader()
        leader.configure(max_record_locks=10)
        leader.fetch((0, 9))
        leader.finish(5, 9, 1)
        assert not leader.partition.can_acquire_records()
        leader.finish(0, 4, 1)
        assert leader.partition.can_acquire_records()

    def test_a_log_that_has_lost_all_that_is_in_flight(self) -> None:
        leader = Leader()
        leader.configure(max_record_locks=10)
        leader.fetch((0, 9))
        leader.finish(4, 4, 2)
        assert leader.fetch((10, 19), at=4) == []
        assert leader.runs[1] == (4, 4, ARCHIVED, 1)


class TestCompaction:
    def test_batches_that_the_log_has_lost_are_archived(self) -> None:
        leader = Leader()
        for first in (0, 5, 10, 15):
            leader.fetch((first, first + 4))
        leader.finish(0, 14, 2)
        assert leader.fetch((10, 14), at=0) == [(10, 14, 2)]
        assert leader.runs == [
            (0, 4, ARCHIVED, 1),
            (5, 9, ARCHIVED, 1),
            (10, 14, ACQUIRED, 2),
            (15, 19, ACQUIRED, 1),
        ]
        assert leader.partition.delivery_complete_count == 10
        leader.finish(10, 14, 1)
        assert leader.offsets == (15, 19)

    def test_only_from_where_the_log_was_read(self) -> None:
        leader = Leader()
        leader.fetch((0, 9))
        leader.finish(0, 9, 2, 2, 2, 1, 2, 2, 2, 2, 2, 2)
        leader.fetch((0, 2), most=3, exact=True)
        leader.finish(0, 0, 2)
        assert leader.fetch((12, 14), at=4) == [(12, 14, 1)]
        assert leader.runs[:4] == [
            (0, 0, AVAILABLE, 2),
            (1, 2, ACQUIRED, 2),
            (3, 3, ACKNOWLEDGED, 1),
            (4, 9, ARCHIVED, 1),
        ]

    def test_what_a_member_holds_stays(self) -> None:
        leader = Leader()
        leader.fetch((0, 9))
        leader.fetch((15, 19), at=0)
        assert leader.runs[0] == (0, 9, ACQUIRED, 1)

    def test_the_end_of_a_batch_is_kept(self) -> None:
        leader = Leader()
        leader.fetch((0, 9))
        leader.finish(0, 9, 2)
        assert leader.fetch((6, 9), at=0) == [(6, 9, 2)]
        assert leader.runs == [(0, 5, ARCHIVED, 1), (6, 9, ACQUIRED, 2)]


class TestReadCommitted:
    log = (
        FetchedBatch(0, 4),
        FetchedBatch(5, 9, 1, True),
        FetchedBatch(10, 14, 2, True),
        FetchedBatch(15, 15, 1, True, True),
        FetchedBatch(16, 19, 1, True),
        FetchedBatch(20, 24, 1),
    )
    aborted = (AbortedTransaction(1, 5),)

    def test_aborted_records_are_archived(self) -> None:
        leader = Leader()
        assert leader.fetch(*self.log, aborted=self.aborted, committed=True) == [(0, 4, 1), (10, 24, 1)]
        assert leader.runs == [(0, 4, ACQUIRED, 1), (5, 9, ARCHIVED, 1), (10, 24, ACQUIRED, 1)]
        assert leader.partition.delivery_complete_count == 5
        assert leader.partition.next_fetch_offset() == 25

    def test_read_uncommitted_sees_them(self) -> None:
        assert Leader().fetch(*self.log, aborted=self.aborted) == [(0, 24, 1)]

    def test_records_outside_of_transactions_are_seen(self) -> None:
        leader = Leader()
        aborted = [AbortedTransaction(1, 20)]
        assert leader.fetch(self.log[5], aborted=aborted, committed=True) == [(20, 24, 1)]

    def test_transactions_of_two_producers(self) -> None:
        leader = Leader()
        aborted = [AbortedTransaction(2, 10), AbortedTransaction(1, 5)]
        assert leader.fetch(*self.log, aborted=aborted, committed=True) == [(0, 4, 1), (15, 24, 1)]

    def test_a_batch_is_archived_as_a_whole(self) -> None:
        leader = Leader()
        assert leader.fetch(*self.log, size=5, aborted=self.aborted, committed=True) == [
            (0, 4, 1),
            (10, 14, 1),
            (15, 19, 1),
            (20, 24, 1),
        ]
        assert leader.partition.in_flight_batches() == 5
        assert leader.runs[1] == (5, 9, ARCHIVED, 1)

    def test_an_aborted_batch_is_not_locked(self) -> None:
        leader = Leader()
        leader.fetch(*self.log[1:2], aborted=self.aborted, committed=True)
        assert leader.expire(LOCK_MS) is None
        assert leader.runs == [(5, 9, ARCHIVED, 1)]

    def test_the_start_offset_lies_in_an_aborted_batch(self) -> None:
        leader = Leader(7)
        assert leader.fetch(*self.log[1:3], aborted=self.aborted, committed=True, at=7) == [(10, 14, 1)]

    def test_aborted_records_alone_do_not_fill_a_share_partition(self) -> None:
        """Nobody acknowledges them."""
        leader = Leader()
        leader.configure(max_record_locks=10)
        leader.fetch(FetchedBatch(0, 19, 1, True), aborted=[AbortedTransaction(1, 0)], committed=True)
        assert leader.partition.can_acquire_records()
        assert leader.offsets == (20, 20)
