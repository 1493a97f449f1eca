"""The worker pools of a simulated process, with as many threads, the same queue limits and the same rules as the
command's.

A pool can be held: its threads are stuck for a while, jobs wait behind them, and are refused if the pool may be full.
A job can fail with a planted bug. Independent of the meaning of jobs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from kafkacompat.deferred import Deferred
from kafkacompat.faults import forget_locals
from kafkacompat.net.job_queue import Admission, JobQueue, PoolTerms
from kafkacompat.net.workers import TERMS
from kafkacompat.ports import WorkerPools, WorkersBusy
from kafkacompat.sim.chance import Chance
from kafkacompat.sim.processes import Process, ProcessEnded, StepWork, outcome_of

T = TypeVar("T")


class Unforeseen(Exception):
    """The planted bug: an unexpected exception of a job."""


class SimulatedPool:
    """Jobs take a random time. A job's effect happens at its start or at its end, at random."""

    def __init__(
        self, host: Process, terms: PoolTerms, chance: Chance, draw_us: Callable[[], int], work: StepWork
    ) -> None:
        self._work = work
        self.duty = terms.duty
        self._host = host
        self._queue: JobQueue[tuple[Callable[[], Any], Deferred[Any]]] = JobQueue(terms)
        self._chance = chance
        self._draw_us = draw_us
        self.held_until_us = 0
        """No job ends before this time."""
        self.fails_next: Callable[[], Unforeseen | None] | None = None
        self._begun_us: list[int] = []
        """When each job began that has not ended."""

    def is_at_work_since(self, time_us: int) -> bool:
        """Whether a job has not ended that began then or before."""
        return any(begun_us <= time_us for begun_us in self._begun_us)

    def submit(self, function: Callable[[], T]) -> Deferred[T]:
        answer: Deferred[T] = Deferred()
        if not self._host.alive:
            return answer  # what is left of a dead process is collected as garbage
        terms = self._queue.terms
        if terms.waiting_max is not None and self.held_until_us > self._host.env.scheduler.now_us:
            # Other jobs have filled the queue while the threads are stuck.
            admission = Admission.REFUSED
        else:
            admission = self._queue.offer((function, answer))
        if admission is Admission.RUN:
            self._begin(function, answer)
        elif admission is Admission.REFUSED:
            answer.fail(WorkersBusy(f"{terms.waiting_max} jobs wait for threads: {self.duty}"))
        return answer

    def _begin(self, function: Callable[[], T], answer: Deferred[T]) -> None:
        begins_with_it = self._chance.happens(0.5)
        outcome = self._carry_out(function) if begins_with_it else None
        scheduler = self._host.env.scheduler
        begun_us = scheduler.now_us
        self._begun_us.append(begun_us)

        def finish() -> None:
            self._begun_us.remove(begun_us)
            (outcome or self._carry_out(function)).pass_to(answer)
            following = self._queue.ended()
            if following is not None:
                self._begin(*following)

        stuck_us = max(0, self.held_until_us - scheduler.now_us)
        scheduler.after(stuck_us + self._draw_us(), lambda _: self._host.enter("worker", finish))

    def _carry_out(self, function: Callable[[], T]) -> Deferred[T]:
        self._work.duty = self.duty
        try:
            outcome = outcome_of(partial(_contained, function))
        finally:
            self._work.duty = None
        if not self._host.alive:
            # The job may keep any exception for later, but of this process there is no later.
            raise ProcessEnded
        error = None if self.fails_next is None else self.fails_next()
        if error is None:
            return outcome
        self.fails_next = None
        failed: Deferred[T] = Deferred()
        failed.fail(error)
        return failed


def _contained(function: Callable[[], T]) -> T:
    """Empty the frames that an error has left, as real workers do."""
    try:
        return function()
    except Exception as error:
        forget_locals(error.__traceback__)
        raise


class PlacedSimulatedPools:
    """One pool for each log directory."""

    def __init__(self, make: Callable[[], SimulatedPool]) -> None:
        self._make = make
        self.pools: dict[str, SimulatedPool] = {}

    def at(self, place: str) -> SimulatedPool:
        pool = self.pools.get(place)
        if pool is None:
            pool = self.pools[place] = self._make()
        return pool


class SimulatedPools:
    """All pools of one process."""

    def __init__(
        self,
        host: Process,
        chance: Chance,
        draw_us: Callable[[], int],
        work: StepWork,
        draw_remote_us: Callable[[], int] | None = None,
    ) -> None:
        """`draw_remote_us`: the duration of a call of the remote store."""

        def make(name: str) -> SimulatedPool:
            draw = draw_us if name != "remote" or draw_remote_us is None else draw_remote_us
            return SimulatedPool(host, TERMS[name], chance, draw, work)

        self._placed = PlacedSimulatedPools(lambda: make("log_sync"))
        self._single = {name: make(name) for name in TERMS if name != "log_sync"}
        every: dict[str, Any] = {**self._single, "log_sync": self._placed}
        self.ports = WorkerPools(**every)

    def every(self) -> list[SimulatedPool]:
        return [*self._single.values(), *self._placed.pools.values()]

    def are_at_work_since(self, time_us: int) -> bool:
        """Whether a job has not ended that began then or before. The process then may not know yet what a disk told the
        job: a stalled sync of a slow disk, or a stuck thread, takes any time."""
        return any(pool.is_at_work_since(time_us) for pool in self.every())
