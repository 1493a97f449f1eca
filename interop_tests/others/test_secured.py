"""Other clients over TLS, with each SASL mechanism that they support."""

from __future__ import annotations

import asyncio
import os
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider
from confluent_kafka import Consumer, Producer
from kafka import KafkaConsumer, KafkaProducer
from kafka.net.sasl.oauth import AbstractTokenProvider as PythonTokenProvider

from interop_tests.conftest import chosen_kind
from interop_tests.harness.kafka_jars import require_program
from interop_tests.harness.programs import run_program
from interop_tests.harness.raw_kafka import create_topic
from interop_tests.harness.waiting import wait_until
from interop_tests.security.secured import (
    MECHANISMS,
    PASSWORD,
    USER,
    Secured,
    secured,
)

pytestmark = pytest.mark.needs_control
CLIENT_S = 30
KCAT_S = 60
by_each_mechanism = pytest.mark.parametrize("mechanism", MECHANISMS)


@pytest.fixture(scope="module")
def safe(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with secured(tmp_path_factory.mktemp("secured"), chosen_kind()) as found:
        yield found


@pytest.fixture
def environment(safe: Secured, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """The environment that tells the programs how to connect."""

    def tell(mechanism: str) -> None:
        monkeypatch.setenv("KAFKA_CA", str(safe.ca))
        monkeypatch.setenv("KAFKA_MECHANISM", mechanism)
        monkeypatch.setenv("KAFKA_USER", USER)
        monkeypatch.setenv("KAFKA_PASSWORD", PASSWORD)
        monkeypatch.setenv("KAFKA_TOKEN", safe.token())

    return tell


@by_each_mechanism
def test_franz_go(
    franz_go: list[str], safe: Secured, environment: Callable[[str], None], mechanism: str
) -> None:
    environment(mechanism)
    name = f"franz-go-{mechanism}"
    create_topic(safe.broker.bootstrap, name)
    run_program(franz_go, "admin", safe.address, f"{name}-admin")
    seen = run_program(franz_go, "produce", safe.address, name)
    assert seen["written"] == len(seen["records"]) == 100


@by_each_mechanism
def test_sarama(
    sarama: list[str], safe: Secured, environment: Callable[[str], None], mechanism: str, unique: Any
) -> None:
    environment(mechanism)
    topic, group = unique("sarama"), unique("group")
    seen = run_program(sarama, "everything", safe.address, "newest", topic, group)
    assert len(seen["records"]) == seen["written"]


@by_each_mechanism
def test_kafkajs(
    kafkajs: list[str], safe: Secured, environment: Callable[[str], None], mechanism: str
) -> None:
    environment(mechanism)
    topic = f"kafkajs-{mechanism}"
    create_topic(safe.broker.bootstrap, topic)
    run_program(kafkajs, "admin", safe.address, f"{topic}-admin", topic)
    seen = run_program(kafkajs, "produce", safe.address, topic, topic)
    assert seen["written"] == len(seen["records"])


class Tokens(AbstractTokenProvider):  # type: ignore[misc]
    def __init__(self, safe: Secured) -> None:
        self._safe = safe

    async def token(self) -> str:
        return self._safe.token()


@by_each_mechanism
def test_aiokafka(safe: Secured, mechanism: str) -> None:
    topic = f"aiokafka-{mechanism}"
    options: dict[str, Any] = {
        "bootstrap_servers": safe.address,
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": USER,
        "sasl_plain_password": PASSWORD,
    }

    async def there_and_back() -> None:
        options["ssl_context"] = ssl.create_default_context(cafile=str(safe.ca))
        if mechanism == "OAUTHBEARER":
            options["sasl_oauth_token_provider"] = Tokens(safe)
        async with AIOKafkaProducer(**options) as producer:
            for number in range(10):
                await producer.send_and_wait(topic, b"%d" % number)
        reading = {"group_id": topic, "auto_offset_reset": "earliest"}
        async with AIOKafkaConsumer(topic, **options, **reading) as consumer:
            seen = [(await consumer.getone()).value for _ in range(10)]
        assert sorted(seen) == sorted(b"%d" % number for number in range(10))

    asyncio.run(asyncio.wait_for(there_and_back(), CLIENT_S))


@pytest.fixture
def newer_library(tmp_path: Path) -> dict[str, str]:
    """The environment in which kcat uses the librdkafka of confluent-kafka's wheel."""
    (library,) = Path(confluent_kafka.__file__).parent.with_name("confluent_kafka.libs").glob("librdkafka*")
    (tmp_path / "librdkafka.so.1").symlink_to(library)
    return os.environ | {"LD_LIBRARY_PATH": str(tmp_path)}


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_kcat(safe: Secured, newer_library: dict[str, str], mechanism: str) -> None:
    topic = f"kcat-{mechanism}"
    lines = "one\ntwo\nthree\n"
    written = kcat(safe, mechanism, topic, "-P", environment=newer_library, lines=lines)
    assert written.returncode == 0, written
    read = kcat(safe, mechanism, topic, "-C", "-e", "-q", "-o", "beginning", environment=newer_library)
    assert sorted(read.stdout.split()) == sorted(lines.split()), read


def test_kcat_with_the_library_of_debian(safe: Secured) -> None:
    """Its SCRAM does not repeat the server's nonce as it should. Apache Kafka refuses it too, since CVE-2024-56128."""
    assert kcat(safe, "PLAIN", "old-kcat", "-P", lines="one\n").returncode == 0
    assert kcat(safe, "PLAIN", "old-kcat", "-C", "-e", "-q", "-o", "beginning").stdout == "one\n"
    refused = kcat(safe, "SCRAM-SHA-256", "old-kcat", "-L", "-m", "5")
    assert refused.returncode != 0, refused
    assert "Authentication failed" in refused.stderr, refused


def kcat(
    safe: Secured,
    mechanism: str,
    topic: str,
    *arguments: str,
    environment: Mapping[str, str] | None = None,
    lines: str | None = None,
) -> subprocess.CompletedProcess[str]:
    command = [require_program("kcat"), "-b", safe.address, "-t", topic]
    for setting in (
        "security.protocol=sasl_ssl",
        f"ssl.ca.location={safe.ca}",
        f"sasl.mechanism={mechanism}",
        f"sasl.username={USER}",
        f"sasl.password={PASSWORD}",
    ):
        command += ["-X", setting]
    return subprocess.run(
        [*command, *arguments], input=lines, capture_output=True, text=True, env=environment, timeout=KCAT_S
    )


def librdkafka(safe: Secured, mechanism: str) -> dict[str, Any]:
    options: dict[str, Any] = {
        "bootstrap.servers": safe.address,
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(safe.ca),
        "sasl.mechanism": mechanism,
    }
    if mechanism != "OAUTHBEARER":
        return options | {"sasl.username": USER, "sasl.password": PASSWORD}
    return options | {"oauth_cb": lambda _: (safe.token(), time.time() + 3600)}


@by_each_mechanism
def test_confluent_kafka(safe: Secured, mechanism: str) -> None:
    topic = f"confluent-{mechanism}"
    expected = {b"%d" % number for number in range(10)}
    producer = Producer(librdkafka(safe, mechanism))
    for value in expected:
        producer.produce(topic, value)
    assert producer.flush(CLIENT_S) == 0
    consumer = Consumer(librdkafka(safe, mechanism) | {"group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    seen: set[bytes | None] = set()

    def read() -> bool:
        seen.update(each.value() for each in consumer.consume(10, 0.5) if each.error() is None)
        return seen == expected

    wait_until(read, "everything is read")
    consumer.close()


class PythonTokens(PythonTokenProvider):  # type: ignore[misc]
    def __init__(self, safe: Secured) -> None:
        super().__init__()
        self._safe = safe

    def token(self) -> str:
        return self._safe.token()


@by_each_mechanism
def test_kafka_python(safe: Secured, mechanism: str) -> None:
    topic = f"kafka-python-{mechanism}"
    options: dict[str, Any] = {
        "bootstrap_servers": safe.address,
        "security_protocol": "SASL_SSL",
        "ssl_cafile": str(safe.ca),
        "sasl_mechanism": mechanism,
        "sasl_plain_username": USER,
        "sasl_plain_password": PASSWORD,
    }
    if mechanism == "OAUTHBEARER":
        options["sasl_oauth_token_provider"] = PythonTokens(safe)
    expected = {b"%d" % number for number in range(10)}
    producer = KafkaProducer(**options)
    for sent in [producer.send(topic, value) for value in expected]:
        sent.get(CLIENT_S)
    producer.close()
    consumer = KafkaConsumer(
        topic, auto_offset_reset="earliest", consumer_timeout_ms=CLIENT_S * 1000, **options
    )
    assert {next(consumer).value for _ in expected} == expected
    consumer.close()
