"""The bytes of Kafka's .snapshot file: the producers of a partition at an offset."""

from __future__ import annotations

import struct
from collections.abc import Iterable

from kafkacompat.log.producer_state import NO_TRANSACTION, BatchMetadata, Producer
from kafkacompat.records.crc import crc32c

_SNAPSHOT_HEAD = struct.Struct(">hIi")
_SNAPSHOT_ENTRY = struct.Struct(">qhiqiqiq")
_CRC_END = 6


class SnapshotCorrupt(ValueError):
    """A producer snapshot with a wrong version, size or CRC."""


def encode_snapshot(producers: Iterable[Producer]) -> bytes:
    """A snapshot contains only the last batch of each producer."""
    entries = bytearray()
    count = 0
    for producer in producers:
        batch = producer.batches[-1] if producer.batches else BatchMetadata(-1, -1, 0, -1)
        entries += _SNAPSHOT_ENTRY.pack(
            producer.producer_id,
            producer.epoch,
            batch.last_sequence,
            batch.last_offset,
            batch.offset_delta,
            producer.last_timestamp_ms,
            producer.coordinator_epoch,
            producer.transaction_first_offset,
        )
        count += 1
    body = struct.pack(">i", count) + entries
    return struct.pack(">hI", 1, crc32c(body)) + body


def decode_snapshot(data: bytes) -> list[Producer]:
    """The producers of a .snapshot file. Raises SnapshotCorrupt if it is damaged."""
    if len(data) < _SNAPSHOT_HEAD.size:
        raise SnapshotCorrupt(f"{len(data)} bytes are no snapshot")
    version, crc, count = _SNAPSHOT_HEAD.unpack_from(data)
    if version != 1:
        raise SnapshotCorrupt(f"snapshot version {version}")
    if crc32c(data[_CRC_END:]) != crc:
        raise SnapshotCorrupt("the crc is wrong")
    if count < 0 or len(data) != _SNAPSHOT_HEAD.size + count * _SNAPSHOT_ENTRY.size:
        raise SnapshotCorrupt(f"{count} entries in {len(data)} bytes")
    producers = []
    for fields in _SNAPSHOT_ENTRY.iter_unpack(data[_SNAPSHOT_HEAD.size :]):
        producer_id, epoch, last_sequence, last_offset, delta, timestamp_ms, coordinator_epoch, first = fields
        producer = Producer(producer_id, epoch)
        producer.last_timestamp_ms = timestamp_ms
        producer.coordinator_epoch = coordinator_epoch
        producer.transaction_first_offset = first if first >= 0 else NO_TRANSACTION
        if last_offset >= 0:
            producer.batches.append(BatchMetadata(last_sequence, last_offset, delta, timestamp_ms))
        producers.append(producer)
    return producers
