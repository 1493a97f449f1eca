"""Other clients over TLS, with each SASL mechanism that they support."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider

from interop_tests.conftest import chosen_kind
from interop_tests.harness.kafka_jars import require_program
from interop_tests.harness.programs import run_program
from interop_tests.harness.raw_kafka import create_topic
from interop_tests.security.secured import (
    MECHANISMS,
    PASSWORD,
    USER,
    Secured,
    secured,
)

pytestmark = pytest.mark.needs_control
CLIENT_S = 30
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


def test_kcat(safe: Secured) -> None:
    """Debian's program with a librdkafka of 2023, whose SCRAM Apache Kafka refuses too."""
    command = [require_program("kcat"), "-b", safe.address, "-t", "kcat"]
    for setting in (
        "security.protocol=sasl_ssl",
        f"ssl.ca.location={safe.ca}",
        "sasl.mechanism=PLAIN",
        f"sasl.username={USER}",
        f"sasl.password={PASSWORD}",
    ):
        command += ["-X", setting]
    lines = "one\ntwo\nthree\n"
    subprocess.run([*command, "-P"], input=lines, text=True, check=True, timeout=CLIENT_S)
    consume = [*command, "-C", "-e", "-q", "-o", "beginning"]
    done = subprocess.run(consume, capture_output=True, text=True, check=True, timeout=CLIENT_S)
    assert sorted(done.stdout.split()) == sorted(lines.split())
