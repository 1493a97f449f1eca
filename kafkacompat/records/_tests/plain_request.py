"""What `_produce.read_frame` finds in a request, from the decoder of wire/, the header's parser and the simple decoder of
records: the twin that the compiled code is compared with."""

from __future__ import annotations

from typing import Any

import lz4.block
import xxhash

from kafkacompat.records._tests.plain_decoder import decoded
from kafkacompat.records.batch import CODEC_MASK, HEADER_SIZE, BatchCorrupt, crc_of, parse_header
from kafkacompat.records.compression import LZ4, ZSTD
from kafkacompat.records.plain_produce import PlainBounds, PlainFacts
from kafkacompat.records.record import RecordMalformed
from kafkacompat.records.scan import NULL_KEYS
from kafkacompat.wire.codec import decode, encode
from kafkacompat.wire.errors import WireError
from kafkacompat.wire.headers import parse_request_header
from kafkacompat.wire.messages.produce_request import ProduceRequest

BYTES_MOST = 2 * 1024 * 1024
PARTITIONS_MOST = 128
FIRST_FLEXIBLE = 9
NAME_MOST = 249
"""Bytes of the longest name that a topic may have."""
RECORDS_A_UNIT = 16
UNPACKED_MOST = 1024 * 1024
UNPACKED_A_CALL = 4 * UNPACKED_MOST
LZ4_MAGIC = b"\x04\x22\x4d\x18"


class Unusual(Exception):
    """The request is not plain."""


class Unread(Exception):
    """A batch with a codec is not opened."""


class Room:
    """What the batches of a request may unpack to."""

    def __init__(self, most: int) -> None:
        self.most = min(most, UNPACKED_MOST)
        self.left = UNPACKED_A_CALL


def require(condition: bool) -> None:
    if not condition:
        raise Unusual


def parsed(frame: bytes, version: int, bounds: PlainBounds) -> PlainFacts | None:
    units, partition_units, records_most, headers_most, headers_a_record, unpacked_most = bounds
    room = Room(unpacked_most)
    try:
        require(len(frame) <= BYTES_MOST)
        header = parse_request_header(frame)
        position = header.body_offset
        client_id = header.client_id or ""
        require(client_id.isascii())
        require(position == 10 + len(client_id) + (version >= FIRST_FLEXIBLE))  # it has no tags
        body = bytes(frame[position:])
        request: Any = decode(ProduceRequest, version, body)
        require(encode(request, version) == body)  # shortest lengths, no unknown tags, nothing after the end
        require(request.transactional_id is None and request.acks in (-1, 0, 1))
        require(bool(request.topic_data))
        names = [(topic.name, topic.topic_id) for topic in request.topic_data]
        require(len(set(names)) == len(names))
        require(all(len(topic.name.encode()) <= NAME_MOST for topic in request.topic_data))
        topics = []
        batches = []
        at = 0
        for topic in request.topic_data:
            indexes = [one.index for one in topic.partition_data]
            require(bool(indexes) and len(set(indexes)) == len(indexes))
            rows: list[Any] = []
            kept: list[Any] = []
            topics.append((topic.name if version < 13 else topic.topic_id, rows, kept))
            for one in topic.partition_data:
                require(one.records is not None)
                records = bytes(one.records)
                at = body.index(records, at)
                batches.append((rows, kept, one.index, position + at, records))
                at += len(records)
                units -= partition_units
        require(units > 0 and len(batches) <= PARTITIONS_MOST)
        for *_, records in batches:
            check_header(records, version, records_most)
        for rows, kept, index, start, records in batches:
            row, earliest_ms, nulls, units = facts(records, units, headers_most, headers_a_record, room)
            rows.append((index, start, start + len(records), len(records), *row))
            kept.append((len(records), row[0], earliest_ms, row[3], nulls))
        all_read = all(row[11] for _, rows, _ in topics for row in rows)
        return (
            position,
            request.acks,
            request.timeout_ms,
            units,
            all_read,
            [(name, rows, summary(kept)) for name, rows, kept in topics],
        )
    except (Unusual, WireError, BatchCorrupt, RecordMalformed):
        return None


