"""Reading a regular expression of RE2, the language of the patterns that Kafka takes (KIP-1152).

Duty: text to a tree, or InvalidPattern. Must not know: how a tree is matched. It is RE2's Perl-like syntax as RE2/J reads it: no
look-around, no reference back, no possessive repetition. Groups capture nothing here, since only whether a text matches is asked.
Of \\p{...} general categories are known and scripts are not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kafkacompat.txn.pattern_tree import (
    LAST_CODE,
    PERL,
    POSIX,
    Chars,
    Either,
    InOrder,
    InvalidPattern,
    Node,
    Place,
    Repeat,
    category_test,
    complement,
)

REPEAT_MAX = 1_000
"""As in RE2, for one repetition and for nested ones together."""
DEPTH_MAX = 100
"""Groups within groups."""

_ESCAPES = {"a": 7, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11}
_PLACES = {"A": Place.TEXT_BEGIN, "z": Place.TEXT_END, "b": Place.WORD_EDGE, "B": Place.NO_WORD_EDGE}


@dataclass(slots=True)
class _Group:
    """One that is open: its alternatives so far, the one being read, and the flags to go back to behind it."""

    flags: frozenset[str]
    ended: list[Node]
    parts: list[Node]

    def node(self) -> Node:
        last = InOrder(tuple(self.parts))
        return Either((*self.ended, last)) if self.ended else last


class Reader:
    """Of one pattern; `tree` once."""

    def __init__(self, pattern: str) -> None:
        self._text = pattern
        self._at = 0
        self._flags: frozenset[str] = frozenset()
        self._outer_flags = self._flags
        """Before the group that begins."""
        self._names: set[str] = set()

    def tree(self) -> Node:
        """Raises InvalidPattern."""
        open_groups = [_Group(self._flags, [], [])]
        repeatable = repeated = False
        while self._at < len(self._text):
            group = open_groups[-1]
            character = self._take()
            was_repeated, repeated = repeated, False
            if character == "(":
                if self._begins_group():
                    open_groups.append(_Group(self._outer_flags, [], []))
                    if len(open_groups) > DEPTH_MAX:
                        raise InvalidPattern("too many groups within groups")
                    repeatable = False
                # Flags alone leave what is before them to be repeated, as in RE2.
            elif character == ")":
                if len(open_groups) == 1:
                    raise InvalidPattern("a ) without a (")
                open_groups.pop()
                self._flags = group.flags
                open_groups[-1].parts.append(group.node())
                repeatable = True
            elif character == "|":
                group.ended.append(InOrder(tuple(group.parts)))
                group.parts = []
                repeatable = False
            elif (bounds := self._repetition(character)) is not None:
                if not repeatable or not group.parts:
                    raise InvalidPattern("nothing to repeat")
                if was_repeated:
                    raise InvalidPattern("a repetition of a repetition")
                group.parts.append(_repeated(group.parts.pop(), *bounds))
                repeated = True
            else:
                nodes = self._one(character)
                group.parts += nodes
                repeatable = repeatable or bool(nodes)
        if len(open_groups) > 1:
            raise InvalidPattern("a ( without a )")
        return open_groups[0].node()

    # --- characters

    def _take(self) -> str:
        if self._at == len(self._text):
            raise InvalidPattern("it ends too early")
        self._at += 1
        return self._text[self._at - 1]

    def _looking_at(self, text: str) -> bool:
        return self._text.startswith(text, self._at)

    def _until(self, end: str) -> str:
        found = self._text.find(end, self._at)
        if found < 0:
            raise InvalidPattern(f"no {end}")
        taken = self._text[self._at : found]
        self._at = found + len(end)
        return taken

    # --- one element

    def _one(self, character: str) -> Sequence[Node]:
        if character == "^":
            return (Place.LINE_BEGIN if "m" in self._flags else Place.TEXT_BEGIN,)
        if character == "$":
            return (Place.LINE_END if "m" in self._flags else Place.TEXT_END,)
        if character == ".":
            return (self._any(),)
        if character == "[":
            return (self._set(),)
        if character != "\\":
            return (self._literal(ord(character)),)
        if self._looking_at("Q"):
            self._at += 1
            end = self._text.find("\\E", self._at)
            quoted = self._text[self._at :] if end < 0 else self._text[self._at : end]
            self._at = len(self._text) if end < 0 else end + 2
            return tuple(self._literal(ord(each)) for each in quoted)
        following = self._text[self._at : self._at + 1]
        if following in _PLACES:
            self._at += 1
            return (_PLACES[following],)
        known = self._known_set()
        return (self._literal(self._escaped()) if known is None else known,)

    def _any(self) -> Chars:
        return Chars(negated=True) if "s" in self._flags else Chars(((0x0A, 0x0A),), negated=True)

    def _literal(self, code: int) -> Chars:
        return Chars(((code, code),), folds_case="i" in self._flags)

    def _escaped(self) -> int:
        """Behind a backslash: the code point that is meant."""
        character = self._take()
        if character in "01234567":
            digits = character
            while (
                len(digits) < 3
                and (next_one := self._text[self._at : self._at + 1])
                and next_one in "01234567"
            ):
                digits += self._take()
            if character != "0" and len(digits) == 1:
                raise InvalidPattern("a reference back")
            return int(digits, 8)
        if character == "x":
            if self._looking_at("{"):
                self._at += 1
                digits = self._until("}")
            else:
                digits = self._take() + self._take()
            if not digits or not all(each in "0123456789abcdefABCDEF" for each in digits) or len(digits) > 8:
                raise InvalidPattern(f"no code point is \\x{{{digits}}}")
            code = int(digits, 16)
            if code > LAST_CODE:
                raise InvalidPattern(f"no code point is \\x{{{digits}}}")
            return code
        if character in _ESCAPES:
            return _ESCAPES[character]
        if character.isascii() and not character.isalnum():
            return ord(character)
        raise InvalidPattern(f"\\{character} means nothing")

    def _known_set(self) -> Chars | None:
        """Behind a backslash: the set that a letter stands for, None where there is none."""
        letter = self._text[self._at : self._at + 1]
        if letter and letter in "dswDSW":
            self._at += 1
            return Chars(PERL[letter.lower()], negated=letter.isupper(), folds_case="i" in self._flags)
        if letter not in ("p", "P"):
            return None
        self._at += 1
        name = self._take()
        negated = letter == "P"
        if name == "{":
            name = self._until("}")
            if name.startswith("^"):
                name, negated = name[1:], not negated
        if name == "Any":
            return Chars(((0, LAST_CODE),), negated=negated)
        test = category_test(name)
        if test is None:
            raise InvalidPattern(f"no category of characters is called {name!r}")
        return Chars(tests=(test,), negated=negated, folds_case="i" in self._flags)

    def _set(self) -> Chars:
        """Behind its opening bracket."""
        negated = self._looking_at("^")
        self._at += negated
        ranges: list[tuple[int, int]] = []
        tests: list[Callable[[str], bool]] = []
        first = True
        while first or not self._looking_at("]"):
            first = False
            if self._looking_at("[:") and ":]" in self._text[self._at :]:
                self._at += 2
                name = self._until(":]")
                known = POSIX.get(name.removeprefix("^"))
                if known is None:
                    raise InvalidPattern(f"no class of characters is called {name!r}")
                ranges += complement(known) if name.startswith("^") else known
                continue
            if self._looking_at("\\"):
                self._at += 1
                found = self._known_set()
                if found is not None:
                    if found.tests:
                        tests.append(found.holds)
                    else:
                        ranges += complement(found.ranges) if found.negated else found.ranges
                    continue
                self._at -= 1
            low = self._bound()
            high = low
            if self._looking_at("-") and not self._looking_at("-]"):
                self._at += 1
                high = self._bound()
                if high < low:
                    raise InvalidPattern("a range that ends before it begins")
            ranges.append((low, high))
        self._at += 1
        return Chars(tuple(ranges), tuple(tests), negated, "i" in self._flags)

    def _bound(self) -> int:
        character = self._take()
        return self._escaped() if character == "\\" else ord(character)

    # --- groups and repetitions

    def _begins_group(self) -> bool:
        """Behind an opening parenthesis; False for flags that hold for the rest of the group they are in."""
        self._outer_flags = self._flags
        if not self._looking_at("?"):
            return True
        self._at += 1
        for opening in ("P<", "<"):
            if self._looking_at(opening):
                self._at += len(opening)
                name = self._until(">")
                if not name.isascii() or not name.replace("_", "a").isalnum() or name in self._names:
                    raise InvalidPattern(f"no group can be called {name!r}")
                self._names.add(name)
                return True
        flags, adds, given = set(self._flags), True, False
        while (character := self._take()) not in ":)":
            if character == "-" and adds:
                adds, given = False, False
                continue
            if character not in "imsU":
                raise InvalidPattern(f"(?{character} means nothing")
            given = True
            (flags.add if adds else flags.discard)(character)
        if not adds and not given:
            raise InvalidPattern("a - without flags")
        self._flags = frozenset(flags)
        return character == ":"

    def _repetition(self, character: str) -> tuple[int, int | None] | None:
        """(least, most) where a repetition begins with this character."""
        bounds: tuple[int, int | None] | None = {"*": (0, None), "+": (1, None), "?": (0, 1)}.get(character)
        if character == "{":
            end = self._text.find("}", self._at)
            inner = self._text[self._at : end] if end >= 0 else ""
            least, comma, most = inner.partition(",")
            if not _is_number(least) or (most and not _is_number(most)):
                return None  # a brace like any other character
            bounds = int(least), int(most) if most else None if comma else int(least)
            if bounds[0] > REPEAT_MAX or (bounds[1] is not None and not bounds[0] <= bounds[1] <= REPEAT_MAX):
                raise InvalidPattern(f"no repetition is {{{inner}}}")
            self._at = end + 1
        if bounds is not None and self._looking_at("?"):
            self._at += 1  # the shortest match is a match as well
        return bounds


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and (text == "0" or not text.startswith("0")) and len(text) < 5


def _repeated(part: Node, least: int, most: int | None) -> Node:
    times = most if most is not None else max(least, 1)
    if times * _most_copies(part) > REPEAT_MAX:
        raise InvalidPattern("repetitions of repetitions are more than a thousand")
    return Repeat(part, least, most)


def _most_copies(node: Node) -> int:
    """How often a character of it is there once the repetitions are written out."""
    if isinstance(node, Repeat):
        return max(node.most if node.most is not None else node.least, 1) * _most_copies(node.part)
    if isinstance(node, InOrder | Either):
        return max(map(_most_copies, node.parts), default=1)
    return 1
