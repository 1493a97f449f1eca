"""The times of requests of one API: a sample of those that were timed, in which recent ones count more.

Kafka's histograms keep 1028 values. A value's chance to be kept halves every 46 s, so percentiles are about those of the
last minutes, however many requests there are (Yammer's ExponentiallyDecayingReservoir with alpha 0.015). Here not every
request is timed. So a time stands for all requests since the one that was timed before it, and counts as often: in a
burst fewer are timed, and each counts more.

Follows priority sampling (Duffield, Lund, Thorup 2007) with forward decay (Cormode et al. 2009): a time of weight w gets
the priority w / u, with u from 0 to 1, and those with the highest priorities are kept. Each then counts w, or the
highest priority that was not kept, if that is more. Weights grow with the time, so an old one is never calculated anew.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappush, heapreplace
from math import inf, log
from struct import Struct
from typing import NamedTuple

KEPT = 1024
"""The number of times that are kept for an API."""
DECAY = 0.015
"""Per second, as in Kafka."""
ROW = Struct("=7d")
"""The fields of Times, and the logarithm of the weight."""
TIMES_IN_ALL = 5
_WEIGHT = 6
_COLUMNS = 7
_SPREAD = 0.6180339887498949
"""The golden ratio's fraction. Its multiples fall evenly into each part of 0 to 1, also into parts of parts."""
_SCALE = 1 << 20
"""Priorities are compared as integers, in this many parts. Behind them a key has the place of the row."""
_PLACES = KEPT - 1


class Times(NamedTuple):
    """The times of one request in seconds, and its size in bytes."""

    request_queue: float
    local: float
    remote: float
    response_queue: float
    response_send: float
    size: float

    @property
    def total(self) -> float:
        return sum(self[:TIMES_IN_ALL])


class SampledTimes:
    """At most KEPT times of an API. They are packed: as tuples they would take five times the memory, which would grow for
    hours where requests are rare."""

    __slots__ = ("_heap", "_packed", "_refused", "_u")

    def __init__(self) -> None:
        self._packed = bytearray()
        self._heap: list[int] = []
        """The priority of each row, and its place."""
        self._refused = -inf
        """The logarithm of the highest priority that is not kept."""
        self._u = 0.0

    def add(self, requests: int, ended_s: float, times: Times) -> None:
        """Add the times of a request that ended then. It stands for so many requests."""
        place = self.place_for(requests, ended_s)
        if place >= 0:
            self.put(place, requests, ended_s, times)

    def place_for(self, requests: int, ended_s: float) -> int:
        """Return the place for the row of such a request, which must be `put` then. -1: it is not kept."""
        self._u = u = (self._u + _SPREAD) % 1.0
        priority = log(requests / (1.0 - u)) + DECAY * ended_s
        key, heap = int(priority * _SCALE) * KEPT, self._heap
        place = len(heap)
        if place < KEPT:
            heappush(heap, key | place)
            self._packed += bytes(ROW.size)
            return place
        lowest = heap[0]
        place = lowest & _PLACES
        if key <= lowest:
            if priority > self._refused:
                self._refused = priority
            return -1
        # It was above all that were refused before.
        self._refused = (lowest // KEPT) / _SCALE
        heapreplace(heap, key | place)
        return place

    def put(self, place: int, requests: int, ended_s: float, times: Times) -> None:
        ROW.pack_into(self._packed, place * ROW.size, *times, log(requests) + DECAY * ended_s)

    def __len__(self) -> int:
        return len(self._heap)

    def __iter__(self) -> Iterator[Times]:
        return (Times._make(row[:_WEIGHT]) for row in ROW.iter_unpack(self._packed))

    def column(self, index: int) -> list[float]:
        """One field of all times."""
        return list[float](memoryview(self._packed).cast("d")[index::_COLUMNS])

    def totals(self) -> list[float]:
        return [sum(row[:TIMES_IN_ALL]) for row in ROW.iter_unpack(self._packed)]

    def log_weights(self) -> list[float]:
        """The logarithm of how much each counts, up to a constant that is the same for all APIs of a node."""
        least = self._refused
        return [max(weight, least) for weight in self.column(_WEIGHT)]
