"""What clients send, with bytes changed at random: it is read or refused, and a scrape stays right."""

from __future__ import annotations

import random

import pytest
from opentelemetry.proto.metrics.v1 import metrics_pb2

from kafkacompat._tests.doubles import value_of
from kafkacompat.metrics._tests.exposition import parsed
from kafkacompat.metrics.clients import client_families
from kafkacompat.metrics.endpoint import rendered
from kafkacompat.records.compression import compress
from kafkacompat.telemetry.client_metrics_manager import (
    ACCEPTED_CODECS,
    NO_CODEC,
    ClientMetricsManager,
    PointsRefused,
)
from kafkacompat.telemetry.otlp import OtlpReceiver
from kafkacompat.telemetry.series import SERIES_A_CLIENT_MAX, ClientSeries

MUTATIONS = 10_000
CLIENTS = 5
FUTURE_NS = 1 << 63


def who(client: int) -> dict[str, str]:
    return {"client_id": "billing", "client_instance_id": str(client)}


def push() -> bytes:
    """Metrics of each kind that the protocol has."""
    data = metrics_pb2.MetricsData()
    resource = data.resource_metrics.add()
    resource.resource.attributes.add(key="client_rack").value.string_value = "r1"
    scope = resource.scope_metrics.add()
    scope.scope.name = "kafka"
    for number in range(3):
        point = scope.metrics.add(name=f"org.apache.kafka.consumer.lag.{number}").gauge.data_points.add()
        point.as_double, point.time_unix_nano = 1.5, FUTURE_NS
        for key, value in (("topic", "orders"), ("le", "0.5"), ("a-b", "x"), ("a_b", "y")):
            point.attributes.add(key=key).value.string_value = value
        nested = point.attributes.add(key="nested").value.kvlist_value.values.add(key="k")
        nested.value.array_value.values.add().bytes_value = b"\xff"
    total = scope.metrics.add(name="sent.total").sum
    total.is_monotonic, total.aggregation_temporality = True, 1
    total.data_points.add(as_int=7)
    histogram = scope.metrics.add(name="times").histogram.data_points.add(count=3, sum=4.5)
    histogram.bucket_counts.extend([1, 2])
    histogram.explicit_bounds.append(0.5)
    scope.metrics.add(name="more.times").exponential_histogram.data_points.add(count=1, scale=2)
    summary = scope.metrics.add(name="old.times").summary.data_points.add(count=1, sum=2.0)
    summary.quantile_values.add(quantile=0.5, value=1.0)
    return data.SerializeToString()


def changed(body: bytes, chance: random.Random) -> bytes:
    """One to four changes: of bits, of lengths, or of parts that are lost, doubled or put elsewhere."""
    found = bytearray(body)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(found) + 1)
        length = chance.choice((1, 1, 2, 9, 60))
        kind = chance.randrange(5)
        if kind == 0 and at < len(found):
            found[at] ^= 1 << chance.randrange(8)
        elif kind == 1:
            del found[at : at + length]
        elif kind == 2:
            found[at:at] = chance.randbytes(length)
        elif kind == 3:
            found[at:at] = found[at : at + length] * chance.randint(1, 20)
        else:
            source = chance.randrange(len(found) + 1)
            found[at : at + length] = found[source : source + length]
    return bytes(found)


@pytest.mark.parametrize("codec", [NO_CODEC, *ACCEPTED_CODECS])
def test_changed_bytes_are_read_or_refused(codec: int) -> None:
    receiver = OtlpReceiver(ClientSeries())
    body = push()
    value_of(receiver.take(bytes([CLIENTS]) * 16, who(CLIENTS), codec, compress(codec, body)))
    assert receiver.series.count == 4
    chance = random.Random(codec)
    packed = compress(codec, body)
    outcomes = {"read": 0, "refused": 0}
    for number in range(MUTATIONS // (1 + len(ACCEPTED_CODECS))):
        # Of what is compressed most changes are found by its checksum or format.
        sent = changed(packed, chance) if number % 2 else compress(codec, changed(body, chance))
        try:
            value_of(receiver.take(bytes([number % CLIENTS]) * 16, who(number % CLIENTS), codec, sent))
            outcomes["read"] += 1
        except PointsRefused:
            outcomes["refused"] += 1
        assert receiver.series.count <= (1 + CLIENTS) * SERIES_A_CLIENT_MAX
    assert min(outcomes.values()) > 50, outcomes
    manager = ClientMetricsManager(100, receiver, lambda: bytes(16))  # type: ignore[arg-type, return-value]
    text = b"".join(rendered(client_families(manager, receiver.series, 0))).decode()
    shown = parsed(text)
    assert sum(series.startswith("kafka_client_") for series in shown.values) == receiver.series.count
