"""What a watcher of a node sees, what it must not see, and that it holds up nobody."""

from __future__ import annotations

from typing import Any

import pytest

from kafkacompat.deferred import Deferred
from kafkacompat.exchanges._tests.test_reasons import Known
from kafkacompat.exchanges.exchange import BODY_BYTES_MAX, Exchange, WatchedDispatcher
from kafkacompat.exchanges.watching import (
    WAITING_BYTES_MAX,
    WAITING_MAX,
    BadSelection,
    Selection,
    Waiting,
    Watchers,
    selection_of,
    shown,
)
from kafkacompat.ids import METADATA_TOPIC, METADATA_TOPIC_ID
from kafkacompat.ports.dispatcher import CloseConnection, ConnectionInfo, Pending, Principal
from kafkacompat.records.batch import build_batch
from kafkacompat.records.record import Record
from kafkacompat.wire.codec import encode
from kafkacompat.wire.headers import request_frame, response_header_bytes
from kafkacompat.wire.messages.fetch_request import FetchRequest
from kafkacompat.wire.messages.fetch_response import FetchableTopicResponse, FetchResponse
from kafkacompat.wire.messages.fetch_response import PartitionData as FetchedPartition
from kafkacompat.wire.messages.fetch_snapshot_request import FetchSnapshotRequest
from kafkacompat.wire.messages.fetch_snapshot_response import (
    FetchSnapshotResponse,
    PartitionSnapshot,
    SnapshotId,
    TopicSnapshot,
)
from kafkacompat.wire.messages.heartbeat_request import HeartbeatRequest
from kafkacompat.wire.messages.heartbeat_response import HeartbeatResponse
from kafkacompat.wire.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkacompat.wire.messages.produce_response import ProduceResponse
from kafkacompat.wire.messages.sasl_authenticate_request import SaslAuthenticateRequest
from kafkacompat.wire.messages.sasl_authenticate_response import SaslAuthenticateResponse

SECRET = b"hunter2"


def reply(response: Any, version: int) -> list[bytes]:
    data = response_header_bytes(type(response).API_KEY, version, 7) + encode(response, version)
    return [len(data).to_bytes(4, "big") + data]


