"""Requests over a quota: the client is told the throttle time, its connection is muted that long, and fetches come back empty."""

from __future__ import annotations

from typing import Any

import pytest

from kafkacompat.api._tests.kit import Api
from kafkacompat.api._tests.test_long_requests import stepping_api
from kafkacompat.api._tests.test_produce import request as produce
from kafkacompat.api.meters import RequestMeters
from kafkacompat.api.registry import BROKER_APIS
from kafkacompat.api.route import Route
from kafkacompat.api.throttling import QUOTAS, SHARE_FETCH, Throttling, throttle
from kafkacompat.coordinator._tests.kit import context
from kafkacompat.partition._tests.kit import batch_of, broker_image, partition_image, topic_image
from kafkacompat.ports.dispatcher import Pending, Principal
from kafkacompat.quota.client_quotas import USER_AND_CLIENT_QUOTAS, QuotaManagers
from kafkacompat.quota.rate import Rate
from kafkacompat.wire.apis import response_class
from kafkacompat.wire.codec import encode
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from kafkacompat.wire.messages.create_topics_response import CreateTopicsResponse
from kafkacompat.wire.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from kafkacompat.wire.messages.metadata_request import MetadataRequest

USER = (("user", "ANONYMOUS"),)
PRODUCE, FETCH, REQUEST, MUTATION = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
)
MEASURED_BY_ITSELF = {SHARE_FETCH}
"""Their handlers record what they answer."""


class Quota:
    def __init__(self, value: float) -> None:
        self.value = value


class Throttled:
    """An api with quotas of the user ANONYMOUS, and the throttle times that its connection was told."""

    def __init__(self, api: Api | None = None, **bounds: float) -> None:
        self.api = api or Api(topic_image("t", 2))
        self.muted: list[int] = []
        self.seconds = 0.0
        self.api.connection.on_throttled = self.muted.append
        self.api.node.monotonic_s = lambda: self.api.world.time.ms / 1000 + self.seconds
        self.api.node.quotas.take({(USER, key): Quota(bound) for key, bound in bounds.items()})

    def passes(self, time_ms: int) -> None:
        self.api.world.time.ms += time_ms

    def produce(self, size: int = 1000, version: int = 9, **options: Any) -> tuple[Any, int]:
        """The response to a batch of at least `size` bytes, and the size of the request."""
        message = produce(("t", 0, batch_of(b"x" * size)), api=self.api, **options)
        frame = self.api.frame(message, version)
        reply = self.api.raw(frame)
        return (self.api.decoded(reply, 0, version) if reply else None), len(frame)

    def fetch(self, version: int = 12, offset: int = 0, **options: Any) -> Any:
        named = [FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)]
        topics = [FetchTopic(topic="t", partitions=named)]
        values = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 20, "session_epoch": -1, **options}
        return self.api.send(FetchRequest(**{"topics": topics, **values}), version)


def test_without_quotas_nothing_is_measured() -> None:
    throttled = Throttled()
    assert not throttled.api.node.quotas.is_active
    response, _ = throttled.produce(100_000)
    assert (response.throttle_time_ms, throttled.muted) == (0, [])


@pytest.mark.parametrize("key", USER_AND_CLIENT_QUOTAS)
def test_each_quota_applies_to_some_api_also_if_it_is_the_only_one(key: str) -> None:
    api = Throttled(**{key: 1.0}).api
    routes = [Route(each.key, each.max_version, BROKER_APIS) for each in BROKER_APIS.entries]
    assert any(
        Throttling(api.node, api.connection, (route, "client", Principal("User", "ANONYMOUS"), None)).applies
        for route in routes
    )


