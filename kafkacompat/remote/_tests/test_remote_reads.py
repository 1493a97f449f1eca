"""What one loop takes of a piece is what batch after batch would give: the same records, or the same error."""

from __future__ import annotations

import random
from typing import Any

import pytest

from kafkacompat.records.batch import build_batch
from kafkacompat.records.record import Record
from kafkacompat.remote import remote_reads, reused_buffers
from kafkacompat.remote._tests.kit import PARTITION
from kafkacompat.remote.metadata import RemoteLogSegmentId, RemoteLogSegmentMetadata
from kafkacompat.remote.ports import IndexType, RemoteStorageException
from kafkacompat.remote.remote_index_cache import RemoteIndexCache
from kafkacompat.remote.remote_reads import RemoteSegmentReader

START = 100


class Store:
    """One segment. It sends at most so many bytes at a time."""

    def __init__(self, log: bytes, index: bytes, at_once: int) -> None:
        self.log, self.index, self.at_once = log, index, at_once
        self.ranges: list[tuple[int, int]] = []

    def fetch_log_segment(self, metadata: Any, start: int, end: int | None = None) -> Stream:
        assert end is not None
        self.ranges.append((start, end))
        return Stream(self.log[start : end + 1], self.at_once)

    def fetch_index(self, metadata: Any, index_type: IndexType) -> Stream:
        return Stream(self.index, self.at_once)


class Stream:
    def __init__(self, data: bytes, at_once: int) -> None:
        self._data, self._at_once = data, at_once

    def read(self, size: int = -1, /) -> bytes:
        size = min(size % (1 << 31), self._at_once)
        data, self._data = self._data[:size], self._data[size:]
        return data

    def readinto(self, buffer: memoryview, /) -> int:
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        self._data = b""


def segment(rng: random.Random, *, gaps: bool) -> tuple[bytes, bytes, RemoteLogSegmentMetadata]:
    """Batches of two epochs, the index of some of them, and the metadata."""
    log, index, offset = bytearray(), bytearray(), START
    turn = rng.randrange(1, 20)
    epochs = [(3, START)]
    for number in range(rng.randrange(1, 25)):
        if number == turn:
            epochs.append((5, offset))
        offset += gaps and rng.choice([0, 0, 0, 4])
        count = rng.randrange(1, 4)
        records = [Record(i, 1_000, b"k", rng.randbytes(rng.randrange(200))) for i in range(count)]
        last = offset + count - 1
        if rng.random() < 0.5:
            index += (last - START).to_bytes(4, "big") + len(log).to_bytes(4, "big")
        log += build_batch(records, base_offset=offset, leader_epoch=epochs[-1][0])
        offset = last + 1
    segment_id = RemoteLogSegmentId(PARTITION, rng.randbytes(16))
    metadata = RemoteLogSegmentMetadata(segment_id, START, offset - 1, 5, 1, 6, len(log), tuple(epochs))
    return bytes(log), bytes(index), metadata


def one_by_one(batches: Any, most: int, end_offset: int) -> tuple[int, int]:
    batches._pass_over()
    return 0, batches._least_offset


def outcome(reader: RemoteSegmentReader, *asked: Any) -> Any:
    try:
        return reader.read(*asked)
    except RemoteStorageException as problem:
        return str(problem)


@pytest.mark.parametrize("damage", ["none", "none, with gaps", "a bit", "an end"])
def test_a_read_is_as_batch_after_batch(monkeypatch: pytest.MonkeyPatch, damage: str) -> None:
    monkeypatch.setattr(reused_buffers, "LEAST_BYTES", 0)
    monkeypatch.setattr(reused_buffers, "STEP_BYTES", 64)
    rng = random.Random(damage)
    plain = remote_reads._Batches.plain
    kept: list[tuple[Any, bytes]] = []
    taken = refused = 0
    for _ in range(150):
        log, index, metadata = segment(rng, gaps=damage == "none, with gaps")
        if damage == "a bit":
            at = rng.randrange(len(log))
            log = log[:at] + bytes([log[at] ^ 1 << rng.randrange(8)]) + log[at + 1 :]
        elif damage == "an end":
            log = log[: rng.randrange(len(log))]
        monkeypatch.setattr(remote_reads, "AHEAD", rng.choice([64, 500, 1 << 16]))
        monkeypatch.setattr(remote_reads, "INDEXED_EVERY", rng.choice([0, 300]))
        store = Store(log, index, rng.choice([1, 100, 1 << 20]))
        reader = RemoteSegmentReader(store, RemoteIndexCache(store, lambda: 1 << 20))  # type: ignore[arg-type]
        for _ in range(5):
            offset = rng.randrange(START, metadata.end_offset + 1)
            end_offset = rng.randrange(offset + 1, metadata.end_offset + 2)
            asked = metadata, offset, end_offset, rng.choice([1, 300, 1_000, 1 << 20]), rng.random() < 0.7
            monkeypatch.setattr(remote_reads._Batches, "plain", one_by_one)
            expected = outcome(reader, *asked)
            monkeypatch.setattr(remote_reads._Batches, "plain", plain)
            found = outcome(reader, *asked)
            assert found == expected
            if isinstance(found, str):
                refused += 1
            elif found is not None and found.records:
                taken += 1
                kept.append((found.records, bytes(found.records)))
    assert taken > 100
    assert refused > 50 or "none" in damage
    for records, contents in kept:
        assert records == contents  # nothing is read over them


@pytest.mark.parametrize("indexed", [True, False])
def test_what_is_wanted_is_one_piece_of_one_range(indexed: bool) -> None:
    """A segment of large batches: the index leads to the batch before the wanted one."""
    log, index = bytearray(), bytearray()
    for number in range(40):
        index += number.to_bytes(4, "big") + len(log).to_bytes(4, "big")
        log += build_batch([Record(0, 1_000, b"", bytes(16_000))], base_offset=number, leader_epoch=0)
    size = len(log) // 40
    metadata = RemoteLogSegmentMetadata(
        RemoteLogSegmentId(PARTITION, bytes(16)), 0, 39, 5, 1, 6, len(log), ((0, 0),)
    )
    store = Store(bytes(log), bytes(index) if indexed else b"", 1 << 30)
    reader = RemoteSegmentReader(store, RemoteIndexCache(store, lambda: 1 << 20))  # type: ignore[arg-type]
    begin = 5 if indexed else 0
    found = reader.read(metadata, begin, 40, 30 * size, True)
    assert found is not None
    assert found.records == log[begin * size : (begin + 30) * size]
    assert isinstance(found.records.obj, bytearray)  # no copy of the piece
    assert len(store.ranges) == 1
    memory = id(found.records.obj)
    del found
    found = reader.read(metadata, begin, 40, 30 * size, True)
    assert found is not None
    assert id(found.records.obj) == memory
    assert reader._buffers.kept_bytes == len(found.records.obj)  # both pieces in the same memory
