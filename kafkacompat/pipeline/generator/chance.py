"""Draws from distributions with a given source of random numbers. Pure: the caller provides the source."""

from __future__ import annotations

import math
from bisect import bisect
from collections.abc import Callable
from itertools import accumulate
from typing import Protocol

from kafkacompat.pipeline.generator.profile import DAY_MS, HOUR_MS


class Chance(Protocol):
    """The part of random.Random that is used."""

    def random(self) -> float:
        """Return a number from 0 to below 1."""
        ...

    def gauss(self, mu: float = ..., sigma: float = ...) -> float: ...

    def randrange(self, start: int, stop: int | None = ..., step: int = ...) -> int: ...


Chances = Callable[[str], Chance]
"""Returns one random stream per purpose, so that more draws for one purpose do not shift the others."""


def exponential(chance: Chance, mean: float) -> float:
    """Return a waiting time with this mean."""
    return -mean * math.log(1.0 - chance.random())


def between(chance: Chance, ends: tuple[float, float]) -> float:
    """Return a uniformly distributed value between the ends."""
    return ends[0] + (ends[1] - ends[0]) * chance.random()


def geometric(chance: Chance, mean: float) -> int:
    """Return 1, 2, ... with this mean, which must be at least 1."""
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
    """Return the site's load at this time of a UTC day: 1 on average, highest at 19:00, lowest at about 4:00."""
    hours = time_ms % DAY_MS / HOUR_MS
    turn = 2.0 * math.pi / 24.0
    return 1.0 + 0.55 * math.cos(turn * (hours - 18.0)) + 0.2 * math.cos(2.0 * turn * (hours - 20.5))