class Served:
    """A node's own dispatcher."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.closed = 0

    def dispatch(self, connection: ConnectionInfo, frame: memoryview) -> Any:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def connection_closed(self, connection: ConnectionInfo) -> None:
        self.closed += 1


class Clock:
    def now_ms(self) -> int:
        return 1_000

    def monotonic_ms(self) -> int:
        return 0


def connection(is_sasl: bool = False, name: str = "ANONYMOUS") -> ConnectionInfo:
    return ConnectionInfo(4, "PLAINTEXT", "127.0.0.1", 5, is_sasl, None, Principal("User", name))


def frame(request: Any, version: int, client_id: str | None = "app") -> memoryview:
    return memoryview(bytearray(request_frame(request, version, 7, client_id)[4:]))


HEARTBEAT = HeartbeatRequest(group_id="classic", generation_id=4, member_id="a")


def watched(answer: Any, sent: memoryview, by: ConnectionInfo | None = None) -> list[Exchange]:
    seen: list[Exchange] = []
    dispatcher = WatchedDispatcher(Served(answer), seen.append, Clock(), 1)
    try:
        assert dispatcher.dispatch(by or connection(), sent) is answer
    except CloseConnection:
        assert isinstance(answer, CloseConnection)
    return seen


def test_an_exchange_is_told_with_its_reply_whenever_that_comes() -> None:
    answer = reply(HeartbeatResponse(), 4)
    (told,) = watched(answer, frame(HEARTBEAT, 4))
    assert (told.api_key, told.version, told.client_id, told.client) == (12, 4, "app", "127.0.0.1:5")
    assert told.reply is answer
    later: Deferred[Any] = Deferred()
    seen = watched(Pending(later, True), frame(HEARTBEAT, 4))
    assert not seen
    later.resolve(answer)
    assert seen[0].reply is answer
    (closed,) = watched(CloseConnection("too old"), frame(HEARTBEAT, 4))
    assert (closed.reply, closed.closed) == (None, "too old")


def test_a_token_without_a_header_is_not_shown() -> None:
    """After SaslHandshake version 0 (KIP-43)."""
    unknown = connection(is_sasl=True)
    assert not watched([b""], memoryview(bytearray(b"\0\0\0\4\0\0\0\1\0\3app" + SECRET)), unknown)
    assert not watched([b""], frame(HEARTBEAT, 4), unknown)
    assert watched([b""], frame(SaslAuthenticateRequest(auth_bytes=SECRET), 2), unknown)
    assert watched([b""], frame(HEARTBEAT, 4), connection(is_sasl=True, name="alice"))


def entry(request: Any, response: Any, version: int, selection: Selection = Selection()) -> Any:
    waiting = Waiting(selection, lambda: None)
    (exchange,) = watched(reply(response, version), frame(request, version))
    waiting.add(exchange)
    return shown(waiting.take(), selection, Known())


def test_a_watcher_gets_the_typed_messages_and_the_reason_of_a_refusal() -> None:
    told = entry(HEARTBEAT, HeartbeatResponse(error_code=22), 4)
    assert told["api"] == "Heartbeat"
    assert told["request"]["group_id"] == "classic"
    assert told["errors"] == ["ILLEGAL_GENERATION"]
    assert "is in generation 5" in told["reasons"][0]
    assert entry(HEARTBEAT, HeartbeatResponse(), 4, Selection(errors=True)) is None
    assert entry(HEARTBEAT, HeartbeatResponse(error_code=22), 4, Selection(errors=True)) is not None


def produce(codec: int = 0) -> ProduceRequest:
    batch = build_batch([Record(0, 1, b"k", SECRET, ())], compression=codec)
    partition = PartitionProduceData(index=0, records=batch)
    return ProduceRequest(acks=1, topic_data=[TopicProduceData(name="orders", partition_data=[partition])])


def records_in(told: Any) -> Any:
    return told["request"]["topic_data"][0]["partition_data"][0]["records"]


def test_records_are_counted_and_not_shown_unless_they_are_asked_for() -> None:
    told = entry(produce(), ProduceResponse(), 9)
    assert SECRET.decode() not in str(told)
    assert records_in(told)["records"] == 1
    assert told["topics"] == ["orders"]
    told = entry(produce(), ProduceResponse(), 9, Selection(values=True))
    assert records_in(told)["first"] == [{"offset": 0, "key": "k", "value": SECRET.decode()}]
    compressed = records_in(entry(produce(1), ProduceResponse(), 9, Selection(values=True)))
    assert (compressed["records"], compressed["first"]) == (1, [])
    assert entry(produce(), ProduceResponse(), 9, Selection(topic="other")) is None
    assert entry(produce(), ProduceResponse(), 9, Selection(topic="orders")) is not None


def fetched(**names: Any) -> FetchResponse:
    batch = build_batch([Record(0, 1, None, SECRET, ())])
    partition = FetchedPartition(partition_index=0, records=batch)
    return FetchResponse(responses=[FetchableTopicResponse(partitions=[partition], **names)])


def snapshot_part() -> FetchSnapshotResponse:
    batch = build_batch([Record(0, 1, None, SECRET, ())])
    partition = PartitionSnapshot(snapshot_id=SnapshotId(), unaligned_records=batch)
    return FetchSnapshotResponse(topics=[TopicSnapshot(name=METADATA_TOPIC, partitions=[partition])])


@pytest.mark.parametrize(
    ("request_", "response", "version"),
    [
        (FetchRequest(), fetched(topic=METADATA_TOPIC), 12),
        (FetchRequest(), fetched(topic_id=METADATA_TOPIC_ID), 17),
        (FetchSnapshotRequest(), snapshot_part(), 1),
    ],
    ids=["by its name", "by its id", "a snapshot"],
)
def test_records_of_the_metadata_are_counted_only(request_: Any, response: Any, version: int) -> None:
    """They have the keys of SCRAM users and passwords among the dynamic settings."""
    told = entry(request_, response, version, Selection(values=True))
    assert SECRET.decode() not in str(told)
    assert told["topics"] == [METADATA_TOPIC]
    assert "'records': 1" in str(told["response"])


def test_secrets_of_an_authentication_are_masked() -> None:
    told = entry(SaslAuthenticateRequest(auth_bytes=SECRET), SaslAuthenticateResponse(auth_bytes=SECRET), 2)
    assert SECRET.decode() not in str(told)
    assert told["request"]["auth_bytes"] == "(masked)"


def test_a_slow_watcher_loses_the_oldest_and_is_told_how_many() -> None:
    woken = []
    waiting = Waiting(Selection(), lambda: woken.append(1))
    (exchange,) = watched(reply(HeartbeatResponse(), 4), frame(HEARTBEAT, 4))
    for _ in range(WAITING_MAX + 5):
        waiting.add(exchange)
    assert (len(waiting), waiting.take_lost(), waiting.take_lost(), len(woken)) == (WAITING_MAX, 5, 0, 1)
    exchange.body = bytes(BODY_BYTES_MAX)
    for _ in range(100):
        waiting.add(exchange)
    assert len(waiting) * BODY_BYTES_MAX <= WAITING_BYTES_MAX


def test_a_large_request_is_not_copied() -> None:
    (told,) = watched([b""], memoryview(bytearray(frame(HEARTBEAT, 4)) + bytes(BODY_BYTES_MAX)))
    assert told.body is None


def test_nothing_stands_before_requests_without_a_watcher() -> None:
    looks: list[bool] = []
    failures: list[str] = []
    watchers = Watchers(looks.append, lambda what, error: failures.append(what))
    one, other = Waiting(Selection(), lambda: None), Waiting(Selection(client_id="x"), lambda: None)
    watchers.add(one)
    watchers.add(other)
    (exchange,) = watched(reply(HeartbeatResponse(), 4), frame(HEARTBEAT, 4))
    watchers.tell(exchange)
    assert (len(one), len(other), exchange.reply) == (1, 0, None)
    watchers.remove(one)
    assert looks == [True]
    watchers.remove(other)
    assert (looks, failures) == ([True, False], [])


def test_a_watcher_that_fails_fails_no_request() -> None:
    failures: list[str] = []
    watchers = Watchers(lambda somebody: None, lambda what, error: failures.append(what))

    def fail() -> None:
        raise RuntimeError

    watchers.add(Waiting(Selection(), fail))
    watchers.tell(watched(reply(HeartbeatResponse(), 4), frame(HEARTBEAT, 4))[0])
    assert failures == ["watching a request"]


def test_what_a_watcher_wants_is_read_from_its_query() -> None:
    selection = selection_of({"api": ["Produce", "Fetch"], "client_id": ["app"], "errors": ["true"]})
    assert selection == Selection(frozenset({0, 1}), "app", errors=True)
    for parameters, text in (
        ({"api": ["Nope"]}, "no API 'Nope'"),
        ({"clientid": ["app"]}, "no parameter 'clientid'"),
        ({"topic": ["a", "b"]}, "topic is given twice"),
        ({"values": ["1"]}, "values is true or false"),
    ):
        with pytest.raises(BadSelection, match=text):
            selection_of(parameters)


def test_what_is_no_batch_ends_no_watch() -> None:
    """A client may send anything as records. The node refuses it, and a watcher is told of that."""
    from kafkacompat.wire.messages.produce_response import PartitionProduceResponse, TopicProduceResponse

    request = produce()
    partition = request.topic_data[0].partition_data[0]
    records = bytearray(partition.records or b"")
    records[8:12] = bytes(4)  # the batch's length
    partition.records = bytes(records)
    refused = PartitionProduceResponse(index=0, error_code=2)
    topic = TopicProduceResponse(name="orders", partition_responses=[refused])
    assert entry(request, ProduceResponse(responses=[topic]), 9)["errors"] == ["CORRUPT_MESSAGE"]


def test_of_many_refusals_only_some_are_explained() -> None:
    """It takes time in the loop's thread, and a request may name thousands of topics."""
    from kafkacompat.exchanges.recorded import REASONS_MAX
    from kafkacompat.wire.messages.metadata_request import MetadataRequest, MetadataRequestTopic
    from kafkacompat.wire.messages.metadata_response import MetadataResponse, MetadataResponseTopic

    looked: list[int] = []

    class Looked(Known):
        def topics(self) -> Any:
            looked.append(1)
            return super().topics()

    names = [f"order-{number}" for number in range(1_000)]
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names])
    response = MetadataResponse(topics=[MetadataResponseTopic(name=name, error_code=3) for name in names])
    waiting = Waiting(Selection(), lambda: None)
    waiting.add(watched(reply(response, 9), frame(request, 9))[0])
    told = shown(waiting.take(), Selection(), Looked())
    assert told is not None
    assert told["errors"] == ["UNKNOWN_TOPIC_OR_PARTITION"]
    assert len(told["reasons"]) == len(looked) == REASONS_MAX
