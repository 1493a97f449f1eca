"""Each served API meets each fault, and the paths of a request through the dispatcher in front of a node."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kafkacompat._tests.doubles import HandTime, PauselessTasks
from kafkacompat.api._tests.kit import Api
from kafkacompat.api.registry import (
    BROKER_APIS_WITH_TELEMETRY,
    CONTROLLER_APIS,
    ApiTable,
    Entry,
)
from kafkacompat.deferred import Deferred
from kafkacompat.exchanges.exchange import Exchange
from kafkacompat.exchanges.levels import levels_of, named_in
from kafkacompat.partition._tests.kit import LISTENER, topic_image
from kafkacompat.ports.dispatcher import CloseConnection, ConnectionInfo, Pending, Principal
from kafkacompat.records.batch import HEADER_SIZE, build_batch, iterate_batches
from kafkacompat.records.record import Record
from kafkacompat.testing.exchange import Hooks, InterceptedDispatcher, bytes_of
from kafkacompat.testing.faults import CHANGES
from kafkacompat.wire.apis import request_class, response_class
from kafkacompat.wire.codec import decode, encode, message_classes, specification
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.headers import (
    parse_request_header,
    parse_response_header,
    request_frame,
    request_header_bytes,
    response_header_bytes,
)
from kafkacompat.wire.messages.api_versions_request import ApiVersionsRequest
from kafkacompat.wire.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from kafkacompat.wire.messages.fetch_response import FetchableTopicResponse, FetchResponse, PartitionData
from kafkacompat.wire.messages.metadata_request import MetadataRequest
from kafkacompat.wire.messages.metadata_response import MetadataResponse, MetadataResponseTopic
from kafkacompat.wire.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from kafkacompat.wire.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)

CASES = [
    pytest.param(table, entry, version, id=f"{entry.name}-{version}-{kind}")
    for kind, table in (("broker", BROKER_APIS_WITH_TELEMETRY), ("controller", CONTROLLER_APIS))
    for entry in table.entries
    for version in sorted({entry.min_version, entry.max_version})
]
NEWEST = [each for each in CASES if each.values[2] == each.values[1].max_version]
WITH_NAMES = [
    each
    for each in CASES
    if (levels := levels_of(each.values[1].key, each.values[2]).request)
    and levels[0].kind in ("topic", "group", "transactional_id")
]
TOPIC_ID = bytes(15) + b"\x63"
WITHOUT_ERROR = {("DescribeLogDirs", 1)}
"""Before KIP-784 the response has no place for an error of the whole request."""


class Named:
    def name_of(self, topic_id: bytes) -> str | None:
        return {TOPIC_ID: "orders"}.get(topic_id)


class Answering:
    """A node's dispatcher, which answers every request with the defaults of its response, or as it is told."""

    def __init__(self, table: ApiTable) -> None:
        self.table = table
        self.seen: list[Any] = []
        """The requests that have reached it."""
        self.answer: Any = None
        self.later: Deferred[Any] | None = None
        self.closed: list[int] = []

    def dispatch(self, connection: ConnectionInfo, frame: memoryview) -> Any:
        header = parse_request_header(frame)
        request = decode(request_class(header.api_key), header.api_version, bytes(frame), header.body_offset)
        self.seen.append(request)
        if self.later is not None:
            return Pending(self.later, blocks=False)
        if getattr(request, "acks", None) == 0:
            return None
        answer = self.answer if self.answer is not None else response_class(header.api_key)()
        return framed(answer, header.api_version, header.correlation_id)

    def connection_closed(self, connection: ConnectionInfo) -> None:
        self.closed.append(connection.connection_id)


def framed(answer: Any, version: int, correlation_id: int = 7) -> Any:
    for each in getattr(answer, "responses", ()):
        for partition in getattr(each, "partitions", ()):
            partition.records = partition.records or b""
    data = response_header_bytes(type(answer).API_KEY, version, correlation_id) + encode(answer, version)
    return [len(data).to_bytes(4, "big") + data]


