"""The controller's requests on this node: which command carries out each.

It connects the pure commands with their runner (command_runner.py), which tells how a command is run. liveness.py has
the brokers' sessions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkacompat.api.request_context import NO_CONNECTION, ControllerTimedOut, NotController
from kafkacompat.controller.command_runner import CommandRunner
from kafkacompat.controller.event_queue import EventQueue
from kafkacompat.controller.host_names import Resolve, known_hosts
from kafkacompat.controller.leadership import Leadership
from kafkacompat.controller.liveness import Liveness
from kafkacompat.controller.metadata_machine import MetadataMachine
from kafkacompat.controller.own_decisions import OwnDecisions
from kafkacompat.controller.periodic_task_control_manager import PeriodicTaskControlManager
from kafkacompat.controller.records import MetadataRecord
from kafkacompat.controller.result import ControllerResult, whole
from kafkacompat.controller.settings import ControllerSettings
from kafkacompat.deferred import Deferred
from kafkacompat.ports import Clock, Random
from kafkacompat.tasks import Work
from kafkacompat.wire.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kafkacompat.api.request_context import RequestContext
    from kafkacompat.controller.image import BrokerRegistration, MetadataImage
    from kafkacompat.quota.managers import QuotaManagers
    from kafkacompat.raft.quorum_driver import QuorumDriver
    from kafkacompat.wire.messages.broker_registration_request import BrokerRegistrationRequest

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
        queue: EventQueue,
        clock: Clock,
        bootstrap_values: Sequence[bytes],
        resolve: Resolve,
        quotas: QuotaManagers,
        logs_left: Callable[[], int | None] = lambda: None,
    ) -> None:
        """`bootstrap_values` are the framed first records of a new metadata log. `logs_left`: for how many more logs
        this node has descriptors; None if there is no limit."""
        self._machine = machine
        self._settings = settings
        self._driver = driver
        self._random = random
        self._liveness = liveness
        self._queue = queue
        self._clock = clock
        self._resolve = resolve
        self._logs_left = logs_left
        self.timed_out_heartbeats = 0
        """Heartbeats that were refused, because too many commands waited."""
        self._leadership = Leadership(machine, liveness, periodic_tasks, own_decisions, bootstrap_values)
        self._commands = CommandRunner(self._leadership, machine, queue, liveness, periodic_tasks, quotas)

    @property
    def is_active(self) -> bool:
        return self._leadership.is_active

    @property
    def _image(self) -> MetadataImage:
        return self._leadership.image

    # Clients' requests.

    def create_topics(self, request: Any, context: RequestContext) -> Deferred[Any]:
        from kafkacompat.controller.topic_creation import create_topics

        return self._commands.run_mutation(
            context,
            CREATE_TOPICS_STRICT_SINCE,
            lambda may: create_topics(
                self._image, self._settings, self._random, request, may, self._logs_left()
            ),
        )

    def delete_topics(self, request: Any, context: RequestContext) -> Deferred[Any]:
        from kafkacompat.controller.topic_deletion import delete_topics, deletion_disabled

        if self.is_active and not self._settings.static.get_boolean("delete.topic.enable"):
            old = context.api_version < TOPIC_DELETION_DISABLED_SINCE
            code = ErrorCode.INVALID_REQUEST if old else ErrorCode.TOPIC_DELETION_DISABLED
            return Deferred.of(deletion_disabled(request, code))
        return self._commands.run_mutation(
            context,
            DELETE_TOPICS_STRICT_SINCE,
            lambda may: delete_topics(self._image, request, may),
        )

    def create_partitions(self, request: Any, context: RequestContext) -> Deferred[Any]:
        from kafkacompat.controller.partition_creation import create_partitions

        return self._commands.run_mutation(
            context,
            CREATE_PARTITIONS_STRICT_SINCE,
            lambda may: create_partitions(
                self._image, self._random, request, may, self._settings.node_id, self._logs_left()
            ),
        )

    def incremental_alter_configs(self, request: Any, context: RequestContext) -> Deferred[Any]:
        from kafkacompat.controller.configs import incremental_alter_configs

        return self._commands.run_config_change(
            lambda: incremental_alter_configs(self._image, self._settings, request)
        )

    def alter_configs(self, request: Any, context: RequestContext) -> Deferred[Any]:
        from kafkacompat.controller.configs import legacy_alter_configs

        return self._commands.run_config_change(
            lambda: legacy_alter_configs(self._image, self._settings, request)
        )

    def elect_leaders(self, request: Any, context: RequestContext) -> Deferred[Any]:
        from kafkacompat.controller.elections import elect_leaders

        newer = context.api_version >= ELECTION_ERROR_SINCE
        return self._commands.run(
            lambda: elect_leaders(self._image, self._settings, request, with_request_error=newer),
            is_atomic=False,
        )

    def alter_partition_reassignments(self, request: Any, context: RequestContext) -> Deferred[Any]:
        from kafkacompat.controller.reassignments import alter_partition_reassignments

        return self._commands.run(lambda: alter_partition_reassignments(self._image, self._settings, request))

    def list_partition_reassignments(self, request: Any, context: RequestContext) -> Deferred[Any]:
        from kafkacompat.controller.reassignments import list_partition_reassignments

        return self._commands.run(lambda: list_partition_reassignments(self._image, request))

    def create_acls(self, request: Any, context: RequestContext) -> Deferred[Any]:
        from kafkacompat.controller.acls import create_acls, creation_disabled

        if self.is_active and not self._settings.has_authorizer:
            return Deferred.of(creation_disabled(request))
        return self._commands.run(lambda: create_acls(self._image, self._random, request))

    def delete_acls(self, request: Any, context: RequestContext) -> Deferred[Any]:
        from kafkacompat.controller.acls import delete_acls, deletion_disabled

        if self.is_active and not self._settings.has_authorizer:
            return Deferred.of(deletion_disabled(request))
        return self._commands.run(lambda: delete_acls(self._image, request))

    def alter_client_quotas(self, request: Any, context: RequestContext) -> Deferred[Any]:
        from kafkacompat.controller.client_quotas import alter_client_quotas, hosts_to_resolve

        if not self.is_active:
            raise NotController

        def command() -> Work[Deferred[frozenset[str]]]:
            names = yield from hosts_to_resolve(request)
            return known_hosts(names, self._resolve)

        return self._queue.submit_steps(command).and_then(
            lambda known: self._commands.run(lambda: alter_client_quotas(self._image, request, known))
        )

    def alter_user_scram_credentials(self, request: Any, context: RequestContext) -> Deferred[Any]:
        from kafkacompat.controller.scram_credentials import alter_user_scram_credentials

        return self._commands.run(lambda: alter_user_scram_credentials(self._image, request))

    def _change_tokens(self, request: Any, context: RequestContext) -> Deferred[Any]:
        from kafkacompat.controller.delegation_tokens import change_tokens

        def command() -> Work[ControllerResult[MetadataRecord, Any]]:
            now_ms = self._clock.now_ms()
            return change_tokens(
                self._image, self._settings, self._random, now_ms, request, context.principal
            )

        return self._commands.run_for_node(request, command)

    create_delegation_token = renew_delegation_token = expire_delegation_token = _change_tokens

    def update_features(self, request: Any, context: RequestContext) -> Deferred[Any]:
        from kafkacompat.controller.kraft_version_upgrade import update_features_and_kraft_version

        return self._queue.submit(
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

        return self._queue.submit_steps(describing)

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
        from kafkacompat.controller.heartbeats import broker_heartbeat

        def beat() -> Work[ControllerResult[MetadataRecord, Any]]:
            liveness = self._liveness
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
        from kafkacompat.controller.unregistration import unregister_broker

        def unregister() -> Work[ControllerResult[MetadataRecord, Any]]:
            result = yield from unregister_broker(self._image, self._settings, request)
            self._liveness.sessions.remove(request.broker_id)
            return result

        return self._commands.run_for_broker(request, unregister)

    def alter_partition(self, request: Any, context: RequestContext) -> Deferred[Any]:
        from kafkacompat.controller.isr import alter_partition

        return self._commands.run_for_node(
            request, lambda: alter_partition(self._image, self._settings, request)
        )

    def assign_replicas_to_dirs(self, request: Any, context: RequestContext) -> Deferred[Any]:
        from kafkacompat.controller.directory_assignments import assign_replicas_to_dirs

        return self._commands.run_for_node(
            request, lambda: assign_replicas_to_dirs(self._image, self._settings, request)
        )

    def allocate_producer_ids(self, request: Any, context: RequestContext) -> Deferred[Any]:
        from kafkacompat.controller.producer_ids import allocate_producer_ids

        return self._commands.run_for_node(
            request, lambda: whole(allocate_producer_ids, self._image, request)
        )

    def controller_registration(self, request: Any, context: RequestContext) -> Deferred[Any]:
        from kafkacompat.controller.controller_registration import register_controller

        return self._commands.run_for_node(request, lambda: whole(register_controller, self._image, request))
