"""What a node's roles share: its member of the metadata quorum, the metadata it follows, the way to the active controller.

Every node follows the metadata log: a voter or a standby with the controller role, an observer without it. Knows raft, the metadata
and the network, and joins them; it knows no partition, no group and no client.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from kafkacompat.api.request_context import NO_CONNECTION, NotController, RequestContext
from kafkacompat.config import EndPoint
from kafkacompat.controller.core import ControllerCore
from kafkacompat.controller.metadata_machine import MetadataMachine
from kafkacompat.controller.settings import ControllerSettings
from kafkacompat.deferred import Deferred
from kafkacompat.ids import Uuid
from kafkacompat.node.controller_channel import ControllerChannel
from kafkacompat.raft.network_channel import KafkaNetworkChannel
from kafkacompat.security.settings import authorizer_of
from kafkacompat.server.data_directories import NodeDirectories, QuorumStore, open_quorum_store

if TYPE_CHECKING:
    from kafkacompat.controller.image import MetadataImage
    from kafkacompat.node.settings import NodeSettings
    from kafkacompat.security.authorizer import StandardAuthorizer
    from kafkacompat.server.doors import NodeDoors

logger = logging.getLogger(__name__)

RESIGN_TIMEOUT_MS = 1_000
"""How long a leader that stops waits for the other voters to hear of it."""


class SharedServer:
    """`start`, then `stop`; both once."""

    def __init__(
        self,
        doors: NodeDoors,
        directories: NodeDirectories,
        settings: NodeSettings,
        incarnation: Uuid,
        endpoints: tuple[EndPoint, ...],
    ) -> None:
        """`settings` follow the image before anybody else; `incarnation` is this process's; `endpoints` are the controller's as
        others are told of them, none without that role.

        Raises MetadataLogProblem, ConfigError.
        """
        config = doors.config
        self._doors = doors
        self.settings = settings
        self.directories = directories
        self.cluster_id = directories.identity.cluster_id
        self.incarnation = incarnation
        self.endpoints = endpoints
        self.own_controller: Callable[[RequestContext, Any], Deferred[Any]] | None = None
        """This node's own, if it has one."""
        self.controller_settings = ControllerSettings(config, config.node_id, self.cluster_id)
        self.machine = MetadataMachine(
            ControllerCore(self.controller_settings),
            max_bytes_between_snapshots=config.get_int("metadata.log.max.record.bytes.between.snapshots"),
            timers=doors.timers,
        )
        self.machine.subscribe(settings.on_image)
        self.authorizer = authorizer_of(config)
        """Of both roles; None where everybody may do everything."""
        if self.authorizer is not None:
            self.machine.subscribe(partial(_take_acls, self.authorizer))
        self.store: QuorumStore = open_quorum_store(
            directories,
            doors,
            KafkaNetworkChannel(doors.network.channels, logger.error),
            endpoints=endpoints,
            note=logger.warning,
        )
        self.driver = self.store.driver
        self.machine.attach(self.driver)

    def start(self) -> None:
        """Take up the stored role. Raises MetadataLogProblem."""
        self.driver.start(self.machine)

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
            doors.network.channels,
            doors.clock,
            doors.timers,
            self.active_address,
            self.call_own,
            doors.config.get_int("controller.socket.timeout.ms"),
        )
        self.machine.when_leader_changes.append(channel.leader_changed)
        return channel

    def carry_out(self, context: RequestContext, request: Any) -> Deferred[Any]:
        """A client's request, by this node's own controller. Fails with NotController where that is not active, or absent."""
        if self.own_controller is None:
            raise NotController
        return self.own_controller(context, request)

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

    def give_up_leadership(self) -> Deferred[None]:
        """There once the other voters have heard of it, or had their time."""
        return self.driver.shut_down(RESIGN_TIMEOUT_MS)

    def stop(self) -> bool:
        """Leave the quorum, and the files as at a clean stop. Blocks. False where the disk refuses: the metadata log is then left
        as after a kill, which every start reckons with, and the node's other logs can still be closed in order."""
        try:
            self.driver.flush_now()
            self.driver.close()
            self.store.close()
        except OSError as problem:
            self.driver.close()
            logger.error("the metadata log cannot be closed in order: %s", problem)
            return False
        return True

    def abandon(self) -> None:
        """A start that failed waits for no disk any more."""
        self.driver.close()


def _take_acls(authorizer: StandardAuthorizer, old: MetadataImage, new: MetadataImage) -> None:
    """The first image holds what was committed when this node started, or more."""
    authorizer.update(new.acls)
    authorizer.is_loaded = True
