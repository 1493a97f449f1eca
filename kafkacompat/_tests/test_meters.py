"""Numbers for a scrape: histograms, and times of the last minute."""

from __future__ import annotations

from math import isnan

import pytest

from kafkacompat.meters import (
    APART_MS,
    KEPT,
    RATE_MS,
    RECENT_MAX,
    RECENT_MS,
    Histogram,
    RateOfTotal,
    RecentMax,
    RecentTimes,
)


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


def test_the_rate_of_a_total_is_of_the_time_since_the_first_reading_until_that_is_long_ago() -> None:
    rate = RateOfTotal(5_000, 100)
    assert rate.read(5_000, 100) == 0
    assert rate.read(7_000, 120) == 10
    assert rate.read(15_000, 120) == 2


def test_the_rate_of_a_total_forgets() -> None:
    rate, total = RateOfTotal(0), 0
    for second in range(1, 121):
        total += 10 if second <= 60 else 2
        rate.read(1000 * second, total)
    assert rate.read(121_000, total + 2) == pytest.approx(2)


def test_many_readers_do_not_shorten_the_time_and_their_readings_are_not_kept() -> None:
    rate = RateOfTotal(0)
    for number in range(RATE_MS):
        rate.read(2 * number, number)
    assert rate.read(2 * RATE_MS, RATE_MS) == pytest.approx(500)
    assert len(rate._readings) <= RATE_MS // APART_MS + 2


def test_the_largest_is_of_the_last_minute_or_of_the_time_since_the_reading_before() -> None:
    largest = RecentMax()
    assert isnan(largest.read(0, 0))
    assert largest.read(1_000, 50) == 50
    assert largest.read(2_000, 70) == 70
    assert largest.read(3_000, 10) == 70
    assert largest.read(2_000 + RECENT_MS, 0) == 10
    assert isnan(largest.read(3_000 + RECENT_MS, 0))
    assert largest.read(9 * RECENT_MS, 20) == 20
