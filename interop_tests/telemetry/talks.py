"""Scripted talks about telemetry (KIP-714). Each has clients, connections and subscriptions of its own."""

from __future__ import annotations

import uuid
from collections.abc import Callable

from opentelemetry.proto.metrics.v1 import metrics_pb2

from interop_tests.harness.records import CODECS, compress
from interop_tests.telemetry.sides import MAX_BYTES
from interop_tests.telemetry.talk import EARLY, SHORT_MS, Talk

OK, UNKNOWN_SUBSCRIPTION, TOO_LARGE, INVALID_REQUEST, INVALID_RECORD = 0, 117, 118, 42, 87
UNSUPPORTED_CODEC = 76
HOUR_MS = 3_600_000
GARBAGE = b"\xff" * 30
RESERVED = [uuid.UUID(int=0), uuid.UUID(int=1)]


def otlp(points: int = 1) -> bytes:
    """What a client sends: gauges."""
    data = metrics_pb2.MetricsData()
    metrics = data.resource_metrics.add().scope_metrics.add().metrics
    for number in range(points):
        metric = metrics.add(name=f"org.apache.kafka.test.{number}")
        metric.gauge.data_points.add(as_double=1.0, time_unix_nano=1)
    return bytes(data.SerializeToString())


def ids(talk: Talk) -> None:
    """Brokers give an id to a client without one, and take any id that a client has. Two ids are reserved."""
    talk.connect()
    talk.subscribe()
    made = talk.new_client()
    assert talk.get_made(made)["ErrorCode"] == EARLY
    assert talk.push_made(made, metrics=otlp()) == OK
    assert talk.new_client() != made
    assert talk.get(0)["ErrorCode"] == OK
    assert talk.get(0)["ErrorCode"] == EARLY
    for reserved in RESERVED:
        assert talk.push(reserved, metrics=otlp()) == INVALID_REQUEST
    talk.get(RESERVED[1])
    talk.get(RESERVED[1])
    assert talk.push(RESERVED[1], metrics=otlp()) == INVALID_REQUEST


def without_a_subscription(talk: Talk) -> None:
    """Nobody asks for anything. The client is told so, and when to ask again."""
    talk.connect()
    assert talk.get(0)["RequestedMetrics"] == []
    assert talk.push(0) == OK
    assert talk.push(0) == EARLY
    assert talk.get(0)["ErrorCode"] == EARLY


def pushes(talk: Talk) -> None:
    """One push after each answer with the subscription, and then one in each interval."""
    talk.connect()
    talk.subscribe()
    talk.get(0)
    assert talk.push(0, metrics=otlp()) == OK
    assert talk.push(0, metrics=otlp()) == EARLY
    assert talk.push(0, metrics=otlp()) == EARLY
    assert talk.get(0)["ErrorCode"] == EARLY
    assert talk.push(0, metrics=otlp(), terminating=True) == OK
    assert talk.push(0, metrics=otlp()) == INVALID_REQUEST
    assert talk.push(0, metrics=otlp()) == EARLY
    assert talk.push(0, metrics=otlp(), terminating=True) == OK
    assert talk.push(0, metrics=otlp(), terminating=True) == INVALID_REQUEST
    talk.get(0)


def pushes_in_time(talk: Talk) -> None:
    talk.connect()
    talk.subscribe(interval_ms=SHORT_MS)
    for _ in range(2):
        assert talk.get(0)["PushIntervalMs"] == SHORT_MS
        talk.wait()
        assert talk.push(0, metrics=otlp()) == OK
        talk.wait()
        assert talk.push(0, metrics=b"") == OK
        talk.wait()


def unknown_subscriptions(talk: Talk) -> None:
    """After the error a client may ask at once, but it may not push at once."""
    talk.connect()
    talk.subscribe()
    assert talk.push(0, metrics=otlp()) == UNKNOWN_SUBSCRIPTION
    assert talk.get(0)["ErrorCode"] == OK
    assert talk.get(0)["ErrorCode"] == EARLY
    assert talk.push(0, metrics=otlp()) == EARLY
    talk.get(1)
    assert talk.push(1, subscription_id=1, metrics=otlp()) == UNKNOWN_SUBSCRIPTION
    assert talk.get(1)["ErrorCode"] == OK
    assert talk.push(1, metrics=otlp()) == EARLY
    assert talk.get(1)["ErrorCode"] == EARLY
    assert talk.push(1, metrics=otlp(), terminating=True) == OK
    talk.push(0, metrics=otlp())
    talk.push(0, subscription_id=1, metrics=otlp())
    talk.push(0, subscription_id=1, terminating=True)
    talk.get(0)
    talk.push(0)


