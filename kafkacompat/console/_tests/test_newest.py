"""The newest records of several partitions: in order, and over all pages each once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kafkacompat.console.core.newest import Stand, newest_of


def test_the_newest_come_first_whatever_partition_they_are_in() -> None:
    stands = {
        0: Stand(((10, 5), (30, 6)), 5, 9),
        1: Stand(((20, 0), (40, 2)), 0, 3),
        2: Stand((), 7, 7),
    }
    order, ends = newest_of(stands, 3)
    assert order == [(1, 2), (0, 6), (1, 0)]
    assert ends == {0: 6, 1: 0, 2: 7}
    order, ends = newest_of(stands, 10)
    assert order == [(1, 2), (0, 6), (1, 0), (0, 5)]
    assert ends == {0: 5, 1: 0, 2: 7}


def test_a_stretch_without_records_is_passed() -> None:
    assert newest_of({0: Stand((), 100, 900)}, 5) == ([], {0: 100})


@given(
    st.lists(st.lists(st.integers(0, 50), max_size=12), min_size=1, max_size=4),
    st.integers(1, 5),
)
def test_pages_have_every_record_once(logs: list[list[int]], limit: int) -> None:
    """Timestamps within a partition may be in any order."""
    ends = {partition: len(log) for partition, log in enumerate(logs)}
    seen: list[tuple[int, int]] = []
    for _ in range(sum(map(len, logs)) + 1):
        stands = {}
        for partition, log in enumerate(logs):
            start = max(0, ends[partition] - limit)
            records = tuple((log[offset], offset) for offset in range(start, ends[partition]))
            stands[partition] = Stand(records, start, ends[partition])
        order, ends = newest_of(stands, limit)
        if not order:
            break
        seen += order
    assert sorted(seen) == [(p, offset) for p, log in enumerate(logs) for offset in range(len(log))]
    if all(log == sorted(log) for log in logs):
        times = [logs[partition][offset] for partition, offset in seen]
        assert times == sorted(times, reverse=True)
