"""The last values that clients have sent, as series for Prometheus. Pure, except for the library that reads OTLP.

Whoever may connect may send metrics, so everything is bounded: bytes, points of a push, clients, series, the length of
names and values. All names begin with `kafka_client_`, so that no client can pass for a broker.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import field
from math import isfinite

from kafkacompat.dataclass import dataclass
from kafkacompat.tasks import TURN_COST, Work
from kafkacompat.telemetry.client_metrics_manager import Attributes, PointsRefused

SERIES_A_CLIENT_MAX = 1_000
SERIES_MAX = 20_000
"""Of all clients. The client that was silent for longest makes room."""
CHARACTERS_A_CLIENT_MAX = 512 << 10
"""Of the names and labels of its series. A scrape has them all."""
CHARACTERS_MAX = 8 << 20
"""Of all clients, as SERIES_MAX."""
NAME_MAX = 200
VALUE_MAX = 255
"""Characters of a label's value. A topic may have 249."""
LABELS_MAX = 10
PREFIX = "kafka_client_"
NOT_IN_A_NAME = re.compile(r"[^a-zA-Z0-9_]")
OWN_LABELS = ("client_instance_id", "client_id", "client_software_name", "client_software_version")
TAKEN_LABELS = {*OWN_LABELS, "node_id"}
"""Names that no attribute of a client has. The last one is put in front where several brokers have one listener, and a scraper
refuses a text in which a series has a label twice."""

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
class OfClient:
    """What one client has sent."""

    labels: Mapping[str, str] = field(default_factory=dict)
    values: dict[Key, float] = field(default_factory=dict)
    characters: int = 0
    """Of the keys of `values`."""


@dataclass(slots=True)
class ClientSeries:
    by_client: OrderedDict[bytes, OfClient] = field(default_factory=OrderedDict)
    count: int = 0
    characters: int = 0
    refused: int = 0
    """Points that did not fit into the bounds, or that cannot be added."""

    def add(self, client: bytes, attributes: Attributes, points: Iterator[Point | None]) -> Work[None]:
        """Take points. A None among them is the end of a step."""
        own = self.by_client.pop(client, None) or OfClient()
        self.by_client[client] = own
        own.labels = {name: attributes.get(name, "")[:VALUE_MAX] for name in OWN_LABELS}
        while True:
            is_over = self._add_until_none(own, points)
            if is_over:
                return
            yield TURN_COST
            if self.by_client.get(client) is not own:
                return  # forgotten meanwhile

    def _add_until_none(self, own: OfClient, points: Iterator[Point | None]) -> bool:
        """Whether that were all points."""
        before = len(own.values), own.characters
        is_over = True
        for point in points:
            if point is None:
                is_over = False
                break
            if not _taken(own, point):
                self.refused += 1
        self.count += len(own.values) - before[0]
        self.characters += own.characters - before[1]
        while self.count > SERIES_MAX or self.characters > CHARACTERS_MAX:
            self.forget(next(iter(self.by_client)))
        return is_over

    def forget(self, client: bytes) -> None:
        own = self.by_client.pop(client, None)
        if own is not None:
            self.count -= len(own.values)
            self.characters -= own.characters


def _taken(own: OfClient, point: Point) -> bool:
    """Whether the point is one of the client's series now."""
    values, value = own.values, point.value
    key = point.name, point.is_counter, point.labels
    known = values.get(key)
    if point.is_delta:
        value += known or 0.0
        if not isfinite(value) or (point.is_counter and point.value < 0):
            # Nothing that is added later would make it a number again, and counters do not go down.
            return False
    if known is None:
        size = len(point.name) + sum([len(name) + len(text) for name, text in point.labels])
        if len(values) >= SERIES_A_CLIENT_MAX or own.characters + size > CHARACTERS_A_CLIENT_MAX:
            return False
        own.characters += size
    values[key] = value
    return True


def metric_name(text: str) -> str:
    return PREFIX + NOT_IN_A_NAME.sub("_", text[:NAME_MAX])


def label_name(text: str) -> str:
    """A name that Prometheus takes and that is none of ours."""
    name = NOT_IN_A_NAME.sub("_", text[:NAME_MAX])
    return (
        f"attribute_{name}"
        if not name or name[0].isdigit() or name in TAKEN_LABELS or name.startswith("__")
        else name
    )


def labels_of(attributes: Mapping[str, str]) -> Labels:
    chosen = sorted(attributes.items())[:LABELS_MAX]
    return tuple({label_name(name): value[:VALUE_MAX] for name, value in chosen}.items())


__all__ = ["ClientSeries", "Labels", "Point", "PointsRefused", "labels_of", "metric_name"]
