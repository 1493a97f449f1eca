"""Long work for the loop's thread, done in steps with turns of the loop in between.

The works take turns, one step each. Jobs that a step requests run in worker threads. Each time the timer fires, one
step runs, however many works wait, so the loop never runs several steps in a row. With a clock, for small steps, as
many run as fit into STEPS_S.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from functools import partial
from types import coroutine
from typing import Any, Generic, TypeAlias, TypeVar

from kafkacompat.deferred import Deferred
from kafkacompat.faults import forget_locals
from kafkacompat.ports import Timers, Workers
from kafkacompat.tasks import TURN_COST, Overloaded

STEPS_S = 0.002

T = TypeVar("T")
Job: TypeAlias = Callable[[], Any]
"""A function for a worker thread, which releases the interpreter lock most of the time."""
Steps: TypeAlias = Generator[Job | Deferred[Any] | int | None, Any, T]
"""Yields None, or a cost as a tasks.Work does, between two steps, or a job, or a Deferred.

The value of a job or a Deferred is sent into the generator. A failure is thrown into it.
"""


class _Work(Generic[T]):
    __slots__ = ("done", "failed", "given", "steps")

    def __init__(self, steps: Steps[T]) -> None:
        self.steps = steps
        self.done: Deferred[T] = Deferred()
        self.given: Any = None
        self.failed: BaseException | None = None


class Stepping:
    """Runs works in steps. At most `active_max` works are in progress, which bounds their memory. Others wait."""

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
        """`monotonic`: a clock in seconds, for works whose steps have any size."""
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
        """Return the generator's value as a Deferred. The first step runs later. Fails with Overloaded if too many works wait."""
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
        self._due = True  # prevents _is_ready from setting the timer during this step
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
        before = None if failed is None else failed.__traceback__
        try:
            job = work.steps.send(given) if failed is None else work.steps.throw(failed)
        except StopIteration as end:
            self._over()
            work.done.resolve(end.value)
        except Exception as error:
            self._over()
            forget_locals(error.__traceback__, before)
            work.done.fail(error)
        else:
            if job is None or isinstance(job, int):
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
    """Run all steps and jobs now, and return the value."""
    given: Any = None
    failed: Exception | None = None
    while True:
        try:
            job = steps.send(given) if failed is None else steps.throw(failed)
        except StopIteration as end:
            value: T = end.value
            return value
        given = failed = None
        if job is not None and not isinstance(job, int):
            try:
                given = job.result() if isinstance(job, Deferred) else job()
            except Exception as error:
                failed = error


def driven(steps: Steps[T]) -> Deferred[T]:
    """Run all steps now, except that Deferred values may come later. Return the value as a Deferred."""
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
            before = job if isinstance(job, Deferred) else Deferred.of(job() if callable(job) else None)
            if not before.done:
                before.on_done(drive)
                return

    drive(Deferred.of(None))
    return done


@coroutine
def carried_out(steps: Steps[T]) -> Generator[int | Deferred[Any], None, T]:
    """The value of steps that request no jobs, in a coroutine of tasks."""
    step = partial(next, steps)
    while True:
        try:
            waits_for = step()
        except StopIteration as end:
            value: T = end.value
            return value
        if not isinstance(waits_for, Deferred):
            yield waits_for if isinstance(waits_for, int) else TURN_COST
            step = partial(next, steps)
            continue
        if not waits_for.done:
            yield waits_for
        try:
            given = waits_for.result()
        except Exception as error:
            step = partial(steps.throw, error)
        else:
            step = partial(steps.send, given)
