"""All randomness of a simulation comes from one seed. Of the cores and the simulator, only this module has a random generator."""

from __future__ import annotations

import random

from kafkacompat.ids import Uuid


class Chance:
    """Implements ports.Random. There is one stream per purpose, so that more draws for one purpose do not shift the others."""

    __slots__ = ("_random", "uniform")

    def __init__(self, seed: int, purpose: str) -> None:
        self._random = random.Random(f"{seed}/{purpose}")
        self.uniform = self._random.random
        """Return a float in [0, 1)."""

    def uuid(self) -> Uuid:
        return b"\x01" + self._random.randbytes(15)

    def randrange(self, stop: int) -> int:
        return int(self.uniform() * stop)

    def between(self, low: int, high: int) -> int:
        """Return an integer. Both ends are included."""
        return low + int(self.uniform() * (high - low + 1))

    def happens(self, probability: float) -> bool:
        return self.uniform() < probability
