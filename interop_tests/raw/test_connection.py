"""Frames, headers, handshake and version ranges."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable
from typing import Any

import pytest

from interop_tests.harness.raw_kafka import (
    ErrorCode,
    fetch_body,
    fetch_records,
    list_offset,
    metadata,
    produce,
    produce_body,
)
from interop_tests.harness.records import BatchPlan
from interop_tests.harness.schema import Reader
from interop_tests.harness.wire import Connection, Silence, decode_response, encode_request_header, frame
from kafkacompat.api.registry import BROKER_APIS
from kafkacompat.wire.apis import APIS, ApiKey

Connect = Callable[..., Connection]

# APIs that old clients use at their oldest version, with a body that is valid at all of them.
ANY_METADATA = {"Topics": [{"Name": "nowhere-to-be-found"}], "AllowAutoTopicCreation": False}
FEATURES = {
    "eligible.leader.replicas.version": (0, 1),
    "group.version": (0, 1),
    "kraft.version": (0, 1),
    "metadata.version": (7, 33),
    "share.version": (0, 2),
    "transaction.version": (0, 2),
}
"""Of Kafka 4.4. Not every broker has streams.version."""
SOFTWARE = {"ClientSoftwareName": "interop", "ClientSoftwareVersion": "1.0"}


def ranges(connection: Connection, version: int = 4) -> dict[int, tuple[int, int]]:
    """The version ranges that the broker advertises, by API key."""
    reply = connection.call("ApiVersions", version, SOFTWARE)
    assert reply["ErrorCode"] == 0
    return {each["ApiKey"]: (each["MinVersion"], each["MaxVersion"]) for each in reply["ApiKeys"]}


def assert_alive(connect: Connect) -> None:
    """Check that the broker still answers a new connection."""
    assert connect().call("ApiVersions", 0, {})["ErrorCode"] == 0


@pytest.mark.parametrize(
    "data",
    [
        struct.pack(">i", -1),
        struct.pack(">i", -(2**31)),
        struct.pack(">i", 104_857_601),
        struct.pack(">i", 2**31 - 1),
        struct.pack(">i", 0),
        struct.pack(">i", 3) + b"abc",
        b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ],
    ids=["minus-one", "most-negative", "over-limit", "largest", "empty", "tiny", "http", "tls"],
)
def test_a_broken_frame_closes_the_connection_silently(data: bytes, connect: Connect) -> None:
    connection = connect()
    connection.send_bytes(data)
    assert connection.is_closed_by_peer()
    assert_alive(connect)


def test_a_frame_may_come_byte_by_byte(connection: Connection) -> None:
    number, request = connection.encode("ApiVersions", 3, SOFTWARE)
    for byte in frame(request):
        connection.send_bytes(bytes([byte]))
    assert connection.receive("ApiVersions", 3, number)["ErrorCode"] == 0


def test_replies_come_in_the_order_of_requests(connection: Connection, topic: str) -> None:
    """A waiting fetch delays the responses to later requests on its connection."""
    waiting = connection.send("Fetch", 12, fetch_body(topic, 0, MaxWaitMs=700, MinBytes=1))
    after = connection.send("ApiVersions", 0, {})
    started = time.monotonic()
    reply = connection.receive("Fetch", 12, waiting)
    assert time.monotonic() - started > 0.5
    assert reply["ErrorCode"] == 0
    assert connection.receive("ApiVersions", 0, after)["ErrorCode"] == 0


def test_pipelined_requests_in_one_segment_are_all_answered(connection: Connection, topic: str) -> None:
    sent, data = [], b""
    for value in range(50):
        number, request = connection.encode(
            "Produce", 9, produce_body(topic, BatchPlan(values=[b"%d" % value]))
        )
        sent.append(number)
        data += frame(request)
    connection.send_bytes(data)
    offsets = [
        connection.receive("Produce", 9, number)["Responses"][0]["PartitionResponses"][0]["BaseOffset"]
        for number in sent
    ]
    assert offsets == list(range(50))
    assert [each.value for each in fetch_records(connection, topic)] == [b"%d" % each for each in range(50)]


@pytest.mark.parametrize(
    ("key", "version"),
    [(999, 0), (-1, 0), (3, 99), (3, -1), (1, 3), (1, 99), (0, 2), (0, 99), (11, 99), (4, 0), (5, 0), (6, 0)],
)
def test_unknown_apis_and_versions_close_the_connection(key: int, version: int, connect: Connect) -> None:
    connection = connect()
    connection.send_bytes(frame(encode_request_header(key, version, 1, "interop", False) + bytes(40)))
    assert connection.is_closed_by_peer()
    assert_alive(connect)


@pytest.mark.parametrize("version", [1, 12])
def test_an_undecodable_body_closes_the_connection(version: int, connect: Connect) -> None:
    connection = connect()
    header = encode_request_header(3, version, 1, "interop", version >= 9)
    connection.send_bytes(frame(header + b"\x7f\xff\xff\xff\x7f"))
    assert connection.is_closed_by_peer()
    assert_alive(connect)


@pytest.mark.parametrize("key", [52, 53, 54, 56, 58, 59, 62, 63, 67, 70], ids=lambda key: f"api{key}")
def test_controller_apis_on_a_broker_listener_close_the_connection(key: int, connect: Connect) -> None:
    connection = connect()
    connection.send_bytes(frame(encode_request_header(key, 0, 1, "interop", True) + bytes(64)))
    assert connection.is_closed_by_peer()


def test_trailing_bytes_after_the_body_are_ignored(connection: Connection) -> None:
    for version in (1, 12):
        number, request = connection.encode("Metadata", version, ANY_METADATA)
        connection.send_bytes(frame(request + b"left over"))
        assert connection.receive("Metadata", version, number)["Brokers"]


@pytest.mark.parametrize("client_id", [None, "", "ünïcode", "x" * 300])
@pytest.mark.parametrize("version", [0, 1, 8, 9, 13])
def test_client_ids_in_both_headers(client_id: str | None, version: int, connect: Connect) -> None:
    """Headers that Kafka accepts are accepted. The client id keeps its 16-bit length in flexible versions."""
    assert connect(client_id=client_id).call("Metadata", version, ANY_METADATA)["Brokers"]


@pytest.mark.parametrize("version", range(5))
def test_api_versions_replies_have_header_v0(version: int, connection: Connection) -> None:
    number = connection.send("ApiVersions", version, SOFTWARE, correlation_id=0x01020304)
    payload = connection.receive_frame()
    assert payload[:4] == b"\x01\x02\x03\x04"
    assert payload[4:6] == b"\x00\x00", "the error code follows the correlation id at once"
    assert decode_response(payload, "ApiVersions", version, number)["ApiKeys"]


def test_unknown_tagged_fields_are_skipped(connection: Connection) -> None:
    """In the header and in nested structures; in any order, even twice."""
    unknown = b"\x03\xe8\x07\x02ab\x05\x01c\x05\x00"
    number, request = connection.encode("Metadata", 12, {"Topics": []}, header_tags=unknown)
    connection.send_bytes(frame(request[:-1] + unknown))
    assert connection.receive("Metadata", 12, number)["Brokers"]
    topic = b"\x02" + bytes(16) + b"\x08nowhere" + b"\x01\x64\x03xyz"
    header = encode_request_header(3, 12, 77, "interop", True)
    connection.send_bytes(frame(header + topic + b"\x00\x00\x00"))
    (answer,) = connection.receive("Metadata", 12, 77)["Topics"]
    assert answer["Name"] == "nowhere"


def test_a_tag_that_runs_past_the_frame_closes_the_connection(connect: Connect) -> None:
    connection = connect()
    _, request = connection.encode("Metadata", 12, {"Topics": []})
    connection.send_bytes(frame(request[:-1] + b"\x01\x05\x7fshort"))
    assert connection.is_closed_by_peer()


@pytest.mark.parametrize("count", [10_000, 10_001])
def test_more_than_ten_thousand_tagged_fields_close_the_connection(connect: Connect, count: int) -> None:
    connection = connect(timeout_s=10.0)
    base = encode_request_header(18, 3, 1, "interop", True) + b"\x02a\x02b"
    tags = bytes([count & 0x7F | 0x80, count >> 7]) + b"".join(
        _uvarint(tag) + b"\x00" for tag in range(100, 100 + count)
    )
    connection.send_bytes(frame(base + tags))
    if count > 10_000:
        assert connection.is_closed_by_peer()
    else:
        assert connection.receive("ApiVersions", 3, 1)["ErrorCode"] == 0


@pytest.mark.parametrize("count", [1_000_001, 0x7FFFFFFF])
def test_an_array_of_more_than_a_million_elements_closes_the_connection(connect: Connect, count: int) -> None:
    connection = connect(timeout_s=10.0)
    header = encode_request_header(3, 1, 1, "interop", False)
    # The names are there as far as they fit: each is empty.
    names = b"\x00\x00" * min(count, 1_000_001)
    connection.send_bytes(frame(header + struct.pack(">i", count) + names))
    assert connection.is_closed_by_peer()


def _uvarint(number: int) -> bytes:
    """Of at most 21 bits."""
    if number < 0x80:
        return bytes([number])
    if number < 0x4000:
        return bytes([number & 0x7F | 0x80, number >> 7])
    return bytes([number & 0x7F | 0x80, number >> 7 & 0x7F | 0x80, number >> 14])


def test_a_nullable_structure_may_be_null_or_there(connection: Connection, make_topic: Any) -> None:
    names = sorted(make_topic(partitions=2) for _ in range(2))
    asked = [{"Name": name} for name in names]
    body = {"Topics": asked, "ResponsePartitionLimit": 2000, "Cursor": None}
    reply = connection.call("DescribeTopicPartitions", 0, body)
    assert [each["Name"] for each in reply["Topics"]] == names
    assert reply["NextCursor"] is None
    reply = connection.call(
        "DescribeTopicPartitions", 0, body | {"Cursor": {"TopicName": names[1], "PartitionIndex": 1}}
    )
    assert [(each["Name"], len(each["Partitions"])) for each in reply["Topics"]] == [(names[1], 1)]


@pytest.mark.parametrize("length", [b"\xff" * 5 + b"\x01", b"\x80" * 6 + b"\x01"])
def test_an_overlong_varint_closes_the_connection(length: bytes, connect: Connect) -> None:
    connection = connect()
    header = encode_request_header(3, 12, 1, "interop", True)
    connection.send_bytes(frame(header + length + bytes(20)))
    assert connection.is_closed_by_peer()


def test_any_byte_but_zero_is_true(connection: Connection, unique: Any) -> None:
    """Metadata v4 with the auto-creation flag set to 2 creates the topic."""
    name = unique("bool").encode()
    header = encode_request_header(3, 4, 5, "interop", False)
    body = struct.pack(">ih", 1, len(name)) + name + b"\x02"
    connection.send_bytes(frame(header + body))
    connection.receive("Metadata", 4, 5)
    deadline = time.monotonic() + 15
    while metadata(connection, name.decode())["ErrorCode"] != 0:
        assert time.monotonic() < deadline, "the flag was taken as false"
        time.sleep(0.05)


def test_acks_0_is_never_answered(connection: Connection, topic: str) -> None:
    for value in range(3):
        connection.send("Produce", 9, produce_body(topic, BatchPlan(values=[b"%d" % value]), acks=0))
    assert connection.is_silent(0.3)
    assert list_offset(connection, topic, 0, -1)[1] == 3, "the next reply belongs to the next request"


def test_an_error_with_acks_0_closes_the_connection(connect: Connect, unique: Any) -> None:
    connection = connect()
    connection.send("Produce", 9, produce_body(unique("nowhere"), BatchPlan(), acks=0))
    assert connection.is_closed_by_peer()


def test_throttle_time_is_first_or_last_and_zero(connection: Connection, topic: str) -> None:
    reply = connection.call("Produce", 9, produce_body(topic, BatchPlan()))
    assert reply["ThrottleTimeMs"] == 0
    assert connection.call("Metadata", 3, ANY_METADATA)["ThrottleTimeMs"] == 0
    assert "ThrottleTimeMs" not in connection.call("Metadata", 2, ANY_METADATA)
    assert "ThrottleTimeMs" not in connection.call("FindCoordinator", 0, {"Key": "group", "KeyType": 0})


@pytest.mark.parametrize("number", [0, -1, -(2**31), 2**31 - 1])
def test_correlation_ids_are_echoed(number: int, connection: Connection) -> None:
    sent = connection.send("Metadata", 12, ANY_METADATA, correlation_id=number)
    assert connection.receive("Metadata", 12, sent)["Brokers"]


def test_every_partition_asked_for_is_in_a_refusal(connection: Connection, topic: str) -> None:
    partitions = [{"Index": each, "Records": BatchPlan().encode()} for each in (0, 7, 9)]
    body = {
        "TransactionalId": None,
        "Acks": 5,
        "TimeoutMs": 1000,
        "TopicData": [{"Name": topic, "PartitionData": partitions}],
    }
    reply = connection.call("Produce", 9, body)
    results = reply["Responses"][0]["PartitionResponses"]
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert {each["Index"]: each["ErrorCode"] for each in results} == {
        0: ErrorCode.INVALID_REQUIRED_ACKS,
        7: unknown,
        9: unknown,
    }


@pytest.mark.parametrize("version", [6, 99, 32767])
def test_api_versions_too_new_is_answered_as_v0(version: int, connection: Connection) -> None:
    """The connection stays open. The body is not read."""
    header = encode_request_header(18, version, 4711, "interop", True)
    connection.send_bytes(frame(header + b"\xff\xfe\xfdgarbage"))
    reply = decode_response(connection.receive_frame(), "ApiVersions", 0, 4711)
    assert reply["ErrorCode"] == ErrorCode.UNSUPPORTED_VERSION
    assert reply["ApiKeys"] == [{"ApiKey": 18, "MinVersion": 0, "MaxVersion": 5}]
    assert connection.call("ApiVersions", 4, SOFTWARE)["ErrorCode"] == 0


@pytest.mark.parametrize("name", ["", "-lib", "lib-", "li b", "lib!", "bücher"])
@pytest.mark.parametrize("version", [3, 4])
def test_software_names_are_checked(name: str, version: int, connection: Connection) -> None:
    reply = connection.call("ApiVersions", version, SOFTWARE | {"ClientSoftwareName": name})
    assert (reply["ErrorCode"], reply["ApiKeys"]) == (ErrorCode.INVALID_REQUEST, [])
    reply = connection.call("ApiVersions", version, SOFTWARE | {"ClientSoftwareVersion": name})
    assert (reply["ErrorCode"], reply["ApiKeys"]) == (ErrorCode.INVALID_REQUEST, [])
    assert connection.call("ApiVersions", version, SOFTWARE)["ErrorCode"] == 0


def test_produce_is_advertised_from_0_and_refused_below_3(connect: Connect) -> None:
    assert ranges(connect())[0] == (0, APIS[ApiKey.PRODUCE].latest)
    for version in (0, 1, 2):
        connection = connect()
        connection.send_bytes(frame(encode_request_header(0, version, 1, "interop", False) + bytes(10)))
        assert connection.is_closed_by_peer()


def test_ranges_are_those_of_kafka(connection: Connection) -> None:
    """Old clients find their old versions, new clients the newest. Kafka may serve more APIs."""
    served = {each.key: (each.advertised_min_version, each.max_version) for each in BROKER_APIS.entries}
    found = ranges(connection)
    assert {key: found.get(key) for key in served} == served


def test_topic_id_versions_come_together(connection: Connection) -> None:
    found = ranges(connection)
    newest = {key: high for key, (_, high) in found.items()}
    if newest[0] >= 13 or newest[1] >= 13 or newest[8] >= 10 or newest[9] >= 10:
        assert newest[3] >= 12, "Metadata must give the ids"


def test_telemetry_is_not_advertised_without_a_reporter(connection: Connection) -> None:
    found = ranges(connection)
    assert 71 not in found
    assert 72 not in found


def test_a_version_that_is_not_advertised_closes_the_connection(connect: Connect) -> None:
    advertised = ranges(connect())
    for key in [each for each in range(93) if each not in advertised][:40]:
        connection = connect()
        connection.send_bytes(frame(encode_request_header(key, 0, 1, "interop", True) + bytes(16)))
        assert connection.is_closed_by_peer(), f"API {key}"


@pytest.mark.parametrize("version", [0, 3, 4])
def test_features(version: int, connection: Connection) -> None:
    """Features with a minimum of 0 are hidden below version 4. The epoch is known. The maximum comes before the
    minimum."""
    reply = connection.call("ApiVersions", version, SOFTWARE)
    supported = reply.get("SupportedFeatures", [])
    if version == 0:
        assert "SupportedFeatures" not in reply
        assert "FinalizedFeatures" not in reply
        return
    if version == 3:
        assert all(each["MinVersion"] > 0 for each in supported)
    levels = {each["Name"]: (each["MinVersion"], each["MaxVersion"]) for each in supported}
    levels.pop("streams.version", None)
    assert levels == (FEATURES if version == 4 else {"metadata.version": FEATURES["metadata.version"]})
    assert reply["FinalizedFeaturesEpoch"] >= 0
    for each in reply["FinalizedFeatures"]:
        assert each["MaxVersionLevel"] >= each["MinVersionLevel"]


@pytest.mark.parametrize("version", [0, 1])
def test_sasl_without_sasl_is_an_error_not_a_close(version: int, connection: Connection) -> None:
    reply = connection.call("SaslHandshake", version, {"Mechanism": "PLAIN"})
    assert reply["ErrorCode"] == ErrorCode.ILLEGAL_SASL_STATE
    reply = connection.call("SaslAuthenticate", 2, {"AuthBytes": b"\0user\0password"})
    assert reply["ErrorCode"] == ErrorCode.ILLEGAL_SASL_STATE
    assert connection.call("Metadata", 12, ANY_METADATA)["Brokers"]


@pytest.mark.parametrize("version", range(7))
def test_find_coordinator_alone_and_in_batches(version: int, connection: Connection, unique: Any) -> None:
    group = unique("group")
    deadline = time.monotonic() + 20
    while True:
        if version < 4:
            found = connection.call("FindCoordinator", version, {"Key": group, "KeyType": 0})
        else:
            reply = connection.call(
                "FindCoordinator", version, {"KeyType": 0, "CoordinatorKeys": [group, group + "2"]}
            )
            assert sorted(each["Key"] for each in reply["Coordinators"]) == sorted([group, group + "2"])
            found = reply["Coordinators"][0]
        if found["ErrorCode"] == 0:
            break
        assert found["ErrorCode"] == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert found["Port"] > 0


@pytest.mark.parametrize("version", range(3, 13))
def test_produce_at_every_version(version: int, connection: Connection, make_topic: Any) -> None:
    """Several partitions in one response, decoded to the last byte."""
    topic = make_topic(partitions=3)
    partitions = [{"Index": each, "Records": BatchPlan().encode()} for each in range(3)]
    body = {
        "TransactionalId": None,
        "Acks": -1,
        "TimeoutMs": 5000,
        "TopicData": [{"Name": topic, "PartitionData": partitions}],
    }
    reply = connection.call("Produce", version, body)
    results = reply["Responses"][0]["PartitionResponses"]
    assert sorted((each["Index"], each["ErrorCode"], each["BaseOffset"]) for each in results) == [
        (0, 0, 0),
        (1, 0, 0),
        (2, 0, 0),
    ]


@pytest.mark.parametrize("version", range(4, 19))
def test_fetch_at_every_version(version: int, connection: Connection, topic: str) -> None:
    """No preferred read replica, no aborted transactions, and every byte of the response in its place."""
    produce(connection, topic, BatchPlan(values=[b"a", b"b"]))
    body = fetch_body(topic, 0)
    asked = dict(body["Topics"][0])
    if version >= 13:
        asked.pop("Topic")
        asked["TopicId"] = metadata(connection, topic)["TopicId"]
    if version >= 15:
        body.pop("ReplicaId")
    reply = connection.call("Fetch", version, body | {"Topics": [asked]})
    (result,) = reply["Responses"][0]["Partitions"]
    assert (result["ErrorCode"], result["HighWatermark"]) == (0, 2)
    assert result.get("PreferredReadReplica", -1) == -1
    assert result["AbortedTransactions"] is None
    assert "DivergingEpoch" not in result
    assert "CurrentLeader" not in result


def test_header_is_not_confused_by_a_short_read(connect: Connect) -> None:
    """A request whose header ends early is refused without damage."""
    connection = connect()
    connection.send_bytes(frame(struct.pack(">hhi", 3, 1, 9)))
    assert connection.is_closed_by_peer()
    reader = Reader(b"\x05")
    assert reader.uvarint() == 5
    assert_alive(connect)


def test_the_first_part_of_a_response_stays_after_a_silence() -> None:
    """Of the tests' own connection. It lost the length, and took the next bytes for one."""
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        Connection(f"127.0.0.1:{listener.getsockname()[1]}") as connection,
        listener.accept()[0] as peer,
    ):
        for piece in (b"\0\0", b"\0\5hel"):
            peer.sendall(piece)
            assert not connection.is_silent(20)
            with pytest.raises(Silence):
                connection.receive_frame(0)
        peer.sendall(b"lo\0\0\0\1!")
        assert (connection.receive_frame(20), connection.receive_frame(20)) == (b"hello", b"!")
