"""A process's node, of either role or both: built, serving, drained.

Start: lock and check the directories, join the metadata quorum (shared_server.py), as a controller serve it
(controller_server.py); as a broker (broker_server.py) load the logs, register, take up partitions and groups, accept, and say so.
Stop, on a signal (signals.py), however far the start has come: give up leadership, answer what is in flight, leave the quorum,
close the logs, leave the mark of a clean shutdown. It decides nothing that a package could decide.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import TYPE_CHECKING

import trio

from kafkacompat import __version__
from kafkacompat.config import ConfigError, EndPoint, ServerConfig
from kafkacompat.controller.refusals import BrokerRefused
from kafkacompat.controller.replay import ReplayError
from kafkacompat.log.checkpoint import CheckpointCorrupt
from kafkacompat.log.disk import RealDisk
from kafkacompat.net.channels import Channels, ChannelSettings
from kafkacompat.net.runtime import (
    SystemClock,
    SystemRandom,
    TrioTimers,
    freeze_long_lived,
    raise_descriptor_limit,
)
from kafkacompat.net.watchdog import LoopWatchdog
from kafkacompat.net.workers import worker_pools
from kafkacompat.node.heartbeats import RegistrationFailed
from kafkacompat.node.settings import NodeSettings
from kafkacompat.raft.contracts import MetadataLogProblem
from kafkacompat.raft.storage import StorageProblem
from kafkacompat.server.broker_server import BrokerServer
from kafkacompat.server.data_directories import NodeDirectories, open_directories
from kafkacompat.server.shared_server import NodeDoors, SharedServer
from kafkacompat.server.signals import StopSignals

if TYPE_CHECKING:
    from kafkacompat.net.server import Server
    from kafkacompat.server.controller_server import ControllerServer

logger = logging.getLogger(__name__)

START_PROBLEMS = (
    StorageProblem,
    MetadataLogProblem,
    ReplayError,
    ConfigError,
    OSError,
    BrokerRefused,
    RegistrationFailed,
    CheckpointCorrupt,
)


class StartRefused(Exception):
    """The node cannot start; the text says why and names the setting."""


def serve_until_stopped(
    config: ServerConfig, *, format_if_empty: bool, announce: Callable[[str], None], signals: StopSignals
) -> bool:
    """Run one node until a signal. `announce` gets one line when it serves. False when it did not stop cleanly. StartRefused."""
    raise_descriptor_limit()
    return trio.run(_serve, config, format_if_empty, announce, signals)


async def _serve(
    config: ServerConfig, format_if_empty: bool, announce: Callable[[str], None], signals: StopSignals
) -> bool:
    """A node that still starts, or waits for its quorum, is not kept from stopping by it; a second signal says that there is no
    controller to wait for, as when a whole cluster is stopped."""
    _refuse_what_is_not_served(config)
    try:
        async with trio.open_nursery() as nursery:
            node = KafkaRaftServer(config, nursery)
            asked = trio.Event()
            starting = trio.CancelScope()

            def on_signal() -> None:
                if asked.is_set():
                    node.hurry()
                asked.set()
                starting.cancel()

            token = trio.lowlevel.current_trio_token()
            signals.tell(lambda: token.run_sync_soon(on_signal))
            try:
                with starting:
                    await node.start(format_if_empty)
            except START_PROBLEMS as problem:
                node.abandon()
                raise StartRefused(_reason(problem)) from problem
            if not starting.cancelled_caught:
                freeze_long_lived()
                watchdog = LoopWatchdog(token.run_sync_soon)
                watchdog.start()
                announce(node.ready_line())
                await asked.wait()
                watchdog.stop()
            is_clean = await node.stop()
            nursery.cancel_scope.cancel()
        return is_clean
    except BaseExceptionGroup as group:
        raise _only_cause(group) from None
    finally:
        signals.tell(None)


def _refuse_what_is_not_served(config: ServerConfig) -> None:
    """Settings whose silence would be worse than no broker: they promise a protection that is not there."""
    for listener in config.listeners():
        if listener.security_protocol != "PLAINTEXT":
            # Serving it in the clear would be a hole that nobody asked for.
            raise StartRefused(
                f"listener.security.protocol.map gives listener {listener.listener_name} {listener.security_protocol}: "
                "only PLAINTEXT is served"
            )
    if config.str("authorizer.class.name"):
        raise StartRefused(
            f"authorizer.class.name is {config.str('authorizer.class.name')}: "
            "authorization is not served, and everybody would be allowed everything"
        )


def _reason(problem: Exception) -> str:
    """The problem's text; of the system's errors without their number, which tells people nothing."""
    if not isinstance(problem, OSError) or not problem.strerror:
        return str(problem)
    return f"{problem.filename}: {problem.strerror}" if problem.filename else problem.strerror


def _only_cause(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The exception inside nested groups of one, else the group."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


class KafkaRaftServer:
    """One process's node. `start`, then `stop`; both once."""

    def __init__(self, config: ServerConfig, nursery: trio.Nursery) -> None:
        clock = SystemClock()
        timers = TrioTimers(clock)
        self._doors = NodeDoors(
            config=config,
            clock=clock,
            random=SystemRandom(),
            disk=RealDisk(),
            timers=timers,
            workers=worker_pools(nursery),
            channels=Channels(
                nursery, clock, timers, str(config.node_id), ChannelSettings.from_config(config)
            ),
            nursery=nursery,
        )
        self._timers = timers
        self._directories: NodeDirectories | None = None
        self._shared: SharedServer | None = None
        self._controller: ControllerServer | None = None
        self._broker: BrokerServer | None = None

    async def start(self, format_if_empty: bool) -> None:
        """Until clients are served, or for a controller alone the quorum. Raises what START_PROBLEMS lists."""
        doors, config = self._doors, self._doors.config
        await doors.nursery.start(self._timers.run)
        self._directories = directories = open_directories(
            config, doors.disk, doors.random, doors.clock.now_ms(), format_if_empty=format_if_empty
        )
        settings = NodeSettings(config, config.node_id)
        incarnation = doors.random.uuid()
        server: Server | None = None
        endpoints: tuple[EndPoint, ...] = ()
        if "controller" in config.roles:
            from kafkacompat.server.controller_server import ControllerServer

            server, endpoints = await ControllerServer.listen(doors)
        self._shared = shared = SharedServer(doors, directories, settings, incarnation, self._halt, endpoints)
        if server is not None:
            self._controller = shared.controller_role = ControllerServer(doors, shared, server)
        if "broker" in config.roles:
            self._broker = BrokerServer(doors, directories, settings, shared, incarnation, self._halt)
        shared.start()
        if self._controller is not None:
            await self._controller.start()
        if self._broker is not None:
            await self._broker.start()

    def ready_line(self) -> str:
        """What a start prints once it serves."""
        assert self._shared is not None
        config = self._doors.config
        serving = self._shared.endpoints if self._broker is None else self._broker.bound
        addresses = ", ".join(f"{each.listener_name}://{each.host}:{each.port}" for each in serving)
        return (
            f"kafkacompat {__version__} node {config.node_id} serving {addresses} "
            f"data in {','.join(config.log_dirs)}"
        )

    async def stop(self) -> bool:
        """The broker first, while the quorum still hears of it; then the quorum, then the files; of a start that was called off
        what there is. False when the logs are left as after a kill, because a thread that works on them does not end."""
        is_clean = True
        if self._broker is not None:
            is_clean = await self._broker.stop()
        if self._shared is not None:
            await self._shared.give_up_leadership()
        if self._controller is not None:
            await self._controller.stop()
        if self._shared is not None:
            self._shared.stop()
        if self._broker is not None:
            self._broker.close_logs()
        self._doors.channels.close_all()
        self._release_locks()
        return is_clean

    def _release_locks(self) -> None:
        if self._directories is not None and not (self._broker is not None and self._broker.leaves_threads):
            # Otherwise they are held until the process ends, and with it its threads.
            self._directories.locks.release()

    def hurry(self) -> None:
        """Stop without waiting for the controller any longer; files are left as at any stop."""
        if self._broker is not None:
            self._broker.hurry()

    def abandon(self) -> None:
        """A start that failed lets go of what it holds; logs that were all loaded are closed in order."""
        for part in (self._broker, self._shared, self._controller):
            if part is not None:
                part.abandon()
        self._release_locks()

    def _halt(self, error: BaseException) -> None:
        """What is on the disk, or what the quorum agreed on, is unknown: no reply may follow from it."""
        known = isinstance(error, START_PROBLEMS)
        logger.critical(
            "the node halts: %s", error if known else repr(error), exc_info=None if known else error
        )
        os._exit(1)
