"""The records that a broker accepts, refuses and stores."""

from __future__ import annotations

import struct
import time
from dataclasses import replace
from typing import Any

import crc32c
import pytest

from interop_tests.harness.raw_kafka import (
    ErrorCode,
    fetch_batches,
    fetch_records,
    list_offset,
    produce,
    produce_body,
    topic_id,
)
from interop_tests.harness.records import CODECS, BatchPlan, compress, encode_record, zigzag
from interop_tests.harness.waiting import wait_until
from interop_tests.harness.wire import Connection


def producer_id(connection: Connection) -> tuple[int, int]:
    """A new (producer id, epoch) for an idempotent producer."""
    body = {"TransactionalId": None, "TransactionTimeoutMs": 60000, "ProducerId": -1, "ProducerEpoch": -1}

    def ask() -> Any:
        # While the broker waits for its first block of ids, it answers with a retriable error.
        reply = connection.call("InitProducerId", 4, body)
        if reply["ErrorCode"] == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            assert reply["ProducerId"] == -1
            return None
        return reply

    reply = wait_until(ask, "there is a producer id")
    assert reply["ErrorCode"] == 0, reply
    assert reply["ProducerId"] >= 0
    assert reply["ProducerEpoch"] == 0
    return reply["ProducerId"], reply["ProducerEpoch"]


def values(connection: Connection, topic: str) -> list[bytes | None]:
    return [each.value for each in fetch_records(connection, topic)]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("version", [8, 12])
def test_every_codec_is_stored_as_sent(codec: str, version: int, connection: Connection, topic: str) -> None:
    plan = BatchPlan(values=[b"v" * 500, None, b""], keys=[b"k", b"", None], codec=codec)
    assert produce(connection, topic, plan, version=version)["ErrorCode"] == 0
    (batch,) = fetch_batches(connection, topic)
    assert batch.attributes & 7 == CODECS[codec]
    assert [(each.key, each.value) for each in batch.records] == [
        (b"k", b"v" * 500),
        (b"", None),
        (None, b""),
    ]
    assert batch.size == len(plan.encode())


def test_produce_v13_goes_by_topic_id(connection: Connection, topic: str) -> None:
    wanted = topic_id(connection, topic)
    body = produce_body(topic, BatchPlan())
    body["TopicData"][0].pop("Name")
    body["TopicData"][0]["TopicId"] = wanted
    (answer,) = connection.call("Produce", 13, body)["Responses"]
    assert answer["TopicId"] == wanted
    assert [(each["ErrorCode"], each["BaseOffset"]) for each in answer["PartitionResponses"]] == [(0, 0)]


@pytest.mark.parametrize(
    "data",
    [
        BatchPlan().encode() * 2,
        b"",
        BatchPlan(magic=1).encode(),
        BatchPlan(magic=0).encode(),
    ],
    ids=["two", "none", "magic-1", "magic-0"],
)
def test_one_batch_of_magic_2_a_partition(data: bytes, connection: Connection, topic: str) -> None:
    result = produce(connection, topic, data)
    assert result["ErrorCode"] == ErrorCode.INVALID_RECORD
    assert values(connection, topic) == []


def test_zstd_below_v7_is_refused(connection: Connection, topic: str) -> None:
    result = produce(connection, topic, BatchPlan(codec="zstd"), version=6)
    assert result["ErrorCode"] == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert produce(connection, topic, BatchPlan(codec="zstd"), version=7)["ErrorCode"] == 0


def test_base_offset_log_append_time_and_log_start(connection: Connection, make_topic: Any) -> None:
    topic = make_topic()
    produce(connection, topic, BatchPlan(values=[b"a"] * 3))
    result = produce(connection, topic, BatchPlan(values=[b"b"] * 2))
    assert (result["BaseOffset"], result["LogAppendTimeMs"], result["LogStartOffset"]) == (3, -1, 0)
    stamped = make_topic(configs={"message.timestamp.type": "LogAppendTime"})
    before = int(time.time() * 1000)
    result = produce(connection, stamped, BatchPlan(values=[b"a", b"b"]))
    assert before - 60_000 <= result["LogAppendTimeMs"] <= before + 60_000
    (batch,) = fetch_batches(connection, stamped)
    assert batch.attributes & 8 == 8
    assert {each.timestamp_ms for each in batch.records} == {result["LogAppendTimeMs"]}


def test_a_retried_batch_gets_its_first_offset(connection: Connection, topic: str) -> None:
    number, epoch = producer_id(connection)
    plans = [
        BatchPlan(values=[b"%d" % each], producer_id=number, producer_epoch=epoch, base_sequence=each)
        for each in range(7)
    ]
    for offset, plan in enumerate(plans):
        assert produce(connection, topic, plan)["BaseOffset"] == offset
    for offset, plan in list(enumerate(plans))[2:]:
        result = produce(connection, topic, plan)
        assert (result["ErrorCode"], result["BaseOffset"]) == (0, offset)
    too_old = produce(connection, topic, plans[0])
    assert too_old["ErrorCode"] in (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 46)
    assert values(connection, topic) == [b"%d" % each for each in range(7)]


