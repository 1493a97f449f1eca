"""Matching whole texts against the tree of a pattern, in steps that can be counted and bounded.

Duty: a tree to states, and texts through all states at once, so that no pattern takes exponential time; RE2's way. Must not know:
the pattern's text. What was found of a set of states and a character is remembered, so that most characters cost one look.
"""

from __future__ import annotations

from kafkacompat.txn.pattern_tree import Chars, Either, InOrder, InvalidPattern, Node, Place, Repeat

STATES_MAX = 4_000
"""Of one pattern: repetitions are written out."""
STEPS_MAX = 1_000_000
"""Of one pattern, over all texts: states looked at where nothing was remembered. A fraction of a second."""
REMEMBERED_MAX = 20_000
"""Pairs of a set of states and a character, and as many sets at a text's end."""

_BEGIN, _NEWLINE, _WORD, _OTHER, _END = range(5)
"""What is on either side of a place in the text."""
_MATCH = -1

Situation = tuple[frozenset[int], int]
"""States before the assertions at a place were looked at, and what is to the left of it."""


class Program:
    """One pattern's; `matches` raises InvalidPattern once its work is more than is given to one pattern."""

    __slots__ = ("_chars", "_ends", "_jumps", "_places", "_remembered", "_start", "_steps")

    def __init__(self, tree: Node) -> None:
        """Raises InvalidPattern for a pattern of too many states."""
        self._chars: dict[int, tuple[Chars, int]] = {}
        """State -> what it takes, and the state after."""
        self._jumps: dict[int, tuple[int, ...]] = {}
        self._places: dict[int, tuple[Place, int]] = {}
        self._remembered: dict[tuple[Situation, str], Situation | None] = {}
        self._ends: dict[Situation, bool] = {}
        """Whether a text that ends there matches."""
        self._steps = 0
        self._start = self._add(tree, _MATCH)

    def matches(self, text: str) -> bool:
        situation: Situation | None = (frozenset((self._start,)), _BEGIN)
        remembered = self._remembered
        for character in text:
            assert situation is not None
            key = situation, character
            if key in remembered:
                situation = remembered[key]
            else:
                situation = self._after(situation, character)
                if len(remembered) >= REMEMBERED_MAX:
                    remembered.clear()
                remembered[key] = situation
            if situation is None:
                return False
        assert situation is not None
        ends = self._ends.get(situation)
        if ends is None:
            if len(self._ends) >= REMEMBERED_MAX:
                self._ends.clear()
            ends = self._ends[situation] = _MATCH in self._reached(*situation, _END)
        return ends

    def _after(self, situation: Situation, character: str) -> Situation | None:
        """None: nothing can match any more."""
        kind = _kind(character)
        following = set()
        for state in self._reached(*situation, kind):
            if state in self._chars:
                chars, next_state = self._chars[state]
                if chars.holds(character):
                    following.add(next_state)
        return (frozenset(following), kind) if following else None

    def _reached(self, states: frozenset[int], left: int, right: int) -> set[int]:
        """All that can be had without a character."""
        seen = set(states)
        waiting = list(states)
        while waiting:
            state = waiting.pop()
            self._steps += 1
            found: tuple[int, ...] = self._jumps.get(state, ())
            if state in self._places:
                place, next_state = self._places[state]
                if _is_at(place, left, right):
                    found = (next_state,)
            for each in found:
                if each not in seen:
                    seen.add(each)
                    waiting.append(each)
        if self._steps > STEPS_MAX:
            raise InvalidPattern("it takes too many steps")
        return seen

    # --- from tree to states

    def _new(self) -> int:
        number = len(self._chars) + len(self._jumps) + len(self._places)
        if number >= STATES_MAX:
            raise InvalidPattern("its repetitions written out are too much")
        return number

    def _add(self, node: Node, following: int) -> int:
        """The state in which the node begins that goes on with the given one."""
        if isinstance(node, Chars):
            state = self._new()
            self._chars[state] = node, following
            return state
        if isinstance(node, Place):
            state = self._new()
            self._places[state] = node, following
            return state
        if isinstance(node, InOrder):
            for part in reversed(node.parts):
                following = self._add(part, following)
            return following
        if isinstance(node, Either):
            begins = tuple(self._add(part, following) for part in node.parts)
            state = self._new()
            self._jumps[state] = begins
            return state
        return self._add_repeat(node, following)

    def _add_repeat(self, node: Repeat, following: int) -> int:
        if node.most is None:
            again = self._new()
            self._jumps[again] = ()
            begin = self._add(node.part, again)
            self._jumps[again] = (begin, following)
            following = again
        else:
            end = following
            for _ in range(node.most - node.least):
                begin = self._add(node.part, following)
                following = self._new()
                self._jumps[following] = (begin, end)
        for _ in range(node.least):
            following = self._add(node.part, following)
        return following


def _kind(character: str) -> int:
    if character == "\n":
        return _NEWLINE
    return _WORD if character == "_" or (character.isascii() and character.isalnum()) else _OTHER


def _is_at(place: Place, left: int, right: int) -> bool:
    if place is Place.TEXT_BEGIN:
        return left == _BEGIN
    if place is Place.TEXT_END:
        return right == _END
    if place is Place.LINE_BEGIN:
        return left in (_BEGIN, _NEWLINE)
    if place is Place.LINE_END:
        return right in (_END, _NEWLINE)
    return ((left == _WORD) is not (right == _WORD)) is (place is Place.WORD_EDGE)
