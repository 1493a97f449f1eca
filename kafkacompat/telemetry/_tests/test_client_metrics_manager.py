"""What clients are asked for, and what is taken from them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping

import pytest

from kafkacompat._tests.doubles import value_of
from kafkacompat.config.client_metrics import IllegalPattern, Subscription, parse_subscription
from kafkacompat.tasks import pause
from kafkacompat.telemetry import client_metrics_manager
from kafkacompat.telemetry.client_metrics_manager import (
    EXPIRY_MS,
    GZIP,
    NO_CODEC,
    Attributes,
    ClientMetricsManager,
    PointsRefused,
    PointsTooLarge,
)
from kafkacompat.wire.errors import ErrorCode

A, B = b"a" * 16, b"b" * 16
CONNECTION, OTHER_CONNECTION = 7, 8
JAVA = {"client_id": "j", "client_software_name": "apache-kafka-java", "client_software_version": "4.3.0"}
OTHER = {"client_id": "o", "client_software_name": "librdkafka", "client_software_version": "2.1"}
SECOND = {"metrics": "org.apache.kafka.", "interval.ms": "1000"}


class Taken:
    def __init__(self) -> None:
        self.bodies: list[tuple[bytes, int, bytes]] = []
        self.forgotten: list[bytes] = []

    async def take(
        self, client: bytes, attributes: Attributes, codec: int, metrics: bytes, max_bytes: int
    ) -> None:
        if metrics == b"bad":
            raise PointsRefused("bad")
        if metrics == b"large":
            raise PointsTooLarge("large")
        self.bodies.append((client, codec, metrics))
        if metrics == b"long":
            await pause()

    def forget(self, client: bytes) -> None:
        self.forgotten.append(client)


Push = Callable[..., ErrorCode]


@pytest.fixture
def taken() -> Taken:
    return Taken()


@pytest.fixture
def manager(taken: Taken) -> ClientMetricsManager:
    ids = itertools.count(1)
    made = ClientMetricsManager(100, taken, lambda: next(ids).to_bytes(16, "big"))
    made.subscribe({"all": SECOND})
    return made


@pytest.fixture
def push(manager: ClientMetricsManager) -> Push:
    def push(now_ms: int, metrics: bytes = b"x", **changed: object) -> ErrorCode:
        known = manager.instances.get(A)
        words: dict[str, object] = {
            "subscription_id": 0 if known is None else known.subscription_id,
            "is_terminating": False,
            "codec": NO_CODEC,
            "metrics": metrics,
        }
        return value_of(manager.push(A, JAVA, CONNECTION, now_ms, **(words | changed)))  # type: ignore[arg-type]

    return push


def test_a_client_without_an_id_gets_one_that_is_not_reserved(manager: ClientMetricsManager) -> None:
    """The first two ids of the counter here are Kafka's reserved one, and the next."""
    error, client = manager.get(bytes(16), JAVA, CONNECTION, 0)
    assert (error, client.id) == (ErrorCode.NONE, (2).to_bytes(16, "big"))
    assert (client.metrics, client.interval_ms) == (("org.apache.kafka.",), 1000)
    again = manager.get(client.id, JAVA, CONNECTION, 1000)[1]
    assert again.subscription_id == client.subscription_id
    assert manager.get(bytes(16), JAVA, CONNECTION, 0)[1].subscription_id != client.subscription_id


def test_subscriptions_add_up_and_the_shortest_interval_counts(manager: ClientMetricsManager) -> None:
    manager.subscribe(
        {
            "a": {"metrics": "a.,b.", "interval.ms": "5000"},
            "b": {"metrics": "b.,c.", "interval.ms": "2000", "match": "client_software_name=apache.*"},
            "c": {"metrics": "*", "match": "client_software_name=librdkafka,client_software_version=2\\..*"},
            "broken": {"metrics": "d.", "match": "nonsense"},
        }
    )
    java, other = manager.get(A, JAVA, CONNECTION, 0)[1], manager.get(B, OTHER, CONNECTION, 0)[1]
    assert (java.metrics, java.interval_ms) == (("c.", "b.", "a."), 2000)
    assert (other.metrics, other.interval_ms) == (("*",), 5000)
    manager.subscribe({})
    changed = manager.get(A, JAVA, CONNECTION, 1)[1]
    assert (changed.metrics, changed.interval_ms) == ((), 300_000)
    assert changed.subscription_id != java.subscription_id


