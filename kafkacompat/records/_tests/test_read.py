"""Batches in logs, without any bounds: what is opened of them, and what is not parsed."""

from __future__ import annotations

import struct

import pytest

from kafkacompat.records import compression
from kafkacompat.records import read as reading
from kafkacompat.records._tests.bombs import (
    NOW_MS,
    batch_around,
    batch_of_body,
    many_frames,
    record,
    tiny_records,
)
from kafkacompat.records.batch import HEADER_SIZE, build_batch, parse_header
from kafkacompat.records.control import build_end_transaction_marker
from kafkacompat.records.read import FIRST_RECORD_BYTES, HEADERS_SHOWN, find_by_time, first_record, records_of
from kafkacompat.records.record import Record, RecordMalformed, append_varint, encode_records

CODECS = [*range(len(compression.CODEC_NAMES))]
MARKER = build_end_transaction_marker(
    committed=True, coordinator_epoch=3, producer_id=1, producer_epoch=0, timestamp_ms=NOW_MS
)


def promised_headers(count: int, tail: bytes) -> bytearray:
    """A record with the value `v` that announces `count` headers."""
    inside = bytearray(b"\0\0\0\1\2v")
    append_varint(inside, count)
    return batch_of_body(record(inside + tail), compression.NONE)


def test_contents_are_read_without_a_look_at_headers() -> None:
    batch = promised_headers(10_000_000, b"\xff" * 100)
    [(offset, found)] = records_of(batch, parse_header(batch), 0)
    assert (offset, found.value, found.headers) == (0, b"v", ())
    with pytest.raises(RecordMalformed):
        list(records_of(batch, parse_header(batch)))


def test_of_very_many_headers_only_some_are_made() -> None:
    batch = promised_headers(HEADERS_SHOWN + 5, bytes(2 * HEADERS_SHOWN + 10))
    [(_, found)] = records_of(batch, parse_header(batch))
    assert len(found.headers) == HEADERS_SHOWN + 1
    assert found.headers[-1] == ("(5 more)", None)
    batch = promised_headers(HEADERS_SHOWN, bytes(2 * HEADERS_SHOWN))
    [(_, found)] = records_of(batch, parse_header(batch))
    assert found.headers == (("", b""),) * HEADERS_SHOWN


def test_a_value_that_goes_beyond_its_record_is_malformed() -> None:
    batch = batch_of_body(b"\x0e\0\0\0\1\x08v" + b"\0" * 10, compression.NONE)
    with pytest.raises(RecordMalformed):
        list(records_of(batch, parse_header(batch), 0))


