"""Uncompressed bodies cut up in C: a regular expression made of the lengths that were met takes record after record.

They learn the lengths of a log's records and keys, and find the keys or the records of a body by them. Nobody's text becomes a
pattern: only lengths do. What no stencil fits is told by None: the caller walks it (columns.py) and shows it to `learn`. A walk
takes about 0.3 us a record, this a third of that.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING

from kafkacompat.records.columns import read_bounds
from kafkacompat.records.record import read_varint

if TYPE_CHECKING:
    from kafkacompat.ports import Buffer

LENGTHS_MOST = 128
"""Different lengths of records; with more, trying them one after another takes as long as walking."""
KEY_LENGTHS_MOST = 8
LONGEST_KEY = 63
"""Whose length takes one byte."""
LEARN_MOST = 256
"""Bodies looked at before a try; when that comes to nothing too, nothing is tried again."""
HITS_FORGIVE = 64
"""Bodies in a row that fitted, after which a miss is taken for the first."""
_MORE = rb"[\x80-\xff]"
_LAST = rb"[\x00-\x7f]"
_NOT_NULL = b"[%s]" % b"".join(b"\\x%02x" % byte for byte in range(0, 256, 2))
"""The first byte of a length that is not negative."""
_WIDEST_NUMBER = 3
"""Bytes of a timestamp or an offset, as far as the patterns go: a quarter of an hour, a million records."""
_BESIDES = 3
"""Bytes of a record besides those and its key that are certain: attributes, the key's length, the value's first."""
_SURE_BESIDES = _BESIDES + 2 * _WIDEST_NUMBER


class Stencils:
    """For the records of one log; one thread. Positions in bytes. Ask for records after keys: only those teach."""

    __slots__ = (
        "_given_up",
        "_hits",
        "_key_lengths",
        "_keys",
        "_keys_or_nulls",
        "_left",
        "_lengths",
        "_met_nulls",
        "_new",
        "_prefixes",
        "_records",
        "_window",
    )

    def __init__(self) -> None:
        self._lengths: dict[int, bytes] = {}
        """The bytes that tell a length, by the length."""
        self._key_lengths: set[int] = set()
        self._met_nulls = self._new = False
        self._window = self._left = 1
        """Bodies to be looked at before the next try, and how many of them are left."""
        self._hits = 0
        self._given_up = False
        self._prefixes: dict[int, bytes] = {}
        """Those bytes by a record's size with them, as the patterns have them."""
        self._keys: re.Pattern[bytes] | None = None
        self._keys_or_nulls: re.Pattern[bytes] | None = None
        self._records: re.Pattern[bytes] | None = None

    def keys(self, data: Buffer, start: int, end: int, count: int) -> tuple[Sequence[bytes], bool] | None:
        """The keys of the `count` records between two positions, none of them null, and whether a value may be null."""
        if self._left or self._given_up:
            return None
        for pattern, nulls in ((self._keys, False), (self._keys_or_nulls, True)):
            if pattern is not None:
                # What fits nothing is taken in one piece to the end, without a key.
                keys = pattern.findall(data, start, end)
                if len(keys) == count and keys[-1]:
                    self._hits += 1
                    return keys, nulls
        self._window = 1 if self._hits >= HITS_FORGIVE else self._window * 2
        self._left = self._window
        self._given_up = self._window > LEARN_MOST
        self._hits = 0
        return None

    def records(self, data: Buffer, start: int, end: int, count: int) -> list[bytes] | None:
        """Each of the `count` records between two positions, with its length in front."""
        if self._records is None:
            return None
        records: list[bytes] = self._records.findall(data, start, end)
        if len(records) == count:
            last = records[-1]
            prefix = self._prefixes.get(len(last))
            if prefix is not None and last.startswith(prefix):
                return records
        return None

    def learn(self, body: bytes, count: int, keys: Sequence[bytes | None], nulls: bool) -> None:
        """From a body that was walked, as long as there is anything to be learnt: its keys, and whether a value is null."""
        if not self._left or self._given_up:
            return
        lengths, key_lengths = self._lengths, self._key_lengths
        known = len(lengths), len(key_lengths), self._met_nulls
        for at in read_bounds(body, count)[:-1]:
            length, end = read_varint(body, at)
            lengths[length] = body[at:end]
        key_lengths.update([len(key) for key in keys if key is not None])
        self._met_nulls |= nulls
        self._new |= known != (len(lengths), len(key_lengths), self._met_nulls)
        self._left -= 1
        self._given_up = (
            len(lengths) > LENGTHS_MOST
            or len(key_lengths) > KEY_LENGTHS_MOST
            or not all(0 < length <= LONGEST_KEY for length in key_lengths)
        )
        if self._new and (self._given_up or not self._left):
            self._new = False
            self._make()

    def _make(self) -> None:
        self._keys = self._keys_or_nulls = self._records = None
        if len(self._lengths) > LENGTHS_MOST:
            return
        self._records = re.compile(rb"(?s)%s|.+" % _alternatives(self._lengths))
        self._prefixes = {len(prefix) + length: prefix for length, prefix in self._lengths.items()}
        if self._given_up or not self._key_lengths:
            return
        key_lengths = sorted(self._key_lengths)
        least = key_lengths[0] + _BESIDES + 2
        lengths = {length: prefix for length, prefix in self._lengths.items() if length >= least}
        if lengths:
            front, whole = _front(lengths, key_lengths) + _key(key_lengths), _alternatives(lengths)
            self._keys = re.compile(rb"(?s)(?=%s%s)(?:%s)|.+" % (front, _NOT_NULL, whole))
            if self._met_nulls:
                self._keys_or_nulls = re.compile(rb"(?s)(?=%s)(?:%s)|.+" % (front, whole))


