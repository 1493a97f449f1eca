"""What was done to a cluster under test, so that reasons can name it: which node was paused before a leader's epoch began.

A cause is only named if what it explains was not so yet when it was done. Threads add and read.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

KEPT_MAX = 100

Stand = Mapping[tuple[str, int], tuple[int, frozenset[int]]]
"""The leader epoch and the ISR of each partition, by topic and index."""


class Cause(NamedTuple):
    text: str
    """A clause: node 1 was paused."""
    before: Stand
    """How partitions stood before."""
    about: tuple[str, str] | None
    """The group or transactional id that it was done to."""


class Causes:
    def __init__(self) -> None:
        self._kept: deque[Cause] = deque(maxlen=KEPT_MAX)

    def note(self, text: str, before: Stand | None = None, about: tuple[str, str] | None = None) -> None:
        self._kept.append(Cause(text, before or {}, about))

    def clear(self) -> None:
        self._kept.clear()

    def of_epoch(self, topic: str, index: int, epoch: int) -> str | None:
        """After what a leader epoch began."""
        return self._last(lambda each: (topic, index) in each.before and each.before[topic, index][0] < epoch)

    def of_isr(self, topic: str, index: int, isr: Collection[int]) -> str | None:
        """After what an ISR was left with only these nodes."""
        return self._last(
            lambda each: (topic, index) in each.before and each.before[topic, index][1] > frozenset(isr)
        )

    def of_name(self, kind: str, name: str) -> str | None:
        """What was done last to a group or a transactional id."""
        return self._last(lambda each: each.about == (kind, name))

    def _last(self, explains: Callable[[Cause], bool]) -> str | None:
        return next((each.text for each in reversed(tuple(self._kept)) if explains(each)), None)
