"""Golden bytes that Kafka 4.3's own tools accepted, and encoding and decoding of the header."""

from __future__ import annotations

import gzip
import struct
import zlib

import lz4.frame
import pytest
from crc32c import crc32c
from hypothesis import example, given
from hypothesis import strategies as st

from kafkacompat.records.batch import (
    BatchCorrupt,
    build_batch,
    build_plain_batch,
    crc_of,
    has_valid_crc,
    iterate_batches,
    parse_header,
    stamp_offset_and_epoch,
    stamp_timestamp,
)
from kafkacompat.records.compression import LZ4, DecompressionFailed
from kafkacompat.records.control import (
    ControlType,
    build_control_batch,
    build_end_transaction_marker,
    parse_control_key,
    parse_end_transaction_marker,
)
from kafkacompat.records.read import records_of
from kafkacompat.records.record import Record

NOW_MS = 1_700_000_000_000
TWO_RECORDS = bytes.fromhex(
    "0000000000000005 00000047 00000003 02 c004e5b8 0000 00000001 0000018bcfe56800 0000018bcfe56801"
    "0000000000000007 0000 00000000 00000002 18 00 00 00 02 6b 02 76 02 02 68 02 31 10 00 02 02 01 04 7632 00"
)
COMMIT = bytes.fromhex(
    "0000000000000007 00000042 00000003 02 c45be76e 0030 00000000 0000018bcfe56802 0000018bcfe56802"
    "0000000000000007 0000 ffffffff 00000001 20 00 00 00 08 00000001 0c 0000 00000009 00"
)
RECORDS = [
    Record(0, NOW_MS, b"k", b"v", (("h", b"1"),)),
    Record(1, NOW_MS + 1, None, b"v2"),
]


def test_two_records_are_the_bytes_that_kafka_accepts() -> None:
    batch = build_batch(
        RECORDS, base_offset=5, leader_epoch=3, producer_id=7, producer_epoch=0, base_sequence=0
    )
    assert bytes(batch) == TWO_RECORDS


@given(
    st.lists(
        st.tuples(
            st.sampled_from([0, 1, 63, 64, 400, 900, 999, 1000, 9000]).map(bytes),
            st.none() | st.sampled_from([0, 1, 63, 64, 99, 100, 599, 600, 1000, 9000]).map(bytes),
        ),
        min_size=1,
        max_size=5,
    ),
    st.integers(0, 1 << 50),
    st.sampled_from([-1, 0]),
)
@example([(b"k", b"v")] * 1002, 1_700_000_000_000, -1)
def test_keys_and_values_are_the_same_batch_in_both_ways(
    pairs: list[tuple[bytes, bytes | None]], timestamp_ms: int, sequence: int
) -> None:
    records = [Record(delta, timestamp_ms, key, value) for delta, (key, value) in enumerate(pairs)]
    expected = build_batch(records, base_sequence=sequence)
    assert build_plain_batch(pairs, timestamp_ms, sequence) == expected


def test_commit_marker_is_the_bytes_that_kafka_accepts() -> None:
    batch = build_end_transaction_marker(
        committed=True,
        coordinator_epoch=9,
        producer_id=7,
        producer_epoch=0,
        timestamp_ms=NOW_MS + 2,
        base_offset=7,
        leader_epoch=3,
    )
    assert bytes(batch) == COMMIT
    header = parse_header(batch)
    assert header.is_control
    assert header.is_transactional
    ((offset, record),) = records_of(batch, header)
    marker = parse_end_transaction_marker(record)
    assert offset == 7
    assert marker is not None
    assert marker.committed
    assert marker.coordinator_epoch == 9


def test_crc_check_value() -> None:
    assert crc32c(b"123456789") == 0xE3069283


def test_header_fields() -> None:
    header = parse_header(TWO_RECORDS)
    assert (header.base_offset, header.last_offset, header.size, header.leader_epoch) == (5, 6, 83, 3)
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.last_sequence) == (
        7,
        0,
        0,
        1,
    )
    assert (header.base_timestamp_ms, header.max_timestamp_ms, header.record_count) == (NOW_MS, NOW_MS + 1, 2)
    assert has_valid_crc(TWO_RECORDS, header)
    assert [(o, r._replace(offset_delta=o - 5)) for o, r in records_of(TWO_RECORDS, header)] == [
        (5, RECORDS[0]),
        (6, RECORDS[1]),
    ]


def test_last_sequence_wraps_to_zero() -> None:
    batch = build_batch(RECORDS, producer_id=1, producer_epoch=0, base_sequence=2**31 - 1)
    assert parse_header(batch).last_sequence == 0


def test_stamping_offset_and_epoch_leaves_the_crc_valid() -> None:
    batch = build_batch(RECORDS)
    stamp_offset_and_epoch(batch, 1 << 40, 77)
    header = parse_header(batch)
    assert (header.base_offset, header.leader_epoch) == (1 << 40, 77)
    assert has_valid_crc(batch, header)


