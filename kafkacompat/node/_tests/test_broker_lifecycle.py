"""A broker's life step by step: its requests to the controller, their times, and the effects of the answers."""

from __future__ import annotations

import pytest

from kafkacompat.config import EndPoint
from kafkacompat.node.broker_lifecycle import (
    SHUTDOWN_TIMEOUT_MS,
    BrokerIdentity,
    BrokerLifecycle,
    BrokerState,
    LifecycleSettings,
    Request,
)
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.broker_heartbeat_request import BrokerHeartbeatRequest
from kafkacompat.wire.messages.broker_heartbeat_response import BrokerHeartbeatResponse
from kafkacompat.wire.messages.broker_registration_request import BrokerRegistrationRequest
from kafkacompat.wire.messages.broker_registration_response import BrokerRegistrationResponse

DIRECTORIES = (b"\x02" * 16, b"\x01" * 16)


def identity() -> BrokerIdentity:
    listeners = (EndPoint("PLAINTEXT", "127.0.0.1", 9092, "PLAINTEXT"), EndPoint("TLS", "h", 9094, "SSL"))
    return BrokerIdentity(1, "c", b"\x01" * 16, listeners, DIRECTORIES, "r", 7)


class Life:
    """A BrokerLifecycle and its clock."""

    def __init__(self) -> None:
        self.life = BrokerLifecycle(LifecycleSettings())
        self.now_ms = 5_000
        self.offset = 0

    def wait_ms(self) -> int | None:
        return None if self.life.due_ms is None else self.life.due_ms - self.now_ms

    def request(self) -> Request:
        """Return the next request, at its due time."""
        assert self.life.due_ms is not None
        self.now_ms = max(self.now_ms, self.life.due_ms)
        request = self.life.next_request(self.now_ms, self.offset)
        assert request is not None
        assert self.life.next_request(self.now_ms, self.offset) is None
        return request

    def heartbeat(self) -> BrokerHeartbeatRequest:
        request = self.request()
        assert isinstance(request, BrokerHeartbeatRequest)
        return request

    def beat(
        self, *, code: int = 0, caught_up: bool = True, fenced: bool = False, stop: bool = False
    ) -> BrokerHeartbeatRequest:
        request = self.heartbeat()
        response = BrokerHeartbeatResponse(
            error_code=code, is_caught_up=caught_up, is_fenced=fenced, should_shut_down=stop
        )
        self.life.answered(response, self.now_ms)
        return request

    def register(self, epoch: int = 13) -> None:
        self.life.start(identity(), self.now_ms)
        self.request()
        self.life.answered(BrokerRegistrationResponse(broker_epoch=epoch), self.now_ms)

    def run(self) -> None:
        self.register()
        self.beat(fenced=True)
        self.life.ready_to_unfence(self.now_ms)
        self.beat()
        assert self.life.state is BrokerState.RUNNING


