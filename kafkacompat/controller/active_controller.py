"""The controller's commands on this node: requests in, replies out once their records are committed.

It connects the pure commands with the metadata machine. It decides nothing: the command modules check, and the quorum
makes records durable. If this node is not the active controller, every command raises NotController. A command that
writes nothing still waits until everything it may have read is committed. liveness.py has the brokers' sessions.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from kafkacompat.api.request_context import NO_CONNECTION, NotController
from kafkacompat.controller.balance import allows_unclean_elections
from kafkacompat.controller.host_names import Resolve, known_hosts
from kafkacompat.controller.liveness import Liveness
from kafkacompat.controller.metadata_machine import MetadataMachine
from kafkacompat.controller.own_decisions import OwnDecisions
from kafkacompat.controller.periodic_task_control_manager import PeriodicTaskControlManager
from kafkacompat.controller.records import MetadataRecord
from kafkacompat.controller.refusals import BrokerRefused, refused_response
from kafkacompat.controller.result import ControllerResult
from kafkacompat.controller.settings import ControllerSettings
from kafkacompat.controller.turns import Turns
from kafkacompat.deferred import Deferred
from kafkacompat.ids import NO_EPOCH
from kafkacompat.ports import Clock, Random
from kafkacompat.quota.mutations import MayMutate, MutationQuota, unlimited
from kafkacompat.stepping.jobs import all_steps
from kafkacompat.stepping.stepped import Steps, whole
from kafkacompat.wire.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkacompat.api.request_context import RequestContext
    from kafkacompat.controller.image import BrokerRegistration, MetadataImage
    from kafkacompat.quota.managers import QuotaManagers
    from kafkacompat.raft.quorum_driver import QuorumDriver
    from kafkacompat.wire.messages.broker_registration_request import BrokerRegistrationRequest

logger = logging.getLogger(__name__)

T = TypeVar("T")

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


class ActiveController:
    """ControllerService of api/context, for clients and brokers, while this node leads the quorum."""

    def __init__(
        self,
        machine: MetadataMachine,
        settings: ControllerSettings,
        driver: QuorumDriver,
        random: Random,
        liveness: Liveness,
        periodic_tasks: PeriodicTaskControlManager,
        own_decisions: OwnDecisions,
        turns: Turns,
        clock: Clock,
        bootstrap_values: Sequence[bytes],
        resolve: Resolve,
        quotas: QuotaManagers,
    ) -> None:
        """`bootstrap_values` are the framed first records of a new metadata log."""
        self._machine = machine
        self._settings = settings
        self._driver = driver
        self._random = random
        self._liveness = liveness
        self._periodic_tasks = periodic_tasks
        self._own_decisions = own_decisions
        self._turns = turns
        self._clock = clock
        self._bootstrap_values = bootstrap_values
        self._resolve = resolve
        self._quotas = quotas
        self._activated_epoch = NO_EPOCH
        """The last epoch led by this node whose first records are written."""
        machine.when_active = self._activate
        machine.when_deposed = self._resign

    @property
    def is_active(self) -> bool:
        return self._machine.is_active and self._activated_epoch == self._machine.active_epoch

    @property
    def _image(self) -> MetadataImage:
        """The image with everything accepted, committed or not, in which dead brokers are fenced."""
        return self._image_but(None)

    def _image_but(self, broker_id: int | None) -> MetadataImage:
        """The same image, in which this broker is unchanged."""
        if not self.is_active:
            raise NotController
        return self._liveness.image(but=broker_id)

    def _in_steps(
        self, command: Steps[ControllerResult[MetadataRecord, T]], *, is_atomic: bool = True
    ) -> Steps[Deferred[T]]:
        """Run a command in steps; the image must not change until it ends. A command whose leadership has ended is
        abandoned, because it would change the sessions of another leadership."""
        epoch = self._machine.active_epoch
        while True:
            try:
                next(command)
            except StopIteration as end:
                result: ControllerResult[MetadataRecord, T] = end.value
                break
            yield
            if self._machine.active_epoch != epoch:
                raise NotController
        return (yield from self._machine.submit_in_steps(result, is_atomic=is_atomic))

    def _activate(self) -> None:
        machine = self._machine
        activation = machine.core.activation_records(machine.core.decode(self._bootstrap_values))
        if activation and not all_steps(machine.append_or_resign(activation)):
            # This happens for a sole voter with a full disk. No other record may come before these.
            self._own_decisions.try_again(self._activate)
            return
        self._activated_epoch = machine.active_epoch
        self._liveness.start()
        self._periodic_tasks.activate()

    def _resign(self) -> None:
        self._liveness.stop()
        self._periodic_tasks.deactivate()

    # Clients' requests.

    def create_topics(self, request: Any, context: RequestContext) -> Deferred[Any]:
        from kafkacompat.controller.topics import create_topics

        return self._mutate(
            context,
            CREATE_TOPICS_STRICT_SINCE,
            lambda may: create_topics.in_steps(self._image, self._settings, self._random, request, may),
        )

    def _mutate(
        self,
        context: RequestContext,
        strict_since: int,
        command: Callable[[MayMutate], Steps[ControllerResult[MetadataRecord, Any]]],
    ) -> Deferred[Any]:
        """Carry out a command under the sender's quota of mutations, and tell it the throttle time (KIP-599)."""
        now_ms = self._liveness.now_ms
        mutations = self._quotas.mutation
        if not mutations.is_active:
            return self._turns.take_steps(lambda: self._in_steps(command(unlimited)))
        sensor = mutations.sensor(context.principal.name, context.client_id, now_ms())
        quota = MutationQuota(sensor, context.api_version >= strict_since, now_ms)

        def told(response: Any) -> Any:
            response.throttle_time_ms = quota.throttle_ms()
            return response

        return self._turns.take_steps(lambda: self._in_steps(command(quota.record))).then(told)

    def delete_topics(self, request: Any, context: RequestContext) -> Deferred[Any]:
        from kafkacompat.controller.topic_deletion import delete_topics, deletion_disabled

        if self.is_active and not self._settings.static.get_boolean("delete.topic.enable"):
            old = context.api_version < TOPIC_DELETION_DISABLED_SINCE
            code = ErrorCode.INVALID_REQUEST if old else ErrorCode.TOPIC_DELETION_DISABLED
            return Deferred.of(deletion_disabled(request, code))
        return self._mutate(
            context,
            DELETE_TOPICS_STRICT_SINCE,
            lambda may: delete_topics.in_steps(self._image, request, may),
        )

    def create_partitions(self, request: Any, context: RequestContext) -> Deferred[Any]:
        from kafkacompat.controller.topics import create_partitions

        return self._mutate(
            context,
            CREATE_PARTITIONS_STRICT_SINCE,
            lambda may: create_partitions.in_steps(self._image, self._random, request, may),
        )

    def incremental_alter_configs(self, request: Any, context: RequestContext) -> Deferred[Any]:
        from kafkacompat.controller.configs import incremental_alter_configs

        return self._configure(
            lambda: incremental_alter_configs.in_steps(self._image, self._settings, request)
        )

    def alter_configs(self, request: Any, context: RequestContext) -> Deferred[Any]:
        from kafkacompat.controller.configs import legacy_alter_configs

        return self._configure(lambda: legacy_alter_configs.in_steps(self._image, self._settings, request))

    def _configure(self, command: Callable[[], Steps[ControllerResult[MetadataRecord, T]]]) -> Deferred[T]:
        def configure() -> Steps[Deferred[T]]:
            decided: list[ControllerResult[MetadataRecord, T]] = []

            def deciding() -> Steps[ControllerResult[MetadataRecord, T]]:
                decided.append((yield from command()))
                return decided[0]

            answer = yield from self._in_steps(deciding())
            if allows_unclean_elections(decided[0].records):
                self._periodic_tasks.elect_uncleanly()
            return answer

        return self._turns.take_steps(configure)

    def elect_leaders(self, request: Any, context: RequestContext) -> Deferred[Any]:
        from kafkacompat.controller.elections import elect_leaders

        newer = context.api_version >= ELECTION_ERROR_SINCE
        return self._turns.take_steps(
            lambda: self._in_steps(
                elect_leaders.in_steps(self._image, self._settings, request, with_request_error=newer),
                is_atomic=False,
            )
        )

    def alter_partition_reassignments(self, request: Any, context: RequestContext) -> Deferred[Any]:
        from kafkacompat.controller.reassignments import alter_partition_reassignments

        return self._turns.take_steps(
            lambda: self._in_steps(
                alter_partition_reassignments.in_steps(self._image, self._settings, request)
            )
        )

    def list_partition_reassignments(self, request: Any, context: RequestContext) -> Deferred[Any]:
        from kafkacompat.controller.reassignments import list_partition_reassignments

        return self._turns.take_steps(
            lambda: self._in_steps(list_partition_reassignments.in_steps(self._image, request))
        )

    def create_acls(self, request: Any, context: RequestContext) -> Deferred[Any]:
        from kafkacompat.controller.acls import create_acls, creation_disabled

        if self.is_active and not self._settings.has_authorizer:
            return Deferred.of(creation_disabled(request))
        return self._turns.take_steps(
            lambda: self._in_steps(create_acls.in_steps(self._image, self._random, request))
        )

    def delete_acls(self, request: Any, context: RequestContext) -> Deferred[Any]:
        from kafkacompat.controller.acls import delete_acls, deletion_disabled

        if self.is_active and not self._settings.has_authorizer:
            return Deferred.of(deletion_disabled(request))
        return self._turns.take_steps(lambda: self._in_steps(delete_acls.in_steps(self._image, request)))

    def alter_client_quotas(self, request: Any, context: RequestContext) -> Deferred[Any]:
        from kafkacompat.controller.client_quotas import alter_client_quotas, hosts_to_resolve

        if not self.is_active:
            raise NotController
        return known_hosts(hosts_to_resolve(request), self._resolve).and_then(
            lambda known: self._turns.take_steps(
                lambda: self._in_steps(alter_client_quotas.in_steps(self._image, request, known))
            )
        )

    def alter_user_scram_credentials(self, request: Any, context: RequestContext) -> Deferred[Any]:
        from kafkacompat.controller.scram_credentials import alter_user_scram_credentials

        return self._turns.take_steps(
            lambda: self._in_steps(alter_user_scram_credentials.in_steps(self._image, request))
        )

    def _change_tokens(self, request: Any, context: RequestContext) -> Deferred[Any]:
        from kafkacompat.controller.delegation_tokens import change_tokens

        def command() -> Steps[ControllerResult[MetadataRecord, Any]]:
            now_ms = self._clock.now_ms()
            return change_tokens(
                self._image, self._settings, self._random, now_ms, request, context.principal
            )

        return self._answer(request, command)

    create_delegation_token = renew_delegation_token = expire_delegation_token = _change_tokens

    def update_features(self, request: Any, context: RequestContext) -> Deferred[Any]:
        from kafkacompat.controller.kraft_version_upgrade import update_features_and_kraft_version

        return self._turns.take(
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

        def describing() -> Steps[Deferred[Any]]:
            report = self._driver.report()
            return Deferred.of((yield from describe_quorum.in_steps(request, report, with_identities=newer)))

        return self._turns.take_steps(describing)

    def add_raft_voter(self, request: Any, context: RequestContext) -> Deferred[Any]:
        return self._driver.handle(request, context.api_version)

    def remove_raft_voter(self, request: Any, context: RequestContext) -> Deferred[Any]:
        return self._driver.handle(request, context.api_version)

    # Other nodes' requests.

    def broker_registration(
        self, request: BrokerRegistrationRequest, context: RequestContext
    ) -> Deferred[Any]:
        from kafkacompat.controller.registration import broker_registration

        liveness = self._liveness
        endpoints = {(each.host, each.port) for each in request.listeners}

        def is_live(broker: BrokerRegistration) -> bool:
            # A broker that registers with a controller in its own process has ended before, so there is no session to wait for.
            in_own_process = context.connection_id == NO_CONNECTION
            return not in_own_process and liveness.is_live(broker, endpoints, context.client_host)

        def register() -> Steps[ControllerResult[MetadataRecord, Any]]:
            result = yield from broker_registration.in_steps(
                self._image_but(request.broker_id),
                self._settings,
                liveness.sessions,
                request,
                self._driver.next_offset,
                is_live,
            )
            liveness.heard(request.broker_id, context.connection_id, context.client_host)
            return result

        return self._answer_broker(request, register)

    def broker_heartbeat(self, request: Any, context: RequestContext) -> Deferred[Any]:
        from kafkacompat.controller.heartbeats import broker_heartbeat

        def beat() -> Steps[ControllerResult[MetadataRecord, Any]]:
            liveness = self._liveness
            result = yield from broker_heartbeat.in_steps(
                self._image_but(request.broker_id),
                self._settings,
                liveness.sessions,
                request,
                self._driver.next_offset,
                liveness.now_ms(),
            )
            liveness.heard(request.broker_id, context.connection_id, context.client_host)
            return result

        return self._answer_broker(request, beat)

    def unregister_broker(self, request: Any, context: RequestContext) -> Deferred[Any]:
        from kafkacompat.controller.unregistration import unregister_broker

        def unregister() -> Steps[ControllerResult[MetadataRecord, Any]]:
            result = yield from unregister_broker.in_steps(self._image, self._settings, request)
            self._liveness.sessions.remove(request.broker_id)
            return result

        return self._answer_broker(request, unregister)

    def alter_partition(self, request: Any, context: RequestContext) -> Deferred[Any]:
        from kafkacompat.controller.isr import alter_partition

        return self._answer(request, lambda: alter_partition.in_steps(self._image, self._settings, request))

    def assign_replicas_to_dirs(self, request: Any, context: RequestContext) -> Deferred[Any]:
        from kafkacompat.controller.directory_assignments import assign_replicas_to_dirs

        return self._answer(
            request, lambda: assign_replicas_to_dirs.in_steps(self._image, self._settings, request)
        )

    def allocate_producer_ids(self, request: Any, context: RequestContext) -> Deferred[Any]:
        from kafkacompat.controller.producer_ids import allocate_producer_ids

        return self._answer(request, lambda: whole(allocate_producer_ids, self._image, request))

    def controller_registration(self, request: Any, context: RequestContext) -> Deferred[Any]:
        from kafkacompat.controller.controller_registration import register_controller

        return self._answer(request, lambda: whole(register_controller, self._image, request))

    def _answer_broker(
        self, request: Any, command: Callable[[], Steps[ControllerResult[MetadataRecord, Any]]]
    ) -> Deferred[Any]:
        """Like `_answer`, for a command that changes the broker's session. The session changes only if the records are written."""
        liveness, broker_id = self._liveness, request.broker_id

        def carry_out() -> Steps[Deferred[Any]]:
            saved, epoch = liveness.sessions.save(broker_id), self._machine.active_epoch
            try:
                return (yield from self._carry_out(request, command(), is_atomic=False))
            except Exception:
                if self.is_active and self._machine.active_epoch == epoch:
                    liveness.sessions.put_back(broker_id, saved, liveness.now_ms())
                    liveness.schedule()
                raise

        return self._turns.take_steps(carry_out)

    def _answer(
        self, request: Any, command: Callable[[], Steps[ControllerResult[MetadataRecord, Any]]]
    ) -> Deferred[Any]:
        return self._turns.take_steps(lambda: self._carry_out(request, command(), is_atomic=True))

    def _carry_out(
        self, request: Any, command: Steps[ControllerResult[MetadataRecord, Any]], *, is_atomic: bool
    ) -> Steps[Deferred[Any]]:
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
