"""The counts, times and errors of requests."""

from __future__ import annotations

from typing import Any

import pytest

from kafkacompat.api import meters as module
from kafkacompat.api.meters import (
    ALL_TIMED,
    ERROR_CODES,
    KEPT,
    ONE_IN,
    ONE_IN_OF_MANY,
    RequestMeters,
    RouteMeter,
    SampledTimes,
    error_counter,
)
from kafkacompat.deferred import Deferred
from kafkacompat.ports.dispatcher import ConnectionInfo, Pending
from kafkacompat.wire.codec import encoded_element
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.add_partitions_to_txn_request import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTransaction,
)
from kafkacompat.wire.messages.fetch_request import FetchRequest, ReplicaState
from kafkacompat.wire.messages.fetch_response import FetchableTopicResponse, FetchResponse
from kafkacompat.wire.messages.fetch_response import PartitionData as Fetched
from kafkacompat.wire.messages.find_coordinator_response import Coordinator, FindCoordinatorResponse
from kafkacompat.wire.messages.produce_response import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)

PRODUCE, FETCH, FIND_COORDINATOR, ADD_PARTITIONS_TO_TXN = 0, 1, 10, 24


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 100.0
        monkeypatch.setattr(module, "monotonic", lambda: self.now_s)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def info() -> ConnectionInfo:
    return ConnectionInfo(1, "PLAINTEXT", "127.0.0.1", 1000)


def noted(meter: RouteMeter, connection: ConnectionInfo, started_s: float, size: int, answer: Any) -> None:
    """A request that is counted and timed."""
    meter.requests += 1
    meter.note(connection, started_s, size, answer)


def test_times_of_a_request_that_is_answered_at_once(clock: Clock) -> None:
    meter, connection = RequestMeters().of(PRODUCE, 9), info()
    connection.read_s, clock.now_s = 100.0, 103.0
    noted(meter, connection, 101.0, 77, [b"reply"])
    timings = connection.timings
    assert timings is not None
    clock.now_s = 107.0
    timings.sending()
    clock.now_s = 115.0
    timings.sent(0)
    (times,) = meter.kind.recent
    assert times == (1.0, 2.0, 0.0, 4.0, 8.0, 77)
    assert times.total == 15.0
    assert connection.timings is None


def test_times_of_a_request_that_waits(clock: Clock) -> None:
    meter, connection = RequestMeters().of(FETCH, 16), info()
    connection.read_s = 100.0
    reply: Deferred[Any] = Deferred()
    noted(meter, connection, 100.0, 1, Pending(reply, True))
    timings = connection.timings
    assert timings is not None
    timings.sending()
    timings.sent(1)
    assert not meter.kind.recent, "the answer is not there"
    clock.now_s = 105.0
    reply.resolve([b"reply"])
    timings.sending()
    clock.now_s = 106.0
    timings.sent(0)
    assert list(meter.kind.recent) == [(0.0, 0.0, 5.0, 0.0, 1.0, 1)]


def test_an_answer_behind_another_waits_in_the_queue(clock: Clock) -> None:
    meter, connection = RequestMeters().of(PRODUCE, 9), info()
    noted(meter, connection, 100.0, 1, [b"reply"])
    timings = connection.timings
    assert timings is not None
    timings.sent(1)
    assert not meter.kind.recent
    timings.sent(0)
    assert len(meter.kind.recent) == 1


def test_a_request_without_an_answer_ends_at_once(clock: Clock) -> None:
    meter, connection = RequestMeters().of(PRODUCE, 9), info()
    noted(meter, connection, 99.0, 5, None)
    assert list(meter.kind.recent) == [(0.0, 1.0, 0.0, 0.0, 0.0, 5)]
    assert connection.timings is None


def test_marks_of_one_connection_are_bounded(clock: Clock) -> None:
    meter, connection = RequestMeters().of(PRODUCE, 9), info()
    for _ in range(module.MARKS_MAX + 1):
        noted(meter, connection, 100.0, 1, [b"reply"])
    assert connection.timings is not None
    connection.timings.sent(1)
    assert connection.timings is None


def timed_of(meter: RouteMeter, requests: int, clock: Clock, apart_s: float) -> int:
    timed = 0
    for _ in range(requests):
        clock.now_s += apart_s
        chosen = meter.count(None)
        if chosen is not None:
            timed += 1
            chosen.note(info(), clock.now_s, 1, None)
    return timed


def test_all_of_the_first_are_timed_and_then_one_in_eight(clock: Clock) -> None:
    meter = RequestMeters().of(PRODUCE, 9)
    assert timed_of(meter, ALL_TIMED, clock, 0.002) == ALL_TIMED
    assert timed_of(meter, 100 * ONE_IN, clock, 0.002) == 100


def test_fewer_are_timed_while_there_are_very_many(clock: Clock) -> None:
    meter = RequestMeters().of(PRODUCE, 9)
    timed_of(meter, ALL_TIMED + ONE_IN_OF_MANY, clock, 0.0005)
    assert timed_of(meter, 100 * ONE_IN_OF_MANY, clock, 0.0005) == 100
    timed_of(meter, 2 * ONE_IN_OF_MANY, clock, 0.002)
    assert timed_of(meter, 100 * ONE_IN, clock, 0.002) == 100
    timed_of(meter, 2 * ONE_IN_OF_MANY, clock, 0.0005)
    assert timed_of(meter, 100 * ONE_IN_OF_MANY, clock, 0.0005) == 100


def test_all_are_timed_again_where_they_are_rare(clock: Clock) -> None:
    meter = RequestMeters().of(PRODUCE, 9)
    timed_of(meter, ALL_TIMED + 10 * ONE_IN_OF_MANY, clock, 0.0005)
    timed_of(meter, ONE_IN_OF_MANY, clock, 0.02)
    assert timed_of(meter, 100, clock, 0.02) == 100


