"""This node's leadership of the metadata quorum: it begins with the first records of its epoch, and ends when the
machine is deposed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkacompat.api.request_context import NotController
from kafkacompat.controller.liveness import Liveness
from kafkacompat.controller.metadata_machine import MetadataMachine
from kafkacompat.controller.own_decisions import OwnDecisions
from kafkacompat.controller.periodic_task_control_manager import PeriodicTaskControlManager
from kafkacompat.ids import NO_EPOCH
from kafkacompat.tasks import at_once

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkacompat.controller.image import MetadataImage


class Leadership:
    def __init__(
        self,
        machine: MetadataMachine,
        liveness: Liveness,
        periodic_tasks: PeriodicTaskControlManager,
        own_decisions: OwnDecisions,
        bootstrap_values: Sequence[bytes],
    ) -> None:
        """`bootstrap_values` are the framed first records of a new metadata log."""
        self._machine = machine
        self._liveness = liveness
        self._periodic_tasks = periodic_tasks
        self._own_decisions = own_decisions
        self._bootstrap_values = bootstrap_values
        self._activated_epoch = NO_EPOCH
        """The last epoch led by this node whose first records are written."""
        machine.when_active = self._activate
        machine.when_deposed = self._resign

    @property
    def is_active(self) -> bool:
        return self._machine.is_active and self._activated_epoch == self._machine.active_epoch

    @property
    def image(self) -> MetadataImage:
        """The image with everything accepted, committed or not, in which dead brokers are fenced. Raises NotController."""
        return self.image_but(None)

    def image_but(self, broker_id: int | None) -> MetadataImage:
        """The same image, in which this broker is unchanged."""
        if not self.is_active:
            raise NotController
        return self._liveness.image(but=broker_id)

    def _activate(self) -> None:
        machine = self._machine
        activation = machine.core.activation_records(machine.core.decode(self._bootstrap_values))
        if activation and not at_once(machine.append_own(activation)):
            # This happens for a sole voter with a full disk. No other record may come before these.
            self._own_decisions.try_again(self._activate)
            return
        self._activated_epoch = machine.active_epoch
        self._liveness.start()
        self._periodic_tasks.activate()

    def _resign(self) -> None:
        self._liveness.stop()
        self._periodic_tasks.deactivate()
