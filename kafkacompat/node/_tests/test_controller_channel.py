"""The channel to the active controller: found again after every loss, within the timeout; and forwarded requests of clients."""

from __future__ import annotations

import weakref
from typing import Any

import pytest

from kafkacompat._tests.doubles import HandTime
from kafkacompat.api.request_context import ControllerTimedOut, NotController, RequestContext
from kafkacompat.deferred import Deferred
from kafkacompat.net.channels import ChannelFull, ConnectionLost, RequestTimedOut, UnsupportedByPeer
from kafkacompat.node._tests.fakes import HandChannels
from kafkacompat.node.forwarding_manager import EnvelopeRefused, ForwardingManager
from kafkacompat.node.node_to_controller_channel_manager import (
    NO_VERSIONS,
    REQUESTS_WAITING_MAX,
    NodeToControllerChannelManager,
)
from kafkacompat.ports.dispatcher import CloseConnection, Principal
from kafkacompat.tasks import Tasks
from kafkacompat.wire.codec import decode, encode
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.headers import parse_request_header, response_header_bytes
from kafkacompat.wire.messages.broker_heartbeat_request import BrokerHeartbeatRequest
from kafkacompat.wire.messages.broker_heartbeat_response import BrokerHeartbeatResponse
from kafkacompat.wire.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from kafkacompat.wire.messages.delete_topics_response import DeletableTopicResult, DeleteTopicsResponse
from kafkacompat.wire.messages.envelope_request import EnvelopeRequest
from kafkacompat.wire.messages.envelope_response import EnvelopeResponse
from kafkacompat.wire.principal import decode_principal

OWN_ID = 1


class AskingNode:
    def __init__(self, with_local: bool = False) -> None:
        self.time = HandTime()
        self.channels = HandChannels()
        self.active: tuple[int, str, int] | None = (3, "c3", 9093)
        self.local_calls: list[Any] = []
        self.local_answer: Deferred[Any] | None = None
        self.tasks = Tasks(self.time)
        self.channel = NodeToControllerChannelManager(
            OWN_ID,
            "heartbeat",
            self.channels,  # type: ignore[arg-type]
            self.time,
            self.tasks,
            lambda: self.active,
            self._local if with_local else None,
            attempt_timeout_ms=3_000,
        )

    def _local(self, message: Any) -> Deferred[Any]:
        self.local_calls.append(message)
        if self.local_answer is None:
            raise NotController
        return self.local_answer

    def ask(self, timeout_ms: int = 10_000) -> Deferred[Any]:
        return self.channel.request(BrokerHeartbeatRequest(broker_id=OWN_ID), timeout_ms)


def failure(deferred: Deferred[Any]) -> type[BaseException]:
    with pytest.raises(Exception) as caught:
        deferred.result()
    return caught.type


def test_a_request_goes_to_the_active_controller() -> None:
    w = AskingNode()
    answer = w.ask()
    (sent,) = w.channels.sent
    assert sent.key == ("c3", 9093, "heartbeat")
    assert sent.timeout_ms == 3_000
    response = BrokerHeartbeatResponse(is_fenced=False)
    sent.answer.resolve(response)
    assert answer.result() is response
    assert w.channel.requests_waiting == 0
    assert w.time.waiting == []


@pytest.mark.parametrize("loss", [ConnectionLost("x"), RequestTimedOut("x"), "NOT_CONTROLLER"])
def test_what_is_lost_or_refused_goes_to_the_next_controller(loss: Exception | str) -> None:
    w = AskingNode()
    answer = w.ask()
    if isinstance(loss, Exception):
        w.channels.sent[0].answer.fail(loss)
    else:
        w.channels.sent[0].answer.resolve(BrokerHeartbeatResponse(error_code=ErrorCode.NOT_CONTROLLER))
    assert not answer.done
    w.active = (2, "c2", 9093)
    w.time.advance(49)
    assert len(w.channels.sent) == 1
    w.time.advance(1)
    assert w.channels.sent[1].key == ("c2", 9093, "heartbeat")
    w.channels.sent[1].answer.resolve(BrokerHeartbeatResponse())
    assert answer.result().error_code == 0