def test_a_life_in_order() -> None:
    w = Life()
    w.life.start(identity(), w.now_ms)
    request = w.request()
    assert isinstance(request, BrokerRegistrationRequest)
    assert [(each.name, each.port, each.security_protocol) for each in request.listeners] == [
        ("PLAINTEXT", 9092, 0),
        ("TLS", 9094, 1),
    ]
    assert {each.name for each in request.features} == {
        "metadata.version",
        "kraft.version",
        "transaction.version",
        "group.version",
        "eligible.leader.replicas.version",
        "share.version",
        "streams.version",
    }
    assert (request.previous_broker_epoch, request.rack) == (7, "r")
    assert request.log_dirs == sorted(DIRECTORIES)
    w.life.answered(BrokerRegistrationResponse(broker_epoch=13), w.now_ms)
    assert (w.life.broker_epoch, w.wait_ms()) == (13, 0)

    w.offset = 4
    first = w.beat(caught_up=False, fenced=True)
    assert (first.broker_epoch, first.current_metadata_offset, first.want_fence) == (13, 4, True)
    assert (first.want_shut_down, first.cordoned_log_dirs) == (False, None)
    assert (w.life.state, w.wait_ms()) == (BrokerState.STARTING, 10)
    w.beat(fenced=True)
    assert (w.life.state, w.wait_ms()) == (BrokerState.RECOVERY, 10)
    waiting = w.beat(fenced=True)
    assert (waiting.want_fence, waiting.cordoned_log_dirs) == (True, [])
    assert (w.life.state, w.wait_ms()) == (BrokerState.RECOVERY, 2_000)

    w.life.ready_to_unfence(w.now_ms)
    assert w.wait_ms() == 0
    assert not w.beat().want_fence
    assert (w.life.state, w.wait_ms()) == (BrokerState.RUNNING, 2_000)
    w.beat()
    assert w.wait_ms() == 2_000

    w.life.begin_shutdown(w.now_ms)
    assert w.wait_ms() == 0
    waits = []
    for _ in range(8):
        assert w.beat().want_shut_down
        waits.append(w.wait_ms())
    assert waits == [50, 100, 200, 400, 800, 1_600, 2_000, 2_000]
    assert w.life.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN
    w.beat(stop=True)
    assert (w.life.state, w.wait_ms()) == (BrokerState.SHUTTING_DOWN, None)


def test_a_registration_is_repeated_until_the_earlier_session_is_over() -> None:
    w = Life()
    w.life.start(identity(), w.now_ms)
    waits = []
    for _ in range(6):
        w.request()
        refused = BrokerRegistrationResponse(error_code=ErrorCode.DUPLICATE_BROKER_REGISTRATION)
        w.life.answered(refused, w.now_ms)
        waits.append(w.wait_ms())
    assert waits == [100, 200, 400, 800, 1_000, 1_000]
    assert w.life.last_error is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    w.request()
    w.life.failed(w.now_ms)
    assert w.wait_ms() == 1_000
    assert not w.life.registration_overdue(64_999)
    assert w.life.registration_overdue(65_000)
    w.request()
    w.life.answered(BrokerRegistrationResponse(broker_epoch=2), w.now_ms)
    assert not w.life.registration_overdue(65_000)


def test_a_stale_epoch_is_asked_with_again_more_and_more_seldom() -> None:
    w = Life()
    w.run()
    waits = []
    for _ in range(9):
        w.beat(code=ErrorCode.STALE_BROKER_EPOCH)
        waits.append(w.wait_ms())
    assert waits == [100, 200, 400, 800, 1_600, 3_200, 6_400, 9_000, 9_000]
    w.beat()
    assert w.wait_ms() == 2_000
    w.heartbeat()
    w.life.failed(w.now_ms)
    assert w.wait_ms() == 100


def test_what_happens_during_a_request_is_told_right_after_it_but_not_after_a_failure() -> None:
    w = Life()
    w.run()
    w.heartbeat()
    w.life.directory_failed(DIRECTORIES[0], w.now_ms)
    assert w.wait_ms() is None
    w.life.answered(BrokerHeartbeatResponse(is_fenced=False), w.now_ms)
    assert w.wait_ms() == 0
    assert w.heartbeat().offline_log_dirs == [DIRECTORIES[0]]
    w.life.directory_failed(DIRECTORIES[1], w.now_ms)
    w.life.failed(w.now_ms)
    assert w.wait_ms() == 100
    assert w.beat().offline_log_dirs == sorted(DIRECTORIES)
    assert w.wait_ms() == 2_000
    assert w.beat().offline_log_dirs == sorted(DIRECTORIES)


def test_a_failed_directory_must_be_told_in_time() -> None:
    w = Life()
    w.run()
    w.life.directory_failed(DIRECTORIES[0], w.now_ms)
    start_ms = w.now_ms
    assert w.life.directory_overdue(start_ms + 29_999) is None
    assert w.life.directory_overdue(start_ms + 30_000) == DIRECTORIES[0]
    w.beat()
    assert w.life.directory_overdue(start_ms + 30_000) is None
    w.life.directory_failed(DIRECTORIES[0], w.now_ms)
    assert w.wait_ms() == 2_000


