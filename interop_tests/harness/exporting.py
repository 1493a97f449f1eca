"""A broker that exports the metrics its clients send (KIP-714), and what a scrape of it shows."""

from __future__ import annotations

import contextlib
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from interop_tests.harness.broker import KAFKACOMPAT, BrokerProcess
from interop_tests.harness.ports import free_port
from interop_tests.harness.wire import Connection

CLIENT_METRICS = 16
"""The resource type of subscriptions."""
SET = 0
OF_CLIENTS = "kafka_client_"
TIMEOUT_S = 30.0


def scraped_text(address: str) -> str:
    with urllib.request.urlopen(address, timeout=TIMEOUT_S) as answer:
        return str(answer.read().decode())


class Exporting(NamedTuple):
    broker: BrokerProcess
    address: str

    def scrape(self) -> list[Sample]:
        """Every series of the endpoint with its value."""
        text = scraped_text(self.address)
        return [sample for family in text_string_to_metric_families(text) for sample in family.samples]

    def sent_by(self, client_id: str) -> list[Sample]:
        """The series that clients with this id have sent."""
        return [
            each
            for each in self.scrape()
            if each.name.startswith(OF_CLIENTS) and each.labels["client_id"] == client_id
        ]

    def subscribe(self, name: str, metrics: str, interval_ms: int) -> None:
        """Ask all clients for the metrics with these prefixes."""
        values = {"metrics": metrics, "interval.ms": str(interval_ms)}
        resource = {
            "ResourceType": CLIENT_METRICS,
            "ResourceName": name,
            "Configs": [
                {"Name": key, "ConfigOperation": SET, "Value": value} for key, value in values.items()
            ],
        }
        with Connection(self.broker.bootstrap) as connection:
            body = {"Resources": [resource], "ValidateOnly": False}
            (answer,) = connection.call("IncrementalAlterConfigs", 1, body)["Responses"]
        assert answer["ErrorCode"] == 0, answer


@contextlib.contextmanager
def exporting_broker(root: Path, settings: dict[str, str] | None = None) -> Iterator[Exporting]:
    """A broker of kafkacompat, because Apache Kafka needs a plugin to take clients' metrics. It is killed at the end."""
    port = free_port()
    broker = BrokerProcess(KAFKACOMPAT, root, {"metrics.listener.port": str(port), **(settings or {})})
    try:
        yield Exporting(broker.start(), f"http://127.0.0.1:{port}/metrics")
    finally:
        broker.kill()
