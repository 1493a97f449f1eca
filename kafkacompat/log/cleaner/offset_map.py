"""The last offset of each key, within a bound of memory: what a cleaning knows of the dirty part of a log.

Duty: put and look up. Must not know: batches. A key is known by itself when it is short and else by its 16-byte MD5, as in Kafka,
so that a long one takes no more room. Two tiers: new entries go to a dict, where both ways are C; when that has its share of the
memory it is poured into buckets of packed digests, 16 bytes a key and 8 an offset, which bytearray.find searches.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from hashlib import md5
from itertools import repeat
from typing import cast

DIGEST_SIZE = 16
RECENT_ENTRY_BYTES = 192
"""A dict entry with its key and offset, counted high: the dict doubles when it grows."""
PACKED_ENTRY_BYTES = 32
"""A digest and an offset in a bucket, with what growing arrays hold in reserve and the bucket's own objects."""
RECENT_SHARE = 4
"""The dict gets this part of the memory."""
BUCKET_ENTRIES = 24
LEAST_ENTRIES = 16


def _digest(key: bytes) -> bytes:
    return md5(key, usedforsecurity=False).digest()


class OffsetMap:
    """`latest_offset`: up to and with it every key of the dirty part has been put."""

    __slots__ = (
        "_buckets",
        "_mask",
        "_offsets",
        "_packed",
        "_recent",
        "_recent_most",
        "capacity",
        "latest_offset",
    )

    def __init__(self, memory_bytes: int, load_factor: float) -> None:
        """The load factor is Kafka's: what part of the memory may be filled."""
        usable = int(memory_bytes * load_factor)
        recent_bytes = usable // RECENT_SHARE
        self._recent_most = max(recent_bytes // RECENT_ENTRY_BYTES, LEAST_ENTRIES)
        packed_most = (usable - recent_bytes) // PACKED_ENTRY_BYTES
        self.capacity = self._recent_most + packed_most
        """Keys that have room."""
        self._recent: dict[bytes, int] = {}
        self._mask = (1 << max(packed_most // BUCKET_ENTRIES, 1).bit_length() - 1) - 1
        self._buckets: list[bytearray] = []
        self._offsets: list[array[int]] = []
        self._packed = 0
        self.latest_offset = -1

    def __len__(self) -> int:
        """Keys, those in both tiers counted twice."""
        return len(self._recent) + self._packed

    def has_room(self, keys: int) -> bool:
        """Whether so many more would fit if all were new. An empty map takes any batch: without that nothing would move on."""
        if len(self) + keys <= self.capacity or not len(self):
            return True
        if self._packed:
            # Keys in both tiers are counted twice until the dict is poured out.
            self._pour()
            return len(self) + keys <= self.capacity
        return False

    def put(self, keys: Sequence[bytes], offsets: Iterable[int]) -> None:
        """Offsets ascend from call to call."""
        recent = self._recent
        recent.update(zip(_short(keys), offsets, strict=True))
        if len(recent) > self._recent_most:
            self._pour()

    def find(self, keys: Sequence[bytes]) -> list[int]:
        """The last offset of each key, -1 for those that are unknown."""
        short = _short(keys)
        found = list(map(self._recent.get, short, repeat(-1)))
        if self._packed and -1 in found:
            for at, offset in enumerate(found):
                if offset < 0:
                    found[at] = self._find_packed(short[at])
        return found

    def _find_packed(self, key: bytes) -> int:
        digest = key if len(key) == DIGEST_SIZE else _digest(key)
        number = int.from_bytes(digest[:4], "little") & self._mask
        at = _place(self._buckets[number], digest)
        return -1 if at < 0 else self._offsets[number][at]

    def _pour(self) -> None:
        """Move the dict's entries into the buckets."""
        if not self._buckets:
            self._buckets = [bytearray() for _ in range(self._mask + 1)]
            self._offsets = [array("q") for _ in range(self._mask + 1)]
        buckets, all_offsets, mask = self._buckets, self._offsets, self._mask
        for key, offset in self._recent.items():
            digest = key if len(key) == DIGEST_SIZE else _digest(key)
            number = int.from_bytes(digest[:4], "little") & mask
            bucket = buckets[number]
            at = _place(bucket, digest)
            if at < 0:
                bucket += digest
                all_offsets[number].append(offset)
                self._packed += 1
            else:
                all_offsets[number][at] = offset
        self._recent = {}


def _place(bucket: bytearray, digest: bytes) -> int:
    """Which entry of a bucket a digest is; -1 for none."""
    at = bucket.find(digest)
    while at > 0 and at % DIGEST_SIZE:
        at = bucket.find(digest, at + 1)
    return at // DIGEST_SIZE if at >= 0 else -1


def _short(keys: Sequence[bytes]) -> Sequence[bytes]:
    """The keys, long ones as digests. What has 16 bytes is a digest, so a key of 16 is one too."""
    if max(map(len, keys), default=0) < DIGEST_SIZE:
        return keys
    return cast(Sequence[bytes], [key if len(key) < DIGEST_SIZE else _digest(key) for key in keys])
