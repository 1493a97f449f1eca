"""The remote store of a simulated cluster (KIP-405): segments in memory, outside of all machines.

It fails before and after the effect of a call, stores parts, is slow, hangs, does not find what it has, and sends bytes that
were never stored like that: too few, those of another copy, or with a changed byte. About indexes whose changes no
reader can tell it does not lie: those of aborted transactions, producer snapshots of another offset, changed leader epochs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from enum import Enum
from typing import TYPE_CHECKING, Any

from kafkacompat.dataclass import dataclass
from kafkacompat.ids import Uuid
from kafkacompat.remote.ports import (
    IndexType,
    LogSegmentData,
    RemoteResourceNotFoundException,
    RemoteStorageException,
    RetriableRemoteStorageException,
)
from kafkacompat.sim.breach import Breach
from kafkacompat.sim.chance import Chance
from kafkacompat.sim.counters import TierCounters

if TYPE_CHECKING:
    from kafkacompat.ports import Disk
    from kafkacompat.remote.metadata import RemoteLogSegmentMetadata
    from kafkacompat.sim.processes import Environment

FIRST_MOOD_US = 1_500_000
HANGS_MS = 6_000
"""The time limit of the store's calls."""


class Mood(Enum):
    WELL = "well"
    FAILING = "failing"
    SLOW = "slow"
    HANGING = "hanging"
    LYING = "lying"
    BLIND = "blind"
    """It does not find what it has."""
    DOWN = "down"
    """Every call fails at once."""


LIES = ("short", "other", "changed", "unranged")


@dataclass
class Stored:
    """One copy of a segment."""

    metadata: RemoteLogSegmentMetadata
    writer: Any
    """The life of the node that has stored it."""
    is_late: bool
    """It was stored after its deletion: a call that took so long."""
    custom: bytes | None = None
    records: bytes | None = None
    indexes: dict[IndexType, bytes] = field(default_factory=dict)

    @property
    def is_whole(self) -> bool:
        needed = set(IndexType) - {IndexType.TRANSACTION}
        return self.records is not None and needed <= self.indexes.keys()


class SimulatedRemoteStore:
    """One for all nodes of a cluster. Call `begin` once, and `heal` for good."""

    def __init__(self, env: Environment) -> None:
        self._env = env
        self._chance = Chance(env.seed, "remote store")
        self.counters = TierCounters()
        self.objects: dict[Uuid, Stored] = {}
        self._deleted: set[Uuid] = set()
        """Copies whose deletion was ever asked for."""
        self.mood = Mood.WELL
        self._is_over = False
        self._has_custom = self._chance.happens(0.5)

    def begin(self) -> None:
        self._env.scheduler.after(FIRST_MOOD_US, self._change)

    def heal(self) -> None:
        self._is_over = True
        self._be(Mood.WELL)

    def _change(self, _: Any) -> None:
        if self._is_over:
            return
        moods = list(Mood)
        self._be(moods[self._chance.randrange(len(moods))])
        self._env.scheduler.after(self._chance.between(200, 2_000) * 1000, self._change)

    def _be(self, mood: Mood) -> None:
        self.mood = mood
        if self._env.tell is not None:
            self._env.tell(f"*** the remote store is {mood.value}")

    def draw_us(self) -> int:
        """How long a call takes."""
        if self.mood is Mood.HANGING and self._chance.happens(0.6):
            self.counters.hangs += 1
            return self._chance.between(1_000, HANGS_MS) * 1000
        if self.mood is Mood.SLOW:
            self.counters.slow += 1
            return self._chance.between(50, 900) * 1000
        return self._chance.between(500, 20_000)

    def storage_of(self, life: Any, disk: Disk) -> SimulatedRemoteStorage:
        """The store as one life of a node sees it."""
        return SimulatedRemoteStorage(self, life, disk)

    # Calls, in the simulated threads of nodes.

    def _fail(self, most: float) -> None:
        if self.mood is Mood.DOWN or (self.mood is Mood.FAILING and self._chance.happens(most)):
            self.counters.failures += 1
            if self._chance.happens(0.5):
                raise RetriableRemoteStorageException("the store is away for a while")
            raise RemoteStorageException("the store refuses")

    def copy(
        self, life: Any, metadata: RemoteLogSegmentMetadata, read: Callable[[], list[tuple[Any, bytes]]]
    ) -> bytes | None:
        self._fail(0.3)
        key = metadata.remote_log_segment_id.id
        parts = read()
        stored = Stored(metadata, life, key in self._deleted)
        stored.custom = b"c%d" % self._chance.randrange(1000) if self._has_custom else None
        self.objects[key] = stored
        if self.mood is Mood.FAILING and self._chance.happens(0.3):
            parts = parts[: self._chance.randrange(len(parts))]
            self.counters.partial_copies += 1
        else:
            self.counters.copies += 1
            self.counters.late_copies += stored.is_late
        for kind, data in parts:
            if kind is None:
                stored.records = data
            else:
                stored.indexes[kind] = data
        if not stored.is_whole:
            raise RetriableRemoteStorageException("the store has taken a part")
        if self.mood is Mood.FAILING and self._chance.happens(0.3):
            self.counters.failures_after_effect += 1
            raise RetriableRemoteStorageException("no answer, although all is stored")
        return stored.custom

    def delete(self, metadata: RemoteLogSegmentMetadata) -> None:
        self._fail(0.3)
        key = metadata.remote_log_segment_id.id
        self._deleted.add(key)
        stored = self.objects.get(key)
        if stored is not None and self.mood is Mood.FAILING and self._chance.happens(0.3):
            stored.indexes.clear()
            raise RetriableRemoteStorageException("a part is deleted")
        self.counters.deletions += stored is not None
        self.objects.pop(key, None)
        if self.mood is Mood.FAILING and self._chance.happens(0.3):
            self.counters.failures_after_effect += 1
            raise RetriableRemoteStorageException("no answer, although all is deleted")

    def fetch(self, metadata: RemoteLogSegmentMetadata, kind: IndexType | None, start: int) -> Stream:
        self._fail(0.5)
        name = metadata.remote_log_segment_id
        stored = self.objects.get(name.id)
        if stored is not None and metadata.custom_metadata != stored.custom:
            self._env.found(
                Breach(
                    "what the store asks to keep is kept",
                    f"{metadata.custom_metadata!r} comes back for {stored.custom!r} of {name}",
                )
            )
        if self.mood is Mood.BLIND and self._chance.happens(0.5):
            self.counters.blind_reads += 1
            raise RemoteResourceNotFoundException(f"the store does not see {name}")
        data = None if stored is None else _part(stored, kind)
        if stored is None or data is None:
            raise RemoteResourceNotFoundException(f"the store has no {kind} of {name}")
        self.counters.reads += kind is None
        self.counters.followers_started += kind is IndexType.PRODUCER_SNAPSHOT
        if self.mood is Mood.LYING and self._chance.happens(0.6):
            return Stream(self._lie(stored, kind, data, start))
        return Stream(data[start:])

    def _lie(self, stored: Stored, kind: IndexType | None, data: bytes, start: int) -> bytes:
        lie = LIES[self._chance.randrange(len(LIES))]
        if kind is IndexType.TRANSACTION:
            return data[start:]
        if kind is IndexType.LEADER_EPOCH and lie == "changed":
            lie = "short"
        if kind is IndexType.PRODUCER_SNAPSHOT or lie == "short":
            self.counters.short_lies += 1
            return data[start : self._chance.between(start, len(data))] if start < len(data) else b""
        if lie == "other":
            others = [
                part
                for each in self.objects.values()
                if each is not stored
                and each.metadata.topic_id_partition == stored.metadata.topic_id_partition
                and (part := _part(each, kind)) is not None
            ]
            if others:
                self.counters.other_lies += 1
                return others[self._chance.randrange(len(others))][start:]
        if lie == "changed" and len(data) > start:
            self.counters.changed_lies += 1
            at = self._chance.between(start, len(data) - 1)
            return data[start:at] + bytes([data[at] ^ (1 << self._chance.randrange(8))]) + data[at + 1 :]
        self.counters.unranged_lies += start > 0
        return data


