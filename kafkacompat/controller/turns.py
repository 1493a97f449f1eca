"""Runs the controller's commands one after another: no command overtakes one that takes several steps.

The shell around commands in steps. As in Kafka's event queue, every command sees all earlier decisions, while the loop
serves others in between.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from time import monotonic
from typing import TypeVar

from kafkacompat.api.request_context import ControllerTimedOut
from kafkacompat.deferred import Deferred
from kafkacompat.meters import Histogram
from kafkacompat.tasks import Tasks, Work, in_turns

T = TypeVar("T")

MAX_WAITING = 10_000
"""Commands that wait for a command in steps. Further ones are refused and must be retried."""


class Turns:
    """Everything that reads the image to decide on records must use `take` or `take_steps`."""

    def __init__(self, tasks: Tasks, monotonic_s: Callable[[], float] = monotonic) -> None:
        """`monotonic_s` is for the times only."""
        self._monotonic_s = monotonic_s
        self.queue_times_ms = Histogram()
        """How long each command waited for others."""
        self.processing_times_ms = Histogram()
        """From a command's first step to its last one, with the turns of others between its steps."""
        self.timed_out = 0
        """Commands that were refused, because too many others waited."""
        self._tasks = tasks
        self._is_running = False
        """A command in steps is in progress."""
        self._waiting: deque[Callable[[], None]] = deque()
        self._is_serving = False

    @property
    def is_busy(self) -> bool:
        return self._is_running or bool(self._waiting)

    def take(self, command: Callable[[], Deferred[T]]) -> Deferred[T]:
        """Run a command: at once if no other is in progress, so that it may raise; otherwise in its turn."""
        if not self.is_busy:
            self.queue_times_ms.note(0)
            return self._timed(command)
        return self._wait(lambda answer: _pass_on(lambda: self._timed(command), answer))

    def _timed(self, command: Callable[[], Deferred[T]]) -> Deferred[T]:
        started_s = self._monotonic_s()
        try:
            return command()
        finally:
            self._processed(started_s)

    def _processed(self, started_s: float) -> None:
        self.processing_times_ms.note(1000 * (self._monotonic_s() - started_s))

    def take_steps(self, command: Callable[[], Work[Deferred[T]]]) -> Deferred[T]:
        """Like `take`, for a command in steps. An exception of its first step is raised."""
        if self.is_busy:
            return self._wait(partial(self._begin, command))
        answer: Deferred[T] = Deferred()
        self.queue_times_ms.note(0)
        self._begin(command, answer)
        return answer

    def _wait(self, begin: Callable[[Deferred[T]], None]) -> Deferred[T]:
        if len(self._waiting) >= MAX_WAITING:
            self.timed_out += 1
            raise ControllerTimedOut
        answer: Deferred[T] = Deferred()
        asked_s = self._monotonic_s()

        def begin_now() -> None:
            self.queue_times_ms.note(1000 * (self._monotonic_s() - asked_s))
            begin(answer)

        self._waiting.append(begin_now)
        return answer

    def _begin(self, command: Callable[[], Work[Deferred[T]]], answer: Deferred[T]) -> None:
        started_s = self._monotonic_s()

        def ended(done: Deferred[Deferred[T]]) -> None:
            self._is_running = False
            self._processed(started_s)
            _pass_on(done.result, answer)
            self._serve()

        try:
            steps = command()
        except Exception as error:
            answer.fail(error)
            return
        self._is_running = True
        self._tasks.run("a command of the controller", _carried_out(steps)).on_done(ended)

    def _serve(self) -> None:
        """Run the waiting commands until one takes several steps."""
        if self._is_serving:
            return
        self._is_serving = True
        try:
            while self._waiting and not self._is_running:
                self._waiting.popleft()()
        finally:
            self._is_serving = False


async def _carried_out(steps: Work[Deferred[T]]) -> Deferred[T]:
    return await in_turns(steps)


def _pass_on(command: Callable[[], Deferred[T]], answer: Deferred[T]) -> None:
    try:
        inner = command()
    except Exception as error:
        answer.fail(error)
        return
    inner.pass_to(answer)
