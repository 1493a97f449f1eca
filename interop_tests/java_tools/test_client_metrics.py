"""Client telemetry (KIP-714): subscriptions by Kafka's tools, and the metrics that Kafka's clients send."""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from interop_tests.harness.broker import APACHE, BrokerProcess, chosen_kind
from interop_tests.harness.java_tools import KafkaTools
from interop_tests.harness.ports import free_port
from interop_tests.harness.waiting import wait_until
from interop_tests.harness.wire import Connection

TOOL = "ClientMetricsCommand"
CONFIG = "kafka.admin.ConfigCommand"
CLIENT_METRICS = 16
SET = 0


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


@pytest.fixture
def exporting(tmp_path: Path) -> Iterator[tuple[BrokerProcess, str]]:
    """A broker that exports its clients' metrics, and the address of the export."""
    port = free_port()
    broker = BrokerProcess(chosen_kind(), tmp_path / "broker", {"metrics.listener.port": str(port)})
    try:
        yield broker.start(), f"http://127.0.0.1:{port}/metrics"
    finally:
        broker.kill()


def sent_by(address: str, client_id: str) -> set[str]:
    with urllib.request.urlopen(address, timeout=30) as answer:
        text = answer.read().decode()
    return {
        line.partition("{")[0]
        for line in text.splitlines()
        if re.search(f'[{{,]client_id="{client_id}"', line)
    } - {"kafka_server"}


@pytest.mark.needs_control
@pytest.mark.skipif(chosen_kind() == APACHE, reason="Apache Kafka needs a plugin to take clients' metrics")
def test_the_metrics_of_kafkas_clients_stand_beside_the_brokers(
    exporting: tuple[BrokerProcess, str], tools: KafkaTools
) -> None:
    broker, address = exporting
    where = ("--bootstrap-server", broker.bootstrap)
    tools.run(TOOL, *where, "--alter", "--name", "all", "--metrics", "*", "--interval", "200")
    wait_until(lambda: "all" in tools.run(TOOL, *where, "--list").lines, "the subscription is known")
    consumer = (
        *where,
        "--topic",
        "told",
        "--command-property",
        "client.id=java-reader",
        "--timeout-ms",
        "4000",
    )
    tools.run("TopicCommand", *where, "--create", "--topic", "told")
    tools.run("consumer.ConsoleConsumer", *consumer, status=None)
    found = {name for name in sent_by(address, "java-reader") if name.startswith("kafka_client_")}
    assert "kafka_client_org_apache_kafka_consumer_connection_creation_total_total" in found or any(
        name.startswith("kafka_client_org_apache_kafka_consumer_connection_creation") for name in found
    ), found

    producer = Producer(
        {"bootstrap.servers": broker.bootstrap, "client.id": "c-writer", "enable.metrics.push": True}
    )

    def told() -> bool:
        producer.produce("told", b"x")
        producer.flush(10)
        return any(
            name.startswith("kafka_client_org_apache_kafka_producer") for name in sent_by(address, "c-writer")
        )

    wait_until(told, "librdkafka's metrics are exported")
