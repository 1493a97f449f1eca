"""Quotas: a series for each user and client id that have one, within a bound, and with names that need escaping."""

from __future__ import annotations

from math import isnan

import pytest
from prometheus_client.parser import text_string_to_metric_families

from kafkacompat.metrics.clients import MEASUREMENTS_MAX, quota_families
from kafkacompat.metrics.endpoint import rendered
from kafkacompat.quota.client_quotas import (
    CLIENT_ID,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    EXPIRES_MS,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    RESOURCES,
    USER,
    USER_AND_CLIENT_QUOTAS,
    Entity,
    QuotaManagers,
)

NOW_MS = 100_000


class Bound:
    def __init__(self, value: float) -> None:
        self.value = value


def managers(*quotas: tuple[Entity, str, float]) -> QuotaManagers:
    made = QuotaManagers()
    made.take({(entity, key): Bound(value) for entity, key, value in quotas})
    return made


def series(
    quotas: QuotaManagers, now_ms: int = NOW_MS
) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    text = b"".join(rendered(quota_families(quotas, quotas, now_ms))).decode()
    return {
        (each.name.removeprefix("kafka_server_quota_"), frozenset(each.labels.items())): each.value
        for family in text_string_to_metric_families(text)
        for each in family.samples
        if each.name.startswith("kafka_server_quota_")
    }


def test_rates_tokens_and_throttle_times() -> None:
    default: Entity = ((USER, None),)
    quotas = managers(
        (default, PRODUCER_BYTE_RATE, 1000),
        (default, CONSUMER_BYTE_RATE, 1000),
        (default, REQUEST_PERCENTAGE, 50),
        (default, CONTROLLER_MUTATION_RATE, 2),
    )
    for kind in (quotas.produce, quotas.fetch, quotas.request):
        sensor = kind.sensor("alice", "app", NOW_MS)
        assert sensor is not None
        sensor.stat.record(2200, NOW_MS)
    throttled = quotas.produce.sensor("alice", "app", NOW_MS)
    assert throttled is not None
    throttled.throttled(100, NOW_MS)
    throttled.throttled(300, NOW_MS)
    bucket = quotas.mutation.sensor("alice", "app", NOW_MS)
    assert bucket is not None
    bucket.stat.record(5, bucket.bound, NOW_MS)

    found = series(quotas)

    def value(name: str, resource: str) -> float:
        return found[name, frozenset({("resource", resource), ("user", "alice")})]

    # 11 windows of a second, of which the first ten count for a new rate.
    assert value("byte_rate", "Produce") == value("byte_rate", "Fetch") == 220
    assert value("request_time", "Request") == 220
    assert value("tokens", "ControllerMutation") == 17
    # Of two windows of 30 s, the first of which counts for a new rate.
    assert value("mutation_rate", "ControllerMutation") == pytest.approx(5 / 30)
    assert value("throttle_time", "Produce") == 200
    assert isnan(value("throttle_time", "Fetch"))
    assert isnan(value("throttle_time", "ControllerMutation"))
    assert len(found) == 9


@pytest.mark.parametrize("key", USER_AND_CLIENT_QUOTAS)
def test_what_each_kind_of_quota_measures_is_shown(key: str) -> None:
    quotas = managers((((USER, None),), key, 1000))
    assert quotas.kinds[key].sensor("alice", "app", NOW_MS) is not None
    shown = {name for name, labels in series(quotas) if ("resource", RESOURCES[key]) in labels}
    assert shown > {"throttle_time"}


@pytest.mark.parametrize(
    ("entity", "labels"),
    [
        (((USER, None),), {"user": "CN%3DJ%C3%B6rg%20%2A~"[:-1] + "%7E"}),
        (((CLIENT_ID, None),), {"clientId": '"a\\"b\\nc"'}),
        (
            ((CLIENT_ID, None), (USER, None)),
            {"user": "CN%3DJ%C3%B6rg%20%2A%7E", "clientId": '"a\\"b\\nc"'},
        ),
    ],
)
def test_names_are_those_of_kafka_s_mbeans(entity: Entity, labels: dict[str, str]) -> None:
    quotas = managers((entity, PRODUCER_BYTE_RATE, 1000))
    assert quotas.produce.sensor("CN=Jörg *~", 'a"b\nc', NOW_MS) is not None
    found = {labels for name, labels in series(quotas) if name == "byte_rate"}
    assert found == {frozenset({"resource": "Produce", **labels}.items())}


def test_the_number_of_series_is_bounded_and_the_last_used_are_shown() -> None:
    quotas = managers((((CLIENT_ID, None),), PRODUCER_BYTE_RATE, 1000))
    for number in range(3 * MEASUREMENTS_MAX):
        sensor = quotas.produce.sensor("x", f"c{number}", NOW_MS + number)
        assert sensor is not None
        sensor.throttled(1, NOW_MS + number)
    quotas.produce.sensor("x", "c0", NOW_MS + 10 * MEASUREMENTS_MAX)
    found = series(quotas)
    assert len(found) == 2 * MEASUREMENTS_MAX
    shown = {dict(labels)["clientId"] for _, labels in found}
    assert "c0" in shown
    assert f"c{3 * MEASUREMENTS_MAX - 1}" in shown
    assert "c1" not in shown


def test_without_quotas_there_are_no_series() -> None:
    quotas = managers()
    assert quotas.produce.sensor("alice", "app", NOW_MS) is None
    assert not series(quotas)


def test_muted_connections_are_counted_by_kind_until_their_time_is_over() -> None:
    quotas, of_controller = managers(), QuotaManagers(of_controller=True)
    quotas.produce.muted.add(NOW_MS + 10, NOW_MS)
    quotas.produce.muted.add(NOW_MS + 5, NOW_MS)
    quotas.request.muted.add(NOW_MS + 5, NOW_MS)
    of_controller.request.muted.add(NOW_MS + 10, NOW_MS)
    of_controller.mutation.muted.add(NOW_MS + 10, NOW_MS)

    def sizes(now_ms: int) -> list[float]:
        text = b"".join(rendered(quota_families(quotas, of_controller, now_ms))).decode()
        found = {
            each.name: each.value
            for family in text_string_to_metric_families(text)
            for each in family.samples
        }
        kinds = ("produce", "fetch", "request", "controllermutation")
        return [found[f"kafka_server_{kind}_queue_size"] for kind in kinds]

    assert sizes(NOW_MS) == [2, 0, 2, 1]
    assert sizes(NOW_MS + 5) == [1, 0, 1, 1]
    assert sizes(NOW_MS + 10) == [0, 0, 0, 0]


def test_a_client_that_was_away_for_long_has_no_series_though_nobody_comes_after_it() -> None:
    default: Entity = ((CLIENT_ID, None),)
    quotas = managers((default, PRODUCER_BYTE_RATE, 1000), (default, CONTROLLER_MUTATION_RATE, 2))
    for kind in (quotas.produce, quotas.mutation):
        assert kind.sensor("alice", "app", NOW_MS) is not None
    assert series(quotas, NOW_MS + EXPIRES_MS - 1)
    assert series(quotas, NOW_MS + 2 * EXPIRES_MS) == {}
