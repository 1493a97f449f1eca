"""The last offset of each key in the dirty part of a log, within a bound of memory, and the records that are kept by it.

Keys are added and looked up; batches are unknown here. A short key is stored as it is, a longer one as its 16-byte
MD5, as in Kafka, so it takes no more space. There are two tiers. New entries go into a dict, where both operations run
in C. When the dict fills the memory, its entries move to packed buckets of 16 bytes per key and 8 per offset, which
bytearray.find searches. From then on the dict has only a part of the memory. Short keys and digests have separate
buckets, so a key is never mistaken for another key's digest.

KeptOffsets has the map's offsets in order, batch by batch. Each key's last offset belongs to exactly one record, so the
offsets are enough. A batch without any key's last offset is dropped without being opened, and one that has nothing else is
kept unchanged. Looking up every key again would take as long as building the map. If memory allows, it uses one byte for each
offset of the part. Otherwise it uses two bytes for each kept offset, in windows of 65,536.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, repeat
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from kafkacompat.ports import Buffer

try:
    # For one key, CPython's own MD5 takes a third of the time that OpenSSL needs to set up.
    from _md5 import md5  # type: ignore[import-not-found,unused-ignore]
except ImportError:
    from hashlib import md5

WINDOW_BITS = 16
WINDOW_MASK = (1 << WINDOW_BITS) - 1
TOMBSTONE_BATCHES_MOST = 100_000
"""The most batches with null values that are remembered. Later batches must be opened."""

DIGEST_SIZE = 16
RECENT_ENTRY_BYTES = 192
"""Upper estimate of a dict entry with key and offset. The dict's table is up to four times as long as its entries, and
exists twice while it grows."""
KEPT_OFFSETS_ENTRY_BYTES = 4
PACKED_ENTRY_BYTES = 32 + KEPT_OFFSETS_ENTRY_BYTES
"""A digest and an offset in a bucket, with the reserve of growing arrays, the bucket's own objects, and the share of
the kept_offsets."""
RECENT_SHARE = 4
"""With buckets in use, the dict gets this fraction (1/4) of the memory."""
BUCKET_ENTRIES = 24
LEAST_ENTRIES = 16
_PADS = [bytes(DIGEST_SIZE - 1 - length) + bytes((length,)) for length in range(DIGEST_SIZE)]
"""Padding that makes a short key 16 bytes long. It differs for each length."""


class Buckets:
    """Entries of 16 bytes and their offsets. The entry's hash selects the bucket."""

    __slots__ = ("_entries", "_mask", "_offsets", "size")

    def __init__(self, count: int) -> None:
        """`count` must be a power of two."""
        self._mask = count - 1
        self._entries = [bytearray() for _ in range(count)]
        self._offsets: list[array[int]] = [array("q") for _ in range(count)]
        self.size = 0

    def put(self, entry: bytes, offset: int) -> None:
        number = hash(entry) & self._mask
        entries = self._entries[number]
        at = entries.find(entry)
        while at > 0 and at & 15:
            at = entries.find(entry, at + 1)
        if at < 0:
            entries += entry
            self._offsets[number].append(offset)
            self.size += 1
        else:
            self._offsets[number][at >> 4] = offset

    def find(self, entry: bytes) -> int:
        """The offset of an entry. -1 if unknown."""
        number = hash(entry) & self._mask
        entries = self._entries[number]
        at = entries.find(entry)
        while at > 0 and at & 15:
            at = entries.find(entry, at + 1)
        return -1 if at < 0 else self._offsets[number][at >> 4]

    def offsets(self) -> Iterator[int]:
        return chain.from_iterable(self._offsets)


