"""Controller listeners: their table, the quorum's requests, envelopes, and a controller that is not active."""

from __future__ import annotations

import ast
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kafkacompat._tests.doubles import HandTime
from kafkacompat.api import envelope as envelopes
from kafkacompat.api._tests.kit import Api, FirstRandom, pauseless, pauses_of
from kafkacompat.api._tests.test_access import authorizer
from kafkacompat.api.context import ControllerNode
from kafkacompat.api.dispatch import ApiDispatcher
from kafkacompat.api.registry import CONTROLLER_APIS, CONTROLLER_ENTRIES, ENTRIES
from kafkacompat.api.request_context import NotController, RequestContext
from kafkacompat.api.serve import REFUSED_AT_ONCE
from kafkacompat.config import ServerConfig
from kafkacompat.controller.features import SUPPORTED_FEATURES
from kafkacompat.controller.image import CONTROLLERS, MetadataImage
from kafkacompat.deferred import Deferred
from kafkacompat.ports.dispatcher import CloseConnection, ConnectionInfo, Pending, Principal
from kafkacompat.wire.apis import APIS, response_class
from kafkacompat.wire.codec import decode, encode
from kafkacompat.wire.codec_source import STEP_UNITS
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.headers import parse_response_header, request_header_bytes
from kafkacompat.wire.message import Message, Struct
from kafkacompat.wire.messages.add_raft_voter_request import AddRaftVoterRequest
from kafkacompat.wire.messages.api_versions_request import ApiVersionsRequest
from kafkacompat.wire.messages.broker_heartbeat_request import BrokerHeartbeatRequest
from kafkacompat.wire.messages.create_acls_request import AclCreation, CreateAclsRequest
from kafkacompat.wire.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from kafkacompat.wire.messages.create_topics_response import CreatableTopicResult, CreateTopicsResponse
from kafkacompat.wire.messages.default_principal_data import DefaultPrincipalData
from kafkacompat.wire.messages.describe_cluster_request import DescribeClusterRequest
from kafkacompat.wire.messages.describe_quorum_request import DescribeQuorumRequest
from kafkacompat.wire.messages.describe_quorum_response import (
    DescribeQuorumResponse,
    PartitionData,
    TopicData,
)
from kafkacompat.wire.messages.envelope_request import EnvelopeRequest
from kafkacompat.wire.messages.metadata_request import MetadataRequest
from kafkacompat.wire.messages.register_controller_record import (
    ControllerEndpoint,
    RegisterControllerRecord,
)
from kafkacompat.wire.messages.vote_request import VoteRequest
from kafkacompat.wire.messages.vote_response import VoteResponse
from kafkacompat.wire.principal import encode_principal

LISTENER = "CONTROLLER"
PACKAGE = Path(__file__).resolve().parents[2]


class Quorum:
    leader_id = 3

    def __init__(self) -> None:
        self.handled: list[tuple[Any, int]] = []
        self.answer: Any = VoteResponse(error_code=0)

    def handle(self, message: Any, api_version: int, listener: str) -> Deferred[Any]:
        assert listener == LISTENER
        self.handled.append((message, api_version))
        return Deferred.of(self.answer)


class Controller:
    """Answers as the test says, or is not active."""

    def __init__(self) -> None:
        self.answer: Any = None
        self.calls: list[tuple[str, Any, RequestContext]] = []

    def __getattr__(self, name: str) -> Any:
        def call(request: Any, context: RequestContext) -> Deferred[Any]:
            self.calls.append((name, request, context))
            if self.answer is None:
                raise NotController
            return self.answer if isinstance(self.answer, Deferred) else Deferred.of(self.answer)

        return call


class ListeningController:
    def __init__(self, image: MetadataImage | None = None) -> None:
        api = Api()
        self.controller = Controller()
        self.quorum = Quorum()
        self.closed: list[int] = []
        self.node = ControllerNode(
            node_id=3,
            cluster_id="cluster",
            config=api.node.config,
            clock=api.node.clock,
            random=FirstRandom(),
            controller=self.controller,
            quorum=self.quorum,
            image=image or MetadataImage(offset=5, features={"metadata.version": 30}, features_epoch=3),
            dynamic=api.settings,
        )
        self.dispatcher = ApiDispatcher(
            self.node, pauseless(HandTime()), CONTROLLER_APIS, [self.closed.append]
        )
        self.connection = ConnectionInfo(9, LISTENER, "127.0.0.1", 5)

    def dispatch(self, request: Any, version: int) -> Any:
        key = type(request).API_KEY
        frame = request_header_bytes(key, version, 7, "node") + encode(request, version)
        return self.dispatcher.dispatch(self.connection, memoryview(frame))

    def call(self, request: Any, version: int) -> Any:
        reply = self.dispatch(request, version)
        assert isinstance(reply, list)
        return decoded(reply, type(request).API_KEY, version)


