"""The last offset of each key in the dirty part of a log, within a bound of memory.

Keys are added and looked up; batches are unknown here. A short key is stored as it is, a longer one as its 16-byte
MD5, as in Kafka, so it takes no more space. There are two tiers. New entries go into a dict, where both operations run
in C. When the dict fills the memory, its entries move to packed buckets of 16 bytes per key and 8 per offset, which
bytearray.find searches. From then on the dict has only a part of the memory. Short keys and digests have separate
buckets, so a key is never mistaken for another key's digest.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, repeat
from typing import cast

try:
    # For one key, CPython's own MD5 takes a third of the time that OpenSSL needs to set up.
    from _md5 import md5  # type: ignore[import-not-found,unused-ignore]
except ImportError:
    from hashlib import md5

DIGEST_SIZE = 16
RECENT_ENTRY_BYTES = 192
"""Upper estimate of a dict entry with key and offset. The dict's table is up to four times as long as its entries, and
exists twice while it grows."""
SURVIVORS_ENTRY_BYTES = 4
PACKED_ENTRY_BYTES = 32 + SURVIVORS_ENTRY_BYTES
"""A digest and an offset in a bucket, with the reserve of growing arrays, the bucket's own objects, and the share of
the survivors."""
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
        self.marks_most = self.capacity * SURVIVORS_ENTRY_BYTES
        """Bytes that the survivors may use beside the map."""
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
