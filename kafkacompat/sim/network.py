"""The simulated network: messages are delayed, lost, duplicated and reordered; links are cut in both directions or in
one.

It knows node ids, but not the messages' content.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from kafkacompat.sim.chance import Chance
from kafkacompat.sim.scheduler import Scheduler


class Weather(Protocol):
    """A run's options that concern messages."""

    @property
    def delay_us(self) -> int: ...

    @property
    def delay_tail(self) -> float: ...

    @property
    def loss(self) -> float: ...

    @property
    def duplication(self) -> float: ...


class Network:
    def __init__(self, scheduler: Scheduler, options: Weather, chance: Chance) -> None:
        self._scheduler = scheduler
        self._chance = chance
        self._delay_us = options.delay_us
        self._delay_tail = options.delay_tail
        self._loss = options.loss
        self._duplication = options.duplication
        self._cuts: dict[tuple[int, int], int] = {}
        """(from, to) -> the number of partitions that cut the link."""
        self.severed: list[list[tuple[int, int]]] = []
        """What faults have cut and not mended yet."""
        self.burst_loss = 0.0
        self.lost = 0
        self.duplicated = 0

    def calm(self, longest_delay_us: int) -> None:
        """For the liveness phase: every message arrives within the longest delay."""
        self._delay_us = min(self._delay_us, longest_delay_us)
        self._loss = self._duplication = self._delay_tail = self.burst_loss = 0.0
        self._cuts.clear()

    def cut(self, links: Iterable[tuple[int, int]]) -> None:
        for link in links:
            self._cuts[link] = self._cuts.get(link, 0) + 1

    def mend(self, links: Iterable[tuple[int, int]]) -> None:
        for link in links:
            left = self._cuts.get(link, 0) - 1
            if left > 0:
                self._cuts[link] = left
            else:
                self._cuts.pop(link, None)

    def is_cut(self, source: int, target: int) -> bool:
        return (source, target) in self._cuts

    def send(self, source: int, target: int, deliver: Callable[[Any], None], message: Any) -> None:
        if (source, target) in self._cuts:
            self.lost += 1
            return
        uniform = self._chance.uniform
        loss = self._loss + self.burst_loss
        if loss and uniform() < loss:
            self.lost += 1
            return
        self._scheduler.after(self.draw_delay_us(), deliver, message)
        if self._duplication and uniform() < self._duplication:
            self.duplicated += 1
            self._scheduler.after(self.draw_delay_us(), deliver, message)

    def is_lost(self) -> bool:
        loss = self._loss + self.burst_loss
        return loss > 0 and self._chance.uniform() < loss

    def draw_delay_us(self) -> int:
        uniform = self._chance.uniform
        delay_us = int(self._delay_us * (0.5 + uniform()))
        if self._delay_tail and uniform() < self._delay_tail:
            delay_us *= 10
        return delay_us
