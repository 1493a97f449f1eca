"""What a pattern is once it is read: a tree of sets of characters, places, sequences, alternatives and repetitions.

Duty: the tree's values, and the sets that have names in RE2. Must not know: how patterns are written or matched.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

LAST_CODE = 0x10FFFF

Ranges = tuple[tuple[int, int], ...]
"""Code points, first and last of each range included."""


class InvalidPattern(ValueError):
    """It is no regular expression, or one that is not taken."""


class Place(Enum):
    """What an assertion asks of the place between two characters."""

    TEXT_BEGIN = "\\A"
    TEXT_END = "\\z"
    LINE_BEGIN = "(?m)^"
    LINE_END = "(?m)$"
    WORD_EDGE = "\\b"
    NO_WORD_EDGE = "\\B"


@dataclass(frozen=True, slots=True)
class Chars:
    """One character of a set: within the ranges, or of which a test says so; `negated` turns both round."""

    ranges: Ranges = ()
    tests: tuple[Callable[[str], bool], ...] = ()
    negated: bool = False
    folds_case: bool = False

    def holds(self, character: str) -> bool:
        if self.folds_case:
            found = any(map(self._holds, {character, *character.lower(), *character.upper()}))
        else:
            found = self._holds(character)
        return found is not self.negated

    def _holds(self, character: str) -> bool:
        code = ord(character)
        return any(low <= code <= high for low, high in self.ranges) or any(
            test(character) for test in self.tests
        )


@dataclass(frozen=True, slots=True)
class InOrder:
    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Either:
    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    part: Node
    least: int
    most: int | None
    """None: without a bound."""


Node = Chars | Place | InOrder | Either | Repeat

DIGITS: Ranges = ((0x30, 0x39),)
UPPER: Ranges = ((0x41, 0x5A),)
LOWER: Ranges = ((0x61, 0x7A),)
LETTERS = UPPER + LOWER
WORD = DIGITS + LETTERS + ((0x5F, 0x5F),)
PERL: dict[str, Ranges] = {"d": DIGITS, "s": ((0x09, 0x0A), (0x0C, 0x0D), (0x20, 0x20)), "w": WORD}
POSIX: dict[str, Ranges] = {
    "alnum": DIGITS + LETTERS,
    "alpha": LETTERS,
    "ascii": ((0, 0x7F),),
    "blank": ((0x09, 0x09), (0x20, 0x20)),
    "cntrl": ((0, 0x1F), (0x7F, 0x7F)),
    "digit": DIGITS,
    "graph": ((0x21, 0x7E),),
    "lower": LOWER,
    "print": ((0x20, 0x7E),),
    "punct": ((0x21, 0x2F), (0x3A, 0x40), (0x5B, 0x60), (0x7B, 0x7E)),
    "space": ((0x09, 0x0D), (0x20, 0x20)),
    "upper": UPPER,
    "word": WORD,
    "xdigit": (*DIGITS, (0x41, 0x46), (0x61, 0x66)),
}
_CATEGORIES: dict[str, str] = {
    "C": "cfos",
    "L": "lmotu",
    "M": "cen",
    "N": "dlo",
    "P": "cdefios",
    "S": "ckmo",
    "Z": "lps",
}
"""Each may stand with its second letter or without."""
_UNASSIGNED = "Cn"


def complement(ranges: Ranges) -> Ranges:
    found, next_code = [], 0
    for low, high in sorted(ranges):
        if low > next_code:
            found.append((next_code, low - 1))
        next_code = max(next_code, high + 1)
    if next_code <= LAST_CODE:
        found.append((next_code, LAST_CODE))
    return tuple(found)


def category_test(name: str) -> Callable[[str], bool] | None:
    """Whether a character is of a general category of Unicode, of one or two letters; None for a name that is none."""
    if name[:1] not in _CATEGORIES or name[1:] not in ("", *_CATEGORIES[name[:1]]):
        return None

    def is_of_category(character: str) -> bool:
        found = unicodedata.category(character)
        return found.startswith(name) and found != _UNASSIGNED

    return is_of_category
