"""A search: each record is looked at once, however many requests it takes, and what is found is all that matches."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkacompat.console.core.search import (
    FIRST_SPAN,
    GROWTH,
    SEARCHED_BYTES,
    STRETCH_BYTES,
    STRETCH_RECORDS,
    Amount,
    Frontier,
    Hit,
    Outcome,
    Stretch,
    Wanted,
)


def test_a_search_goes_from_the_end_to_the_first_offset() -> None:
    frontier = Frontier({0: (100, 1_000)}, 9)
    stretch = frontier.next()
    assert stretch == Stretch(0, 1_000 - FIRST_SPAN, 1_000)
    frontier.looked(stretch, Amount(1, 10), 5)
    assert frontier.outcome() == Outcome([], Amount(1, 10), 5, 700, (800,))
    stretch = frontier.next()
    assert stretch == Stretch(0, 100, 800), "few records: the next stretch is longer"
    frontier.looked(stretch, Amount(700, 10), 3)
    assert frontier.next() is None
    assert frontier.outcome() == Outcome([], Amount(701, 20), None, 0, (100,))


def test_the_partition_with_the_newest_records_is_next() -> None:
    frontier = Frontier({0: (0, 9_000), 1: (0, 9_000), 2: (50, 50)}, 9)
    seen = []
    for oldest_ms in (500, 900, 300, 100):
        stretch = frontier.next()
        assert stretch is not None
        seen.append(stretch.partition)
        frontier.looked(stretch, Amount(STRETCH_RECORDS), oldest_ms)
    assert seen == [0, 1, 1, 0]


def test_a_search_ends_when_no_partition_can_have_newer_ones_than_those_found() -> None:
    frontier = Frontier({0: (0, 9_000), 1: (0, 9_000)}, 2)
    first = frontier.next()
    assert first is not None
    frontier.looked(first, Amount(200), 100, [Hit(110, 8_900, Amount(99)), Hit(120, 8_950, Amount(49))])
    second = frontier.next()
    assert second == Stretch(1, 8_800, 9_000), "enough is found, but of partition 1 nothing is known"
    frontier.looked(second, Amount(200), 115, [Hit(130, 8_990, Amount(9))])
    assert frontier.next() is None
    told = frontier.outcome()
    assert told.order == [(1, 8_990), (0, 8_950)]
    assert told.ends == (8_901, 8_800), "what is not shown is found again"
    assert (told.amount.records, told.back_to_ms, told.left) == (99 + 200, 115, 8_901 + 8_800)


def test_a_stretch_of_large_records_is_given_up_for_a_shorter_one_down_to_one_record() -> None:
    frontier = Frontier({0: (0, FIRST_SPAN)}, 9)
    large = Amount(1, 2 * STRETCH_BYTES + 1)
    spans = []
    for _ in range(9):
        stretch = frontier.next()
        assert stretch is not None
        assert stretch.end == FIRST_SPAN
        spans.append(stretch.end - stretch.start)
        if not frontier.is_too_long(stretch, large):
            break
        frontier.shorten(stretch)
    assert spans[-1] == 1
    frontier.looked(stretch, large, 1)
    assert frontier.outcome().left == FIRST_SPAN - 1


def test_a_stretch_is_given_up_for_its_records_too() -> None:
    frontier = Frontier({0: (0, FIRST_SPAN)}, 9)
    stretch = Stretch(0, 0, 10**6)
    assert frontier.is_too_long(stretch, Amount(2 * STRETCH_RECORDS + 1))
    assert not frontier.is_too_long(stretch, Amount(2 * STRETCH_RECORDS))


LOGS = st.lists(st.lists(st.tuples(st.booleans(), st.integers(0, 9)), max_size=60), min_size=1, max_size=4)


@given(LOGS, st.integers(1, 5), st.integers(1, 9), st.booleans())
def test_requests_that_go_on_find_every_record_once_and_count_it_once(
    logs: list[list[tuple[bool, int]]], limit: int, stretches: int, in_order: bool
) -> None:
    """A request ends after some stretches, or when it has found enough. Timestamps may be in any order."""
    if in_order:
        logs = [[(hit, at) for at, (hit, _) in enumerate(log)] for log in logs]
    ends = tuple(len(log) for log in logs)
    found: list[tuple[int, int]] = []
    looked = 0
    for _ in range(500):
        frontier = Frontier({number: (0, end) for number, end in enumerate(ends)}, limit)
        for _ in range(stretches):
            stretch = frontier.next()
            if stretch is None:
                break
            stretch = stretch._replace(start=max(stretch.start, stretch.end - 3))
            log = logs[stretch.partition]
            matching = [at for at in range(stretch.start, stretch.end) if log[at][0]]
            hits = [
                Hit(log[at][1], at, Amount(stretch.end - at - 1))
                for at in matching[-frontier.room(stretch) :]
            ]
            oldest_ms = min(log[at][1] for at in range(stretch.start, stretch.end))
            frontier.looked(stretch, Amount(stretch.end - stretch.start), oldest_ms, hits)
        is_complete = frontier.next() is None
        told = frontier.outcome()
        if in_order and is_complete:
            times = [logs[partition][offset][1] for partition, offset in told.order]
            assert times == sorted(times, reverse=True)
            hidden = [at for number, log in enumerate(logs) for hit, at in log[: told.ends[number]] if hit]
            assert not times or not hidden or max(hidden) <= times[-1], "those that are shown are the newest"
        found += told.order
        looked += told.amount.records
        ends = told.ends
        if not told.left:
            break
    assert sorted(found) == [(p, at) for p, log in enumerate(logs) for at, (hit, _) in enumerate(log) if hit]
    assert looked == sum(map(len, logs))


def test_growth_ends_where_a_stretch_would_be_too_large() -> None:
    frontier = Frontier({0: (0, 10**9)}, 9)
    for _ in range(20):
        stretch = frontier.next()
        assert stretch is not None
        frontier.looked(stretch, Amount(stretch.end - stretch.start), 1)
    stretch = frontier.next()
    assert stretch is not None
    assert STRETCH_RECORDS / GROWTH < stretch.end - stretch.start <= STRETCH_RECORDS


@pytest.mark.parametrize(
    ("key", "wanted", "has"),
    [
        (b"customer-1", "customer-1", True),
        (b"customer-10", "customer-1", False),
        (None, "customer-1", False),
        (b"", "", True),
        ("caf\u00e9".encode(), "caf\u00e9", True),
        (b"\x00\x07", "0x0007", True),
        (b"0x0007", "0x0007", True),
        (b"\x00", "0x0", False),
    ],
)
def test_a_key_is_the_whole_key_as_text_or_in_hex(key: bytes | None, wanted: str, has: bool) -> None:
    assert Wanted(wanted, None, None, None).has_key(key) is has


@pytest.mark.parametrize(
    ("value", "wanted", "has"),
    [
        (b'{"city":"Paris"}', "Paris", True),
        (b'{"city":"paris"}', "Paris", False),
        ('{"drink":"caf\u00e9"}'.encode(), "caf\u00e9", True),
        (b'{"drink":"caf\\u00e9"}', "caf\u00e9", True),
        (b'{"said":"a \\"b\\""}', 'a "b"', True),
        (b"\xff\x00Paris", "Paris", True),
        (None, "Paris", False),
        (b"x" * SEARCHED_BYTES + b"Paris", "Paris", False),
        (b"x" * (SEARCHED_BYTES - 5) + b"Paris", "Paris", True),
    ],
)
def test_text_is_found_in_a_value_as_written_or_as_json_escapes_it(
    value: bytes | None, wanted: str, has: bool
) -> None:
    assert Wanted(None, wanted, None, None).has_text(value) is has


def test_a_time_is_from_the_first_on_and_before_the_last() -> None:
    wanted = Wanted(None, None, 10, 20)
    assert [wanted.is_in_time(at) for at in (9, 10, 19, 20, None)] == [False, True, True, False, False]
    assert Wanted("k", None, None, None).is_in_time(None)
    assert Wanted(None, None, 10, None).is_in_time(10**15)