class Case:
    """A dispatcher with hooks in front of `Answering`."""

    def __init__(self, table: ApiTable = BROKER_APIS_WITH_TELEMETRY) -> None:
        self.time = HandTime()
        self.hooks = Hooks()
        self.inner = Answering(table)
        self.dispatcher = InterceptedDispatcher(
            self.inner, self.inner, self.hooks, PauselessTasks(self.time), self.time, self.time, 1, Named()
        )
        self.connection = ConnectionInfo(1, LISTENER, "127.0.0.1", 5555)
        self.muted: list[int] = []
        self.connection.on_throttled = self.muted.append

    @property
    def faults(self) -> Any:
        return self.hooks.faults

    def send(self, request: Any, version: int, client_id: str = "test") -> Any:
        frame = request_frame(request, version, 7, client_id)[4:]
        return self.dispatcher.dispatch(self.connection, memoryview(frame))

    def ask(self, request: Any, version: int) -> Any:
        return decoded(self.send(request, version), type(request).API_KEY, version)


def decoded(reply: Any, key: int, version: int) -> Any:
    if isinstance(reply, Pending):
        reply = reply.reply.result()
    data = bytes_of(reply)
    assert int.from_bytes(data[:4], "big") == len(data) - 4
    correlation_id, position = parse_response_header(data[4:], key, version)
    assert correlation_id == 7
    return decode(response_class(key), version, data[4:], position)


def filled(key: int, version: int) -> Any:
    """A request with one element in each array. Topics are called "orders", groups "group", partitions 0."""
    request = request_class(key)()
    _fill(request, specification(request_class(key)).root, message_classes(request_class(key)), version)
    if hasattr(request, "acks"):
        request.acks = -1
    for field in ("session_id", "session_epoch"):
        if hasattr(request, field):
            setattr(request, field, 0)
    return encodable(request, version)


def _fill(value: Any, struct: Any, classes: Any, version: int) -> None:
    for field in struct.fields:
        if version not in field.versions:
            continue
        if field.name in ("name", "topic", "topic_name"):
            setattr(value, field.name, "orders")
        elif field.name in ("group_id", "transactional_id"):
            setattr(value, field.name, "group" if field.name == "group_id" else "transactional_id")
        elif field.name == "topic_id":
            value.topic_id = TOPIC_ID
        elif field.kind == "records":
            setattr(value, field.name, b"")
        elif field.is_array:
            kind = KINDS.get(field.name, "some")
            element: Any = {"string": kind, "bytes": b"", "uuid": TOPIC_ID}.get(field.kind, 0)
            if field.struct is not None:
                element = classes[field.struct.name]()
                _fill(element, field.struct, classes, version)
            setattr(value, field.name, [element])


KINDS = {"topic_names": "orders", "groups": "group", "group_ids": "group", "groups_names": "group"} | {
    "transactional_ids": "transactional_id"
}


def encodable(request: Any, version: int) -> Any:
    """Fields that this version lacks have their defaults."""
    _clear(request, specification(type(request)).root, version)
    return request


def _clear(value: Any, struct: Any, version: int) -> None:
    fresh = type(value)()
    for field in struct.fields:
        if version not in field.versions:
            setattr(value, field.name, getattr(fresh, field.name))
        elif field.struct is not None:
            inner = getattr(value, field.name)
            for each in inner if field.is_array else [inner]:
                if each is not None:
                    _clear(each, field.struct, version)


def codes_in(message: Any) -> Iterator[int]:
    """All error codes of a response."""
    for name in message.__slots__:
        value = getattr(message, name)
        if name in ("error_code", "partition_error_code"):
            yield value
        for each in value if isinstance(value, list) else [value]:
            if hasattr(each, "__slots__") and not isinstance(each, (bytes, str, int, memoryview)):
                yield from codes_in(each)