def codecs(talk: Talk) -> None:
    """Each codec that is told, none, and those that do not exist."""
    talk.connect()
    talk.subscribe()
    number = 0
    for name, codec in CODECS.items():
        for metrics in (otlp(3), GARBAGE):
            number += 1
            talk.get(number)
            expected = OK if metrics != GARBAGE else INVALID_RECORD
            body = compress(name, metrics)
            assert talk.push(number, codec=codec, metrics=body) == expected, (name, metrics)
            talk.push(number, metrics=otlp())
            talk.get(number)
        if name != "none":
            number += 1
            talk.get(number)
            talk.push(number, codec=codec, metrics=GARBAGE)
            talk.get(number)
    for codec in (-128, -1, 5, 6, 127):
        number += 1
        talk.get(number)
        assert talk.push(number, codec=codec, metrics=otlp()) == UNSUPPORTED_CODEC
        assert talk.get(number)["ErrorCode"] == OK
        talk.push(number, codec=codec, metrics=b"")
        talk.push(number, codec=codec, metrics=b"", terminating=True)
        talk.push(number, codec=4, metrics=b"", terminating=True)


def sizes(talk: Talk) -> None:
    """telemetry.max.bytes bounds what is sent, and what it expands to."""
    talk.connect()
    talk.subscribe()
    for number, size in enumerate((MAX_BYTES, MAX_BYTES + 1)):
        talk.get(number)
        expected = INVALID_RECORD if size == MAX_BYTES else TOO_LARGE
        assert talk.push(number, metrics=bytes([255]) * size) == expected
        assert talk.get(number)["ErrorCode"] == EARLY
        talk.push(number, metrics=bytes([255]) * size, terminating=True)
    talk.get(10)
    body = compress("gzip", otlp(400))
    assert len(body) <= MAX_BYTES < len(otlp(400))
    assert talk.push(10, codec=CODECS["gzip"], metrics=body) == INVALID_RECORD
    talk.get(11)
    talk.push(11, codec=CODECS["zstd"], metrics=b"")
    talk.push(11, codec=CODECS["zstd"], metrics=b"", terminating=True)


def changes(talk: Talk) -> None:
    """A client whose subscription has changed may ask at once, and its pushes with the id before are refused."""
    talk.connect()
    talk.subscribe("a", "org.apache.kafka.producer.")
    talk.get(0)
    assert talk.push(0, metrics=otlp()) == OK
    talk.subscribe("a", "org.apache.kafka.consumer.")
    assert talk.push(0, metrics=otlp()) == UNKNOWN_SUBSCRIPTION
    assert talk.get(0)["RequestedMetrics"] == ["org.apache.kafka.consumer."]
    assert talk.push(0, metrics=otlp(), terminating=True) == OK
    # A change for others has no effect on the id, but the client starts anew.
    talk.subscribe("b", "other.", match="client_id=nobody", is_for_all=True)
    assert talk.push(0, metrics=otlp()) == OK
    talk.get(0)
    talk.subscribe("a", "org.apache.kafka.consumer.")  # the same again
    talk.push(0, metrics=otlp())
    talk.get(0)
    talk.unsubscribe("a")
    assert talk.get(0)["RequestedMetrics"] == []
    talk.unsubscribe("b")
    talk.push(0, metrics=otlp())


def parts_of_subscriptions(talk: Talk) -> None:
    """Settings that are left out have their defaults, and settings that are deleted too."""
    talk.connect()
    talk.subscribe("a", metrics=None)
    talk.get(0)
    talk.subscribe("a", interval_ms=None)
    talk.get(0)
    talk.subscribe("a", "", 5_000)
    talk.get(0)
    talk.subscribe("a", "one.,two.", 5_000)
    talk.get(0)
    talk.unsubscribe("a")
    talk.get(0)


def many_metrics(talk: Talk) -> None:
    """Their order, which the id depends on, is that of Kafka's sets, with few and with many."""
    talk.connect()
    prefixes = [
        "org.apache.kafka.producer.",
        "org.apache.kafka.consumer.",
        "org.apache.kafka.consumer.fetch.manager.",
        "org.apache.kafka.admin.client.",
        "librdkafka.",
        "kafka.metric",
        "a",
        "Ünïcode.ĸ.𐐷",
        *(f"metric.{number}." for number in range(60)),
    ]
    for number, count in enumerate((1, 2, 3, 5, 8, 12, 13, 24, 25, 49, len(prefixes))):
        talk.subscribe("a", ",".join(prefixes[:count]))
        assert len(talk.get(number)["RequestedMetrics"]) == count
    talk.subscribe("b", ",".join(prefixes[40:60:-1] + prefixes[10:40]), 1_000_000)
    talk.get(100)
    talk.subscribe("c", "x.,y.,z.,a,librdkafka.", 2_000_000)
    talk.get(101)
    talk.subscribe("a", "x.,*,y.")
    assert talk.get(102)["RequestedMetrics"] == ["*"]
    talk.subscribe("a", "a,a,b,a")
    talk.get(103)