@pytest.mark.parametrize(
    "api_key",
    [each for each, key in QUOTAS.items() if key in QuotaManagers().rates and each not in MEASURED_BY_ITSELF],
)
def test_each_api_with_a_quota_of_its_own_is_throttled_by_it(api_key: int) -> None:
    """Otherwise the quota applies and measures nothing."""
    throttled = Throttled(**{QUOTAS[api_key]: 1.0})
    api = throttled.api
    route = Route(api_key, BROKER_APIS.by_key[api_key].max_version, BROKER_APIS)
    asked = context(api_key, route.version)
    throttle(api.node, api.connection, route, asked, 1_000)
    answer: Any = response_class(api_key)()
    asked.throttling.tell(asked, answer)
    assert answer.throttle_time_ms > 0
    assert throttled.muted == [answer.throttle_time_ms]


@pytest.mark.parametrize("version", range(3, 14))
def test_a_produce_over_the_quota_is_carried_out_told_and_muted(version: int) -> None:
    throttled = Throttled(producer_byte_rate=100.0)
    response, size = throttled.produce(10_000, version=version)
    assert response.responses[0].partition_responses[0].error_code == 0
    expected = int((size / 10 - 100) / 100 * 10_000 + 0.5)
    assert (response.throttle_time_ms, throttled.muted) == (expected, [expected])
    assert throttled.api.world.log().log_end_offset == 1


def test_a_produce_below_the_quota_is_not_throttled() -> None:
    throttled = Throttled(producer_byte_rate=10_000.0)
    for _ in range(50):
        response, _ = throttled.produce(100)
        assert response.throttle_time_ms == 0
        throttled.passes(100)
    assert throttled.muted == []


TRANSACTIONAL = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0, "is_transactional": True}
CORRUPT = bytes(8) + (5).to_bytes(4, "big") + bytes(60)
OTHERS = batch_of(b"x" * 10_000, **TRANSACTIONAL | {"producer_id": 8})


@pytest.mark.parametrize(
    ("parts", "transactional_id"),
    [
        ([("t", 0, CORRUPT)], None),
        ([("t", 0, CORRUPT), ("t", 1, batch_of(b"x" * 10_000))], None),
        ([("t", 0, batch_of(b"x" * 10_000, **TRANSACTIONAL))], None),
        ([("t", 0, batch_of(b"x" * 10_000, **TRANSACTIONAL)), ("t", 1, OTHERS)], "tx"),
    ],
)
def test_a_produce_that_is_refused_as_a_whole_uses_no_bandwidth(
    parts: list[Any], transactional_id: str | None
) -> None:
    """As in Kafka, which records the bytes with the results of partitions."""
    throttled = Throttled(producer_byte_rate=100.0)
    message = produce(*parts, transactional_id=transactional_id, api=throttled.api)
    for _ in range(2):
        response = throttled.api.send(message, 9)
        answers = [each for topic in response.responses for each in topic.partition_responses]
        assert all(each.error_code for each in answers)
        assert response.throttle_time_ms == 0
    assert throttled.muted == []
    throttled.produce(10_000)
    assert len(throttled.muted) == 1
    throttled.api.send(message, 9)
    assert len(throttled.muted) == 1


def test_others_are_not_throttled() -> None:
    throttled = Throttled(producer_byte_rate=1.0)
    throttled.api.connection.principal = Principal("User", "alice")
    response, _ = throttled.produce()
    assert (response.throttle_time_ms, throttled.muted) == (0, [])


def test_a_produce_without_a_response_is_muted_by_bytes_and_exempt_by_time() -> None:
    throttled = Throttled(producer_byte_rate=10.0, request_percentage=0.001)
    throttled.api.node.monotonic_s = _ticking(1.0)
    response, size = throttled.produce(acks=0)
    assert response is None
    assert throttled.muted == [int((size / 10 - 10) / 10 * 10_000 + 0.5)]


def test_a_produce_that_waits_is_recorded_when_it_is_answered() -> None:
    api = Api(
        topic_image("t", {0: partition_image(replicas=(1, 2), epoch=2)}),
        brokers=[broker_image(1), broker_image(2)],
    )
    throttled = Throttled(api, producer_byte_rate=10.0)
    message = produce(("t", 0, batch_of(b"x" * 1000)), acks=-1, api=api)
    reply = api.send(message, 9)
    assert isinstance(reply, Pending)
    assert throttled.muted == []
    while not reply.reply.done:
        api.world.time.fire_next()
    response = api.decoded(reply.reply.result(), 0, 9)
    assert throttled.muted == [response.throttle_time_ms]
    assert response.throttle_time_ms > 0


