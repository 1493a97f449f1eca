"""Special periods: bursts of visitors and incidents of services. Pure. Drawn as far ahead as needed."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from kafkacompat.pipeline.generator.chance import Chance, between, exponential
from kafkacompat.pipeline.generator.profile import DAY_MS


class Period(NamedTuple):
    """A special period, from start to end."""

    start_ms: float
    end_ms: float
    factor: float
    """The factor by which a value is increased."""
    rate: float
    """The probability of an effect."""
    number: int


class Periods:
    """Periods with exponential waits between them. `at` works for times up to a day before the latest time asked for."""

    __slots__ = ("_chance", "_every_ms", "_factor", "_length_ms", "_next_ms", "_number", "_periods", "_rate")

    def __init__(
        self,
        chance: Chance,
        first_ms: float,
        every_ms: float,
        length_ms: tuple[int, int],
        factor: tuple[float, float],
        rate: tuple[float, float] = (0.0, 0.0),
    ) -> None:
        """first_ms: start of the first period. every_ms: mean wait from an end to the next start. The other values are uniform."""
        self._chance = chance
        self._next_ms = first_ms
        self._every_ms = every_ms
        self._length_ms = length_ms
        self._factor = factor
        self._rate = rate
        self._number = 0
        self._periods: deque[Period] = deque()

    def at(self, time_ms: float) -> Period | None:
        """Return the period at this time, or None."""
        while self._next_ms <= time_ms:
            self._draw()
        while self._periods and self._periods[0].end_ms < time_ms - DAY_MS:
            self._periods.popleft()
        for period in reversed(self._periods):
            if period.start_ms <= time_ms < period.end_ms:
                return period
        return None

    def _draw(self) -> None:
        start_ms = self._next_ms
        end_ms = start_ms + between(self._chance, self._length_ms)
        factor, rate = between(self._chance, self._factor), between(self._chance, self._rate)
        self._periods.append(Period(start_ms, end_ms, factor, rate, self._number))
        self._number += 1
        self._next_ms = end_ms + exponential(self._chance, self._every_ms)
