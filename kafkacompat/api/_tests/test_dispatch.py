"""From request bytes to response bytes: served versions, closed connections, and bugs in handlers."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from importlib import import_module
from typing import Any

import pytest

from kafkacompat._tests.doubles import HandTime, HandWorkers
from kafkacompat.api import metadata
from kafkacompat.api._tests.kit import Api, empty_request, pauseless, served_versions
from kafkacompat.api.dispatch import ApiDispatcher
from kafkacompat.api.handler import Handler
from kafkacompat.api.registry import BROKER_APIS, CONTROLLER_APIS, ENTRIES, ApiTable, broker_apis
from kafkacompat.api.route import Route
from kafkacompat.deferred import Deferred
from kafkacompat.late import HELD_MAX_MS, Provisions
from kafkacompat.partition._tests.kit import topic_image
from kafkacompat.ports.dispatcher import CloseConnection, Pending
from kafkacompat.tasks import Tasks
from kafkacompat.wire.apis import APIS
from kafkacompat.wire.codec import decode, encode
from kafkacompat.wire.errors import ErrorCode, WireError
from kafkacompat.wire.headers import parse_request_header, parse_response_header, request_header_bytes
from kafkacompat.wire.messages.api_versions_request import ApiVersionsRequest
from kafkacompat.wire.messages.api_versions_response import ApiVersionsResponse
from kafkacompat.wire.messages.init_producer_id_request import InitProducerIdRequest
from kafkacompat.wire.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from kafkacompat.wire.messages.produce_request import ProduceRequest

OWN_KEYS = [0, 1, 2, 3, 17, 18, 19, 20, 21, 22, 23, 32, 33, 35, 36, 37, 44, 60, 61, 74, 75]
FIRST_WITH_ERROR = {1: 7, 3: 13, 35: 3}
"""The versions from which these APIs have an error code for the whole response."""
LOCAL_KEYS = [key for key in OWN_KEYS if key not in (19, 20, 33, 37, 44)]


@pytest.mark.parametrize(
    ("table", "entry"),
    [(table, entry) for table in (BROKER_APIS, CONTROLLER_APIS) for entry in table.entries],
    ids=lambda each: each.name if hasattr(each, "name") else "",
)
def test_each_listener_serves_only_what_it_serves_in_kafka_and_has_a_handler_for_it(
    table: ApiTable, entry: Any
) -> None:
    assert isinstance(table.load(entry.key), Handler)
    api = APIS[entry.key]
    assert api.on_broker if table is BROKER_APIS else api.on_controller


def test_topic_id_versions_come_together_with_metadata_10() -> None:
    assert BROKER_APIS.by_key[0].max_version >= 13
    assert BROKER_APIS.by_key[1].max_version >= 13
    assert BROKER_APIS.by_key[3].max_version >= 10


@pytest.mark.parametrize("key", LOCAL_KEYS)
def test_every_version_answers_a_request_of_defaults(key: int) -> None:
    for version in served_versions(key):
        api = Api(topic_image("t"))
        request = empty_request(key)
        if key == 18 and version >= 3:
            request = ApiVersionsRequest(client_software_name="a", client_software_version="1")
        response = api.send(request, version)
        assert response is not None or key == 0, version  # a Produce with default values has acks=0


@pytest.mark.parametrize("key", OWN_KEYS)
def test_a_bug_in_a_handler_is_answered_at_its_level_in_every_version(
    key: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> Any:
        raise ZeroDivisionError("a bug")

    for version in served_versions(key):
        api = Api()
        route = Route(key, version)
        route.function = broken
        api.dispatcher._routes[key, version] = route
        request = empty_request(key)
        if key == 0:
            request.acks = 1
        response = api.call(request, version)
        if hasattr(response, "error_code"):
            assert response.error_code == (-1 if version >= FIRST_WITH_ERROR.get(key, 0) else 0)
    assert "failed" in caplog.text


@pytest.mark.parametrize(
    ("key", "version"), [(999, 0), (76, 0), (52, 0), (58, 0), (3, 14), (3, -1), (1, 3), (0, 14)]
)
def test_unknown_apis_and_versions_close_the_connection(key: int, version: int) -> None:
    header = key.to_bytes(2, "big") + version.to_bytes(2, "big", signed=True) + b"\0\0\0\7" + b"\xff\xff\0"
    with pytest.raises(CloseConnection):
        Api().raw(header)


def test_unstable_versions_are_served_where_they_are_enabled() -> None:
    key = InitProducerIdRequest.API_KEY or 0

    def told(setting: str) -> dict[int, int]:
        api = Api(overrides={"unstable.api.versions.enable": setting})
        return {each.api_key: each.max_version for each in api.call(ApiVersionsRequest(), 0).api_keys}

    unstable = told("true")
    assert told("false") == unstable | {key: 5}
    assert unstable[key] == 6
    api = Api()
    with pytest.raises(CloseConnection):
        api.call(InitProducerIdRequest(transactional_id=None), 6)
    api.dispatcher = ApiDispatcher(api.node, pauseless(api.world.time), broker_apis(False, True))
    api.producer_ids.ids = [9]
    assert api.call(InitProducerIdRequest(transactional_id=None), 6).producer_id == 9


@pytest.mark.parametrize("version", [0, 1, 2])
def test_produce_below_three_closes_the_connection_though_it_is_advertised(version: int) -> None:
    api = Api()
    with pytest.raises(CloseConnection):
        api.raw(request_header_bytes(0, version, 1, "old") + bytes(20))


def test_an_undecodable_body_closes_the_connection() -> None:
    api = Api()
    frame = api.frame(MetadataRequest(topics=None), 9)
    with pytest.raises(WireError):
        api.raw(frame[:-1])
    with pytest.raises(WireError):
        api.raw(b"\0\3")


def test_trailing_bytes_are_ignored() -> None:
    api = Api(topic_image("t"))
    reply = api.raw(api.frame(MetadataRequest(topics=None), 9) + b"rest")
    assert api.decoded(reply, 3, 9).topics[0].name == "t"


def test_null_client_ids_and_negative_correlation_ids() -> None:
    api = Api()
    reply = api.raw(api.frame(MetadataRequest(topics=None), 9, client_id=None, correlation_id=-5))
    api.decoded(reply, 3, 9, correlation_id=-5)


@pytest.mark.parametrize(
    ("version", "body"),
    [(6, b""), (99, b"\xff" * 40), (32767, bytes(3)), (6, bytes(40)), (-1, b"\xff\xff")],
)
def test_too_new_api_versions_are_answered_as_version_zero(version: int, body: bytes) -> None:
    api = Api()
    frame = b"\0\x12" + version.to_bytes(2, "big", signed=True) + b"\0\0\1\0" + body
    (reply,) = api.raw(frame)
    assert reply[:4] == (len(reply) - 4).to_bytes(4, "big")
    assert reply[4:8] == b"\0\0\1\0"
    response = decode(ApiVersionsResponse, 0, bytes(reply), 8)
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert [(one.api_key, one.min_version, one.max_version) for one in response.api_keys] == [(18, 0, 5)]
    assert len(reply) == 8 + len(encode(response, 0))


def test_the_reply_header_of_api_versions_has_no_tags() -> None:
    api = Api()
    request = ApiVersionsRequest(client_software_name="a", client_software_version="1")
    (reply,) = api.raw(api.frame(request, 4))
    assert decode(ApiVersionsResponse, 4, bytes(reply), 8).error_code == 0


@pytest.mark.parametrize(
    ("cluster_id", "node_id", "code"),
    [
        (None, -1, ErrorCode.NONE),
        ("own", 1, ErrorCode.NONE),
        ("own", 2, ErrorCode.REBOOTSTRAP_REQUIRED),
        ("own", -5, ErrorCode.REBOOTSTRAP_REQUIRED),
        ("other", 1, ErrorCode.REBOOTSTRAP_REQUIRED),
        ("", 1, ErrorCode.REBOOTSTRAP_REQUIRED),
        ("own", -1, ErrorCode.INVALID_REQUEST),
        ("other", -1, ErrorCode.INVALID_REQUEST),
        (None, 1, ErrorCode.INVALID_REQUEST),
        (None, -2, ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_client_that_meant_another_node_is_told_to_bootstrap_again(
    cluster_id: str | None, node_id: int, code: ErrorCode
) -> None:
    """KIP-1242, with the answers of Apache Kafka 4.4.0."""
    api = Api()
    assert api.node.node_id == 1
    if cluster_id == "own":
        cluster_id = api.node.cluster_id
    request = ApiVersionsRequest(
        client_software_name="a", client_software_version="1", cluster_id=cluster_id, node_id=node_id
    )
    response = api.call(request, 5)
    assert response.error_code == code
    assert bool(response.api_keys) is bool(response.supported_features) is (code is ErrorCode.NONE)
    # Earlier versions cannot say whom they mean.
    assert api.call(request, 4).error_code == ErrorCode.NONE


def parked_route(api: Api, key: int, version: int, answer: Deferred[Any]) -> Pending:
    route = Route(key, version)
    route.function = lambda *_: answer
    api.dispatcher._routes[key, version] = route
    pending = api.raw(api.frame(empty_request(key), version))
    assert isinstance(pending, Pending)
    return pending


def test_parked_answers_leave_when_they_are_there() -> None:
    api = Api()
    answer: Deferred[Any] = Deferred()
    pending = parked_route(api, 3, 9, answer)
    assert pending.blocks
    assert not pending.reply.done
    answer.resolve(metadata.MetadataResponse(cluster_id="later"))
    assert api.decoded(pending.reply.result(), 3, 9).cluster_id == "later"


def test_parked_failures_are_answered_or_close() -> None:
    api = Api()
    answer: Deferred[Any] = Deferred()
    pending = parked_route(api, 17, 1, answer)
    answer.fail(ZeroDivisionError("a bug"))
    assert api.decoded(pending.reply.result(), 17, 1).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    broken: Deferred[Any] = Deferred()
    produce = parked_route(api, 0, 9, broken)
    assert not produce.blocks
    broken.fail(ZeroDivisionError("a bug"))
    with pytest.raises(CloseConnection):
        produce.reply.result()


def test_a_deferred_that_is_done_is_an_immediate_reply() -> None:
    api = Api()
    route = Route(17, 1)
    route.function = lambda node, context, request: Deferred.of(
        BROKER_APIS.load(17).error_response(request, ErrorCode.NONE, 1)
    )
    api.dispatcher._routes[17, 1] = route
    assert api.call(empty_request(17), 1).error_code == 0


def test_a_response_that_its_version_cannot_carry_is_a_bug_and_answered_as_one() -> None:
    api = Api()
    route = Route(17, 1)
    route.function = lambda *_: object()
    api.dispatcher._routes[17, 1] = route
    assert api.call(empty_request(17), 1).error_code == ErrorCode.UNKNOWN_SERVER_ERROR


def test_a_disk_that_refuses_is_a_storage_error_and_no_traceback(caplog: pytest.LogCaptureFixture) -> None:
    api = Api()
    route = Route(17, 1)

    def full(*_: object) -> Any:
        raise OSError(28, "No space left on device")

    route.function = full
    api.dispatcher._routes[17, 1] = route
    assert api.call(empty_request(17), 1).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    (entry,) = caplog.records
    assert "No space left on device" in entry.getMessage()
    assert entry.exc_info is None


def test_a_bug_in_a_produce_without_acks_closes() -> None:
    api = Api()
    route = Route(0, 9)

    def broken(*_: object) -> Any:
        raise ZeroDivisionError("a bug")

    route.function = broken
    api.dispatcher._routes[0, 9] = route
    with pytest.raises(CloseConnection):
        api.raw(api.frame(ProduceRequest(acks=0), 9))


def test_only_produce_lets_others_overtake() -> None:
    assert [entry.key for entry in ENTRIES if not BROKER_APIS.load(entry.key).blocks] == [0]


def test_handlers_are_declared_immutable() -> None:
    handler = BROKER_APIS.load(3)
    assert isinstance(handler, Handler)
    with pytest.raises(AttributeError):
        handler.blocks = False  # type: ignore[misc]


def test_a_dispatcher_imports_handlers_with_the_first_request_only() -> None:
    code = (
        "import sys, json; import kafkacompat.api.dispatch;"
        "print(json.dumps(sorted(m for m in sys.modules if m.startswith('kafkacompat.'))))"
    )
    loaded = set(
        json.loads(
            subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True).stdout
        )
    )
    handlers = {f"kafkacompat.api.{entry.module}" for entry in ENTRIES}
    assert not loaded & handlers
    assert "construct" not in loaded


def test_what_a_connection_waits_for_is_abandoned_when_it_closes() -> None:
    api = Api(topic_image("t"))
    abandoned: list[int] = []
    waited: Deferred[Any] = Deferred()
    waited.when_abandoned = lambda: abandoned.append(1)
    parked_route(api, 3, 12, waited)
    answered: Deferred[Any] = Deferred()
    answered.when_abandoned = lambda: abandoned.append(2)
    api.dispatcher.connection_closed(api.connection)
    assert abandoned == [1]
    parked_route(api, 3, 12, answered)
    answered.resolve(metadata.MetadataResponse())
    api.dispatcher.connection_closed(api.connection)
    assert abandoned == [1]


@pytest.mark.parametrize(("version", "answered_as"), [(0, 0), (3, 3), (99, 0)])
def test_a_refusal_of_versions_has_a_form_that_the_client_can_read(version: int, answered_as: int) -> None:
    api = Api()
    frame = api.frame(ApiVersionsRequest(), min(version, 4))
    frame[2:4] = version.to_bytes(2, "big")
    header = parse_request_header(memoryview(frame))
    reply = api.dispatcher.refusal(header, memoryview(frame), ErrorCode.ILLEGAL_SASL_STATE)
    assert reply is not None
    body = bytes(reply[0])[4:]  # type: ignore[arg-type]
    _, position = parse_response_header(body, 18, answered_as)
    answer = decode(ApiVersionsResponse, answered_as, body, position)
    assert (answer.error_code, answer.api_keys) == (ErrorCode.ILLEGAL_SASL_STATE, [])


def test_a_refusal_is_not_worked_out_for_a_long_request() -> None:
    """A long request of an unauthenticated sender is not parsed."""
    api = Api()
    frame = memoryview(api.frame(MetadataRequest(topics=[MetadataRequestTopic(name="t" * 30_000)]), 12))
    assert api.dispatcher.refusal(parse_request_header(frame), frame, ErrorCode.ILLEGAL_SASL_STATE) is None


class Lacking:
    """A handler's module that cannot be imported, or its handler cannot import what it needs, as long as `lacks`."""

    def __init__(self, api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
        self.lacks = True
        self.time = HandTime()
        self.workers = HandWorkers()
        api.node.provisions = self.provisions = Provisions(self._names, self.workers, Tasks(self.time))
        load, function = ApiTable.load, metadata.HANDLER.function

        def loaded(table: ApiTable, key: int) -> Handler:
            if self.lacks:
                raise ModuleNotFoundError("No module named 'kafkacompat.api.metadata'")
            return load(table, key)

        def handled(*words: Any) -> Any:
            if self.lacks:
                raise ModuleNotFoundError("No module named 'kafkacompat.api.something'")
            return function(*words)

        self._monkeypatch = monkeypatch
        self.loaded, self.handled = loaded, handled

    def _names(self) -> list[str]:
        if self.lacks:
            raise ModuleNotFoundError("No module named 'kafkacompat'")
        return []

    def in_module(self) -> None:
        self._monkeypatch.setattr(ApiTable, "load", self.loaded)

    def in_handler(self) -> None:
        self._monkeypatch.setattr(metadata, "HANDLER", replace(metadata.HANDLER, function=self.handled))

    def pass_time(self, ms: int) -> None:
        for _ in range(0, ms, 100):
            self.time.advance(100)
            self.workers.run_all()


@pytest.fixture(params=["in_module", "in_handler"])
def held(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> tuple[Api, Lacking]:
    api = Api(topic_image("t"))
    lacking = Lacking(api, monkeypatch)
    getattr(lacking, request.param)()
    return api, lacking


def test_a_request_waits_for_modules_that_cannot_be_imported_now(held: tuple[Api, Lacking]) -> None:
    api, lacking = held
    pending = api.send(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 9)
    assert isinstance(pending, Pending)
    lacking.provisions.begin()
    lacking.pass_time(5_000)
    assert not pending.reply.done
    lacking.lacks = False
    lacking.pass_time(2_000)
    answer = api.decoded(pending.reply.result(), 3, 9)
    assert [each.name for each in answer.topics] == ["t"]
    later = api.send(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 9)
    assert later == answer, "nothing waits from then on"


def test_a_connection_that_ends_waits_no_more(held: tuple[Api, Lacking]) -> None:
    api, lacking = held
    pending = api.send(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 9)
    assert isinstance(pending, Pending)
    api.dispatcher.connection_closed(api.connection)
    lacking.lacks = False
    lacking.provisions.begin()
    lacking.pass_time(2_000)
    assert not pending.reply.done
    assert not api.dispatcher._parked


def test_a_handler_whose_module_is_missing_for_good_fails_its_request(
    held: tuple[Api, Lacking], caplog: pytest.LogCaptureFixture
) -> None:
    api, lacking = held
    pending = api.send(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 12)
    lacking.provisions.begin()
    lacking.pass_time(HELD_MAX_MS)
    assert pending.reply.done
    if pending.reply.has_failed:  # no form of an error is known then
        with pytest.raises(ImportError):
            pending.reply.result()
    else:
        assert "No module named" in caplog.text


@pytest.mark.parametrize(
    ("key", "code"), [(3, ErrorCode.KAFKA_STORAGE_ERROR), (16, ErrorCode.COORDINATOR_NOT_AVAILABLE)]
)
def test_a_want_of_what_is_loaded_late_is_answered_with_what_clients_try_again(
    key: int, code: ErrorCode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Libraries of which few nodes need one are not loaded in the background."""

    def missing(*_: Any) -> Any:
        raise ModuleNotFoundError("No module named 're2'")

    api = Api(topic_image("t"))
    module = import_module(f"kafkacompat.api.{BROKER_APIS.by_key[key].module}")
    monkeypatch.setattr(module, "HANDLER", replace(module.HANDLER, function=missing))
    version = APIS[key].latest
    answer = api.send(empty_request(key), version)
    assert answer.error_code == code