def test_a_produce_that_is_encoded_in_steps_tells_the_throttle() -> None:
    count = 1_000
    api = stepping_api(topic_image("t", count))
    throttled = Throttled(api, producer_byte_rate=1000.0)
    message = produce(*(("t", index, batch_of(b"x")) for index in range(count)), api=api)
    reply = api.send(message, 9)
    assert isinstance(reply, Pending)
    while not reply.reply.done:
        api.world.workers.run()
        if api.world.time.pending():
            api.world.time.fire_next()
    response = api.decoded(reply.reply.result(), 0, 9)
    assert response.throttle_time_ms > 0
    assert throttled.muted == [response.throttle_time_ms]


@pytest.mark.parametrize("version", range(4, 18))
def test_a_fetch_over_the_quota_is_empty_and_its_bytes_do_not_count(version: int) -> None:
    throttled = Throttled(consumer_byte_rate=100.0)
    throttled.produce(2_000)
    topic_id = throttled.api.node.image.topics["t"].id
    named = [FetchPartition(partition=0, partition_max_bytes=1 << 20)]
    topics = [FetchTopic(topic="t", topic_id=topic_id, partitions=named)]
    for _ in range(3):
        response = throttled.fetch(version, topics=topics)
        assert response.responses == []
        assert response.throttle_time_ms == throttled.muted[-1] > 0
    assert len(set(throttled.muted)) == 1


def test_the_size_of_a_fetch_is_that_of_its_response() -> None:
    throttled = Throttled(consumer_byte_rate=10_000.0)
    throttled.produce(2_000)
    response = throttled.fetch()
    assert len(response.responses) == 1
    sensor = throttled.api.node.quotas.fetch.sensor("ANONYMOUS", "test", 0)
    assert sensor is not None
    now_ms = throttled.api.world.time.ms
    assert sensor.stat.measure(now_ms) * 10 == 4 + len(encode(response, 12))


def test_a_fetch_returns_no_more_than_its_quota_ever_allows() -> None:
    throttled = Throttled(consumer_byte_rate=300.0)
    for _ in range(10):
        throttled.produce(1_000)
    # The overhead of the response is over the quota, but only a little.
    over = throttled.fetch()
    assert (over.responses, 0 < over.throttle_time_ms < 500) == ([], True)
    throttled.passes(over.throttle_time_ms)
    response = throttled.fetch()
    assert 2_000 < len(response.responses[0].partitions[0].records) <= 3_000
    assert response.throttle_time_ms == 0


def test_a_throttled_fetch_keeps_its_session_and_makes_none() -> None:
    throttled = Throttled(consumer_byte_rate=400.0)
    throttled.produce(1_000)
    opened = throttled.fetch(session_epoch=0)
    assert opened.session_id > 0
    throttled.produce(3_500)
    over = throttled.fetch(session_id=opened.session_id, session_epoch=1, offset=1)
    assert over.throttle_time_ms > 0
    assert (over.session_id, over.error_code, over.responses) == (opened.session_id, 0, [])
    session = throttled.api.world.engine.sessions.get(opened.session_id)
    assert session is not None
    assert [each.told_high_watermark for each in session.partitions.values()] == [1], "2 was not told"
    sessions = len(throttled.api.world.engine.sessions)
    full = throttled.fetch(session_epoch=0)
    assert (full.throttle_time_ms > 0, full.session_id) == (True, 0)
    assert len(throttled.api.world.engine.sessions) == sessions
    throttled.passes(20_000)
    later = throttled.fetch(session_id=opened.session_id, session_epoch=2, offset=1, topics=[])
    assert len(later.responses[0].partitions[0].records) > 3_500, "what was not sent is still to be told"


