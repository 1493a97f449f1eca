"""The active controller: which command carries out each request, and how it is run (QuorumController).

A command is a pure function of the newest image, in one of the `..._control_manager` modules. Here it gets its turn, runs in
steps, and its records go to the quorum; the answer leaves when they are committed. If this node is not the active controller,
every command raises NotController. A command that writes nothing still waits until everything it may have read is committed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar

from kafkacompat.api.request_context import NO_CONNECTION, ControllerTimedOut, NotController
from kafkacompat.controller.broker_heartbeat_manager import BrokerHeartbeatManager
from kafkacompat.controller.controller_result import BrokerRefused, ControllerResult, refused_response, whole
from kafkacompat.controller.event_queue import EventQueue, OwnDecisions
from kafkacompat.controller.liveness import Liveness
from kafkacompat.controller.metadata_machine import MetadataMachine
from kafkacompat.controller.periodic_task_control_manager import PeriodicTaskControlManager
from kafkacompat.controller.records import MetadataRecord
from kafkacompat.controller.settings import ControllerSettings
from kafkacompat.dataclass import dataclass
from kafkacompat.deferred import Deferred, gather
from kafkacompat.ids import NO_EPOCH
from kafkacompat.ports import Clock, Random, Timers
from kafkacompat.quota.client_quotas import MayMutate, MutationQuota, unlimited
from kafkacompat.tasks import TURN_COST, Tasks, Work, at_once
from kafkacompat.wire.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkacompat.api.request_context import RequestContext
    from kafkacompat.controller.image import BrokerRegistration, MetadataImage
    from kafkacompat.controller.reach import Reach
    from kafkacompat.quota.client_quotas import QuotaManagers
    from kafkacompat.raft.quorum_driver import QuorumDriver
    from kafkacompat.wire.messages.broker_registration_request import BrokerRegistrationRequest
    from kafkacompat.wire.messages.update_features_request import UpdateFeaturesRequest
    from kafkacompat.wire.messages.update_features_response import UpdateFeaturesResponse

logger = logging.getLogger(__name__)


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
        if not self._is_activated():
            # This happens for a sole voter with a full disk. No other record may come before these.
            self._own_decisions.tasks.start("activating the controller", self._activate_later())

    async def _activate_later(self) -> None:
        epoch = self._machine.active_epoch
        while await self._own_decisions.may_try_again(epoch):
            if self._is_activated():
                return

    def _is_activated(self) -> bool:
        """Write the first records of the epoch. False if the log does not take them."""
        machine = self._machine
        activation = machine.core.activation_records(machine.core.decode(self._bootstrap_values))
        if activation and not at_once(machine.append_own(activation)):
            return False
        self._activated_epoch = machine.active_epoch
        self._liveness.start()
        self._periodic_tasks.activate()
        for call in machine.when_it_serves:
            call()
        return True

    def _resign(self) -> None:
        self._liveness.stop()
        self._periodic_tasks.deactivate()


def update_features_and_kraft_version(
    image: MetadataImage,
    settings: ControllerSettings,
    machine: MetadataMachine,
    driver: QuorumDriver,
    request: UpdateFeaturesRequest,
    *,
    with_results: bool,
) -> Deferred[UpdateFeaturesResponse]:
    """UpdateFeatures with both kinds of levels: those in metadata records, and kraft.version, which the quorum writes to its own
    records. The quorum is asked first, so that all levels change or none. The answer waits for both."""
    from kafkacompat.controller.feature_control_manager import (
        refused_update,
        update_features,
        wanted_kraft_version,
    )

    result = update_features(image, settings, list(driver.voters.ids), request, with_results=with_results)
    if result.response.error_code != ErrorCode.NONE:
        return machine.submit(result)
    level = wanted_kraft_version(image, request)
    if level is None:
        return machine.submit(result)
    refusal = driver.kraft_version_refusal
    if refusal != ErrorCode.NONE:
        # Before anything is written, so that all levels change or none.
        reason = f"kraft.version cannot be raised to {level} now: not all of the voters are ready for it"
        return machine.submit(ControllerResult((), refused_update(refusal, reason)))
    if request.validate_only:
        return machine.submit(result)
    answer: Deferred[UpdateFeaturesResponse] = Deferred()

    def raised(code: int) -> None:
        if code == ErrorCode.NONE:
            machine.take_kraft_version(level)
        else:
            result.response.error_code = code
        answer.resolve(result.response)

    if result.records:
        machine.append(result.records)
    driver.upgrade_kraft_version(raised)
    return answer


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

            from kafkacompat.controller.configuration_control_manager import allows_unclean_elections

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


Resolve = Callable[[str], Deferred[str | None]]
"""Returns the address of a host, or None if the host is unknown. It never fails."""


def known_hosts(names: Iterable[str], resolve: Resolve) -> Deferred[frozenset[str]]:
    """Resolve the host names of a request before its command begins. Return the names that have an address."""
    from kafkacompat.controller.client_quota_control_manager import RESOLVED_MAX

    asked = sorted(names)[:RESOLVED_MAX]
    return gather([resolve(name) for name in asked]).then(
        lambda addresses: frozenset(
            name for name, address in zip(asked, addresses, strict=True) if address is not None
        )
    )


CREATE_TOPICS_STRICT_SINCE, DELETE_TOPICS_STRICT_SINCE, CREATE_PARTITIONS_STRICT_SINCE = 6, 5, 3
"""Versions whose clients know THROTTLING_QUOTA_EXCEEDED. Older ones are only throttled."""
TOPIC_DELETION_DISABLED_SINCE = 3
"""The DeleteTopics version from which disabled deletion has a separate error."""
ELECTION_ERROR_SINCE = 1
"""The ElectLeaders version with an error field for the whole request."""
FEATURE_RESULTS_UNTIL = 2
"""The UpdateFeatures version from which answers no longer name every feature."""
QUORUM_IDENTITIES_SINCE = 2
"""The DescribeQuorum version with fields for directory ids and addresses."""


@dataclass(frozen=True, slots=True)
class ControllerServices:
    """What a controller stands on."""

    machine: MetadataMachine
    settings: ControllerSettings
    driver: QuorumDriver
    reach: Reach
    quotas: QuotaManagers
    bootstrap_values: Sequence[bytes]
    """The framed first records of a new metadata log."""
    clock: Clock
    timers: Timers
    tasks: Tasks
    random: Random
    resolve: Resolve
    monotonic_s: Callable[[], float] = monotonic
    """For the times of commands only."""
    logs_left: Callable[[], int | None] = lambda: None
    """For how many more logs this node has descriptors; None if there is no limit."""


class QuorumController:
    """ActiveControllerService of api/context, for clients and brokers, while this node leads the quorum."""

    def __init__(self, services: ControllerServices) -> None:
        self._machine = machine = services.machine
        self._settings = settings = services.settings
        self._driver = services.driver
        self._random = services.random
        self._clock = services.clock
        self._resolve = services.resolve
        self._logs_left = services.logs_left
        self.event_queue = queue = EventQueue(services.tasks, services.monotonic_s)
        own_decisions = OwnDecisions(machine, services.tasks, queue)
        sessions = BrokerHeartbeatManager(settings.static.get_int("broker.session.timeout.ms"))
        self.liveness = liveness = Liveness(
            machine, settings, sessions, services.clock, services.timers, services.reach, own_decisions
        )
        periodic_tasks = PeriodicTaskControlManager(
            machine, settings, sessions, services.clock, own_decisions
        )
        self._leadership = Leadership(
            machine, liveness, periodic_tasks, own_decisions, services.bootstrap_values
        )
        self._commands = CommandRunner(
            self._leadership, machine, queue, liveness, periodic_tasks, services.quotas
        )
        self.timed_out_heartbeats = 0
        """Heartbeats that were refused, because too many commands waited."""

    @property
    def is_active(self) -> bool:
        return self._leadership.is_active

    @property
    def _image(self) -> MetadataImage:
        return self._leadership.image

    # Clients' requests.

    def create_topics(self, request: Any, context: RequestContext) -> Deferred[Any]:
        from kafkacompat.controller.topics import create_topics

        return self._commands.run_mutation(
            context,
            CREATE_TOPICS_STRICT_SINCE,
            lambda may: create_topics(
                self._image, self._settings, self._random, request, may, self._logs_left()
            ),
        )

    def delete_topics(self, request: Any, context: RequestContext) -> Deferred[Any]:
        from kafkacompat.controller.topics import delete_topics, deletion_disabled

        if self.is_active and not self._settings.static.get_boolean("delete.topic.enable"):
            old = context.api_version < TOPIC_DELETION_DISABLED_SINCE
            code = ErrorCode.INVALID_REQUEST if old else ErrorCode.TOPIC_DELETION_DISABLED
            return self._commands.run(lambda: deletion_disabled(request, code))
        return self._commands.run_mutation(
            context,
            DELETE_TOPICS_STRICT_SINCE,
            lambda may: delete_topics(self._image, request, may),
        )

    def create_partitions(self, request: Any, context: RequestContext) -> Deferred[Any]:
        from kafkacompat.controller.topics import create_partitions

        return self._commands.run_mutation(
            context,
            CREATE_PARTITIONS_STRICT_SINCE,
            lambda may: create_partitions(
                self._image, self._random, request, may, self._settings.node_id, self._logs_left()
            ),
        )

    def incremental_alter_configs(self, request: Any, context: RequestContext) -> Deferred[Any]:
        from kafkacompat.controller.configuration_control_manager import incremental_alter_configs

        is_direct = self._settings.is_direct(context)
        return self._commands.run_config_change(
            lambda: incremental_alter_configs(self._image, self._settings, request, is_direct)
        )

    def alter_configs(self, request: Any, context: RequestContext) -> Deferred[Any]:
        from kafkacompat.controller.configuration_control_manager import legacy_alter_configs

        is_direct = self._settings.is_direct(context)
        return self._commands.run_config_change(
            lambda: legacy_alter_configs(self._image, self._settings, request, is_direct)
        )

    def elect_leaders(self, request: Any, context: RequestContext) -> Deferred[Any]:
        from kafkacompat.controller.replication_control_manager import elect_leaders

        newer = context.api_version >= ELECTION_ERROR_SINCE
        return self._commands.run(
            lambda: elect_leaders(self._image, self._settings, request, with_request_error=newer),
            is_atomic=False,
        )

    def alter_partition_reassignments(self, request: Any, context: RequestContext) -> Deferred[Any]:
        from kafkacompat.controller.replication_control_manager import alter_partition_reassignments

        return self._commands.run(lambda: alter_partition_reassignments(self._image, self._settings, request))

    def list_partition_reassignments(self, request: Any, context: RequestContext) -> Deferred[Any]:
        from kafkacompat.controller.replication_control_manager import list_partition_reassignments

        return self._commands.run(lambda: list_partition_reassignments(self._image, request))

    def create_acls(self, request: Any, context: RequestContext) -> Deferred[Any]:
        from kafkacompat.controller.acl_control_manager import create_acls, creation_disabled

        if self.is_active and not self._settings.has_authorizer:
            return Deferred.of(creation_disabled(request))
        return self._commands.run(lambda: create_acls(self._image, self._random, request))

    def delete_acls(self, request: Any, context: RequestContext) -> Deferred[Any]:
        from kafkacompat.controller.acl_control_manager import delete_acls, deletion_disabled

        if self.is_active and not self._settings.has_authorizer:
            return Deferred.of(deletion_disabled(request))
        return self._commands.run(lambda: delete_acls(self._image, request))

    def alter_client_quotas(self, request: Any, context: RequestContext) -> Deferred[Any]:
        from kafkacompat.controller.client_quota_control_manager import alter_client_quotas, hosts_to_resolve

        if not self.is_active:
            raise NotController

        def command() -> Work[Deferred[frozenset[str]]]:
            names = yield from hosts_to_resolve(request)
            return known_hosts(names, self._resolve)

        return self.event_queue.submit_steps(command).and_then(
            lambda known: self._commands.run(lambda: alter_client_quotas(self._image, request, known))
        )

    def alter_user_scram_credentials(self, request: Any, context: RequestContext) -> Deferred[Any]:
        from kafkacompat.controller.scram_control_manager import alter_user_scram_credentials

        return self._commands.run(lambda: alter_user_scram_credentials(self._image, request))

    def _change_tokens(self, request: Any, context: RequestContext) -> Deferred[Any]:
        from kafkacompat.controller.delegation_token_control_manager import change_tokens

        def command() -> Work[ControllerResult[MetadataRecord, Any]]:
            now_ms = self._clock.now_ms()
            return change_tokens(
                self._image, self._settings, self._random, now_ms, request, context.principal
            )

        return self._commands.run_for_node(request, command)

    create_delegation_token = renew_delegation_token = expire_delegation_token = _change_tokens

    def update_features(self, request: Any, context: RequestContext) -> Deferred[Any]:
        return self.event_queue.submit(
            lambda: update_features_and_kraft_version(
                self._image,
                self._settings,
                self._machine,
                self._driver,
                request,
                with_results=context.api_version < FEATURE_RESULTS_UNTIL,
            )
        )

    def describe_quorum(self, request: Any, context: RequestContext) -> Deferred[Any]:
        from kafkacompat.raft.describe import describe_quorum

        newer = context.api_version >= QUORUM_IDENTITIES_SINCE

        def describing() -> Work[Deferred[Any]]:
            report = self._driver.report()
            return Deferred.of((yield from describe_quorum(request, report, with_identities=newer)))

        return self.event_queue.submit_steps(describing)

    def add_raft_voter(self, request: Any, context: RequestContext) -> Deferred[Any]:
        return self._driver.handle(request, context.api_version)

    def remove_raft_voter(self, request: Any, context: RequestContext) -> Deferred[Any]:
        return self._driver.handle(request, context.api_version)

    # Other nodes' requests.

    def broker_registration(
        self, request: BrokerRegistrationRequest, context: RequestContext
    ) -> Deferred[Any]:
        from kafkacompat.controller.cluster_control_manager import broker_registration

        liveness = self.liveness
        liveness.asked(context.connection_id)
        endpoints = {(each.host, each.port) for each in request.listeners}

        def is_live(broker: BrokerRegistration) -> bool:
            # A broker that registers with a controller in its own process has ended before, so there is no session to wait for.
            in_own_process = context.connection_id == NO_CONNECTION
            return not in_own_process and liveness.is_live(broker, endpoints, context.client_host)

        def register() -> Work[ControllerResult[MetadataRecord, Any]]:
            result = yield from broker_registration(
                self._leadership.image_but(request.broker_id),
                self._settings,
                liveness.sessions,
                request,
                self._driver.next_offset,
                is_live,
            )
            liveness.heard(request.broker_id, context.connection_id, context.client_host)
            return result

        return self._commands.run_for_broker(request, register)

    def broker_heartbeat(self, request: Any, context: RequestContext) -> Deferred[Any]:
        from kafkacompat.controller.cluster_control_manager import broker_heartbeat

        self.liveness.asked(context.connection_id)

        def beat() -> Work[ControllerResult[MetadataRecord, Any]]:
            liveness = self.liveness
            result = yield from broker_heartbeat(
                self._leadership.image_but(request.broker_id),
                self._settings,
                liveness.sessions,
                request,
                self._driver.next_offset,
                liveness.now_ms(),
            )
            liveness.heard(request.broker_id, context.connection_id, context.client_host)
            return result

        try:
            return self._commands.run_for_broker(request, beat)
        except ControllerTimedOut:
            self.timed_out_heartbeats += 1
            raise

    def unregister_broker(self, request: Any, context: RequestContext) -> Deferred[Any]:
        from kafkacompat.controller.cluster_control_manager import unregister_broker

        def unregister() -> Work[ControllerResult[MetadataRecord, Any]]:
            result = yield from unregister_broker(self._image, self._settings, request)
            self.liveness.sessions.remove(request.broker_id)
            return result

        return self._commands.run_for_broker(request, unregister)

    def unregister_controller(self, request: Any, context: RequestContext) -> Deferred[Any]:
        from kafkacompat.controller.cluster_control_manager import unregister_controller

        return self._commands.run_for_node(
            request, lambda: whole(unregister_controller, self._image, self._settings.node_id, request)
        )

    def alter_partition(self, request: Any, context: RequestContext) -> Deferred[Any]:
        from kafkacompat.controller.replication_control_manager import alter_partition

        return self._commands.run_for_node(
            request, lambda: alter_partition(self._image, self._settings, request)
        )

    def assign_replicas_to_dirs(self, request: Any, context: RequestContext) -> Deferred[Any]:
        from kafkacompat.controller.replication_control_manager import assign_replicas_to_dirs

        return self._commands.run_for_node(
            request, lambda: assign_replicas_to_dirs(self._image, self._settings, request)
        )

    def allocate_producer_ids(self, request: Any, context: RequestContext) -> Deferred[Any]:
        from kafkacompat.controller.producer_id_control_manager import allocate_producer_ids

        return self._commands.run_for_node(
            request, lambda: whole(allocate_producer_ids, self._image, request)
        )

    def controller_registration(self, request: Any, context: RequestContext) -> Deferred[Any]:
        from kafkacompat.controller.cluster_control_manager import register_controller

        return self._commands.run_for_node(request, lambda: whole(register_controller, self._image, request))
