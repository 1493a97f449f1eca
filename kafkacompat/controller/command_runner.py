"""How the active controller runs a command: in its turn, in steps, with an answer once its records are committed.

It decides nothing: the command checks the request, and the quorum makes the records durable. If this node is not the
active controller, every command raises NotController. A command that writes nothing still waits until everything it
may have read is committed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from kafkacompat.api.request_context import NotController
from kafkacompat.controller.balance import allows_unclean_elections
from kafkacompat.controller.event_queue import EventQueue
from kafkacompat.controller.leadership import Leadership
from kafkacompat.controller.liveness import Liveness
from kafkacompat.controller.metadata_machine import MetadataMachine
from kafkacompat.controller.periodic_task_control_manager import PeriodicTaskControlManager
from kafkacompat.controller.records import MetadataRecord
from kafkacompat.controller.refusals import BrokerRefused, refused_response
from kafkacompat.controller.result import ControllerResult
from kafkacompat.deferred import Deferred
from kafkacompat.quota.mutations import MayMutate, MutationQuota, unlimited
from kafkacompat.tasks import TURN_COST, Work

if TYPE_CHECKING:
    from kafkacompat.api.request_context import RequestContext
    from kafkacompat.quota.managers import QuotaManagers

logger = logging.getLogger(__name__)

T = TypeVar("T")


class CommandRunner:
    def __init__(
        self,
        leadership: Leadership,
        machine: MetadataMachine,
        queue: EventQueue,
        liveness: Liveness,
        periodic_tasks: PeriodicTaskControlManager,
        quotas: QuotaManagers,
    ) -> None:
        self._leadership = leadership
        self._machine = machine
        self._queue = queue
        self._liveness = liveness
        self._periodic_tasks = periodic_tasks
        self._quotas = quotas

    def run(
        self, command: Callable[[], Work[ControllerResult[MetadataRecord, T]]], *, is_atomic: bool = True
    ) -> Deferred[T]:
        """`command` is called when its turn has come, and reads the image then."""
        return self._queue.submit_steps(lambda: self._in_steps(command(), is_atomic=is_atomic))

    def _in_steps(
        self, command: Work[ControllerResult[MetadataRecord, T]], *, is_atomic: bool = True
    ) -> Work[Deferred[T]]:
        """Run a command in steps; the image must not change until it ends. A command whose leadership has ended is
        abandoned, because it would change the sessions of another leadership."""
        epoch = self._machine.active_epoch
        while True:
            try:
                next(command)
            except StopIteration as end:
                result: ControllerResult[MetadataRecord, T] = end.value
                break
            yield TURN_COST
            if self._machine.active_epoch != epoch:
                raise NotController
        return (yield from self._machine.submit_in_steps(result, is_atomic=is_atomic))

    def run_mutation(
        self,
        context: RequestContext,
        strict_since: int,
        command: Callable[[MayMutate], Work[ControllerResult[MetadataRecord, Any]]],
    ) -> Deferred[Any]:
        """Run a command under the sender's quota of mutations, and tell it the throttle time (KIP-599). Versions from
        `strict_since` on are refused, older ones only throttled."""
        now_ms = self._liveness.now_ms
        mutations = self._quotas.mutation
        if not mutations.is_active:
            return self.run(lambda: command(unlimited))
        sensor = mutations.sensor(context.principal.name, context.client_id, now_ms())
        quota = MutationQuota(sensor, context.api_version >= strict_since, now_ms)

        def told(response: Any) -> Any:
            response.throttle_time_ms = quota.throttle_ms()
            return response

        return self.run(lambda: command(quota.record)).then(told)

    def run_config_change(
        self, command: Callable[[], Work[ControllerResult[MetadataRecord, T]]]
    ) -> Deferred[T]:
        """Run a command that may allow unclean elections. They are held at once."""

        def configure() -> Work[Deferred[T]]:
            decided: list[ControllerResult[MetadataRecord, T]] = []

            def deciding() -> Work[ControllerResult[MetadataRecord, T]]:
                decided.append((yield from command()))
                return decided[0]

            answer = yield from self._in_steps(deciding())
            if allows_unclean_elections(decided[0].records):
                self._periodic_tasks.elect_uncleanly()
            return answer

        return self._queue.submit_steps(configure)

    def run_for_node(
        self, request: Any, command: Callable[[], Work[ControllerResult[MetadataRecord, Any]]]
    ) -> Deferred[Any]:
        """Run a command for another node. If it raises BrokerRefused, the answer has that error."""
        return self._queue.submit_steps(lambda: self._answered(request, command(), is_atomic=True))

    def run_for_broker(
        self, request: Any, command: Callable[[], Work[ControllerResult[MetadataRecord, Any]]]
    ) -> Deferred[Any]:
        """Like `run_for_node`, for a command that changes the broker's session. The session changes only if the
        records are written."""
        liveness, broker_id = self._liveness, request.broker_id

        def carry_out() -> Work[Deferred[Any]]:
            saved, epoch = liveness.sessions.save(broker_id), self._machine.active_epoch
            try:
                return (yield from self._answered(request, command(), is_atomic=False))
            except Exception:
                if self._leadership.is_active and self._machine.active_epoch == epoch:
                    liveness.sessions.put_back(broker_id, saved, liveness.now_ms())
                    liveness.schedule()
                raise

        return self._queue.submit_steps(carry_out)

    def _answered(
        self, request: Any, command: Work[ControllerResult[MetadataRecord, Any]], *, is_atomic: bool
    ) -> Work[Deferred[Any]]:
        try:
            return (yield from self._in_steps(command, is_atomic=is_atomic))
        except BrokerRefused as refused:
            logger.warning(
                "%s of node %d is refused: %s",
                type(request).__name__.removesuffix("Request"),
                getattr(request, "broker_id", getattr(request, "controller_id", -1)),
                refused.message,
            )
            return Deferred.of(refused_response(request, refused.code, refused.message))
