"""Clients under quotas, on kafkacompat beside Apache Kafka: the same throttle times, and the rate of the quota over time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from interop_tests.harness.broker import BrokerProcess
from interop_tests.harness.raw_kafka import create_topic, fetch_body, produce_body
from interop_tests.harness.records import BatchPlan
from interop_tests.harness.waiting import wait_until
from interop_tests.harness.wire import Connection, ConnectionClosed

pytestmark = pytest.mark.needs_control
KINDS = ("kafkacompat", "apache")
TOPIC = "quotas"
MEASURED_S = 10.9
"""Almost all windows. A client may use the quota of ten seconds at once, and then waits until the windows are over."""
TOLERANCE = 0.05
CLOCKS_MS = 150
"""How far the throttle times of two brokers may differ after their first request."""
REFUSED = 89


class Side:
    def __init__(self, broker: BrokerProcess) -> None:
        self.broker = broker
        self.own = Connection(broker.bootstrap, client_id="administrator")
        create_topic(broker.bootstrap, TOPIC)

    def set_quota(self, client_id: str, key: str, value: float) -> None:
        """Set a quota of a client id, and wait until the broker describes it."""
        entity = [{"EntityType": "client-id", "EntityName": client_id}]
        operation = {"Key": key, "Value": value, "Remove": False}
        body = {"Entries": [{"Entity": entity, "Ops": [operation]}], "ValidateOnly": False}
        (entry,) = self.own.call("AlterClientQuotas", 1, body)["Entries"]
        assert entry["ErrorCode"] == 0, entry
        component = {"EntityType": "client-id", "MatchType": 0, "Match": client_id}
        wait_until(
            lambda: bool(
                self.own.call("DescribeClientQuotas", 1, {"Components": [component], "Strict": True})[
                    "Entries"
                ]
            ),
            "the quota is described",
        )
        time.sleep(0.2)  # quotas may be described a moment before they apply

    def set_address_rate(self, address: str | None, rate: int | None) -> None:
        """Set connection_creation_rate of an address, or of all others, or remove it. Wait until the broker describes it."""
        entity = [{"EntityType": "ip", "EntityName": address}]
        key = "connection_creation_rate"
        operation = {"Key": key, "Value": rate or 0, "Remove": rate is None}
        body = {"Entries": [{"Entity": entity, "Ops": [operation]}], "ValidateOnly": False}
        (entry,) = self.own.call("AlterClientQuotas", 1, body)["Entries"]
        assert entry["ErrorCode"] == 0, entry
        component = {"EntityType": "ip", "MatchType": 1 if address is None else 0, "Match": address}
        wanted = [] if rate is None else [(key, rate)]

        def described() -> bool:
            reply = self.own.call("DescribeClientQuotas", 1, {"Components": [component], "Strict": True})
            return wanted == [
                (each["Key"], each["Value"]) for one in reply["Entries"] for each in one["Values"]
            ]

        wait_until(described, "the rate is described")
        time.sleep(0.2)  # as in set_quota

    def is_served(self, sender: str) -> bool:
        """Whether a new connection of the address gets a response. Otherwise the broker closes it."""
        try:
            with Connection(self.broker.bootstrap, sender=sender) as connection:
                connection.call("ApiVersions", 0, {})
        except ConnectionClosed:
            return False
        return True

    def client(self, client_id: str) -> Connection:
        return Connection(self.broker.bootstrap, client_id=client_id, timeout_s=60.0)


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Side]]:
    brokers = [BrokerProcess(kind, tmp_path_factory.mktemp(kind)) for kind in KINDS]
    try:
        yield [Side(broker.start()) for broker in brokers]
    finally:
        for broker in brokers:
            broker.kill()


def produce(connection: Connection, size: int, acks: int = 1) -> int:
    """The throttle time of a produce of so many bytes."""
    reply = connection.call("Produce", 9, produce_body(TOPIC, BatchPlan(values=[b"x" * size]), acks=acks))
    (result,) = reply["Responses"][0]["PartitionResponses"]
    assert result["ErrorCode"] == 0, result
    return int(reply["ThrottleTimeMs"])


def test_a_producer_is_throttled_alike(sides: list[Side]) -> None:
    told = []
    for side in sides:
        side.set_quota("producer", "producer_byte_rate", 10_000)
        with side.client("producer") as connection:
            first = produce(connection, 115_000)
            began = time.monotonic()
            second = produce(connection, 1_000)
            muted_ms = 1000 * (time.monotonic() - began)
            assert first - 50 <= muted_ms <= first + 1_000
            told.append((first, second))
    assert told[0][0] == told[1][0] > 1_000
    assert abs(told[0][1] - told[1][1]) <= CLOCKS_MS


def test_a_consumer_is_throttled_alike(sides: list[Side]) -> None:
    told = []
    for side in sides:
        create_topic(side.broker.bootstrap, "fetched")
        body = produce_body("fetched", BatchPlan(values=[b"x" * 120_000]))
        side.own.call("Produce", 9, body)
        side.set_quota("consumer", "consumer_byte_rate", 10_000)
        with side.client("consumer") as connection:
            reply = connection.call("Fetch", 12, fetch_body("fetched", 0))
            told.append((reply["ThrottleTimeMs"], reply["Responses"], reply["ErrorCode"], reply["SessionId"]))
    assert told[0] == told[1]
    assert told[0][0] > 1_000
    assert told[0][1] == []


def test_a_producer_keeps_to_its_quota(sides: list[Side]) -> None:
    quota = 200_000
    for side in sides:
        side.set_quota("steady producer", "producer_byte_rate", quota)
        with side.client("steady producer") as connection:
            began, sent, throttled_ms = time.monotonic(), 0, 0
            while time.monotonic() - began < MEASURED_S:
                throttled_ms += produce(connection, 4_000)  # each request over the quota still counts
                sent += 4_000
            rate = sent / max(time.monotonic() - began, MEASURED_S)
        assert rate <= (1 + TOLERANCE) * quota, (side.broker.kind, rate)
        # Whoever is never throttled is slowed down by a busy machine alone.
        assert not throttled_ms or rate >= (1 - TOLERANCE) * quota, (side.broker.kind, rate)


def test_a_muted_connection_is_idle(tmp_path: Path) -> None:
    """It is closed after connections.max.idle.ms, however long its throttle time is."""
    for kind in KINDS:
        broker = BrokerProcess(kind, tmp_path / kind, {"connections.max.idle.ms": "1500"})
        try:
            side = Side(broker.start())
            side.set_quota("slow", "producer_byte_rate", 1_000)
            with side.client("slow") as connection:
                assert produce(connection, 100_000) > 60_000, kind
                assert connection.is_closed_by_peer(20.0), kind
        finally:
            broker.kill()


def test_mutations_are_refused_alike(sides: list[Side]) -> None:
    def create(connection: Connection, version: int, *names: str) -> tuple[dict[str, int], int]:
        topics = [
            {"Name": name, "NumPartitions": 8, "ReplicationFactor": 1, "Assignments": [], "Configs": []}
            for name in names
        ]
        reply = connection.call("CreateTopics", version, {"Topics": topics, "timeoutMs": 15_000})
        return {each["Name"]: each["ErrorCode"] for each in reply["Topics"]}, reply["ThrottleTimeMs"]

    told: list[Any] = []
    for side in sides:
        side.set_quota("creator", "controller_mutation_rate", 1)
        with side.client("creator") as connection:
            codes, throttle_ms = create(connection, 7, "m1", "m2", "m3")
            assert sorted(codes.values()) == [0, 0, REFUSED]
            assert 4_000 < throttle_ms <= 5_000
            old, old_throttle_ms = create(connection, 5, "m4")
            told.append((codes, old, round(old_throttle_ms, -3)))
    assert told[0][1:] == told[1][1:]


def test_connections_over_the_rate_of_their_address_are_closed_alike(sides: list[Side]) -> None:
    for side in sides:
        side.set_address_rate("127.0.0.2", 2)
        # Twenty are free, which is the quota of ten seconds. A connection takes milliseconds.
        served = [side.is_served("127.0.0.2") for _ in range(22)]
        assert served[:20] == [True] * 20, (side.broker.kind, served)
        assert not all(served), side.broker.kind
        assert side.is_served("127.0.0.3"), side.broker.kind
        side.set_address_rate("127.0.0.2", 1_000)
        assert side.is_served("127.0.0.2"), side.broker.kind


def test_the_rate_of_all_other_addresses_is_of_each_address(sides: list[Side]) -> None:
    for side in sides:
        side.set_address_rate(None, 2)
        try:
            for sender in ("127.0.0.4", "127.0.0.5"):
                served = [side.is_served(sender) for _ in range(22)]
                assert served[:20] == [True] * 20, (side.broker.kind, served)
                assert not all(served), side.broker.kind
        finally:
            side.set_address_rate(None, None)
        assert side.is_served("127.0.0.4"), side.broker.kind
