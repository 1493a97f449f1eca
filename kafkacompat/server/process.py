"""The process of a node: the services of the real system, the signals that stop it, and the line that says that it
serves.

This module knows trio and the operating system. raft_server.py knows the parts of a node and the order of their start
and stop.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING

import trio

from kafkacompat.addresses import host_and_port
from kafkacompat.config import ConfigError, ServerConfig
from kafkacompat.log.disk import RealDisk, open_files
from kafkacompat.net.descriptors import Descriptors
from kafkacompat.net.loop_wait import LoopWait
from kafkacompat.net.network import TrioNetwork
from kafkacompat.net.runtime import (
    SystemClock,
    SystemRandom,
    TrioTimers,
    carry_out,
    raise_descriptor_limit,
)
from kafkacompat.net.watchdog import LoopRest, LoopWatchdog
from kafkacompat.net.workers import pool_loads, worker_pools
from kafkacompat.security.authorizer import authorizer_of
from kafkacompat.security.class_names import refuse_classes_of_others
from kafkacompat.server.admission import check_mechanisms, security_between_nodes
from kafkacompat.server.metrics_pages import WATCH_TOKEN_FILE, pages_of
from kafkacompat.server.process_wide import (
    StopSignals,
    freeze_long_lived,
    keep_long_lived,
    keep_what_was_loaded,
)
from kafkacompat.server.provisions import provisions_of
from kafkacompat.server.raft_server import START_PROBLEMS, KafkaRaftServer
from kafkacompat.server.services import NodeServices
from kafkacompat.tasks import Tasks

if TYPE_CHECKING:
    from kafkacompat.api.meters import RequestMeters
    from kafkacompat.metrics.endpoint import Page
    from kafkacompat.security.ssl_listeners import SslListener
    from kafkacompat.server.node_metrics import NodeMetrics
    from kafkacompat.telemetry.client_metrics_manager import ClientMetricsManager
    from kafkacompat.telemetry.series import ClientSeries

METRICS_PORT = "metrics.listener.port"
FEW_FILES = 1_024
"""A limit of open files below this is worth a warning."""

logger = logging.getLogger(__name__)


class StartRefused(Exception):
    """The node cannot start. The text gives the reason and names the setting."""


def serve_until_stopped(
    config: ServerConfig,
    *,
    format_if_empty: bool,
    tell_ready: Callable[[str], None],
    signals: StopSignals,
    tell_metrics: Callable[[int], None] | None = None,
) -> bool:
    """Run one node until a signal stops it. Return False if it did not stop cleanly.

    `tell_ready` is called once, when the node serves, with a line for whoever started it. The call means that it serves:
    the service manager is notified, and the process of several brokers counts the broker. Nothing else may be told by
    it. `tell_metrics` gets the port of the node's metrics, if it has any.

    Raises StartRefused.
    """
    raise_descriptor_limit()
    keep_long_lived()  # what was imported
    return trio.run(_serve, config, format_if_empty, tell_ready, signals, tell_metrics)


async def _serve(
    config: ServerConfig,
    format_if_empty: bool,
    tell_ready: Callable[[str], None],
    signals: StopSignals,
    tell_metrics: Callable[[int], None] | None,
) -> bool:
    """Run the node. A signal also stops a node that is still starting, or that waits for its quorum.

    A second signal means that no controller is there to wait for, for example because the whole cluster is being
    stopped.
    """
    refuse_what_is_not_served(config)
    if config.get_string(WATCH_TOKEN_FILE) and config.get_int(METRICS_PORT) < 0:
        raise StartRefused(f"{WATCH_TOKEN_FILE}: it needs {METRICS_PORT}, where requests are shown")
    tls = listeners_with_tls(config)
    try:
        async with trio.open_nursery() as nursery:
            rest = LoopRest()
            services, timers = _services_of_the_system(config, nursery, tls, rest)
            node = KafkaRaftServer(services)
            asked = trio.Event()
            starting = trio.CancelScope()
            serves = False
            metrics: NodeMetrics | None = None

            def on_signal() -> None:
                if metrics is not None:
                    metrics.is_stopping = True
                if asked.is_set():
                    node.hurry()
                asked.set()
                starting.cancel()

            token = trio.lowlevel.current_trio_token()
            signals.tell(lambda: token.run_sync_soon(on_signal))
            try:
                if config.get_int(METRICS_PORT) >= 0:
                    metrics = await _shown(services, node, nursery, tell_metrics)
                with starting:
                    await nursery.start(timers.run)
                    await carry_out(node.build(format_if_empty=format_if_empty))
                    await carry_out(node.start())
                if not starting.cancelled_caught:
                    serves = True
                    freeze_long_lived()
                    trio.lowlevel.add_instrument(rest)
                    watchdog = LoopWatchdog(token.run_sync_soon, rest)
                    nursery.start_soon(watchdog.begin)
                    if metrics is not None:
                        metrics.stalls = watchdog
                    tell_ready(node.ready_line())
                    assert services.provisions is not None
                    services.provisions.begin()
                    await asked.wait()
                    watchdog.stop()
                is_clean = await carry_out(node.stop())
            except START_PROBLEMS as problem:
                if serves:
                    raise
                node.abandon()
                raise StartRefused(_reason(problem)) from problem
            nursery.cancel_scope.cancel()
        return is_clean
    except BaseExceptionGroup as group:
        raise _only_cause(group) from None
    finally:
        signals.tell(None)


async def _shown(
    services: NodeServices,
    node: KafkaRaftServer,
    nursery: trio.Nursery,
    tell_port: Callable[[int], None] | None,
) -> NodeMetrics:
    """Serve the node's metrics from now on. Without metrics, none of their modules is imported. Raises StartRefused, OSError."""
    try:
        from kafkacompat.metrics.endpoint import MetricsEndpoint, OneNode
        from kafkacompat.metrics.network import LoopIdle
        from kafkacompat.server.node_metrics import NodeMetrics
    except ImportError as missing:
        raise StartRefused(
            f"{METRICS_PORT}: {missing.name} is not installed; install kafkacompat[metrics]"
        ) from missing
    metrics = NodeMetrics(services, node, lambda: pool_loads(services.workers))
    metrics.idle = LoopIdle().read

    def watch(token: str) -> Page:
        from kafkacompat.metrics.watch_page import WatchPage
        from kafkacompat.server.node_watch import NodeWatch

        return WatchPage(token, NodeWatch(services, node, metrics))

    try:
        endpoint = MetricsEndpoint(OneNode(metrics), pages_of(services.config, watch))
    except ConfigError as problem:
        raise StartRefused(str(problem)) from problem
    host = services.config.get_string("metrics.listener.host") or ""
    port = await endpoint.bind(host, services.config.get_int(METRICS_PORT))
    logger.info("metrics are served on http://%s/metrics", host_and_port(host, port))
    if tell_port is not None:
        tell_port(port)
    nursery.start_soon(endpoint.run)
    return metrics