def test_a_fetch_that_waits_is_measured_when_it_is_answered() -> None:
    throttled = Throttled(consumer_byte_rate=100.0, request_percentage=10.0)
    reply = throttled.fetch(max_wait_ms=500)
    assert isinstance(reply, Pending)
    throttled.seconds = 100.0
    throttled.produce(800)
    while not reply.reply.done:
        throttled.api.world.time.fire_next()
    response = throttled.api.decoded(reply.reply.result(), 1, 12)
    assert len(response.responses) == 1
    assert (response.throttle_time_ms, throttled.muted) == (0, []), "the wait is not the request's time"


def test_a_fetch_of_many_partitions_is_throttled() -> None:
    count = 1_500
    api = stepping_api(topic_image("t", count))
    throttled = Throttled(api, consumer_byte_rate=10.0)
    named = [FetchPartition(partition=index, partition_max_bytes=1 << 20) for index in range(count)]
    reply = throttled.fetch(topics=[FetchTopic(topic="t", partitions=named)])
    assert isinstance(reply, Pending)
    while not reply.reply.done:
        api.world.time.fire_next()
    response = api.decoded(reply.reply.result(), 1, 12)
    assert response.responses == []
    assert throttled.muted == [response.throttle_time_ms]


def test_followers_are_exempt() -> None:
    api = Api(
        topic_image("t", {0: partition_image(replicas=(1, 2), epoch=2)}),
        brokers=[broker_image(1), broker_image(2)],
    )
    throttled = Throttled(api, consumer_byte_rate=1.0, request_percentage=0.001)
    api.node.monotonic_s = _ticking(1.0)
    message = produce(("t", 0, batch_of(b"x" * 1000)), acks=0, api=api)
    api.send(message, 9)
    response = throttled.fetch(replica_id=2)
    assert len(response.responses) == 1
    assert (response.throttle_time_ms, throttled.muted) == (0, [])


def _ticking(step_s: float) -> Any:
    seconds = 0.0

    def tick() -> float:
        nonlocal seconds
        seconds += step_s
        return seconds

    return tick


def test_a_request_over_its_time_is_throttled_for_one_window_at_most() -> None:
    throttled = Throttled(request_percentage=10.0)
    throttled.api.node.monotonic_s = _ticking(1.05)
    response = throttled.api.call(MetadataRequest(topics=[]), 9)
    assert response.throttle_time_ms == 500
    assert throttled.muted == [500]
    response = throttled.api.call(MetadataRequest(topics=[]), 9)
    assert response.throttle_time_ms == 1000
    assert throttled.muted == [500, 1000]


def test_the_longest_throttle_applies() -> None:
    throttled = Throttled(request_percentage=10.0, producer_byte_rate=100.0)
    throttled.api.node.monotonic_s = _ticking(1.05)
    response, _ = throttled.produce(10_000)
    assert response.throttle_time_ms > 1000
    assert throttled.muted == [response.throttle_time_ms]
    quotas = throttled.api.node.quotas
    (_, bandwidth), (_, request) = *quotas.produce.newest(1), *quotas.request.newest(1)
    assert bandwidth.throttles is not None
    mean_ms = bandwidth.throttles.measure(throttled.api.world.time.monotonic_ms())
    assert mean_ms == pytest.approx(response.throttle_time_ms)
    assert request.throttles is None, "it counts for the quota with the longer time only"


def test_bytes_and_time_are_measured_far_below_their_bounds_too() -> None:
    throttled = Throttled(producer_byte_rate=1e9, consumer_byte_rate=1e9, request_percentage=1e6)
    throttled.api.node.monotonic_s = _ticking(0.001)
    sizes = [throttled.produce(size)[1] for size in (10, 1_000, 100, 5_000)]
    response = throttled.fetch()
    quotas = throttled.api.node.quotas
    (_, produced), (_, fetched), (_, requests) = (
        *quotas.produce.newest(1),
        *quotas.fetch.newest(1),
        *quotas.request.newest(1),
    )
    assert _total(produced.stat) == pytest.approx(sum(sizes))
    assert _total(fetched.stat) == pytest.approx(4 + len(encode(response, 12)))
    assert _total(requests.stat) == pytest.approx(5 * 0.1), "each takes a millisecond"


