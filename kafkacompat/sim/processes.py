"""Simulated processes: their events come in through `enter`, one at a time; their clocks and timers; what a step may do.

Implements ports.Clock and Timers in virtual time. Independent of what a process does. A paused process keeps its
events and handles them in order when it resumes. A dead process gets none.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

from kafkacompat.deferred import Deferred
from kafkacompat.sim.breach import Breach
from kafkacompat.sim.chance import Chance
from kafkacompat.sim.cluster_options import ClusterOptions
from kafkacompat.sim.committed_metadata import CommittedMetadata
from kafkacompat.sim.counters import ClusterCounters
from kafkacompat.sim.network import Network
from kafkacompat.sim.scheduler import Scheduler

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


class Environment:
    """What the processes of one run have in common: time, the network's state, the committed metadata, and what is counted."""

    def __init__(self, seed: int, options: ClusterOptions, beside: Environment | None = None) -> None:
        """`beside`: of another cluster in the same run, with which it shares time, network and counts."""
        self.seed = seed
        self.options = options
        self._beside = beside
        self.counters: ClusterCounters = ClusterCounters() if beside is None else beside.counters
        self.scheduler: Scheduler = Scheduler() if beside is None else beside.scheduler
        self.network: Network = (
            Network(self.scheduler, options, Chance(seed, "network")) if beside is None else beside.network
        )
        self.metadata = CommittedMetadata()
        self.topics: set[str] = set()
        """Topics that clients know to be created, and that must be there at the end."""
        self.topics_wanted = 0
        """Times the brokers were about to create internal topics of a streams group, or the controller to raise features."""
        self.producer_ids: set[int] = set()
        self.is_calm = False
        """All faults are healed."""
        self.is_over_for_producers = False
        self.failures: list[BaseException] = [] if beside is None else beside.failures
        """Bugs of the broker, and breaches found by oracles, raised where the broker continues with other work."""
        self.trace: Callable[[Process, str], None] | None = None
        """Called before every event of a node or client."""
        self.tell: Callable[[str], None] | None = None
        """Called for faults of nodes, and for every change of metadata and partitions."""
        self.trace_hash = 0
        self._sync_chance = Chance(seed, "sync")

    def event(self, process: Process, what: str) -> None:
        if self._beside is not None:
            self._beside.event(process, what)
            return
        self.counters.events += 1
        self.trace_hash = zlib.crc32(f"{self.scheduler.now_us} {process.id} {what}".encode(), self.trace_hash)
        if self.trace is not None:
            self.trace(process, what)

    def found(self, failure: BaseException) -> None:
        """Record the failure, even if the code that raised it continues."""
        self.failures.append(failure)

    def draw_sync_us(self) -> int:
        uniform = self._sync_chance.uniform
        sync_us = int(self.options.sync_us * (0.5 + uniform()))
        stall = self.options.sync_stall
        return sync_us * 50 if stall and not self.is_calm and uniform() < stall else sync_us


class VirtualTime:
    """Clock and Timers of a process. What comes due is handed to `enter`, unless the process has ended. The monotonic clock
    runs at `rate` times the true speed."""

    def __init__(self, scheduler: Scheduler, rate: float = 1.0) -> None:
        self._scheduler = scheduler
        self._rate = rate
        self.alive = True

    def enter(self, what: str, call: Callable[[], None]) -> None:
        raise NotImplementedError

    def monotonic_ms(self) -> int:
        return 1_000_000 + int(self._scheduler.now_us * self._rate / 1000)

    def now_ms(self) -> int:
        return WALL_CLOCK_ZERO_MS + self._scheduler.now_us // 1000

    def call_at(self, monotonic_ms: int, callback: Callable[[], None]) -> Timer:
        return self.call_after(monotonic_ms - self.monotonic_ms(), callback)

    def call_after(self, delay_ms: int, callback: Callable[[], None]) -> Timer:
        timer = Timer(callback)
        self._set(timer, delay_ms)
        return timer

    def _set(self, timer: Timer, delay_ms: int) -> None:
        delay_us = int(max(delay_ms, 0) * 1000 / self._rate) + 1000
        self._scheduler.after(delay_us, self._due, timer)

    def _due(self, timer: Timer) -> None:
        if timer.call is not None and self.alive:
            self.enter("timer", lambda: self._fire(timer))

    def _fire(self, timer: Timer) -> None:
        left_ms = timer.postponed_to_ms - self.monotonic_ms()
        if left_ms > 0:
            self._set(timer, left_ms)
        else:
            timer.fire()