def test_a_new_leader_is_tried_at_once() -> None:
    w = AskingNode()
    w.active = None
    answer = w.ask()
    assert w.channels.sent == []
    w.active = (2, "c2", 9093)
    w.channel.try_now()
    assert len(w.channels.sent) == 1
    w.channel.try_now()
    assert len(w.channels.sent) == 1
    w.channels.sent[0].answer.resolve(BrokerHeartbeatResponse())
    assert answer.done
    assert w.time.waiting == []


def test_nobody_active_in_time_is_a_timeout() -> None:
    w = AskingNode()
    w.active = None
    answer = w.ask(1_234)
    w.time.advance(1_233)
    assert not answer.done
    w.time.advance(1)
    assert failure(answer) is RequestTimedOut
    assert w.channel.requests_waiting == 0


def test_the_error_of_a_request_keeps_nothing_of_it() -> None:
    class Request:
        """As large as a client's may be."""

    w = AskingNode()
    w.active = None
    request = Request()
    kept = weakref.ref(request)
    answer = w.channel.request(request, 1_000)
    del request
    w.time.advance(1_000)
    assert failure(answer) is RequestTimedOut
    assert kept() is None


def test_the_last_attempt_has_no_more_time_than_is_left() -> None:
    w = AskingNode()
    answer = w.ask(1_000)
    assert w.channels.sent[0].timeout_ms == 1_000
    w.time.advance(990)
    w.channels.sent[0].answer.fail(ConnectionLost("x"))
    w.time.advance(10)
    assert failure(answer) is RequestTimedOut
    assert len(w.channels.sent) == 1


def test_what_the_controller_does_not_serve_fails() -> None:
    w = AskingNode()
    answer = w.ask()
    w.channels.sent[0].answer.fail(UnsupportedByPeer("x"))
    assert failure(answer) is UnsupportedByPeer


def test_an_active_controller_of_this_node_is_called_directly() -> None:
    w = AskingNode(with_local=True)
    w.active = (OWN_ID, "c1", 9093)
    answer = w.ask()  # leader of the quorum, but not active yet
    assert len(w.local_calls) == 1
    w.local_answer = Deferred()
    w.time.advance(50)
    w.local_answer.fail(NotController())
    w.local_answer = Deferred.of(BrokerHeartbeatResponse())
    assert not answer.done
    w.time.advance(50)
    assert answer.result().error_code == 0
    assert w.channels.sent == []


def test_the_versions_of_a_controller_are_known_while_it_is_connected() -> None:
    w = AskingNode()
    forwarding = ForwardingManager(w.channel, w.tasks)
    assert forwarding.controller_versions(45) is None
    w.channels.versions = {18: (0, 4), 45: (0, 0)}
    assert forwarding.controller_versions(45) == (0, 0)
    assert forwarding.controller_versions(94) == NO_VERSIONS
    w.active = (OWN_ID, "c1", 9093)
    assert forwarding.controller_versions(94) is None
    w.active = None
    assert forwarding.controller_versions(94) is None
    assert w.channels.sent == []


def test_closing_loses_what_waits() -> None:
    w = AskingNode()
    in_flight = w.ask()
    w.active = None
    waiting = w.ask()
    w.channel.close()
    assert failure(in_flight) is ConnectionLost
    assert failure(waiting) is ConnectionLost
    assert failure(w.ask()) is ConnectionLost
    w.channels.sent[0].answer.resolve(BrokerHeartbeatResponse())
    assert w.time.waiting == []


def test_the_number_of_waiting_requests_is_bounded() -> None:
    w = AskingNode()
    w.active = None
    for _ in range(REQUESTS_WAITING_MAX):
        w.ask()
    assert failure(w.ask()) is ChannelFull


def context(host: str = "10.1.2.3") -> RequestContext:
    principal = Principal("User", "alice", True)
    return RequestContext(20, 6, 77, "their client", 5, "PLAINTEXT", host, principal=principal)


