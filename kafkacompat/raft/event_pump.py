"""Passes events to the quorum core one by one, makes the driver's calls in between, and keeps the core's timer.

- The effects of a step are all carried out before the next event. Calls out of the driver wait in an outbox until
  then, so a called component may enter an event again.
- Any exception in a step, in a call of the outbox or in a `guarded` call halts the node and leaves the files as they
  are. Nothing may build on a half-done step, a skipped batch or an image that only some components have.
- An effect that waits for space on the disk delays everything after it, like a pause of the process.

Effects and roles are unknown here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from kafkacompat.raft import effects as effect
from kafkacompat.raft import events
from kafkacompat.raft.roles import NEVER_MS

if TYPE_CHECKING:
    from kafkacompat.ports import Clock, TimerHandle, Timers
    from kafkacompat.raft.quorum import QuorumCore

TRY_AGAIN_MS = 1_000
"""Delay between two checks whether a full disk has space."""


class EventPump:
    """Call `boot` once with the core's first effects, then `enter`, and finally `close`."""

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
        self._events: deque[events.Event] = deque()
        self._outbox: deque[Callable[[], None]] = deque()
        """Bounded by the calls that one step asks for, and the calls that those ask for."""
        self._held: list[effect.Effect] | None = None
        """The rest of a step that waits for space, or for an effect that takes long."""
        self._stepping = False
        self._draining = False
        self.is_starting = False
        self.is_closed = False

    @property
    def is_held(self) -> bool:
        return self._held is not None

    def boot(self, core: QuorumCore, effects: list[effect.Effect], calls: Callable[[], None]) -> None:
        """Carry out the core's first effects, then `calls` and the outbox. Exceptions reach the caller: a node that is
        still starting need not be halted."""
        self.core = core
        self.is_starting = True
        try:
            self._stepping = True
            try:
                self._carry_out(effects)
            finally:
                self._stepping = False
            calls()
            self.run()
        finally:
            self.is_starting = False

    def enter(self, event: events.Event) -> None:
        if not self.is_closed:
            self._events.append(event)
            self.run()

    def enter_next(self, event: events.Event) -> None:
        """Enter an event before all waiting events. For use within a list of effects."""
        self._events.appendleft(event)

    def forget(self, event: events.Event) -> bool:
        """Do not enter an event that still waits. False if it does not wait any more."""
        for place, each in enumerate(self._events):
            if each is event:
                del self._events[place]
                return True
        return False

    def later(self, call: Callable[[], None]) -> None:
        """Call it after the list of effects and the calls that already wait."""
        self._outbox.append(call)

    def guarded(self, call: Callable[[], None]) -> None:
        """Call it now, from outside of any step, then run the outbox."""
        if self.is_closed:
            return
        try:
            call()
        except Exception as problem:
            self.halt(problem)
        self.run()

    def hold(self, effects: list[effect.Effect], try_again_ms: int | None = TRY_AGAIN_MS) -> None:
        """Hold the rest of a list of effects. It is retried after a while, or when `go_on` is called. For use within a
        list of effects.

        Events wait meanwhile. They are bounded by their connections, as each connection has one answer pending.
        """
        self._held = effects
        if try_again_ms is not None:
            self._timers.call_after(try_again_ms, self.go_on)

    def go_on(self, first: Callable[[], None] | None = None) -> None:
        """Continue with the held effects. `first` belongs to the same step."""
        if self._held is not None and not self.is_closed:
            self._step(None, first)
            self.run()

    def run(self) -> None:
        if self._stepping or self.is_closed:
            return
        while self._events and self._held is None and not self.is_closed:
            self._step(self._events.popleft())
        self._plan_tick()
        if self._draining:
            return
        self._draining = True
        try:
            while self._outbox and not self.is_closed:
                self._outbox.popleft()()
        except Exception as problem:
            self.halt(problem)
        finally:
            self._draining = False

    def _step(self, event: events.Event | None, first: Callable[[], None] | None = None) -> None:
        """Run one step. None continues with the held effects."""
        self._stepping = True
        try:
            if first is not None:
                first()
            if event is None:
                effects, self._held = self._held or [], None
            else:
                effects = self.core.step(event, self._clock.monotonic_ms())
            self._carry_out(effects)
        except Exception as problem:
            self.halt(problem)
        finally:
            self._stepping = False

    def _plan_tick(self) -> None:
        """Plan the next tick. An earlier timer stays; when it fires, the next one is set."""
        wake_ms = NEVER_MS if self.is_closed or self.is_held else self.core.wake_ms
        if wake_ms >= self._timer_at_ms:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer, self._timer_at_ms = None, NEVER_MS
        # Noted afterwards: if there is no memory for the timer, the next step sets it.
        self._timer = self._timers.call_at(wake_ms, self._tick)
        self._timer_at_ms = wake_ms

    def _tick(self) -> None:
        self._timer = None
        self._timer_at_ms = NEVER_MS
        if self.is_closed:
            return
        if self._clock.monotonic_ms() < self.core.wake_ms:
            self._plan_tick()
        else:
            self.enter(events.Tick())

    def halt(self, problem: BaseException) -> None:
        """Halt: the state of the disk is unknown, or the quorum is broken. No answer may follow. Does nothing after a
        close."""
        if self.is_starting:
            self.close()
            raise problem
        if not self.is_closed:
            self.close()
            self._fail(problem)

    def close(self) -> None:
        self.is_closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._events.clear()
        self._outbox.clear()
        self._held = None
