"""Events into the quorum core one after another, calls out of the driver in between, and the timer that the core asks for.

Duty: the order of things. A list of effects is carried out whole before the next event; whatever leaves the driver waits in an
outbox until then, so that whoever is called may enter an event again. Knows no effect and no role.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from kafkacompat.ports import LogRefused
from kafkacompat.raft import effects as effect
from kafkacompat.raft.contracts import MetadataLogProblem
from kafkacompat.raft.roles import NEVER_MS, QuorumViolation

if TYPE_CHECKING:
    from kafkacompat.ports import Clock, TimerHandle, Timers
    from kafkacompat.raft.quorum import QuorumCore

PROBLEMS = (QuorumViolation, ValueError, OSError, LogRefused, MetadataLogProblem)
"""What a step may end in: the node halts, the files stay."""


class EventPump:
    """`boot` once with the core's first effects, then `enter`; `close` for good."""

    core: QuorumCore

    def __init__(
        self,
        clock: Clock,
        timers: Timers,
        carry_out: Callable[[list[effect.Effect]], None],
        fail: Callable[[BaseException], None],
    ) -> None:
        self._clock = clock
        self._timers = timers
        self._carry_out = carry_out
        self._fail = fail
        self._timer: TimerHandle | None = None
        self._timer_at_ms = NEVER_MS
        self._events: deque[effect.Event] = deque()
        self._outbox: deque[Callable[[], None]] = deque()
        """Bounded by what one step asks for, and what its calls ask for in turn."""
        self._stepping = False
        self._draining = False
        self.is_closed = False

    def boot(self, core: QuorumCore, effects: list[effect.Effect]) -> None:
        """What goes wrong here passes through."""
        self.core = core
        self._stepping = True
        try:
            self._carry_out(effects)
        finally:
            self._stepping = False

    def enter(self, event: effect.Event) -> None:
        if not self.is_closed:
            self._events.append(event)
            self.run()

    def enter_next(self, event: effect.Event) -> None:
        """Out of a list of effects: before any event that waits."""
        self._events.appendleft(event)

    def later(self, call: Callable[[], None]) -> None:
        """Call once the list of effects is carried out, after the calls that wait."""
        self._outbox.append(call)

    def run(self) -> None:
        if self._stepping:
            return
        self._stepping = True
        try:
            while self._events and not self.is_closed:
                self._step(self._events.popleft())
        finally:
            self._stepping = False
        self._plan_tick()
        if self._draining:
            return
        self._draining = True
        try:
            while self._outbox and not self.is_closed:
                self._outbox.popleft()()
        finally:
            self._draining = False

    def _step(self, event: effect.Event) -> None:
        try:
            self._carry_out(self.core.step(event, self._clock.monotonic_ms()))
        except PROBLEMS as problem:
            self.halt(problem)

    def _plan_tick(self) -> None:
        """An earlier timer stays: when it fires, the next one is set."""
        wake_ms = NEVER_MS if self.is_closed else self.core.wake_ms
        if wake_ms >= self._timer_at_ms:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at_ms = wake_ms
        self._timer = self._timers.call_at(wake_ms, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._timer_at_ms = NEVER_MS
        if self.is_closed:
            return
        if self._clock.monotonic_ms() < self.core.wake_ms:
            self._plan_tick()
        else:
            self.enter(effect.Tick())

    def halt(self, problem: BaseException) -> None:
        """What is on the disk is unknown, or the quorum is broken: no answer may follow from it. Nothing follows after a close."""
        if self.is_closed:
            return
        self.close()
        self._fail(problem)

    def close(self) -> None:
        self.is_closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._events.clear()
        self._outbox.clear()
