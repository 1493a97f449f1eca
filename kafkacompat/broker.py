"""The composition root: the one module that knows every package. Builds a node, serves, drains.

Start: lock and check the directories, load metadata and logs, win the quorum of one, register, take up partitions and groups, then
accept and say so. Stop, on SIGTERM or SIGINT: no new connections, answer what is in flight, give up leadership, close the logs,
leave the mark of a clean shutdown. It decides nothing that a package could decide.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import trio

from kafkacompat import __version__
from kafkacompat.api.context import Node, RequestContext
from kafkacompat.api.dispatch import ApiDispatcher
from kafkacompat.config import ConfigError, EndPoint, ServerConfig
from kafkacompat.controller.brokers import BrokerRefused
from kafkacompat.controller.core import ControllerCore
from kafkacompat.controller.image import MetadataImage
from kafkacompat.controller.replay import ReplayError
from kafkacompat.controller.service import LocalController
from kafkacompat.controller.settings import ControllerSettings
from kafkacompat.coordinator.service import GroupCoordinator
from kafkacompat.coordinator.settings import coordinator_settings
from kafkacompat.data_directories import (
    MetadataStore,
    NodeDirectories,
    open_directories,
    open_metadata_store,
)
from kafkacompat.log.checkpoint import CheckpointCorrupt
from kafkacompat.log.disk import RealDisk
from kafkacompat.log.manager import LogManager
from kafkacompat.log.upkeep import LogUpkeep
from kafkacompat.net.runtime import (
    SystemClock,
    SystemRandom,
    TrioTimers,
    TrioWorkers,
    freeze_long_lived,
    raise_descriptor_limit,
    wait_for,
)
from kafkacompat.net.server import Server
from kafkacompat.net.settings import NetworkSettings
from kafkacompat.node.auto_topics import OnDemandTopics
from kafkacompat.node.lifecycle import BrokerIdentity, BrokerLifecycle, endpoint_records
from kafkacompat.node.notices import SettingNotices
from kafkacompat.node.periodic import PeriodicWork
from kafkacompat.node.producer_ids import BlockProducerIds
from kafkacompat.node.settings import NodeSettings
from kafkacompat.partition.fetch import FetchEngine
from kafkacompat.partition.manager import PartitionManager
from kafkacompat.partition.sessions import FetchSessionCache
from kafkacompat.raft.core import NotAVoter
from kafkacompat.raft.driver import MetadataLogProblem
from kafkacompat.raft.storage import StorageProblem

logger = logging.getLogger(__name__)

DRAIN_DEADLINE_MS = 10_000
SESSION_IDS = 2**31 - 2
START_PROBLEMS = (
    StorageProblem,
    MetadataLogProblem,
    ReplayError,
    NotAVoter,
    ConfigError,
    OSError,
    BrokerRefused,
    CheckpointCorrupt,
)


class StartRefused(Exception):
    """The node cannot start; the text says why and names the setting."""


def serve_until_stopped(
    config: ServerConfig, *, format_if_empty: bool, announce: Callable[[str], None]
) -> None:
    """Run one node until SIGTERM or SIGINT. `announce` gets one line when it serves. StartRefused."""
    raise_descriptor_limit()
    trio.run(_serve, config, format_if_empty, announce)


async def _serve(config: ServerConfig, format_if_empty: bool, announce: Callable[[str], None]) -> None:
    _refuse_what_is_not_served(config)
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        try:
            async with trio.open_nursery() as nursery:
                node = RunningNode(config, nursery)
                try:
                    await node.start(format_if_empty)
                except START_PROBLEMS as problem:
                    node.abandon()
                    raise StartRefused(_reason(problem)) from problem
                freeze_long_lived()
                announce(node.ready_line())
                async for _ in signals:
                    break
                await node.stop()
                nursery.cancel_scope.cancel()
        except BaseExceptionGroup as group:
            raise _only_cause(group) from None


def _refuse_what_is_not_served(config: ServerConfig) -> None:
    """Settings whose silence would be worse than no broker: they promise a protection or a role that is not there."""
    if config.roles != {"broker", "controller"}:
        raise StartRefused(
            f"process.roles is {','.join(sorted(config.roles))}: one node serves as broker,controller"
        )
    for listener in config.broker_listeners():
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


class RunningNode:
    """One process's node. `start`, then `stop`; both once."""

    def __init__(self, config: ServerConfig, nursery: trio.Nursery) -> None:
        self._config = config
        self._nursery = nursery
        self._clock = SystemClock()
        self._random = SystemRandom()
        self._disk = RealDisk()
        self._timers = TrioTimers(self._clock)
        self._workers = TrioWorkers(nursery)
        self._directories: NodeDirectories | None = None
        self._store: MetadataStore | None = None
        self._logs: LogManager | None = None
        self._server: Server | None = None
        self._advertised: tuple[EndPoint, ...] = ()

    async def start(self, format_if_empty: bool) -> None:
        """Until clients are served. Raises what START_PROBLEMS lists."""
        config, clock, random = self._config, self._clock, self._random
        await self._nursery.start(self._timers.run)
        self._directories = directories = open_directories(
            config, self._disk, random, clock.now_ms(), format_if_empty=format_if_empty
        )
        identity = directories.identity
        settings = NodeSettings(config, config.node_id)
        self._store = store = open_metadata_store(
            config,
            directories,
            self._disk,
            self._workers,
            clock,
            fail=self._halt,
            note=logger.warning,
        )
        self._logs = logs = LogManager(
            self._disk,
            [(path, identity.directory_ids[path]) for path in directories.log_dirs],
            settings.log_config(""),
            clock,
            randrange=random.randrange,
            note=logger.warning,
        )
        await self._load_logs(logs)

        controller_settings = ControllerSettings(config, config.node_id, identity.cluster_id)
        self._controller = controller = LocalController(
            ControllerCore(controller_settings),
            store.driver,
            random,
            max_bytes_between_snapshots=config.int("metadata.log.max.record.bytes.between.snapshots"),
        )
        partitions = PartitionManager(
            config.node_id, logs, clock, self._timers, self._workers, settings.log_config
        )
        fetches = FetchEngine(
            partitions,
            clock,
            self._timers,
            FetchSessionCache(
                config.int("max.incremental.fetch.session.cache.slots"),
                lambda: 1 + random.randrange(SESSION_IDS),
            ),
            lambda: settings.int("fetch.max.bytes"),
        )
        self._groups = groups = GroupCoordinator(
            config.node_id,
            partitions,
            clock,
            self._timers,
            random,
            self._workers,
            coordinator_settings(settings),
        )
        producer_ids = BlockProducerIds(controller.allocate_producer_ids)
        own_context = RequestContext(19, 7, 0, None, 0, config.inter_broker_listener_name, "127.0.0.1")
        auto_create = OnDemandTopics(
            config, lambda request: controller.create_topics(request, own_context), self._topic_not_made
        )
        node = Node(
            node_id=config.node_id,
            cluster_id=identity.cluster_id,
            config=config,
            clock=clock,
            random=random,
            partitions=partitions,
            fetches=fetches,
            controller=controller,
            groups=groups,
            producer_ids=producer_ids,
            log_manager=logs,
            image=MetadataImage(),
            auto_create=auto_create,
            dynamic=settings,
        )
        self._server = server = Server(
            ApiDispatcher(node), NetworkSettings.from_config(config), clock, self._workers
        )
        self._bind(server)

        notices = SettingNotices(config.node_id)

        def take_image(old: MetadataImage, new: MetadataImage) -> None:
            node.image = new
            before = settings.effective
            settings.on_image(old, new)
            if settings.effective is not before:
                self._follow_settings(settings.effective)
            notices.on_image(old, new, settings.refused)
            partitions.on_image(old, new)
            groups.on_image(old, new)

        incarnation = random.uuid()
        await wait_for(
            controller.start(
                directories.bootstrap_values, incarnation, endpoint_records(_advertised_controllers(config))
            )
        )
        self._lifecycle = BrokerLifecycle(
            controller,
            BrokerIdentity(
                node_id=config.node_id,
                cluster_id=identity.cluster_id,
                incarnation_id=incarnation,
                listeners=self._advertised,
                directory_ids=tuple(identity.directory_ids[path] for path in directories.log_dirs),
                rack=config.str("broker.rack"),
                previous_broker_epoch=logs.previous_broker_epoch,
            ),
        )
        await wait_for(self._lifecycle.register())
        groups.start()
        take_image(MetadataImage(), controller.image)
        controller.subscribe(take_image)
        await wait_for(self._lifecycle.unfence())
        self._periodic = PeriodicWork(config, settings, LogUpkeep(logs), clock, self._timers, self._workers)
        self._periodic.start()
        await self._nursery.start(server.run)

    def ready_line(self) -> str:
        """What a start prints once it serves."""
        addresses = ", ".join(f"{each.listener_name}://{each.host}:{each.port}" for each in self._bound)
        return (
            f"kafkacompat {__version__} node {self._config.node_id} serving {addresses} "
            f"data in {','.join(self._config.log_dirs)}"
        )

    async def stop(self) -> None:
        """Answer what is in flight, give up leadership, close the logs, leave the clean mark."""
        assert self._server is not None
        assert self._logs is not None
        assert self._store is not None
        assert self._directories is not None
        self._groups.stop()
        await self._server.drain(DRAIN_DEADLINE_MS)
        await wait_for(self._lifecycle.shut_down())
        await wait_for(self._periodic.stop())
        self._controller.close()
        self._store.close()
        self._logs.shut_down(self._lifecycle.broker_epoch)
        self._directories.locks.release()

    def abandon(self) -> None:
        """A start that failed lets go of what it holds and leaves the files as they are."""
        if self._server is not None:
            for listener in self._server.listeners:
                listener.close()
        if self._directories is not None:
            self._directories.locks.release()

    async def _load_logs(self, logs: LogManager) -> None:
        """Every partition's log; after an unclean stop with as many threads as num.recovery.threads.per.data.dir allows."""
        tasks = logs.begin_load()
        if all(task.clean for task in tasks):
            for task in tasks:
                task.run()
        else:
            threads = self._config.int("num.recovery.threads.per.data.dir") * len(self._config.log_dirs)
            limiter = trio.CapacityLimiter(threads)
            async with trio.open_nursery() as nursery:
                for task in tasks:
                    nursery.start_soon(_run_in_thread, task.run, limiter)
        logs.finish_load(tasks)

    def _bind(self, server: Server) -> None:
        """Listen, and learn the ports that were left to the system."""
        listeners = server.bind(self._config.broker_listeners())
        self._bound = tuple(replace(each.endpoint, port=each.port) for each in listeners)
        ports = {each.listener_name: each.port for each in self._bound}
        self._advertised = tuple(
            replace(
                each, host=each.host or canonical_host_name(), port=each.port or ports[each.listener_name]
            )
            for each in self._config.advertised_broker_listeners()
        )

    def _follow_settings(self, config: ServerConfig) -> None:
        """Connection bounds hold from now on; what else is dynamic is read where it is used."""
        assert self._server is not None
        try:
            self._server.update_settings(NetworkSettings.from_config(config))
        except ValueError as error:
            logger.error("the connection bounds stay as they were: %s", error)

    def _topic_not_made(self, name: str, code: int, message: str | None) -> None:
        logger.warning("topic %s was not made on demand: error %d, %s", name, code, message)

    def _halt(self, error: BaseException) -> None:
        """The metadata log failed: no reply may follow from what is not durable."""
        logger.critical("the node halts: %s", error)
        os._exit(1)


def _advertised_controllers(config: ServerConfig) -> list[EndPoint]:
    """The controller's listeners as others are told of them."""
    advertised = {each.listener_name: each for each in config.advertised_listeners()}
    told = [advertised.get(each.listener_name, each) for each in config.controller_listeners()]
    return [replace(each, host=each.host or canonical_host_name()) for each in told]


def canonical_host_name() -> str:
    """What clients are told where a listener's host is empty (all interfaces), as in Kafka."""
    return socket.getfqdn()


async def _run_in_thread(function: Callable[[], Any], limiter: trio.CapacityLimiter) -> None:
    await trio.to_thread.run_sync(function, limiter=limiter)