def test_a_registration_out_of_date_is_repeated_in_the_same_life() -> None:
    w = Life()
    w.run()
    w.life.register_again(w.now_ms)
    assert isinstance(w.request(), BrokerRegistrationRequest)
    w.life.answered(BrokerRegistrationResponse(broker_epoch=13), w.now_ms)
    w.beat()
    assert w.life.state is BrokerState.RUNNING


def test_directories_without_new_replicas_are_told() -> None:
    w = Life()
    w.run()
    w.life.cordon((DIRECTORIES[1],), w.now_ms)
    assert w.wait_ms() == 0
    assert w.beat().cordoned_log_dirs == [DIRECTORIES[1]]
    w.life.cordon((DIRECTORIES[1],), w.now_ms)
    assert w.wait_ms() == 2_000


@pytest.mark.parametrize(
    "begin", [lambda w: None, lambda w: w.life.start(identity(), w.now_ms), Life.register]
)
def test_a_broker_that_does_not_run_has_nothing_to_shut_down(begin: object) -> None:
    w = Life()
    begin(w)  # type: ignore[operator]
    w.life.begin_shutdown(w.now_ms)
    assert (w.life.state, w.wait_ms()) == (BrokerState.SHUTTING_DOWN, None)


def test_an_answer_that_comes_after_the_end_changes_nothing() -> None:
    w = Life()
    w.life.start(identity(), w.now_ms)
    w.request()
    w.life.begin_shutdown(w.now_ms)
    w.life.answered(BrokerRegistrationResponse(broker_epoch=13), w.now_ms)
    w.life.ready_to_unfence(w.now_ms)
    assert (w.life.state, w.wait_ms(), w.life.broker_epoch) == (BrokerState.SHUTTING_DOWN, None, -1)


def test_a_shutdown_does_not_wait_for_a_controller_that_is_silent() -> None:
    w = Life()
    w.run()
    w.life.begin_shutdown(w.now_ms)
    start_ms = w.now_ms
    while w.life.due_ms is not None:
        w.now_ms = w.life.due_ms
        if w.life.next_request(w.now_ms, 0) is None:
            break
        w.now_ms += 500
        w.life.failed(w.now_ms)
    assert w.life.state is BrokerState.SHUTTING_DOWN
    assert 9_000 <= w.now_ms - start_ms <= 18_000


def test_a_shutdown_need_not_wait_for_a_controller_when_it_is_told_that_there_is_none() -> None:
    w = Life()
    w.run()
    w.life.give_up()
    assert w.life.state is BrokerState.RUNNING
    w.life.begin_shutdown(w.now_ms)
    w.request()
    w.life.give_up()
    assert (w.life.state, w.wait_ms()) == (BrokerState.SHUTTING_DOWN, None)


def test_the_offset_is_told_at_once_when_somebody_waits_for_it() -> None:
    w = Life()
    w.life.tell_offset(w.now_ms)
    w.run()
    assert w.wait_ms() == 2_000
    w.life.tell_offset(w.now_ms)
    assert w.wait_ms() == 0


def test_a_shutdown_that_never_comes_to_an_end_is_given_up() -> None:
    w = Life()
    w.run()
    w.life.begin_shutdown(w.now_ms)
    start_ms = w.now_ms
    while w.life.due_ms is not None:
        w.now_ms = w.life.due_ms
        if w.life.next_request(w.now_ms, 0) is not None:
            w.life.answered(BrokerHeartbeatResponse(is_fenced=False), w.now_ms)
    assert w.life.state is BrokerState.SHUTTING_DOWN
    assert 0 <= w.now_ms - start_ms - SHUTDOWN_TIMEOUT_MS <= 2_000


def test_a_second_start_is_a_bug() -> None:
    w = Life()
    w.register()
    with pytest.raises(RuntimeError):
        w.life.start(identity(), w.now_ms)
