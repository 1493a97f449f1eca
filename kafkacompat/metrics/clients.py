"""Clients: their quotas (ClientQuotaManager of Kafka's MBeans), and the metrics that they send themselves (KIP-714).

A quota has series for each user and client id to which it applies. Clients choose their ids, so the number of series has a bound.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple, TypeAlias
from urllib.parse import quote

from kafkacompat.metrics.families import (
    COUNTED_A_STEP,
    COUNTER,
    GAUGE,
    At,
    Families,
    Family,
    Labels,
    Metrics,
    Sample,
    counter,
    gauge,
    gauges,
    mbean_value,
)
from kafkacompat.quota.client_quotas import (
    CONTROLLER_MUTATION_RATE,
    REQUEST_PERCENTAGE,
    RESOURCES,
)

if TYPE_CHECKING:
    from kafkacompat.quota.client_quotas import QuotaManagers, Sensor, Tags
    from kafkacompat.quota.rate import Rate, TokenBucket
    from kafkacompat.telemetry.client_metrics_manager import ClientMetricsManager
    from kafkacompat.telemetry.series import ClientSeries

MEASUREMENTS_MAX = 1_000
"""Measurements of one kind that are shown. Of more, those that were used last. Each has two series."""
NAME = "kafka_server_quota_"
OWN = "kafka_server_client_metrics_"
SENT = "Sent by clients."

Rates: TypeAlias = "list[tuple[str, list[tuple[Tags, Sensor[Rate]]]]]"


class QuotaReading(NamedTuple):
    rates: Rates
    """By resource."""
    tokens: list[tuple[Tags, Sensor[TokenBucket]]]
    managers: list[QuotaManagers]
    now_ms: int
    """Monotonic."""


def _measured(reading: QuotaReading, *, is_time: bool) -> Iterator[Sample]:
    """All that a broker measures is bytes, except the time of requests."""
    for resource, sensors in reading.rates:
        if (resource == REQUEST) is is_time:
            for tags, sensor in sensors:
                yield _labels(resource, tags), sensor.stat.measure(reading.now_ms)


def _throttles(reading: QuotaReading) -> Iterator[Sample]:
    for resource, sensors in reading.rates:
        for tags, sensor in sensors:
            yield _labels(resource, tags), _throttle(sensor, reading.now_ms)
    for tags, bucket in reading.tokens:
        yield _labels(MUTATION, tags), _throttle(bucket, reading.now_ms)


def _throttle(sensor: Sensor[Rate] | Sensor[TokenBucket], now_ms: int) -> float:
    return float("nan") if sensor.throttles is None else sensor.throttles.measure(now_ms)


def _labels(resource: str, tags: Tags) -> Labels:
    """A part that the clients do not share by has no label. Names are encoded like the names of Kafka's MBeans."""
    user, client_id = tags
    labels = {"resource": resource}
    if user:
        # Kafka keeps quotas of users under URL-encoded names, with %20 for a space and %2A for an asterisk.
        labels["user"] = mbean_value(quote(user, safe="-_.").replace("~", "%7E"))
    if client_id:
        labels["clientId"] = mbean_value(client_id)
    return labels


def _muted(key: str) -> Callable[[QuotaReading], int]:
    return lambda reading: sum(each.kinds[key].muted.count(reading.now_ms) for each in reading.managers)


REQUEST, MUTATION = RESOURCES[REQUEST_PERCENTAGE], RESOURCES[CONTROLLER_MUTATION_RATE]
SHARED_BY = ("resource", "user", "clientId")