def _alternatives(lengths: Mapping[int, bytes]) -> bytes:
    """Of whole records."""
    return b"|".join([b"%s.{%d}" % (re.escape(prefix), length) for length, prefix in lengths.items()])


def _front(lengths: Mapping[int, bytes], key_lengths: Sequence[int]) -> bytes:
    """What lies before a key's length, bounded so that the key cannot reach beyond its record."""
    sizes = {len(prefix) for prefix in lengths.values()}
    prefix = b"." * sizes.pop() if len(sizes) == 1 else _MORE + b"{0,4}+" + _LAST
    number = _MORE + b"{0,%d}+" % (_WIDEST_NUMBER - 1) + _LAST
    usual = prefix + b"." + number + number
    short = {length: each for length, each in lengths.items() if length < key_lengths[-1] + _SURE_BESIDES}
    if not short:
        return usual
    fronts = [
        re.escape(each) + b"(?:%s)" % b"|".join(_short_fronts(length, key_lengths))
        for length, each in short.items()
    ]
    return b"(?:(?!%s)%s|%s)" % (b"|".join(map(re.escape, short.values())), usual, b"|".join(fronts))


def _short_fronts(length: int, key_lengths: Sequence[int]) -> list[bytes]:
    """Of a record that is too short for some keys behind some fronts: the wider the front, the shorter the key."""
    fronts = []
    numbers = [_MORE * more + _LAST for more in range(_WIDEST_NUMBER)]
    for timestamp, offset in product(numbers, numbers):
        widths = numbers.index(timestamp) + numbers.index(offset) + 2
        longest = length - _BESIDES - widths
        if longest >= key_lengths[0]:
            fronts.append(b"." + timestamp + offset)
            if longest < key_lengths[-1]:
                fronts[-1] += b"(?=[\\x02-\\x%02x])" % (2 * longest)
    return fronts


def _key(lengths: Sequence[int]) -> bytes:
    """A key's length, and in the pattern's only group the key."""
    if len(lengths) == 1:
        return re.escape(bytes((lengths[0] * 2,))) + b"(.{%d})" % lengths[0]
    each = [b"(?<=%s).{%d}" % (re.escape(bytes((length * 2,))), length) for length in lengths]
    return b".(%s)" % b"|".join(each)
