"""Client telemetry (KIP-714): subscriptions by Kafka's tools, and the metrics that Kafka's clients send."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer

from interop_tests.harness.broker import APACHE, chosen_kind
from interop_tests.harness.exporting import OF_CLIENTS, exporting_broker
from interop_tests.harness.java_tools import KafkaTools
from interop_tests.harness.waiting import wait_until
from interop_tests.harness.wire import Connection

TOOL = "ClientMetricsCommand"
CONFIG = "ConfigCommand"
CLIENT_METRICS = 16
SET = 0
CONNECTIONS = f"{OF_CLIENTS}org_apache_kafka_consumer_connection_creation_total"
OF_PRODUCERS = f"{OF_CLIENTS}org_apache_kafka_producer"


def test_a_subscription_from_create_to_delete(
    tools: KafkaTools, bootstrap: str, unique: Callable[[str], str]
) -> None:
    name, where = unique("subscription"), ("--bootstrap-server", bootstrap)
    tools.run(
        TOOL, *where, "--alter", "--name", name, "--metrics", "org.apache.kafka.,librdkafka.",
        "--interval", "5000", "--match", "client_software_name=apache.*,client_id=a[0-9]",
    )  # fmt: skip
    listed = wait_until(
        lambda: [line for line in tools.run(TOOL, *where, "--list").lines if line == name], "it is listed"
    )
    assert listed == [name]
    described = tools.run(TOOL, *where, "--describe", "--name", name).out
    for line in (
        "interval.ms=5000",
        "match=client_software_name=apache.*,client_id=a[0-9]",
        "metrics=org.apache.kafka.,librdkafka.",
    ):
        assert line in described
    entity = ("--entity-type", "client-metrics", "--entity-name", name)
    assert "interval.ms=5000" in tools.run(CONFIG, *where, "--describe", *entity).out
    tools.run(CONFIG, *where, "--alter", *entity, "--add-config", "interval.ms=7000")
    wait_until(
        lambda: "interval.ms=7000" in tools.run(TOOL, *where, "--describe", "--name", name).out,
        "the interval is changed",
    )
    tools.run(TOOL, *where, "--delete", "--name", name)
    wait_until(lambda: name not in tools.run(TOOL, *where, "--list").lines, "it is gone")


@pytest.mark.parametrize(
    ("name", "setting", "value", "code"),
    [
        ("", "interval.ms", "1000", 42),
        ("s", "nothing", "1000", 42),
        ("s", "interval.ms", "99", 42),
        ("s", "interval.ms", "3600001", 42),
        ("s", "interval.ms", "often", 40),
        ("s", "match", "client_id", 40),
        ("s", "match", "client_id=a=b", 40),
        ("s", "match", "no_such_thing=a", 40),
        ("s", "match", "client_id=[", 40),
        ("s", "metrics", "a.,,b.", 40),
    ],
)
def test_an_invalid_subscription_is_refused(
    name: str, setting: str, value: str, code: int, bootstrap: str
) -> None:
    resource = {
        "ResourceType": CLIENT_METRICS,
        "ResourceName": name,
        "Configs": [{"Name": setting, "ConfigOperation": SET, "Value": value}],
    }
    with Connection(bootstrap) as connection:
        reply = connection.call("IncrementalAlterConfigs", 1, {"Resources": [resource], "ValidateOnly": True})
    (answer,) = reply["Responses"]
    assert answer["ErrorCode"] == code, answer
    assert value in answer["ErrorMessage"] or setting in answer["ErrorMessage"] or not name


@pytest.mark.needs_control
@pytest.mark.skipif(chosen_kind() == APACHE, reason="Apache Kafka needs a plugin to take clients' metrics")
def test_the_metrics_of_kafkas_clients_stand_beside_the_brokers(tmp_path: Path, tools: KafkaTools) -> None:
    with exporting_broker(tmp_path / "broker") as node:
        where = ("--bootstrap-server", node.broker.bootstrap)
        tools.run(TOOL, *where, "--alter", "--name", "all", "--metrics", "*", "--interval", "200")
        wait_until(lambda: "all" in tools.run(TOOL, *where, "--list").lines, "the subscription is known")
        tools.run("TopicCommand", *where, "--create", "--topic", "told")
        consumer = ("--topic", "told", "--command-property", "client.id=java-reader", "--timeout-ms", "4000")
        tools.run("consumer.ConsoleConsumer", *where, *consumer, status=None)
        found = node.sent_by("java-reader")
        assert any(each.name.startswith(CONNECTIONS) and each.value > 0 for each in found), found
        assert {each.labels["client_software_name"] for each in found} == {"apache-kafka-java"}

        producer = Producer(
            {"bootstrap.servers": node.broker.bootstrap, "client.id": "c-writer", "enable.metrics.push": True}
        )

        def told() -> bool:
            producer.produce("told", b"x")
            producer.flush(10)
            return any(each.name.startswith(OF_PRODUCERS) for each in node.sent_by("c-writer"))

        wait_until(told, "librdkafka's metrics are exported")
        found = node.sent_by("c-writer")
        assert {each.labels["client_software_name"] for each in found} == {"confluent-kafka-python"}
