"""A simulated process: its events come in through `enter`, one at a time; and its timers.

Implements ports.Clock and Timers in virtual time. Independent of what the process does. A paused process keeps its
events and handles them in order when it resumes. A dead process gets none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from kafkacompat.deferred import Deferred

if TYPE_CHECKING:
    from kafkacompat.sim.cluster_simulation import ClusterSimulation

T = TypeVar("T")
WALL_CLOCK_ZERO_MS = 1_700_000_000_000


class ProcessEnded(BaseException):
    """The process has ended itself in the middle of an event. Nothing in it continues."""


class Timer:
    __slots__ = ("call", "postponed_to_ms")

    def __init__(self, call: Callable[[], None]) -> None:
        self.call: Callable[[], None] | None = call
        self.postponed_to_ms = 0

    def cancel(self) -> None:
        self.call = None

    def postpone(self, monotonic_ms: int) -> None:
        self.postponed_to_ms = monotonic_ms

    def fire(self) -> None:
        call, self.call = self.call, None
        if call is not None:
            call()


class Host:
    """Also its Clock and Timers. `id` is the machine's. Its clock runs at `rate` times the true speed."""

    def __init__(self, simulation: ClusterSimulation, host_id: int, rate: float = 1.0) -> None:
        self.simulation = simulation
        self.id = host_id
        self.alive = True
        self.is_paused = False
        self._rate = rate
        self._inbox: list[tuple[str, Callable[[], None]]] = []

    def enter(self, what: str, call: Callable[[], None]) -> None:
        if not self.alive:
            return
        if self.is_paused:
            self._inbox.append((what, call))
            return
        self.simulation.event(self, what)
        try:
            call()
        except ProcessEnded:
            return
        self.simulation.after_event(self)

    def pause(self) -> None:
        self.is_paused = True

    def resume(self) -> None:
        self.is_paused = False
        waiting, self._inbox = self._inbox, []
        for what, call in waiting:
            self.enter(what, call)

    # Clock and timers.

    def monotonic_ms(self) -> int:
        return 1_000_000 + int(self.simulation.scheduler.now_us * self._rate / 1000)

    def now_ms(self) -> int:
        return WALL_CLOCK_ZERO_MS + self.simulation.scheduler.now_us // 1000

    def call_at(self, monotonic_ms: int, callback: Callable[[], None]) -> Timer:
        return self.call_after(monotonic_ms - self.monotonic_ms(), callback)

    def call_after(self, delay_ms: int, callback: Callable[[], None]) -> Timer:
        timer = Timer(callback)
        self._set(timer, delay_ms)
        return timer

    def _set(self, timer: Timer, delay_ms: int) -> None:
        delay_us = int(max(delay_ms, 0) * 1000 / self._rate) + 1000
        self.simulation.scheduler.after(delay_us, self._due, timer)

    def _due(self, timer: Timer) -> None:
        if timer.call is not None and self.alive:
            self.enter("timer", lambda: self._fire(timer))

    def _fire(self, timer: Timer) -> None:
        left_ms = timer.postponed_to_ms - self.monotonic_ms()
        if left_ms > 0:
            self._set(timer, left_ms)
        else:
            timer.fire()


def outcome_of(function: Callable[[], T]) -> Deferred[T]:
    """Return the function's value, or its exception, as a Deferred."""
    outcome: Deferred[T] = Deferred()
    try:
        outcome.resolve(function())
    except Exception as error:
        outcome.fail(error)
    return outcome
