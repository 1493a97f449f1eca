"""Committed offsets of all groups of one shard, and the offsets of open transactions.

The replayed state, found by group, topic and partition. The offsets of a transaction are kept separately until its
marker. Then the record that is later in the log wins (KIP-447).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from sys import getsizeof

from kafkacompat.group.records import OffsetAndMetadata, OffsetRecord
from kafkacompat.memory import Memory

OFFSET_BYTES = 300
"""The memory that an offset takes besides its metadata."""

Offsets = dict[str, dict[str, dict[int, OffsetAndMetadata]]]
"""Group -> topic -> partition."""

NO_PRODUCER_ID = -1


class OffsetStore:
    __slots__ = ("_committed", "_held", "_open_transactions", "_pending", "count")

    def __init__(self, memory: Memory) -> None:
        """`memory`: where the offsets are counted."""
        self._held = memory.hold(0)
        self.count = 0
        """Committed offsets of all groups. Kept with each change, because there may be millions."""
        self._committed: Offsets = {}
        self._pending: dict[int, Offsets] = {}
        """By producer id."""
        self._open_transactions: dict[str, set[int]] = {}
        """Group -> producer ids."""

    def replay(self, record: OffsetRecord, offset: int, producer_id: int) -> None:
        value = record.value
        if value is None:
            self.count -= self._remove(self._committed, record.group_id, record.topic, record.partition)
            for open_id in sorted(self._open_transactions.get(record.group_id, ())):
                self._remove(self._pending[open_id], record.group_id, record.topic, record.partition)
            return
        value.record_offset = offset
        if producer_id == NO_PRODUCER_ID:
            self._commit(record.group_id, record.topic, record.partition, value)
            return
        target = self._pending.setdefault(producer_id, {})
        self._open_transactions.setdefault(record.group_id, set()).add(producer_id)
        partitions = target.setdefault(record.group_id, {}).setdefault(record.topic, {})
        self._held.grow(size_of_offset(value) - size_of_offset(partitions.get(record.partition)))
        partitions[record.partition] = value

    def _commit(self, group_id: str, topic: str, partition: int, value: OffsetAndMetadata) -> None:
        partitions = self._committed.setdefault(group_id, {}).setdefault(topic, {})
        former = partitions.get(partition)
        if former is None:
            self.count += 1
        self._held.grow(size_of_offset(value) - size_of_offset(former))
        partitions[partition] = value

    def replay_end_transaction(self, producer_id: int, committed: bool) -> list[str]:
        """Returns the groups that the transaction committed offsets for."""
        pending = self._pending.pop(producer_id, {})
        touched = [group_id for group_id, ids in self._open_transactions.items() if producer_id in ids]
        for group_id in touched:
            ids = self._open_transactions[group_id]
            ids.discard(producer_id)
            if not ids:
                del self._open_transactions[group_id]
        for group_id, topics in pending.items():
            for topic, partitions in topics.items():
                for partition, value in partitions.items():
                    self._held.grow(-size_of_offset(value))
                    if committed:
                        existing = self.get(group_id, topic, partition)
                        if existing is None or value.record_offset > existing.record_offset:
                            self._commit(group_id, topic, partition, value)
        return touched

    def get(self, group_id: str, topic: str, partition: int) -> OffsetAndMetadata | None:
        return self._committed.get(group_id, {}).get(topic, {}).get(partition)

    def of_group(self, group_id: str) -> dict[str, dict[int, OffsetAndMetadata]]:
        """Topic -> partition -> offset. The caller must not keep the result."""
        return self._committed.get(group_id, {})

    def has_open_transaction(self, group_id: str) -> bool:
        return group_id in self._open_transactions

    def pending(self, group_id: str, topic: str, partition: int) -> Iterator[OffsetAndMetadata]:
        """The partition's pending offset in each open transaction that has one."""
        for producer_id in self._open_transactions.get(group_id, ()):
            if producer_id in self._pending:
                value = self._pending[producer_id].get(group_id, {}).get(topic, {}).get(partition)
                if value is not None:
                    yield value

    def is_pending(self, group_id: str, topic: str, partition: int) -> bool:
        return any(True for _ in self.pending(group_id, topic, partition))

    def pending_of_group(self, group_id: str) -> dict[str, set[int]]:
        """Topic -> partitions with offsets in open transactions."""
        pending: dict[str, set[int]] = {}
        for producer_id in self._open_transactions.get(group_id, ()):
            for topic, partitions in self._pending.get(producer_id, {}).get(group_id, {}).items():
                pending.setdefault(topic, set()).update(partitions)
        return pending

    def places(self, group_id: str) -> Iterator[tuple[str, int]]:
        """(topic, partition) of every committed offset. The state may change between two of them."""
        yield from _places(self._committed, group_id)

    def pending_places(self, group_id: str) -> Iterator[tuple[str, int]]:
        """(topic, partition) of every pending offset, once per open transaction. The state may change between two of
        them."""
        for producer_id in sorted(self._open_transactions.get(group_id, ())):
            pending = self._pending.get(producer_id)
            if pending is not None:
                yield from _places(pending, group_id)

    def has_more_than(self, group_id: str, count: int) -> bool:
        """Whether a group has more than `count` committed offsets."""
        found = 0
        for partitions in self._committed.get(group_id, {}).values():
            found += len(partitions)
            if found > count:
                return True
        return False

    def is_tracked(self, group_id: str, topic: str, partition: int) -> bool:
        """Whether a tombstone would remove anything."""
        return self.get(group_id, topic, partition) is not None or self.is_pending(group_id, topic, partition)

    def group_ids(self) -> list[str]:
        """Groups with committed offsets or open transactions."""
        committed = self._committed
        return [*committed, *(group_id for group_id in self._open_transactions if group_id not in committed)]

    def take_apart(self) -> Iterator[int]:
        """Free everything in steps."""
        self._open_transactions = {}
        committed = self._committed
        for offsets in (self._committed, *self._pending.values()):
            while offsets:
                _, topics = offsets.popitem()
                while topics:
                    _, partitions = topics.popitem()
                    while partitions:
                        _, value = partitions.popitem()
                        self._held.grow(-size_of_offset(value))
                        self.count -= offsets is committed
                        yield 1

    def growth(self, records: Iterable[OffsetRecord]) -> int:
        """How much more memory is held after these commits than before."""
        return sum(
            [
                size_of_offset(each.value)
                - size_of_offset(self.get(each.group_id, each.topic, each.partition))
                for each in records
            ]
        )

    def _remove(self, offsets: Offsets, group_id: str, topic: str, partition: int) -> bool:
        """Remove an offset and its empty levels, so that a group without offsets uses no memory. Return whether it was
        there."""
        topics = offsets.get(group_id)
        if topics is None:
            return False
        partitions = topics.get(topic)
        if partitions is None or (removed := partitions.pop(partition, None)) is None:
            return False
        self._held.grow(-size_of_offset(removed))
        if not partitions:
            del topics[topic]
            if not topics:
                del offsets[group_id]
        return True


def size_of_offset(value: OffsetAndMetadata | None) -> int:
    """The bytes of memory that an offset takes. None takes nothing."""
    return 0 if value is None else OFFSET_BYTES + getsizeof(value.metadata)


def _places(offsets: Offsets, group_id: str) -> Iterator[tuple[str, int]]:
    for topic in list(offsets.get(group_id, ())):
        for partition in list(offsets.get(group_id, {}).get(topic, ())):
            yield topic, partition
