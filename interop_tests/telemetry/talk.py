"""Asks brokers the same about telemetry, and compares the answers.

Times are the brokers' own, so a request is either sent long before the next one may come, or long after: the interval is
an hour, or so short that the talk waits for several.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from typing import Any

from interop_tests.harness.waiting import wait_until
from interop_tests.side_by_side.comparison import Comparison
from interop_tests.telemetry.sides import NO_ID, TelemetrySide

SHORT_MS = 100
WAIT_S = 0.3
"""Several short intervals."""
EARLY = 89
SOFTWARE = ("apache-kafka-java", "4.4.0")
GET, PUSH = "GetTelemetrySubscriptions", "PushTelemetry"


class Talk(Comparison):
    """Clients of its own name, and their subscriptions."""

    sides: Sequence[TelemetrySide]

    def __init__(self, sides: Sequence[TelemetrySide], name: str, **more: Any) -> None:
        super().__init__(sides, name, **more)
        self.name = name
        self._subscription_ids: dict[tuple[int, uuid.UUID], int] = {}
        self._made: list[dict[int, uuid.UUID]] = []
        """Ids that the brokers have given, by side."""
        self._subscriptions: set[str] = set()
        self._connections: set[str] = set()

    def client(self, number: int) -> uuid.UUID:
        """An id that only this talk uses."""
        return uuid.uuid5(NO_ID, f"{self.name} {number}")

    def connect(
        self,
        name: str = "c",
        client_id: str | None = None,
        software: tuple[str, str] | None = SOFTWARE,
        *,
        is_nameless: bool = False,
    ) -> None:
        """A connection whose client id begins with the talk's name, or is null."""
        full = None if is_nameless else f"{self.name}-{client_id or name}"
        self._connections.add(name)
        for side in self.sides:
            side.connect(name, full, software)

    def hang_up(self, name: str = "c") -> None:
        self._connections.discard(name)
        for side in self.sides:
            side.hang_up(name)

    def subscribe(
        self,
        name: str = "s",
        metrics: str | None = "org.apache.kafka.",
        interval_ms: int | None = 3_600_000,
        match: str | None = "",
        *,
        is_for_all: bool = False,
    ) -> None:
        """A subscription for the clients of this talk. None: the setting is deleted. `match` is added to the client id."""
        patterns = [] if is_for_all or match is None else [f"client_id={self.name}.*"]
        settings = {
            "metrics": metrics,
            "interval.ms": None if interval_ms is None else str(interval_ms),
            "match": ",".join([*patterns, *([match] if match else [])]) or None,
        }
        self._subscriptions.add(name)
        for side in self.sides:
            side.subscribe(f"{self.name}-{name}", settings)

    def unsubscribe(self, name: str = "s") -> None:
        self._subscriptions.discard(name)
        for side in self.sides:
            side.subscribe(f"{self.name}-{name}", dict.fromkeys(("metrics", "interval.ms", "match")))

    def wait(self) -> None:
        time.sleep(WAIT_S)

    def get(self, client: uuid.UUID | int = 0, connection: str = "c") -> dict[str, Any]:
        """Kafka's answer to GetTelemetrySubscriptions. An int is the number of a client of this talk."""
        client = self.client(client) if isinstance(client, int) else client
        answers = [self._got(number, client, connection) for number in range(len(self.sides))]
        return self._compared(f"{GET} of {client} on {connection}", answers)

    def get_until_taken(self, client: int = 0, connection: str = "c") -> None:
        """Each broker takes the request at some time: it has forgotten what the client did before."""
        for number, side in enumerate(self.sides):
            wait_until(
                lambda number=number: (
                    self._got(number, self.client(client), connection)["ErrorCode"] != EARLY
                ),  # type: ignore[misc]
                f"{side.kind} takes a request of {client}",
            )

    def new_client(self, connection: str = "c") -> int:
        """Let the brokers give an id. Returns its number for `push_made` and `get_made`."""
        answers, made = [], {}
        for number, side in enumerate(self.sides):
            answer = side.ask(connection, GET, {"ClientInstanceId": NO_ID})
            made[number] = answer["ClientInstanceId"]
            self._subscription_ids[number, made[number]] = answer["SubscriptionId"]
            answers.append(without_ids(answer))
        self._made.append(made)
        self._compared(f"{GET} without an id", answers)
        return len(self._made) - 1

    def get_made(self, made: int, connection: str = "c") -> dict[str, Any]:
        answers = [
            without_ids(self._got(number, self._made[made][number], connection))
            for number in range(len(self.sides))
        ]
        return self._compared(f"{GET} of a made id", answers)

    def push_made(self, made: int, connection: str = "c", **more: Any) -> int:
        answers = [
            self._pushed(number, self._made[made][number], connection, **more)
            for number in range(len(self.sides))
        ]
        return int(self._compared(f"{PUSH} of a made id {more}", answers)["ErrorCode"])

    def push(self, client: uuid.UUID | int = 0, connection: str = "c", **more: Any) -> int:
        """Kafka's error code. `more`: subscription_id (otherwise the last one that the client was told, or 0),
        terminating, codec, metrics."""
        client = self.client(client) if isinstance(client, int) else client
        answers = [self._pushed(number, client, connection, **more) for number in range(len(self.sides))]
        said = {
            name: f"{len(value)} bytes" if isinstance(value, bytes) else value for name, value in more.items()
        }
        return int(self._compared(f"{PUSH} of {client} on {connection} {said}", answers)["ErrorCode"])

    def close(self) -> None:
        for name in [*self._subscriptions]:
            self.unsubscribe(name)
        for name in [*self._connections]:
            self.hang_up(name)

    def _got(self, number: int, client: uuid.UUID, connection: str) -> dict[str, Any]:
        answer = self.sides[number].ask(connection, GET, {"ClientInstanceId": client})
        if answer["ErrorCode"] == 0:
            self._subscription_ids[number, client] = answer["SubscriptionId"]
        return answer

    def _pushed(
        self,
        number: int,
        client: uuid.UUID,
        connection: str,
        *,
        subscription_id: int | None = None,
        terminating: bool = False,
        codec: int = 0,
        metrics: bytes = b"",
    ) -> dict[str, Any]:
        known = self._subscription_ids.get((number, client), 0)
        body = {
            "ClientInstanceId": client,
            "SubscriptionId": known if subscription_id is None else subscription_id,
            "Terminating": terminating,
            "CompressionType": codec,
            "Metrics": metrics,
        }
        return self.sides[number].ask(connection, PUSH, body)

    def _compared(self, request: str, answers: list[dict[str, Any]]) -> dict[str, Any]:
        self.answered(request, answers)
        return answers[0]


def without_ids(answer: dict[str, Any]) -> dict[str, Any]:
    """Without what differs between any two ids, but whether they are there."""
    ids = ("ClientInstanceId", "SubscriptionId")
    return answer | {name: bool(answer[name] not in (0, NO_ID)) for name in ids}
