"""The snapshots of a partition's producers: the bytes of Kafka's `%020d.snapshot` files, and the files of one log.

An unreadable snapshot is removed and an older one is used, because the log can be replayed from any of them. So a crash
may come before a snapshot is written, as long as no segment is deleted meanwhile.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, insort
from collections.abc import Iterable
from typing import TYPE_CHECKING

from kafkacompat.ids import is_base_offset
from kafkacompat.log.log_segment import SNAPSHOT_SUFFIX, file_stem
from kafkacompat.log.producer_state import NO_TRANSACTION, BatchMetadata, Producer, ProducerStateManager
from kafkacompat.records.crc import crc32c

if TYPE_CHECKING:
    from kafkacompat.ports import Disk

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


class SnapshotStore:
    """Snapshots by their offset (exclusive end)."""

    __slots__ = ("_directory", "_disk", "_last_taken", "_late", "_unfinished", "offsets")

    def __init__(self, disk: Disk, directory: str, names: list[str]) -> None:
        self._disk = disk
        self._directory = directory
        self.offsets = sorted(
            int(name[:20])
            for name in names
            if name.endswith(SNAPSHOT_SUFFIX)
            and len(name) == 20 + len(SNAPSHOT_SUFFIX)
            and is_base_offset(name[:20])
        )
        self._last_taken = -1
        self._unfinished: SnapshotInSteps | None = None
        self._late = -1
        """The snapshot that was finished after its roll. A flush may have passed its offset before it was there."""

    def path(self, offset: int) -> str:
        return file_stem(self._directory, offset) + SNAPSHOT_SUFFIX

    def within(self, offset: int, end_offset: int) -> list[int]:
        """The snapshots above `offset`, up to and including `end_offset`."""
        return [each for each in self.offsets if offset < each <= end_offset]

    def paths_within(self, offset: int, end_offset: int) -> list[str]:
        return [self.path(each) for each in self.within(offset, end_offset)]

    def take_late(self, offset: int) -> list[str]:
        """The path of a late snapshot at or below an offset, once."""
        late, self._late = self._late, -1
        return [self.path(late)] if late <= offset and late in self.offsets else []

    def relocate(self, directory: str) -> None:
        self._directory = directory

    def take(self, state: ProducerStateManager) -> None:
        """Write the state at its end offset, unless that snapshot exists."""
        offset = state.end_offset
        if offset == self._last_taken and offset in self.offsets:
            return
        self._write(offset, encode_snapshot(state.producers.values()))

    def _write(self, offset: int, data: bytes, *, sync: bool = False) -> None:
        self._disk.write_atomic(self.path(offset), data, sync=sync)
        if offset not in self.offsets:
            insort(self.offsets, offset)
        self._last_taken = offset

    def put(self, offset: int, data: bytes, *, sync: bool = False) -> None:
        """Write a snapshot that comes from elsewhere."""
        self._write(offset, data, sync=sync)

    def begin(self, state: ProducerStateManager) -> None:
        """Like `take`, but of many producers only the beginning: `go_on` does the rest. While an earlier snapshot is
        not finished, none is begun: the log can be replayed from that one."""
        if len(state.producers) <= ENCODED_A_STEP:
            self.take(state)
        elif not self.is_unfinished(state):
            self._unfinished = state.snapshot = SnapshotInSteps(state.producers, state.end_offset)

    def is_unfinished(self, state: ProducerStateManager) -> bool:
        return self._unfinished is not None and state.snapshot is self._unfinished

    def go_on(self, state: ProducerStateManager) -> bool:
        """Do a step of an unfinished snapshot. Returns whether there is nothing left to do."""
        unfinished = self._unfinished
        if unfinished is None or state.snapshot is not unfinished:
            self._unfinished = None
            return True
        if not unfinished.step():
            return False
        state.snapshot = self._unfinished = None
        self._write(unfinished.end_offset, unfinished.data())
        self._late = unfinished.end_offset
        return True

    def load_latest(self, state: ProducerStateManager, log_start_offset: int, end_offset: int) -> None:
        """Like `read_latest`. Snapshots outside the range are removed, because their records are gone."""
        self.drop_outside(log_start_offset, end_offset)
        self.read_latest(state, log_start_offset, end_offset)

    def read_latest(self, state: ProducerStateManager, log_start_offset: int, end_offset: int) -> None:
        """Load the newest snapshot in (log start, end]. Without one the state is empty at the log start. Snapshots that
        cannot be read are removed."""
        for offset in reversed(self.within(log_start_offset, end_offset)):
            try:
                producers = decode_snapshot(self._disk.read_bytes(self.path(offset)))
            except (SnapshotCorrupt, FileNotFoundError):
                self.remove(offset)
                continue
            state.load(producers, offset)
            self._last_taken = offset
            return
        state.clear(log_start_offset)

    def drop_outside(self, log_start_offset: int, end_offset: int) -> None:
        """Remove snapshots outside (log start, end]."""
        for offset in [o for o in self.offsets if o > end_offset or o <= log_start_offset]:
            self.remove(offset)

    def remove(self, offset: int) -> None:
        at = bisect_left(self.offsets, offset)
        if at < len(self.offsets) and self.offsets[at] == offset:
            del self.offsets[at]
        try:
            self._disk.remove(self.path(offset))
        except FileNotFoundError:
            return

    def remove_all(self) -> None:
        for offset in list(self.offsets):
            self.remove(offset)
        self._last_taken = -1

    def remove_strays(self, segment_bases: list[int]) -> None:
        """Keep the snapshots at a segment's base, and the newest one if it is above every base. Remove the others."""
        bases = set(segment_bases)
        newest = self.offsets[-1] if self.offsets else -1
        for offset in list(self.offsets):
            if offset not in bases and not (offset == newest and offset > max(bases, default=-1)):
                self.remove(offset)
