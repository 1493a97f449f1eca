"""The metrics that clients have sent (KIP-714), and how many there are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kafkacompat.metrics.families import (
    COUNTED_A_STEP,
    COUNTER,
    GAUGE,
    Families,
    Family,
    Sample,
    counter,
    gauge,
)

if TYPE_CHECKING:
    from kafkacompat.telemetry.client_metrics_manager import ClientMetricsManager
    from kafkacompat.telemetry.series import ClientSeries

HELP = "Sent by clients."


def client_families(
    manager: ClientMetricsManager, series: ClientSeries, now_ms: int, *, is_broker: bool = True
) -> Families:
    """`now_ms` is monotonic. Controllers take metrics of clients too, and Kafka's have no series of them."""
    # The clients themselves let others be forgotten. The last ones have nobody who comes after them.
    while manager.forget_the_silent(now_ms):
        yield None
    if is_broker:
        name = "kafka_server_client_metrics_"
        yield gauge(f"{name}instance_count", "Clients that are asked for metrics.", manager.present)
        count, rate = manager.unknown_subscriptions.read(now_ms)
        text = "Pushes for a subscription that has changed since"
        yield gauge(f"{name}unknown_subscription_request_count", f"{text}.", count)
        yield gauge(f"{name}unknown_subscription_request_rate", f"{text}, per second.", rate)
    yield gauge("kafkacompat_telemetry_clients", "Clients that are asked for metrics.", manager.present)
    yield gauge("kafkacompat_telemetry_series", "Series that clients have sent.", series.count)
    yield counter(
        "kafkacompat_telemetry_refused_points", "Points of clients that were over a bound.", series.refused
    )
    by_name: dict[tuple[str, bool], list[Sample]] = {}
    counted = 0
    for own in list(series.by_client.values()):
        for (name, is_counter, labels), value in own.values.items():
            by_name.setdefault((name, is_counter), []).append(({**dict(labels), **own.labels}, value))
            counted += 1
        if counted >= COUNTED_A_STEP:
            counted = 0
            yield None
    yield from _named(by_name)


def _named(by_name: dict[tuple[str, bool], list[Sample]]) -> Iterator[Family]:
    for (name, is_counter), samples in sorted(by_name.items(), key=lambda each: each[0]):
        yield Family(name, COUNTER if is_counter else GAUGE, HELP, samples)
