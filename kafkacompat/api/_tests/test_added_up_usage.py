"""Far below its bounds a connection adds up what its requests use, and records the sum now and then."""

from __future__ import annotations

import random
from typing import Any

import pytest

from kafkacompat.api._tests.test_long_requests import stepping_api
from kafkacompat.api._tests.test_throttling import Throttled
from kafkacompat.api.throttling import KEPT_PART, KEPT_S
from kafkacompat.partition._tests.kit import topic_image
from kafkacompat.ports.dispatcher import ConnectionInfo, Pending
from kafkacompat.quota.rate import Rate
from kafkacompat.wire.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from kafkacompat.wire.messages.create_topics_response import CreateTopicsResponse
from kafkacompat.wire.messages.fetch_request import FetchPartition, FetchTopic

KEPT_MS = round(1000 * KEPT_S)


def recorded(throttled: Throttled) -> int:
    """Bytes of produce requests that the quota's measurement has."""
    ((_, sensor),) = throttled.api.node.quotas.produce.newest(1)
    now_ms = throttled.api.world.time.ms
    rate: Rate = sensor.stat
    return round(rate.measure(now_ms) * rate.window_ms(now_ms) / 1000)


def test_the_first_request_is_recorded_at_once_and_the_next_ones_later() -> None:
    throttled = Throttled(producer_byte_rate=1e9)
    sizes = [throttled.produce()[1]]
    assert recorded(throttled) == sizes[0]
    sizes += [throttled.produce()[1] for _ in range(5)]
    assert recorded(throttled) == sizes[0]
    throttled.passes(KEPT_MS)
    sizes.append(throttled.produce()[1])
    assert recorded(throttled) == sum(sizes)


def test_more_than_a_part_of_what_is_left_is_recorded_at_once() -> None:
    throttled = Throttled(producer_byte_rate=16 * 1_000)  # 160,000 bytes at once, of which 10,000 may be kept
    sizes = [throttled.produce(5_000)[1] for _ in range(2)]
    assert recorded(throttled) == sizes[0]
    sizes.append(throttled.produce(5_000)[1])
    assert recorded(throttled) == sum(sizes)


def test_connections_share_what_may_be_kept() -> None:
    throttled = Throttled(producer_byte_rate=1_000_000)
    connections = [ConnectionInfo(number, "PLAINTEXT", "127.0.0.1", 9) for number in range(100)]
    for _ in range(2):  # at the second time each connection has seen all others
        throttled.passes(KEPT_MS)
        for each in connections:
            throttled.api.connection = each
            throttled.produce()
    before = recorded(throttled)
    kept = 0
    for each in connections:
        throttled.api.connection = each
        for _ in range(20):
            kept += throttled.produce()[1]
    kept -= recorded(throttled) - before
    assert 0 < kept < KEPT_PART * 10_000_000
    for each in connections[1:]:
        throttled.api.dispatcher.connection_closed(each)
        throttled.api.dispatcher.connection_closed(each)
    ((_, sensor),) = throttled.api.node.quotas.produce.newest(1)
    assert sensor.connections == 1


@pytest.mark.parametrize("steps", [0, 1, 2, 3])
def test_a_request_whose_connection_ends_while_it_is_decoded_leaves_no_connection(steps: int) -> None:
    api = stepping_api(topic_image("t", 5_000))
    throttled = Throttled(api, consumer_byte_rate=1e9)
    named = [FetchPartition(partition=index, partition_max_bytes=1) for index in range(5_000)]
    assert isinstance(throttled.fetch(topics=[FetchTopic(topic="t", partitions=named)]), Pending)
    for _ in range(steps):
        api.world.time.advance(0)
    api.dispatcher.connection_closed(api.connection)
    for _ in range(20):
        api.world.time.advance(0)
    # A request that was not begun when its client left is dropped, and used nothing.
    of_sensors = [sensor.connections for _, sensor in api.node.quotas.fetch.newest(1)]
    assert of_sensors == ([] if steps == 0 else [0])


