"""Requests by API: RequestMetrics of Kafka's MBeans. An API has series from its first request on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import exp
from typing import TYPE_CHECKING, NamedTuple

from kafkacompat.api.meters import ERROR_CODES, Times
from kafkacompat.metrics.families import (
    QUANTILES,
    Families,
    Labels,
    Metric,
    Metrics,
    Sample,
    counters,
    gauges,
    percentile,
    weighted_percentiles,
)
from kafkacompat.wire.errors import ErrorCode

if TYPE_CHECKING:
    from kafkacompat.api.meters import KindMeter, RequestMeters

NAME = "kafka_network_requestmetrics_"
MERGED = ("Fetch", ("FetchConsumer", "FetchFollower"))
"""Kafka shows fetches by kind and under one name."""
REQUEST_QUEUE, LOCAL, REMOTE, RESPONSE_QUEUE, RESPONSE_SEND, SIZE = range(len(Times._fields))
TOTAL, THROTTLE = -1, -2


class Shown:
    """What is shown under one name."""

    def __init__(self, name: str, kinds: Sequence[KindMeter]) -> None:
        self.labels: Labels = {"request": name}
        self.versions: dict[int, int] = {}
        for kind in kinds:
            for version, meter in kind.versions.items():
                if meter.requests:
                    self.versions[version] = self.versions.get(version, 0) + meter.requests
        self._kinds = kinds

    def percentiles(self, which: int) -> list[float]:
        """Those of QUANTILES, of a field of the times, TOTAL, or THROTTLE."""
        values = [value for kind in self._kinds for value in _values_of(kind, which)]
        if which == THROTTLE:
            values.sort()
            return [percentile(values, quantile) for quantile, _ in QUANTILES]
        return weighted_percentiles(values, self._weights())

    def _weights(self) -> list[float]:
        logarithms = [weight for kind in self._kinds for weight in kind.recent.log_weights()]
        greatest = max(logarithms, default=0.0)
        return [exp(weight - greatest) for weight in logarithms]

    @property
    def requests(self) -> int:
        return sum(self.versions.values())


def _values_of(kind: KindMeter, which: int) -> list[float]:
    """In seconds."""
    if which == THROTTLE:
        return [ms / 1000 for ms in kind.throttle_times_ms()]
    return kind.recent.totals() if which == TOTAL else kind.recent.column(which)


class ShownRequests(NamedTuple):
    meters: RequestMeters
    shown: Sequence[Shown]


def request_families(meters: RequestMeters) -> Families:
    """Percentiles are of requests that were timed, which stand for the others; counts are of all."""
    shown = [Shown(name, [kind]) for name, kind in meters.kinds.items() if name != MERGED[0]]
    fetches = [meters.kinds[name] for name in MERGED[1] if name in meters.kinds]
    if fetches:
        shown.append(Shown(MERGED[0], fetches))
    yield None
    yield from REQUESTS.of(ShownRequests(meters, [each for each in shown if each.requests]))


def _requests(of: ShownRequests) -> Iterator[Sample]:
    for each in of.shown:
        for version, count in sorted(each.versions.items()):
            yield {**each.labels, "version": str(version)}, count


def _errors(of: ShownRequests) -> Iterator[Sample]:
    """Under the name of the API, whatever name its requests have."""
    for name, errors in list(of.meters.errors.items()):
        for index, count in enumerate(errors):
            if count:
                # A negative index counts from the end of the list.
                code = index if index < ERROR_CODES // 2 else index - ERROR_CODES
                yield {"request": name, "error": _error_name(code)}, count


def _error_name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return str(code)


def _counts(of: ShownRequests) -> Iterator[Sample]:
    for each in of.shown:
        yield each.labels, each.requests


def _percentiles(of: ShownRequests, which: int, factor: float) -> Iterator[Sample | None]:
    for each in of.shown:
        for (_, label), value in zip(QUANTILES, each.percentiles(which), strict=True):
            yield {**each.labels, "quantile": label}, factor * value
        yield None


def _times(name: str, text: str, which: int) -> tuple[Metric[ShownRequests], Metric[ShownRequests]]:
    return _histogram(f"{name}timems", f"ms {text}", which, 1000)


def _histogram(
    name: str, text: str, which: int, factor: float
) -> tuple[Metric[ShownRequests], Metric[ShownRequests]]:
    return (
        gauges(
            f"{NAME}{name}",
            f"Percentiles: {text}.",
            ("request", "quantile"),
            lambda of: _percentiles(of, which, factor),
        ),
        counters(f"{NAME}{name}_count", f"Requests: {text}.", ("request",), _counts),
    )


REQUESTS: Metrics[ShownRequests] = Metrics(
    "Requests",
    counters(f"{NAME}requests", "Requests by API and version.", ("request", "version"), _requests),
    counters(f"{NAME}errors", "Error codes of answers, NONE included.", ("request", "error"), _errors),
    _times("requestqueue", "from a readable connection to the request's turn", REQUEST_QUEUE),
    _times("local", "in which the request was handled", LOCAL),
    _times("remote", "until its answer was there", REMOTE),
    _times("responsequeue", "for which its answer waited to be sent", RESPONSE_QUEUE),
    _times("responsesend", "in which its answer was sent", RESPONSE_SEND),
    _times("total", "from a readable connection to the sent answer", TOTAL),
    _times("throttle", "for which quotas throttle the client", THROTTLE),
    _histogram("requestbytes", "bytes of a request, without its header", SIZE, 1),
)
