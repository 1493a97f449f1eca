"""Reads what clients send: OpenTelemetry's MetricsData, in one of Kafka's compressions. opentelemetry-proto parses it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from google.protobuf.message import DecodeError
from opentelemetry.proto.metrics.v1 import metrics_pb2

from kafkacompat.records.compression import decompress
from kafkacompat.telemetry.client_metrics_manager import NO_CODEC, Attributes, PointsRefused
from kafkacompat.telemetry.series import ClientSeries, Point, labels_of, metric_name

UNPACKED_BYTES_MAX = 4 << 20
"""Of one push. A client sends at most a few hundred metrics of about a hundred bytes."""
DELTA = metrics_pb2.AGGREGATION_TEMPORALITY_DELTA


class OtlpReceiver:
    """Implements Receiver."""

    def __init__(self, series: ClientSeries) -> None:
        self.series = series

    def take(self, client: bytes, attributes: Attributes, codec: int, metrics: bytes) -> None:
        self.series.add(client, attributes, points_of(codec, metrics))

    def forget(self, client: bytes) -> None:
        self.series.forget(client)


def points_of(codec: int, metrics: bytes) -> Iterator[Point]:
    """Gauges and sums. Histograms and summaries, which Kafka's clients do not send, are left out."""
    try:
        body = metrics if codec == NO_CODEC else bytes(decompress(codec, metrics, UNPACKED_BYTES_MAX))
        if len(body) > UNPACKED_BYTES_MAX:
            raise PointsRefused(f"more than {UNPACKED_BYTES_MAX} bytes")
        data = metrics_pb2.MetricsData.FromString(body)
    except (DecodeError, ValueError) as error:
        raise PointsRefused(str(error)) from error
    return _points(data)


def _points(data: Any) -> Iterator[Point]:
    for of_resource in data.resource_metrics:
        for of_scope in of_resource.scope_metrics:
            for metric in of_scope.metrics:
                kind = metric.WhichOneof("data")
                if kind == "gauge":
                    yield from _of(metric.name, metric.gauge.data_points, is_counter=False, is_delta=False)
                elif kind == "sum":
                    is_delta = metric.sum.aggregation_temporality == DELTA
                    is_counter = metric.sum.is_monotonic
                    yield from _of(
                        metric.name, metric.sum.data_points, is_counter=is_counter, is_delta=is_delta
                    )


def _of(name: str, points: Iterable[Any], *, is_counter: bool, is_delta: bool) -> Iterator[Point]:
    told = metric_name(name)
    for point in points:
        value = float(point.as_int) if point.WhichOneof("value") == "as_int" else point.as_double
        attributes = {each.key: _text(each.value) for each in point.attributes}
        yield Point(told, labels_of(attributes), value, is_counter, is_delta)


def _text(value: Any) -> str:
    kind = value.WhichOneof("value")
    return "" if kind is None else str(getattr(value, kind))
