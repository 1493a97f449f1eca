"""A connection keeps what the quotas do to its requests, until another client, API or quota comes."""

from __future__ import annotations

from typing import Any

import pytest

from kafkacompat.api._tests.kit import Api
from kafkacompat.api._tests.test_produce import request as produce
from kafkacompat.api._tests.test_throttling import Quota, Throttled
from kafkacompat.partition._tests.kit import batch_of, broker_image, partition_image, topic_image
from kafkacompat.ports.dispatcher import Pending, Principal
from kafkacompat.quota.client_quotas import ClientQuotas
from kafkacompat.wire.messages.metadata_request import MetadataRequest

CLIENT = "client-id"


def of_clients(**bounds: float) -> dict[Any, Quota]:
    return {(((CLIENT, name),), "producer_byte_rate"): Quota(bound) for name, bound in bounds.items()}


class Producing:
    """One connection whose requests may come from different clients."""

    def __init__(self, **bounds: float) -> None:
        self.throttled = Throttled()
        self.set(**bounds)

    def set(self, **bounds: float) -> None:
        self.throttled.api.node.quotas.take(of_clients(**bounds))

    def throttle_ms(self, client_id: str) -> int:
        api = self.throttled.api
        message = produce(("t", 0, batch_of(b"x" * 1000)), api=api)
        reply = api.raw(api.frame(message, 9, client_id=client_id))
        return int(api.decoded(reply, 0, 9).throttle_time_ms)


def test_a_quota_is_looked_up_once_for_many_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    sensor = ClientQuotas.sensor
    monkeypatch.setattr(
        ClientQuotas, "sensor", lambda *arguments: (asked.append(arguments[1:3]), sensor(*arguments))[1]
    )
    producing = Producing(a=1e9)
    assert [producing.throttle_ms("a") for _ in range(5)] == [0] * 5
    assert asked == [("ANONYMOUS", "a")]
    assert [producing.throttle_ms("b") for _ in range(5)] == [0] * 5
    assert asked == [("ANONYMOUS", "a"), ("ANONYMOUS", "b")], "that nothing applies is kept too"


def test_each_client_of_a_connection_has_its_own_quota() -> None:
    producing = Producing(a=1e9, b=10.0)
    assert producing.throttle_ms("a") == 0
    assert producing.throttle_ms("b") > 0
    assert producing.throttle_ms("c") == 0
    assert producing.throttle_ms("a") == 0


def test_a_changed_quota_applies_to_the_next_request() -> None:
    producing = Producing(a=1e9)
    assert producing.throttle_ms("a") == 0
    producing.set(a=10.0)
    assert producing.throttle_ms("a") > 0
    producing.set(b=10.0)
    assert producing.throttle_ms("a") == 0
    producing.set(a=10.0)
    assert producing.throttle_ms("a") > 0


def test_another_user_of_a_connection_has_its_own_quota() -> None:
    throttled = Throttled(producer_byte_rate=10.0)
    assert throttled.produce()[0].throttle_time_ms > 0
    throttled.api.connection.principal = Principal("User", "alice")
    assert throttled.produce()[0].throttle_time_ms == 0


def test_requests_of_different_kinds_are_measured_apart() -> None:
    throttled = Throttled(producer_byte_rate=1e9, consumer_byte_rate=1e9)
    for _ in range(3):
        throttled.produce()
        assert throttled.fetch().throttle_time_ms == 0
        assert throttled.api.call(MetadataRequest(topics=[]), 9).throttle_time_ms == 0
    quotas = throttled.api.node.quotas
    now_ms = throttled.api.world.time.ms
    produced, fetched = (kind.sensor("ANONYMOUS", "test", now_ms) for kind in (quotas.produce, quotas.fetch))
    assert produced is not None
    assert fetched is not None
    throttled.api.dispatcher.connection_closed(throttled.api.connection)  # records what was added up
    assert 3_000 < 10 * produced.stat.measure(now_ms) < 4_000
    assert fetched.stat.measure(now_ms) > 0


def test_requests_that_wait_at_the_same_time_are_measured_one_by_one() -> None:
    """Two produces wait for replicas. The time and size of each is its own."""
    api = Api(
        topic_image("t", {0: partition_image(replicas=(1, 2), epoch=2)}),
        brokers=[broker_image(1), broker_image(2)],
    )
    throttled = Throttled(api, producer_byte_rate=1e9)
    replies, sizes = [], []
    for size in (1_000, 30_000):
        frame = api.frame(produce(("t", 0, batch_of(b"x" * size)), acks=-1, api=api), 9)
        sizes.append(len(frame))
        reply = api.raw(frame)
        assert isinstance(reply, Pending)
        replies.append(reply)
    api.call(MetadataRequest(topics=[]), 9)
    while not all(each.reply.done for each in replies):
        api.world.time.fire_next()
    sensor = api.node.quotas.produce.sensor("ANONYMOUS", "test", 0)
    assert sensor is not None
    now_ms = api.world.time.ms
    rate = sensor.stat.measure(now_ms)
    assert round(rate * sensor.stat.window_ms(now_ms) / 1000) == sum(sizes)
    assert throttled.muted == []
