"""Checks a compacted partition: each key's last committed value is there, and tombstones are kept long enough.

A cleaned log is compared with the committed records, record by record. This module knows no cleaner: a missing record
must be one that may be missing, whatever removed it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from kafkacompat.records.batch import BatchHeader
from kafkacompat.records.read import records_of
from kafkacompat.sim.breach import Breach
from kafkacompat.sim.topics import DELETE_RETENTION_MS

if TYPE_CHECKING:
    from kafkacompat.ports import Buffer

COMMIT_MARKER = b"\x00\x00\x00\x01"
"""Version and type: the key of a marker's record."""


class Content(NamedTuple):
    """A record of a data batch."""

    key: bytes | None
    value: bytes | None


class Entry(NamedTuple):
    """A committed record."""

    content: Content
    producer_id: int
    """The producer id of a transactional record, otherwise -1."""
    is_marker: bool
    at_us: int


def contents_of(header: BatchHeader, batch: Buffer) -> dict[int, Content]:
    """Return the records of a batch by offset."""
    return {
        offset: Content(
            None if record.key is None else bytes(record.key),
            None if record.value is None else bytes(record.value),
        )
        for offset, record in records_of(batch, header)
    }


class KeyLedger:
    """Every record that was committed in one partition."""

    def __init__(self) -> None:
        self.entries: dict[int, Entry] = {}
        self._by_key: dict[bytes, list[int]] = {}
        self._markers: dict[int, list[tuple[int, bool]]] = {}
        """By producer id: (offset, whether the marker commits)."""

    def commit(self, header: BatchHeader, contents: Mapping[int, Content], at_us: int) -> None:
        producer_id = header.producer_id if header.is_transactional else -1
        for offset, content in contents.items():
            self.entries[offset] = Entry(content, producer_id, header.is_control, at_us)
            if header.is_control:
                is_commit = content.key == COMMIT_MARKER
                self._markers.setdefault(header.producer_id, []).append((offset, is_commit))
            elif content.key is not None:
                self._by_key.setdefault(content.key, []).append(offset)

    def is_final(self, offset: int) -> bool | None:
        """Whether the record is committed by its transaction. None while the transaction is open."""
        producer_id = self.entries[offset].producer_id
        if producer_id < 0:
            return True
        markers = self._markers.get(producer_id, [])
        at = bisect_right(markers, (offset, True))
        return markers[at][1] if at < len(markers) else None

    def _successors(self, offset: int) -> list[int]:
        """Return later records with the same key that are final."""
        key = self.entries[offset].content.key
        if key is None:
            return []
        offsets = self._by_key[key]
        return [each for each in offsets[bisect_right(offsets, offset) :] if self.is_final(each)]

    def may_be_gone(self, offset: int, now_us: int | None) -> bool:
        """Whether the record may be missing. `now_us` is None if clocks were set, so that a tombstone's age is unknown."""
        entry = self.entries[offset]
        if entry.is_marker or self.is_final(offset) is False:
            return True
        if self.is_final(offset) is None:
            return False
        if self._successors(offset):
            return True
        is_old = now_us is None or now_us >= entry.at_us + 1000 * DELETE_RETENTION_MS
        return entry.content.value is None and is_old

    def check(
        self,
        where: str,
        present: Mapping[int, Content],
        end: int,
        now_us: int | None,
        tombstones_met: set[int],
    ) -> None:
        """Check a log below `end`. `tombstones_met` are the tombstones that this log has had since its last truncation."""
        for offset, entry in self.entries.items():
            if offset >= end:
                break
            if offset not in present and not self.may_be_gone(offset, now_us):
                raise Breach(
                    "each key's last value stays", f"{where} has no record at {offset} any more: {entry}"
                )
        for offset, content in present.items():
            if offset >= end or self.entries[offset].is_marker or content.key is None:
                continue
            if self.is_final(offset) is not True:
                continue
            for later in self._successors(offset):
                is_met = later in tombstones_met and self.entries[later].content.value is None
                if is_met and later < end and later not in present and not self._shadowed(later, present):
                    raise Breach(
                        "tombstones are respected",
                        f"{where} has {content} at {offset}, and no more its tombstone of {later}",
                    )

    def _shadowed(self, offset: int, present: Mapping[int, Content]) -> bool:
        """Whether the log has a later record with the same key."""
        return any(each in present for each in self._successors(offset))