def test_a_time_stands_for_the_requests_since_the_one_before(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So the requests of a burst, of which fewer are timed, count as often as others."""
    meter = RequestMeters().of(PRODUCE, 9)
    stood: list[int] = []

    def place_for(_: SampledTimes, requests: int, ended_s: float) -> int:
        stood.append(requests)
        return -1

    monkeypatch.setattr(SampledTimes, "place_for", place_for)
    for requests, apart_s in ((ALL_TIMED + 200, 0.002), (10_000, 0.0001), (5_000, 0.002), (50, 0.02)):
        timed_of(meter, requests, clock, apart_s)
        assert meter.requests - ONE_IN_OF_MANY < sum(stood) <= meter.requests
    assert set(stood[:ALL_TIMED]) == {1}
    assert {1, ONE_IN, ONE_IN_OF_MANY} <= set(stood)


def test_requests_that_are_decoded_in_steps_are_not_timed_more_often_than_others(clock: Clock) -> None:
    """Otherwise the percentiles would be those of the few large requests."""
    meter = RequestMeters().of(PRODUCE, 9)
    timed_of(meter, ALL_TIMED, clock, 0.002)
    timed = 0
    for _ in range(100 * ONE_IN):
        clock.now_s += 0.002
        connection = info()
        meter.count_later(connection, None, clock.now_s, 1, Pending(Deferred(), True))
        timed += connection.timings is not None
    assert timed == 100
    assert meter.requests == ALL_TIMED + 100 * ONE_IN


def test_a_fetch_is_counted_by_who_fetches() -> None:
    meters = RequestMeters()
    chosen = meters.of(FETCH, 17).choose
    assert chosen is not None
    assert chosen(FetchRequest()).kind.name == "FetchConsumer"
    assert chosen(FetchRequest(replica_id=3)).kind.name == "FetchFollower"
    assert chosen(FetchRequest(replica_state=ReplicaState(replica_id=3))).kind.name == "FetchFollower"
    assert chosen(FetchRequest(replica_state=ReplicaState(replica_id=-1))).kind.name == "FetchConsumer"
    assert list(meters.errors) == ["Fetch"]


def test_a_verification_has_a_name_of_its_own() -> None:
    chosen = RequestMeters().of(ADD_PARTITIONS_TO_TXN, 5).choose
    assert chosen is not None
    verifies = AddPartitionsToTxnTransaction(verify_only=True)
    adds = AddPartitionsToTxnTransaction(verify_only=False)
    of = AddPartitionsToTxnRequest
    assert chosen(of(transactions=[verifies])).kind.name == "AddPartitionsToTxnVerification"
    assert chosen(of(transactions=[verifies, adds])).kind.name == "AddPartitionsToTxn"
    assert chosen(of()).kind.name == "AddPartitionsToTxn"


def counted(key: int, version: int, answer: Any) -> dict[int, int]:
    counts = [0] * ERROR_CODES
    error_counter(key, version)(answer, counts)
    by_steps = [0] * ERROR_CODES
    meter = RequestMeters().of(key, version)
    meter.errors = by_steps
    assert list(meter.count_in_steps(answer)) == []
    assert by_steps == counts
    return {code: count for code, count in enumerate(counts) if count}


def test_errors_are_counted_at_every_level() -> None:
    partitions = [Fetched(error_code=3), Fetched(error_code=0), Fetched(error_code=ErrorCode(-1))]
    answer = FetchResponse(responses=[FetchableTopicResponse(partitions=partitions)])
    assert counted(FETCH, 12, answer) == {0: 2, 3: 1, ERROR_CODES - 1: 1}
    assert counted(FETCH, 6, answer) == {0: 1, 3: 1, ERROR_CODES - 1: 1}
    one = PartitionProduceResponse(error_code=6)
    topics = [TopicProduceResponse(partition_responses=[one, PartitionProduceResponse()])]
    assert counted(PRODUCE, 9, ProduceResponse(responses=topics)) == {0: 1, 6: 1}


def test_fields_of_other_versions_are_not_counted() -> None:
    answer = FindCoordinatorResponse(coordinators=[Coordinator(error_code=15)])
    assert counted(FIND_COORDINATOR, 4, answer) == {15: 1}
    assert counted(FIND_COORDINATOR, 3, answer) == {0: 1}


def test_elements_that_are_bytes_already_are_passed_over() -> None:
    topic = FetchableTopicResponse(partitions=[Fetched(error_code=3)])
    answer = FetchResponse(responses=[encoded_element(FetchResponse, 12, topic)])
    assert counted(FETCH, 12, answer) == {0: 1}


def test_a_large_answer_is_counted_in_steps() -> None:
    partitions = [Fetched() for _ in range(3 * module.COUNTED_A_STEP)]
    answer = FetchResponse(responses=[FetchableTopicResponse(partitions=partitions)])
    assert len(list(RequestMeters().of(FETCH, 12).count_in_steps(answer))) == 3


def test_throttle_times_are_those_of_the_newest_requests() -> None:
    meter = RequestMeters().of(PRODUCE, 9)
    kind = meter.kind
    assert kind.throttle_times_ms() == []
    meter.requests = 3
    kind.throttled(70)
    meter.requests = 5
    assert sorted(kind.throttle_times_ms()) == [0, 0, 0, 0, 70]
    meter.requests = 3 + KEPT - 1
    assert sorted(kind.throttle_times_ms())[-2:] == [0, 70]
    assert len(kind.throttle_times_ms()) == KEPT
    meter.requests += 1
    assert kind.throttle_times_ms() == [0] * KEPT
