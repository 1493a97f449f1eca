"""Broker settings changed while the broker runs. The broker's behaviour shows each change, not only its description.

This module has a separate broker, because the settings apply to the whole cluster. Every setting is removed after its
test.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from interop_tests.harness.broker import BrokerProcess, chosen_kind
from interop_tests.harness.ports import free_port
from interop_tests.harness.raw_kafka import ErrorCode, create_topic, fetch_batches, list_offset, produce
from interop_tests.harness.records import CODECS, BatchPlan
from interop_tests.harness.waiting import wait_until
from interop_tests.harness.wire import Connection

pytestmark = pytest.mark.needs_control
BROKER, TOPIC = 4, 2
SET, DELETE = 0, 1
HOUR_MS = 3_600_000
Change = Callable[..., None]


class Node:
    """A broker with a second listener, and a connection to it."""

    def __init__(self, process: BrokerProcess, external: str, connection: Connection) -> None:
        self.process = process
        self.external = external
        self.connection = connection

    def alter(self, name: str, value: str | None, broker: str = "", kind: int = BROKER) -> None:
        """Set a setting of the cluster, of broker `broker`, or of a topic. None removes it."""
        result = self.result_of(name, value, broker, kind)
        assert result["ErrorCode"] == 0, result

    def result_of(self, name: str, value: str | None, broker: str = "", kind: int = BROKER) -> Any:
        config = {"Name": name, "ConfigOperation": DELETE if value is None else SET, "Value": value}
        resource = {"ResourceType": kind, "ResourceName": broker, "Configs": [config]}
        reply = self.connection.call(
            "IncrementalAlterConfigs", 1, {"Resources": [resource], "ValidateOnly": False}
        )
        (result,) = reply["Responses"]
        return result

    def try_produce(self, topic: str, **plan: Any) -> int:
        plan.setdefault("base_timestamp_ms", int(time.time() * 1000))
        return int(produce(self.connection, topic, BatchPlan(**plan))["ErrorCode"])

    def segments(self, topic: str) -> list[Path]:
        return sorted((self.process.data_dir / f"{topic}-0").glob("*.log"))


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    external = free_port()
    process = BrokerProcess(chosen_kind(), tmp_path_factory.mktemp("dynamic"))
    inside = process.settings["listeners"]
    process.settings |= {
        "listeners": f"{inside},EXTERNAL://127.0.0.1:{external}",
        "advertised.listeners": f"PLAINTEXT://{process.bootstrap},EXTERNAL://127.0.0.1:{external}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,EXTERNAL:PLAINTEXT",
        "log.initial.task.delay.ms": "100",
        "log.retention.check.interval.ms": "200",
        "producer.id.expiration.check.interval.ms": "200",
    }
    process.start()
    try:
        with Connection(process.bootstrap) as connection:
            yield Node(process, f"127.0.0.1:{external}", connection)
    finally:
        process.kill()


@pytest.fixture
def change(node: Node) -> Iterator[Change]:
    """change(name, value, broker="") sets a setting until the test ends."""
    made: list[tuple[str, str]] = []

    def set_it(name: str, value: str, broker: str = "") -> None:
        node.alter(name, value, broker)
        made.append((name, broker))

    yield set_it
    for name, broker in made:
        node.alter(name, None, broker)


@pytest.fixture
def own_topic(node: Node, unique: Callable[[str], str]) -> str:
    name = unique("dynamic")
    create_topic(node.process.bootstrap, name)
    assert node.try_produce(name, base_timestamp_ms=int(time.time() * 1000) - HOUR_MS) == 0
    return name


def wait_for_code(node: Node, topic: str, code: int, **plan: Any) -> None:
    """Brokers apply a change a moment after it is acknowledged."""
    wait_until(lambda: node.try_produce(topic, **plan) == code, f"a produce is answered with {code}")


@pytest.mark.parametrize("scope", ["", "1"], ids=["cluster", "broker"])
@pytest.mark.parametrize(
    ("name", "value", "plan", "code"),
    [
        ("message.max.bytes", "2000", {"values": [bytes(5000)]}, ErrorCode.MESSAGE_TOO_LARGE),
        ("log.message.timestamp.before.max.ms", "1000", {"age_ms": HOUR_MS}, ErrorCode.INVALID_TIMESTAMP),
        (
            "log.message.timestamp.after.max.ms",
            "1000",
            {"age_ms": -HOUR_MS // 2},
            ErrorCode.INVALID_TIMESTAMP,
        ),
        ("log.cleanup.policy", "compact", {"keys": [None]}, ErrorCode.INVALID_RECORD),
    ],
)
def test_accepted_batches_follow_the_changed_setting(
    node: Node, change: Change, own_topic: str, name: str, value: str, plan: Any, code: int, scope: str
) -> None:
    plan = dict(plan)
    age_ms = plan.pop("age_ms", None)
    if age_ms is not None:
        plan["base_timestamp_ms"] = int(time.time() * 1000) - age_ms
    assert node.try_produce(own_topic, **plan) == 0
    change(name, value, scope)
    wait_for_code(node, own_topic, code, **plan)
    node.alter(name, None, scope)
    wait_for_code(node, own_topic, 0, **plan)


def test_the_topics_own_setting_wins_over_a_changed_default(
    node: Node, change: Change, own_topic: str
) -> None:
    node.alter("max.message.bytes", "9000", own_topic, TOPIC)
    change("message.max.bytes", "2000")
    other = own_topic + "-plain"
    create_topic(node.process.bootstrap, other)
    wait_for_code(node, other, ErrorCode.MESSAGE_TOO_LARGE, values=[bytes(5000)])
    assert node.try_produce(own_topic, values=[bytes(5000)]) == 0
    assert node.try_produce(own_topic, values=[bytes(9500)]) == ErrorCode.MESSAGE_TOO_LARGE


def test_log_append_time(node: Node, change: Change, own_topic: str) -> None:
    change("log.message.timestamp.type", "LogAppendTime")
    plan = BatchPlan(base_timestamp_ms=int(time.time() * 1000))
    wait_until(
        lambda: produce(node.connection, own_topic, plan)["LogAppendTimeMs"] > 0, "the broker stamps its time"
    )


def test_compression(node: Node, change: Change, own_topic: str) -> None:
    change("compression.type", "zstd")

    def codec_of_newest() -> int:
        offset = produce(node.connection, own_topic, BatchPlan(values=[bytes(500)]))["BaseOffset"]
        return fetch_batches(node.connection, own_topic, offset)[0].attributes & 7

    wait_until(lambda: codec_of_newest() == CODECS["zstd"], "batches are stored with zstd")


def test_segments_roll_by_size_and_by_time(node: Node, change: Change, own_topic: str) -> None:
    now_ms = int(time.time() * 1000)
    for _ in range(4):
        assert node.try_produce(own_topic, values=[bytes(600_000)]) == 0
    assert len(node.segments(own_topic)) == 1
    change("log.segment.bytes", str(1 << 20))

    def rolled(count: int, timestamp_ms: int) -> bool:
        assert node.try_produce(own_topic, values=[bytes(1000)], base_timestamp_ms=timestamp_ms) == 0
        return len(node.segments(own_topic)) >= count

    wait_until(lambda: rolled(2, now_ms), "a segment is rolled by size")
    change("log.roll.ms", "1000")
    before = len(node.segments(own_topic))
    wait_until(lambda: rolled(before + 1, now_ms + 60_000), "a segment is rolled by time")


@pytest.mark.parametrize(("name", "value"), [("log.retention.ms", "60000"), ("log.retention.bytes", "1000")])
def test_retention(node: Node, change: Change, own_topic: str, name: str, value: str) -> None:
    node.alter("segment.bytes", str(1 << 20), own_topic, TOPIC)
    hour_ago = int(time.time() * 1000) - HOUR_MS
    for _ in range(3):
        assert node.try_produce(own_topic, values=[bytes(600_000)], base_timestamp_ms=hour_ago) == 0
    assert list_offset(node.connection, own_topic, 0, -2)[1] == 0
    change(name, value)
    wait_until(lambda: list_offset(node.connection, own_topic, 0, -2)[1] >= 2, "old segments are removed")


def test_idempotent_producers_expire(node: Node, change: Change, own_topic: str) -> None:
    def producers() -> list[int]:
        body = {"Topics": [{"Name": own_topic, "PartitionIndexes": [0]}]}
        (topic,) = node.connection.call("DescribeProducers", 0, body)["Topics"]
        (partition,) = topic["Partitions"]
        assert partition["ErrorCode"] == 0
        return [each["ProducerId"] for each in partition["ActiveProducers"]]

    assert node.try_produce(own_topic, producer_id=4242, producer_epoch=0, base_sequence=0) == 0
    assert producers() == [4242]
    change("producer.id.expiration.ms", "1")
    wait_until(lambda: producers() == [], "the silent producer is forgotten")


def answers(address: str, timeout_s: float = 1.0) -> bool:
    """Whether a new connection is accepted and answered."""
    with Connection(address, timeout_s=timeout_s) as connection:
        try:
            return bool(connection.call("ApiVersions", 0, {})["ErrorCode"] == 0)
        except Exception:  # refused, closed or left waiting: each keeps the client out
            return False


@pytest.mark.parametrize(
    ("name", "value"),
    [("max.connections.per.ip", "2"), ("max.connections.per.ip.overrides", "127.0.0.1:2")],
)
def test_connections_of_one_address(node: Node, change: Change, name: str, value: str) -> None:
    with Connection(node.process.bootstrap) as second:
        assert second.call("ApiVersions", 0, {})["ErrorCode"] == 0
        assert answers(node.process.bootstrap, 20.0)
        change(name, value)
        wait_until(lambda: not answers(node.process.bootstrap), "a third connection is refused")
        assert second.call("ApiVersions", 0, {})["ErrorCode"] == 0, "those there stay"
        node.alter(name, None)
        wait_until(lambda: answers(node.process.bootstrap), "a third connection is taken again")


@pytest.mark.parametrize("name", ["max.connections", "listener.name.external.max.connections"])
def test_connections_in_all(node: Node, change: Change, name: str) -> None:
    with Connection(node.external) as first:
        assert first.call("ApiVersions", 0, {})["ErrorCode"] == 0
        assert answers(node.external, 20.0)
        change(name, "1")
        wait_until(lambda: not answers(node.external), "a further connection has to wait")
        node.alter(name, None)
        wait_until(lambda: answers(node.external), "a further connection is taken again")


def test_connections_over_a_lowered_bound_are_closed(node: Node, change: Change) -> None:
    """The least recently used first, and none of the inter-broker listener."""
    some = [Connection(node.external) for _ in range(4)]
    try:
        for each in (*some, some[0]):
            assert each.call("ApiVersions", 0, {})["ErrorCode"] == 0
            time.sleep(0.005)  # a broker tells uses apart by the millisecond
        # Two on the external listener, and the one that changes the setting.
        change("max.connections", "3")
        assert [each.is_closed_by_peer() for each in some[1:3]] == [True, True]
        assert some[0].call("ApiVersions", 0, {})["ErrorCode"] == 0
        assert node.connection.call("ApiVersions", 0, {})["ErrorCode"] == 0
    finally:
        for each in some:
            each.close()


@pytest.mark.parametrize(
    "name",
    [
        "max.connections",
        "max.connection.creation.rate",
        "listener.name.external.max.connections",
        "listener.name.external.max.connection.creation.rate",
    ],
)
def test_nobody_can_lock_everyone_out(node: Node, name: str) -> None:
    assert node.result_of(name, "0")["ErrorCode"] == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("setting", "is_for_all"),
    [("max.connections", True), ("num.io.threads", False), ("log.dirs", False), ("unknown.thing", False)],
)
def test_any_setting_may_have_a_listeners_prefix_on_one_broker(
    node: Node, change: Change, setting: str, is_for_all: bool
) -> None:
    """Even one that is read at the start only. Few may have it for the whole cluster."""
    name = f"listener.name.external.{setting}"
    change(name, "100", "1")
    assert node.result_of(name, "100")["ErrorCode"] == (0 if is_for_all else ErrorCode.INVALID_REQUEST)
    if is_for_all:
        node.alter(name, None)