QUOTAS: Metrics[QuotaReading] = Metrics(
    "Quotas, by those who share one",
    gauges(
        f"{NAME}byte_rate",
        "Bytes per second of the clients that share a quota (`resource`: Produce, Fetch).",
        SHARED_BY,
        lambda reading: _measured(reading, is_time=False),
    ),
    gauges(
        f"{NAME}request_time",
        "Time of the loop that the clients who share a quota use, in percent (`resource`: Request).",
        SHARED_BY,
        lambda reading: _measured(reading, is_time=True),
    ),
    gauges(
        f"{NAME}tokens",
        "Partitions that the clients who share a quota may still create or delete now (`resource`: ControllerMutation).",
        SHARED_BY,
        lambda reading: (
            (_labels(MUTATION, tags), sensor.stat.tokens(sensor.bound, reading.now_ms))
            for tags, sensor in reading.tokens
        ),
    ),
    gauges(
        f"{NAME}mutation_rate",
        "Partitions that the clients who share a quota create or delete per second (`resource`: ControllerMutation).",
        SHARED_BY,
        lambda reading: (
            (_labels(MUTATION, tags), sensor.stat.taken.measure(reading.now_ms))
            for tags, sensor in reading.tokens
        ),
    ),
    tuple(
        gauge(
            f"kafka_server_{resource.lower()}_queue_size",
            f"Connections that are muted because of quotas of the kind {resource.lower()}.",
            _muted(key),
        )
        for key, resource in RESOURCES.items()
    ),
    gauges(
        f"{NAME}throttle_time",
        "Mean of the recent throttle times in ms; NaN: none.",
        SHARED_BY,
        _throttles,
    ),
)


def quota_families(
    quotas: QuotaManagers | None, of_controller: QuotaManagers | None, now_ms: int
) -> Families:
    """`quotas`: of the broker; None without the role. `now_ms` is monotonic."""
    managers = [each for each in (quotas, of_controller) if each is not None]
    reading = QuotaReading([], [], managers, now_ms)
    if quotas is not None:
        for key, kind in quotas.rates.items():
            # New clients let old ones be forgotten. There may be none.
            kind.forget_the_unused(now_ms)
            reading.rates.append((RESOURCES[key], kind.newest(MEASUREMENTS_MAX)))
            yield None
    if of_controller is not None:
        of_controller.mutation.forget_the_unused(now_ms)
        reading.tokens.extend(of_controller.mutation.newest(MEASUREMENTS_MAX))
        yield None
    yield from QUOTAS.of(reading)


CLIENTS: Metrics[At[ClientMetricsManager]] = Metrics(
    "Clients that send metrics of their own, under Kafka's names",
    gauge(f"{OWN}instance_count", "Clients that are asked for metrics.", lambda at: at.part.present),
    gauge(
        f"{OWN}unknown_subscription_request_count",
        "Pushes for a subscription that has changed since.",
        lambda at: at.part.unknown_subscriptions.read(at.now_ms)[0],
    ),
    gauge(
        f"{OWN}unknown_subscription_request_rate",
        "Pushes for a subscription that has changed since, per second.",
        lambda at: at.part.unknown_subscriptions.read(at.now_ms)[1],
    ),
)


class TelemetryReading(NamedTuple):
    manager: ClientMetricsManager
    series: ClientSeries


TELEMETRY: Metrics[TelemetryReading] = Metrics(
    "Clients that send metrics of their own",
    gauge(
        "kafkacompat_telemetry_clients",
        "Clients that are asked for metrics.",
        lambda each: each.manager.present,
    ),
    gauge("kafkacompat_telemetry_series", "Series that clients have sent.", lambda each: each.series.count),
    counter(
        "kafkacompat_telemetry_refused_points",
        "Points of clients that were over a bound, or could not be added.",
        lambda each: each.series.refused,
    ),
)


def client_families(
    manager: ClientMetricsManager, series: ClientSeries, now_ms: int, *, is_broker: bool = True
) -> Families:
    """`now_ms` is monotonic. Controllers take metrics of clients too, and Kafka's have no series of them."""
    # The clients themselves let others be forgotten. The last ones have nobody who comes after them.
    while manager.forget_the_silent(now_ms):
        yield None
    if is_broker:
        yield from CLIENTS.of(At(manager, now_ms))
    yield from TELEMETRY.of(TelemetryReading(manager, series))
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
        yield Family(name, COUNTER if is_counter else GAUGE, SENT, samples)
