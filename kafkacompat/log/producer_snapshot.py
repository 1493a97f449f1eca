"""The bytes of Kafka's .snapshot file: the producers of a partition at an offset."""

from __future__ import annotations

import struct
from collections.abc import Iterable

from kafkacompat.log.producer_state import NO_TRANSACTION, BatchMetadata, Producer
from kafkacompat.records.crc import crc32c

_SNAPSHOT_HEAD = struct.Struct(">hIi")
_SNAPSHOT_ENTRY = struct.Struct(">qhiqiqiq")
_CRC_END = 6
ENCODED_A_STEP = 4000
"""Producers encoded in one step, at about a microsecond each."""
NO_BATCH = BatchMetadata(-1, -1, 0, -1)


class SnapshotCorrupt(ValueError):
    """A producer snapshot with a wrong version, size or CRC."""


def encode_snapshot(producers: Iterable[Producer]) -> bytes:
    """A snapshot contains only the last batch of each producer."""
    return _framed([_entry(producer) for producer in producers])


def _entry(producer: Producer) -> bytes:
    batch = producer.batches[-1] if producer.batches else NO_BATCH
    return _SNAPSHOT_ENTRY.pack(
        producer.producer_id,
        producer.epoch,
        batch.last_sequence,
        batch.last_offset,
        batch.offset_delta,
        producer.last_timestamp_ms,
        producer.coordinator_epoch,
        producer.transaction_first_offset,
    )


def _framed(entries: list[bytes]) -> bytes:
    body = b"".join((struct.pack(">i", len(entries)), *entries))
    return struct.pack(">hI", 1, crc32c(body)) + body


class SnapshotInSteps:
    """A snapshot of many producers, encoded in steps while appends go on. It has the state at its beginning: before a
    producer changes, `ProducerStateManager` has its entry made (`note`)."""

    __slots__ = ("_entries", "_left", "end_offset")

    def __init__(self, producers: dict[int, Producer], end_offset: int) -> None:
        self._left = producers.copy()
        self._entries: list[bytes] = []
        self.end_offset = end_offset

    def note(self, producer_id: int) -> None:
        """The producer is about to change."""
        producer = self._left.pop(producer_id, None)
        if producer is not None:
            self._entries.append(_entry(producer))

    def step(self) -> bool:
        """Encode some more. Returns whether all are encoded."""
        left, entries = self._left, self._entries
        for _ in range(min(len(left), ENCODED_A_STEP)):
            entries.append(_entry(left.popitem()[1]))
        return not left

    def data(self) -> bytes:
        return _framed(self._entries)


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
