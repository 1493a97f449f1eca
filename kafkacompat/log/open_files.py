"""Segments whose files are open, of all logs of a node.

A segment keeps its file open once it was read, so consumers that read from the start open the files of all segments.
While more are open than the process's limit of open files leaves to logs, those that were opened first are closed. The
next use opens them again. A slice that is being sent keeps its file. Any thread may use it, because every step is a
single operation of a dict.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol
from weakref import ReferenceType, ref

UNLIMITED = 2**31 - 1


class Opened(Protocol):
    def release(self) -> None:
        """Close the file, and call `closed`."""
        ...


class OpenFiles:
    """It does not keep a segment that nobody else has: its file closes with it."""

    __slots__ = ("_segments", "most")

    def __init__(self) -> None:
        self._segments: OrderedDict[int, ReferenceType[Opened]] = OrderedDict()
        """By identity, in the order in which they were opened."""
        self.most: Callable[[], int] = lambda: UNLIMITED
        """How many there may be. At least one is open."""

    def __len__(self) -> int:
        return len(self._segments)

    def opened(self, segment: Opened) -> None:
        segments, key = self._segments, id(segment)
        segments[key] = ref(segment, lambda _: segments.pop(key, None))
        most = self.most()
        while len(segments) > max(most, 1):
            try:
                _, reference = segments.popitem(last=False)
            except KeyError:
                return  # other threads have closed them
            oldest = reference()
            if oldest is not None:
                oldest.release()

    def closed(self, segment: Opened) -> None:
        self._segments.pop(id(segment), None)