@pytest.mark.parametrize("codec", CODECS)
def test_the_first_record_is_found_by_the_beginning(codec: int, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = []
    unpack_beginning = compression.unpack_beginning

    def noted(codec: int, body: bytes, size: int) -> bytes | bytearray:
        found = unpack_beginning(codec, body, size)
        opened.append(len(found))
        return found

    monkeypatch.setattr(compression, "unpack_beginning", noted)
    batch = batch_of_body(MARKER[HEADER_SIZE:] + bytes(40_000_000), codec, 40_000_001)
    found = first_record(batch, parse_header(batch))
    assert found is not None
    assert found.key == b"\0\0\0\1"
    assert opened[0] <= max(FIRST_RECORD_BYTES * 2, compression.CHUNK_BYTES)


@pytest.mark.parametrize("codec", CODECS)
def test_a_short_body_is_opened_whole_for_its_first_record(codec: int) -> None:
    batch = build_batch([Record(0, NOW_MS, b"a", b"b"), Record(1, NOW_MS, b"c", b"d")], compression=codec)
    found = first_record(batch, parse_header(batch))
    assert found is not None
    assert (found.key, found.value) == (b"a", b"b")


def test_no_first_record_where_there_is_none() -> None:
    batch = batch_around(b"", compression.NONE, 0)
    assert first_record(batch, parse_header(batch)) is None


@pytest.mark.parametrize("codec", CODECS[1:])
def test_the_beginning_of_many_frames_is_bounded(codec: int) -> None:
    batch = batch_around(many_frames(codec, 100_000), codec)
    with pytest.raises((compression.DecompressionFailed, RecordMalformed)):
        first_record(batch, parse_header(batch))


def test_a_record_is_made_when_its_turn_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    walk = reading.walk_records

    def counted(*arguments: object) -> object:
        for each in walk(*arguments):  # type: ignore[arg-type]
            made.append(each)
            yield each

    monkeypatch.setattr(reading, "walk_records", counted)
    batch = batch_of_body(tiny_records(10_000), compression.ZSTD, 10_000)
    next(records_of(batch, parse_header(batch), 0))
    assert len(made) == 1


def found_in(
    batch: bytearray, timestamp_ms: int, offset: int = 0
) -> tuple[tuple[int, int] | None, list[int]]:
    """What is found, and the costs of the pieces."""
    pieces: list[int] = []
    search = find_by_time(batch, parse_header(batch), timestamp_ms, offset)
    while True:
        try:
            pieces.append(next(search))
        except StopIteration as end:
            return end.value, pieces


@pytest.mark.parametrize("codec", CODECS)
def test_a_record_is_found_by_its_time_and_none_is_made(codec: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "walk_records", None)
    count = 20_000
    records = [Record(at, NOW_MS + at % 15_000, None, b"v") for at in range(count)]
    batch = build_batch(records, base_offset=100, compression=codec)
    found, pieces = found_in(batch, NOW_MS + 14_990)
    assert found == (NOW_MS + 14_990, 15_090)
    assert sum(pieces) >= 15_000 - reading.FOUND_AT_ONCE
    assert len(pieces) >= 3
    assert max(pieces) <= 2 * reading.UNPACKED_AT_ONCE // reading.BYTES_A_UNIT
    assert found_in(batch, NOW_MS, 15_103)[0] == (NOW_MS + 3, 15_103)
    assert found_in(batch, NOW_MS + 4999, 15_103)[0] == (NOW_MS + 4999, 20_099)
    assert found_in(batch, NOW_MS + 5000, 15_103)[0] is None
    assert found_in(batch, NOW_MS + 15_000)[0] is None
    assert found_in(batch, 1 << 62)[0] is None
    assert found_in(batch, -1)[0] == (NOW_MS, 100)


def test_a_batch_with_append_time_has_it_for_every_record() -> None:
    records = [Record(at, NOW_MS + at, None, b"v") for at in range(5)]
    batch = build_batch(records, base_offset=100, log_append_time_ms=NOW_MS + 50)
    assert found_in(batch, NOW_MS + 50)[0] == (NOW_MS + 50, 100)
    assert found_in(batch, NOW_MS, 103)[0] == (NOW_MS + 50, 103)
    assert found_in(batch, NOW_MS + 51)[0] is None
    assert found_in(batch, NOW_MS, 105)[0] is None


def test_a_found_timestamp_whose_sum_overflows_is_told_in_64_bits() -> None:
    """One partition must not spoil the answer for others."""
    late = 2**63 - 1
    body = encode_records([Record(0, late + 5, None, b"v")], late)
    batch = batch_of_body(bytes(body), compression.NONE, 1)
    struct.pack_into(">qq", batch, 27, late, NOW_MS)
    assert found_in(batch, NOW_MS)[0] == (4 - 2**63, 0)


def test_a_search_by_time_notices_malformed_records() -> None:
    batch = batch_of_body(tiny_records(10)[:-1], compression.NONE, 10)
    with pytest.raises(RecordMalformed):
        found_in(batch, NOW_MS + 1)
    batch = batch_of_body(tiny_records(10), compression.NONE, 9)
    with pytest.raises(RecordMalformed):
        found_in(batch, NOW_MS + 1)