def _part(stored: Stored, kind: IndexType | None) -> bytes | None:
    return stored.records if kind is None else stored.indexes.get(kind)


class Stream:
    """A RemoteInputStream."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def read(self, size: int = -1, /) -> bytes:
        size = len(self._data) if size < 0 else size
        piece, self._data = self._data[:size], self._data[size:]
        return piece

    def readinto(self, buffer: memoryview, /) -> int:
        piece = self.read(len(buffer))
        buffer[: len(piece)] = piece
        return len(piece)

    def close(self) -> None:
        self._data = b""


class SimulatedRemoteStorage:
    """A RemoteStorageManager of one life of a node."""

    def __init__(self, store: SimulatedRemoteStore, life: Any, disk: Disk) -> None:
        self._store = store
        self._life = life
        self._disk = disk

    def copy_log_segment_data(self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData) -> bytes | None:
        def read() -> list[tuple[Any, bytes]]:
            """The files, the records last."""
            paths: list[tuple[Any, str | bytes | None]] = [
                (IndexType.OFFSET, data.offset_index),
                (IndexType.TIMESTAMP, data.time_index),
                (IndexType.TRANSACTION, data.transaction_index),
                (IndexType.PRODUCER_SNAPSHOT, data.producer_snapshot_index),
                (None, data.log_segment),
            ]
            try:
                parts = [
                    (kind, path if isinstance(path, bytes) else self._disk.read_bytes(path))
                    for kind, path in paths
                    if path is not None
                ]
            except OSError as error:
                raise RemoteStorageException(f"{metadata.remote_log_segment_id}: {error}") from error
            return [(IndexType.LEADER_EPOCH, data.leader_epoch_index), *parts]

        return self._store.copy(self._life, metadata, read)

    def fetch_log_segment(
        self, metadata: RemoteLogSegmentMetadata, start_position: int, end_position: int | None = None
    ) -> Stream:
        return self._store.fetch(metadata, None, start_position)

    def fetch_index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> Stream:
        return self._store.fetch(metadata, index_type, 0)

    def delete_log_segment_data(self, metadata: RemoteLogSegmentMetadata) -> None:
        self._store.delete(metadata)

    def close(self) -> None:
        """There is nothing to give up."""