def test_a_clients_request_travels_with_who_asked_and_from_where() -> None:
    w = AskingNode()
    forwarding = ForwardingManager(w.channel, w.tasks)
    answer = forwarding.delete_topics(DeleteTopicsRequest(timeout_ms=9), context())
    (sent,) = w.channels.sent
    envelope: EnvelopeRequest = sent.message
    header = parse_request_header(envelope.request_data)
    assert (header.api_key, header.api_version, header.correlation_id, header.client_id) == (
        20,
        6,
        77,
        "their client",
    )
    principal = decode_principal(envelope.request_principal or b"")
    assert (principal.type, principal.name, principal.token_authenticated) == ("User", "alice", True)
    assert envelope.client_host_address == bytes([10, 1, 2, 3])
    inner = DeleteTopicsResponse(responses=[DeletableTopicResult(name="t", error_code=3)])
    data = bytes(response_header_bytes(20, 6, 77)) + encode(inner, 6)
    sent.answer.resolve(EnvelopeResponse(response_data=data))
    assert [(each.name, each.error_code) for each in answer.result().responses] == [("t", 3)]


def test_a_long_request_and_its_answer_are_encoded_and_decoded_in_steps() -> None:
    w = AskingNode()
    names = [f"{number}" for number in range(50_000)]
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name) for name in names])
    answer = ForwardingManager(w.channel, w.tasks).delete_topics(request, context())
    assert w.channels.sent == []
    w.time.advance(0)
    (sent,) = w.channels.sent
    data = sent.message.request_data
    found = decode(DeleteTopicsRequest, 6, data, parse_request_header(data).body_offset)
    assert found == request
    inner = DeleteTopicsResponse(responses=[DeletableTopicResult(name=name) for name in names])
    sent.answer.resolve(
        EnvelopeResponse(response_data=bytes(response_header_bytes(20, 6, 77)) + encode(inner, 6))
    )
    assert not answer.done
    w.time.advance(0)
    assert answer.result() == inner


def test_a_controller_that_is_no_more_one_is_not_told_to_the_client() -> None:
    w = AskingNode()
    answer = ForwardingManager(w.channel, w.tasks).delete_topics(
        DeleteTopicsRequest(), context("0:0:0:0:0:0:0:1")
    )
    assert w.channels.sent[0].message.client_host_address == bytes(15) + b"\x01"
    w.channels.sent[0].answer.resolve(EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER))
    w.time.advance(50)
    assert len(w.channels.sent) == 2
    assert not answer.done


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (ErrorCode.UNSUPPORTED_VERSION, CloseConnection),
        (ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE, EnvelopeRefused),
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, EnvelopeRefused),
    ],
)
def test_envelopes_that_are_not_opened(code: ErrorCode, expected: type[Exception]) -> None:
    w = AskingNode()
    answer = ForwardingManager(w.channel, w.tasks).create_topics(DeleteTopicsRequest(), context())
    w.channels.sent[0].answer.resolve(EnvelopeResponse(error_code=code))
    assert failure(answer) is expected


def test_a_client_hears_of_no_controller_in_time() -> None:
    w = AskingNode()
    w.active = None
    answer = ForwardingManager(w.channel, w.tasks).delete_topics(DeleteTopicsRequest(), context())
    w.time.advance(60_000)
    assert failure(answer) is ControllerTimedOut


def test_what_was_passed_on_ends_its_connection_when_this_node_stops() -> None:
    w = AskingNode()
    answer = ForwardingManager(w.channel, w.tasks).delete_topics(DeleteTopicsRequest(), context())
    w.channel.close()
    assert failure(answer) is CloseConnection


def test_an_active_controller_on_this_node_needs_no_envelope() -> None:
    w = AskingNode()
    w.active = (OWN_ID, "c1", 9093)
    calls: list[Any] = []
    response = DeleteTopicsResponse()

    def local(context: RequestContext, request: Any) -> Deferred[Any]:
        calls.append((context.principal.name, request))
        return Deferred.of(response)

    request = DeleteTopicsRequest()
    answer = ForwardingManager(w.channel, w.tasks, local).delete_topics(request, context())
    assert answer.result() is response
    assert calls == [("alice", request)]
