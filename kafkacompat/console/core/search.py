"""A search through the partitions of a topic, from the newest records to the oldest: what matches, and which stretch is read
next. Pure.

Records can be read forwards only. So a search reads stretches of offsets, each forwards, and each before the one that was
read last. How many offsets a stretch has follows from the records and bytes of the one before.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kafkacompat.console.core.newest import Stand, newest_of

FIRST_SPAN: Final = 200
GROWTH: Final = 4
STRETCH_RECORDS: Final = 5_000
STRETCH_BYTES: Final = 4 * 1024 * 1024
"""The next stretch is longer only if it would have at most so many records and bytes. With twice as many it is given up, and
a shorter one is read."""
SEARCHED_BYTES: Final = 1_000_000
"""Text is looked for in so many bytes of a value."""
HEX_MARK: Final = "0x"


class Stretch(NamedTuple):
    """Offsets of a partition: from `start` on, before `end`."""

    partition: int
    start: int
    end: int


class Amount(NamedTuple):
    """How much was looked at. cut: values that are longer than what text is looked for in."""

    records: int = 0
    bytes: int = 0
    cut: int = 0

    def plus(self, other: Amount) -> Amount:
        return Amount(self.records + other.records, self.bytes + other.bytes, self.cut + other.cut)

    def minus(self, other: Amount) -> Amount:
        return Amount(self.records - other.records, self.bytes - other.bytes, self.cut - other.cut)


NOTHING: Final = Amount()


class Hit(NamedTuple):
    """A record that matches. after: how much was looked at in its stretch after it."""

    at_ms: int
    offset: int
    after: Amount


@dataclass(slots=True)
class _Side:
    """How far a partition is searched: from `first` on, before `end`, is still to be searched. hits: the newest first, each with
    all that was looked at after it."""

    first: int
    end: int
    span: int = FIRST_SPAN
    oldest_ms: int | None = None
    amount: Amount = NOTHING
    hits: list[Hit] = field(default_factory=list)


class Outcome(NamedTuple):
    """What a request has found, the newest first as partition and offset, how much it looked at, and what is left.

    back_to_ms: the time to which all partitions are searched, or None if that is not known. left: offsets that are still to be
    searched; there may be fewer records. ends: of each partition the offset before which to go on.
    """

    order: list[tuple[int, int]]
    amount: Amount
    back_to_ms: int | None
    left: int
    ends: tuple[int, ...]


class Frontier:
    """What is searched of each partition, and what was found. The partition whose searched part ends with the newest record is the
    next, so that all of them go back in time together."""

    __slots__ = ("_limit", "_sides")

    def __init__(self, places: Mapping[int, tuple[int, int]], limit: int) -> None:
        """places: the first offset to search of each partition, and the end. limit: how many records to find."""
        self._limit = limit
        self._sides = {
            number: _Side(first, max(first, end)) for number, (first, end) in sorted(places.items())
        }

    def next(self) -> Stretch | None:
        """Return the stretch to read now. None if enough is found, or everything searched."""
        waiting = [
            (number, side)
            for number, side in self._sides.items()
            if side.end > side.first and len(side.hits) <= self._limit
        ]
        if not waiting:
            return None
        number, side = max(
            waiting, key=lambda each: (each[1].oldest_ms is None, each[1].oldest_ms or 0, -each[0])
        )
        if side.oldest_ms is not None and self._found_since(side.oldest_ms) >= self._limit:
            return None
        return Stretch(number, max(side.first, side.end - side.span), side.end)

    def room(self, stretch: Stretch) -> int:
        """How many of the newest hits of this stretch are wanted: of a partition one more than are shown, before which nothing
        counts as searched."""
        return self._limit + 1 - len(self._sides[stretch.partition].hits)

    def looked(
        self, stretch: Stretch, amount: Amount, oldest_ms: int | None, hits: Sequence[Hit] = ()
    ) -> None:
        """The stretch is searched. amount: of the whole of it. oldest_ms: of its records. hits: the newest that match, oldest
        first."""
        side = self._sides[stretch.partition]
        side.hits += [hit._replace(after=side.amount.plus(hit.after)) for hit in reversed(hits)]
        side.amount = side.amount.plus(amount)
        side.end = stretch.start
        if oldest_ms is not None:
            side.oldest_ms = oldest_ms
        if amount.records * GROWTH <= STRETCH_RECORDS and amount.bytes * GROWTH <= STRETCH_BYTES:
            side.span *= GROWTH

    def is_too_long(self, stretch: Stretch, amount: Amount) -> bool:
        """Whether a stretch of which so much is read should be given up for a shorter one. One offset is never too long."""
        return stretch.end - stretch.start > 1 and (
            amount.records > 2 * STRETCH_RECORDS or amount.bytes > 2 * STRETCH_BYTES
        )

    def shorten(self, stretch: Stretch) -> None:
        """The next stretch ends where this one does, and is shorter."""
        self._sides[stretch.partition].span = max(1, (stretch.end - stretch.start) // (2 * GROWTH))

    def outcome(self) -> Outcome:
        """What lies before the first hit that is not shown does not count as searched, so that it is found again."""
        stands = {
            number: Stand(tuple((hit.at_ms, hit.offset) for hit in reversed(side.hits)), side.end, side.end)
            for number, side in self._sides.items()
        }
        order, _ = newest_of(stands, self._limit)
        shown = Counter(number for number, _ in order)
        amount, ends = NOTHING, list[int]()
        oldest: list[int | None] = []
        for number, side in self._sides.items():
            if shown[number] < len(side.hits):
                hidden = side.hits[shown[number]]
                amount = amount.plus(hidden.after)
                ends.append(hidden.offset + 1)
                oldest.append(hidden.at_ms)
            else:
                amount = amount.plus(side.amount)
                ends.append(side.end)
                if side.end > side.first:
                    oldest.append(side.oldest_ms)
        known = [each for each in oldest if each is not None]
        left = sum(end - side.first for end, side in zip(ends, self._sides.values(), strict=True))
        return Outcome(
            order,
            amount,
            max(known) if known and len(known) == len(oldest) else None,
            left,
            tuple(ends),
        )

    def _found_since(self, at_ms: int) -> int:
        return sum(hit.at_ms >= at_ms for side in self._sides.values() for hit in side.hits)


class Wanted:
    """What a record must have: this text as its key, this text in its value, and a time from from_ms on, before to_ms."""

    __slots__ = ("_from_ms", "_key", "_keys", "_text", "_texts", "_to_ms")

    def __init__(self, key: str | None, text: str | None, from_ms: int | None, to_ms: int | None) -> None:
        self._key, self._text = key, text
        self._keys = None if key is None else frozenset(_key_forms(key))
        self._texts = None if text is None else tuple(dict.fromkeys(_text_forms(text)))
        self._from_ms, self._to_ms = from_ms, to_ms

    def is_in_time(self, timestamp_ms: int | None) -> bool:
        """Whether the record's time is wanted. A record without a time is not, if a time is asked for."""
        if self._from_ms is None and self._to_ms is None:
            return True
        return (
            timestamp_ms is not None
            and (self._from_ms is None or timestamp_ms >= self._from_ms)
            and (self._to_ms is None or timestamp_ms < self._to_ms)
        )

    def has_key(self, key: bytes | None) -> bool:
        return self._keys is None or key in self._keys

    def has_text(self, value: bytes | None) -> bool:
        """Whether the text is in the value as it is written, or escaped as in JSON."""
        return self._texts is None or (
            value is not None and any(value.find(form, 0, SEARCHED_BYTES) >= 0 for form in self._texts)
        )

    def is_key_told(self, told: str | None) -> bool:
        """Whether the text is in what the console shows of a key that is no text."""
        return self._key is None or (told is not None and self._key in told)

    def is_text_told(self, told: str | None) -> bool:
        """Whether the text is in what the console shows of a value that is no text."""
        return self._text is None or (told is not None and self._text in told)


def _key_forms(key: str) -> Iterator[bytes]:
    yield key.encode()
    if key.startswith(HEX_MARK):
        try:
            yield bytes.fromhex(key.removeprefix(HEX_MARK))
        except ValueError:
            return


def _text_forms(text: str) -> Iterator[bytes]:
    yield text.encode()
    yield json.dumps(text, ensure_ascii=False)[1:-1].encode()
    yield json.dumps(text)[1:-1].encode()