def overlapping_subscriptions(talk: Talk) -> None:
    """What any of them asks for, in the shortest interval."""
    talk.connect()
    for number, (metrics, interval_ms) in enumerate(
        [("a.,b.", 900_000), ("b.,c.", 700_000), ("c.,d.", 800_000), ("", 600_000), ("e.", 1_000_000)]
    ):
        talk.subscribe(f"s{number}", metrics, interval_ms)
        talk.get(number)
    talk.subscribe("long", "a.", HOUR_MS)
    talk.get(10)


def matches(talk: Talk) -> None:
    """By each attribute of a client. An expression has to match the whole value."""
    talk.connect("java", software=("apache-kafka-java", "4.4.0"))
    talk.connect("c", software=("librdkafka", "2.11.0"))
    talk.connect("silent", software=None)
    talk.connect("nameless", is_nameless=True)
    own = talk.client(50)
    patterns = [
        "client_software_name=apache.*",
        "client_software_name=apache",
        "client_software_name=unknown",
        "client_software_version=unknown",
        "client_software_name=librdkafka,client_software_version=2\\..*",
        "client_software_version=4.4.0|2.11.0",
        f"client_id={talk.name}-java",
        f"client_id={talk.name}-j",
        "client_id=^.*-c$",
        "client_id=",
        "client_id=|none",
        "client_source_address=127.0.0.1",
        "client_source_address=127.*",
        "client_source_port=[0-9]+",
        "client_source_port=0",
        f"client_instance_id={short(own)}",
        "client_id=.*,client_software_name=.*",
    ]
    for number, pattern in enumerate(patterns):
        if pattern.endswith("="):
            continue  # refused when it is set
        talk.subscribe("a", f"m{number}.", match=pattern, is_for_all=True)
        for place, connection in enumerate(("java", "c", "silent", "nameless")):
            talk.get(100 * number + place, connection)
        talk.get(own, "java")


def connections(talk: Talk) -> None:
    """A client keeps its first attributes, and is forgotten when its connection closes."""
    talk.connect("one")
    talk.connect("two", software=("librdkafka", "2.11.0"))
    talk.subscribe("a", "a.", match="client_software_name=apache.*", is_for_all=True)
    talk.get(0, "one")
    assert talk.get(0, "two")["ErrorCode"] == EARLY
    assert talk.push(0, "two", metrics=otlp()) == OK
    talk.subscribe("b", "b.")
    assert talk.get(0, "two")["RequestedMetrics"] == ["b.", "a."]
    assert talk.push(0, "two", metrics=otlp(), terminating=True) == OK
    talk.hang_up("two")
    talk.get_until_taken(0, "one")
    talk.push(0, "one", metrics=otlp())
    talk.hang_up("one")
    talk.connect("three", software=("librdkafka", "2.11.0"))
    talk.get_until_taken(0, "three")
    assert talk.get(0, "three")["ErrorCode"] == EARLY
    talk.push(0, "three", metrics=otlp())
    talk.subscribe("b", "c.")
    assert talk.get(0, "three")["RequestedMetrics"] == ["c."]


def many_clients_of_a_connection(talk: Talk) -> None:
    """Only the last one is forgotten when it closes."""
    talk.connect("one")
    talk.connect("two")
    talk.subscribe()
    for number in range(3):
        talk.get(number, "one")
    talk.hang_up("one")
    talk.get_until_taken(2, "two")
    for number in range(3):
        talk.get(number, "two")
        talk.push(number, "two", metrics=otlp())


def short(client: uuid.UUID) -> str:
    """As Kafka writes ids."""
    from kafkacompat.ids import uuid_to_text

    return uuid_to_text(client.bytes)


TALKS: tuple[Callable[[Talk], None], ...] = (
    ids,
    without_a_subscription,
    pushes,
    pushes_in_time,
    unknown_subscriptions,
    codecs,
    sizes,
    changes,
    parts_of_subscriptions,
    many_metrics,
    overlapping_subscriptions,
    matches,
    connections,
    many_clients_of_a_connection,
)
