"""What a fuzzer's author decides by: chance under a seed, or the bytes that a coverage-guided search hands over.

Both give the same requests for the same source, and neither knows what is decided.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Protocol, TypeVar

T = TypeVar("T")


class Choices(Protocol):
    """Where it is over, what is left to choose is the first of everything."""

    @property
    def is_over(self) -> bool: ...

    def below(self, bound: int) -> int:
        """0 for a bound of 1 and less."""
        ...

    def raw(self, size: int) -> bytes: ...


class SeededChoices:
    """Never over."""

    is_over = False

    def __init__(self, seed: str) -> None:
        self._random = random.Random(seed)

    def below(self, bound: int) -> int:
        return int(self._random.random() * bound) if bound > 1 else 0

    def raw(self, size: int) -> bytes:
        return self._random.randbytes(size)


class ByteChoices:
    """Reads them from bytes: one for a small bound, up to eight for a large one."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def is_over(self) -> bool:
        return self._at >= len(self._data)

    def below(self, bound: int) -> int:
        if bound <= 1:
            return 0
        size = ((bound - 1).bit_length() + 7) // 8
        return int.from_bytes(self.raw(size), "big") % bound

    def raw(self, size: int) -> bytes:
        found = self._data[self._at : self._at + size]
        self._at += size
        return found + bytes(size - len(found))


def one_of(choices: Choices, items: Sequence[T]) -> T:
    return items[choices.below(len(items))]


def happens(choices: Choices, in_256: int) -> bool:
    """So often of 256 times; never where the choices are over."""
    return choices.below(256) >= 256 - in_256
