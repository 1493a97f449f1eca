"""Percentiles as Kafka's histograms compute them."""

from __future__ import annotations

import pytest

from kafkacompat.metrics.histograms import percentile


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
