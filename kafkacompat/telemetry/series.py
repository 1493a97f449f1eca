"""The last values that clients have sent, as series for Prometheus. Pure, except for the library that reads OTLP.

Whoever may connect may send metrics, so everything is bounded: bytes, points of a push, clients, series, the length of
names and values. All names begin with `kafka_client_`, so that no client can pass for a broker.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import isfinite

from kafkacompat.telemetry.client_metrics_manager import Attributes, PointsRefused

SERIES_A_CLIENT_MAX = 1_000
SERIES_MAX = 20_000
"""Of all clients. The client that was silent for longest makes room."""
TEXT_MAX = 200
LABELS_MAX = 10
PREFIX = "kafka_client_"
NOT_IN_A_NAME = re.compile(r"[^a-zA-Z0-9_]")
OWN_LABELS = ("client_instance_id", "client_id", "client_software_name", "client_software_version")

Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Point:
    name: str
    labels: Labels
    value: float
    is_counter: bool
    is_delta: bool
    """The value is added to the last one."""


Key = tuple[str, bool, Labels]
"""Name, whether it is a counter, labels."""


@dataclass(slots=True)
class ClientSeries:
    by_client: OrderedDict[bytes, dict[Key, float]] = field(default_factory=OrderedDict)
    labels: dict[bytes, Mapping[str, str]] = field(default_factory=dict)
    count: int = 0
    refused: int = 0
    """Points that did not fit into the bounds, or that cannot be added."""

    def add(self, client: bytes, attributes: Attributes, points: Iterator[Point]) -> None:
        values = self.by_client.pop(client, {})
        self.by_client[client] = values
        self.labels[client] = {name: attributes.get(name, "")[:TEXT_MAX] for name in OWN_LABELS}
        before = len(values)
        for point in points:
            key = point.name, point.is_counter, point.labels
            value = point.value
            if point.is_delta:
                value += values.get(key, 0.0)
                if not isfinite(value) or (point.is_counter and point.value < 0):
                    # Nothing that is added later would make it a number again, and counters do not go down.
                    self.refused += 1
                    continue
            if key not in values and len(values) >= SERIES_A_CLIENT_MAX:
                self.refused += 1
            else:
                values[key] = value
        self.count += len(values) - before
        while self.count > SERIES_MAX:
            self.forget(next(iter(self.by_client)))

    def forget(self, client: bytes) -> None:
        self.count -= len(self.by_client.pop(client, ()))
        self.labels.pop(client, None)


def metric_name(text: str) -> str:
    return PREFIX + NOT_IN_A_NAME.sub("_", text[:TEXT_MAX])


def label_name(text: str) -> str:
    """A name that Prometheus takes and that is none of ours."""
    name = NOT_IN_A_NAME.sub("_", text[:TEXT_MAX])
    return (
        f"attribute_{name}"
        if not name or name[0].isdigit() or name in OWN_LABELS or name.startswith("__")
        else name
    )


def labels_of(attributes: Mapping[str, str]) -> Labels:
    chosen = sorted(attributes.items())[:LABELS_MAX]
    return tuple({label_name(name): value[:TEXT_MAX] for name, value in chosen}.items())


__all__ = ["ClientSeries", "Labels", "Point", "PointsRefused", "labels_of", "metric_name"]