def decoded(reply: Any, key: int, version: int) -> Any:
    raw = b"".join(bytes(part) for part in reply)[4:]
    correlation_id, position = parse_response_header(raw, key, version)
    assert correlation_id == 7
    return decode(response_class(key), version, raw, position)


def test_versions_and_features_are_those_of_a_controller() -> None:
    response = ListeningController().call(
        ApiVersionsRequest(client_software_name="a", client_software_version="1"), 4
    )
    assert [(each.api_key, each.min_version, each.max_version) for each in response.api_keys] == [
        (entry.key, entry.min_version, entry.max_version) for entry in CONTROLLER_ENTRIES
    ]
    assert {each.name: (each.min_version, each.max_version) for each in response.supported_features} == dict(
        SUPPORTED_FEATURES
    )
    assert [(each.name, each.max_version_level) for each in response.finalized_features] == [
        ("metadata.version", 30)
    ]
    assert response.finalized_features_epoch == 3, "where the levels changed last, and not where the log ends"
    older = ListeningController().call(
        ApiVersionsRequest(client_software_name="a", client_software_version="1"), 3
    )
    assert [each.name for each in older.supported_features] == ["metadata.version"]
    refused = ListeningController().call(
        ApiVersionsRequest(client_software_name="", client_software_version="1"), 4
    )
    assert refused.error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("cluster_id", "node_id", "code"),
    [
        ("other", 7, ErrorCode.NONE),
        ("other", -1, ErrorCode.INVALID_REQUEST),
        (None, 7, ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_controller_does_not_compare_whom_a_client_means(
    cluster_id: str | None, node_id: int, code: ErrorCode
) -> None:
    request = ApiVersionsRequest(
        client_software_name="a", client_software_version="1", cluster_id=cluster_id, node_id=node_id
    )
    assert ListeningController().call(request, 5).error_code == code


def test_what_only_brokers_serve_closes_the_connection() -> None:
    with pytest.raises(CloseConnection):
        ListeningController().dispatch(MetadataRequest(), 12)
    with pytest.raises(CloseConnection):
        Api().send(VoteRequest(), 2)


def test_a_request_of_the_quorum_goes_to_it_with_its_version() -> None:
    w = ListeningController()
    assert w.call(VoteRequest(cluster_id="c"), 1).error_code == 0
    ((message, version),) = w.quorum.handled
    assert (message.cluster_id, version) == ("c", 1)


def test_an_inactive_controller_says_so_at_each_level() -> None:
    w = ListeningController()
    assert w.call(BrokerHeartbeatRequest(), 1).error_code == ErrorCode.NOT_CONTROLLER
    topics = w.call(CreateTopicsRequest(topics=[CreatableTopic(name="t")]), 7).topics
    assert [(each.name, each.error_code) for each in topics] == [("t", ErrorCode.NOT_CONTROLLER)]
    w.controller.answer = Deferred()
    pending = w.dispatch(BrokerHeartbeatRequest(), 1)
    assert isinstance(pending, Pending)
    w.controller.answer.fail(NotController())
    assert decoded(pending.reply.result(), 63, 1).error_code == ErrorCode.NOT_CONTROLLER


def test_the_end_of_a_connection_is_told() -> None:
    w = ListeningController()
    w.dispatcher.connection_closed(w.connection)
    assert w.closed == [9]


def controllers(*names: str) -> MetadataImage:
    records = {
        node_id: RegisterControllerRecord(
            controller_id=node_id,
            end_points=[ControllerEndpoint(name=name, host=f"c{node_id}", port=9093)],
        )
        for node_id, name in enumerate(names, 2)
    }
    return MetadataImage(features={"metadata.version": 30}, opaque={CONTROLLERS: records})


def test_describe_cluster_shows_registered_controllers() -> None:
    response = ListeningController(controllers(LISTENER, LISTENER, "OTHER")).call(
        DescribeClusterRequest(endpoint_type=2), 2
    )
    assert [(each.broker_id, each.host, each.port) for each in response.brokers] == [
        (2, "c2", 9093),
        (3, "c3", 9093),
    ]
    assert (response.controller_id, response.cluster_id, response.endpoint_type) == (3, "cluster", 2)
    assert (
        ListeningController(controllers(LISTENER))
        .call(DescribeClusterRequest(endpoint_type=2), 1)
        .controller_id
        == -1
    )


@pytest.mark.parametrize(
    ("endpoint_type", "version", "code"),
    [
        (1, 1, ErrorCode.MISMATCHED_ENDPOINT_TYPE),
        (7, 1, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE),
        (1, 0, ErrorCode.INVALID_REQUEST),
    ],
)
def test_describe_cluster_for_brokers_is_refused(endpoint_type: int, version: int, code: ErrorCode) -> None:
    request = (
        DescribeClusterRequest() if version == 0 else DescribeClusterRequest(endpoint_type=endpoint_type)
    )
    assert ListeningController(controllers(LISTENER)).call(request, version).error_code == code
    early = ListeningController(MetadataImage(features={"metadata.version": 14}))
    assert early.call(request, version).error_code == ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize(
    ("level", "code"),
    [(14, ErrorCode.UNSUPPORTED_VERSION), (15, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)],
)
def test_who_has_no_right_is_told_first_that_controllers_are_not_registered(
    level: int, code: ErrorCode
) -> None:
    w = ListeningController(MetadataImage(features={"metadata.version": level}))
    w.node.authorizer = authorizer()
    answer = w.call(DescribeClusterRequest(endpoint_type=1), 1)
    text = "Direct-to-controller communication is not supported with the current MetadataVersion."
    assert (answer.error_code, answer.error_message) == (code, text if level == 14 else None)


PRINCIPAL = encode_principal(DefaultPrincipalData(type="User", name="alice"))


def envelope(
    request: Any, version: int, principal: bytes | None = PRINCIPAL, address: bytes = bytes([10, 0, 0, 9])
) -> EnvelopeRequest:
    data = request_header_bytes(type(request).API_KEY, version, 42, "their client") + encode(request, version)
    return EnvelopeRequest(request_data=bytes(data), request_principal=principal, client_host_address=address)


def test_an_envelope_is_handled_as_if_its_client_had_come_here() -> None:
    w = ListeningController()
    w.controller.answer = CreateTopicsResponse(topics=[CreatableTopicResult(name="t", error_code=36)])
    response = w.call(envelope(CreateTopicsRequest(topics=[CreatableTopic(name="t")]), 7), 0)
    assert response.error_code == 0
    correlation_id, position = parse_response_header(response.response_data, 19, 7)
    assert correlation_id == 42
    inner = decode(CreateTopicsResponse, 7, response.response_data, position)
    assert [(each.name, each.error_code) for each in inner.topics] == [("t", 36)]
    ((name, request, context),) = w.controller.calls
    assert (name, request.topics[0].name) == ("create_topics", "t")
    assert (context.api_version, context.client_id, context.client_host) == (7, "their client", "10.0.0.9")
    assert (context.principal.type, context.principal.name) == ("User", "alice")


@pytest.mark.parametrize(
    ("address", "told"),
    [
        (bytes(15) + b"\x01", "0:0:0:0:0:0:0:1"),
        (bytes(10) + b"\xff\xff\x0a\x00\x00\x09", "10.0.0.9"),
    ],
)
def test_the_address_in_an_envelope_has_the_text_of_the_clients_own_connection(
    address: bytes, told: str
) -> None:
    w = ListeningController()
    w.controller.answer = CreateTopicsResponse()
    w.call(envelope(CreateTopicsRequest(), 7, address=address), 0)
    assert w.controller.calls[0][2].client_host == told


def test_what_arrays_of_an_inner_request_hold_is_bounded_by_the_setting() -> None:
    w = ListeningController()
    w.controller.answer = CreateTopicsResponse()
    asked = envelope(CreateTopicsRequest(topics=[CreatableTopic(name="t" * 20) for _ in range(1001)]), 7)
    assert w.call(asked, 0).error_code == 0
    config = ServerConfig.from_properties({**w.node.config.originals, "request.max.elements": "1000"})
    node = replace(w.node, config=config)
    w.dispatcher = ApiDispatcher(node, pauseless(HandTime()), CONTROLLER_APIS, [w.closed.append])
    assert w.call(asked, 0).error_code == ErrorCode.UNSUPPORTED_VERSION


def test_an_inner_answer_may_come_later() -> None:
    w = ListeningController()
    w.controller.answer = Deferred()
    pending = w.dispatch(envelope(CreateTopicsRequest(), 7), 0)
    assert isinstance(pending, Pending)
    w.controller.answer.resolve(CreateTopicsResponse())
    assert decoded(pending.reply.result(), 58, 0).error_code == 0


def test_a_long_inner_answer_is_encoded_in_steps() -> None:
    w = ListeningController()
    count = 10_000
    w.controller.answer = CreateTopicsResponse(topics=[CreatableTopicResult(name="t", error_code=36)] * count)
    asked = envelope(CreateTopicsRequest(topics=[CreatableTopic(name="t")]), 7)
    sender = RequestContext(58, 0, 0, None, 9, LISTENER, "127.0.0.1")
    assert len(list(pauses_of(envelopes.handle(w.node, sender, asked)))) >= count // STEP_UNITS
    response = w.call(asked, 0)
    _, position = parse_response_header(response.response_data, 19, 7)
    assert len(decode(CreateTopicsResponse, 7, response.response_data, position).topics) == count


def test_who_may_nothing_is_not_answered_for_very_many_elements_in_an_envelope() -> None:
    w = ListeningController()
    w.node.authorizer = authorizer(super_users=frozenset({"User:node"}))
    w.connection.principal = Principal("User", "node")
    asked = envelope(CreateAclsRequest(creations=[AclCreation()] * (REFUSED_AT_ONCE + 1)), 3)
    assert w.call(asked, 0).error_code == ErrorCode.UNSUPPORTED_VERSION


def test_only_the_active_controller_opens_envelopes_for_good() -> None:
    w = ListeningController()
    response = w.call(envelope(CreateTopicsRequest(topics=[CreatableTopic(name="t")]), 7), 0)
    assert (response.error_code, response.response_data) == (ErrorCode.NOT_CONTROLLER, None)
    partition = PartitionData(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    w.controller.answer = DescribeQuorumResponse(topics=[TopicData(partitions=[partition])])
    assert w.call(envelope(DescribeQuorumRequest(), 2), 0).error_code == ErrorCode.NOT_CONTROLLER


def test_a_bug_behind_an_envelope_is_the_inner_requests_error() -> None:
    w = ListeningController()
    w.controller.answer = Deferred()
    w.controller.answer.fail(ZeroDivisionError())
    response = w.call(envelope(CreateTopicsRequest(topics=[CreatableTopic(name="t")]), 7), 0)
    _, position = parse_response_header(response.response_data, 19, 7)
    inner = decode(CreateTopicsResponse, 7, response.response_data, position)
    assert inner.topics[0].error_code == ErrorCode.UNKNOWN_SERVER_ERROR


def test_envelopes_that_cannot_be_opened() -> None:
    w = ListeningController()
    request = CreateTopicsRequest()
    codes = {
        "not forwardable": w.call(envelope(VoteRequest(), 2), 0).error_code,
        "no principal": w.call(envelope(request, 7, principal=None), 0).error_code,
        "principal of tomorrow": w.call(
            envelope(request, 7, principal=b"\0\1" + PRINCIPAL[2:]), 0
        ).error_code,
        "no principal's bytes": w.call(envelope(request, 7, principal=PRINCIPAL[:-3]), 0).error_code,
        "no address": w.call(envelope(request, 7, address=b"123"), 0).error_code,
    }
    assert codes == {
        "not forwardable": ErrorCode.INVALID_REQUEST,
        "no principal": ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE,
        "principal of tomorrow": ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE,
        "no principal's bytes": ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE,
        "no address": ErrorCode.INVALID_REQUEST,
    }
    for data in (b"", b"\0\x13\0\x07", b"\0\x13\0\x63\0\0\0\1\xff\xff\0", b"\x7f\0\0\0\0\0\0\1\xff\xff\0"):
        opened = w.call(
            EnvelopeRequest(request_data=data, request_principal=PRINCIPAL, client_host_address=bytes(4)),
            0,
        )
        assert opened.error_code == ErrorCode.UNSUPPORTED_VERSION
    cut = envelope(CreateTopicsRequest(topics=[CreatableTopic(name="topic")]), 7)
    cut.request_data = cut.request_data[:-12]
    assert w.call(cut, 0).error_code == ErrorCode.UNSUPPORTED_VERSION
    assert w.controller.calls == []


def test_everything_that_brokers_pass_on_and_is_served_by_them_is_served_by_controllers() -> None:
    from kafkacompat.api.registry import BROKER_APIS

    passed_on = {entry.key for entry in BROKER_APIS.entries if APIS[entry.key].forwardable}
    for key in passed_on:
        passed_to, passed_by = CONTROLLER_APIS.by_key[key], BROKER_APIS.by_key[key]
        assert (passed_to.passed, passed_by.passed) in ((None, None), ("to_controller", "forwarded"))
        without: dict[str, Any] = {"needs": (), "named": (), "module": "", "passed": None}
        assert passed_to._replace(**without) == passed_by._replace(**without)


def test_voters_are_changed_through_the_controller_on_either_listener() -> None:
    w = ListeningController()
    w.controller.answer = response_class(80)()
    w.call(AddRaftVoterRequest(), 1)
    assert [name for name, _, _ in w.controller.calls] == ["add_raft_voter"]


def test_a_call_of_this_node_itself_needs_no_bytes() -> None:
    w = ListeningController()
    context = RequestContext(19, 7, 0, None, 0, LISTENER, "127.0.0.1")
    refused = w.dispatcher.call(context, CreateTopicsRequest())
    with pytest.raises(NotController):
        refused.result()
    w.controller.answer = response = CreateTopicsResponse()
    assert w.dispatcher.call(context, CreateTopicsRequest()).result() is response


ANSWERED_BY = {"quorum_fetch": "raft/wire_server.py"}
"""Of the handlers of controllers whose responses another module makes."""
OF_EVERY_RESPONSE = {"throttle_time_ms"}
"""The dispatcher sets it."""
LEFT_OUT = {
    # The metadata log has no sessions, no transactions, and one replica that is read from. Controllers have no racks.
    "quorum_fetch": {
        "session_id",
        "aborted_transactions",
        "producer_id",
        "first_offset",
        "last_stable_offset",
        "preferred_read_replica",
        "rack",
    },
    # Nothing is migrated from ZooKeeper.
    "controller_api_versions": {"zk_migration_ready"},
    # Controllers have no racks, and are not fenced.
    "describe_controllers": {"rack", "is_fenced"},
}
"""What controllers do not tell."""


def set_in(module: str) -> set[str]:
    """The fields that a module gives to a constructor, or sets later."""
    nodes = list(ast.walk(ast.parse((PACKAGE / module).read_text(encoding="utf-8"))))
    given = {each.arg for each in nodes if isinstance(each, ast.keyword) and each.arg is not None}
    return given | {
        each.attr for each in nodes if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store)
    }


def fields_of(response: type[Message]) -> set[str]:
    structs = vars(sys.modules[response.__module__]).values()
    return {
        name
        for each in structs
        if isinstance(each, type) and issubclass(each, Struct)
        for name in each.field_names()
    }


def test_controllers_answer_with_each_field_of_an_api_that_has_another_handler_on_brokers() -> None:
    of_brokers = {entry.key: entry.module for entry in ENTRIES}
    other = [each for each in CONTROLLER_ENTRIES if of_brokers.get(each.key, each.module) != each.module]
    assert len(other) >= 3
    for entry in other:
        module = ANSWERED_BY.get(entry.module, f"api/{entry.module}.py")
        missing = fields_of(response_class(entry.key)) - OF_EVERY_RESPONSE - set_in(module)
        assert missing == LEFT_OUT[entry.module], (
            f"{entry.name}: kafkacompat/{module} answers on controller listeners, api/{of_brokers[entry.key]}.py on those of "
            "brokers: a field is set in both, or stands in LEFT_OUT"
        )
