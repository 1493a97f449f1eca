"""Part of the composition root: a node's share in the metadata quorum.

Every node follows the metadata log: a voter or a standby with the controller role, an observer without it. With the role there is
also a controller to activate, and the listener that other nodes speak to. Knows raft, the controller and the network, and joins
them; it knows no partition, no group and no client.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import trio

from kafkacompat.advertised import controller_addresses
from kafkacompat.api.context import NO_CONNECTION, NotController, RequestContext
from kafkacompat.config import EndPoint, ServerConfig
from kafkacompat.controller.core import ControllerCore
from kafkacompat.controller.metadata_machine import MetadataMachine
from kafkacompat.controller.settings import ControllerSettings
from kafkacompat.data_directories import NodeDirectories, QuorumStore, open_quorum_store
from kafkacompat.deferred import Deferred
from kafkacompat.ids import Uuid
from kafkacompat.net.channels import Channels, ProbeResult
from kafkacompat.net.runtime import wait_for
from kafkacompat.net.settings import NetworkSettings
from kafkacompat.node.controller_channel import ControllerChannel
from kafkacompat.raft.transport import ChannelTransport

if TYPE_CHECKING:
    from kafkacompat.api.dispatch import ApiDispatcher
    from kafkacompat.controller.active_controller import ActiveController
    from kafkacompat.controller.image import MetadataImage
    from kafkacompat.controller.reach import Probed
    from kafkacompat.net.server import Server
    from kafkacompat.node.settings import NodeSettings
    from kafkacompat.ports import Clock, Disk, Random, Timers, WorkerPools

logger = logging.getLogger(__name__)

PROBE_TIMEOUT_MS = 1_000
"""How long a broker whose heartbeats' connection was closed may take to refuse or accept a new one."""
RESIGN_TIMEOUT_MS = 1_000
"""How long a leader that stops waits for the other voters to hear of it."""
DRAIN_DEADLINE_MS = 1_000
"""How long other nodes' requests may take to be answered while this one stops."""


@dataclass(frozen=True, slots=True)
class NodeDoors:
    """A node's settings and its doors out: what every part of it is built with."""

    config: ServerConfig
    clock: Clock
    random: Random
    disk: Disk
    timers: Timers
    workers: WorkerPools
    channels: Channels
    nursery: trio.Nursery