def test_a_client_that_asks_too_early_is_throttled_but_not_after_a_change(
    manager: ClientMetricsManager,
) -> None:
    assert manager.get(A, JAVA, CONNECTION, 0)[0] is ErrorCode.NONE
    assert manager.get(A, JAVA, CONNECTION, 999)[0] is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert manager.get(A, JAVA, CONNECTION, 1000)[0] is ErrorCode.NONE
    manager.subscribe({"all": {**SECOND, "metrics": "other."}})
    assert manager.get(A, JAVA, CONNECTION, 1001)[0] is ErrorCode.NONE


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"subscription_id": 12345}, ErrorCode.UNKNOWN_SUBSCRIPTION_ID),
        ({"codec": 9}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        ({"metrics": bytes(101)}, ErrorCode.TELEMETRY_TOO_LARGE),
        ({"metrics": b"bad"}, ErrorCode.INVALID_RECORD),
        ({"metrics": b"large"}, ErrorCode.TELEMETRY_TOO_LARGE),
    ],
)
def test_a_push_that_is_refused(
    changed: dict[str, object], error: ErrorCode, manager: ClientMetricsManager, push: Push, taken: Taken
) -> None:
    manager.get(A, JAVA, CONNECTION, 0)
    assert push(1, **changed) is error
    assert taken.bodies == []
    may_ask = error in (ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
    expected = ErrorCode.NONE if may_ask else ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert manager.get(A, JAVA, CONNECTION, 2)[0] is expected


def test_pushes_come_once_in_an_interval_and_once_right_after_the_subscription(
    manager: ClientMetricsManager, push: Push, taken: Taken
) -> None:
    manager.get(A, JAVA, CONNECTION, 0)
    assert push(10, codec=GZIP) is ErrorCode.NONE
    assert push(500) is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert push(1010, metrics=b"") is ErrorCode.NONE
    assert taken.bodies == [(A, GZIP, b"x")]


def test_the_last_push_may_come_early_and_nothing_comes_after_it(
    manager: ClientMetricsManager, push: Push, taken: Taken
) -> None:
    manager.get(A, JAVA, CONNECTION, 0)
    assert push(10) is ErrorCode.NONE
    assert push(20, is_terminating=True) is ErrorCode.NONE
    assert push(2000) is ErrorCode.INVALID_REQUEST
    assert len(taken.bodies) == 2


@pytest.mark.parametrize("reserved", [bytes(16), bytes(15) + b"\1"])
def test_a_push_without_an_id_is_invalid(reserved: bytes, manager: ClientMetricsManager) -> None:
    error = value_of(
        manager.push(
            reserved,
            JAVA,
            CONNECTION,
            0,
            subscription_id=0,
            is_terminating=False,
            codec=NO_CODEC,
            metrics=b"",
        )
    )
    assert error is ErrorCode.INVALID_REQUEST
    assert not manager.instances


def test_a_client_that_is_forgotten_while_its_push_is_taken_leaves_no_series(
    manager: ClientMetricsManager, taken: Taken, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_metrics_manager, "INSTANCES_MAX", 1)
    _, client = manager.get(A, JAVA, CONNECTION, 0)
    steps = manager.push(
        A,
        JAVA,
        CONNECTION,
        1,
        subscription_id=client.subscription_id,
        is_terminating=False,
        codec=NO_CODEC,
        metrics=b"long",
    )
    steps.send(None)
    manager.get(bytes([9]) * 16, JAVA, CONNECTION, 2)
    assert value_of(steps) is ErrorCode.NONE
    assert taken.forgotten == [A, A]


def test_clients_are_forgotten_when_they_are_silent_or_too_many(
    manager: ClientMetricsManager, taken: Taken, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_metrics_manager, "INSTANCES_MAX", 2)
    for number in range(3):
        manager.get(bytes([number + 10]) * 16, JAVA, CONNECTION, number)
    assert taken.forgotten == [bytes([10]) * 16]
    manager.get(A, JAVA, CONNECTION, EXPIRY_MS + 2)
    assert taken.forgotten == [bytes([each]) * 16 for each in (10, 11, 12)]
    assert list(manager.instances) == [A]


def test_silent_clients_are_forgotten_without_others_and_in_steps(
    manager: ClientMetricsManager, taken: Taken, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_metrics_manager, "FORGOTTEN_AT_ONCE", 2)
    clients = [bytes([number + 10]) * 16 for number in range(4)]
    for number, client in enumerate(clients):
        manager.get(client, JAVA, CONNECTION, number)
    assert not manager.forget_the_silent(EXPIRY_MS - 1)
    assert not taken.forgotten
    assert manager.forget_the_silent(EXPIRY_MS + 2)
    assert taken.forgotten == clients[:2]
    assert not manager.forget_the_silent(EXPIRY_MS + 2)
    assert taken.forgotten == clients[:3]
    assert not manager.forget_the_silent(EXPIRY_MS + 3)
    assert (taken.forgotten, manager.present) == (clients, 0)


def test_a_client_starts_anew_after_its_connection_has_closed(
    manager: ClientMetricsManager, push: Push, taken: Taken
) -> None:
    manager.get(A, JAVA, CONNECTION, 0)
    assert push(1) is ErrorCode.NONE
    assert push(2, is_terminating=True) is ErrorCode.NONE
    manager.on_connection_closed(OTHER_CONNECTION)
    assert push(3, is_terminating=True) is ErrorCode.INVALID_REQUEST
    manager.on_connection_closed(CONNECTION)
    assert manager.present == 0
    error, client = manager.get(A, OTHER, OTHER_CONNECTION, 4)
    assert (error, client.attributes["client_id"], manager.present) == (ErrorCode.NONE, "o", 1)
    assert push(5) is ErrorCode.NONE
    assert taken.forgotten == []


def test_metrics_of_a_client_stay_for_a_while_after_it_has_left(
    manager: ClientMetricsManager, push: Push, taken: Taken
) -> None:
    manager.get(A, JAVA, CONNECTION, 0)
    assert push(10, is_terminating=True) is ErrorCode.NONE
    manager.on_connection_closed(CONNECTION)
    manager.get(B, OTHER, OTHER_CONNECTION, EXPIRY_MS)
    assert taken.forgotten == []
    manager.get(B, OTHER, OTHER_CONNECTION, EXPIRY_MS + 10)
    assert taken.forgotten == [A]


def test_of_the_clients_of_a_connection_the_last_one_is_forgotten(manager: ClientMetricsManager) -> None:
    manager.get(A, JAVA, CONNECTION, 0)
    manager.get(B, OTHER, CONNECTION, 0)
    manager.get(A, JAVA, CONNECTION, 1)  # known already
    manager.on_connection_closed(CONNECTION)
    assert manager.get(A, JAVA, OTHER_CONNECTION, 2)[0] is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert manager.get(B, OTHER, OTHER_CONNECTION, 2)[0] is ErrorCode.NONE


def test_connections_of_clients_that_are_forgotten_are_forgotten(manager: ClientMetricsManager) -> None:
    manager.get(A, JAVA, CONNECTION, 0)
    manager.get(A, JAVA, OTHER_CONNECTION, EXPIRY_MS)
    manager.get(B, OTHER, OTHER_CONNECTION, EXPIRY_MS + 1)
    manager.on_connection_closed(CONNECTION)
    assert manager.get(A, JAVA, OTHER_CONNECTION, EXPIRY_MS + 2)[0] is ErrorCode.THROTTLING_QUOTA_EXCEEDED


def test_names_that_clients_give_themselves_are_cut(manager: ClientMetricsManager) -> None:
    """Sixteen thousand clients with the longest client ids took two gigabytes."""
    long = {**JAVA, "client_id": "j" * 32_000}
    _, instance = manager.get(A, long, CONNECTION, 0)
    assert instance.attributes["client_id"] == "j" * client_metrics_manager.ATTRIBUTE_MAX
    manager.subscribe({"mine": {**SECOND, "match": "client_id=j+"}})
    _, instance = manager.get(A, long, CONNECTION, 0)
    assert instance.metrics == ("org.apache.kafka.",)


@pytest.mark.parametrize(
    "match", ["client_id=" + r"\pL" * 8_000, ",".join([r"client_id=\pL"] * 14), "client_id=.{300}"]
)
def test_expressions_that_take_long_are_refused(match: str) -> None:
    with pytest.raises(IllegalPattern, match="Illegal client matching pattern"):
        parse_subscription({"match": match})


def test_a_change_compiles_only_what_has_changed(
    manager: ClientMetricsManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed: list[object] = []

    def counted(settings: Mapping[str, str]) -> Subscription:
        parsed.append(settings["match"])
        return parse_subscription(settings)

    monkeypatch.setattr(client_metrics_manager, "parse_subscription", counted)
    three = {name: {**SECOND, "match": f"client_id={name}"} for name in "ajo"}
    manager.subscribe(three)
    manager.subscribe({**three, "j": {**SECOND, "match": "client_id=x"}})
    assert sorted(parsed, key=str) == ["client_id=a", "client_id=j", "client_id=o", "client_id=x"]
    assert manager.get(A, JAVA, CONNECTION, 0)[1].metrics == ()
    manager.subscribe(three)
    assert manager.get(A, JAVA, CONNECTION, 9_000)[1].metrics == ("org.apache.kafka.",)
