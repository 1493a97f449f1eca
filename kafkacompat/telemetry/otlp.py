"""Reads what clients send: OpenTelemetry's MetricsData, in one of Kafka's compressions. opentelemetry-proto parses it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from google.protobuf.message import DecodeError
from opentelemetry.proto.metrics.v1 import metrics_pb2

from kafkacompat.records.compression import UNPACKING_COST, DecompressedTooLarge, decompress
from kafkacompat.tasks import Limit, in_turns, pause
from kafkacompat.telemetry.client_metrics_manager import (
    NO_CODEC,
    Attributes,
    PointsRefused,
    PointsTooLarge,
)
from kafkacompat.telemetry.series import ClientSeries, Point, labels_of, metric_name

UNPACKED_BYTES_MAX = 512 << 10
"""Of one push. A client sends at most a few hundred metrics of about a hundred bytes. A message of two bytes costs 70 ns."""
PACKED_BYTES_MAX = 1 << 20
"""Of one push, each counted as often as UNPACKING_COST tells: it is decompressed in one step of the loop."""
PARSED_WITH_ELEMENTS_BYTES_MAX = 128 << 10
"""A longer message is parsed in a step of its own. 512 KiB of the smallest messages take ten milliseconds."""
ELEMENTS_MAX = 5_000
"""Metrics, points and attributes of one push that are read. One costs up to three microseconds."""
ELEMENTS_A_STEP = 1_500
"""What Kafka's clients send is hardly ever more."""
DELTA = metrics_pb2.AGGREGATION_TEMPORALITY_DELTA
COUNTER_SUFFIX = "_total"
"""Prometheus' counters have it. With a gauge of such a name, a scrape would have two metrics of one name."""
SCALARS = ("string_value", "int_value", "double_value", "bool_value")
"""What an attribute may be. Kafka's clients send texts. Others could be nested, and are left out."""


ANY_SIZE = 1 << 31


class OtlpReceiver:
    """Implements Receiver."""

    def __init__(self, series: ClientSeries) -> None:
        self.series = series
        self._one_at_a_time = Limit(1)
        """What half a megabyte means may take tens of megabytes, which stay in memory until its last piece is read. A connection
        has one push at most, because it is not read meanwhile."""

    async def take(
        self, client: bytes, attributes: Attributes, codec: int, metrics: bytes, max_bytes: int = ANY_SIZE
    ) -> None:
        """Usually without a pause."""
        async with self._one_at_a_time:
            points = Points(codec, metrics, max_bytes)
            if points.size > PARSED_WITH_ELEMENTS_BYTES_MAX:
                await pause()
            await in_turns(self.series.add(client, attributes, iter(points)))
            self.series.refused += points.unread

    def forget(self, client: bytes) -> None:
        self.series.forget(client)


class Points:
    """The gauges and sums of one push. Histograms and summaries, which Kafka's clients do not send, are left out."""

    def __init__(self, codec: int, metrics: bytes, max_bytes: int) -> None:
        """Raises PointsRefused, PointsTooLarge."""
        if len(metrics) * UNPACKING_COST.get(codec, 0) > PACKED_BYTES_MAX:
            raise PointsTooLarge(f"{len(metrics)} bytes in this compression may take too long")
        bound = min(max_bytes, UNPACKED_BYTES_MAX)
        refusal = PointsRefused if max_bytes <= UNPACKED_BYTES_MAX else PointsTooLarge
        try:
            body = metrics if codec == NO_CODEC else decompress(codec, metrics, bound)
            if len(body) > bound:
                raise refusal(f"more than {bound} bytes")
            self._data = metrics_pb2.MetricsData.FromString(body)
        except DecompressedTooLarge as error:
            raise refusal(str(error)) from error
        except (OSError, MemoryError) as error:  # the codec's library cannot be imported now, for example
            raise PointsTooLarge(str(error) or repr(error)) from error
        except (DecodeError, ValueError) as error:
            raise PointsRefused(str(error)) from error
        self.size = len(body)
        """Bytes, decompressed."""
        self._left = ELEMENTS_MAX
        self._step_ends_at = ELEMENTS_MAX - ELEMENTS_A_STEP
        """When so many elements are left, the step is over."""
        self.unread = 0
        """Points of the metric in which ELEMENTS_MAX was reached. Nobody looks at the metrics behind it."""

    def __iter__(self) -> Iterator[Point | None]:
        """With a None after each ELEMENTS_A_STEP elements or a few more."""
        for of_resource in self._data.resource_metrics:
            for of_scope in of_resource.scope_metrics:
                for metric in of_scope.metrics:
                    yield from self._of(metric)
                    if self._is_over():
                        return
                    if self._ends_step():
                        yield None
                if self._is_over():
                    return
                if self._ends_step():
                    yield None
            if self._is_over():
                return
            if self._ends_step():
                yield None

    def _is_over(self) -> bool:
        self._left -= 1
        return self._left <= 0

    def _ends_step(self) -> bool:
        if self._left > self._step_ends_at:
            return False
        self._step_ends_at = self._left - ELEMENTS_A_STEP
        return True

    def _of(self, metric: Any) -> Iterator[Point | None]:
        kind = metric.WhichOneof("data")
        if kind not in ("gauge", "sum"):
            return
        is_counter = is_delta = False
        told, points = metric_name(metric.name), getattr(metric, kind).data_points
        if kind == "sum":
            # Totals of KIP-714 only grow. franz-go 1.20 does not say so of its own.
            is_counter = metric.sum.is_monotonic or told.endswith(COUNTER_SUFFIX)
            told = told.removesuffix(COUNTER_SUFFIX) if is_counter else told
            is_delta = metric.sum.aggregation_temporality == DELTA
        elif told.endswith(COUNTER_SUFFIX):
            told += "_gauge"
        for read, point in enumerate(points):
            attributes = list(islice(point.attributes, max(self._left, 0)))
            self._left -= 1 + len(attributes)
            if self._left < 0:
                self.unread += len(points) - read
                return
            labels = labels_of({each.key: _text(each.value) for each in attributes})
            yield Point(told, labels, _value(point), is_counter, is_delta)
            if self._ends_step():
                yield None


def _value(point: Any) -> float:
    return float(point.as_int) if point.WhichOneof("value") == "as_int" else point.as_double


def _text(value: Any) -> str:
    kind = value.WhichOneof("value")
    return str(getattr(value, kind)) if kind in SCALARS else ""
