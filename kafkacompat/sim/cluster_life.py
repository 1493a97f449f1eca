"""One life of a simulated node: the product's own parts, joined as `server` joins them, on simulated doors.

Quorum driver, metadata machine, controller, logs, partitions, replication, fetches, heartbeats and request handlers are the real
ones; clock, timers, workers, disk and connections are the simulation's. Decides nothing. Coordinators: life_coordinators.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from kafkacompat.api.context import ControllerNode, ControllerTimedOut, NotController, RequestContext
from kafkacompat.api.dispatch import ApiDispatcher
from kafkacompat.api.registry import BROKER_APIS, CONTROLLER_APIS
from kafkacompat.config import ServerConfig
from kafkacompat.controller.active_controller import ActiveController
from kafkacompat.controller.core import ControllerCore
from kafkacompat.controller.image import MetadataImage
from kafkacompat.controller.liveness import Liveness
from kafkacompat.controller.reach import Probed, Reach
from kafkacompat.controller.settings import ControllerSettings
from kafkacompat.controller.turns import Turns
from kafkacompat.deferred import Deferred
from kafkacompat.log.manager import LogManager
from kafkacompat.log.upkeep import LogUpkeep
from kafkacompat.net.channels import ConnectionLost
from kafkacompat.net.dispatcher import CloseConnection
from kafkacompat.node.assignments import DirectoryAssignments
from kafkacompat.node.controller_channel import ControllerChannel
from kafkacompat.node.forwarding import ForwardingController
from kafkacompat.node.heartbeats import BrokerHeartbeats
from kafkacompat.node.lifecycle import BrokerIdentity
from kafkacompat.node.opening import Opening
from kafkacompat.node.periodic import PeriodicWork
from kafkacompat.node.producer_ids import BlockProducerIds, blocks_of_controller
from kafkacompat.node.settings import NodeSettings
from kafkacompat.partition.fetch import FetchEngine
from kafkacompat.partition.manager import PartitionManager
from kafkacompat.partition.placement import Placement
from kafkacompat.partition.replication import Replication
from kafkacompat.partition.sessions import FetchSessionCache
from kafkacompat.ports import ProbeResult, SyncFailed, WorkerPools
from kafkacompat.raft.metadata_log import metadata_log_config, open_metadata_log
from kafkacompat.raft.quorum_config import quorum_member, quorum_settings, static_voters
from kafkacompat.raft.quorum_driver import QuorumDriver
from kafkacompat.raft.storage import METADATA_PARTITION
from kafkacompat.raft.transport import ChannelTransport
from kafkacompat.sim.hosts import Host, SlowWorkers
from kafkacompat.sim.life_coordinators import LifeCoordinators
from kafkacompat.sim.life_parts import (
    NEVER_MS,
    STAND_INS,
    CountedMachine,
    NodeFailed,
    WatchedSessions,
    context_of,
    copied,
    life_settings_of,
    no_moves,
    node_of,
    read_records,
)
from kafkacompat.sim.links import BROKER_PORT, CONTROLLER_PORT, Connection, SimulatedChannels
from kafkacompat.wire.messages.fetch_response import FetchResponse
from kafkacompat.wire.messages.metadata_response import MetadataResponse

if TYPE_CHECKING:
    from kafkacompat.sim.machine import SimulatedMachine

CLUSTER_ID = "c2ltdWxhdGVkLWNsdXN0ZXI"
BROKER_LISTENER, CONTROLLER_LISTENER = "PLAINTEXT", "CONTROLLER"
LOG_DIRECTORY, METADATA_DIRECTORY = "/data", "/metadata"
NO_CONNECTION = -1
FETCH = 1
RESIGN_TIMEOUT_MS = 300
METADATA_SEGMENT_BYTES = 20_000


class Life(Host):
    """A process, from its start to its end. `start` once; then `kill` from outside, or `shut_down`."""

    def __init__(self, machine: SimulatedMachine, config: ServerConfig, rate: float) -> None:
        super().__init__(machine.simulation, machine.id, rate)
        simulation = machine.simulation
        self.machine = machine
        self.config = config
        self.connections: dict[int, Connection] = {}
        """To this life, by id."""
        self.channels = SimulatedChannels(self)
        self.is_stopping = False
        self.is_serving = False
        """Its listener for clients and brokers is open."""
        self.workers: SlowWorkers = SlowWorkers(self, machine.chance, simulation.draw_sync_us)
        self.settings: NodeSettings = NodeSettings(config, self.id)
        controller_settings = ControllerSettings(config, self.id, CLUSTER_ID)
        self.metadata = CountedMachine(
            ControllerCore(controller_settings),
            max_bytes_between_snapshots=simulation.options.snapshot_bytes,
            timers=self,
        )
        self.metadata.counters = simulation.counters
        self.metadata.now_us = lambda: simulation.scheduler.now_us
        self.metadata.subscribe(self.settings.on_image)
        self.metadata.subscribe(lambda old, new: simulation.image_oracles.published(self, new))
        is_controller = "controller" in config.roles
        self._endpoints = tuple(config.advertised_listeners()[-1:]) if is_controller else ()
        self.metadata_log = open_metadata_log(
            machine.disk,
            METADATA_DIRECTORY,
            metadata_log_config(METADATA_SEGMENT_BYTES, 1 << 40),
            self,
            clean=False,
        )
        self.driver = QuorumDriver(
            member=quorum_member(
                config,
                machine.metadata_directory_id,
                CLUSTER_ID,
                tuple((each.listener_name, each.host, each.port) for each in self._endpoints),
            ),
            settings=quorum_settings(config),
            listener_name=CONTROLLER_LISTENER,
            directory=f"{METADATA_DIRECTORY}/{METADATA_PARTITION}",
            log=self.metadata_log,
            disk=machine.disk,
            workers=self.workers,
            clock=self,
            timers=self,
            random=machine.chance,
            static_voters=static_voters(config),
            transport=ChannelTransport(cast(Any, self.channels)),
            fail=self._failed,
        )
        self.metadata.attach(self.driver)
        self._dispatchers: dict[int, ApiDispatcher] = {}
        self._liveness: Liveness | None = None
        if self._endpoints:
            self._build_controller(controller_settings)
        self.partitions: PartitionManager | None = None
        self.fetches: FetchEngine | None = None
        self.heartbeats: BrokerHeartbeats | None = None
        self._ways: list[ControllerChannel] = []
        self._coordinators: LifeCoordinators | None = None

    def _failed(self, error: BaseException | None) -> None:
        """The node halts: as it should where a sync has failed, and by a bug otherwise."""
        if isinstance(error, SyncFailed):
            self.simulation.faults.halted(self.machine)
            return
        raise NodeFailed(f"node {self.id} halts: {type(error).__name__}: {error}") from error

    def _note(self, text: str) -> None:
        if self.simulation.tell is not None:
            self.simulation.tell(f"node {self.id}: {text}")

    def start(self) -> None:
        self.driver.start(self.metadata)
        if "broker" in self.config.roles:
            self._start_broker()

    # The quorum's side.

    def _build_controller(self, controller_settings: ControllerSettings) -> None:
        simulation, config = self.simulation, self.config
        reach = Reach(self.id, BROKER_LISTENER, self._probe, self)
        self.metadata.subscribe(reach.on_image)
        turns = Turns(self)
        self._liveness = liveness = Liveness(
            self.metadata,
            controller_settings,
            WatchedSessions(config.int("broker.session.timeout.ms"), self._taken_for_gone),
            self,
            self,
            reach,
            turns,
        )
        controller = ActiveController(
            self.metadata,
            controller_settings,
            self.driver,
            self.machine.chance,
            liveness,
            turns,
            simulation.bootstrap_values,
        )
        node = ControllerNode(
            node_id=self.id,
            cluster_id=CLUSTER_ID,
            config=config,
            clock=self,
            random=self.machine.chance,
            controller=controller,
            quorum=self.driver,
            image=self.metadata.image,
            dynamic=self.settings,
        )

        def take_image(old: MetadataImage, new: MetadataImage) -> None:
            node.image = new

        self.metadata.subscribe(take_image)
        self._dispatchers[CONTROLLER_PORT] = ApiDispatcher(node, CONTROLLER_APIS)

    def _taken_for_gone(self, broker_id: int) -> None:
        self.simulation.image_oracles.taken_for_gone(self.metadata.core.image.brokers[broker_id])

    def _probe(self, host: str, port: int) -> Deferred[Probed]:
        found = {ProbeResult.CONNECTED: Probed.REACHED, ProbeResult.REFUSED: Probed.REFUSED}
        return self.channels.probe(host, port, 0).then(lambda result: found.get(result, Probed.SILENT))

    def _active_address(self) -> tuple[int, str, int] | None:
        endpoints = self.driver.leader_endpoints
        if self.driver.leader_id < 0 or not endpoints:
            return None
        _, host, port = endpoints[0]
        return self.driver.leader_id, host, port

    def _carry_out(self, context: RequestContext, request: Any) -> Deferred[Any]:
        dispatcher = self._dispatchers.get(CONTROLLER_PORT)
        if dispatcher is None:
            raise NotController
        return dispatcher.call(context, request)

    def _call_own(self, message: Any) -> Deferred[Any]:
        return self._carry_out(context_of(message, NO_CONNECTION, CONTROLLER_LISTENER), message)

    # The broker's side.

    def _way(self, purpose: str) -> ControllerChannel:
        channel = ControllerChannel(
            self.id,
            purpose,
            cast(Any, self.channels),
            self,
            self,
            self._active_address,
            self._call_own,
            self.config.int("controller.socket.timeout.ms"),
        )
        self.metadata.when_leader_changes.append(channel.leader_changed)
        self._ways.append(channel)
        return channel

    def _start_broker(self) -> None:
        simulation, machine, config, settings = self.simulation, self.machine, self.config, self.settings
        self.logs = logs = LogManager(
            machine.disk,
            [(LOG_DIRECTORY, machine.directory_id)],
            settings.log_config(""),
            self,
            randrange=machine.chance.randrange,
            note=self._note,
        )
        logs.on_directory_failed = lambda directory: self._failed(directory.failure)
        tasks = logs.begin_load()
        for task in tasks:
            task.run()
        logs.finish_load(tasks)
        alters = self._way("alter-partition")
        forwarding = self._way("forwarding")
        self.replication = replication = Replication(
            self.id,
            BROKER_LISTENER,
            cast(Any, self.channels),
            self,
            self,
            settings,
            broker_epoch=self._broker_epoch,
            alter=lambda request: alters.request(request, NEVER_MS),
        )
        self.partitions = partitions = PartitionManager(
            self.id,
            logs,
            self,
            self,
            WorkerPools.of_one(self.workers),
            settings.log_config,
            replication,
        )
        self._assignments = DirectoryAssignments(
            self.id, self._way("directory-assignments"), self, lambda: self.metadata.image, self._broker_epoch
        )
        Placement(partitions, logs, self._assignments.assign, no_moves)
        self.fetches = fetches = FetchEngine(
            partitions,
            self,
            self,
            FetchSessionCache(1000, lambda: 1 + machine.chance.randrange(2**31 - 2)),
            lambda: settings.int("fetch.max.bytes"),
            selects_by_rack=simulation.options.reads_nearby,
            throttle=replication.leader_throttle,
        )
        controller = ForwardingController(forwarding, self._carry_out)
        producer_ids = BlockProducerIds(blocks_of_controller(forwarding, self.id, self._broker_epoch), self)
        services: dict[str, Any] = {}
        if simulation.options.transactional_producers:
            self._coordinators = LifeCoordinators(self, BROKER_LISTENER, partitions, producer_ids, controller)
            services = self._coordinators.services()
        self.node = node_of(
            node_id=self.id,
            cluster_id=CLUSTER_ID,
            config=config,
            clock=self,
            random=machine.chance,
            partitions=partitions,
            fetches=fetches,
            controller=controller,
            producer_ids=producer_ids,
            log_manager=logs,
            image=MetadataImage(),
            dynamic=settings,
            **services,
        )
        self._opening = Opening(self.id, self)
        self._dispatchers[BROKER_PORT] = ApiDispatcher(self.node, BROKER_APIS, opening=self._opening)
        identity = BrokerIdentity(
            node_id=self.id,
            cluster_id=CLUSTER_ID,
            incarnation_id=machine.chance.uuid(),
            listeners=tuple(config.advertised_broker_listeners()),
            directory_ids=(machine.directory_id,),
            rack=config.str("broker.rack"),
            previous_broker_epoch=logs.previous_broker_epoch,
        )
        heartbeats = self.heartbeats = BrokerHeartbeats(
            identity,
            life_settings_of(config),
            self._way("heartbeat"),
            self,
            self,
            lambda: self.metadata.image.offset,
            self._failed,
        )
        self.metadata.subscribe(heartbeats.on_image)
        heartbeats.start().on_done(lambda done: self._registered(done.result()))

    def _broker_epoch(self) -> int:
        assert self.heartbeats is not None
        return self.heartbeats.broker_epoch

    def _registered(self, epoch: int) -> None:
        self.metadata.when_at(epoch).on_done(lambda _: self._open())

    def _open(self) -> None:
        """The first image that knows of this life is there: serve, and ask to be unfenced."""
        assert self.heartbeats is not None
        if self._coordinators is not None:
            self._coordinators.start()
        self._periodic = PeriodicWork(
            self.config, self.settings, LogUpkeep(self.logs), self, self, WorkerPools.of_one(self.workers)
        )
        self.logs.on_stale = self._periodic.checkpoint_soon
        self._take_image(MetadataImage(), self.metadata.image)
        self.metadata.subscribe(self._take_image)
        self._opening.begin(
            self._broker_epoch(), self.config.int("broker.session.timeout.ms"), self._still_fenced
        )
        self._opening.on_image(self.metadata.image)
        self.is_serving = True
        self._periodic.start()
        self.heartbeats.ready_to_unfence()

    def _take_image(self, old: MetadataImage, new: MetadataImage) -> None:
        assert self.partitions is not None
        self.node.image = new
        session_ms = self.config.int("broker.session.timeout.ms")
        self.node.returning.on_image(old, new, self.monotonic_ms(), session_ms)
        self.partitions.on_image(old, new)
        if self._coordinators is not None:
            self._coordinators.on_image(old, new)
        self._opening.on_image(new)

    def _still_fenced(self) -> None:
        self._note("is not unfenced in time")

    # Requests.

    def is_listening(self, port: int) -> bool:
        if port == CONTROLLER_PORT:
            return CONTROLLER_PORT in self._dispatchers
        return port == BROKER_PORT and self.is_serving

    def serve(self, connection: Connection, message: Any, answered: Callable[[Any], None]) -> None:
        """Through the handlers of the listener, at the highest version."""
        is_controller = connection.port == CONTROLLER_PORT
        listener = CONTROLLER_LISTENER if is_controller else BROKER_LISTENER
        table = CONTROLLER_APIS if is_controller else BROKER_APIS
        context = context_of(message, connection.id, listener)
        handler = table.load(message.API_KEY)
        oracles = self.simulation.partition_oracles

        def done(answer: Deferred[Any]) -> None:
            try:
                response = answer.result()
            except CloseConnection:
                connection.close_by_server()
                return
            except (NotController, ControllerTimedOut, ConnectionLost) as error:
                if isinstance(error, ConnectionLost) and not self.is_stopping:
                    raise
                code = STAND_INS[type(error)]
                response = handler.error_response(message, code, context.api_version)
            if isinstance(response, FetchResponse):
                read_records(response)
            elif isinstance(response, MetadataResponse):
                response = copied(response, message)
            oracles.answered(self, message, response)
            answered(response)

        self._dispatchers[connection.port].call(context, message).on_done(done)

    def connection_closed(self, connection: Connection) -> None:
        if self._liveness is not None and connection.port == CONTROLLER_PORT:
            self._liveness.connection_closed(connection.id)

    # The end.

    def die(self, *, silently: bool) -> None:
        """At once. Peers see connections close, unless the power went."""
        self.alive = False
        self.machine.life = None
        self.channels.source_died(silently=silently)
        for connection in list(self.connections.values()):
            connection.server_died(silently=silently)
        self.connections.clear()

    def shut_down(self) -> None:
        """In order: leadership away, logs closed, the clean mark left."""
        if self.is_stopping:
            return
        self.is_stopping = True
        if self.partitions is not None:
            self._opening.open()
        stopped = Deferred.of(None) if self.heartbeats is None else self.heartbeats.shut_down()
        stopped.on_done(lambda _: self._leave_quorum())

    def _leave_quorum(self) -> None:
        if self._coordinators is not None and self.is_serving:
            self._coordinators.stop()
        if self.partitions is not None:
            self.replication.close()
            self._assignments.close()
        for way in self._ways:
            way.close()
        self.driver.shut_down(RESIGN_TIMEOUT_MS).on_done(lambda _: self._stop())

    def _stop(self) -> None:
        self.driver.flush_now()
        self.driver.close()
        self.metadata_log.close()
        if self.partitions is not None and self.is_serving:
            assert self.heartbeats is not None
            self._periodic.stop()
            self.logs.shut_down(self.heartbeats.broker_epoch)
        self.simulation.counters.clean_stops += 1
        self.simulation.stopped(self)
