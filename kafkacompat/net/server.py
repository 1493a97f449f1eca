"""All connections of a node.

It gives connections their turns, mutes them, closes idle ones, and drains. The acceptors let them in (acceptors.py).
"""

from __future__ import annotations

import logging
import socket
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping
from functools import partial
from time import monotonic
from types import MappingProxyType
from typing import TYPE_CHECKING

import trio

from kafkacompat.config import EndPoint
from kafkacompat.net.acceptors import Acceptors, BoundListener, Newcomers
from kafkacompat.net.connection import Connection
from kafkacompat.net.descriptors import Descriptors
from kafkacompat.net.loop_wait import LoopWait
from kafkacompat.net.memory_pool import MemoryPool
from kafkacompat.net.poller import BUSY_S, Poller
from kafkacompat.net.settings import Admission, NetworkSettings, idle_too_long
from kafkacompat.ports import Clock, Timers, Workers
from kafkacompat.ports.dispatcher import ConnectionInfo, Dispatcher
from kafkacompat.ports.network import ListenerReading

if TYPE_CHECKING:
    from kafkacompat.net.tls_connection import Handshakes
    from kafkacompat.ports.network import TlsTerms


class ReadyQueue:
    """Connections that have something to do. Each is in it once, and gets its turn in the order of arrival.

    `run` in its own task. The poller gives turns too, between two looks at its sockets."""

    def __init__(self) -> None:
        self._ready: deque[Connection] = deque()
        self._taker: trio.lowlevel.Task | None = None
        """Set while `run` waits for the queue to fill."""

    def add(self, connection: Connection) -> bool:
        """Returns False for a connection that is in the queue already."""
        if connection.in_line:
            return False
        connection.in_line = True
        self._ready.append(connection)
        return True

    async def run(self) -> None:
        while True:
            while self._ready:
                self.give(monotonic() + BUSY_S)
                await trio.lowlevel.checkpoint()
            self._taker = trio.lowlevel.current_task()
            await trio.lowlevel.wait_task_rescheduled(self._forget_taker)

    def give(self, until_s: float) -> bool:
        """Give a turn to each connection in the queue, as far as time allows, but to at least one. Whether some are left."""
        ready = self._ready
        if not ready:
            return False
        for _ in range(len(ready)):
            connection = ready.popleft()
            connection.in_line = False
            connection.turn()
            if monotonic() >= until_s:
                break
        return bool(ready)

    def wake(self) -> None:
        """Let `run` go on if the queue is not empty."""
        if self._ready:
            taker, self._taker = self._taker, None
            if taker is not None:
                trio.lowlevel.reschedule(taker)

    def _forget_taker(self, _raise_cancel: Callable[[], None]) -> trio.lowlevel.Abort:
        self._taker = None
        return trio.lowlevel.Abort.SUCCEEDED


MUTED_LOOK_MS = 60_000
"""How often a muted connection is looked at. It may have closed."""


class Throttles:
    """Mutes connections for the throttle times of quotas."""

    __slots__ = ("_clock", "_timers")

    def __init__(self, clock: Clock, timers: Timers) -> None:
        """`timers`: of this clock."""
        self._clock = clock
        self._timers = timers

    def mute(self, connection: Connection, throttle_ms: int) -> None:
        """Mute a connection for its throttle time, also while it grows."""
        now_ms = self._clock.monotonic_ms()
        is_muted = connection.muted_until_ms > now_ms
        connection.mute(now_ms + throttle_ms)
        if not is_muted:
            self._look_later(connection, throttle_ms)

    def _look_later(self, connection: Connection, rest_ms: int) -> None:
        self._timers.call_after(min(rest_ms, MUTED_LOOK_MS), lambda: self._look(connection))

    def _look(self, connection: Connection) -> None:
        if connection.closed:
            return
        rest_ms = connection.muted_until_ms - self._clock.monotonic_ms()
        if rest_ms <= 0:
            connection.unmute()
        else:
            self._look_later(connection, rest_ms)


SWEEP_INTERVAL_MS = 60_000
"""The longest interval between checks for idle connections and for buffers to shrink."""
QUIET_UNTIL_SHRUNK_MS = 60_000
"""A connection that is quiet for so long frees the memory of its buffer at the next check."""

_WITHOUT_TLS: Mapping[str, TlsTerms] = MappingProxyType({})
_log = logging.getLogger(__name__)


