"""Runs the controller's commands one after another: no command overtakes one that takes several steps (KafkaEventQueue).

The shell around commands in steps. As in Kafka's event queue, every command sees all earlier decisions, while the loop
serves others in between.

The active controller's own decisions are commands without a request and without a reply, queued among those of requests. A
decision that could not be written is made again, by this node or by the next active controller.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar

from kafkacompat.api.request_context import ControllerTimedOut, NotController
from kafkacompat.deferred import Deferred
from kafkacompat.faults import report
from kafkacompat.meters import Histogram
from kafkacompat.tasks import Tasks, Work, forget_locals_left, in_turns, pause

if TYPE_CHECKING:
    from kafkacompat.controller.controller_result import ControllerResult
    from kafkacompat.controller.metadata_machine import MetadataMachine
    from kafkacompat.controller.records import MetadataRecord

T = TypeVar("T")

MAX_WAITING = 10_000
"""Commands that wait for a command in steps. Further ones are refused and must be retried."""
COMMAND_COST = 200
"""The cost of a command that has waited, besides the costs of its steps."""


class EventQueue:
    """Everything that reads the image to decide on records must use `submit` or `submit_steps`."""

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
        self._waiting: deque[Callable[[], Coroutine[Any, None, None]]] = deque()
        self._is_serving = False
        """The waiting commands are carried out, a few in each turn of the loop."""

    @property
    def is_busy(self) -> bool:
        return self._is_running or bool(self._waiting)

    def submit(self, command: Callable[[], Deferred[T]]) -> Deferred[T]:
        """Run a command: at once if no other is in progress, so that it may raise; otherwise in its turn."""
        if not self.is_busy:
            self.queue_times_ms.note(0)
            return self._timed(command)

        async def carried_out(answer: Deferred[T]) -> None:
            _pass_on(lambda: self._timed(command), answer)

        return self._wait(carried_out)

    def _timed(self, command: Callable[[], Deferred[T]]) -> Deferred[T]:
        started_s = self._monotonic_s()
        try:
            return command()
        finally:
            self._processed(started_s)

    def _processed(self, started_s: float) -> None:
        self.processing_times_ms.note(1000 * (self._monotonic_s() - started_s))

    def submit_steps(self, command: Callable[[], Work[Deferred[T]]]) -> Deferred[T]:
        """Like `submit`, for a command in steps. Its exceptions are failures of the answer."""
        carried_out = partial(self._in_steps, command)
        if self.is_busy:
            return self._wait(carried_out)
        answer: Deferred[T] = Deferred()
        self.queue_times_ms.note(0)
        self._tasks.start("a command of the controller", self._serve(carried_out(answer)))
        return answer

    def _wait(self, carried_out: Callable[[Deferred[T]], Coroutine[Any, None, None]]) -> Deferred[T]:
        if len(self._waiting) >= MAX_WAITING:
            self.timed_out += 1
            raise ControllerTimedOut
        answer: Deferred[T] = Deferred()
        asked_s = self._monotonic_s()

        def in_its_turn() -> Coroutine[Any, None, None]:
            self.queue_times_ms.note(1000 * (self._monotonic_s() - asked_s))
            return carried_out(answer)

        self._waiting.append(in_its_turn)
        return answer

    async def _in_steps(self, command: Callable[[], Work[Deferred[T]]], answer: Deferred[T]) -> None:
        started_s = self._monotonic_s()
        self._is_running = True
        try:
            made = await in_turns(command())
        except Exception as error:
            forget_locals_left(error)
            self._is_running = False
            self._processed(started_s)
            answer.fail(error)
        else:
            self._is_running = False
            self._processed(started_s)
            made.pass_to(answer)

    async def _serve(self, first: Coroutine[Any, None, None]) -> None:
        """Carry out a command, and then those that wait. If one of these has begun another in steps, that one serves the rest."""
        await first
        if self._is_serving:
            return
        self._is_serving = True
        try:
            while self._waiting and not self._is_running:
                await pause(COMMAND_COST)
                await self._waiting.popleft()()
        finally:
            self._is_serving = False


def _pass_on(command: Callable[[], Deferred[T]], answer: Deferred[T]) -> None:
    try:
        inner = command()
    except Exception as error:
        answer.fail(error)
        return
    inner.pass_to(answer)


TRY_AGAIN_MS = 1_000
"""Delay after a decision that could not be written."""


class OwnDecisions:
    def __init__(self, machine: MetadataMachine, tasks: Tasks, queue: EventQueue) -> None:
        self.tasks = tasks
        self._machine = machine
        self._queue = queue

    async def take(self, decision: Callable[[], Work[T]]) -> T | None:
        """Run the decision in its turn. None if the leadership changes before."""
        epoch = self._machine.active_epoch

        def decide() -> Work[Deferred[T | None]]:
            is_current = self._machine.is_active and self._machine.active_epoch == epoch
            return Deferred.of((yield from decision()) if is_current else None)

        while True:
            try:
                return await self._queue.submit_steps(decide)
            except NotController:
                return None
            except ControllerTimedOut:
                if not await self.may_try_again(epoch):
                    return None

    def carry_out(
        self,
        what: str,
        command: Work[ControllerResult[MetadataRecord, T]],
        *,
        may_resign: bool = True,
    ) -> Work[ControllerResult[MetadataRecord, T] | None]:
        """Run a command within a turn. Returns its result once the log has its records. None if it failed (reported
        under `what`), could not be written, or the leadership has ended. `may_resign`: see MetadataMachine.append_own."""
        epoch = self._machine.active_epoch
        try:
            result = yield from command
        except Exception as error:
            self._machine.faults += 1
            report(what, error)
            return None
        if self._machine.active_epoch != epoch:
            return None
        if result.records:
            is_written = yield from self._machine.append_own(result.records, may_resign=may_resign)
            if not is_written:
                return None
        return result

    async def may_try_again(self, epoch: int) -> bool:
        """Wait before a decision that could not be written is made again. False if the leadership of that epoch has ended."""
        await self.tasks.sleep(TRY_AGAIN_MS)
        return self._machine.active_epoch == epoch
