"""Declarations of metrics, and the metric families of one scrape, as values. Pure: no text format, no socket.

A metric is declared once, in the module of its subject: name, meaning, labels, and how it is read from a part of the node. The
scrape and the reference page (`python -m kafkacompat.metrics.reference`) are both made from the declarations.

A collector is a generator. It yields a Family, or None between two steps of the loop. It reads the parts of the node while it
runs, so a scrape is no snapshot of one instant. A family's samples are read when they are rendered, a bounded number in each step.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from types import MappingProxyType
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeAlias, TypeVar

from kafkacompat.dataclass import dataclass

if TYPE_CHECKING:
    from kafkacompat.meters import Histogram

Labels = Mapping[str, str]
Sample = tuple[Labels, float]
"""Labels and value. A sample that is None in a family makes the renderer pause."""
Samples: TypeAlias = "Iterable[Sample | None]"

NO_LABELS: Labels = MappingProxyType({})
GAUGE = "gauge"
COUNTER = "counter"
COUNTED_A_STEP = 500
"""Partitions that a collector looks at between two pauses: up to 2 microseconds each."""
QUANTILES = ((0.5, "0.50"), (0.75, "0.75"), (0.95, "0.95"), (0.98, "0.98"), (0.99, "0.99"), (0.999, "0.999"))
"""Those of Kafka's histograms, with the labels that the exporter's rules give them."""

S = TypeVar("S")


class Family(NamedTuple):
    """All series of one name. The name of a counter is given without the suffix `_total`."""

    name: str
    kind: str
    text: str
    samples: Iterable[Sample | None]


Families = Iterator[Family | None]


@dataclass(frozen=True, slots=True)
class Metric(Generic[S]):
    """The declaration of a metric. `gauge`, `counter` and their like make it, and `Metrics` reads it."""

    name: str
    """Without the suffix `_total` of a counter. What is in braces depends on the node: the name of a listener, or of a role."""
    kind: str
    text: str
    """What it means, in the answer to a scrape and on the reference page."""
    labels: tuple[str, ...]
    read: Callable[[S], Samples | None]
    """The samples of a source. None: the node has no such series now."""


class At(NamedTuple, Generic[S]):
    """A part of the node at a time, as the source of metrics that depend on both."""

    part: S
    now_ms: int
    """Monotonic."""


def gauge(name: str, text: str, value: Callable[[S], float | None]) -> Metric[S]:
    """One series without labels. `value` is None where there is none."""
    return Metric(name, GAUGE, text, (), _one(value))


def counter(name: str, text: str, value: Callable[[S], float | None]) -> Metric[S]:
    """One series without labels. `value` is None where there is none."""
    return Metric(name, COUNTER, text, (), _one(value))


def gauges(name: str, text: str, labels: tuple[str, ...], samples: Callable[[S], Samples]) -> Metric[S]:
    """A series for each set of values of the labels."""
    return Metric(name, GAUGE, text, labels, samples)


def counters(name: str, text: str, labels: tuple[str, ...], samples: Callable[[S], Samples]) -> Metric[S]:
    """A series for each set of values of the labels."""
    return Metric(name, COUNTER, text, labels, samples)


def mean_and_max(
    name: str, text: str, read: Callable[[S], tuple[float, float]]
) -> tuple[Metric[S], Metric[S]]:
    """Two gauges, under the name with `avg` and with `max`."""
    return (
        gauge(f"{name}avg", f"Mean {text}.", lambda source: read(source)[0]),
        gauge(f"{name}max", f"Longest {text}.", lambda source: read(source)[1]),
    )


def histogram(name: str, text: str, read: Callable[[S], Histogram]) -> tuple[Metric[S], Metric[S]]:
    """The percentiles of the newest values, and the number of all under the name with the suffix `_count`."""
    return histograms(name, text, (), lambda source: ((NO_LABELS, read(source)),))


def histograms(
    name: str, text: str, labels: tuple[str, ...], read: Callable[[S], Iterable[tuple[Labels, Histogram]]]
) -> tuple[Metric[S], Metric[S]]:
    """The same of several histograms with the same name."""
    return (
        gauges(name, f"Percentiles: {text}.", (*labels, "quantile"), lambda source: _quantiles(read(source))),
        counters(
            f"{name}_count",
            f"Number: {text}.",
            labels,
            lambda source: ((each, histogram.count) for each, histogram in read(source)),
        ),
    )


def _one(value: Callable[[S], float | None]) -> Callable[[S], Samples | None]:
    def read(source: S) -> Samples | None:
        found = value(source)
        return None if found is None else ((NO_LABELS, found),)

    return read


def _quantiles(histograms: Iterable[tuple[Labels, Histogram]]) -> Iterator[Sample]:
    for labels, histogram in histograms:
        values = histogram.ordered()
        for quantile, label in QUANTILES:
            yield {**labels, "quantile": label}, percentile(values, quantile)


class Metrics(Generic[S]):
    """The metrics of one subject, all read from the same source."""

    def __init__(self, title: str, *metrics: Metric[S] | tuple[Metric[S], ...]) -> None:
        """`title`: of their table on the reference page."""
        self.title = title
        self.metrics: list[Metric[S]] = []
        for each in metrics:
            self.metrics += (each,) if isinstance(each, Metric) else each

    def of(self, source: S, **names: str) -> Families:
        """The families of a source. `names`: what replaces the braces in names."""
        for metric in self.metrics:
            samples = metric.read(source)
            if samples is not None:
                name = metric.name.format(**names) if names else metric.name
                yield Family(name, metric.kind, metric.text, samples)


_PLAIN_VALUE = re.compile(r"[\w\-%. \t]*", re.ASCII)
_ESCAPES = str.maketrans({each: f"\\{each}" for each in '"\\*?'} | {"\n": "\\n"})


def mbean_value(text: str) -> str:
    """A tag's value as the name of Kafka's MBean has it: in quotes where it has other characters than letters, digits and `_-%.`.

    The exporter passes the quotes on, so they are part of the label's value.
    """
    if _PLAIN_VALUE.fullmatch(text):
        return text
    return f'"{text.translate(_ESCAPES)}"'


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