class Server:
    """Call `bind`, then `run` in its own task. `drain` ends it."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        settings: NetworkSettings,
        clock: Clock,
        workers: Workers,
        tls: Mapping[str, TlsTerms] = _WITHOUT_TLS,
        descriptors: Descriptors | None = None,
        throttles: Throttles | None = None,
        wait: LoopWait | None = None,
    ) -> None:
        """`tls` has the terms of the listeners with TLS, by name. `descriptors` are shared with the node's other server.
        `throttles`: None if no client is throttled. `wait`: as for the poller."""
        self.dispatcher = dispatcher
        self.clock = clock
        self.workers = workers
        bound = settings.queued_max_request_bytes
        self.memory = MemoryPool(bound) if bound > 0 else None
        self._tls = tls
        self._handshakes: Handshakes | None = None
        """Only if a listener has TLS. Its modules are then imported on demand, because they slow down the start."""
        if tls:
            from kafkacompat.net.tls_connection import Handshakes, TlsConnection

            self._handshakes = Handshakes(clock)
            self._tls_connection = TlsConnection
        self.acceptors = Acceptors(settings, clock, self._enters, descriptors or Descriptors())
        self._connections: dict[int, Connection] = {}
        self._next_connection_id = 1
        self._throttles = throttles
        self._ready = ReadyQueue()
        self._poller = Poller(self._ready.give, self._ready.wake, wait=wait)
        self._nursery: trio.Nursery | None = None

    @property
    def settings(self) -> NetworkSettings:
        return self.acceptors.settings

    @property
    def listeners(self) -> tuple[BoundListener, ...]:
        return self.acceptors.listeners

    @property
    def newcomers(self) -> Newcomers:
        return self.acceptors.newcomers

    def update_settings(self, settings: NetworkSettings) -> None:
        """Apply settings. Limits apply at once, socket options to new connections, overrides of hosts once their names
        are resolved. Connections over a lowered max.connections are closed, those over other limits stay."""
        self.acceptors.update_settings(settings)
        if self._nursery is not None and self.acceptors.counts.total > settings.max_connections:
            self._nursery.start_soon(self._close_excess)

    @property
    def connection_count(self) -> int:
        return len(self._connections)

    def listener_readings(self) -> dict[str, ListenerReading]:
        """By listener; those without connections too."""
        return self.acceptors.readings()

    async def bind(self, endpoints: Iterable[EndPoint]) -> tuple[BoundListener, ...]:
        """Listen on all endpoints, or on none and raise OSError that names `listeners`. Clients wait until `run`
        accepts, which may already run.

        Raises ConfigError for an unknown host in max.connections.per.ip.overrides.
        """
        return await self.acceptors.bind(endpoints)

    def hold(self, listeners: Collection[str]) -> None:
        """Let the clients of these listeners wait, and those of no others."""
        self.acceptors.hold(listeners)

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve the present listeners until drained or cancelled."""
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                nursery.start_soon(self.acceptors.run)
                nursery.start_soon(self._poller.run)
                nursery.start_soon(self._ready.run)
                nursery.start_soon(self._sweep)
                if self._handshakes is not None:
                    nursery.start_soon(self._handshakes.run)
                task_status.started()
        finally:
            self._nursery = None
            for connection in list(self._connections.values()):
                connection.close()
            self._poller.close()

    async def drain(self, deadline_ms: int) -> None:
        """Stop accepting and reading, answer the received requests, close all connections. After `deadline_ms` close
        the rest. `run` then returns."""
        self.acceptors.close()
        async for connection in self._each():
            connection.drain()
        with trio.move_on_after(deadline_ms / 1000):
            while self._connections:
                await self.acceptors.room_changed()
        if self._connections:
            _log.warning(
                "%d connections did not end within %d ms and are closed", len(self._connections), deadline_ms
            )
        async for connection in self._each():
            connection.close()
        if self._nursery is not None:
            self._nursery.cancel_scope.cancel()

    # Calls from connections (connection.Host).

    def take_turn_soon(self, connection: Connection) -> None:
        if self._ready.add(connection) and not self._poller.serving:
            self._ready.wake()

    def watch(self, fd: int, connection: Connection, before: int, now: int) -> None:
        if not before:
            self._poller.add(fd, connection, now)
        elif now:
            self._poller.change(fd, now)
        else:
            self._poller.remove(fd)

    def closed(self, connection: Connection) -> None:
        info = connection.info
        if self._connections.pop(info.connection_id, None) is not None:
            meter = self.acceptors.meters[info.listener_name]
            meter.gone(info.client_software, self.clock.monotonic_ms())
            self.acceptors.released(info.listener_name, info.client_host)

    # The server's own tasks.

    def _enters(
        self, sock: socket.socket, endpoint: EndPoint, host: str, port: int, admission: Admission
    ) -> None:
        info = ConnectionInfo(
            self._next_connection_id, endpoint.listener_name, host, port, listener_is_sasl=endpoint.is_sasl
        )
        self._next_connection_id += 1
        meter = info.meter = self.acceptors.meters[endpoint.listener_name]
        try:
            connection = self._connection(sock, info)
        except (OSError, MemoryError) as error:  # no memory for its buffer or for TLS
            _log.error("closing a connection of %s: %r", host, error)
            sock.close()
            meter.gone(None, self.clock.monotonic_ms())
            self.acceptors.released(info.listener_name, host)
            return
        self._connections[info.connection_id] = connection
        info.on_throttled = partial(self._throttle, connection)
        if endpoint.is_sasl:
            info.on_authentication = partial(self._limit_frames, connection)
            info.on_authentication(False)
        try:
            connection.start()
        except OSError as error:  # no memory for another socket in the set
            _log.error("closing a connection of %s: %s", host, error)
            connection.close()
            return
        if admission is Admission.PROTECTED and self._nursery is not None:
            self._nursery.start_soon(self._close_excess)

    def _connection(self, sock: socket.socket, info: ConnectionInfo) -> Connection:
        settings = self.settings
        bounds = settings.socket_request_max_bytes, settings.socket_request_without_records_max_bytes
        if self._handshakes is None or info.listener_name not in self._tls:
            return Connection(sock, info, self, *bounds)
        return self._tls_connection(
            sock, info, self, *bounds, self._tls[info.listener_name], self._handshakes
        )

    def _throttle(self, connection: Connection, throttle_ms: int) -> None:
        if self._throttles is not None and not self.acceptors.are_closed:
            self._throttles.mute(connection, throttle_ms)

    def _limit_frames(self, connection: Connection, is_authenticated: bool) -> None:
        settings = self.settings
        if is_authenticated:
            connection.limit_frames(
                settings.socket_request_max_bytes, settings.socket_request_without_records_max_bytes
            )
        else:
            of_listeners = settings.listener_sasl_server_max_receive_size
            connection.limit_frames(
                of_listeners.get(connection.info.listener_name, settings.sasl_server_max_receive_size)
            )

    async def _close_excess(self) -> None:
        """Close the least recently used connections, until no more are there than max.connections allows."""
        acceptors = self.acceptors
        counted = [
            each
            for each in self._connections.values()
            if acceptors.is_counted_by_node(each.info.listener_name)
        ]
        counted.sort(key=lambda each: (each.last_active_ms, each.info.connection_id))
        async for connection in self._each(counted):
            if acceptors.counts.total <= self.settings.max_connections:
                break
            connection.close()

    async def _sweep(self) -> None:
        """Close connections that are idle too long. One task for all, so that a read needs no timeout."""
        while True:
            max_idle_ms = self.settings.connections_max_idle_ms
            now_ms = self.clock.monotonic_ms()
            next_ms = now_ms + SWEEP_INTERVAL_MS
            async for connection in self._each():
                last_ms = connection.last_active_ms
                if idle_too_long(now_ms, last_ms, connection.requests_in_flight, max_idle_ms):
                    _log.info("closing idle connection %d", connection.info.connection_id)
                    connection.close()
                    continue
                if now_ms - last_ms >= QUIET_UNTIL_SHRUNK_MS:
                    connection.shrink()
                if max_idle_ms >= 0 and not connection.requests_in_flight:
                    next_ms = min(next_ms, last_ms + max_idle_ms)
            if 0 <= max_idle_ms < SWEEP_INTERVAL_MS:
                next_ms = min(next_ms, now_ms + max_idle_ms)  # for later connections
            await trio.sleep(max(next_ms - now_ms, 1) / 1000)

    async def _each(self, some: Iterable[Connection] | None = None) -> AsyncIterator[Connection]:
        """The present connections, or some, while they are open. Other tasks get regular turns meanwhile."""
        until_s = monotonic() + BUSY_S
        for connection in list(self._connections.values()) if some is None else some:
            if not connection.closed:
                yield connection
            if monotonic() >= until_s:
                await trio.lowlevel.checkpoint()
                until_s = monotonic() + BUSY_S
