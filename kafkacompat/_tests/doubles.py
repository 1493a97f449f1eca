"""Ports of time, threads and chance for tests: one clock that they move, workers that run when they are told.

What else a test stands on is real, over the memory disk (`log/_tests/memory_disk`).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from kafkacompat.deferred import Deferred
from kafkacompat.faults import forget_locals
from kafkacompat.tasks import Task, Tasks

START_MS = 1_700_000_000_000
"""What the wall clock shows when the monotonic one shows 0."""


T = TypeVar("T")


class HandTimer:
    def __init__(self, at_ms: int, callback: Callable[[], None]) -> None:
        self.at_ms = at_ms
        self._callback: Callable[[], None] | None = callback

    @property
    def is_set(self) -> bool:
        """Neither cancelled nor over."""
        return self._callback is not None

    def cancel(self) -> None:
        self._callback = None

    def postpone(self, monotonic_ms: int) -> None:
        self.at_ms = monotonic_ms

    def fire(self) -> None:
        callback, self._callback = self._callback, None
        if callback is not None:
            callback()


class HandTime:
    """Clock and Timers in one; `advance` fires what is due, in order."""

    def __init__(self, ms: int = 0) -> None:
        self.ms = ms
        """The monotonic clock."""
        self.wall_shift_ms = 0
        """By how much somebody has set the wall clock, forward or back."""
        self._count = 0
        self._heap: list[tuple[int, int, HandTimer]] = []

    def now_ms(self) -> int:
        return START_MS + self.ms + self.wall_shift_ms

    def monotonic_ms(self) -> int:
        return self.ms

    def call_at(self, monotonic_ms: int, callback: Callable[[], None]) -> HandTimer:
        self._count += 1
        timer = HandTimer(monotonic_ms, callback)
        heapq.heappush(self._heap, (monotonic_ms, self._count, timer))
        return timer

    def call_after(self, delay_ms: int, callback: Callable[[], None]) -> HandTimer:
        return self.call_at(self.ms + delay_ms, callback)

    def pending(self) -> list[HandTimer]:
        """Those that are set, the next one first."""
        waiting = sorted((timer.at_ms, count, timer) for _, count, timer in self._heap)
        return [timer for _, _, timer in waiting if timer.is_set]

    @property
    def waiting(self) -> list[int]:
        """Milliseconds until each timer that is set."""
        return [timer.at_ms - self.ms for timer in self.pending()]

    def advance(self, by_ms: int) -> None:
        end_ms = self.ms + by_ms
        while self._fire_next(end_ms):
            pass
        self.ms = end_ms

    def step(self) -> bool:
        """Fire the next of those that are due now; False when there is none."""
        return self._fire_next(self.ms)

    def fire_next(self) -> None:
        """The next of all, whenever it is due."""
        self._fire_next(self.pending()[0].at_ms)

    def _fire_next(self, until_ms: int) -> bool:
        while self._heap and self._heap[0][0] <= until_ms:
            place_ms, count, timer = heapq.heappop(self._heap)
            if timer.at_ms > place_ms:
                heapq.heappush(self._heap, (timer.at_ms, count, timer))
            elif timer.is_set:
                self.ms = max(self.ms, timer.at_ms)
                timer.fire()
                return True
        return False


class PauselessTasks(Tasks):
    """Tasks that wait for values and times only."""

    def go_on_later(self, task: Task[Any]) -> None:
        task.go_on()


def value_of(coroutine: Coroutine[Any, None, T]) -> T:
    """The value of a coroutine. Everything that it waits for is available."""
    return PauselessTasks(HandTime()).run("a test", coroutine).result()


class PromptWorkers:
    """A job runs when it is submitted."""

    def submit(self, function: Callable[[], T]) -> Deferred[T]:
        return Deferred.of(function())


class HandWorkers:
    """A job runs when it is told to, so that a test sees what waits for it."""

    def __init__(self) -> None:
        self.submitted: list[tuple[Callable[[], Any], Deferred[Any]]] = []

    def submit(self, function: Callable[[], Any]) -> Deferred[Any]:
        answer: Deferred[Any] = Deferred()
        self.submitted.append((function, answer))
        return answer

    def run_one(self) -> None:
        function, answer = self.submitted.pop(0)
        try:
            value = function()
        except Exception as error:
            forget_locals(error.__traceback__)  # as the real workers do
            answer.fail(error)
        else:
            answer.resolve(value)

    def run(self) -> None:
        """What is there now, and not what that brings about."""
        for _ in range(len(self.submitted)):
            self.run_one()

    def run_all(self) -> None:
        while self.submitted:
            self.run_one()


class CountingRandom:
    """Uuids 1000, 1001, ...; randrange always 0 unless told."""

    def __init__(self) -> None:
        self.last = 999
        self.choices: list[int] = []

    def uuid(self) -> bytes:
        self.last += 1
        return self.last.to_bytes(16, "big")

    def randrange(self, stop: int) -> int:
        return self.choices.pop(0) % stop if self.choices else 0
