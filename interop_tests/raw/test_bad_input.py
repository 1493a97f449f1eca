"""Random and malicious bytes: at most the connection is closed, never the broker. Acknowledged records stay."""

from __future__ import annotations

import contextlib
import random
import struct
from collections.abc import Callable
from typing import Any

import pytest

from interop_tests.harness.raw_kafka import fetch_records, produce, produce_body
from interop_tests.harness.records import BatchPlan
from interop_tests.harness.schema import message
from interop_tests.harness.wire import Connection, ConnectionClosed, Silence, encode_request_header, frame

Connect = Callable[..., Connection]
ROUNDS = 60
# Requests of these APIs are changed. None of them waits for long or changes data of other tests.
MANGLED = {
    "Produce": (3, 12),
    "Fetch": (4, 18),
    "ListOffsets": (1, 11),
    "Metadata": (0, 13),
    "OffsetCommit": (2, 10),
    "OffsetFetch": (1, 10),
    "FindCoordinator": (0, 6),
    "Heartbeat": (0, 4),
    "LeaveGroup": (0, 5),
    "SyncGroup": (0, 5),
    "DescribeGroups": (0, 6),
    "ListGroups": (0, 5),
    "ApiVersions": (0, 5),
    "CreateTopics": (2, 7),
    "DeleteTopics": (1, 6),
    "DeleteRecords": (0, 2),
    "InitProducerId": (0, 5),
    "OffsetForLeaderEpoch": (2, 4),
    "AddPartitionsToTxn": (0, 5),
    "AddOffsetsToTxn": (0, 4),
    "EndTxn": (0, 5),
    "WriteTxnMarkers": (1, 2),
    "TxnOffsetCommit": (0, 6),
    "DescribeTransactions": (0, 0),
    "ListTransactions": (0, 2),
    "DescribeConfigs": (1, 4),
    "IncrementalAlterConfigs": (0, 1),
    "DescribeLogDirs": (1, 5),
    "CreatePartitions": (0, 3),
    "DescribeCluster": (0, 2),
    "DescribeTopicPartitions": (0, 0),
}


@pytest.fixture
def kept(connect: Connect, topic: str) -> Any:
    """A topic with one acknowledged record. Afterwards the broker must answer and still have the record."""
    assert produce(connect(), topic, BatchPlan(values=[b"kept"]))["ErrorCode"] == 0
    yield topic
    connection = connect()
    assert connection.call("ApiVersions", 0, {})["ErrorCode"] == 0
    assert fetch_records(connection, topic)[0].value == b"kept"
    assert produce(connection, topic, BatchPlan())["ErrorCode"] == 0


def poke(connect: Connect, data: bytes) -> None:
    """Send bytes on a new connection and accept any result. Only the process must survive."""
    connection = connect(timeout_s=5)
    with contextlib.suppress(ConnectionClosed, Silence, OSError):
        connection.send_bytes(data)
        connection.receive_frame(timeout_s=0.2)
    connection.close()


@pytest.mark.parametrize("seed", range(3))
def test_random_bytes(seed: int, connect: Connect, kept: str) -> None:
    chance = random.Random(seed)
    for _ in range(ROUNDS):
        poke(connect, chance.randbytes(chance.randrange(1, 400)))


@pytest.mark.parametrize("seed", range(3))
def test_random_bodies_behind_good_headers(seed: int, connect: Connect, kept: str) -> None:
    chance = random.Random(seed)
    for name, (oldest, newest) in MANGLED.items():
        definition = message(name + "Request")
        for _ in range(3):
            version = chance.randint(oldest, newest)
            header = encode_request_header(definition.key, version, 1, "x", definition.flexible(version))
            poke(connect, frame(header + chance.randbytes(chance.randrange(0, 120))))


@pytest.mark.parametrize("name", MANGLED)
def test_absurd_lengths(name: str, connect: Connect, kept: str) -> None:
    """Every four bytes of a request in turn become a huge count. The broker allocates no memory for it."""
    definition = message(name + "Request")
    for version in MANGLED[name]:
        flexible = definition.flexible(version)
        body = definition.encode({}, version)
        header = encode_request_header(definition.key, version, 1, "x", flexible)
        absurd = b"\xff\xff\xff\xff\x07" if flexible else b"\x7f\xff\xff\xff"
        for position in range(0, min(len(body), 24), 4):
            poke(connect, frame(header + body[:position] + absurd + body[position + 4 :]))


def test_truncated_requests(connect: Connect, kept: str) -> None:
    """A frame that is shorter than its request, and a connection that ends in the middle of a frame."""
    _, request = connect().encode("Produce", 9, produce_body(kept, BatchPlan(values=[b"never"])))
    for size in range(0, len(request), 9):
        poke(connect, frame(request[:size]))
        poke(connect, frame(request)[: size + 4])


def test_a_promised_frame_that_never_comes(connect: Connect, kept: str) -> None:
    """Incomplete large frames do not delay other clients. (Kafka allocates their memory at once.)"""
    waiting = [connect() for _ in range(5)]
    for connection in waiting:
        connection.send_bytes(struct.pack(">i", 20_000_000) + b"\x00\x00")
    assert connect().call("ApiVersions", 0, {})["ErrorCode"] == 0
    assert waiting[0].is_silent(0.1)


@pytest.mark.parametrize("seed", range(4))
def test_flipped_bits_in_batches_never_reach_the_log(seed: int, connect: Connect, kept: str) -> None:
    chance = random.Random(seed)
    connection = connect()
    codec = ["none", "gzip", "lz4", "zstd"][seed]
    good = BatchPlan(values=[b"value %d" % each for each in range(5)], codec=codec).encode()
    for _ in range(ROUNDS):
        # Offset (8 bytes) and leader epoch (4 bytes) are written by the broker, so changed bits there do no damage.
        position = chance.choice([*range(8, 12), *range(16, len(good))])
        bad = bytearray(good)
        bad[position] ^= 1 << chance.randrange(8)
        try:
            assert produce(connection, kept, bytes(bad))["ErrorCode"] != 0
        except ConnectionClosed:
            connection = connect()
    assert [each.value for each in fetch_records(connection, kept)] == [b"kept"]


@pytest.mark.parametrize("seed", range(2))
def test_mutated_requests_of_every_kind(seed: int, connect: Connect, kept: str, unique: Any) -> None:
    """Complete requests with a few changed bytes."""
    chance = random.Random(seed)
    for name, (oldest, newest) in MANGLED.items():
        if name in ("CreateTopics", "Metadata", "DeleteTopics"):
            continue  # A changed request could create or delete topics of other tests.
        definition = message(name + "Request")
        for _ in range(3):
            version = chance.randint(oldest, newest)
            header = encode_request_header(definition.key, version, 1, "x", definition.flexible(version))
            request = bytearray(header + definition.encode({}, version))
            for _ in range(chance.randint(1, 4)):
                request[chance.randrange(8, len(request))] = chance.randrange(256)
            poke(connect, frame(bytes(request)))


def test_many_connections_that_say_nothing(connect: Connect, kept: str) -> None:
    idle = [connect() for _ in range(200)]
    assert connect().call("ApiVersions", 0, {})["ErrorCode"] == 0
    assert idle[0].call("ApiVersions", 0, {})["ErrorCode"] == 0
