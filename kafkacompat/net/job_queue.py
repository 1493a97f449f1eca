"""Which jobs of a pool run, which wait and which are refused. A core: threads and the meaning of jobs are unknown
here."""

from __future__ import annotations

import enum
from collections import deque
from typing import Generic, TypeVar

from kafkacompat.dataclass import dataclass

J = TypeVar("J")


class Waits(enum.Enum):
    """What a job may wait for. In users' tests, whose disks are memory, it says where the jobs of a duty run, and whether a node
    that has one is at rest."""

    DISK = "for a disk at most: it runs in the node's loop"
    OTHERS = "for a throttle, a remote store or a file of the system too: it runs in a thread"
    NETWORK = "for as long as a strange server takes: it runs in a thread, and a clock that is moved does not wait for it"


@dataclass(frozen=True, slots=True)
class PoolTerms:
    """The bounds of one duty, and what its jobs wait for."""

    duty: str
    threads_max: int
    waits: Waits
    waiting_max: int | None = None
    """Further jobs are refused. None if each caller has at most one job, so that the number of callers is the bound:
    all wait."""


class Admission(enum.Enum):
    RUN = "a thread is free: begin it now"
    WAIT = "it begins when one before it has ended"
    REFUSED = "too many wait already"


class JobQueue(Generic[J]):
    """Jobs in order of arrival. Call `offer` for each, and `ended` after each; that returns the job to start in its
    place."""

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
        """The job to start in place of one that has ended. None leaves the place free."""
        if self._waiting:
            return self._waiting.popleft()
        self.running -= 1
        return None
