"""Clients' metrics as series, and the bounds of what they may send."""

from __future__ import annotations

import errno
import gzip
import math
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.proto.metrics.v1 import metrics_pb2

from kafkacompat._tests.doubles import HandTime, value_of
from kafkacompat.metrics.clients import client_families
from kafkacompat.metrics.endpoint import rendered
from kafkacompat.records import compression
from kafkacompat.records._tests.bombs import tables
from kafkacompat.records.compression import compress
from kafkacompat.tasks import Tasks, at_once
from kafkacompat.telemetry import otlp, series
from kafkacompat.telemetry.client_metrics_manager import (
    ACCEPTED_CODECS,
    GZIP,
    NO_CODEC,
    SNAPPY,
    ClientMetricsManager,
    PointsRefused,
    PointsTooLarge,
)
from kafkacompat.telemetry.otlp import OtlpReceiver
from kafkacompat.telemetry.series import ClientSeries, Point, label_name, metric_name

A, B = b"a" * 16, b"b" * 16
WHO = {"client_id": "billing", "client_instance_id": "AAA", "client_software_name": "java", "other": "x"}
RATE = "org.apache.kafka.producer.connection.creation.rate"


def message(
    name: str = RATE,
    value: float = 1.5,
    *,
    kind: str = "gauge",
    is_monotonic: bool = True,
    temporality: int = otlp.DELTA,
    **attributes: str,
) -> bytes:
    data = metrics_pb2.MetricsData()
    metric = data.resource_metrics.add().scope_metrics.add().metrics.add(name=name)
    point = getattr(metric, kind).data_points.add(as_double=value)
    if kind == "sum":
        metric.sum.is_monotonic, metric.sum.aggregation_temporality = is_monotonic, temporality
    for key, text in attributes.items():
        point.attributes.add(key=key).value.string_value = text
    return data.SerializeToString()


def shown(receiver: OtlpReceiver) -> list[str]:
    manager = ClientMetricsManager(100, receiver, lambda: bytes(16))
    text = b"".join(rendered(client_families(manager, receiver.series, 0))).decode()
    return [line for line in text.splitlines() if line.startswith("kafka_client_")]


@pytest.fixture
def receiver() -> OtlpReceiver:
    return OtlpReceiver(ClientSeries())