def test_a_gap_in_sequence_is_refused(connection: Connection, topic: str) -> None:
    number, epoch = producer_id(connection)
    plan = BatchPlan(producer_id=number, producer_epoch=epoch, base_sequence=0)
    assert produce(connection, topic, plan)["ErrorCode"] == 0
    assert produce(connection, topic, replace(plan, base_sequence=5))["ErrorCode"] == 45
    assert produce(connection, topic, replace(plan, base_sequence=1))["ErrorCode"] == 0
    stranger = BatchPlan(producer_id=number + 1_000_000, producer_epoch=0, base_sequence=77)
    assert produce(connection, topic, stranger)["ErrorCode"] == 0, "an unknown producer may start anywhere"


def test_sequences_wrap_from_the_largest_to_zero(connection: Connection, topic: str) -> None:
    number, epoch = producer_id(connection)
    last = BatchPlan(producer_id=number, producer_epoch=epoch, base_sequence=2**31 - 1)
    assert produce(connection, topic, last)["ErrorCode"] == 0
    assert produce(connection, topic, replace(last, base_sequence=0))["ErrorCode"] == 0


def test_an_old_epoch_is_fenced_as_a_producer(connection: Connection, topic: str) -> None:
    number, _ = producer_id(connection)
    plan = BatchPlan(producer_id=number, producer_epoch=3, base_sequence=0)
    assert produce(connection, topic, plan)["ErrorCode"] == 0
    assert produce(connection, topic, replace(plan, producer_epoch=2))["ErrorCode"] == 47
    assert produce(connection, topic, replace(plan, producer_epoch=4))["ErrorCode"] == 0
    skipped = replace(plan, producer_epoch=5, base_sequence=9)
    assert produce(connection, topic, skipped)["ErrorCode"] == 45, "a new epoch starts at 0"


def test_init_producer_id_gives_each_its_own(connection: Connection) -> None:
    ids = [producer_id(connection)[0] for _ in range(50)]
    assert len(set(ids)) == 50


def test_larger_than_max_message_bytes(connection: Connection, make_topic: Any) -> None:
    topic = make_topic(configs={"max.message.bytes": "1000"})
    exact = 1000 - len(BatchPlan(values=[b""]).encode())
    fits = next(
        plan
        for plan in (BatchPlan(values=[bytes(size)]) for size in range(exact, 0, -1))
        if len(plan.encode()) <= 1000
    )
    assert len(fits.encode()) == 1000
    assert produce(connection, topic, fits)["ErrorCode"] == 0
    larger = BatchPlan(values=[bytes(len(fits.values[0] or b"") + 1)])
    assert produce(connection, topic, larger)["ErrorCode"] == ErrorCode.MESSAGE_TOO_LARGE
    squeezed = BatchPlan(values=[bytes(100_000)], codec="gzip")
    assert produce(connection, topic, squeezed)["ErrorCode"] == 0, "the limit is on the batch as sent"


@pytest.mark.parametrize("codec", CODECS)
def test_a_keyless_record_names_itself(codec: str, connection: Connection, make_topic: Any) -> None:
    topic = make_topic(configs={"cleanup.policy": "compact"})
    plan = BatchPlan(values=[b"a", b"b", b"c"], keys=[b"k", None, None], codec=codec)
    result = produce(connection, topic, plan, version=8)
    assert result["ErrorCode"] == ErrorCode.INVALID_RECORD
    assert [each["BatchIndex"] for each in result["RecordErrors"]] == [1, 2]
    assert values(connection, topic) == [], "the whole batch is refused"
    assert produce(connection, topic, plan, version=7)["ErrorCode"] == ErrorCode.INVALID_RECORD


def test_timestamps(connection: Connection, make_topic: Any) -> None:
    topic = make_topic()
    now = int(time.time() * 1000)
    future = produce(connection, topic, BatchPlan(base_timestamp_ms=now + 2 * 3600_000))
    assert future["ErrorCode"] == ErrorCode.INVALID_TIMESTAMP
    assert produce(connection, topic, BatchPlan(base_timestamp_ms=now + 1800_000))["ErrorCode"] == 0
    assert produce(connection, topic, BatchPlan(base_timestamp_ms=-1))["ErrorCode"] == 0
    assert [each.timestamp_ms for each in fetch_records(connection, topic)] == [now + 1800_000, -1]
    stamped = make_topic(configs={"message.timestamp.type": "LogAppendTime"})
    assert produce(connection, stamped, BatchPlan(base_timestamp_ms=now + 10**9))["ErrorCode"] == 0


