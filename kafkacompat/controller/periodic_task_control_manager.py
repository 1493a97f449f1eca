"""The periodic tasks of the active controller: elections, the removal of expired tokens, and records that keep the log fresh
(PeriodicTaskControlManager).

Settings: auto.leader.rebalance.enable, leader.imbalance.check.interval.seconds, unclean.leader.election.interval.ms,
delegation.token.expiry.check.interval.ms, metadata.max.idle.interval.ms.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkacompat.controller.balance import (
    balance_interval_ms,
    maybe_balance_partition_leaders,
    maybe_elect_unclean_leaders,
    unclean_interval_ms,
)
from kafkacompat.controller.no_op import AFTER_FAILURE_MS, no_op_interval_ms, write_no_op_record
from kafkacompat.tasks import Work

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkacompat.controller.broker_heartbeat_manager import BrokerHeartbeatManager
    from kafkacompat.controller.image import MetadataImage
    from kafkacompat.controller.metadata_machine import MetadataMachine
    from kafkacompat.controller.own_decisions import OwnDecisions
    from kafkacompat.controller.records import MetadataRecord
    from kafkacompat.controller.result import ControllerResult
    from kafkacompat.controller.settings import ControllerSettings
    from kafkacompat.ports import Clock, TimerHandle, Timers

    Task = Callable[[MetadataImage, ControllerSettings], Work[ControllerResult[MetadataRecord, bool]]]

AT_ONCE_MS = 0
"""Delay before the next round if one was not enough: other commands run in between."""


class PeriodicTaskControlManager:
    """Call `activate` with every leadership, `deactivate` at its end."""

    def __init__(
        self,
        machine: MetadataMachine,
        settings: ControllerSettings,
        sessions: BrokerHeartbeatManager,
        clock: Clock,
        timers: Timers,
        own_decisions: OwnDecisions,
    ) -> None:
        self._machine = machine
        self._settings = settings
        self._sessions = sessions
        self._clock = clock
        self._timers = timers
        self._own_decisions = own_decisions
        self._rounds: dict[Task, TimerHandle] = {}
        """The periodic tasks with their next timers."""

    def activate(self) -> None:
        self.deactivate()
        self._repeat(maybe_balance_partition_leaders, balance_interval_ms(self._settings))
        self._repeat(maybe_elect_unclean_leaders, unclean_interval_ms(self._settings))
        tokens = self._settings.tokens
        # As in Apache Kafka, without a secret key tokens cannot be used and none is removed.
        self._repeat(
            self._sweep_expired_delegation_tokens,
            None if tokens.secret is None else tokens.expiry_check_interval_ms,
        )
        self._repeat(write_no_op_record, no_op_interval_ms(self._settings), AFTER_FAILURE_MS)

    def deactivate(self) -> None:
        for timer in self._rounds.values():
            timer.cancel()
        self._rounds.clear()

    def elect_uncleanly(self) -> None:
        """Run now, because a setting that allows unclean elections was changed."""

        def decide() -> Work[None]:
            yield from self._carry_out(maybe_elect_unclean_leaders)

        self._own_decisions.take(decide)

    def _sweep_expired_delegation_tokens(
        self, image: MetadataImage, settings: ControllerSettings
    ) -> Work[ControllerResult[MetadataRecord, bool]]:
        from kafkacompat.controller.delegation_tokens import sweep_expired_delegation_tokens

        return (yield from sweep_expired_delegation_tokens(image, self._clock.now_ms()))

    def _repeat(self, task: Task, interval_ms: int | None, after_failure_ms: int = 0) -> None:
        """None: never. After a failure the next round comes at its normal time, but not before `after_failure_ms`."""
        if interval_ms is None:
            return

        def decide() -> Work[None]:
            epoch = self._machine.active_epoch
            result = yield from self._carry_out(task)
            if result is None:
                wait_ms = max(interval_ms, after_failure_ms)
            else:
                wait_ms = AT_ONCE_MS if result.response else interval_ms
            if self._machine.active_epoch == epoch:
                self._rounds[task] = self._timers.call_after(wait_ms, run)

        def run() -> None:
            del self._rounds[task]
            self._own_decisions.take(decide)

        self._rounds[task] = self._timers.call_after(interval_ms, run)

    def _carry_out(self, task: Task) -> Work[ControllerResult[MetadataRecord, bool] | None]:
        """Run one round. The response True asks for another one at once. None: it failed."""
        image = self._sessions.seen(self._machine.core.image)
        return (
            yield from self._own_decisions.carry_out(
                task.__name__,
                task(image, self._settings),
                may_resign=task is not write_no_op_record,
            )
        )