@pytest.mark.parametrize("problem", [OSError(errno.EMFILE, "no descriptor is left"), MemoryError()])
def test_a_push_whose_codec_cannot_be_loaded_now_may_be_tried_again(
    problem: Exception, receiver: OtlpReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = compress(SNAPPY, message())

    def refused(name: str) -> Any:
        raise problem

    with monkeypatch.context() as lack:
        lack.setattr(compression, "library", refused)
        with pytest.raises(PointsTooLarge):
            value_of(receiver.take(A, WHO, SNAPPY, packed))
    value_of(receiver.take(A, WHO, SNAPPY, packed))
    assert len(shown(receiver)) == 1


def test_a_gauge_is_the_last_value_with_the_clients_labels(receiver: OtlpReceiver) -> None:
    value_of(receiver.take(A, WHO, NO_CODEC, message(topic="t")))
    value_of(receiver.take(A, WHO, GZIP, gzip.compress(message(value=2.5, topic="t"))))
    assert shown(receiver) == [
        "kafka_client_org_apache_kafka_producer_connection_creation_rate"
        '{client_id="billing",client_instance_id="AAA",client_software_name="java",client_software_version="",topic="t"} 2.5'
    ]


def test_deltas_add_up_and_totals_do_not(receiver: OtlpReceiver) -> None:
    for value in (2.0, 3.0):
        value_of(receiver.take(A, {}, NO_CODEC, message("sent", value, kind="sum")))
        value_of(receiver.take(A, {}, NO_CODEC, message("all", value, kind="sum", temporality=0)))
        value_of(receiver.take(A, {}, NO_CODEC, message("level", value, kind="sum", is_monotonic=False)))
    found = {line.partition("{")[0]: line.split()[-1] for line in shown(receiver)}
    assert found == {
        "kafka_client_sent_total": "5.0",
        "kafka_client_all_total": "3.0",
        "kafka_client_level": "5.0",
    }


def test_a_delta_that_cannot_be_added_changes_nothing(receiver: OtlpReceiver) -> None:
    """What is no number would stay so whatever is added, and a counter does not go down."""
    for value in (2.0, math.nan, math.inf, -math.inf, -1.0, 3.0):
        value_of(receiver.take(A, {}, NO_CODEC, message("sent", value, kind="sum")))
    value_of(receiver.take(A, {}, NO_CODEC, message("level", 1.0, kind="sum", is_monotonic=False)))
    value_of(receiver.take(A, {}, NO_CODEC, message("level", -4.0, kind="sum", is_monotonic=False)))
    value_of(receiver.take(A, {}, NO_CODEC, message("now", math.nan)))
    found = {line.partition("{")[0]: line.split()[-1] for line in shown(receiver)}
    assert found == {
        "kafka_client_sent_total": "5.0",
        "kafka_client_level": "-3.0",
        "kafka_client_now": "NaN",
    }
    assert receiver.series.refused == 4


def test_the_last_client_has_no_series_when_it_was_silent_for_long(receiver: OtlpReceiver) -> None:
    """Nobody comes after it who would let it be forgotten, except for the scrape."""
    manager = ClientMetricsManager(1000, receiver, lambda: bytes(16))
    _, client = manager.get(A, WHO, 1, 0)
    error = value_of(
        manager.push(
            A,
            WHO,
            1,
            1,
            subscription_id=client.subscription_id,
            is_terminating=True,
            codec=NO_CODEC,
            metrics=message(),
        )
    )
    assert error == 0
    manager.on_connection_closed(1)
    for now_ms, count in ((client.expires_ms - 1, 1), (client.expires_ms, 0)):
        families = [each for each in client_families(manager, receiver.series, now_ms) if each is not None]
        assert sum(each.name.startswith("kafka_client_") for each in families) == count


def test_a_client_that_is_forgotten_has_no_series(receiver: OtlpReceiver) -> None:
    value_of(receiver.take(A, {}, NO_CODEC, message()))
    value_of(receiver.take(B, {}, NO_CODEC, message()))
    receiver.forget(A)
    receiver.forget(A)
    assert (len(shown(receiver)), receiver.series.count) == (1, 1)


@pytest.mark.parametrize(
    "body", [b"\xff", gzip.compress(message())[:-9]], ids=["no message", "a stream that is cut"]
)
def test_metrics_that_cannot_be_read_are_refused(body: bytes, receiver: OtlpReceiver) -> None:
    with pytest.raises(PointsRefused):
        value_of(receiver.take(A, {}, GZIP if body.startswith(b"\x1f") else NO_CODEC, body))
    assert shown(receiver) == []


def test_a_body_that_unpacks_to_too_much_is_refused(
    receiver: OtlpReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(otlp, "UNPACKED_BYTES_MAX", 10)
    for codec in (NO_CODEC, *ACCEPTED_CODECS):
        with pytest.raises(PointsTooLarge):
            value_of(receiver.take(A, {}, codec, compress(codec, message())))


@pytest.mark.parametrize("codec", [NO_CODEC, *ACCEPTED_CODECS])
def test_a_body_that_unpacks_to_more_than_the_broker_takes_is_refused_for_good(
    receiver: OtlpReceiver, codec: int
) -> None:
    """Kafka's plug-ins do not get it, and the client pushes nothing any more."""
    body = message()
    with pytest.raises(PointsRefused) as raised:
        value_of(receiver.take(A, {}, codec, compress(codec, body), len(body) - 1))
    assert not isinstance(raised.value, PointsTooLarge)
    value_of(receiver.take(A, {}, codec, compress(codec, body), len(body)))
    assert shown(receiver)


def test_a_body_that_takes_long_to_unpack_is_refused_unread(receiver: OtlpReceiver) -> None:
    with pytest.raises(PointsTooLarge, match="too long"):
        value_of(receiver.take(A, {}, GZIP, tables(message(), 150_000)))
    value_of(receiver.take(A, {}, GZIP, tables(message(), 100_000)))
    assert shown(receiver)


def points(count: int) -> list[Point]:
    return [Point("kafka_client_n", (("n", str(each)),), 1.0, False, False) for each in range(count)]


def test_series_are_bounded_for_each_client_and_in_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(series, "SERIES_A_CLIENT_MAX", 3)
    monkeypatch.setattr(series, "SERIES_MAX", 5)
    found = ClientSeries()
    at_once(found.add(A, {}, iter(points(8))))
    assert (found.count, found.refused) == (3, 5)
    at_once(found.add(A, {}, iter(points(3))))
    assert (found.count, found.refused) == (3, 5)
    at_once(found.add(B, {}, iter(points(3))))
    assert (list(found.by_client), found.count) == ([B], 3)


def test_the_size_of_series_is_bounded_for_each_client_and_in_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scrape has all names and labels: 20,000 series of the longest ones would be a hundred megabytes."""
    size = len("kafka_client_n") + len("n") + len("1")
    monkeypatch.setattr(series, "CHARACTERS_A_CLIENT_MAX", 3 * size)
    monkeypatch.setattr(series, "CHARACTERS_MAX", 5 * size + 1)
    found = ClientSeries()
    for _ in range(2):
        at_once(found.add(A, {}, iter(points(8))))
    assert (found.count, found.characters, found.refused) == (3, 3 * size, 10)
    at_once(found.add(B, {}, iter(points(3))))
    assert (list(found.by_client), found.count, found.characters) == ([B], 3, 3 * size)
    found.forget(B)
    assert (found.count, found.characters) == (0, 0)


def test_the_longest_name_of_a_topic_is_a_whole_label(receiver: OtlpReceiver) -> None:
    """Otherwise two topics could share a series."""
    topics = ["t" * 248 + end for end in "ab"]
    for topic in topics:
        value_of(receiver.take(A, {}, NO_CODEC, message(topic=topic)))
    assert [
        topic for topic in topics if any(f'topic="{topic}"' in line for line in shown(receiver))
    ] == topics


def test_no_client_can_pass_for_a_broker_or_for_another_client() -> None:
    assert metric_name("kafka_server_x") == "kafka_client_kafka_server_x"
    assert metric_name('a"}\n') == "kafka_client_a___"
    assert len(metric_name("x" * 999)) <= series.NAME_MAX + len(series.PREFIX)
    assert [label_name(each) for each in ("topic", "client_id", "__name__", "", "9", "a-b")] == [
        "topic",
        "attribute_client_id",
        "attribute___name__",
        "attribute_",
        "attribute_9",
        "a_b",
    ]


def parts(number: int, *bodies: bytes) -> bytes:
    """Fields of a protobuf message with this number."""
    found = b""
    for body in bodies:
        size = len(body)
        found += bytes([number << 3 | 2])
        while size > 127:
            found += bytes([size & 127 | 128])
            size >>= 7
        found += bytes([size]) + body
    return found


POINT = parts(1, b"")
EMPTY = {
    "resources": parts(1, b"") * 9_000,
    "scopes": parts(1, parts(2, b"") * 9_000),
    "metrics": parts(1, parts(2, parts(2, b"") * 9_000)),
    "points": parts(1, parts(2, parts(2, parts(5, POINT * 9_000)))),
    "attributes": parts(1, parts(2, parts(2, parts(5, parts(1, parts(7, b"") * 9_000))))),
}


@pytest.mark.parametrize("kind", EMPTY)
def test_a_push_is_read_within_a_bound(
    kind: str, receiver: OtlpReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parts of two bytes each, which nearly vanish in a compression, took the loop for seconds."""
    read = 0

    def counted(given: Any) -> Iterator[Any]:
        nonlocal read
        for each in given:
            read += 1
            yield each

    data = metrics_pb2.MetricsData.FromString(EMPTY[kind])
    monkeypatch.setattr(metrics_pb2.MetricsData, "FromString", lambda body: Counted(data, counted))
    value_of(receiver.take(A, {}, NO_CODEC, b""))
    assert 100 < read <= otlp.ELEMENTS_MAX + 10
    assert receiver.series.refused == {"points": 9_000 - otlp.ELEMENTS_MAX, "attributes": 1}.get(kind, 0)


class Counted:
    """A message whose repeated parts are counted as they are read."""

    def __init__(self, message: Any, counted: Any) -> None:
        self._message = message
        self._counted = counted

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._message, name)
        if hasattr(value, "add"):
            return Repeated(value, self._counted)
        return Counted(value, self._counted) if hasattr(value, "DESCRIPTOR") else value


class Repeated:
    def __init__(self, values: Any, counted: Any) -> None:
        self._values = values
        self._counted = counted

    def __iter__(self) -> Iterator[Any]:
        return (Counted(each, self._counted) for each in self._counted(self._values))

    def __len__(self) -> int:
        return len(self._values)


def test_only_plain_attributes_become_labels(receiver: OtlpReceiver) -> None:
    """Texts of nested ones may be a thousand times as long as what the client has sent."""
    data = metrics_pb2.MetricsData()
    point = data.resource_metrics.add().scope_metrics.add().metrics.add(name="n").gauge.data_points.add()
    point.attributes.add(key="number").value.int_value = 7
    point.attributes.add(key="nested").value.array_value.values.add().string_value = "x"
    value_of(receiver.take(A, {}, NO_CODEC, data.SerializeToString()))
    ((key, _),) = receiver.series.by_client[A].values.items()
    assert key[2] == (("nested", ""), ("number", "7"))


def test_a_total_is_a_counter_whether_or_not_its_client_says_that_it_only_grows(
    receiver: OtlpReceiver,
) -> None:
    total = "org.apache.kafka.producer.connection.creation.total"
    for is_monotonic in (True, False):
        value_of(receiver.take(A, {}, NO_CODEC, message(total, 1.0, kind="sum", is_monotonic=is_monotonic)))
    (line,) = shown(receiver)
    assert line.startswith("kafka_client_org_apache_kafka_producer_connection_creation_total{")
    assert line.endswith(" 2.0")


def test_no_client_can_send_two_metrics_of_one_name(receiver: OtlpReceiver) -> None:
    """Some scrapers refuse a whole scrape for that."""
    for kind, name in (("gauge", "sent_total"), ("gauge", "sent.total"), ("sum", "sent"), ("gauge", "sent")):
        value_of(receiver.take(A, {}, NO_CODEC, message(name, kind=kind)))
    manager = ClientMetricsManager(100, receiver, lambda: bytes(16))
    text = b"".join(rendered(client_families(manager, receiver.series, 0))).decode()
    types = [line.split()[2:] for line in text.splitlines() if line.startswith("# TYPE kafka_client_")]
    assert sorted(types) == [
        ["kafka_client_sent", "gauge"],
        ["kafka_client_sent_total", "counter"],
        ["kafka_client_sent_total_gauge", "gauge"],
    ]


def many(metrics: int, attributes: int = 0) -> bytes:
    data = metrics_pb2.MetricsData()
    scope = data.resource_metrics.add().scope_metrics.add()
    for number in range(metrics):
        point = scope.metrics.add(name=f"m{number}").gauge.data_points.add(as_double=number)
        for at in range(attributes):
            point.attributes.add(key=f"k{at}").value.string_value = "v"
    return data.SerializeToString()


class Elements:
    """Counts what each step of a push reads."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.of_steps = [0]
        honest = otlp.Points._is_over

        def counted(points: otlp.Points) -> bool:
            before = points._left
            is_over = honest(points)
            self.of_steps[-1] += before - points._left
            return is_over

        monkeypatch.setattr(otlp.Points, "_is_over", counted)

    def read(self, steps: Any) -> list[int]:
        for _ in steps.__await__():
            self.of_steps.append(0)
        return self.of_steps


def test_a_push_of_many_elements_is_read_in_bounded_steps(
    receiver: OtlpReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any client may send as much with each new id."""
    body = b"\x0a\x00" * (otlp.UNPACKED_BYTES_MAX // 2)
    read = Elements(monkeypatch).read(receiver.take(A, WHO, NO_CODEC, body))
    assert read[0] == 0  # parsed in a step of its own
    assert len(read) > otlp.ELEMENTS_MAX // otlp.ELEMENTS_A_STEP
    assert max(read) <= otlp.ELEMENTS_A_STEP
    assert sum(read) == otlp.ELEMENTS_MAX


def test_a_usual_push_is_read_at_once(receiver: OtlpReceiver) -> None:
    with pytest.raises(StopIteration):
        receiver.take(A, WHO, NO_CODEC, many(300, 2)).send(None)
    assert receiver.series.count == 300


def test_a_push_in_steps_is_counted_whole_and_nothing_of_a_client_that_is_forgotten(
    receiver: OtlpReceiver,
) -> None:
    steps = receiver.take(A, WHO, NO_CODEC, many(1_000, 3))
    steps.send(None)
    first = receiver.series.count
    assert 0 < first < 1_000
    value_of(steps)
    assert receiver.series.count == 1_000
    steps = receiver.take(B, WHO, NO_CODEC, many(1_000, 3))
    steps.send(None)
    receiver.forget(B)
    value_of(steps)
    assert (receiver.series.count, list(receiver.series.by_client)) == (1_000, [A])
    receiver.forget(A)
    assert (receiver.series.count, receiver.series.characters) == (0, 0)


def test_one_push_is_read_at_a_time_and_the_next_ones_in_their_order(receiver: OtlpReceiver) -> None:
    """Parsed, half a megabyte may take tens of megabytes."""
    time = HandTime()
    tasks = Tasks(time)
    tasks.start("first", receiver.take(A, WHO, NO_CODEC, many(1_000, 3)))
    later = [tasks.run("later", receiver.take(client, WHO, NO_CODEC, many(1))) for client in (B, b"c" * 16)]
    while time.step():
        if len(receiver.series.by_client) == 1:
            assert not any(each.done for each in later)
    assert all(each.done for each in later)
    assert list(receiver.series.by_client) == [A, B, b"c" * 16]
    with pytest.raises(PointsRefused):
        value_of(receiver.take(A, {}, NO_CODEC, b"\xff"))
    value_of(receiver.take(A, WHO, NO_CODEC, many(1)))
