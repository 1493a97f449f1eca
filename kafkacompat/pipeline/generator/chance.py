"""Draws from distributions, given a source of chance. Pure: where the chance comes from is the caller's affair."""

from __future__ import annotations

import math
from bisect import bisect
from collections.abc import Callable
from itertools import accumulate
from typing import Protocol

from kafkacompat.pipeline.generator.profile import DAY_MS, HOUR_MS


class Chance(Protocol):
    """What is used of random.Random."""

    def random(self) -> float:
        """At least 0, less than 1."""
        ...

    def gauss(self, mu: float = ..., sigma: float = ...) -> float: ...

    def randrange(self, start: int, stop: int | None = ..., step: int = ...) -> int: ...


Chances = Callable[[str], Chance]
"""One stream of chance a purpose, so that one purpose drawing more does not shift the others."""


def exponential(chance: Chance, mean: float) -> float:
    """A waiting time with this mean."""
    return -mean * math.log(1.0 - chance.random())


def between(chance: Chance, ends: tuple[float, float]) -> float:
    """Any value between the ends alike."""
    return ends[0] + (ends[1] - ends[0]) * chance.random()


def geometric(chance: Chance, mean: float) -> int:
    """1, 2, ... with this mean, which is at least 1."""
    if mean <= 1.0:
        return 1
    return 1 + int(math.log(1.0 - chance.random()) / math.log(1.0 - 1.0 / mean))


class Zipf:
    """Ranks 0, 1, ... with weight (rank + 1) ** -exponent."""

    __slots__ = ("_sums",)

    def __init__(self, ranks: int, exponent: float) -> None:
        self._sums = list(accumulate((rank + 1) ** -exponent for rank in range(ranks)))

    def draw(self, chance: Chance) -> int:
        return bisect(self._sums, chance.random() * self._sums[-1])


def daily_rhythm(time_ms: int) -> float:
    """How busy the site is at this time of a UTC day; 1 on average, most at 19:00, least at about 4:00."""
    hours = time_ms % DAY_MS / HOUR_MS
    turn = 2.0 * math.pi / 24.0
    return 1.0 + 0.55 * math.cos(turn * (hours - 18.0)) + 0.2 * math.cos(2.0 * turn * (hours - 20.5))
