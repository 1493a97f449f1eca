"""The worker threads of the ports, on trio: a pool for each duty, so that no job waits for another duty's disk or
throttle.

The metadata quorum's sync has its own pool, because the cluster waits for it. Threads start with the first job and end
after a while without jobs. A full pool lets jobs wait, or refuses them with WorkersBusy (job_queue.py); the caller
decides what follows, and nothing halts. Any failure of a job reaches its caller. When the node ends, a busy thread is
left behind without a report, because its caller ends too.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import trio

from kafkacompat.deferred import Deferred
from kafkacompat.faults import forget_locals
from kafkacompat.net.job_queue import Admission, JobQueue, PoolTerms, Waits
from kafkacompat.ports import WorkerPools, WorkersBusy

if TYPE_CHECKING:
    from outcome import Outcome

    from kafkacompat.net.loop_wait import Bell

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
    "quorum_sync": PoolTerms("quorum sync", 1, Waits.DISK),
    "snapshots": PoolTerms("metadata snapshots", 1, Waits.DISK),
    "log_sync": PoolTerms("log sync", 4, Waits.DISK),
    "reads": PoolTerms("cold reads", 4, Waits.DISK, READS_WAITING_MAX),
    "replies": PoolTerms("cold replies", 4, Waits.DISK),
    "loading": PoolTerms("coordinators' loading", 2, Waits.DISK),
    "files": PoolTerms("files", 4, Waits.DISK),
    "recovery": PoolTerms("recovery", 1, Waits.DISK),
    "cleaning": PoolTerms("cleaning", CLEANERS_MAX, Waits.OTHERS),
    "batches": PoolTerms("large batches", 2, Waits.DISK),
    "remote": PoolTerms("remote storage", REMOTE_MAX, Waits.OTHERS),
    "fetches": PoolTerms("requests to authorization servers", 2, Waits.NETWORK),
    "exchanges": PoolTerms("SASL exchanges", 2, Waits.OTHERS, EXCHANGES_WAITING_MAX),
}

T = TypeVar("T")
Job = tuple[Callable[[], Any], Deferred[Any]]
_log = logging.getLogger(__name__)


class JobFailed(Exception):
    """A job raised something that is not an Exception, such as SystemExit. That is the cause of this error."""


class WayBack:
    """From a thread into the loop, until the nursery is cancelled: then nothing begins and nobody is told.

    The nursery ends only when it is cancelled. Nothing else than its tasks learns of that, so it has one that waits for it.
    """

    def __init__(self, nursery: trio.Nursery, bell: Bell | None = None) -> None:
        """`bell`: spares the loop a turn while a poller waits in its place."""
        self.is_open = True
        self._nursery = nursery
        self._token = trio.lowlevel.current_trio_token()
        self._calls: deque[tuple[Callable[..., object], tuple[object, ...]]] = deque()
        self._bell = bell
        if bell is not None:
            bell.tells.append(self._carry_out)
        nursery.start_soon(self._close_when_cancelled)

    def call(self, function: Callable[..., object], *arguments: object) -> None:
        """From any thread. The function does not raise."""
        self._calls.append((function, arguments))
        if self._bell is None or not self._bell.ring():
            with suppress(trio.RunFinishedError):
                self._token.run_sync_soon(self._carry_out)

    def call_after(self, delay_s: float, function: Callable[..., object], *arguments: object) -> None:
        """From the loop."""

        async def call() -> None:
            await trio.sleep(delay_s)
            function(*arguments)

        self._nursery.start_soon(call)

    def _carry_out(self) -> None:
        # What comes meanwhile is announced for itself.
        for _ in range(len(self._calls)):
            function, arguments = self._calls.popleft()
            if self.is_open:
                function(*arguments)

    async def _close_when_cancelled(self) -> None:
        def close(_raise_cancel: Callable[[], None]) -> trio.lowlevel.Abort:
            self.is_open = False
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(close)


class TrioPool:
    """Runs blocking functions in threads, for one duty. A job costs the loop one entry from a thread: no task waits for it."""

    def __init__(self, back: WayBack, terms: PoolTerms) -> None:
        self._back = back
        self._queue: JobQueue[Job] = JobQueue(terms)
        """It bounds the threads: trio starts as many as it is asked for."""
        self._misses_threads = False

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
            self._begin(job)
        elif admission is Admission.REFUSED:
            terms = self._queue.terms
            deferred.fail(WorkersBusy(f"{terms.waiting_max} jobs wait for threads: {terms.duty}"))
        return deferred

    def _begin(self, job: Job) -> None:
        if not self._back.is_open:
            return
        function, deferred = job
        # An error may keep a frame, so none must keep what the job has worked on.
        once = [function]
        del function

        def tell(result: Outcome[tuple[Any, Exception | None]]) -> None:
            try:
                value, error = result.unwrap()
            except BaseException as failure:  # not even the job's error could be kept
                value, error = (
                    None,
                    JobFailed(f"the thread of a worker's job ended with {type(failure).__name__}"),
                )
                error.__cause__ = failure
            self._back.call(self._ended, deferred, value, error)

        duty = self._queue.terms.duty
        try:
            trio.lowlevel.start_thread_soon(partial(_contained, once), tell, duty)
        except (RuntimeError, MemoryError) as error:
            # The thread could not start, and the job has not begun.
            if not self._misses_threads:
                self._misses_threads = True
                _log.error("no thread for %s, its jobs wait: %s", duty, error)
            self._back.call_after(THREAD_RETRY_S, self._begin, job)
        else:
            self._misses_threads = False

    def _ended(self, deferred: Deferred[Any], value: Any, error: Exception | None) -> None:
        try:
            if error is None:
                deferred.resolve(value)
            else:
                deferred.fail(error)
        except Exception:
            # The receiver has a bug. The rest of the broker must not be affected.
            _log.exception("what a worker gave could not be used")
        following = self._queue.ended()
        if following is not None:
            self._begin(following)


class PlacedPools:
    """A pool for each log directory, created on first use. Bounded by log.dirs."""

    def __init__(self, back: WayBack, terms: PoolTerms) -> None:
        self._back = back
        self._terms = terms
        self._pools: dict[str, TrioPool] = {}

    def at(self, place: str) -> TrioPool:
        pool = self._pools.get(place)
        if pool is None:
            pool = self._pools[place] = TrioPool(self._back, self._terms)
        return pool

    @property
    def load(self) -> tuple[int, int]:
        """(running jobs, waiting jobs) of all directories."""
        loads = [pool.load for pool in self._pools.values()]
        return sum(running for running, _ in loads), sum(waiting for _, waiting in loads)


def worker_pools(nursery: trio.Nursery, recovery_threads: int = 1, bell: Bell | None = None) -> WorkerPools:
    """Until the nursery is cancelled, which is how it must end."""
    every = {**TERMS, "recovery": replace(TERMS["recovery"], threads_max=recovery_threads)}
    back = WayBack(nursery, bell)
    pools: dict[str, Any] = {name: TrioPool(back, terms) for name, terms in every.items()}
    pools["log_sync"] = PlacedPools(back, TERMS["log_sync"])
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
