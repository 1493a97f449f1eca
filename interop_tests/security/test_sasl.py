"""Listeners with SASL_PLAINTEXT: which clients can log in with which mechanism, with stock clients and compared with
Apache Kafka."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer
from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaError as PythonError

from interop_tests.conftest import MakeBroker
from interop_tests.harness.broker import BrokerProcess
from interop_tests.harness.java_tools import KafkaTools
from interop_tests.harness.ports import free_port
from interop_tests.security.sasl_talks import (
    AREA,
    MECHANISMS,
    MODULES,
    PASSWORD,
    USER,
    make_user,
    settings_of,
)
from interop_tests.side_by_side.area import SOAK, kept_brokers, seeds
from interop_tests.side_by_side.comparison import Comparison

pytestmark = pytest.mark.needs_control
CLIENT_S = 20


@pytest.fixture
def safe(make_broker: MakeBroker) -> tuple[BrokerProcess, str]:
    """A broker with a listener SAFE, and that listener's address."""
    broker = make_broker(start=False)
    port = free_port()
    broker.settings |= settings_of(broker, port)
    broker.start()
    make_user(broker)
    return broker, f"127.0.0.1:{port}"


def of_librdkafka(address: str, mechanism: str, password: str = PASSWORD) -> dict[str, Any]:
    return {
        "bootstrap.servers": address,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": USER,
        "sasl.password": password,
    }


def of_kafka_python(address: str, mechanism: str, password: str = PASSWORD) -> dict[str, Any]:
    return {
        "bootstrap_servers": address,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": USER,
        "sasl_plain_password": password,
    }


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_stock_clients_get_in_by_each_mechanism(safe: tuple[BrokerProcess, str], mechanism: str) -> None:
    broker, address = safe
    producer = Producer(of_librdkafka(address, mechanism))
    producer.produce("topic", b"from librdkafka")
    assert producer.flush(CLIENT_S) == 0
    other = KafkaProducer(**of_kafka_python(address, mechanism))
    other.send("topic", b"from kafka-python").get(CLIENT_S)
    other.close()
    consumer = Consumer(
        of_librdkafka(address, mechanism) | {"group.id": "group", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["topic"])
    seen: set[bytes] = set()
    deadline = time.monotonic() + CLIENT_S
    while len(seen) < 2 and time.monotonic() < deadline:
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            seen.add(message.value())
    consumer.close()
    assert seen == {b"from librdkafka", b"from kafka-python"}
    again = KafkaConsumer(
        "topic",
        auto_offset_reset="earliest",
        consumer_timeout_ms=CLIENT_S * 1000,
        **of_kafka_python(address, mechanism),
    )
    assert {next(again).value for _ in seen} == seen
    again.close()
    assert PASSWORD not in broker.log_text()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_wrong_password_lets_nobody_in(safe: tuple[BrokerProcess, str], mechanism: str) -> None:
    broker, address = safe
    errors: list[KafkaError] = []
    wrong = "not-this-one"
    producer = Producer(of_librdkafka(address, mechanism, wrong) | {"error_cb": errors.append})
    deadline = time.monotonic() + CLIENT_S
    while not errors and time.monotonic() < deadline:
        producer.poll(0.1)
    assert errors[0].code() == KafkaError._AUTHENTICATION
    with pytest.raises(PythonError):
        KafkaProducer(**of_kafka_python(address, mechanism, wrong), bootstrap_timeout_ms=1000)
    assert "failed authentication" in broker.log_text() or broker.kind != "kafkacompat"
    assert wrong not in broker.log_text()


def test_java_tools_get_in_by_a_file_of_properties(
    safe: tuple[BrokerProcess, str], tools: KafkaTools, tmp_path: Path
) -> None:
    _, address = safe
    file = tmp_path / "client.properties"
    module = f'{MODULES}scram.ScramLoginModule required username="{USER}" password="{PASSWORD}";'
    file.write_text(
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\nsasl.jaas.config={module}\n"
    )
    common = ("--bootstrap-server", address, "--command-config", str(file))
    made = tools.run("TopicCommand", *common, "--create", "--topic", "made", "--partitions", "2")
    assert made.status == 0, made
    listed = tools.run("TopicCommand", *common, "--list")
    assert "made" in listed.lines, listed


def test_kafka_configs_makes_describes_and_removes_users(
    safe: tuple[BrokerProcess, str], tools: KafkaTools
) -> None:
    broker, _ = safe
    bob = ("--bootstrap-server", broker.bootstrap, "--entity-type", "users", "--entity-name", "bob")
    given = "SCRAM-SHA-256=[iterations=8192,password=secret of bob]"
    made = tools.run("ConfigCommand", *bob, "--alter", "--add-config", given)
    assert made.status == 0, made
    described = tools.run("ConfigCommand", *bob, "--describe")
    assert "SCRAM-SHA-256=iterations=8192" in described.out, described
    gone = tools.run("ConfigCommand", *bob, "--alter", "--delete-config", "SCRAM-SHA-256")
    assert gone.status == 0, gone
    assert "SCRAM" not in tools.run("ConfigCommand", *bob, "--describe").out
    assert "secret of bob" not in broker.log_text()


def test_talks_are_answered_as_apache_kafka_answers_them(
    tmp_path: Path, alike: Callable[[str, Comparison, str], None]
) -> None:
    (seed,), talks = seeds((3,), 1), 3000 if SOAK else 150
    with kept_brokers(AREA, tmp_path) as brokers:
        comparison = brokers.seed(seed, talks)
    alike(AREA.name, comparison, f"--seed {seed} --requests {talks}")
    assert comparison.asked == talks
