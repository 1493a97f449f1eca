"""Acknowledgement batches of one offset each, as a member sends them that acknowledges record by record.

A request may have hundreds of them in a row. They are read together, and kept as runs of offsets with a type for each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from struct import Struct
from typing import Any, NamedTuple

from kafkacompat.wire.definition import StructSpec
from kafkacompat.wire.primitives import ByteSequence

FIELDS = [
    ("first_offset", "int64", False),
    ("last_offset", "int64", False),
    ("acknowledge_types", "int8", True),
]
_OFFSETS = Struct(">qq3x")
SIZE = _OFFSETS.size
"""Bytes of a batch with one type and without tags."""
_COUNT_AT, _TYPE_AT, _TAGS_AT = 16, 17, 18
_ONE_TYPE, _NO_TAGS = 2, 0
LEAST, MOST = 4, 2_000
"""Fewer batches are not worth it, and more would take too long in one piece."""


class Run(NamedTuple):
    """A batch for each offset from the first one on."""

    first_offset: int
    types: bytes
    """As they are sent: a negative one is above 127 here."""

    @property
    def last_offset(self) -> int:
        return self.first_offset + len(self.types) - 1


class OneByOne(Sequence[Any]):
    """Stands in for the list of batches in a message. The batches are made when somebody asks for them."""

    __slots__ = ("_count", "_make", "runs")

    def __init__(self, make: Callable[..., Any], runs: Sequence[Run]) -> None:
        """`make` is the class of the batches."""
        self._make = make
        self.runs = runs
        """In the order of the message. The next offset after a run is never the first one of the run that follows."""
        self._count = sum([len(run.types) for run in runs])

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Any]:
        make = self._make
        for first, types in self.runs:
            for offset, kind in enumerate(types, first):
                yield make(
                    first_offset=offset,
                    last_offset=offset,
                    acknowledge_types=[kind if kind < 128 else kind - 256],
                )

    def __getitem__(self, index: Any) -> Any:
        return list(self)[index]

    def __eq__(self, other: object) -> bool:
        return list(self) == (list(other) if isinstance(other, OneByOne) else other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(list(self))


def may_be(spec: StructSpec, version: int) -> bool:
    """Whether the struct is an acknowledgement batch, in a version with tags."""
    fields = [(field.name, field.kind, field.is_array) for field in spec.plain(version)]
    return fields == FIELDS and not spec.tagged(version) and not spec.absent(version)


def read(make: Callable[..., Any], buffer: ByteSequence, position: int, count: int) -> OneByOne | None:
    """The array of `count` batches at the position. None if not all of them have this form, or are there."""
    end = position + count * SIZE
    if not LEAST <= count <= MOST or end > len(buffer):
        return None
    body = bytes(buffer[position:end])
    # If the first batch has one type and no tags, the second one begins SIZE bytes later, and so on.
    if body[_COUNT_AT::SIZE].count(_ONE_TYPE) != count or body[_TAGS_AT::SIZE].count(_NO_TAGS) != count:
        return None
    firsts, lasts = zip(*_OFFSETS.iter_unpack(body), strict=True)
    if firsts != lasts:
        return None
    return OneByOne(make, _runs(firsts, body[_TYPE_AT::SIZE]))


def _runs(offsets: Sequence[int], types: bytes) -> list[Run]:
    first, count = offsets[0], len(offsets)
    if offsets == tuple(range(first, first + count)):
        return [Run(first, types)]
    begins = [0, *[at for at in range(1, count) if offsets[at] != offsets[at - 1] + 1], count]
    return [Run(offsets[begin], types[begin:end]) for begin, end in pairwise(begins)]
