"""Numbers for a scrape: histograms, and times of the last minute."""

from __future__ import annotations

from math import isnan

from kafkacompat.meters import KEPT, RECENT_MAX, RECENT_MS, Histogram, RecentTimes


def test_a_histogram_counts_all_and_keeps_the_newest() -> None:
    histogram = Histogram()
    for value in range(2 * KEPT):
        histogram.note(-value)
    assert histogram.count == 2 * KEPT
    assert histogram.ordered() == sorted(-value for value in range(KEPT, 2 * KEPT))


def test_recent_times_forget_what_is_older_than_a_minute() -> None:
    times = RecentTimes()
    assert all(map(isnan, times.mean_and_max(0)))
    times.note(10, 1_000)
    times.note(30, 2_000)
    assert times.mean_and_max(2_000) == (20, 30)
    assert times.mean_and_max(1_000 + RECENT_MS) == (30, 30)
    assert all(map(isnan, times.mean_and_max(2_000 + RECENT_MS)))


def test_the_number_of_recent_times_is_bounded() -> None:
    times = RecentTimes()
    for _ in range(RECENT_MAX):
        times.note(1_000, 0)
    for _ in range(RECENT_MAX):
        times.note(1, 0)
    assert times.mean_and_max(0) == (1, 1)
