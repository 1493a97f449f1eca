"""The worker threads of the ports, on trio: a pool for each duty, so that no job waits for another duty's disk or
throttle.

The metadata quorum's sync has its own pool, because the cluster waits for it. Threads start with the first job and end
after a while without jobs. A full pool lets jobs wait, or refuses them with WorkersBusy (job_queue.py); the caller
decides what follows, and nothing halts. Any failure of a job reaches its caller. When the node ends, a busy thread is
left behind without a report, because its caller ends too.
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
from kafkacompat.faults import forget_locals
from kafkacompat.net.job_queue import Admission, JobQueue, PoolTerms
from kafkacompat.ports import WorkerPools, WorkersBusy

READS_WAITING_MAX = 10_000
EXCHANGES_WAITING_MAX = 1_000
"""Further clients are closed, and may try again."""
REMOTE_MAX = 1024
"""Above any used values of remote.log.reader.threads and remote.log.manager.*.thread.pool.size, the effective bounds."""
CLEANERS_MAX = 1024
"""Above any used value of log.cleaner.threads, which is the effective bound."""
THREAD_RETRY_S = 0.1
"""Delay before a retry if the system cannot start a thread. The job waits."""

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
    "remote": PoolTerms("remote storage", REMOTE_MAX),
    "fetches": PoolTerms("requests to authorization servers", 2),
    "exchanges": PoolTerms("SASL exchanges", 2, EXCHANGES_WAITING_MAX),
}

T = TypeVar("T")
Job = tuple[Callable[[], Any], Deferred[Any]]
_log = logging.getLogger(__name__)


class JobFailed(Exception):
    """A job raised something that is not an Exception, such as SystemExit. That is the cause of this error."""


class TrioPool:
    """Runs blocking functions in threads, for one duty. Everything runs in a nursery that outlives it."""

    def __init__(self, nursery: trio.Nursery, terms: PoolTerms) -> None:
        self._nursery = nursery
        self._queue: JobQueue[Job] = JobQueue(terms)
        self._limiter = trio.CapacityLimiter(math.inf)
        """The queue is the limit, not trio's shared limit of threads."""

    @property
    def load(self) -> tuple[int, int]:
        """(running jobs, waiting jobs)."""
        return self._queue.running, self._queue.waiting

    def submit(self, function: Callable[[], T]) -> Deferred[T]:
        """The function's value or exception, later. WorkersBusy if too many jobs wait."""
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
        """Run one job after another, until none waits."""
        while job is not None:
            function, deferred = job
            # An error may keep this frame, so it must not keep what the job has worked on.
            once = [function]
            del job, function
            value, error = await self._run(once)
            try:
                if error is None:
                    deferred.resolve(value)
                else:
                    deferred.fail(error)
            except Exception:
                # The receiver has a bug. The rest of the broker must not be affected.
                _log.exception("what a worker gave could not be used")
            value = error = None
            job = self._queue.ended()

    async def _run(self, once: list[Callable[[], T]]) -> tuple[T | None, Exception | None]:
        contained = partial(_contained, once)
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
                # The thread could not start, and the job has not begun: the function's own errors are caught
                # elsewhere.
                if not is_told:
                    is_told = True
                    _log.error("no thread for %s, its jobs wait: %s", self._queue.terms.duty, error)
                await trio.sleep(THREAD_RETRY_S)


class PlacedPools:
    """A pool for each log directory, created on first use. Bounded by log.dirs."""

    def __init__(self, nursery: trio.Nursery, terms: PoolTerms) -> None:
        self._nursery = nursery
        self._terms = terms
        self._pools: dict[str, TrioPool] = {}

    def at(self, place: str) -> TrioPool:
        pool = self._pools.get(place)
        if pool is None:
            pool = self._pools[place] = TrioPool(self._nursery, self._terms)
        return pool

    @property
    def load(self) -> tuple[int, int]:
        """(running jobs, waiting jobs) of all directories."""
        loads = [pool.load for pool in self._pools.values()]
        return sum(running for running, _ in loads), sum(waiting for _, waiting in loads)


def worker_pools(nursery: trio.Nursery, recovery_threads: int = 1) -> WorkerPools:
    every = {**TERMS, "recovery": replace(TERMS["recovery"], threads_max=recovery_threads)}
    pools: dict[str, Any] = {name: TrioPool(nursery, terms) for name, terms in every.items()}
    pools["log_sync"] = PlacedPools(nursery, TERMS["log_sync"])
    return WorkerPools(**pools)


def pool_loads(pools: WorkerPools) -> list[tuple[str, int, int]]:
    """(duty, running jobs, waiting jobs) of each pool."""
    found = [(name, getattr(pools, name)) for name in TERMS]
    return [(name, *pool.load) for name, pool in found if isinstance(pool, TrioPool | PlacedPools)]


def _contained(once: list[Callable[[], T]]) -> tuple[T | None, Exception | None]:
    """Run the function and forget it: an error that is kept for some time keeps the frames of this thread."""
    function = once.pop()
    try:
        return function(), None
    except Exception as error:
        forget_locals(error.__traceback__)
        return None, error
    except BaseException as error:
        # Raised in the loop it would end the node without a report to the caller.
        failure = JobFailed(f"a worker's job ended with {error!r}")
        failure.__cause__ = error
        return None, failure
    finally:
        del function