class OffsetMap:
    """Keys and their last offsets. `latest_offset` (inclusive) is the end of the dirty part whose keys are all in the
    map."""

    __slots__ = (
        "_bucket_count",
        "_digests",
        "_recent",
        "_recent_most",
        "_recent_share",
        "_short",
        "capacity",
        "latest_offset",
        "marks_most",
    )

    def __init__(self, memory_bytes: int, load_factor: float) -> None:
        """`load_factor` is Kafka's: the share of the memory that may be used. Settings allow any number, even NaN."""
        usable = int(memory_bytes * min(1.0, max(0.0, load_factor)))
        recent_bytes = usable // RECENT_SHARE
        self._recent_share = max(recent_bytes // RECENT_ENTRY_BYTES, LEAST_ENTRIES)
        # While the dict is emptied, the buckets grow beside it.
        self._recent_most = max(usable // (RECENT_ENTRY_BYTES + PACKED_ENTRY_BYTES), self._recent_share)
        packed_most = (usable - recent_bytes) // PACKED_ENTRY_BYTES
        self.capacity = self._recent_share + packed_most
        """The most keys the map can have."""
        self.marks_most = self.capacity * KEPT_OFFSETS_ENTRY_BYTES
        """Bytes that the kept_offsets may use beside the map."""
        self._recent: dict[bytes, int] = {}
        self._bucket_count = 1 << max(packed_most // BUCKET_ENTRIES, 1).bit_length() - 1
        self._short: Buckets | None = None
        self._digests: Buckets | None = None
        self.latest_offset = -1

    def __len__(self) -> int:
        """Number of keys. A key in both tiers counts twice."""
        return len(self._recent) + sum(one.size for one in (self._short, self._digests) if one is not None)

    @property
    def utilization(self) -> float:
        """The used share of the capacity."""
        return len(self) / self.capacity

    def has_room(self, keys: int) -> bool:
        """Whether `keys` more keys would fit if all were new. An empty map accepts any batch, because otherwise the
        cleaning could not progress."""
        if len(self) + keys <= self.capacity or not len(self):
            return True
        if self._short is not None or self._digests is not None:
            # A key in both tiers counts twice until the dict is emptied.
            self._pour()
            return len(self) + keys <= self.capacity
        return False

    def put(self, keys: Sequence[bytes], offsets: Iterable[int]) -> None:
        """Add keys. The offsets must ascend from call to call."""
        recent = self._recent
        recent.update(zip(_named(keys), offsets, strict=True))
        if len(recent) > self._recent_most:
            self._pour()

    def find(self, keys: Sequence[bytes]) -> list[int]:
        """The last offset of each key. -1 for unknown keys."""
        named = _named(keys)
        found = list(map(self._recent.get, named, repeat(-1)))
        short, digests = self._short, self._digests
        if (short is not None or digests is not None) and -1 in found:
            for at, offset in enumerate(found):
                if offset < 0:
                    name = named[at]
                    if len(name) == DIGEST_SIZE:
                        if digests is not None:
                            found[at] = digests.find(name)
                    elif short is not None:
                        found[at] = short.find(name + _PADS[len(name)])
        return found

    def offsets(self) -> Iterator[int]:
        """The last offset of every key, unordered."""
        if self._short is None and self._digests is None:
            return iter(self._recent.values())
        self._pour()
        return chain.from_iterable(
            each.offsets() for each in (self._short, self._digests) if each is not None
        )

    def _pour(self) -> None:
        """Move the dict's entries into the buckets."""
        for name, offset in self._recent.items():
            if len(name) == DIGEST_SIZE:
                if self._digests is None:
                    self._digests = Buckets(self._bucket_count)
                self._digests.put(name, offset)
            else:
                if self._short is None:
                    self._short = Buckets(self._bucket_count)
                self._short.put(name + _PADS[len(name)], offset)
        self._recent = {}
        self._recent_most = self._recent_share


def _named(keys: Sequence[bytes]) -> Sequence[bytes]:
    """The keys, with long ones replaced by digests. Every key of 16 bytes or more is hashed, so each name of 16 bytes
    is a digest."""
    if max(map(len, keys), default=0) < DIGEST_SIZE:
        return keys
    return cast(
        Sequence[bytes],
        [key if len(key) < DIGEST_SIZE else md5(key, usedforsecurity=False).digest() for key in keys],
    )


class KeptOffsets:
    """`between` answers for offsets from `start` to `end` inclusive, the part that the map covers. Ascending calls are
    the fastest."""

    __slots__ = ("_marks", "_open_number", "_open_offsets", "_tombstones", "_windows", "end", "start")

    def __init__(
        self,
        offsets: Iterable[int],
        start: int,
        end: int,
        tombstone_batches: array[int],
        marks_most: int,
    ) -> None:
        """`offsets` are those of the kept records, in any order. `tombstone_batches` has the ascending base offsets of
        batches with null values; beyond a full array they are unknown. `marks_most` is the number of bytes available."""
        self.start = start
        self.end = end
        self._marks: bytearray | None = None
        windows: dict[int, array[int]] = {}
        if end - start < marks_most:
            marks = self._marks = bytearray(max(end + 1 - start, 0))
            for offset in offsets:
                marks[offset - start] = 1
            offsets = ()
        for offset in offsets:
            number = offset >> WINDOW_BITS
            window = windows.get(number)
            if window is None:
                window = windows[number] = array("H")
            window.append(offset & WINDOW_MASK)
        self._windows = windows
        self._open_number = -1
        self._open_offsets: list[int] = []
        self._tombstones = tombstone_batches

    def may_hold_tombstones(self, base_offset: int) -> bool:
        tombstones = self._tombstones
        if len(tombstones) >= TOMBSTONE_BATCHES_MOST and base_offset > tombstones[-1]:
            return True
        at = bisect_left(tombstones, base_offset)
        return at < len(tombstones) and tombstones[at] == base_offset

    def between(self, first: int, last: int) -> Buffer:
        """One byte for each offset from first to last: 1 if it is kept, else 0."""
        if self._marks is not None:
            return self._marks[first - self.start : last + 1 - self.start]
        marks = bytearray(last + 1 - first)
        for number in range(first >> WINDOW_BITS, (last >> WINDOW_BITS) + 1):
            offsets = self._window(number)
            shift = (number << WINDOW_BITS) - first
            begin = bisect_left(offsets, -shift)
            end = bisect_left(offsets, last - first - shift + 1, begin)
            for offset in offsets[begin:end]:
                marks[offset + shift] = 1
        return marks

    def any_between(self, first: int, last: int) -> bool:
        if self._marks is not None:
            return self._marks.find(1, first - self.start, last + 1 - self.start) >= 0
        for number in range(first >> WINDOW_BITS, (last >> WINDOW_BITS) + 1):
            offsets = self._window(number)
            shift = (number << WINDOW_BITS) - first
            at = bisect_left(offsets, -shift)
            if at < len(offsets) and offsets[at] + shift <= last - first:
                return True
        return False

    def _window(self, number: int) -> list[int]:
        if number != self._open_number:
            window = self._windows.get(number)
            self._open_number = number
            self._open_offsets = [] if window is None else sorted(window)
        return self._open_offsets
