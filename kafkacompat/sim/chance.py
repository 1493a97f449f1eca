"""All chance of a simulation, drawn from one seed. The only module of the project's cores and simulator that holds a generator."""

from __future__ import annotations

import random

from kafkacompat.ids import Uuid


class Chance:
    """Implements ports.Random; one stream per purpose, so that one purpose drawing more does not shift the others."""

    __slots__ = ("_random", "uniform")

    def __init__(self, seed: int, purpose: str) -> None:
        self._random = random.Random(f"{seed}/{purpose}")
        self.uniform = self._random.random
        """A float in [0, 1)."""

    def uuid(self) -> Uuid:
        return b"\x01" + self._random.randbytes(15)

    def randrange(self, stop: int) -> int:
        return int(self.uniform() * stop)

    def between(self, low: int, high: int) -> int:
        """Both ends included."""
        return low + int(self.uniform() * (high - low + 1))

    def happens(self, probability: float) -> bool:
        return self.uniform() < probability
