"""A node's broker role: everything that it serves to clients.

This module builds logs, partitions, replication, fetches, groups and client listeners. It connects them with the
node's shared metadata parts and keeps the order of a broker's start and stop. It knows every package, but not the
insides of raft/ and controller/.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any

from kafkacompat.api.context import Node
from kafkacompat.api.dispatch import ApiDispatcher
from kafkacompat.api.long_requests import RequestTasks
from kafkacompat.api.registry import broker_apis
from kafkacompat.api.request_context import NO_CONNECTION, RequestContext
from kafkacompat.config import EndPoint, ServerConfig
from kafkacompat.config.server import TIERING
from kafkacompat.controller.image import MetadataImage
from kafkacompat.deferred import Deferred
from kafkacompat.ids import OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTION_TOPIC
from kafkacompat.late import Late, NotMade
from kafkacompat.memory import Freeing
from kafkacompat.node.assignments_manager import AssignmentsManager
from kafkacompat.node.auto_topic_creation_manager import AutoTopicCreationManager
from kafkacompat.node.broker_lifecycle import BrokerIdentity, BrokerState, LifecycleSettings
from kafkacompat.node.broker_lifecycle_manager import BrokerLifecycleManager
from kafkacompat.node.forwarding_manager import ForwardingManager
from kafkacompat.node.node_to_controller_channel_manager import NO_TIMEOUT_MS
from kafkacompat.node.opening import Opening
from kafkacompat.node.rpc_producer_id_manager import RPCProducerIdManager, allocate_block
from kafkacompat.node.settings import (
    Change,
    NodeSettings,
    SettingChanges,
    SettingNotices,
    refuse_tiered_topics,
)
from kafkacompat.partition.fetch import FetchEngine
from kafkacompat.partition.fetch_session import FetchSessionCache
from kafkacompat.partition.placement import Placement
from kafkacompat.partition.replica_fetcher_manager import ReplicaFetcherManager
from kafkacompat.partition.replica_manager import ReplicaManager
from kafkacompat.partition.replica_selector import selects_by_rack
from kafkacompat.partition.services import PartitionServices
from kafkacompat.records.limits import BatchLimits
from kafkacompat.server.admission import admitting
from kafkacompat.server.broker_logs import BrokerLogs
from kafkacompat.server.data_directories import NodeDirectories
from kafkacompat.server.mirroring import Mirroring, OwnGroups
from kafkacompat.server.services import NodeServices
from kafkacompat.server.shared_server import (
    SharedServer,
    broker_addresses,
    quota_managers,
    take_client_quotas,
)

if TYPE_CHECKING:
    from kafkacompat.ports import SocketServer
    from kafkacompat.ports.dispatcher import Dispatcher
    from kafkacompat.quota.client_quotas import QuotaManagers
    from kafkacompat.server.broker_coordinators import BrokerCoordinators
    from kafkacompat.server.remote_storage import RemoteStorage

logger = logging.getLogger(__name__)

DRAIN_DEADLINE_MS = 10_000
SESSION_IDS = 2**31 - 2
CREATE_TOPICS, CREATE_TOPICS_VERSION = 19, 7
CREATE_PARTITIONS, CREATE_PARTITIONS_VERSION = 37, 3


class BrokerServer:
    """Call `start` once, then `stop` once. The parts are made in the order of Kafka's BrokerServer, and none of them acts
    before `start`."""

    def __init__(
        self,
        services: NodeServices,
        directories: NodeDirectories,
        settings: NodeSettings,
        shared: SharedServer,
    ) -> None:
        config, clock, tasks = services.config, services.clock, services.tasks
        machine = shared.machine
        self._services = services
        self._settings = settings
        self._shared = shared
        self._cluster_id = directories.identity.cluster_id
        self._session_timeout_ms = config.get_int("broker.session.timeout.ms")
        self._changes = SettingChanges(settings, config.node_id)
        self._notices = SettingNotices(config.node_id)
        self.bound: tuple[EndPoint, ...] = ()
        """The client listeners, with the bound ports."""
        self._is_hurried = False
        self._server: SocketServer | None = None
        self.admitted: Dispatcher
        """What serves clients, once the broker listens."""

        self.lifecycle = BrokerLifecycleManager(
            config.node_id, LifecycleSettings.from_config(config), services.work_clock, tasks, services.halt
        )
        self.broker_logs = BrokerLogs(services, directories, settings, machine, self.lifecycle)
        self.logs = self.broker_logs.manager
        self._opening = Opening(config.node_id, tasks)

        def broker_epoch() -> int:
            return self.lifecycle.broker_epoch

        # Channels to the active controller.
        self._alter_partition_channel = alter_partition = shared.controller_channel("alter-partition")
        self._forwarding_channel = forwarding = shared.controller_channel("forwarding")
        self.assignments = AssignmentsManager(
            config.node_id,
            shared.controller_channel("directory-assignments"),
            tasks,
            lambda: machine.image,
            broker_epoch,
        )

        # Partitions.
        partition_services = PartitionServices(
            config.node_id,
            services.work_clock,
            services.work_timers,
            tasks,
            services.workers,
            self.logs,
            settings,
            services.halt,
        )
        self.replication = ReplicaFetcherManager(
            partition_services,
            config.inter_broker_listener_name,
            services.network.channels,
            broker_epoch=broker_epoch,
            alter=lambda request: alter_partition.request(request, NO_TIMEOUT_MS),
        )
        self.partitions = ReplicaManager(
            partition_services, self.replication, BatchLimits.from_config(config)
        )
        self.placement = Placement(partition_services, self.partitions.hosted, self.assignments.assign)
        self.fetches = FetchEngine(
            partition_services,
            self.partitions,
            FetchSessionCache(
                config.get_int("max.incremental.fetch.session.cache.slots"),
                lambda: 1 + services.random.randrange(SESSION_IDS),
                Freeing(tasks).free,
            ),
            config.get_int("fetch.max.bytes"),
            selects_by_rack=selects_by_rack(config.get_string("replica.selector.class")),
            throttle=self.replication.leader_throttle,
        )

        self.remote_storage: RemoteStorage | None = None
        """None without remote.log.storage.system.enable."""
        if config.get_boolean(TIERING):
            from kafkacompat.server.remote_storage import RemoteStorage

            self.remote_storage = RemoteStorage(
                services,
                settings,
                self._cluster_id,
                self.partitions,
                self.fetches,
                lambda request: self._create_topics(request, None),
                lambda: self.broker_logs.cleaner,
            )

        self.mirroring: Mirroring | None = None
        """None where no other cluster can be reached (the simulator)."""
        if services.channels_with is not None:
            groups = OwnGroups(
                services,
                lambda: self.partitions.image,
                lambda: self._coordinators.made if self._coordinates else None,
                lambda topic: self._topics.request([topic]),
            )
            self.mirroring = self.partitions.hosted.mirroring = Mirroring(
                services, self.partitions.hosted, services.channels_with, self._create_partitions, groups
            )

        # Coordinators, and what they and the handlers ask of the controller.
        self._producer_ids = RPCProducerIdManager(
            partial(allocate_block, forwarding, config.node_id, broker_epoch), tasks
        )
        self._controller = ForwardingManager(forwarding, tasks, shared.carry_out)
        self._topics = AutoTopicCreationManager(config, self._create_topics, _topic_not_made, tasks, clock)
        self._coordinates = False
        """Whether the coordinators serve, as soon as they are made."""
        self._coordinators: Late[BrokerCoordinators] = Late(
            "kafkacompat.server.broker_coordinators", self._make_coordinators, services.workers.batches, tasks
        )

        # Handlers.
        self._node = Node(
            node_id=config.node_id,
            cluster_id=self._cluster_id,
            config=config,
            clock=clock,
            random=services.random,
            partitions=self.partitions,
            fetches=self.fetches,
            controller=self._controller,
            producer_ids=self._producer_ids,
            log_manager=self.logs,
            directories=self.placement,
            image=MetadataImage(),
            auto_create=self._topics,
            dynamic=settings,
            coordinators=self._coordinators,
            provisions=services.provisions,
            opening=self._opening,
            authorizer=shared.authorizer,
            quotas=quota_managers(config),
            monotonic_s=services.monotonic_s,
            client_metrics=services.client_metrics,
            check_listeners=self._check_listeners,
        )
        metrics, closed = services.client_metrics, [self._connection_closed]
        self._dispatcher = ApiDispatcher(
            self._node,
            RequestTasks(tasks),
            broker_apis(metrics is not None, config.get_boolean("unstable.api.versions.enable")),
            when_closed=closed if metrics is None else [*closed, metrics.on_connection_closed],
            elements_max=config.get_int("request.max.elements"),
            meters=services.meters,
        )
        if services.meters is not None:
            self._coordinators.now()  # their metrics are shown from the start

    async def start(self) -> None:
        """Return when clients are served and this broker may lead partitions. Raises OSError, BrokerRefused, CheckpointCorrupt,
        ConfigError."""
        services, config, shared = self._services, self._services.config, self._shared
        await self.broker_logs.load()
        self._server = server = services.network.socket_server()
        listeners = config.broker_listeners()
        self.admitted = dispatcher = admitting(
            self._dispatcher, services, listeners, lambda: shared.machine.image
        )
        self.bound = await server.bind(listeners)
        advertised = await broker_addresses(config, self.bound, services.network)
        await shared.machine.when_at(await self._register(advertised))
        refuse_tiered_topics(config, shared.machine.image)  # before any partition has a role
        await shared.acls_loaded  # a client that is served before is told of an error
        self.broker_logs.keep_checkpoints_true()
        if _has_coordinators_topic(shared.machine.image):
            try:
                await self._coordinators.ready()
            except NotMade as failed:
                raise failed.reason from None
        if self._coordinators.made is not None:
            self._coordinators.made.start()
        self._coordinates = True
        self._take_image(MetadataImage(), shared.machine.image)
        shared.machine.subscribe(self._take_image)
        bound_ms = self._session_timeout_ms
        self._opening.begin(self.lifecycle.broker_epoch, bound_ms, lambda: _still_fenced(bound_ms))
        self._opening.on_image(shared.machine.image)
        await server.serve(dispatcher)
        await self.lifecycle.ready_to_unfence()
        self.broker_logs.start_upkeep()
        if self.remote_storage is not None:
            self.remote_storage.start()

    def _register(self, advertised: tuple[EndPoint, ...]) -> Deferred[int]:
        """Return the broker epoch, which is also the offset of the registration in the metadata log."""
        config, machine = self._services.config, self._shared.machine
        identity = BrokerIdentity(
            node_id=config.node_id,
            cluster_id=self._cluster_id,
            incarnation_id=self._shared.incarnation,
            listeners=advertised,
            directory_ids=self.broker_logs.online_ids(),
            rack=config.get_string("broker.rack"),
            previous_broker_epoch=self.logs.previous_broker_epoch,
        )
        channel = self._shared.controller_channel("heartbeat")
        machine.subscribe(self.lifecycle.on_image)
        self.broker_logs.cordon(self._settings.effective)
        return self.lifecycle.start(identity, channel, lambda: machine.image)

    def _make_coordinators(self) -> BrokerCoordinators:
        from kafkacompat.server.broker_coordinators import BrokerCoordinators

        made = BrokerCoordinators(
            self._services,
            self._settings,
            self.partitions,
            self._producer_ids,
            self._topics,
            lambda request: self._create_topics(request, None),
        )
        made.serve(self._node)
        if self._coordinates:
            made.start()
            made.on_image(MetadataImage(), self.partitions.image)
        return made

    def _connection_closed(self, connection_id: int) -> None:
        if self._coordinators.made is not None:
            self._coordinators.made.shares.on_connection_closed(connection_id)

    def carry_out(self, context: RequestContext, request: Any) -> Deferred[Any]:
        """Handle a request of this node itself, as if it came over a connection."""
        return self._dispatcher.call(context, request)

    @property
    def has_coordinators(self) -> bool:
        """Whether they are made. Before that, this broker coordinates nothing."""
        return self._coordinators.made is not None

    @property
    def coordinators(self) -> BrokerCoordinators:
        """Makes them if nobody has asked for them yet."""
        return self._coordinators.now()

    @property
    def quotas(self) -> QuotaManagers:
        return self._node.quotas

    @property
    def socket_server(self) -> SocketServer | None:
        """None before the broker listens."""
        return self._server

    def _create_topics(self, request: Any, asker: RequestContext | None) -> Deferred[Any]:
        """Create topics in the name of the asker, or of this node without an asker."""
        context = RequestContext(
            CREATE_TOPICS,
            CREATE_TOPICS_VERSION,
            0,
            None if asker is None else asker.client_id,
            NO_CONNECTION if asker is None else asker.connection_id,
            self._services.config.inter_broker_listener_name,
            "127.0.0.1" if asker is None else asker.client_host,
        )
        if asker is not None:
            context.principal = asker.principal
        return self._controller.create_topics(request, context)

    def _create_partitions(self, request: Any) -> Deferred[Any]:
        """Add partitions in the name of this node."""
        listener = self._services.config.inter_broker_listener_name
        context = RequestContext(
            CREATE_PARTITIONS, CREATE_PARTITIONS_VERSION, 0, None, NO_CONNECTION, listener, "127.0.0.1"
        )
        return self._controller.create_partitions(request, context)

    def _take_image(self, old: MetadataImage, new: MetadataImage) -> None:
        """Pass a new image to the parts, in the order of their dependencies. The settings already have it."""
        self._node.image = new
        take_client_quotas(old, new, self._node.quotas, self._server)
        self._node.returning.on_image(old, new, self._services.clock.monotonic_ms(), self._session_timeout_ms)
        change = self._changes.in_image(new)
        if change is Change.OTHER_VALUES:
            self._follow_settings(self._settings.effective)
        elif change is Change.STATED_AGAIN and self._server is not None:
            self._server.take_settings(self._settings.effective)
        self._notices.on_image(old, new, self._settings.refused)
        self.partitions.on_image(old, new)
        if self.remote_storage is not None:
            self.remote_storage.on_image()
        if self._coordinators.made is not None:
            self._coordinators.made.on_image(old, new)
        elif new.topics is not old.topics and _has_coordinators_topic(new):
            self._coordinators.insist()
        if self.mirroring is not None:
            self.mirroring.on_image(old, new)
        self._opening.on_image(new)
        self._topics.on_image(new)

    async def stop(self) -> bool:
        """Move leadership away while clients can still learn the new leaders, then answer the requests in flight.

        Of a start that was cancelled, stop the parts that exist. Return False if the logs cannot be closed, because a
        thread that uses them does not end.
        """
        self._opening.open()
        await self.broker_logs.load_is_over()
        if self.lifecycle.state is not BrokerState.NOT_RUNNING:
            stopped = self.lifecycle.shut_down()
            if self._is_hurried:
                self.lifecycle.give_up()
            await stopped
        if self._server is None:
            return True
        if self._is_hurried or self._shared.driver.leader_id < 0:
            # Forwarded requests will get no answer. They must not delay the drain of their connections.
            self._forwarding_channel.close()
        self.partitions.hosted.finish_changes()
        self._coordinates = False
        if self._coordinators.made is not None:
            self._coordinators.made.stop()
        if self.remote_storage is not None:
            self.remote_storage.stop()
        if self.mirroring is not None:
            self.mirroring.close()
        await self._server.drain(DRAIN_DEADLINE_MS)
        await self.broker_logs.stop_upkeep()
        self.placement.close()
        self.assignments.close()
        self.replication.close()
        self._alter_partition_channel.close()
        self._forwarding_channel.close()
        return not self.leaves_threads

    @property
    def leaves_threads(self) -> bool:
        """Whether worker threads use the logs, which they may do until the process ends."""
        return self.broker_logs.leaves_threads

    def hurry(self) -> None:
        """Do not wait for the controller any longer, in the current or in a later stop."""
        self._is_hurried = True
        self.lifecycle.give_up()
        if self._server is not None:
            self._forwarding_channel.close()

    def close_logs(self) -> None:
        """Close the logs. Call it after the metadata log has stopped, because roles no longer change then."""
        self.broker_logs.close(self.lifecycle.broker_epoch)

    def abandon(self) -> None:
        """Clean up a failed start: answer held requests, close the listeners, and close the logs if all of them are open."""
        self._opening.open()
        if self._server is not None:
            self._server.close_listeners()
        self.close_logs()

    def _check_listeners(self, config: ServerConfig) -> None:
        """Raise ConfigError if the listeners cannot use the stores that the settings name."""
        if self._server is not None:
            self._server.check_settings(config)

    def _follow_settings(self, config: ServerConfig) -> None:
        """Apply changed settings. Bounds on connections change at once. Other dynamic settings are read where they are used."""
        assert self._server is not None
        self.broker_logs.follow_settings(config)
        self._server.take_settings(config)


def _has_coordinators_topic(image: MetadataImage) -> bool:
    return not image.topics.keys().isdisjoint((OFFSETS_TOPIC, TRANSACTION_TOPIC, SHARE_STATE_TOPIC))


def _still_fenced(bound_ms: int) -> None:
    logger.warning(
        "the broker is still fenced after %d ms (broker.session.timeout.ms); requests about the cluster no longer wait",
        bound_ms,
    )


def _topic_not_made(name: str, code: int, message: str | None) -> None:
    logger.warning("automatic creation of topic %s failed: error %d, %s", name, code, message)