@pytest.mark.parametrize("append_time", [True, False])
def test_stamping_the_timestamp_renews_the_crc(append_time: bool) -> None:
    batch = build_batch(RECORDS, log_append_time_ms=None if append_time else 5)
    stamp_timestamp(batch, log_append_time=append_time, max_timestamp_ms=99)
    header = parse_header(batch)
    assert header.is_log_append_time is append_time
    assert header.max_timestamp_ms == 99
    assert crc_of(batch) == header.crc


def test_iteration_leaves_out_a_cut_off_batch() -> None:
    both = TWO_RECORDS + COMMIT
    assert [h.base_offset for h in iterate_batches(both)] == [5, 7]
    for cut in range(len(TWO_RECORDS), len(both)):
        assert [h.base_offset for h in iterate_batches(both[:cut])] == [5]


@pytest.mark.parametrize("length", [-1, 0, 13, 48])
def test_impossible_lengths_are_corrupt(length: int) -> None:
    damaged = bytearray(TWO_RECORDS)
    struct.pack_into(">i", damaged, 8, length)
    with pytest.raises(BatchCorrupt):
        list(iterate_batches(damaged))


def test_unknown_magic_is_corrupt() -> None:
    damaged = bytearray(TWO_RECORDS)
    damaged[16] = 3
    with pytest.raises(BatchCorrupt):
        list(iterate_batches(damaged))


def test_control_batch_of_raft() -> None:
    batch = build_control_batch(
        [(ControlType.LEADER_CHANGE, b"abc"), (ControlType.KRAFT_VERSION, b"d")],
        base_offset=10,
        leader_epoch=2,
        timestamp_ms=NOW_MS,
    )
    header = parse_header(batch)
    found = [(parse_control_key(r.key), r.value) for _, r in records_of(batch, header)]
    assert found == [(2, b"abc"), (5, b"d")]
    assert header.is_control
    assert not header.is_transactional
    assert header.producer_id == -1


def legacy_message(
    magic: int, offset: int, key: bytes | None, value: bytes | None, attributes: int = 0
) -> bytes:
    body = bytes((magic, attributes)) + (struct.pack(">q", NOW_MS) if magic else b"")
    for part in (key, value):
        body += struct.pack(">i", -1) if part is None else struct.pack(">i", len(part)) + part
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


@pytest.mark.parametrize("magic", [0, 1])
def test_old_messages_are_read(magic: int) -> None:
    message = legacy_message(magic, 42, b"k", None)
    (header,) = iterate_batches(message)
    assert has_valid_crc(message, header)
    ((offset, record),) = records_of(message, header)
    assert (offset, record.key, record.value) == (42, b"k", None)
    assert record.timestamp_ms == (NOW_MS if magic else -1)


@pytest.mark.parametrize("content_size", [False, True])
def test_lz4_of_the_oldest_format_is_opened_whatever_checksum_its_header_has(content_size: bool) -> None:
    """Clients of Kafka 0.8 and 0.9 wrote one over other bytes. Later formats have the right one."""
    inner = b"".join(legacy_message(0, 7 + each, None, b"v%d" % each) for each in range(3))
    frame = bytearray(lz4.frame.compress(inner, store_size=content_size))
    frame[14 if content_size else 6] ^= 0xFF
    wrapper = legacy_message(0, 9, None, bytes(frame), attributes=LZ4)
    (header,) = iterate_batches(wrapper)
    found = [(offset, record.value) for offset, record in records_of(wrapper, header)]
    assert found == [(7, b"v0"), (8, b"v1"), (9, b"v2")]
    later = legacy_message(1, 9, None, bytes(frame), attributes=LZ4)
    (header,) = iterate_batches(later)
    with pytest.raises(DecompressionFailed):
        list(records_of(later, header))


def test_a_wrapper_with_the_offset_0_has_the_offsets_of_its_messages() -> None:
    """Some versions of librdkafka wrote those."""
    inner = b"".join(legacy_message(1, each, None, b"v") for each in range(3))
    wrapper = legacy_message(1, 0, None, gzip.compress(inner), attributes=1)
    (header,) = iterate_batches(wrapper)
    assert [offset for offset, _ in records_of(wrapper, header)] == [0, 1, 2]


@pytest.mark.parametrize("magic", [0, 1])
def test_old_compressed_messages_are_opened(magic: int) -> None:
    first = 10 if magic == 0 else 0
    inner = b"".join(legacy_message(magic, first + i, None, b"v%d" % i) for i in range(3))
    wrapper = legacy_message(magic, 12, None, gzip.compress(inner), attributes=1)
    (header,) = iterate_batches(wrapper)
    assert [(o, r.value) for o, r in records_of(wrapper, header)] == [(10, b"v0"), (11, b"v1"), (12, b"v2")]
