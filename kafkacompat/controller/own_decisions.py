"""The active controller's own decisions: commands without a request, queued among those of requests.

They have no reply. A decision that could not be written is made again, by this node or by the next active controller.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from kafkacompat.api.request_context import ControllerTimedOut, NotController
from kafkacompat.deferred import Deferred
from kafkacompat.faults import report
from kafkacompat.tasks import Work

if TYPE_CHECKING:
    from kafkacompat.controller.event_queue import EventQueue
    from kafkacompat.controller.metadata_machine import MetadataMachine
    from kafkacompat.controller.records import MetadataRecord
    from kafkacompat.controller.result import ControllerResult
    from kafkacompat.ports import Timers

T = TypeVar("T")

TRY_AGAIN_MS = 1_000
"""Delay after a decision that could not be written."""


class OwnDecisions:
    def __init__(self, machine: MetadataMachine, timers: Timers, queue: EventQueue) -> None:
        self._machine = machine
        self._timers = timers
        self._queue = queue

    def take(self, decision: Callable[[], Work[None]]) -> None:
        """Run the decision in its turn, unless the leadership has changed by then."""
        epoch = self._machine.active_epoch

        def decide() -> Work[Deferred[None]]:
            if self._machine.is_active and self._machine.active_epoch == epoch:
                yield from decision()
            return Deferred.of(None)

        try:
            self._queue.submit_steps(decide).unheeded("a decision of the controller", NotController)
        except ControllerTimedOut:
            self.try_again(lambda: self.take(decision))

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

    def try_again(self, call: Callable[[], None]) -> None:
        """Call it later, if this node is still the active controller in the same epoch."""
        epoch = self._machine.active_epoch

        def run() -> None:
            if self._machine.active_epoch == epoch:
                call()

        self._timers.call_after(TRY_AGAIN_MS, run)