def _total(rate: Rate) -> float:
    return rate.measure(10) * rate.window_ms(10) / 1000


def test_a_throttle_that_the_controller_tells_mutes_the_connection() -> None:
    throttled = Throttled(controller_mutation_rate=1.0)
    message = CreateTopicsRequest(topics=[CreatableTopic(name="new")])
    reply = throttled.api.send(message, 7)
    assert isinstance(reply, Pending)
    _, _, answer = throttled.api.controller.calls[0]
    answer.resolve(CreateTopicsResponse(throttle_time_ms=1234))
    assert throttled.api.decoded(reply.reply.result(), 19, 7).throttle_time_ms == 1234
    assert throttled.muted == [1234]


def test_a_refused_fetch_is_throttled_with_its_error() -> None:
    throttled = Throttled(consumer_byte_rate=0.001)
    response = throttled.fetch(session_id=77, session_epoch=5)
    assert response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert throttled.muted == [response.throttle_time_ms]


@pytest.mark.parametrize("bound", [float("nan"), 0.0, -1.0])
def test_a_quota_that_is_no_positive_number_limits_nothing(bound: float) -> None:
    """AlterClientQuotas accepts NaN, as in Apache Kafka. The other values can only come from the metadata of others."""
    bounds = dict.fromkeys((PRODUCE, FETCH, REQUEST, MUTATION), bound)
    throttled = Throttled(**bounds)
    throttled.api.node.monotonic_s = _ticking(1.0)
    response, _ = throttled.produce(10_000)
    assert response.responses[0].partition_responses[0].error_code == 0
    assert throttled.fetch().responses[0].partitions[0].records
    assert throttled.muted == []


def test_throttled_requests_are_measured_among_the_others() -> None:
    """A request that is not throttled counts as 0, and the connection as muted until its time is over."""
    api = Api(topic_image("t", 2))
    api.dispatcher._meters = meters = RequestMeters()
    throttled = Throttled(api, producer_byte_rate=100.0)
    response, _ = throttled.produce(10_000)
    assert response.throttle_time_ms > 0
    produced = meters.kinds["Produce"]
    assert produced.throttle_times_ms() == [response.throttle_time_ms]
    muted = api.node.quotas.produce.muted
    assert muted.count(api.world.time.ms) == 1
    throttled.passes(3_600_000)
    assert muted.count(api.world.time.ms) == 0
    throttled.produce(10)
    assert sorted(produced.throttle_times_ms()) == [0, response.throttle_time_ms]


@pytest.mark.parametrize("of_controller", [False, True])
def test_a_throttle_that_is_told_counts_for_the_quota_of_kafka(of_controller: bool) -> None:
    """On a controller for its own quota, and on a broker that passes it on for the one of requests. Of two throttles the
    longer one counts."""
    throttled = Throttled()
    quotas = throttled.api.node.quotas = QuotaManagers(of_controller=of_controller)
    quotas.take({(USER, MUTATION): Quota(1.0), (USER, REQUEST): Quota(10.0)})
    throttled.api.node.monotonic_s = _ticking(1.5)
    now_ms = throttled.api.world.time.ms

    def muted() -> tuple[int, int]:
        return quotas.request.muted.count(now_ms), quotas.mutation.muted.count(now_ms)

    for told_ms, expected in (
        (60_000, (0, 1) if of_controller else (1, 0)),
        (1, (1, 1) if of_controller else (2, 0)),
    ):
        message = CreateTopicsRequest(topics=[CreatableTopic(name="new")])
        reply = throttled.api.send(message, 7)
        assert isinstance(reply, Pending)
        _, _, answer = throttled.api.controller.calls[-1]
        answer.resolve(CreateTopicsResponse(throttle_time_ms=told_ms))
        assert muted() == expected
    assert throttled.muted[0] == 60_000
    assert 1 < throttled.muted[1] < 60_000
