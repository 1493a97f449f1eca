"""Kafka's Admin client under a quota of mutations: what it is told, and that it tries again after the throttle time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from interop_tests.consumer_groups.members import java_program
from interop_tests.harness.broker import APACHE, KAFKACOMPAT, BrokerProcess, chosen_bootstrap
from interop_tests.harness.json_process import JsonProcess
from interop_tests.harness.kafka_jars import MissingTool
from interop_tests.harness.ports import free_port
from interop_tests.quotas.sides import QuotaSide, secured_settings

pytestmark = [
    pytest.mark.needs_control,
    pytest.mark.skipif(chosen_bootstrap() is not None, reason="starts brokers of its own"),
]
PROGRAM = Path(__file__).resolve().parent / "java" / "MutatingClient.java"
CLIENT_ID = "mutating"
RATE = 4.0
"""Partitions a second. 44 may be used at once, the quota of eleven seconds."""
REFUSED = "ThrottlingQuotaExceededException"


@pytest.fixture(params=[KAFKACOMPAT, APACHE])
def client(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[JsonProcess]:
    broker = BrokerProcess(request.param, tmp_path / "broker")
    port = free_port()
    broker.settings |= secured_settings(broker, port)
    try:
        side = QuotaSide(broker.start(), port)
        side.alter([([("client-id", CLIENT_ID)], [("controller_mutation_rate", RATE)])])
        side.settle()
        settings: dict[str, str | None] = {"bootstrap": broker.bootstrap, "client": CLIENT_ID}
        process = JsonProcess(java_program("mutating_client", PROGRAM), tmp_path / "client.log", settings)
        try:
            yield process
        finally:
            process.kill()
    except MissingTool as missing:
        pytest.skip(str(missing))
    finally:
        broker.kill()


def ask(client: JsonProcess, do: str, topics: list[str], partitions: int = 0, *, retries: bool) -> Any:
    return client.ask(do, topics=topics, partitions=partitions, retries=retries)


def test_an_administrator_is_told_and_tries_again(client: JsonProcess) -> None:
    first = ask(client, "create", ["a", "b", "c"], 24, retries=False)
    # The second topic uses four partitions more than there are, and the third one is refused.
    assert first["errors"] == {"a": "", "b": "", "c": REFUSED}
    assert 500 < first["throttle_ms"] <= 1_000
    again = ask(client, "create", ["c"], 4, retries=True)
    assert again["errors"] == {"c": ""}
    grown = ask(client, "grow", ["c"], 8, retries=True)
    assert grown["errors"] == {"c": ""}
    gone = ask(client, "delete", ["c"], retries=True)
    assert gone["errors"] == {"c": ""}
    # Four, four and eight partitions, after four that were missing, at four a second: the last ones are owed.
    assert again["took_ms"] + grown["took_ms"] + gone["took_ms"] >= 2_000
    refused = ask(client, "delete", ["a"], retries=False)
    assert refused["errors"] == {"a": REFUSED}
