"""The process of a node: real doors, signals that stop it, a line when it serves.

Knows trio and the system. What a node is made of, and in which order it starts and stops, it does not know (raft_server.py).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from time import monotonic

import trio

from kafkacompat.config import ConfigError, ServerConfig
from kafkacompat.log.disk import RealDisk
from kafkacompat.net.network import TrioNetwork
from kafkacompat.net.runtime import (
    SystemClock,
    SystemRandom,
    TrioTimers,
    carry_out,
    freeze_long_lived,
    keep_long_lived,
    raise_descriptor_limit,
)
from kafkacompat.net.watchdog import LoopWatchdog
from kafkacompat.net.workers import worker_pools
from kafkacompat.security.settings import authorizer_of
from kafkacompat.server.doors import NodeDoors
from kafkacompat.server.raft_server import START_PROBLEMS, KafkaRaftServer
from kafkacompat.server.signals import StopSignals

logger = logging.getLogger(__name__)


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
            doors, timers = _doors_of_the_system(config, nursery)
            node = KafkaRaftServer(doors)
            asked = trio.Event()
            starting = trio.CancelScope()
            serves = False

            def on_signal() -> None:
                if asked.is_set():
                    node.hurry()
                asked.set()
                starting.cancel()

            token = trio.lowlevel.current_trio_token()
            signals.tell(lambda: token.run_sync_soon(on_signal))
            try:
                with starting:
                    await nursery.start(timers.run)
                    await carry_out(node.build(format_if_empty=format_if_empty))
                    await carry_out(node.start())
                if not starting.cancelled_caught:
                    serves = True
                    freeze_long_lived()
                    watchdog = LoopWatchdog(token.run_sync_soon)
                    watchdog.start()
                    announce(node.ready_line())
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


def _refuse_what_is_not_served(config: ServerConfig) -> None:
    """Settings whose silence would be worse than no broker: they promise a protection that is not there."""
    for listener in config.listeners():
        if listener.security_protocol != "PLAINTEXT":
            # Serving it in the clear would be a hole that nobody asked for.
            raise StartRefused(
                f"listener.security.protocol.map gives listener {listener.listener_name} {listener.security_protocol}: "
                "only PLAINTEXT is served"
            )
    try:
        authorizer_of(config)
    except ConfigError as problem:
        raise StartRefused(str(problem)) from problem


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


def _doors_of_the_system(config: ServerConfig, nursery: trio.Nursery) -> tuple[NodeDoors, TrioTimers]:
    """And the timers, which have to run."""
    clock = SystemClock()
    timers = TrioTimers(clock)
    recovery_threads = config.get_int("num.recovery.threads.per.data.dir") * len(config.log_dirs)
    workers = worker_pools(nursery, recovery_threads)
    doors = NodeDoors(
        config=config,
        clock=clock,
        timers=timers,
        random=SystemRandom(),
        disk=RealDisk(),
        workers=workers,
        network=TrioNetwork(nursery, config, clock, timers, workers.replies),
        monotonic_s=monotonic,
        keep=keep_long_lived,
        halt=_halt,
    )
    return doors, timers


def _halt(error: BaseException) -> None:
    """What is on the disk, or what the quorum agreed on, is unknown: no reply may follow from it."""
    known = isinstance(error, START_PROBLEMS)
    logger.critical("the node halts: %s", error if known else repr(error), exc_info=None if known else error)
    os._exit(1)