class QuorumSide:
    """`start`, then `stop`; both once."""

    def __init__(
        self,
        doors: NodeDoors,
        directories: NodeDirectories,
        settings: NodeSettings,
        incarnation: Uuid,
        fail: Callable[[BaseException], None],
        server: Server | None,
        listeners: tuple[EndPoint, ...],
    ) -> None:
        """`settings` follow the image before anybody else; `incarnation` is this process's; server and listeners are of `listen`.

        Raises MetadataLogProblem.
        """
        config = doors.config
        self._doors = doors
        self._settings = settings
        self._directories = directories
        self._incarnation = incarnation
        self.server = server
        self.controller: ActiveController | None = None
        self._dispatcher: ApiDispatcher | None = None
        self.listeners = listeners
        """The controller's as others are told of them; none without that role."""
        self._controller_settings = ControllerSettings(
            config, config.node_id, directories.identity.cluster_id
        )
        self.machine = MetadataMachine(
            ControllerCore(self._controller_settings),
            max_bytes_between_snapshots=config.int("metadata.log.max.record.bytes.between.snapshots"),
            timers=doors.timers,
        )
        self.machine.subscribe(settings.on_image)
        self.store: QuorumStore = open_quorum_store(
            config,
            directories,
            doors.disk,
            doors.workers.quorum_sync,
            doors.workers.snapshots,
            doors.clock,
            doors.timers,
            doors.random,
            ChannelTransport(doors.channels, logger.error),
            endpoints=self.listeners,
            fail=fail,
            note=logger.warning,
        )
        self.driver = self.store.driver
        self.machine.attach(self.driver)
        if server is not None:
            self._build_controller()

    @staticmethod
    async def listen(doors: NodeDoors) -> tuple[Server | None, tuple[EndPoint, ...]]:
        """A controller's server, and its listeners as others are told of them: with the ports that were left to the system.

        Raises OSError, ConfigError.
        """
        config = doors.config
        if "controller" not in config.roles:
            return None, ()
        from kafkacompat.net.server import Server

        server = Server(NotYet(), NetworkSettings.from_config(config), doors.clock, doors.workers.replies)
        bound = await server.bind(config.controller_listeners())
        ports = {each.endpoint.listener_name: each.port for each in bound}
        return server, await controller_addresses(config, ports)

    def _build_controller(self) -> None:
        from kafkacompat.api.context import ControllerNode
        from kafkacompat.api.dispatch import ApiDispatcher
        from kafkacompat.api.long_requests import RequestSteps
        from kafkacompat.api.registry import CONTROLLER_APIS
        from kafkacompat.controller.active_controller import ActiveController
        from kafkacompat.controller.liveness import Liveness
        from kafkacompat.controller.reach import Reach
        from kafkacompat.controller.sessions import BrokerSessions
        from kafkacompat.controller.turns import Turns
        from kafkacompat.node.controller_registration import ControllerIdentity, ControllerRegistration

        doors, config = self._doors, self._doors.config
        reach = Reach(config.node_id, config.inter_broker_listener_name, self._probe, doors.timers)
        self.machine.subscribe(reach.on_image)
        turns = Turns(doors.timers)
        liveness = Liveness(
            self.machine,
            self._controller_settings,
            BrokerSessions(config.int("broker.session.timeout.ms")),
            doors.clock,
            doors.timers,
            reach,
            turns,
        )
        self.controller = ActiveController(
            self.machine,
            self._controller_settings,
            self.driver,
            doors.random,
            liveness,
            turns,
            self._directories.bootstrap_values,
        )
        node = ControllerNode(
            node_id=config.node_id,
            cluster_id=self._directories.identity.cluster_id,
            config=config,
            clock=doors.clock,
            random=doors.random,
            controller=self.controller,
            quorum=self.driver,
            image=self.machine.image,
            dynamic=self._settings,
        )

        def take_image(old: MetadataImage, new: MetadataImage) -> None:
            node.image = new

        self.machine.subscribe(take_image)
        assert self.server is not None
        self._dispatcher = ApiDispatcher(
            node,
            CONTROLLER_APIS,
            liveness.connection_closed,
            stepping=RequestSteps(doors.timers, doors.workers.batches, time.monotonic),
            elements_max=config.int("request.max.elements"),
        )
        self.server.dispatcher = self._dispatcher
        registration = ControllerRegistration(
            ControllerIdentity(config.node_id, self._incarnation, self.listeners),
            self.controller_channel("controller-registration"),
            doors.timers,
        )
        self.machine.subscribe(registration.on_image)

    def _probe(self, host: str, port: int) -> Deferred[Probed]:
        from kafkacompat.controller.reach import Probed

        found = {ProbeResult.CONNECTED: Probed.REACHED, ProbeResult.REFUSED: Probed.REFUSED}
        probed = self._doors.channels.probe(host, port, PROBE_TIMEOUT_MS)
        return probed.then(lambda result: found.get(result, Probed.SILENT))

    async def start(self) -> None:
        """Take up the stored role, and serve the quorum. Raises MetadataLogProblem."""
        self.driver.start(self.machine)
        if self.server is not None:
            await self._doors.nursery.start(self.server.run)

    def active_address(self) -> tuple[int, str, int] | None:
        """(node id, host, port) of the active controller; None while none is known."""
        endpoints = self.driver.leader_endpoints
        if self.driver.leader_id < 0 or not endpoints:
            return None
        _, host, port = endpoints[0]
        return self.driver.leader_id, host, port

    def controller_channel(self, purpose: str) -> ControllerChannel:
        """A way from this node to the active controller."""
        doors = self._doors
        channel = ControllerChannel(
            doors.config.node_id,
            purpose,
            doors.channels,
            doors.clock,
            doors.timers,
            self.active_address,
            self.call_own,
            doors.config.int("controller.socket.timeout.ms"),
        )
        self.machine.when_leader_changes.append(channel.leader_changed)
        return channel

    def carry_out(self, context: RequestContext, request: Any) -> Deferred[Any]:
        """A client's request, by this node's own controller. Fails with NotController where that is not active, or absent."""
        if self._dispatcher is None:
            raise NotController
        return self._dispatcher.call(context, request)

    def call_own(self, message: Any) -> Deferred[Any]:
        """A request of this node's broker to its own controller; fails as above."""
        context = RequestContext(
            message.API_KEY,
            message.MAX_VERSION,
            0,
            None,
            NO_CONNECTION,
            self._doors.config.controller_listener_names[0],
            "127.0.0.1",
        )
        return self.carry_out(context, message)

    async def stop(self) -> None:
        """Hand leadership on, answer what is in flight, leave the files as at a clean stop."""
        await wait_for(self.driver.shut_down(RESIGN_TIMEOUT_MS))
        if self.server is not None:
            await self.server.drain(DRAIN_DEADLINE_MS)
        self.driver.flush_now()
        self.driver.close()
        self.store.close()

    def abandon(self) -> None:
        """A start that failed lets go of the listeners, and waits for no disk any more."""
        self.driver.close()
        if self.server is not None:
            for listener in self.server.listeners:
                listener.close()


class NotYet:
    """The dispatcher of a server that is bound and does not run."""

    def dispatch(self, connection: object, frame: memoryview) -> None:
        raise RuntimeError("the server is not built")

    def connection_closed(self, connection: object) -> None:
        """No connection was made."""
