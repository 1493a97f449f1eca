"""Random requests of a few clients, while subscriptions change. The seed and Kafka's answers decide what comes next."""

from __future__ import annotations

import random
from typing import Any

from interop_tests.harness.records import CODECS, compress
from interop_tests.telemetry.sides import MAX_BYTES
from interop_tests.telemetry.talk import SHORT_MS, Talk
from interop_tests.telemetry.talks import GARBAGE, HOUR_MS, RESERVED, otlp

CLIENTS = 4
CONNECTIONS = {"java": ("apache-kafka-java", "4.4.0"), "c": ("librdkafka", "2.11.0"), "silent": None}
NAMES = ("a", "b", "c")
METRICS = ("*", "a.", "a.,b.", "b.,c.,d.", "", None, ",".join(f"m{number}." for number in range(30)))
PATTERNS = ("", "client_software_name=apache.*", "client_software_name=unknown", "client_id=.*-c")
INTERVALS_MS = (HOUR_MS, HOUR_MS, 1_000_000, None, SHORT_MS)
CHANGES = 0.12
"""The share of requests before which a subscription changes."""


def random_talk(talk: Talk, seed: int, requests: int) -> None:
    chance = random.Random(seed)
    intervals_ms: dict[str, int | None] = {}
    for name, software in CONNECTIONS.items():
        talk.connect(name, software=software)
    while talk.asked < requests:
        if chance.random() < CHANGES:
            name = chance.choice(NAMES)
            if name in intervals_ms and chance.random() < 0.3:
                del intervals_ms[name]
                talk.unsubscribe(name)
            else:
                intervals_ms[name] = chance.choice(INTERVALS_MS)
                talk.subscribe(name, chance.choice(METRICS), intervals_ms[name], chance.choice(PATTERNS))
        if SHORT_MS in intervals_ms.values():
            talk.wait()
        connection = chance.choice([*CONNECTIONS])
        client: Any = chance.randrange(CLIENTS) if chance.random() < 0.95 else RESERVED[1]
        if chance.random() < 0.4:
            talk.get(client, connection)
        else:
            talk.push(client, connection, **push(chance))


def push(chance: random.Random) -> dict[str, Any]:
    more: dict[str, Any] = {}
    if chance.random() < 0.15:
        more["subscription_id"] = chance.choice([0, 1, -1, 1 << 30])
    if chance.random() < 0.2:
        more["terminating"] = True
    metrics = chance.choice([b"", otlp(), otlp(), otlp(10), GARBAGE, b"x" * (MAX_BYTES + 1)])
    name = chance.choice([*CODECS])
    more["codec"], more["metrics"] = CODECS[name], compress(name, metrics) if metrics else metrics
    if chance.random() < 0.1:
        more["codec"] = chance.choice([-1, 5, 100])
    return more
