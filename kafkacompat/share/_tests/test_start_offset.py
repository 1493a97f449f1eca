"""The start offset moves over what is done, and with the log."""

from __future__ import annotations

from kafkacompat.share._tests.leader import (
    ACCEPT,
    ACKNOWLEDGED,
    ACQUIRED,
    ARCHIVED,
    AVAILABLE,
    LOCK_MS,
    RELEASE,
    Leader,
)


def given(*batches: tuple[int, int]) -> Leader:
    leader = Leader(batches[0][0])
    for batch in batches:
        leader.fetch(batch)
    return leader


class TestAcknowledged:
    def test_the_start_offset_waits_for_the_first_record(self) -> None:
        leader = given((0, 4), (5, 9), (10, 14))
        leader.finish(5, 9, ACCEPT)
        assert leader.offsets == (0, 14)
        assert leader.partition.delivery_complete_count == 5
        leader.finish(0, 4, ACCEPT)
        assert leader.offsets == (10, 14)
        assert leader.partition.in_flight_batches() == 1
        assert leader.partition.delivery_complete_count == 0

    def test_a_batch_that_is_not_done_stays(self) -> None:
        leader = given((0, 4), (5, 9))
        leader.finish(0, 6, ACCEPT)
        assert leader.offsets == (7, 9)
        assert leader.partition.in_flight_batches() == 1
        assert leader.partition.in_flight_records() == 3
        leader.finish(7, 9, ACCEPT)
        assert leader.offsets == (10, 10)
        assert leader.partition.in_flight_records() == 0

    def test_the_start_offset_passes_over_what_the_log_lacks(self) -> None:
        leader = given((0, 4), (10, 14))
        leader.finish(0, 4, ACCEPT)
        assert leader.offsets == (10, 14)

    def test_a_wakeup_says_that_it_has_moved(self) -> None:
        leader = given((0, 4), (5, 9))
        leader.partition.take_wakeup()
        leader.finish(5, 9, ACCEPT)
        assert not leader.partition.take_wakeup()
        leader.finish(0, 4, ACCEPT)
        assert leader.partition.take_wakeup()
        assert not leader.partition.take_wakeup()


class TestLogStart:
    def test_nothing_in_flight(self) -> None:
        leader = Leader(5)
        leader.partition.update_cache_and_offsets(20)
        assert leader.offsets == (20, 20)
        assert leader.partition.next_fetch_offset() == 20

    def test_the_start_offset_does_not_move_back(self) -> None:
        leader = Leader(5)
        leader.partition.update_cache_and_offsets(4)
        assert leader.offsets == (5, 5)

    def test_available_records_are_archived(self) -> None:
        leader = given((0, 4), (5, 9), (10, 14))
        leader.finish(0, 9, RELEASE)
        leader.partition.update_cache_and_offsets(7)
        assert leader.runs == [
            (0, 4, ARCHIVED, 1),
            (5, 6, ARCHIVED, 1),
            (7, 9, AVAILABLE, 1),
            (10, 14, ACQUIRED, 1),
        ]
        assert leader.offsets == (7, 14)
        assert leader.partition.delivery_complete_count == 0
        assert leader.partition.next_fetch_offset() == 7

    def test_terminal_records_fall_out_of_the_count(self) -> None:
        leader = given((0, 4), (5, 9), (10, 14))
        leader.finish(1, 6, ACCEPT)
        leader.finish(9, 11, ACCEPT)
        assert leader.partition.delivery_complete_count == 9
        leader.partition.update_cache_and_offsets(6)
        assert leader.partition.delivery_complete_count == 4
        leader.partition.update_cache_and_offsets(11)
        assert leader.partition.delivery_complete_count == 1

    def test_beyond_everything_in_flight(self) -> None:
        leader = given((0, 4), (5, 9))
        leader.partition.update_cache_and_offsets(20)
        assert leader.offsets == (20, 20)
        assert leader.partition.next_fetch_offset() == 20
        assert leader.fetch((20, 24)) == [(20, 24, 1)]
        leader.written(leader.expire(LOCK_MS))
        assert leader.runs == [(0, 4, ARCHIVED, 1), (5, 9, ARCHIVED, 1), (20, 24, AVAILABLE, 1)]
        leader.fetch((20, 24))
        leader.finish(20, 24, ACCEPT)
        assert leader.runs == []

    def test_the_start_offset_does_not_move_back_when_the_last_lock_below_it_ends(self) -> None:
        leader = given((0, 4), (5, 9))
        leader.partition.update_cache_and_offsets(20)
        leader.written(leader.expire(LOCK_MS))
        assert leader.offsets == (20, 20)
        assert leader.partition.in_flight_batches() == 0

    def test_into_what_the_log_lacks(self) -> None:
        leader = given((0, 4), (10, 14))
        leader.finish(2, 2, ACCEPT)
        leader.partition.update_cache_and_offsets(7)
        leader.finish(10, 14, ACCEPT)
        assert leader.offsets == (7, 14)
        leader.written(leader.release())
        assert leader.offsets == (15, 15)

    def test_gaps_below_it_are_not_fetched(self) -> None:
        leader = Leader(0, [(0, 4, AVAILABLE, 1), (20, 24, ACKNOWLEDGED, 1)])
        leader.partition.update_cache_and_offsets(8)
        assert leader.partition.next_fetch_offset() == 8
        leader.partition.update_cache_and_offsets(30)
        assert leader.partition.next_fetch_offset() == 30

    def test_a_wakeup_says_so(self) -> None:
        leader = Leader(5)
        leader.partition.update_cache_and_offsets(20)
        assert leader.partition.take_wakeup()
