"""A node's controller role: the controller, the listener for other nodes, and the controller's registration (KIP-919).

It uses the node's member of the metadata quorum (shared_server.py). This module connects the controller and the
network. It knows no partitions, groups or clients.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from kafkacompat.api.context import ControllerNode
from kafkacompat.api.dispatch import ApiDispatcher
from kafkacompat.api.long_requests import RequestTasks
from kafkacompat.api.registry import CONTROLLER_APIS
from kafkacompat.api.request_context import RequestContext
from kafkacompat.config import EndPoint
from kafkacompat.config.server import AUTHORIZER_CLASS_NAME
from kafkacompat.controller.controller_metrics import ControllerMeters
from kafkacompat.controller.quorum_controller import ControllerServices, QuorumController
from kafkacompat.controller.reach import Probed, Reach
from kafkacompat.node.controller_registration_manager import ControllerIdentity, ControllerRegistrationManager
from kafkacompat.node.settings import Change, SettingChanges
from kafkacompat.ports import ProbeResult
from kafkacompat.server.admission import admitting
from kafkacompat.server.shared_server import controller_addresses, quota_managers, take_client_quotas

if TYPE_CHECKING:
    from kafkacompat.config import ServerConfig
    from kafkacompat.controller.image import MetadataImage
    from kafkacompat.deferred import Deferred
    from kafkacompat.ports import SocketServer
    from kafkacompat.server.services import NodeServices
    from kafkacompat.server.shared_server import SharedServer

logger = logging.getLogger(__name__)

PROBE_TIMEOUT_MS = 1_000
"""How long a probed broker may take to refuse or accept a connection, after its heartbeat connection was closed."""
EARLY_START = "early.start.listeners"
DRAIN_DEADLINE_MS = 1_000
"""How long a stopping controller may take to answer other nodes' requests."""
PROBED = {ProbeResult.CONNECTED: Probed.REACHED, ProbeResult.REFUSED: Probed.REFUSED}


def _late_listeners(config: ServerConfig) -> tuple[EndPoint, ...]:
    """The controller listeners that open when the authorizer has the access control entries (KIP-801).

    By default all listeners open before, because voters must reach each other to find out which entries are
    committed.
    """
    if config.get_string(EARLY_START) is None or not config.get_string(AUTHORIZER_CLASS_NAME):
        return ()
    names = {name.upper() for name in config.get_list(EARLY_START)}
    return tuple(each for each in config.controller_listeners() if each.listener_name not in names)


def _is_bound_late(endpoint: EndPoint) -> bool:
    """A port that the system chooses must be known before, so its clients wait in the socket's backlog, as in Kafka."""
    return endpoint.port != 0


class ControllerServer:
    """Call `start` once, then `stop` once."""

    def __init__(self, services: NodeServices, shared: SharedServer, server: SocketServer) -> None:
        """`server` and the endpoints of the shared part come from `listen`."""
        config, machine = services.config, shared.machine
        self._services = services
        self._shared = shared
        self._server = server
        reach = Reach(config.node_id, config.inter_broker_listener_name, self._probe, services.work_timers)
        machine.subscribe(reach.on_image)
        self.quotas = quotas = quota_managers(config, of_controller=True)
        self.controller = QuorumController(
            ControllerServices(
                machine,
                shared.controller_settings,
                shared.driver,
                reach,
                quotas,
                shared.directories.bootstrap_values,
                services.work_clock,
                services.work_timers,
                services.tasks,
                services.random,
                services.network.resolve,
                services.monotonic_s,
                (lambda: None) if services.descriptors is None else services.descriptors.logs_left,
            )
        )
        self.event_queue = self.controller.event_queue
        self.liveness = self.controller.liveness
        node = ControllerNode(
            node_id=config.node_id,
            cluster_id=shared.cluster_id,
            config=config,
            clock=services.clock,
            random=services.random,
            controller=self.controller,
            quorum=shared.driver,
            image=machine.image,
            dynamic=shared.settings,
            provisions=services.provisions,
            authorizer=shared.authorizer,
            quotas=quotas,
            monotonic_s=services.monotonic_s,
        )

        self.meters = meters = ControllerMeters()
        machine.when_leader_changes.append(lambda: meters.leader_changed(machine.leader_id))
        machine.subscribe(meters.on_image)
        changes = SettingChanges(shared.settings, config.node_id)

        def take_image(old: MetadataImage, new: MetadataImage) -> None:
            node.image = new
            take_client_quotas(old, new, quotas, server)
            if changes.in_image(new) is not Change.NONE:
                server.take_settings(shared.settings.effective)

        machine.subscribe(take_image)
        self._dispatcher = ApiDispatcher(
            node,
            RequestTasks(services.tasks),
            CONTROLLER_APIS,
            [self.liveness.connection_closed],
            elements_max=config.get_int("request.max.elements"),
            meters=services.meters,
        )
        self.admitted = admitting(
            self._dispatcher, services, config.controller_listeners(), lambda: machine.image
        )
        registration = ControllerRegistrationManager(
            ControllerIdentity(config.node_id, shared.incarnation, shared.endpoints),
            shared.controller_channel("controller-registration"),
            services.tasks,
        )
        machine.subscribe(registration.on_image)

    @staticmethod
    async def listen(services: NodeServices) -> tuple[SocketServer, tuple[EndPoint, ...]]:
        """Return the controller's socket server and its advertised listeners, with the ports that the system chose for
        port 0.

        The listeners that wait for the authorizer are bound by `start`, those with port 0 are served by it. Raises
        OSError, ConfigError.
        """
        server = services.network.socket_server()
        late = [each for each in _late_listeners(services.config) if _is_bound_late(each)]
        bound = await server.bind(
            [each for each in services.config.controller_listeners() if each not in late]
        )
        return server, await controller_addresses(services.config, (*bound, *late), services.network)

    def _probe(self, host: str, port: int) -> Deferred[Probed]:
        probed = self._services.network.channels.probe(host, port, PROBE_TIMEOUT_MS)
        return probed.then(lambda result: PROBED.get(result, Probed.SILENT))

    def carry_out(self, context: RequestContext, request: Any) -> Deferred[Any]:
        """Handle a request of this node itself. Fails with NotController while another controller is active."""
        return self._dispatcher.call(context, request)

    @property
    def socket_server(self) -> SocketServer:
        return self._server

    async def start(self) -> None:
        """Start to serve the quorum, which this node has already joined. Returns when all listeners are open. Raises
        OSError."""
        late = _late_listeners(self._services.config)
        names = [each.listener_name for each in late]
        self._server.hold(names)
        await self._server.serve(self.admitted)
        if late:
            logger.info(
                "%s opens when the access control entries are loaded (%s)", ", ".join(names), EARLY_START
            )
            await self._shared.acls_loaded
            self._server.hold(())
            await self._server.bind(filter(_is_bound_late, late))

    async def stop(self) -> None:
        """Answer the requests in flight. Call it when this node no longer leads the quorum."""
        await self._server.drain(DRAIN_DEADLINE_MS)

    def abandon(self) -> None:
        """Close the listeners after a failed start."""
        self._server.close_listeners()
