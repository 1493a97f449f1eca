"""Percentiles as Kafka's histograms compute them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkacompat.metrics.families import QUANTILES, percentile, weighted_percentiles


@pytest.mark.parametrize(
    ("values", "quantile", "expected"),
    [
        ([], 0.5, 0.0),
        ([7.0], 0.999, 7.0),
        ([1.0, 2.0, 3.0], 0.5, 2.0),
        ([1.0, 2.0, 3.0, 4.0], 0.5, 2.5),
        ([1.0, 2.0, 3.0, 4.0], 0.75, 3.75),
        ([1.0, 2.0, 3.0, 4.0], 0.99, 4.0),
        ([float(value) for value in range(1, 100)], 0.95, 95.0),
    ],
)
def test_percentiles(values: list[float], quantile: float, expected: float) -> None:
    assert percentile(values, quantile) == pytest.approx(expected)


@given(st.lists(st.integers(0, 50), max_size=40), st.sampled_from([0.001, 1.0, 64.0]))
def test_equal_weights_change_nothing(values: list[int], weight: float) -> None:
    found = weighted_percentiles(values, [weight] * len(values))
    assert found == pytest.approx([percentile(sorted(values), quantile) for quantile, _ in QUANTILES])


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 9)), min_size=1, max_size=30))
def test_a_value_counts_as_often_as_its_weight_tells(weighted: list[tuple[int, int]]) -> None:
    values, weights = [value for value, _ in weighted], [weight for _, weight in weighted]
    repeated = sorted(value for value, weight in weighted for _ in range(weight))
    if 1 in weights:
        expected = [percentile(repeated, quantile) for quantile, _ in QUANTILES]
        assert weighted_percentiles(values, weights) == pytest.approx(expected)
    assert set(weighted_percentiles(values, [*weights[:-1], 1e9])) == {values[-1]}


def test_a_weight_of_nothing_counts_nothing() -> None:
    assert weighted_percentiles([5.0, 1.0, 2.0], [1.0, 0.0, 0.0]) == [5.0] * len(QUANTILES)
