"""A node's controller role: a controller to activate, the listener that other nodes speak to, and its registration (KIP-919).

Stands on what the node has of the metadata quorum (shared_server.py). Knows the controller and the network, and joins them; it
knows no partition, no group and no client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkacompat.api.context import ControllerNode
from kafkacompat.api.dispatch import ApiDispatcher
from kafkacompat.api.long_requests import RequestSteps
from kafkacompat.api.registry import CONTROLLER_APIS
from kafkacompat.api.request_context import RequestContext
from kafkacompat.config import EndPoint
from kafkacompat.controller.active_controller import ActiveController
from kafkacompat.controller.broker_heartbeat_manager import BrokerHeartbeatManager
from kafkacompat.controller.liveness import Liveness
from kafkacompat.controller.own_decisions import OwnDecisions
from kafkacompat.controller.periodic_task_control_manager import PeriodicTaskControlManager
from kafkacompat.controller.reach import Probed, Reach
from kafkacompat.controller.turns import Turns
from kafkacompat.node.controller_registration import ControllerIdentity, ControllerRegistration
from kafkacompat.ports import ProbeResult
from kafkacompat.server.advertised import controller_addresses

if TYPE_CHECKING:
    from kafkacompat.controller.image import MetadataImage
    from kafkacompat.deferred import Deferred
    from kafkacompat.ports import SocketServer
    from kafkacompat.server.doors import NodeDoors
    from kafkacompat.server.shared_server import SharedServer

PROBE_TIMEOUT_MS = 1_000
"""How long a broker whose heartbeats' connection was closed may take to refuse or accept a new one."""
DRAIN_DEADLINE_MS = 1_000
"""How long other nodes' requests may take to be answered while this one stops."""
PROBED = {ProbeResult.CONNECTED: Probed.REACHED, ProbeResult.REFUSED: Probed.REFUSED}


class ControllerServer:
    """`start`, then `stop`; both once."""

    def __init__(self, doors: NodeDoors, shared: SharedServer, server: SocketServer) -> None:
        """`server` and the shared part's endpoints are of `listen`."""
        config, machine = doors.config, shared.machine
        self._doors = doors
        self._server = server
        reach = Reach(config.node_id, config.inter_broker_listener_name, self._probe, doors.timers)
        machine.subscribe(reach.on_image)
        turns = Turns(doors.timers)
        own_decisions = OwnDecisions(machine, doors.timers, turns)
        sessions = BrokerHeartbeatManager(config.get_int("broker.session.timeout.ms"))
        self.liveness = liveness = Liveness(
            machine,
            shared.controller_settings,
            sessions,
            doors.clock,
            doors.timers,
            reach,
            own_decisions,
        )
        self.controller = ActiveController(
            machine,
            shared.controller_settings,
            shared.driver,
            doors.random,
            liveness,
            PeriodicTaskControlManager(
                machine, shared.controller_settings, sessions, doors.timers, own_decisions
            ),
            own_decisions,
            turns,
            shared.directories.bootstrap_values,
        )
        node = ControllerNode(
            node_id=config.node_id,
            cluster_id=shared.cluster_id,
            config=config,
            clock=doors.clock,
            random=doors.random,
            controller=self.controller,
            quorum=shared.driver,
            image=machine.image,
            dynamic=shared.settings,
            authorizer=shared.authorizer,
        )

        def take_image(old: MetadataImage, new: MetadataImage) -> None:
            node.image = new

        machine.subscribe(take_image)
        self._dispatcher = ApiDispatcher(
            node,
            CONTROLLER_APIS,
            liveness.connection_closed,
            stepping=RequestSteps(doors.timers, doors.workers.batches, doors.monotonic_s),
            elements_max=config.get_int("request.max.elements"),
        )
        server.dispatcher = self._dispatcher
        registration = ControllerRegistration(
            ControllerIdentity(config.node_id, shared.incarnation, shared.endpoints),
            shared.controller_channel("controller-registration"),
            doors.timers,
        )
        machine.subscribe(registration.on_image)

    @staticmethod
    async def listen(doors: NodeDoors) -> tuple[SocketServer, tuple[EndPoint, ...]]:
        """The controller's server, and its listeners as others are told of them: with the ports that were left to the system.

        Raises OSError, ConfigError.
        """
        server = doors.network.socket_server()
        bound = await server.bind(doors.config.controller_listeners())
        return server, await controller_addresses(doors.config, bound, doors.network)

    def _probe(self, host: str, port: int) -> Deferred[Probed]:
        probed = self._doors.network.channels.probe(host, port, PROBE_TIMEOUT_MS)
        return probed.then(lambda result: PROBED.get(result, Probed.SILENT))

    def carry_out(self, context: RequestContext, request: Any) -> Deferred[Any]:
        """A request by this node's own way. Fails with NotController while another's is active."""
        return self._dispatcher.call(context, request)

    async def start(self) -> None:
        """Serve the quorum, which this node has joined."""
        await self._server.serve()

    async def stop(self) -> None:
        """Once it leads no more: answer what is in flight."""
        await self._server.drain(DRAIN_DEADLINE_MS)

    def abandon(self) -> None:
        """A start that failed lets go of the listeners."""
        self._server.close_listeners()