@pytest.mark.parametrize(("table", "entry", "version"), CASES)
def test_each_api_answers_with_an_error_in_its_response_and_is_not_carried_out(
    table: ApiTable, entry: Entry, version: int
) -> None:
    case = Case(table)
    fault = case.faults.error("UNKNOWN_SERVER_ERROR", api=entry.name)
    request = filled(entry.key, version)
    codes = set(codes_in(case.ask(request, version)))
    assert -1 in codes or (entry.name, version) in WITHOUT_ERROR
    assert not case.inner.seen
    assert fault.hits == 1
    case.ask(request, version)
    assert len(case.inner.seen) == 1  # the fault is over


@pytest.mark.parametrize(("table", "entry", "version"), NEWEST)
def test_each_api_is_delayed_throttled_closed_and_cut(table: ApiTable, entry: Entry, version: int) -> None:
    case = Case(table)
    request, inner = filled(entry.key, version), case.inner
    whole = bytes_of(case.send(request, version))
    inner.seen.clear()

    for reply in (False, True):
        case.faults.delay(500, reply=reply, api=entry.name)
        pending = case.send(request, version)
        assert isinstance(pending, Pending)
        assert bool(inner.seen) == reply
        case.time.advance(499)
        assert not pending.reply.done
        case.time.advance(1)
        assert bytes_of(pending.reply.result() or []) == whole
        inner.seen.clear()

    case.faults.throttle(300, api=entry.name)
    response = case.ask(request, version)
    field = specification(response_class(entry.key)).root.fields
    if any(each.name == "throttle_time_ms" and version in each.versions for each in field):
        assert response.throttle_time_ms == 300
    assert case.muted == [300]
    inner.seen.clear()

    for applied in (False, True):
        case.faults.close(applied=applied, api=entry.name)
        with pytest.raises(CloseConnection):
            case.send(request, version)
        assert bool(inner.seen) == applied
    inner.seen.clear()

    for at, sent in ((None, len(whole) // 2), (5, 5), (1 << 30, len(whole) - 1)):
        case.faults.cut(at, api=entry.name)
        with pytest.raises(CloseConnection) as closed:
            case.send(request, version)
        assert closed.value.last_reply is not None
        assert bytes_of(closed.value.last_reply) == whole[:sent]
    assert len(inner.seen) == 3
    case.faults.verify()


@pytest.mark.parametrize(
    ("table", "entry", "version"), [each for each in CASES if each.values[1].name in CHANGES]
)
def test_what_changes_something_can_be_carried_out_and_refused(
    table: ApiTable, entry: Entry, version: int
) -> None:
    case = Case(table)
    case.faults.error("UNKNOWN_SERVER_ERROR", applied=True, api=entry.name)
    request = filled(entry.key, version)
    assert -1 in set(codes_in(case.ask(request, version)))
    assert len(case.inner.seen) == 1


@pytest.mark.parametrize(("table", "entry", "version"), WITH_NAMES)
def test_an_error_of_a_named_element_stands_at_its_level(table: ApiTable, entry: Entry, version: int) -> None:
    """And the whole response has none, if there is a place at the element."""
    levels = levels_of(entry.key, version)
    request = filled(entry.key, version)
    (names,) = named_in(request, levels.request)
    case = Case(table)
    kind = levels.request[0].kind
    name = "orders" if kind == "topic" else names[kind]
    case.faults.error("TOPIC_AUTHORIZATION_FAILED", api=entry.name, **{kind: name})
    response = case.ask(request, version)
    if entry.name == "ListPartitionReassignments":  # only the whole response can have an error
        assert response.error_code == 29
        return
    assert [code for code in codes_in(response) if code] == [29]
    assert getattr(response, "error_code", 0) == 0
    place = levels.error_level({kind: name})
    assert place is not None
    (told, *_) = named_in(response, levels.response[: place + 1])
    assert {key: names[key] for key in told} == told


def produced(*partitions: tuple[str, int], acks: int = -1) -> ProduceRequest:
    batch = bytes(
        build_batch(
            [Record(0, 0, b"k", b"v", ())], base_offset=0, producer_id=7, producer_epoch=1, base_sequence=4
        )
    )
    topics: dict[str, list[int]] = {}
    for topic, index in partitions:
        topics.setdefault(topic, []).append(index)
    return ProduceRequest(
        acks=acks,
        topic_data=[
            TopicProduceData(
                name=topic,
                partition_data=[PartitionProduceData(index=index, records=batch) for index in indexes],
            )
            for topic, indexes in topics.items()
        ],
    )


def test_the_rest_of_a_request_is_carried_out() -> None:
    case = Case()
    case.faults.error("NOT_LEADER_OR_FOLLOWER", api="Produce", topic="orders", partition=1)
    response = case.ask(produced(("orders", 0), ("orders", 1), ("other", 1)), 12)
    (seen,) = case.inner.seen
    assert [(each.name, [one.index for one in each.partition_data]) for each in seen.topic_data] == [
        ("orders", [0]),
        ("other", [1]),
    ]
    told = [
        (t.name, p.index, p.error_code, p.base_offset)
        for t in response.responses
        for p in t.partition_responses
    ]
    assert told == [("orders", 1, 6, -1)]


def test_without_replies_an_error_closes_the_connection() -> None:
    case = Case()
    for terms in ({}, {"topic": "orders"}, {"topic": "orders", "partition": 0}):
        case.faults.error("NOT_LEADER_OR_FOLLOWER", api="Produce", **terms)
        with pytest.raises(CloseConnection):
            case.send(produced(("orders", 0), acks=0), 12)
    assert not case.inner.seen
    for made in (case.faults.delay(10), case.faults.throttle(5)):
        made.remove()
    case.faults.delay(10, api="Produce")
    pending = case.send(produced(("orders", 0), acks=0), 12)
    case.time.advance(10)
    assert pending.reply.result() is None
    case.faults.cut(api="Produce")
    with pytest.raises(CloseConnection):
        case.send(produced(("orders", 0), acks=0), 12)


def test_a_topic_is_known_by_its_id() -> None:
    case = Case()
    by_id = ProduceRequest(
        acks=-1,
        topic_data=[
            TopicProduceData(topic_id=TOPIC_ID, partition_data=[PartitionProduceData(index=3, records=b"")])
        ],
    )
    case.faults.error("UNKNOWN_TOPIC_ID", api="Produce", topic="orders")
    (topic,) = case.ask(by_id, 13).responses
    assert (topic.topic_id, topic.partition_responses[0].error_code) == (TOPIC_ID, 100)
    case.faults.error("UNKNOWN_TOPIC_ID", api="Produce", topic="AAAAAAAAAAAAAAAAAAAAYw")
    assert case.ask(by_id, 13).responses
    case.faults.clear()
    case.faults.error("UNKNOWN_TOPIC_ID", api="Produce", topic="other")
    assert not case.ask(by_id, 13).responses


def fetch(session_id: int = 0, *partitions: int) -> FetchRequest:
    return FetchRequest(
        session_id=session_id,
        session_epoch=1 if session_id else 0,
        max_wait_ms=500,
        min_bytes=1,
        topics=[
            FetchTopic(topic="orders", partitions=[FetchPartition(partition=each) for each in partitions])
        ]
        if partitions
        else [],
    )


def fetched(*records: bytes) -> FetchResponse:
    return FetchResponse(
        responses=[
            FetchableTopicResponse(
                topic="orders",
                partitions=[
                    PartitionData(partition_index=index, records=each) for index, each in enumerate(records)
                ],
            )
        ]
    )


def test_an_error_of_a_fetch_stands_at_the_partition_and_comes_at_once() -> None:
    """And without a session, which would not have the partition."""
    case = Case()
    case.inner.answer = fetched(b"")
    case.faults.error("OFFSET_OUT_OF_RANGE", api="Fetch", topic="orders", partition=1)
    response = case.ask(fetch(0, 0, 1), 12)
    told = [(each.partition_index, each.error_code) for each in response.responses[0].partitions]
    assert told == [(0, 0), (1, 1)]
    (seen,) = case.inner.seen
    assert (seen.max_wait_ms, seen.session_id, seen.session_epoch) == (0, 0, -1)
    assert [each.partition for each in seen.topics[0].partitions] == [0]
    case.faults.error("NOT_LEADER_OR_FOLLOWER", api="Fetch")
    response = case.ask(fetch(0, 0, 1), 12)
    assert [each.error_code for each in response.responses[0].partitions] == [6, 6]
    assert response.error_code == 0
    assert len(case.inner.seen) == 1
    case.faults.error("FETCH_SESSION_ID_NOT_FOUND", api="Fetch")
    assert case.ask(fetch(0, 0, 1), 12).error_code == 70


def test_a_fetch_session_is_lost_so_that_a_fault_knows_what_it_is_about() -> None:
    case = Case()
    case.inner.answer = fetched(b"")
    fault = case.faults.error("OFFSET_OUT_OF_RANGE", api="Fetch", topic="orders", partition=1)
    for named in ((), (0,), (1,)):
        assert case.ask(fetch(5, *named), 12).error_code == 70
    assert (fault.hits, case.inner.seen) == (0, [])
    assert case.ask(fetch(0, 0, 1), 12).error_code == 0
    assert fault.hits == 1
    assert case.ask(fetch(5), 12).error_code == 0
    case.faults.error("NOT_LEADER_OR_FOLLOWER", api="Fetch")
    assert case.ask(fetch(5), 12).error_code == 70
    case.faults.clear()
    case.faults.close(api="Fetch")
    with pytest.raises(CloseConnection):
        case.send(fetch(5), 12)


def test_a_client_without_its_session_gets_no_other_one_before_the_fault_has_gone() -> None:
    """It would lose that one too, with every second Fetch."""
    case = Case()
    case.inner.answer = fetched(b"")
    fault = case.faults.error("OFFSET_OUT_OF_RANGE", api="Fetch", topic="orders", partition=1)
    for _ in range(2):
        assert case.ask(fetch(0, 0), 12).error_code == 0
    assert [(each.session_id, each.session_epoch) for each in case.inner.seen] == [(0, -1)] * 2
    assert [each.max_wait_ms for each in case.inner.seen] == [500] * 2
    assert fault.hits == 0
    fault.remove()
    case.ask(fetch(0, 0), 12)
    assert case.inner.seen[-1].session_epoch == 0


def test_a_request_for_everything_is_looked_at_in_its_reply() -> None:
    case = Case()
    case.inner.answer = MetadataResponse(
        topics=[MetadataResponseTopic(name="orders"), MetadataResponseTopic(name="other")]
    )
    missing = case.faults.error("UNKNOWN_TOPIC_OR_PARTITION", api="Metadata", topic="missing", optional=True)
    fault = case.faults.error("LEADER_NOT_AVAILABLE", api="Metadata", topic="orders")
    response = case.ask(MetadataRequest(topics=None), 9)
    assert [(each.name, each.error_code) for each in response.topics] == [("orders", 5), ("other", 0)]
    assert (missing.hits, fault.hits) == (0, 1)
    case.faults.clear()
    case.faults.error("LEADER_NOT_AVAILABLE", api="Metadata")
    response = case.ask(MetadataRequest(topics=None), 9)
    assert [each.error_code for each in response.topics] == [5, 5]


def test_a_group_or_a_partition_of_it_fails() -> None:
    request = OffsetFetchRequest(
        groups=[
            OffsetFetchRequestGroup(
                group_id=group, topics=[OffsetFetchRequestTopics(name="orders", partition_indexes=[0, 1])]
            )
            for group in ("a", "b")
        ]
    )
    case = Case()
    case.faults.error("NOT_COORDINATOR", api="OffsetFetch", group="a")
    response = case.ask(request, 8)
    assert [(each.group_id, each.error_code, each.topics) for each in response.groups] == [("a", 16, [])]
    case.faults.error("UNSTABLE_OFFSET_COMMIT", api="OffsetFetch", group="b", topic="orders", partition=1)
    (group,) = case.ask(request, 8).groups
    assert (group.group_id, group.error_code) == ("b", 0)
    (partition,) = group.topics[0].partitions
    assert (partition.partition_index, partition.error_code, partition.committed_offset) == (1, 88, -1)


def test_a_fetched_batch_is_damaged_on_its_way() -> None:
    case = Case()
    batch = bytes(build_batch([Record(0, 0, b"k", b"v", ())], base_offset=0))
    case.inner.answer = fetched(batch, batch)
    fault = case.faults.corrupt(topic="orders", partition=1)
    response = case.ask(fetch(0, 0, 1), 12)
    good, bad = (bytes(each.records) for each in response.responses[0].partitions)
    assert good == batch
    assert bad[:17] == batch[:17]
    assert bad[17:21] != batch[17:21]
    assert bad[21:] == batch[21:]
    assert fault.hits == 1
    case.faults.corrupt(topic="orders", optional=True)
    case.inner.answer = fetched(b"", b"")
    case.ask(fetch(0, 0, 1), 12)  # nothing there to damage
    assert case.faults.active


def test_what_is_produced_is_appended_twice_without_its_producer_id() -> None:
    case = Case()
    case.faults.duplicate(topic="orders", partition=0)
    case.ask(produced(("orders", 0), ("orders", 1)), 12)
    first, second = case.inner.seen
    assert [each.index for each in first.topic_data[0].partition_data] == [0, 1]
    (copy,) = second.topic_data[0].partition_data
    (header,) = iterate_batches(bytes(copy.records))
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (-1, -1, -1)
    assert header.size >= HEADER_SIZE
    assert second.acks == 1
    assert len(case.inner.closed) == 1


def test_a_held_request_is_never_carried_out_if_its_connection_closes() -> None:
    case = Case()
    case.faults.delay(100, api="Produce")
    pending = case.send(produced(("orders", 0)), 12)
    assert pending.blocks
    case.dispatcher.connection_closed(case.connection)
    case.time.advance(200)
    assert not case.inner.seen
    assert case.inner.closed == [1]


def test_a_reply_that_comes_later_keeps_its_place_in_the_line() -> None:
    case = Case()
    case.inner.later = Deferred()
    case.faults.throttle(50, api="Produce")
    pending = case.send(produced(("orders", 0)), 12)
    assert isinstance(pending, Pending)
    assert not pending.blocks
    assert not pending.reply.done
    case.inner.later.resolve(framed(response_class(0)(), 12))
    assert decoded(pending, 0, 12).throttle_time_ms == 50


def test_a_failure_of_the_node_goes_on() -> None:
    case = Case()
    case.inner.later = Deferred()
    case.faults.close(applied=True, api="Produce")
    pending = case.send(produced(("orders", 0)), 12)
    case.inner.later.fail(CloseConnection("the node's own"))
    with pytest.raises(CloseConnection, match="the node's own"):
        pending.reply.result()


def test_unknown_versions_of_api_versions_and_unknown_apis() -> None:
    frame = request_header_bytes(18, 99, 7, "new") + b"\xff\xff"
    api = Api(topic_image("t"))
    case = Case()
    case.dispatcher._inner = api.dispatcher
    case.faults.error("UNSUPPORTED_VERSION", api="ApiVersions")
    reply = case.dispatcher.dispatch(case.connection, memoryview(bytearray(frame)))
    assert decoded(reply, 18, 0).error_code == 35
    case.faults.error("NOT_CONTROLLER", times=None)
    for key in (999, 76):
        start = key.to_bytes(2, "big") + b"\0\x63\0\0\0\7\xff\xff\0"
        with pytest.raises(CloseConnection):
            case.dispatcher.dispatch(case.connection, memoryview(bytearray(start)))


def test_a_token_without_a_header_is_no_request() -> None:
    case = Case()
    connection = ConnectionInfo(4, "SASL", "127.0.0.1", 1, listener_is_sasl=True)
    seen: list[bytes] = []

    def dispatch(_: ConnectionInfo, frame: memoryview) -> Any:
        seen.append(bytes(frame))
        return None

    case.inner.dispatch = dispatch  # type: ignore[method-assign]
    case.faults.close(times=None, api="Metadata")
    handshake = request_header_bytes(17, 0, 1, "old") + b"\0\5PLAIN"
    token = request_header_bytes(3, 9, 1, "looks like Metadata")
    for each in (handshake, token):
        case.dispatcher.dispatch(connection, memoryview(bytearray(each)))
    assert seen == [bytes(handshake), bytes(token)]
    connection.principal = Principal("User", "alice")
    with pytest.raises(CloseConnection):
        case.dispatcher.dispatch(connection, memoryview(bytearray(token)))


def test_a_watcher_that_raises_changes_nothing_for_the_client(caplog: pytest.LogCaptureFixture) -> None:
    case, seen = Case(), []

    def raises(exchange: Exchange) -> None:
        raise ValueError("a mistake")

    case.hooks.watch(raises)
    case.hooks.watch(seen.append)
    assert case.ask(ApiVersionsRequest(), 4) is not None
    case.faults.delay(5)
    case.send(ApiVersionsRequest(), 4)
    case.time.advance(5)
    assert len(seen) == 2
    assert [each.getMessage() for each in caplog.records] == ["a watcher of requests raised"] * 2


def test_watchers_see_each_exchange_and_cost_nothing_when_they_have_gone() -> None:
    case = Case()
    seen: list[Exchange] = []
    case.hooks.watch(seen.append)
    assert not case.hooks.is_idle
    whole = bytes_of(case.send(MetadataRequest(topics=[]), 9))
    case.faults.close(api="Metadata")
    with pytest.raises(CloseConnection):
        case.send(MetadataRequest(topics=[]), 9, client_id="other")
    case.inner.later = Deferred()
    case.send(MetadataRequest(topics=[]), 9)
    assert len(seen) == 2
    case.inner.later.fail(CloseConnection("gone"))
    plain, closed, late = seen
    assert (plain.client_id, plain.principal, plain.closed, plain.faults) == (
        "test",
        "User:ANONYMOUS",
        None,
        (),
    )
    assert plain.reply is not None
    assert bytes_of(plain.reply) == whole
    assert closed.client_id == "other"
    assert closed.faults == ("close(applied=False, api='Metadata', times=1)",)
    assert late.closed == "gone"
    case.hooks.unwatch(seen.append)
    assert case.hooks.is_idle


def test_a_real_node_refuses_one_partition_and_appends_to_the_other() -> None:
    api = Api(topic_image("orders", partitions=2))
    hooks = Hooks()
    dispatcher = InterceptedDispatcher(
        api.dispatcher,
        api.dispatcher,
        hooks,
        PauselessTasks(api.world.time),
        api.world.time,
        api.world.time,
        1,
        Named(),
    )
    hooks.faults.error("NOT_ENOUGH_REPLICAS", topic="orders", partition=1, api="Produce")
    hooks.faults.duplicate(topic="orders", partition=0)
    frame = request_frame(produced(("orders", 0), ("orders", 1), acks=1), 12, 7, "test")[4:]
    reply = dispatcher.dispatch(api.connection, memoryview(frame))
    response = decoded(reply, 0, 12)
    told = {p.index: p.error_code for t in response.responses for p in t.partition_responses}
    assert told == {0: 0, 1: 19}


def test_an_error_without_a_request_body_closes_other_apis() -> None:
    case = Case()
    case.faults.error("UNKNOWN_SERVER_ERROR", api="Metadata")
    frame = bytearray(request_header_bytes(3, 99, 7, "new"))
    with pytest.raises(CloseConnection):
        case.dispatcher.dispatch(case.connection, memoryview(frame))
    ok = case.ask(ApiVersionsRequest(), 0)
    assert ok.error_code == ErrorCode.NONE
