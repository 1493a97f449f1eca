"""Which jobs of a pool run, which wait and which are refused. A core: it counts, and knows neither threads nor what a job does."""

from __future__ import annotations

import enum
from collections import deque
from dataclasses import dataclass
from typing import Generic, TypeVar

J = TypeVar("J")


@dataclass(frozen=True, slots=True)
class PoolTerms:
    """What a duty may take."""

    duty: str
    threads_max: int
    waiting_max: int | None = None
    """One job more is refused. None where whoever asks has one job at a time, so that their number is the bound: all wait."""


class Admission(enum.Enum):
    RUN = "a thread is free: begin it now"
    WAIT = "it begins when one before it has ended"
    REFUSED = "too many wait already"


class JobQueue(Generic[J]):
    """Jobs in the order in which they came. `offer` each; `ended` after each that was begun says which is begun in its place."""

    __slots__ = ("_waiting", "running", "terms")

    def __init__(self, terms: PoolTerms) -> None:
        self.terms = terms
        self.running = 0
        self._waiting: deque[J] = deque()

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def offer(self, job: J) -> Admission:
        if self.running < self.terms.threads_max:
            self.running += 1
            return Admission.RUN
        if self.terms.waiting_max is not None and len(self._waiting) >= self.terms.waiting_max:
            return Admission.REFUSED
        self._waiting.append(job)
        return Admission.WAIT

    def ended(self) -> J | None:
        """The job to begin now in the place of one that has ended; None leaves the place free."""
        if self._waiting:
            return self._waiting.popleft()
        self.running -= 1
        return None
