"""The measuring of rates, without a broker."""

from __future__ import annotations

import pytest

from interop_tests.quotas.rates import rate_of_bursts

SPAN_S, WINDOW_S, BURST = 33.0, 11.0, 1100.0


def bursts(period_s: float, offset_s: float) -> list[tuple[float, float]]:
    """Samples of 50 s, ten a second."""
    return [(number / 10, BURST * ((number / 10 + offset_s) // period_s)) for number in range(500)]


@pytest.mark.parametrize("period_s", [10.5, 11, 11.5, 2, 5])
@pytest.mark.parametrize("offset_s", range(0, 11, 2))
def test_a_rate_does_not_depend_on_the_time_of_the_first_burst(period_s: float, offset_s: float) -> None:
    measured = rate_of_bursts(bursts(period_s, offset_s), SPAN_S, WINDOW_S)
    assert measured == pytest.approx(BURST / period_s, rel=0.02)


def test_a_steady_rate_is_measured_as_it_is() -> None:
    assert rate_of_bursts([(at / 10, 5.0 * at) for at in range(500)], SPAN_S, WINDOW_S) == pytest.approx(50)


def test_too_few_samples_are_refused() -> None:
    with pytest.raises(AssertionError):
        rate_of_bursts(bursts(11, 0)[:400], SPAN_S, WINDOW_S)