def summary(batches: list[tuple[int, int, int, int, int]]) -> tuple[int, int, int, int, int]:
    sizes, codecs, earliest, latest, nulls = zip(*batches, strict=True)
    return max(sizes), sum(1 << codec for codec in set(codecs)), min(earliest), max(latest), max(nulls)


def check_header(records: bytes, version: int, records_most: int) -> None:
    require(len(records) >= HEADER_SIZE and records[16] == 2)
    header = parse_header(records)
    require(header.size == len(records) and header.base_offset == 0)
    require(header.attributes & ~CODEC_MASK == 0)
    require(header.codec < ZSTD or (header.codec == ZSTD and version >= 7))
    require(0 < header.record_count <= records_most)
    require(header.last_offset_delta + 1 == header.record_count)
    require(header.producer_id < 0 or header.base_sequence >= 0)


def facts(
    records: bytes, units: int, headers_most: int, headers_a_record: int, room: Room
) -> tuple[tuple[int, ...], int, int, int]:
    """A row without the place of its batch, the earliest timestamp, whether there is a null key, and the units that are left."""
    header = parse_header(records)
    require(crc_of(records) == header.crc)
    base_ms = earliest_ms = header.base_timestamp_ms
    nulls = 0
    body = opened(header.codec, records[HEADER_SIZE:], room)
    if body is not None:
        found = decoded(body, header.record_count)
        require([each.offset_delta for each in found] == list(range(header.record_count)))
        require(all(len(each.headers) <= headers_a_record for each in found))
        headers = sum(len(each.headers) for each in found)
        require(headers <= headers_most)
        require((header.record_count - 1 + headers) // RECORDS_A_UNIT < units)
        units -= (header.record_count + headers) // RECORDS_A_UNIT
        times = [base_ms + each.timestamp_ms for each in found]
        require(max(times) == header.max_timestamp_ms)
        earliest_ms = min(base_ms, *times)
        require(earliest_ms >= -(1 << 63))
        nulls = NULL_KEYS if any(each.key is None for each in found) else 0
    row = (
        header.codec,
        header.record_count,
        base_ms,
        header.max_timestamp_ms,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        int(body is not None),
    )
    return row, earliest_ms, nulls, units


def opened(codec: int, body: bytes, room: Room) -> bytes | None:
    """The records. None if the batch is left unread."""
    if not codec:
        return body
    if codec != LZ4 or room.most <= 0:
        return None
    most = min(room.most, room.left)
    try:
        unpacked = unpacked_lz4(body, most)
    except (Unread, lz4.block.LZ4BlockError):
        require(most == room.most)
        room.most = 0
        return None
    room.left -= len(unpacked)
    return unpacked


def unpacked_lz4(body: bytes, most: int) -> bytes:
    """The content of one frame with no other checksum than that of its header."""
    told = bool(body[4] & 0x08) if len(body) >= 7 else False
    header = body[4 : 14 if told else 6]
    at = 4 + len(header) + 1
    if len(body) < max(at, 7) or body[:4] != LZ4_MAGIC or header[0] & 0xD7 != 0x40 or header[1] & 0x8F:
        raise Unread
    if header[1] >> 4 < 4 or body[at - 1] != xxhash.xxh32(header).intdigest() >> 8 & 0xFF:
        raise Unread
    block_most, unpacked = 1 << 8 + 2 * (header[1] >> 4), b""
    while len(body) - at >= 4:
        size = int.from_bytes(body[at : at + 4], "little")
        at += 4
        if not size:
            if at != len(body) or (told and int.from_bytes(header[2:], "little") != len(unpacked)):
                raise Unread
            return unpacked
        is_packed, size = size < 1 << 31, size & 0x7FFFFFFF
        part, left = body[at : at + size], min(block_most, most - len(unpacked))
        if not size or size > block_most or len(part) < size:
            raise Unread
        if is_packed:
            window = b"" if header[0] & 0x20 else unpacked[-65536:]
            part = lz4.block.decompress(part, uncompressed_size=left, dict=window) if left else b""
        if not part or len(part) > left:
            raise Unread
        unpacked += part
        at += size
    raise Unread
