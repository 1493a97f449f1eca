"""The order of Java's sets, and the subscription ids that follow from it. The expected values are Java's and Apache Kafka's."""

from __future__ import annotations

import uuid

import pytest

from kafkacompat.ids import in_hash_order, java_string_hash
from kafkacompat.telemetry.client_metrics_manager import ClientMetricsManager

KAFKA = "org.apache.kafka."
TWELVE = [
    f"{KAFKA}producer.",
    f"{KAFKA}consumer.",
    f"{KAFKA}consumer.fetch.manager.",
    f"{KAFKA}admin.client.",
    "librdkafka.",
    "kafka.metric",
    "a",
    "Ünïcode.ĸ.𐐷",
    *(f"metric.{number}." for number in range(4)),
]
TOLD_BY_KAFKA = (
    "librdkafka.",
    f"{KAFKA}producer.",
    "metric.2.",
    "a",
    "metric.1.",
    f"{KAFKA}consumer.",
    "kafka.metric",
    "Ünïcode.ĸ.𐐷",
    "metric.3.",
    f"{KAFKA}consumer.fetch.manager.",
    "metric.0.",
    f"{KAFKA}admin.client.",
)
CLIENT = uuid.UUID("cb8b2493-cb88-5a76-ad65-c25449a5dc26").bytes
SUBSCRIPTION_ID = -1593475285


class Nowhere:
    def take(self, *_: object) -> None: ...

    def forget(self, client: bytes) -> None: ...


@pytest.mark.parametrize(
    ("text", "code"), [("", 0), ("a", 97), ("hello", 99162322), ("a.", 3053), ("𐐷", 31 * 0xD801 + 0xDC37)]
)
def test_the_hash_of_a_text(text: str, code: int) -> None:
    assert java_string_hash(text) == code


def test_the_order_depends_on_the_room() -> None:
    """A set made of twelve texts has twice the room of one to which twelve were added. Two texts meet in the smaller one."""
    assert in_hash_order(in_hash_order(TWELVE, at_once=True)) == list(TOLD_BY_KAFKA)
    assert in_hash_order(TWELVE) != list(TOLD_BY_KAFKA)
    assert in_hash_order(["b.", "a.", "b."]) == ["b.", "a."]
    assert in_hash_order(["c.", "a.", "b."], spare=100) == ["b.", "c.", "a."]


def test_the_subscription_id_is_apache_kafkas() -> None:
    manager = ClientMetricsManager(100, Nowhere(), lambda: CLIENT)
    manager.subscribe({"a": {"metrics": ",".join(TWELVE)}})
    _, client = manager.get(CLIENT, {}, 1, 0)
    assert (client.metrics, client.interval_ms) == (TOLD_BY_KAFKA, 300_000)
    assert client.subscription_id == SUBSCRIPTION_ID
