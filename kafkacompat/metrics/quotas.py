"""Client quotas: ClientQuotaManager of Kafka's MBeans. A series for each user and client id to which a quota applies.

Clients choose their ids, so the number of series has a bound.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING
from urllib.parse import quote

from kafkacompat.metrics.families import Families, Labels, Sample, gauge, gauges, mbean_value

if TYPE_CHECKING:
    from kafkacompat.quota.client_quotas import QuotaManagers, Sensor, Tags
    from kafkacompat.quota.rate import Rate, TokenBucket

MEASUREMENTS_MAX = 1_000
"""Measurements of one kind that are shown. Of more, those that were used last. Each has two series."""
NAME = "kafka_server_quota_"

Rates = list[tuple[str, "list[tuple[Tags, Sensor[Rate]]]"]]


def quota_families(
    quotas: QuotaManagers | None, of_controller: QuotaManagers | None, now_ms: int
) -> Families:
    """`quotas`: of the broker; None without the role. `now_ms` is monotonic."""
    rates: Rates = []
    tokens: list[tuple[Tags, Sensor[TokenBucket]]] = []
    if quotas is not None:
        for resource, kind in (
            ("Produce", quotas.produce),
            ("Fetch", quotas.fetch),
            ("Request", quotas.request),
        ):
            # New clients let old ones be forgotten. There may be none.
            kind.forget_the_unused(now_ms)
            rates.append((resource, kind.newest(MEASUREMENTS_MAX)))
            yield None
    if of_controller is not None:
        of_controller.mutation.forget_the_unused(now_ms)
        tokens = of_controller.mutation.newest(MEASUREMENTS_MAX)
        yield None
    bytes_rates = [(resource, sensors) for resource, sensors in rates if resource != "Request"]
    yield gauges(
        f"{NAME}byte_rate",
        "Bytes per second of the clients that share a quota.",
        _measured(bytes_rates, lambda sensor: sensor.stat.measure(now_ms)),
    )
    yield gauges(
        f"{NAME}request_time",
        "Time of the loop that the clients who share a quota use, in percent.",
        _measured(
            [each for each in rates if each[0] == "Request"], lambda sensor: sensor.stat.measure(now_ms)
        ),
    )
    yield gauges(
        f"{NAME}tokens",
        "Partitions that the clients who share a quota may still create or delete now.",
        (
            (_labels("ControllerMutation", tags), sensor.stat.tokens(sensor.bound, now_ms))
            for tags, sensor in tokens
        ),
    )
    yield gauges(
        f"{NAME}mutation_rate",
        "Partitions that the clients who share a quota create or delete per second.",
        ((_labels("ControllerMutation", tags), sensor.stat.taken.measure(now_ms)) for tags, sensor in tokens),
    )
    present = [each for each in (quotas, of_controller) if each is not None]
    for resource, muted in (
        ("produce", [each.produce.muted for each in present]),
        ("fetch", [each.fetch.muted for each in present]),
        ("request", [each.request.muted for each in present]),
        ("controllermutation", [each.mutation.muted for each in present]),
    ):
        yield gauge(
            f"kafka_server_{resource}_queue_size",
            f"Connections that are muted because of quotas of the kind {resource}.",
            sum(each.count(now_ms) for each in muted),
        )
    yield gauges(
        f"{NAME}throttle_time",
        "Mean of the recent throttle times in ms; NaN: none.",
        _throttles(rates, tokens, now_ms),
    )


def _measured(rates: Rates, value_of: Callable[[Sensor[Rate]], float]) -> Iterator[Sample]:
    for resource, sensors in rates:
        for tags, sensor in sensors:
            yield _labels(resource, tags), value_of(sensor)


def _throttles(
    rates: Rates, tokens: Sequence[tuple[Tags, Sensor[TokenBucket]]], now_ms: int
) -> Iterator[Sample]:
    for resource, sensors in rates:
        for tags, sensor in sensors:
            yield _labels(resource, tags), _throttle(sensor, now_ms)
    for tags, bucket in tokens:
        yield _labels("ControllerMutation", tags), _throttle(bucket, now_ms)


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
