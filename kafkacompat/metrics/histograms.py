"""Histograms of Kafka's MBeans: percentiles of the newest values, and the number of all."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

from kafkacompat.metrics.families import NO_LABELS, Families, Labels, Sample, counters, gauges

if TYPE_CHECKING:
    from kafkacompat.meters import Histogram

QUANTILES = ((0.5, "0.50"), (0.75, "0.75"), (0.95, "0.95"), (0.98, "0.98"), (0.99, "0.99"), (0.999, "0.999"))
"""Those of Kafka's histograms, with the labels that the exporter's rules give them."""


def histogram_families(name: str, text: str, histogram: Histogram) -> Families:
    """The percentiles, and their number under the name with the suffix `_count`."""
    return labeled_histogram_families(name, text, [(NO_LABELS, histogram)])


def labeled_histogram_families(
    name: str, text: str, histograms: Sequence[tuple[Labels, Histogram]]
) -> Families:
    """The same of several histograms with the same names."""
    yield gauges(name, f"Percentiles: {text}.", _quantiles(histograms))
    yield counters(
        f"{name}_count", f"Number: {text}.", ((labels, histogram.count) for labels, histogram in histograms)
    )


def _quantiles(histograms: Sequence[tuple[Labels, Histogram]]) -> Iterator[Sample]:
    for labels, histogram in histograms:
        values = histogram.ordered()
        for quantile, label in QUANTILES:
            yield {**labels, "quantile": label}, percentile(values, quantile)


def percentile(ordered: Sequence[float], quantile: float) -> float:
    """As Kafka's histograms have it: between two values by their distance; 0 without values."""
    if not ordered:
        return 0.0
    position = quantile * (len(ordered) + 1)
    if position < 1:
        return ordered[0]
    if position >= len(ordered):
        return ordered[-1]
    below = ordered[int(position) - 1]
    return below + (position - int(position)) * (ordered[int(position)] - below)


def weighted_percentiles(values: Sequence[float], weights: Sequence[float]) -> list[float]:
    """Those of QUANTILES, where each value counts as often as its weight tells; any scale of weights will do. With equal
    weights they are those of `percentile`."""
    if not values:
        return [0.0] * len(QUANTILES)
    order = sorted(range(len(values)), key=values.__getitem__)
    ends = list(accumulate([weights[at] for at in order]))
    unit = min(weights)
    return [_at(quantile * (ends[-1] + unit), unit, ends, order, values) for quantile, _ in QUANTILES]


def _at(
    position: float, unit: float, ends: Sequence[float], order: Sequence[int], values: Sequence[float]
) -> float:
    """The value at a position, if each is repeated up to its end: between two values only in the first unit."""
    at = bisect_left(ends, position)
    if at == len(ends):
        return values[order[-1]]
    value = values[order[at]]
    if not at or position - ends[at - 1] >= unit:
        return value
    below = values[order[at - 1]]
    return below + (position - ends[at - 1]) / unit * (value - below)
