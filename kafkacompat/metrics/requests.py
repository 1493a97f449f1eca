"""Requests by API: RequestMetrics of Kafka's MBeans. An API has series from its first request on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import exp
from typing import TYPE_CHECKING

from kafkacompat.api.meters import ERROR_CODES
from kafkacompat.api.request_times import Times
from kafkacompat.metrics.families import COUNTER, Families, Family, Labels, Sample, counters, gauges
from kafkacompat.metrics.histograms import QUANTILES, percentile, weighted_percentiles
from kafkacompat.wire.errors import ErrorCode

if TYPE_CHECKING:
    from kafkacompat.api.meters import KindMeter, RequestMeters

NAME = "kafka_network_requestmetrics_"
MERGED = ("Fetch", ("FetchConsumer", "FetchFollower"))
"""Kafka shows fetches by kind and under one name."""
REQUEST_QUEUE, LOCAL, REMOTE, RESPONSE_QUEUE, RESPONSE_SEND, SIZE = range(len(Times._fields))
TOTAL, THROTTLE = -1, -2
HISTOGRAMS = (
    ("requestqueuetimems", "ms from a readable connection to the request's turn", REQUEST_QUEUE),
    ("localtimems", "ms in which the request was handled", LOCAL),
    ("remotetimems", "ms until its answer was there", REMOTE),
    ("responsequeuetimems", "ms for which its answer waited to be sent", RESPONSE_QUEUE),
    ("responsesendtimems", "ms in which its answer was sent", RESPONSE_SEND),
    ("totaltimems", "ms from a readable connection to the sent answer", TOTAL),
    ("throttletimems", "ms for which quotas throttle the client", THROTTLE),
)


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


def request_families(meters: RequestMeters) -> Families:
    """Percentiles are of requests that were timed, which stand for the others; counts are of all."""
    shown = [Shown(name, [kind]) for name, kind in meters.kinds.items() if name != MERGED[0]]
    fetches = [meters.kinds[name] for name in MERGED[1] if name in meters.kinds]
    if fetches:
        shown.append(Shown(MERGED[0], fetches))
    shown = [each for each in shown if each.requests]
    yield None
    yield counters(f"{NAME}requests", "Requests by API and version.", _requests(shown))
    yield counters(f"{NAME}errors", "Error codes of answers, NONE included.", _errors(meters))
    for suffix, text, which in HISTOGRAMS:
        yield gauges(f"{NAME}{suffix}", f"Percentiles: {text}.", _percentiles(shown, which, 1000))
        yield Family(f"{NAME}{suffix}_count", COUNTER, f"Requests: {text}.", _counts(shown))
    yield gauges(f"{NAME}requestbytes", "Percentiles: bytes of a request.", _percentiles(shown, SIZE, 1))
    yield counters(f"{NAME}requestbytes_count", "Requests: bytes of a request.", _counts(shown))


def _requests(shown: Sequence[Shown]) -> Iterator[Sample]:
    for each in shown:
        for version, count in sorted(each.versions.items()):
            yield {**each.labels, "version": str(version)}, count


def _errors(meters: RequestMeters) -> Iterator[Sample]:
    """Under the name of the API, whatever name its requests have."""
    for name, errors in list(meters.errors.items()):
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


def _counts(shown: Sequence[Shown]) -> Iterator[Sample]:
    for each in shown:
        yield each.labels, each.requests


def _percentiles(shown: Sequence[Shown], which: int, factor: float) -> Iterator[Sample | None]:
    for each in shown:
        for (_, label), value in zip(QUANTILES, each.percentiles(which), strict=True):
            yield {**each.labels, "quantile": label}, factor * value
        yield None
