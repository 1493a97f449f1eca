"""Records that were delivered often are delivered in small numbers."""

from __future__ import annotations

import pytest

from kafkacompat.share._tests.leader import ARCHIVED, AVAILABLE, Leader
from kafkacompat.share.acquisition import throttled_from


@pytest.mark.parametrize(("limit", "count"), [(2, 2), (3, 2), (4, 2), (5, 3), (6, 3), (7, 4), (10, 5)])
def test_half_of_the_limit(limit: int, count: int) -> None:
    assert throttled_from(limit) == count


def given(*batches: tuple[int, int, int], limit: int = 5) -> Leader:
    leader = Leader(batches[0][0], [(first, last, AVAILABLE, count) for first, last, count in batches])
    leader.configure(delivery_count_limit=limit)
    return leader


def test_before_half_of_the_limit_batches_are_whole() -> None:
    assert given((0, 99, 2)).fetch((0, 99)) == [(0, 99, 3)]


def test_from_half_of_the_limit_half_a_batch() -> None:
    leader = given((0, 99, 3))
    assert leader.fetch((0, 99)) == [(0, 49, 4)]
    assert leader.fetch((0, 99)) == [(50, 99, 4)]


def test_half_as_many_with_each_further_delivery() -> None:
    leader = given((0, 499, 5), limit=10)
    assert leader.fetch((0, 499)) == [(0, 249, 6)]
    leader.written(leader.release())
    assert leader.fetch((0, 499)) == [(0, 124, 7)]
    leader.written(leader.release())
    assert leader.fetch((0, 499)) == [(0, 61, 8)]
    leader.written(leader.release())
    assert leader.fetch((0, 499)) == [(0, 30, 9)]
    leader.written(leader.release())
    assert leader.fetch((0, 499)) == [(0, 0, 10)]
    leader.written(leader.release())
    assert leader.offsets == (1, 499)
    assert leader.fetch((0, 499), at=1) == [(1, 1, 10)]


def test_at_least_one() -> None:
    assert given((0, 2, 8), limit=10).fetch((0, 2)) == [(0, 0, 9)]


def test_the_last_delivery_is_alone() -> None:
    leader = given((0, 9, 4))
    assert leader.fetch((0, 9)) == [(0, 0, 5)]
    assert leader.fetch((0, 9)) == [(1, 1, 5)]


def test_with_two_deliveries_there_is_no_alone() -> None:
    assert given((0, 9, 1), limit=2).fetch((0, 9)) == [(0, 9, 2)]


def test_records_before_the_last_delivery_of_another_go_first() -> None:
    leader = Leader(0, [])
    leader.configure(delivery_count_limit=4)
    leader.fetch((0, 9))
    for _ in range(2):
        leader.finish(5, 5, 2)
        leader.fetch((0, 9))
    leader.written(leader.release())
    assert leader.fetch((0, 9)) == [(0, 4, 2)]
    assert leader.fetch((0, 9)) == [(5, 5, 4)]
    assert leader.fetch((0, 9)) == [(6, 9, 2)]


def test_nothing_else_is_acquired_with_them() -> None:
    leader = given((0, 9, 3), (10, 19, 1))
    assert leader.fetch((0, 9), (10, 19), (20, 29)) == [(0, 4, 4)]


def test_records_delivered_often_are_not_acquired_with_others() -> None:
    leader = given((0, 9, 1), (10, 19, 3))
    assert leader.fetch((0, 9), (10, 19), (20, 29)) == [(0, 9, 2)]
    assert leader.fetch((0, 9), (10, 19), (20, 29)) == [(10, 14, 4)]
    assert leader.fetch((0, 9), (10, 19), (20, 29)) == [(15, 19, 4)]
    assert leader.fetch((0, 9), (10, 19), (20, 29)) == [(20, 29, 1)]


def test_the_bound_does_not_count_after_more_records_of_few_deliveries() -> None:
    leader = Leader()
    leader.configure(delivery_count_limit=4)
    leader.fetch((0, 9))
    leader.finish(6, 9, 2)
    leader.fetch((0, 9))
    leader.written(leader.release())
    assert leader.runs == [(0, 5, AVAILABLE, 1), (6, 9, AVAILABLE, 2)]
    assert leader.fetch((0, 9)) == [(0, 5, 2), (6, 9, 3)]


def test_the_record_limit_counts_too() -> None:
    assert given((0, 9, 3)).fetch((0, 9), most=2, exact=True) == [(0, 1, 4)]
    assert given((0, 9, 3)).fetch((0, 9), most=7, exact=True) == [(0, 4, 4)]


def test_the_limit_is_that_of_now() -> None:
    leader = given((0, 9, 3))
    leader.configure(delivery_count_limit=10)
    assert leader.fetch((0, 9)) == [(0, 9, 4)]
    leader.configure(delivery_count_limit=4)
    leader.written(leader.release())
    assert leader.runs == []
    assert leader.offsets == (10, 10)


def test_archived_neighbours_do_not_count() -> None:
    leader = Leader(0, [])
    leader.fetch((0, 9))
    leader.finish(0, 9, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3)
    assert leader.runs == [(0, 2, AVAILABLE, 1), (3, 9, ARCHIVED, 1)]
    assert leader.fetch((0, 9)) == [(0, 2, 2)]
