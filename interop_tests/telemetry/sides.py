"""Brokers that offer telemetry to clients (KIP-714): kafkacompat by its metrics listener, Apache Kafka by a plugin."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from interop_tests.consumer_groups.members import compiled
from interop_tests.harness.broker import APACHE, BrokerProcess
from interop_tests.harness.ports import free_port
from interop_tests.harness.waiting import wait_until
from interop_tests.harness.wire import Connection

PLUGIN = Path(__file__).resolve().parent / "java" / "TelemetryReceiver.java"
MAX_BYTES = 2000
"""telemetry.max.bytes."""
HOUR_MS = 3_600_000
CLIENT_METRICS = 16
SET, DELETE = 0, 1
NO_ID = uuid.UUID(int=0)
MARKER = "marker"


class TelemetrySide:
    """One broker, and connections to it by name."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.kind = broker.kind
        self._broker = broker
        self._own = Connection(broker.bootstrap, 60.0, client_id="administrator")
        self._connections: dict[str, Connection] = {}
        self._markers = 0

    def close(self) -> None:
        for name in [*self._connections]:
            self.hang_up(name)
        self._own.close()

    def connect(self, name: str, client_id: str | None, software: tuple[str, str] | None) -> None:
        """A connection of a client with this id. Without `software` it sends no ApiVersions."""
        made = self._connections[name] = Connection(self._broker.bootstrap, 60.0, client_id)
        if software is not None:
            told = {"ClientSoftwareName": software[0], "ClientSoftwareVersion": software[1]}
            assert made.call("ApiVersions", 3, told)["ErrorCode"] == 0

    def hang_up(self, name: str) -> None:
        self._connections.pop(name).close()

    def ask(self, name: str, api: str, body: Mapping[str, Any]) -> dict[str, Any]:
        return self._connections[name].call(api, 0, dict(body))

    def subscribe(self, name: str, settings: Mapping[str, str | None]) -> None:
        """Change a subscription. None deletes a setting. Returns when the broker asks clients accordingly."""
        self._alter(name, settings)
        # Brokers apply changes in their order.
        self._markers += 1
        wanted = f"{MARKER}.{self._markers}"
        self._alter(MARKER, {"metrics": wanted, "interval.ms": str(HOUR_MS), "match": f"client_id={MARKER}"})
        with Connection(self._broker.bootstrap, 60.0, MARKER) as connection:

            def is_applied() -> bool:
                answer = connection.call("GetTelemetrySubscriptions", 0, {"ClientInstanceId": NO_ID})
                return wanted in answer["RequestedMetrics"] or "*" in answer["RequestedMetrics"]

            wait_until(is_applied, f"{self.kind} applies the subscription {name}", interval_s=0.02)

    def _alter(self, name: str, settings: Mapping[str, str | None]) -> None:
        configs = [
            {"Name": key, "ConfigOperation": DELETE if value is None else SET, "Value": value}
            for key, value in settings.items()
        ]
        resource = {"ResourceType": CLIENT_METRICS, "ResourceName": name, "Configs": configs}
        reply = self._own.call("IncrementalAlterConfigs", 1, {"Resources": [resource], "ValidateOnly": False})
        (answer,) = reply["Responses"]
        assert answer["ErrorCode"] == 0, answer


def offer_telemetry(broker: BrokerProcess) -> None:
    """Let a broker that has not started serve the APIs of telemetry."""
    if broker.kind != APACHE:
        broker.settings["metrics.listener.port"] = str(free_port())
    else:
        broker.settings["metric.reporters"] = PLUGIN.stem
        broker.plugins = [compiled("telemetry_receiver", PLUGIN)]
