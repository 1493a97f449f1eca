"""Work for the loop's thread that takes longer than one step of it may: done piece by piece, with the loop in between.

Of each piece of work one step is done in turn, and the jobs that a step asks for run in threads. One step is done each time the
timer fires, however many wait, so that the loop never does several in a row; with a clock as many as end within STEPS_S, for small
ones.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from functools import partial
from typing import Any, Generic, TypeAlias, TypeVar

from kafkacompat.deferred import Deferred
from kafkacompat.ports import Timers, Workers

STEPS_S = 0.002

T = TypeVar("T")
Job: TypeAlias = Callable[[], Any]
"""Work that releases the interpreter most of the time: for a thread."""
Steps: TypeAlias = Generator[Job | Deferred[Any] | None, Any, T]
"""Yields None between two steps of the loop, or a job, or what comes later, whose value it is sent; a failure is thrown into it."""


class Pace:
    """How much of a step is done, in whatever the work counts. One pace goes with a work from loop to loop, each of which may be
    short, and the step long all the same."""

    __slots__ = ("_done", "_most")

    def __init__(self, most: int) -> None:
        """`most`: of one step."""
        self._most = most
        self._done = 0

    def is_over(self, more: int = 1) -> bool:
        """Whether the step is, with these done as well; the next one begins then."""
        self._done += more
        if self._done < self._most:
            return False
        self._done = 0
        return True


class Overloaded(Exception):
    """Too much work waits already."""


class _Work(Generic[T]):
    __slots__ = ("done", "failed", "given", "steps")

    def __init__(self, steps: Steps[T]) -> None:
        self.steps = steps
        self.done: Deferred[T] = Deferred()
        self.given: Any = None
        self.failed: BaseException | None = None


class Stepping:
    """At most `active_max` pieces of work are begun and not done; what each holds in memory is bounded by that."""

    __slots__ = (
        "_active",
        "_active_max",
        "_due",
        "_monotonic",
        "_ready",
        "_timers",
        "_waiting",
        "_waiting_max",
        "_workers",
    )

    def __init__(
        self,
        timers: Timers,
        workers: Workers,
        active_max: int,
        waiting_max: int,
        monotonic: Callable[[], float] | None = None,
    ) -> None:
        """`monotonic`: a clock in seconds, for work whose steps are of any size."""
        self._monotonic = monotonic
        self._timers = timers
        self._workers = workers
        self._active_max = active_max
        self._waiting_max = waiting_max
        self._active = 0
        self._waiting: deque[_Work[Any]] = deque()
        self._ready: deque[_Work[Any]] = deque()
        self._due = False

    def submit(self, steps: Steps[T]) -> Deferred[T]:
        """The generator's value, later; its first step is not done at once. Fails with Overloaded when too much waits."""
        work = _Work(steps)
        if self._active < self._active_max:
            self._active += 1
            self._is_ready(work)
        elif len(self._waiting) < self._waiting_max:
            self._waiting.append(work)
        else:
            work.done.fail(Overloaded(f"{len(self._waiting)} pieces of work wait"))
        return work.done

    def _is_ready(self, work: _Work[Any]) -> None:
        self._ready.append(work)
        if not self._due:
            self._due = True
            self._timers.call_after(0, self._step)

    def _step(self) -> None:
        self._due = True  # nobody sets the timer meanwhile
        monotonic = self._monotonic
        until_s = 0.0 if monotonic is None else monotonic() + STEPS_S
        try:
            while self._ready:
                self._advance(self._ready.popleft())
                if monotonic is None or monotonic() >= until_s:
                    break
        finally:
            self._due = False
            if self._ready and not self._due:
                self._due = True
                self._timers.call_after(0, self._step)

    def _advance(self, work: _Work[Any]) -> None:
        given, failed = work.given, work.failed
        work.given = work.failed = None
        try:
            job = work.steps.send(given) if failed is None else work.steps.throw(failed)
        except StopIteration as end:
            self._over()
            work.done.resolve(end.value)
        except Exception as error:
            self._over()
            work.done.fail(error)
        else:
            if job is None:
                self._is_ready(work)
            else:
                later = job if isinstance(job, Deferred) else self._workers.submit(job)
                later.on_done(lambda done: self._job_done(work, done))

    def _job_done(self, work: _Work[Any], done: Deferred[Any]) -> None:
        try:
            work.given = done.result()
        except Exception as error:
            work.failed = error
        self._is_ready(work)

    def _over(self) -> None:
        if self._waiting:
            self._is_ready(self._waiting.popleft())
        else:
            self._active -= 1


def all_steps(steps: Steps[T]) -> T:
    """The value of work that is done here and now, jobs and all."""
    given: Any = None
    failed: Exception | None = None
    while True:
        try:
            job = steps.send(given) if failed is None else steps.throw(failed)
        except StopIteration as end:
            value: T = end.value
            return value
        given = failed = None
        if job is not None:
            try:
                given = job.result() if isinstance(job, Deferred) else job()
            except Exception as error:
                failed = error


def driven(steps: Steps[T]) -> Deferred[T]:
    """The value of work that is done here and now, but for what comes later."""
    done: Deferred[T] = Deferred()

    def drive(before: Deferred[Any]) -> None:
        while True:
            try:
                given = before.result()
            except Exception as error:
                step = partial(steps.throw, error)
            else:
                step = partial(steps.send, given)
            try:
                job = step()
            except StopIteration as end:
                done.resolve(end.value)
                return
            except Exception as error:
                done.fail(error)
                return
            before = job if isinstance(job, Deferred) else Deferred.of(None if job is None else job())
            if not before.done:
                before.on_done(drive)
                return

    drive(Deferred.of(None))
    return done