def refuse_what_is_not_served(config: ServerConfig) -> None:
    """Refuse settings that promise a protection that is not implemented. Ignoring them would be worse than not starting."""
    try:
        refuse_classes_of_others(config.originals)
        check_mechanisms(config, SystemRandom(), SystemClock().now_ms)
        security_between_nodes(config)
        authorizer_of(config)
    except ConfigError as problem:
        raise StartRefused(str(problem)) from problem


def listeners_with_tls(config: ServerConfig) -> Mapping[str, SslListener]:
    """Return the TLS listeners. Without any, the modules for TLS are not imported."""
    if not any(each.has_tls for each in config.listeners()):
        return {}
    from kafkacompat.security.ssl_listeners import ssl_listeners

    try:
        return ssl_listeners(config)
    except ConfigError as problem:
        raise StartRefused(str(problem)) from problem


def _reason(problem: Exception) -> str:
    """Return the error's text. An error of the system is shown without its number, which means nothing to most people."""
    if not isinstance(problem, OSError) or not problem.strerror:
        return str(problem)
    return f"{problem.filename}: {problem.strerror}" if problem.filename else problem.strerror


def _only_cause(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the exception inside nested groups of one, otherwise the group."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def _services_of_the_system(
    config: ServerConfig, nursery: trio.Nursery, tls: Mapping[str, SslListener], rest: LoopRest
) -> tuple[NodeServices, TrioTimers]:
    """Return the services, and the timers, which the caller must run. `rest` is told when the loop waits for events."""
    clock = SystemClock()
    timers = TrioTimers(clock)
    wait = LoopWait(rest, timers)
    recovery_threads = config.get_int("num.recovery.threads.per.data.dir") * len(config.log_dirs)
    workers = worker_pools(nursery, recovery_threads, wait.bell)
    client_metrics, client_series = _telemetry(config)
    descriptors = Descriptors(open_files)
    _tell_of(descriptors)
    tasks = Tasks(timers)
    network = TrioNetwork(
        nursery,
        config,
        clock,
        timers,
        workers.replies,
        tls,
        *security_between_nodes(config),
        descriptors,
        wait=wait,
    )
    services = NodeServices(
        config=config,
        clock=clock,
        timers=timers,
        work_clock=clock,
        work_timers=timers,
        tasks=tasks,
        random=SystemRandom(),
        disk=RealDisk(),
        workers=workers,
        network=network,
        channels_with=network.channels_with,
        monotonic_s=monotonic,
        keep=keep_long_lived,
        halt=_halt,
        descriptors=descriptors,
        provisions=provisions_of(config, workers.batches, tasks, keep_what_was_loaded),
        meters=_meters(config),
        client_metrics=client_metrics,
        client_series=client_series,
    )
    return services, timers