class Process(VirtualTime):
    """Its events come in one at a time. `id` is that of the machine or client."""

    def __init__(self, env: Environment, process_id: int, rate: float = 1.0) -> None:
        super().__init__(env.scheduler, rate)
        self.env = env
        self.id = process_id
        self.is_paused = False
        self._inbox: list[tuple[str, Callable[[], None]]] = []

    def enter(self, what: str, call: Callable[[], None]) -> None:
        if not self.alive:
            return
        if self.is_paused:
            self._inbox.append((what, call))
            return
        self.before_event(what)
        try:
            call()
        except ProcessEnded:
            return
        self.after_event()

    def before_event(self, what: str) -> None:
        self.env.event(self, what)

    def after_event(self) -> None:
        """Called unless the process has ended."""

    def pause(self) -> None:
        self.is_paused = True

    def resume(self) -> None:
        self.is_paused = False
        waiting, self._inbox = self._inbox, []
        for what, call in waiting:
            self.enter(what, call)


def outcome_of(function: Callable[[], T]) -> Deferred[T]:
    """Return the function's value, or its exception, as a Deferred."""
    outcome: Deferred[T] = Deferred()
    try:
        outcome.resolve(function())
    except Exception as error:
        outcome.fail(error)
    return outcome


class CoroutineRun(Generic[T]):
    """Starts at once. `ended` gets the result. An exception goes to the caller that resolved the value before it."""

    def __init__(self, steps: Coroutine[Deferred[Any], None, T], ended: Callable[[T], None]) -> None:
        self._steps = steps
        self._ended = ended
        self._is_over = False
        self._go_on()

    def _go_on(self, _: Deferred[Any] | None = None) -> None:
        if self._is_over:
            return
        try:
            waits_for = self._steps.send(None)
        except StopIteration as end:
            self._is_over = True
            self._ended(end.value)
        else:
            waits_for.on_done(self._go_on)

    def call_off(self) -> None:
        """End the coroutine where it waits."""
        self._is_over = True
        self._steps.close()


CALLS_MAX, BYTES_MAX, TIMERS_MAX, MESSAGES_MAX = 180, 200_000, 100, 100
TIERED_CALLS_MAX = 640
"""When a remote store is well again, retention drops all that waited for it, 16 segments at a time."""


class StepWork:
    """The work of one life of a node. Call `begin` before each step and `check` after it."""

    __slots__ = ("bytes", "calls", "calls_max", "duty", "messages", "step", "timers")

    def __init__(self, calls_max: int = CALLS_MAX) -> None:
        self.calls_max = calls_max
        self.duty: str | None = None
        """The duty of the worker whose job runs, which the simulation does in this process. None in the loop."""
        self.begin("")

    def begin(self, step: str) -> None:
        self.step = step
        self.calls = self.bytes = self.timers = self.messages = 0

    @property
    def is_a_workers(self) -> bool:
        return self.duty is not None

    def disk_called(self) -> None:
        self.calls += not self.is_a_workers

    def moved(self, count: int) -> None:
        """Count bytes written to the disk or read from it."""
        if not self.is_a_workers:
            self.bytes += count

    def check(self, node_id: int) -> None:
        for done, most, unit in (
            (self.calls, self.calls_max, "calls of the disk"),
            (self.bytes, BYTES_MAX, "bytes of the disk"),
            (self.timers, TIMERS_MAX, "timers"),
            (self.messages, MESSAGES_MAX, "messages"),
        ):
            if done > most:
                raise Breach(
                    "a step does little", f"node {node_id} takes {done} {unit} in one step: {self.step}"
                )
