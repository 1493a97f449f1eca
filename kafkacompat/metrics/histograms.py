"""Histograms of Kafka's MBeans: percentiles of the newest values, and the number of all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
