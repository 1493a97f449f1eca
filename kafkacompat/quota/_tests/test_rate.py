"""Rates and token buckets by hand-made times. The expected values follow from the arithmetic of Kafka's Rate and TokenBucket."""

from __future__ import annotations

import math
import random
from math import isnan

import pytest

from kafkacompat.quota.rate import (
    THROTTLE_MS_MAX,
    Average,
    Rate,
    TokenBucket,
    milliseconds,
    rounded_ms,
)


def test_a_rate_is_measured_over_all_windows_but_one_from_the_first_record_on() -> None:
    rate = Rate(11, 1000)
    rate.record(1000, 5_000)
    assert rate.window_ms(5_000) == 10_000
    assert rate.measure(5_000) == 100.0
    assert rate.measure(5_500) == 1000 / 10.5


def test_a_client_over_its_quota_pauses_until_the_rate_is_down_to_it() -> None:
    rate = Rate(11, 1000)
    rate.record(2000, 0)
    assert rate.throttle_ms(100, 0) == 10_000
    assert rate.throttle_ms(200, 0) == 0
    assert rate.throttle_ms(199, 0) == 50


def test_each_window_has_a_sample_and_the_oldest_ones_are_forgotten() -> None:
    rate = Rate(3, 1000)
    for second in range(3):
        rate.record(10, second * 1000)
    assert rate.window_ms(2_500) == 2_500
    assert rate.measure(2_500) == 30 / 2.5
    # The sample of second 0 has its last event at 0.
    assert rate.measure(2_999) == 30 / 2.999
    assert rate.measure(3_000) == 20 / 2.0
    assert rate.measure(10_000) == 0.0


def test_a_sample_that_ends_in_the_measured_time_counts_from_its_beginning() -> None:
    rate = Rate(2, 1000)
    rate.record(10, 0)
    rate.record(10, 900)
    rate.record(10, 1_500)
    rate.record(10, 2_600)
    assert rate.window_ms(2_700) == 2_700
    assert rate.measure(2_700) == 40 / 2.7


def test_the_window_that_comes_round_is_used_again() -> None:
    rate = Rate(2, 1000)
    for second in range(10):
        rate.record(7, second * 1000)
    assert rate.measure(9_000) == 14 / 1.0


def test_unrecorded_amounts_do_not_count() -> None:
    rate = Rate(11, 1000)
    rate.record(5000, 100)
    rate.record(-5000, 100)
    assert rate.measure(100) == 0.0


def test_a_bucket_begins_full_and_refills_up_to_its_burst() -> None:
    bucket = TokenBucket(11, 1000)
    assert bucket.tokens(2.0, 77) == 22
    bucket.record(30, 2.0, 77)
    assert bucket.throttle_ms(2.0, 77) == 4_000
    assert bucket.throttle_ms(2.0, 3_077) == 1_000
    assert bucket.throttle_ms(2.0, 4_077) == 0
    assert bucket.tokens(2.0, 100_000) == 22


@pytest.mark.parametrize(
    ("exact", "told"), [(0.4, 0), (0.5, 1), (1.5, 2), (2.5, 3), (1e300, THROTTLE_MS_MAX)]
)
def test_times_are_rounded_as_java_rounds(exact: float, told: int) -> None:
    assert rounded_ms(exact) == told


def test_an_average_is_of_the_measured_time() -> None:
    average = Average(11, 1000)
    assert isnan(average.measure(0))
    average.record(100, 0)
    average.record(300, 5_000)
    assert average.measure(5_000) == pytest.approx(200)
    assert average.measure(11_500) == pytest.approx(300)
    assert isnan(average.measure(30_000))


def test_the_short_way_to_no_throttle_gives_what_the_long_way_gives() -> None:
    """The same events and questions, to a rate that always takes the long way."""
    chance = random.Random(5)
    for _ in range(200):
        windows, window_ms = chance.choice(((11, 1000), (2, 500), (1, 100)))
        short, long = Rate(windows, window_ms), Rate(windows, window_ms)
        long._least_s = 0.0
        now_ms = 1_000
        for _ in range(300):
            now_ms += chance.choice((0, 1, 37, window_ms, 3 * window_ms, 40 * window_ms))
            value = chance.randrange(1000)
            bound = chance.choice((1.0, 50.0, 1000.0, 1e9, math.inf))
            short.record(value, now_ms)
            long.record(value, now_ms)
            assert short.throttle_ms(bound, now_ms) == long.throttle_ms(bound, now_ms)
            if chance.random() < 0.2:
                short.record(-value, now_ms)
                long.record(-value, now_ms)
            assert short.measure(now_ms) == long.measure(now_ms)


def test_a_millisecond_is_the_same_in_seconds() -> None:
    assert all(milliseconds(ms / 1000) == ms for ms in range(200_000))
    assert milliseconds(1e7 + 0.0019) == 10_000_000_001
