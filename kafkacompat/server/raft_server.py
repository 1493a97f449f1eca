"""A node with one role or both: built from its services, started, stopped.

Start: lock and check the directories and join the metadata quorum (shared_server.py). A controller then serves the
quorum (controller_server.py). A broker (broker_server.py) loads the logs, registers, applies partitions and groups,
opens its listeners, and prints the ready line. Stop, at any point of the start: move leadership away, answer the
requests in flight, leave the quorum, close the logs, write the mark of a clean shutdown. This module leaves all
decisions to the packages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkacompat import __version__
from kafkacompat.addresses import host_and_port
from kafkacompat.config import ConfigError, EndPoint
from kafkacompat.config.keys import read_tables
from kafkacompat.controller.controller_result import BrokerRefused
from kafkacompat.controller.records import ReplayError
from kafkacompat.log.checkpoint import CheckpointCorrupt
from kafkacompat.node.broker_lifecycle_manager import RegistrationFailed
from kafkacompat.node.settings import NodeSettings
from kafkacompat.raft.contracts import MetadataLogProblem
from kafkacompat.raft.storage import StorageProblem
from kafkacompat.server.broker_logs import DirectoryFailed
from kafkacompat.server.broker_server import BrokerServer
from kafkacompat.server.data_directories import NodeDirectories, open_directories
from kafkacompat.server.provisions import load_for_others
from kafkacompat.server.shared_server import SharedServer

if TYPE_CHECKING:
    from kafkacompat.ports import SocketServer
    from kafkacompat.server.controller_server import ControllerServer
    from kafkacompat.server.services import NodeServices

START_PROBLEMS = (
    StorageProblem,
    MetadataLogProblem,
    ReplayError,
    ConfigError,
    OSError,
    BrokerRefused,
    RegistrationFailed,
    CheckpointCorrupt,
    DirectoryFailed,
)


class KafkaRaftServer:
    """Call `build`, `start` and `stop`, each once. Call `stop` also after a start that was cancelled."""

    def __init__(self, services: NodeServices) -> None:
        self._services = services
        self._directories: NodeDirectories | None = None
        self.shared: SharedServer | None = None
        self.controller: ControllerServer | None = None
        self.broker: BrokerServer | None = None

    async def build(self, *, format_if_empty: bool) -> None:
        """Build all parts. None of them acts yet. Raises the exceptions in START_PROBLEMS."""
        services, config = self._services, self._services.config
        self._directories = directories = open_directories(
            config, services.disk, services.random, services.clock.now_ms(), format_if_empty=format_if_empty
        )
        read_tables()  # the log of a new topic must not wait for a descriptor
        load_for_others(config)
        settings = NodeSettings(config, config.node_id)
        incarnation = services.random.uuid()
        server: SocketServer | None = None
        endpoints: tuple[EndPoint, ...] = ()
        if "controller" in config.roles:
            from kafkacompat.server.controller_server import ControllerServer

            server, endpoints = await ControllerServer.listen(services)
        self.shared = SharedServer(services, directories, settings, incarnation, endpoints)
        if server is not None:
            self.controller = ControllerServer(services, self.shared, server)
            self.shared.own_controller = self.controller.carry_out
        if "broker" in config.roles:
            self.broker = BrokerServer(services, directories, settings, self.shared)

    async def start(self) -> None:
        """Return when clients are served, or the quorum if this node is only a controller. Raises the exceptions in
        START_PROBLEMS."""
        assert self.shared is not None
        self.shared.start()
        if self.controller is not None:
            await self.controller.start()
        if self.broker is not None:
            await self.broker.start()

    def ready_line(self) -> str:
        """The line that a start prints when it serves."""
        assert self.shared is not None
        config = self._services.config
        serving = self.shared.endpoints if self.broker is None else self.broker.bound
        addresses = ", ".join(
            f"{each.listener_name}://{host_and_port(each.host, each.port)}" for each in serving
        )
        return (
            f"kafkacompat {__version__} node {config.node_id} serving {addresses} "
            f"data in {','.join(config.log_dirs)}"
        )

    async def stop(self) -> bool:
        """Stop the broker while the quorum still accepts its requests, then the quorum, then the files.

        Of a start that was cancelled, stop the parts that exist. Return False if logs are left as after a kill,
        because a thread that uses them does not end or their disk fails.
        """
        is_clean = True
        if self.broker is not None:
            is_clean = await self.broker.stop()
        if self.shared is not None:
            await self.shared.give_up_leadership()
        if self.controller is not None:
            await self.controller.stop()
        if self.shared is not None:
            is_clean = self.shared.stop() and is_clean
        if self.broker is not None:
            self.broker.close_logs()
        self._services.network.channels.close_all()
        self._services.network.controller_channels.close_all()
        self._release_locks()
        return is_clean

    def _release_locks(self) -> None:
        if self._directories is not None and not (self.broker is not None and self.broker.leaves_threads):
            # Otherwise the locks are held until the process and its threads end.
            self._directories.locks.release()

    def hurry(self) -> None:
        """Stop without waiting for the controller any longer. The files are left as by any stop."""
        if self.broker is not None:
            self.broker.hurry()

    def abandon(self) -> None:
        """Clean up a failed start. The logs are closed properly if all of them were loaded."""
        for part in (self.broker, self.shared, self.controller):
            if part is not None:
                part.abandon()
        self._release_locks()