def _tell_of(descriptors: Descriptors) -> None:
    limit, (node, logs) = descriptors.limit, descriptors.reserves()
    level = logging.WARNING if limit < FEW_FILES else logging.INFO
    text = "open files: the system allows %d, of which %d are kept for the node and %d for new logs"
    logger.log(level, f"{text}; clients get at most %d connections", limit, node, logs, limit - node - logs)


def _telemetry(config: ServerConfig) -> tuple[ClientMetricsManager | None, ClientSeries | None]:
    """None without the listener that exports clients' metrics. Raises StartRefused."""
    if config.get_int(METRICS_PORT) < 0:
        return None, None
    try:
        from kafkacompat.telemetry.otlp import OtlpReceiver
    except ImportError as missing:
        raise StartRefused(
            f"{METRICS_PORT}: {missing.name} is not installed; install kafkacompat[metrics]"
        ) from missing
    from kafkacompat.telemetry.client_metrics_manager import ClientMetricsManager
    from kafkacompat.telemetry.series import ClientSeries

    series = ClientSeries()
    most = config.get_int("telemetry.max.bytes")
    return ClientMetricsManager(most, OtlpReceiver(series), SystemRandom().uuid), series


def _meters(config: ServerConfig) -> RequestMeters | None:
    """Requests are counted only where they are shown."""
    if config.get_int(METRICS_PORT) < 0:
        return None
    from kafkacompat.api.meters import RequestMeters

    return RequestMeters()


def _halt(error: BaseException) -> None:
    """End the process. The state of the disk or of the quorum's decisions is unknown, so no reply may depend on it."""
    known = isinstance(error, START_PROBLEMS)
    logger.critical("the node halts: %s", error if known else repr(error), exc_info=None if known else error)
    # A log in a file is written by a thread of its own.
    for handler in logging.root.handlers:
        with suppress(Exception):  # nothing may keep the process from ending, such as a closed standard error
            handler.flush()
    os._exit(1)