def test_a_wrong_max_timestamp_is_put_right(connection: Connection, topic: str) -> None:
    plan = BatchPlan(values=[b"a", b"b"], timestamp_deltas=[5, 9], max_timestamp_ms=1_600_000_000_000)
    assert produce(connection, topic, plan)["ErrorCode"] == 0
    (batch,) = fetch_batches(connection, topic)
    assert [each.timestamp_ms for each in batch.records] == [
        plan.base_timestamp_ms + 5,
        plan.base_timestamp_ms + 9,
    ]
    assert batch.max_timestamp_ms == plan.base_timestamp_ms + 9


@pytest.mark.parametrize("codec", ["none", "gzip"])
@pytest.mark.parametrize(
    "change",
    [
        {"record_count": 3},
        {"record_count": 1},
        {"last_offset_delta": 5},
        {"record_count": -1},
        {"record_count": 0},
    ],
    ids=["too-many", "too-few", "offset-gap", "negative", "zero"],
)
def test_counts_and_offsets_must_agree(
    codec: str, change: dict[str, int], connection: Connection, topic: str
) -> None:
    plan = replace(BatchPlan(values=[b"a", b"b"], codec=codec), **change)
    assert produce(connection, topic, plan)["ErrorCode"] == ErrorCode.INVALID_RECORD
    assert values(connection, topic) == []


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_inner_offsets_must_be_consecutive(codec: str, connection: Connection, topic: str) -> None:
    """Kafka checks them in compressed batches only, and answers with the general error."""
    records = encode_record(0, None, b"a") + encode_record(2, None, b"b")
    plan = BatchPlan(values=[b"a", b"b"], records=records, codec=codec)
    refusals = (ErrorCode.INVALID_RECORD, ErrorCode.UNKNOWN_SERVER_ERROR)
    assert produce(connection, topic, plan)["ErrorCode"] in refusals
    assert values(connection, topic) == []


BROKEN_RECORDS = {
    "short-length": zigzag(3) + encode_record(0, None, b"abcdef")[1:],
    "trailing-in-record": zigzag(12) + encode_record(0, None, b"abc")[1:] + b"\0\0",
    "trailing-after-last": encode_record(0, None, b"abc") + b"\x00\x00\x00",
    "negative-headers": zigzag(7) + b"\x00\x00\x00" + zigzag(-1) + zigzag(1) + b"a" + zigzag(-1),
    "key-past-end": zigzag(7) + b"\x00\x00\x00" + zigzag(60) + b"abc",
}


# Kafka skips compressed records by their parts, and does not notice a length that is too short.
@pytest.mark.parametrize(
    ("name", "codec"),
    [
        (name, codec)
        for name in BROKEN_RECORDS
        for codec in ("none", "lz4")
        if (name, codec) != ("short-length", "lz4")
    ],
)
def test_malformed_records_behind_a_good_crc(
    name: str, codec: str, connection: Connection, topic: str
) -> None:
    plan = BatchPlan(values=[b"abc"], records=BROKEN_RECORDS[name], codec=codec)
    assert produce(connection, topic, plan)["ErrorCode"] == ErrorCode.INVALID_RECORD
    assert values(connection, topic) == []


def test_a_wrong_crc_is_corrupt(connection: Connection, topic: str) -> None:
    good = BatchPlan().encode()
    for data in (
        BatchPlan(crc=12345).encode(),
        good[:-1] + bytes([good[-1] ^ 1]),
        good[:22] + b"\x40" + good[23:],
    ):
        assert produce(connection, topic, data)["ErrorCode"] == ErrorCode.CORRUPT_MESSAGE
    assert values(connection, topic) == []


@pytest.mark.parametrize("length", [-1, 0, 10, 48, 2**31 - 1])
def test_a_wrong_batch_length(length: int, connection: Connection, topic: str) -> None:
    result = produce(connection, topic, BatchPlan(batch_length=length))
    refusals = (ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD, ErrorCode.UNKNOWN_SERVER_ERROR)
    assert result["ErrorCode"] in refusals
    assert values(connection, topic) == []


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_a_payload_that_does_not_decompress(codec: str, connection: Connection, topic: str) -> None:
    whole = BatchPlan(values=[b"v" * 1000], codec=codec).encode()
    head, payload = bytearray(whole[:61]), whole[61:]
    broken = b"\xff" * len(payload)
    body = bytes(head[21:]) + broken
    head[17:21] = struct.pack(">I", crc32c.crc32c(body))
    result = produce(connection, topic, bytes(head) + broken)
    assert result["ErrorCode"] != 0
    assert values(connection, topic) == []
    assert produce(connection, topic, BatchPlan())["ErrorCode"] == 0


