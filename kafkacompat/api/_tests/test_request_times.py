"""Which times of requests are kept, and how much each counts."""

from __future__ import annotations

from math import exp, log

import pytest

from kafkacompat.api.meters import DECAY, KEPT, SampledTimes, Times
from kafkacompat.metrics.families import weighted_percentiles

LOCAL, SIZE = 1, 5
SLOW_S, QUICK_S = 2.0, 0.001


def times(local_s: float) -> Times:
    return Times(0.0, local_s, 0.25, 0.0, 1.0, 7)


def added(
    sample: SampledTimes, count: int, local_s: float, requests: int, from_s: float, until_s: float
) -> None:
    """So many timed requests at equal intervals."""
    for number in range(count):
        sample.add(requests, from_s + (until_s - from_s) * number / count, times(local_s))


def median_and_more(sample: SampledTimes) -> tuple[float, float, float]:
    """The percentiles 50, 95 and 99.9 of the local time."""
    found = weighted_percentiles(sample.column(LOCAL), weights(sample))
    return found[0], found[2], found[5]


def weights(sample: SampledTimes) -> list[float]:
    found = sample.log_weights()
    return [exp(each - max(found)) for each in found]


def share(sample: SampledTimes, local_s: float) -> float:
    """How much the requests with this time count, of all."""
    counted = list(zip(sample.column(LOCAL), weights(sample), strict=True))
    return sum(weight for value, weight in counted if value == local_s) / sum(weight for _, weight in counted)


def test_all_are_kept_as_long_as_there_is_room() -> None:
    sample = SampledTimes()
    for number in range(KEPT):
        sample.add(1, 100.0, Times(number, 0.5, 0.25, 0.0, 1.0, 7))
    assert len(sample) == KEPT
    assert sorted(sample) == [(number, 0.5, 0.25, 0.0, 1.0, 7) for number in range(KEPT)]
    assert sorted(sample.column(0)) == list(range(KEPT))
    assert sample.column(SIZE) == [7] * KEPT
    assert sorted(sample.totals()) == [number + 1.75 for number in range(KEPT)]
    assert weights(sample) == [1.0] * KEPT


def test_no_more_are_kept_than_there_is_room_for() -> None:
    sample = SampledTimes()
    added(sample, 5 * KEPT, 0.5, 1, 100.0, 101.0)
    assert len(sample) == len(list(sample)) == len(sample.column(0)) == len(sample.log_weights()) == KEPT


def test_an_older_time_counts_less() -> None:
    """As in Kafka: half as much after 46 s."""
    sample = SampledTimes()
    for at_s in (100.0, 100.0 + log(2) / DECAY, 100.0 + 1 / DECAY):
        sample.add(1, at_s, times(at_s))
    assert weights(sample) == pytest.approx([exp(-1), 2 * exp(-1), 1.0])


def test_a_time_that_stands_for_more_requests_counts_more() -> None:
    sample = SampledTimes()
    for requests in (1, 8, 64):
        sample.add(requests, 100.0, times(requests))
    assert weights(sample) == pytest.approx([1 / 64, 8 / 64, 1.0])


@pytest.mark.parametrize("slow_from", [1, 64])
def test_a_burst_counts_as_all_of_its_requests(slow_from: int) -> None:
    """Two thirds of the requests are slow, or quick, and come in a burst, in which one in 64 is timed."""
    sample = SampledTimes()
    of_burst, others = (SLOW_S, QUICK_S) if slow_from == 64 else (QUICK_S, SLOW_S)
    added(sample, 3_000, others, 8, 100.0, 100.5)
    added(sample, 750, of_burst, 64, 100.5, 101.0)
    assert share(sample, of_burst) == pytest.approx(2 / 3, rel=0.05)
    assert median_and_more(sample)[0] == of_burst


@pytest.mark.parametrize("many", [1, 20])
def test_what_is_kept_shows_all_requests(many: int) -> None:
    """However many: of two kinds in turn, one in ten is slow."""
    sample = SampledTimes()
    for number in range(many * 1000):
        sample.add(8, 100.0 + number / 1000, times(SLOW_S if number % 10 == 3 else QUICK_S))
    assert share(sample, SLOW_S) == pytest.approx(0.1, rel=0.1)


def test_a_slow_second_is_shown_for_minutes() -> None:
    """A scrape may come half a minute later, when the newest thousand times are of others."""
    sample = SampledTimes()
    added(sample, 150, SLOW_S, 64, 100.0, 101.0)
    added(sample, 30 * 150, QUICK_S, 64, 101.0, 131.0)
    assert share(sample, SLOW_S) == pytest.approx(exp(-30 * DECAY) / _sum_of_decays(30), rel=0.3)
    assert median_and_more(sample) == (QUICK_S, QUICK_S, SLOW_S)


def _sum_of_decays(seconds: int) -> float:
    return sum(exp(-second * DECAY) for second in range(seconds + 1))


def test_a_burst_is_forgotten_where_few_requests_follow() -> None:
    sample = SampledTimes()
    added(sample, 2_000, SLOW_S, 64, 100.0, 110.0)
    added(sample, 120, QUICK_S, 1, 110.0, 1200.0)
    assert median_and_more(sample)[0] == QUICK_S


def test_a_long_life_does_not_wear_it_out() -> None:
    """The machine's clock may show years. After a silence of days only what came after it counts."""
    sample = SampledTimes()
    year_s = 365 * 86_400.0
    added(sample, 2 * KEPT, SLOW_S, 64, year_s, year_s + 60)
    added(sample, 100, QUICK_S, 1, 2 * year_s, 2 * year_s + 10)
    assert median_and_more(sample) == (QUICK_S,) * 3
    added(sample, 10 * KEPT, 0.5, 1, 2 * year_s + 20, 2 * year_s + 30)
    assert share(sample, QUICK_S) == pytest.approx(100 * exp(-20 * DECAY) / (10 * KEPT), rel=0.4)
