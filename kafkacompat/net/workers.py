"""The worker threads of ports, on trio: a pool for each duty, so that nobody waits for the disk, or the pace, of another.

The metadata quorum's sync shares with nobody: the cluster stands still while it waits. Threads begin with the first job and end
when there was none for a while. A pool that is full lets jobs wait, or refuses them with WorkersBusy (job_queue.py); whoever
asked decides what follows, and nothing halts for it. A job's failure, of whatever kind, reaches who asked. When the node ends,
a thread that is still busy is left behind, and nobody is told: whoever would act on it ends as well.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import trio

from kafkacompat.deferred import Deferred
from kafkacompat.net.job_queue import Admission, JobQueue, PoolTerms
from kafkacompat.ports import WorkerPools

READS_WAITING_MAX = 10_000
CLEANERS_MAX = 1024
"""More than anybody sets log.cleaner.threads to, which is the bound that counts."""
THREAD_RETRY_S = 0.1
"""When the system gives no thread, the job waits so long and asks again."""

TERMS = {
    "quorum_sync": PoolTerms("quorum sync", 1),
    "snapshots": PoolTerms("metadata snapshots", 1),
    "log_sync": PoolTerms("log sync", 4),
    "reads": PoolTerms("cold reads", 4, READS_WAITING_MAX),
    "replies": PoolTerms("cold replies", 4),
    "loading": PoolTerms("coordinators' loading", 2),
    "files": PoolTerms("files", 4),
    "recovery": PoolTerms("recovery", 1),
    "cleaning": PoolTerms("cleaning", CLEANERS_MAX),
    "batches": PoolTerms("large batches", 2),
}

T = TypeVar("T")
Job = tuple[Callable[[], Any], Deferred[Any]]
_log = logging.getLogger(__name__)


class WorkersBusy(Exception):
    """Too many jobs wait for the threads of a duty."""


class JobFailed(Exception):
    """A job raised what is no Exception, such as a SystemExit; that is its cause."""


class TrioPool:
    """Runs blocking functions in threads, for one duty. All in a nursery that outlives it."""

    def __init__(self, nursery: trio.Nursery, terms: PoolTerms) -> None:
        self._nursery = nursery
        self._queue: JobQueue[Job] = JobQueue(terms)
        self._limiter = trio.CapacityLimiter(math.inf)
        """The queue is the limit, not the one that all of trio's threads share."""

    def submit(self, function: Callable[[], T]) -> Deferred[T]:
        """The function's value or exception, later; WorkersBusy when too many jobs wait."""
        deferred: Deferred[T] = Deferred()
        job = function, deferred
        admission = self._queue.offer(job)
        if admission is Admission.RUN:
            self._nursery.start_soon(self._work, job)
        elif admission is Admission.REFUSED:
            terms = self._queue.terms
            deferred.fail(WorkersBusy(f"{terms.waiting_max} jobs wait for threads: {terms.duty}"))
        return deferred

    async def _work(self, job: Job | None) -> None:
        """One job after another, until none waits."""
        while job is not None:
            function, deferred = job
            value, error = await self._run(function)
            try:
                if error is None:
                    deferred.resolve(value)
                else:
                    deferred.fail(error)
            except Exception:
                # Whoever waited has a bug; the rest of the broker must not pay for it.
                _log.exception("what a worker gave could not be used")
            job = self._queue.ended()

    async def _run(self, function: Callable[[], T]) -> tuple[T | None, Exception | None]:
        contained = partial(_contained, function)
        is_told = False
        while True:
            try:
                return await trio.to_thread.run_sync(
                    contained,
                    thread_name=self._queue.terms.duty,
                    abandon_on_cancel=True,
                    limiter=self._limiter,
                )
            except (RuntimeError, MemoryError) as error:
                # Of the thread's start: the function's own are contained. It has not begun.
                if not is_told:
                    is_told = True
                    _log.error("no thread for %s, its jobs wait: %s", self._queue.terms.duty, error)
                await trio.sleep(THREAD_RETRY_S)


class PlacedPools:
    """A pool for each log directory, made when it is first asked for. Bounded by log.dirs."""

    def __init__(self, nursery: trio.Nursery, terms: PoolTerms) -> None:
        self._nursery = nursery
        self._terms = terms
        self._pools: dict[str, TrioPool] = {}

    def at(self, place: str) -> TrioPool:
        pool = self._pools.get(place)
        if pool is None:
            pool = self._pools[place] = TrioPool(self._nursery, self._terms)
        return pool


def worker_pools(nursery: trio.Nursery, recovery_threads: int = 1) -> WorkerPools:
    every = {**TERMS, "recovery": replace(TERMS["recovery"], threads_max=recovery_threads)}
    pools: dict[str, Any] = {name: TrioPool(nursery, terms) for name, terms in every.items()}
    pools["log_sync"] = PlacedPools(nursery, TERMS["log_sync"])
    return WorkerPools(**pools)


def _contained(function: Callable[[], T]) -> tuple[T | None, Exception | None]:
    try:
        return function(), None
    except Exception as error:
        return None, error
    except BaseException as error:
        # Raised in the loop it would end the node without a word to whoever asked.
        failure = JobFailed(f"a worker's job ended with {error!r}")
        failure.__cause__ = error
        return None, failure