def test_internal_topics_are_not_for_clients(connection: Connection, connect: Any, unique: Any) -> None:
    from interop_tests.harness.groups import coordinator

    coordinator(connection, unique("group"))
    result = produce(connection, "__consumer_offsets", BatchPlan(values=[b"x"], keys=[b"k"]))
    assert result["ErrorCode"] == ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.mark.parametrize("acks", [2, -2, 5])
def test_other_acks_are_refused(acks: int, connection: Connection, topic: str) -> None:
    assert produce(connection, topic, BatchPlan(), acks=acks)["ErrorCode"] == ErrorCode.INVALID_REQUIRED_ACKS
    assert values(connection, topic) == []


def test_null_records_do_no_harm(connect: Any, topic: str) -> None:
    """Kafka never answers them. INVALID_RECORD is also accepted here. Other requests are served in both cases."""
    connection = connect()
    number = connection.send("Produce", 9, produce_body(topic, None))
    if not connection.is_silent(1.0):
        reply = connection.receive("Produce", 9, number)
        (result,) = reply["Responses"][0]["PartitionResponses"]
        assert result["ErrorCode"] == ErrorCode.INVALID_RECORD
    assert values(connect(), topic) == []
    assert produce(connect(), topic, BatchPlan())["BaseOffset"] == 0


def test_snappy_bare_and_framed(connection: Connection, topic: str) -> None:
    record = encode_record(0, None, b"framed")
    block = compress("snappy", record)
    framed = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1) + struct.pack(">i", len(block)) + block
    head = bytearray(BatchPlan(values=[b"framed"], codec="snappy", records=record).encode()[:61])
    head[8:12] = struct.pack(">i", 49 + len(framed))
    head[17:21] = struct.pack(">I", crc32c.crc32c(bytes(head[21:]) + framed))
    assert produce(connection, topic, bytes(head) + framed)["ErrorCode"] == 0
    assert produce(connection, topic, BatchPlan(values=[b"bare"], codec="snappy"))["ErrorCode"] == 0
    assert values(connection, topic) == [b"framed", b"bare"]


def test_log_append_time_is_the_topics_choice(connection: Connection, topic: str) -> None:
    assert produce(connection, topic, BatchPlan(attributes=8))["ErrorCode"] == 0
    (batch,) = fetch_batches(connection, topic)
    assert batch.attributes & 8 == 0
    assert batch.records[0].timestamp_ms == BatchPlan().base_timestamp_ms


def test_a_partition_twice_in_one_request(connection: Connection, topic: str) -> None:
    body = produce_body(topic, BatchPlan(values=[b"one"]))
    body["TopicData"] *= 2
    reply = connection.call("Produce", 9, body)
    results = [each for of_topic in reply["Responses"] for each in of_topic["PartitionResponses"]]
    assert [each["ErrorCode"] for each in results] == [0]
    assert values(connection, topic) == [b"one"]


def test_control_batches_from_clients_are_refused(connection: Connection, topic: str) -> None:
    """A client must not write a transaction marker."""
    number, epoch = producer_id(connection)
    marker = BatchPlan(
        values=[bytes(6)],
        keys=[bytes(4)],
        attributes=0x20,
        producer_id=number,
        producer_epoch=epoch,
        base_sequence=-1,
    )
    assert produce(connection, topic, marker)["ErrorCode"] == ErrorCode.INVALID_RECORD
    transactional = replace(marker, attributes=0x30)
    assert produce(connection, topic, transactional)["ErrorCode"] != 0
    assert list_offset(connection, topic, 0, -1)[1] == 0


def test_unknown_topics_and_partitions(connection: Connection, topic: str, unique: Any) -> None:
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert produce(connection, topic, BatchPlan(), partition=9)["ErrorCode"] == unknown
    assert produce(connection, topic, BatchPlan(), partition=-1)["ErrorCode"] == unknown
    assert produce(connection, unique("nowhere"), BatchPlan())["ErrorCode"] == unknown


@pytest.mark.parametrize("codec", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_compression_type_of_the_topic_wins(codec: str, connection: Connection, make_topic: Any) -> None:
    topic = make_topic(configs={"compression.type": codec})
    for sent in ("none", "gzip", "lz4"):
        plan = BatchPlan(values=[b"v" * 300, b"w"], keys=[b"k", None], codec=sent, timestamp_deltas=[3, 1])
        assert produce(connection, topic, plan)["ErrorCode"] == 0
    batches = fetch_batches(connection, topic)
    assert {batch.attributes & 7 for batch in batches} == {
        CODECS["none" if codec == "uncompressed" else codec]
    }
    for batch in batches:
        assert [(each.key, each.value) for each in batch.records] == [(b"k", b"v" * 300), (None, b"w")]
        assert batch.max_timestamp_ms == BatchPlan().base_timestamp_ms + 3
    assert [each.offset for batch in batches for each in batch.records] == list(range(6))