def test_time_is_added_up_too() -> None:
    throttled = Throttled(request_percentage=1.6)  # 0.16 s at once, of which 10 ms may be kept

    def total_percent() -> float:
        ((_, sensor),) = throttled.api.node.quotas.request.newest(1)
        now_ms = throttled.api.world.time.ms
        return sensor.stat.measure(now_ms) * sensor.stat.window_ms(now_ms) / 1000

    ticks = iter(range(10**6))
    throttled.api.node.monotonic_s = lambda: 0.004 * next(ticks)
    throttled.produce()
    throttled.produce()
    throttled.produce()
    assert total_percent() == pytest.approx(0.4)
    throttled.produce()
    assert total_percent() == pytest.approx(4 * 0.4)


def test_a_connection_that_ends_has_recorded_everything() -> None:
    throttled = Throttled(producer_byte_rate=1e9)
    sizes = [throttled.produce()[1] for _ in range(3)]
    throttled.api.dispatcher.connection_closed(throttled.api.connection)
    assert recorded(throttled) == sum(sizes)


def test_another_api_or_client_leaves_nothing_behind() -> None:
    throttled = Throttled(producer_byte_rate=1e9)
    sizes = [throttled.produce()[1] for _ in range(3)]
    assert throttled.fetch().throttle_time_ms == 0
    assert recorded(throttled) == sum(sizes)


def test_a_lower_bound_applies_to_what_was_added_up() -> None:
    throttled = Throttled(producer_byte_rate=1e9)
    sizes = [throttled.produce(10_000)[1] for _ in range(3)]
    Throttled(throttled.api, producer_byte_rate=1_000.0)
    response, size = throttled.produce(10_000)
    over = sum(sizes) + size - 10 * 1_000
    assert response.throttle_time_ms == pytest.approx(over, abs=1)  # milliseconds, at a byte each


def test_what_the_controller_tells_is_never_passed_over() -> None:
    throttled = Throttled(controller_mutation_rate=1.0, request_percentage=1e6)
    for told_ms in (0, 0, 70):
        reply: Any = throttled.api.send(CreateTopicsRequest(topics=[CreatableTopic(name="new")]), 7)
        throttled.api.controller.calls[-1][2].resolve(CreateTopicsResponse(throttle_time_ms=told_ms))
        assert throttled.api.decoded(reply.reply.result(), 19, 7).throttle_time_ms == told_ms
    assert throttled.muted == [70]


def test_all_connections_together_lose_nothing_and_are_throttled_in_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Beside a measurement that gets each request at once: never far behind it, and equal when all have ended."""
    chance = random.Random(5)
    throttled_often = 0
    values: list[tuple[Rate, float]] = []
    record = Rate.record
    monkeypatch.setattr(
        Rate, "record", lambda rate, value, ms: (values.append((rate, value)), record(rate, value, ms))
    )
    for _ in range(8):
        values.clear()
        sizes = []
        bound = chance.choice((2_000.0, 20_000.0, 1e9))
        throttled = Throttled(producer_byte_rate=bound)
        exact = Rate(11, 1000)
        connections = [ConnectionInfo(number, "PLAINTEXT", "127.0.0.1", 9) for number in range(4)]
        for _ in range(120):
            throttled.passes(chance.choice((0, 0, 3, 40, 150, 2_000)))
            throttled.api.connection = chance.choice(connections)
            response, size = throttled.produce(chance.choice((10, 300, 3_000)))
            sizes.append(size)
            now_ms = throttled.api.world.time.ms
            exact.record(size, now_ms)
            expected_ms = exact.throttle_ms(bound, now_ms)
            if response.throttle_time_ms:
                throttled_often += 1
                assert expected_ms > 0
            else:
                assert exact.left(bound) > -KEPT_PART * 10 * bound - size
        for each in connections:
            throttled.api.dispatcher.connection_closed(each)
        ((_, sensor),) = throttled.api.node.quotas.produce.newest(1)
        assert sum(value for rate, value in values if rate is sensor.stat) == sum(sizes)
    assert throttled_often > 50
