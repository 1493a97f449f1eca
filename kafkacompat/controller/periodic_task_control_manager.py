"""The elections that the active controller looks for in intervals (PeriodicTaskControlManager).

Settings: auto.leader.rebalance.enable, leader.imbalance.check.interval.seconds, unclean.leader.election.interval.ms.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkacompat.controller.balance import (
    balance_interval_ms,
    maybe_balance_partition_leaders,
    maybe_elect_unclean_leaders,
    unclean_interval_ms,
)

if TYPE_CHECKING:
    from kafkacompat.controller.broker_heartbeat_manager import BrokerHeartbeatManager
    from kafkacompat.controller.image import MetadataImage
    from kafkacompat.controller.metadata_machine import MetadataMachine
    from kafkacompat.controller.own_decisions import OwnDecisions
    from kafkacompat.controller.records import MetadataRecord
    from kafkacompat.controller.result import ControllerResult
    from kafkacompat.controller.settings import ControllerSettings
    from kafkacompat.ports import TimerHandle, Timers
    from kafkacompat.stepping.stepped import Stepped, Steps

    Task = Stepped[[MetadataImage, ControllerSettings], ControllerResult[MetadataRecord, bool]]

AT_ONCE_MS = 0
"""Until the next round of a task when one was not enough: others come in between."""


class PeriodicTaskControlManager:
    """`activate` with every leadership, `deactivate` at its end."""

    def __init__(
        self,
        machine: MetadataMachine,
        settings: ControllerSettings,
        sessions: BrokerHeartbeatManager,
        timers: Timers,
        own_decisions: OwnDecisions,
    ) -> None:
        self._machine = machine
        self._settings = settings
        self._sessions = sessions
        self._timers = timers
        self._own_decisions = own_decisions
        self._rounds: dict[Task, TimerHandle] = {}
        """What is looked at in intervals, with its next timer."""

    def activate(self) -> None:
        self.deactivate()
        self._repeat(maybe_balance_partition_leaders, balance_interval_ms(self._settings))
        self._repeat(maybe_elect_unclean_leaders, unclean_interval_ms(self._settings))

    def deactivate(self) -> None:
        for timer in self._rounds.values():
            timer.cancel()
        self._rounds.clear()

    def elect_uncleanly(self) -> None:
        """A setting that allows it has just been changed: not only when its interval is over."""

        def decide() -> Steps[None]:
            yield from self._carry_out(maybe_elect_unclean_leaders)

        self._own_decisions.take(decide)

    def _repeat(self, task: Task, interval_ms: int | None) -> None:
        if interval_ms is None:
            return

        def decide() -> Steps[None]:
            epoch = self._machine.active_epoch
            more = yield from self._carry_out(task)
            if self._machine.active_epoch == epoch:
                self._rounds[task] = self._timers.call_after(AT_ONCE_MS if more else interval_ms, run)

        def run() -> None:
            del self._rounds[task]
            self._own_decisions.take(decide)

        self._rounds[task] = self._timers.call_after(interval_ms, run)

    def _carry_out(self, task: Task) -> Steps[bool]:
        """True when there is more to do at once. Whatever goes wrong, the next round comes in its time."""
        image = self._sessions.seen(self._machine.core.image)
        result = yield from self._own_decisions.append_or_resign(
            task.__name__, task.in_steps(image, self._settings)
        )
        return result is not None and result.response
