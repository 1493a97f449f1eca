"""The parts that a node's roles share: the quorum member, the metadata, and the channel to the active controller.

Every node follows the metadata log: as a voter or standby with the controller role, as an observer without it. This
module connects raft, the metadata and the network. It knows no partitions, groups or clients.

A node advertises its listeners with this machine's name in place of an empty host, and the bound port in place of port 0
(listeners, advertised.listeners).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from kafkacompat.api.request_context import NO_CONNECTION, NotController, RequestContext
from kafkacompat.config import EndPoint, ServerConfig
from kafkacompat.controller.core import ControllerCore
from kafkacompat.controller.image import changed_acls
from kafkacompat.controller.metadata_machine import MetadataMachine
from kafkacompat.controller.settings import ControllerSettings
from kafkacompat.deferred import Deferred
from kafkacompat.ids import Uuid
from kafkacompat.node.node_to_controller_channel_manager import NodeToControllerChannelManager
from kafkacompat.ports import Network
from kafkacompat.quota.client_quotas import IP, Entity, Quota, QuotaManagers
from kafkacompat.quota.connection_rates import CONNECTION_CREATION_RATE, UNLIMITED
from kafkacompat.raft.network_channel import KafkaNetworkChannel
from kafkacompat.security.authorizer import TAKEN_A_STEP, authorizer_of
from kafkacompat.server.data_directories import NodeDirectories, QuorumStore, open_quorum_store
from kafkacompat.tasks import in_turns

if TYPE_CHECKING:
    from kafkacompat.controller.image import MetadataImage
    from kafkacompat.node.settings import NodeSettings
    from kafkacompat.ports import SocketServer
    from kafkacompat.security.acl import Acl
    from kafkacompat.security.authorizer import StandardAuthorizer
    from kafkacompat.server.services import NodeServices

logger = logging.getLogger(__name__)


def broker_addresses(
    config: ServerConfig, bound: Iterable[EndPoint], network: Network
) -> Deferred[tuple[EndPoint, ...]]:
    """Return the advertised client listeners. `bound` are the listeners of this node, with their ports."""
    return _advertised(config.advertised_broker_listeners(), bound, network)


def controller_addresses(
    config: ServerConfig, bound: Iterable[EndPoint], network: Network
) -> Deferred[tuple[EndPoint, ...]]:
    """Return the advertised controller listeners, in the order of controller.listener.names. The quorum uses the first one."""
    known = {each.listener_name: each for each in config.controller_listeners()}
    known.update((each.listener_name, each) for each in config.advertised_listeners())
    return _advertised([known[name] for name in config.controller_listener_names], bound, network)


def _advertised(
    endpoints: Sequence[EndPoint], bound: Iterable[EndPoint], network: Network
) -> Deferred[tuple[EndPoint, ...]]:
    ports = {each.listener_name: each.port for each in bound}

    # An empty host means all interfaces. As in Kafka, clients are then told the machine's full name.
    def named(name: str) -> tuple[EndPoint, ...]:
        return tuple(
            replace(each, host=each.host or name, port=each.port or ports[each.listener_name])
            for each in endpoints
        )

    return network.own_name(endpoints).then(named)


def quota_managers(config: ServerConfig, *, of_controller: bool = False) -> QuotaManagers:
    return QuotaManagers(
        config.get_int("quota.window.num"),
        1000 * config.get_int("quota.window.size.seconds"),
        config.get_int("controller.quota.window.num"),
        1000 * config.get_int("controller.quota.window.size.seconds"),
        of_controller=of_controller,
    )


def connection_creation_rates(quotas: Mapping[tuple[Entity, str], Quota]) -> dict[str | None, int]:
    """Return connection_creation_rate by the name of the ip entity; None for the default entity."""
    rates: dict[str | None, int] = {}
    for (entity, key), quota in quotas.items():
        if key == CONNECTION_CREATION_RATE and len(entity) == 1 and entity[0][0] == IP:
            # NaN limits nothing, and neither does a value that no controller accepts.
            rates[entity[0][1]] = int(min(quota.value, UNLIMITED)) if quota.value > 0 else UNLIMITED
    return rates


def take_client_quotas(
    old: MetadataImage, new: MetadataImage, managers: QuotaManagers, server: SocketServer | None
) -> None:
    """What a node of either role does with the quotas of a new image."""
    managers.take(new.client_quotas)
    if server is not None and new.client_quotas is not old.client_quotas:
        server.take_connection_creation_rates(connection_creation_rates(new.client_quotas))


RESIGN_TIMEOUT_MS = 1_000
"""How long a stopping leader waits until the other voters know."""


class SharedServer:
    """Call `start` once, then `stop` once."""

    def __init__(
        self,
        services: NodeServices,
        directories: NodeDirectories,
        settings: NodeSettings,
        incarnation: Uuid,
        endpoints: tuple[EndPoint, ...],
    ) -> None:
        """`settings` get each image before all other parts. `incarnation` is the id of this process. `endpoints` are
        the advertised controller listeners, empty without that role.

        Raises MetadataLogProblem, ConfigError.
        """
        config = services.config
        self._services = services
        self.settings = settings
        self.directories = directories
        self.cluster_id = directories.identity.cluster_id
        self.incarnation = incarnation
        self.endpoints = endpoints
        self.has_started = False
        """The node has taken up its role in the quorum."""
        self.own_controller: Callable[[RequestContext, Any], Deferred[Any]] | None = None
        """Handles requests at this node's own controller, if it has one."""
        self.controller_settings = ControllerSettings(config, config.node_id, self.cluster_id)
        self.machine = MetadataMachine(
            ControllerCore(self.controller_settings),
            services.tasks,
            max_bytes_between_snapshots=config.get_int("metadata.log.max.record.bytes.between.snapshots"),
            max_ms_between_snapshots=config.get_int("metadata.log.max.snapshot.interval.ms"),
        )
        self.machine.subscribe(settings.on_image)
        self.authorizer = authorizer_of(config)
        """The authorizer of both roles. None if everything is allowed."""
        self.newest_acls: tuple[Mapping[Uuid, Acl], bool] = {}, False
        """Until they are loaded: those of the newest image, and whether it has what was committed at the start."""
        self.is_loading_acls = False
        self.acls_loaded: Deferred[None] = Deferred()
        """Resolves when the authorizer can decide, or at once without one."""
        if self.authorizer is None:
            self.acls_loaded.resolve(None)
        else:
            self.machine.subscribe(partial(self._take_acls, self.authorizer))
        self.store: QuorumStore = open_quorum_store(
            directories,
            services,
            KafkaNetworkChannel(services.network.controller_channels, logger.error),
            endpoints=endpoints,
            note=logger.warning,
        )
        self.driver = self.store.driver
        self.machine.attach(self.driver)

    def _take_acls(self, authorizer: StandardAuthorizer, old: MetadataImage, new: MetadataImage) -> None:
        """Load the access control entries. They count from the first image that has everything that was committed when
        this node started: an older one may lack a denial. Many changes are taken in steps."""
        if authorizer.is_loaded and not self.is_loading_acls:
            changed = changed_acls(old, new)
            if changed is not None and len(changed) <= TAKEN_A_STEP:
                authorizer.update(new.acls, changed)
                return
        self.newest_acls = new.acls, self.driver.has_caught_up
        if not self.is_loading_acls:
            self.is_loading_acls = True
            self._services.tasks.start("loading access control entries", self._load_acls(authorizer))

    async def _load_acls(self, authorizer: StandardAuthorizer) -> None:
        """There may be a hundred thousand. If they cannot be taken, the node halts, as it does if an image cannot be published:
        it would go on with older ones, which may lack a denial."""
        while True:
            loaded = self.newest_acls
            try:
                await in_turns(authorizer.updating(loaded[0]))
            except Exception as problem:
                self._services.halt(problem)
                return
            if loaded is self.newest_acls:
                break
        self.is_loading_acls = False
        if loaded[1] and not authorizer.is_loaded:
            authorizer.is_loaded = True
            self.acls_loaded.resolve(None)

    def start(self) -> None:
        """Continue in the stored quorum role. Raises MetadataLogProblem."""
        self.driver.start(self.machine)
        self.has_started = True

    def active_address(self) -> tuple[int, str, int] | None:
        """Return (node id, host, port) of the active controller, or None while it is unknown."""
        endpoints = self.driver.leader_endpoints
        if self.driver.leader_id < 0 or not endpoints:
            return None
        # A leader that has several listeners may name another one first, for example while a cluster is secured.
        name = self._services.config.controller_listener_names[0]
        _, host, port = next((each for each in endpoints if each[0] == name), endpoints[0])
        return self.driver.leader_id, host, port

    def controller_channel(self, purpose: str) -> NodeToControllerChannelManager:
        """Return a channel from this node to the active controller."""
        services = self._services
        channel = NodeToControllerChannelManager(
            services.config.node_id,
            purpose,
            services.network.controller_channels,
            services.work_clock,
            services.tasks,
            self.active_address,
            self.call_own,
            services.config.get_int("controller.socket.timeout.ms"),
        )
        self.machine.when_leader_changes.append(channel.try_now)
        self.machine.when_it_serves.append(channel.try_now)
        return channel

    def carry_out(self, context: RequestContext, request: Any) -> Deferred[Any]:
        """Handle a client's request at this node's own controller. Fails with NotController if that is absent or not active."""
        if self.own_controller is None:
            raise NotController
        return self.own_controller(context, request)

    def call_own(self, message: Any) -> Deferred[Any]:
        """Handle a request of this node's broker at its own controller. Fails like `carry_out`."""
        context = RequestContext(
            message.API_KEY,
            message.MAX_VERSION,
            0,
            None,
            NO_CONNECTION,
            self._services.config.controller_listener_names[0],
            "127.0.0.1",
        )
        return self.carry_out(context, message)

    def give_up_leadership(self) -> Deferred[None]:
        """Resign. Resolves when the other voters know, or after RESIGN_TIMEOUT_MS."""
        return self.driver.shut_down(RESIGN_TIMEOUT_MS)

    def stop(self) -> bool:
        """Leave the quorum, and leave the files as after a clean shutdown. Blocks.

        Return False if the disk fails. The metadata log is then left as after a kill, which every start can handle.
        The node's other logs can still be closed properly.
        """
        try:
            self.driver.flush_now()
            self.driver.close()
            self.store.close()
        except OSError as problem:
            self.driver.close()
            logger.error("the metadata log cannot be closed cleanly: %s", problem)
            return False
        return True

    def abandon(self) -> None:
        """Clean up a failed start without waiting for disks."""
        self.driver.close()
