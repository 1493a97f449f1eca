"""The periodic tasks of the active controller: elections, the removal of expired tokens, and records that keep the log fresh
(PeriodicTaskControlManager).

The NoOpRecord (KIP-835) says nothing. So the last record of the metadata log is never old, and its age shows whether a node
follows the log. As in Apache Kafka it is also written while other records are. A full disk that refuses it does not end the
leadership. Equal disks with equal logs fill at the same time, and then no voter could write the vote for a successor: an idle
cluster would have no controller. The next change hands over. Apache Kafka's controllers halt on a full disk.

Settings: auto.leader.rebalance.enable, leader.imbalance.check.interval.seconds, unclean.leader.election.interval.ms,
delegation.token.expiry.check.interval.ms, metadata.max.idle.interval.ms.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from kafkacompat.controller.controller_result import ControllerResult
from kafkacompat.controller.image import MetadataImage
from kafkacompat.controller.records import MetadataRecord
from kafkacompat.controller.settings import ControllerSettings
from kafkacompat.faults import report
from kafkacompat.ports import passes
from kafkacompat.tasks import TURN_COST, Work
from kafkacompat.wire.messages.no_op_record import NoOpRecord

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkacompat.controller.broker_heartbeat_manager import BrokerHeartbeatManager
    from kafkacompat.controller.event_queue import OwnDecisions
    from kafkacompat.controller.metadata_machine import MetadataMachine
    from kafkacompat.ports import Clock
    from kafkacompat.tasks import Started

    Task = Callable[[MetadataImage, ControllerSettings], Work[ControllerResult[MetadataRecord, bool]]]

logger = logging.getLogger(__name__)

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
        own_decisions: OwnDecisions,
    ) -> None:
        self._machine = machine
        self._settings = settings
        self._sessions = sessions
        self._clock = clock
        self._own_decisions = own_decisions
        self._running: list[Started] = []

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
        running, self._running = self._running, []
        for each in running:
            each.cancel()

    def elect_uncleanly(self) -> None:
        """Run now, because a setting that allows unclean elections was changed."""

        self._own_decisions.tasks.start(
            "unclean elections",
            self._own_decisions.take(lambda: self._carry_out(maybe_elect_unclean_leaders)),
        )

    def _sweep_expired_delegation_tokens(
        self, image: MetadataImage, settings: ControllerSettings
    ) -> Work[ControllerResult[MetadataRecord, bool]]:
        from kafkacompat.controller.delegation_token_control_manager import sweep_expired_delegation_tokens

        return (yield from sweep_expired_delegation_tokens(image, self._clock.now_ms()))

    def _repeat(self, task: Task, interval_ms: int | None, after_failure_ms: int = 0) -> None:
        """None: never. After a failure the next round comes at its normal time, but not before `after_failure_ms`."""
        if interval_ms is not None:
            rounds = self._rounds(task, interval_ms, max(interval_ms, after_failure_ms))
            self._running.append(self._own_decisions.tasks.start(task.__name__, rounds))

    async def _rounds(self, task: Task, interval_ms: int, after_failure_ms: int) -> None:
        wait_ms = interval_ms
        while True:
            await self._own_decisions.tasks.sleep(wait_ms)
            result = None
            try:
                result = await self._own_decisions.take(lambda: self._carry_out(task))
            except Exception as error:  # the next round comes all the same
                if passes(error):
                    logger.error("%s failed and is tried again: %r", task.__name__, error)
                else:
                    report(task.__name__, error)
            if result is None:
                wait_ms = after_failure_ms
            else:
                wait_ms = AT_ONCE_MS if result.response else interval_ms

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


def balance_interval_ms(settings: ControllerSettings) -> int | None:
    """The interval of `maybe_balance_partition_leaders`. None if auto.leader.rebalance.enable is off."""
    if not settings.static.get_boolean("auto.leader.rebalance.enable"):
        return None
    return settings.static.get_int("leader.imbalance.check.interval.seconds") * 1000


def unclean_interval_ms(settings: ControllerSettings) -> int:
    """The interval of `maybe_elect_unclean_leaders`."""
    return settings.static.get_int("unclean.leader.election.interval.ms")


AFTER_FAILURE_MS = 60_000
"""Delay after a record that could not be written, because each attempt is logged. Nobody misses the record."""


def no_op_interval_ms(settings: ControllerSettings) -> int | None:
    """metadata.max.idle.interval.ms. None if it is 0: no such records."""
    return settings.static.get_int("metadata.max.idle.interval.ms") or None


def write_no_op_record(
    image: MetadataImage, settings: ControllerSettings
) -> Work[ControllerResult[MetadataRecord, bool]]:
    """Every supported metadata.version knows the record. False: one is enough."""
    return ControllerResult((MetadataRecord(NoOpRecord(), 0),), False)
    yield TURN_COST


def maybe_balance_partition_leaders(
    image: MetadataImage, settings: ControllerSettings
) -> Work[ControllerResult[MetadataRecord, bool]]:
    from kafkacompat.controller import replication_control_manager

    return (yield from replication_control_manager.maybe_balance_partition_leaders(image, settings))


def maybe_elect_unclean_leaders(
    image: MetadataImage, settings: ControllerSettings
) -> Work[ControllerResult[MetadataRecord, bool]]:
    from kafkacompat.controller import replication_control_manager

    return (yield from replication_control_manager.maybe_elect_unclean_leaders(image, settings))
