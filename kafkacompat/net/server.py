"""All listeners and connections of a node.

It binds, accepts within bounds, gives connections their turns, closes idle ones, and drains.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from dataclasses import replace
from functools import partial
from math import inf
from time import monotonic
from types import MappingProxyType
from typing import TYPE_CHECKING

import trio

from kafkacompat.config import ConfigError, EndPoint
from kafkacompat.net.connection import Connection
from kafkacompat.net.listener import BoundListener, accept_forever, bind, configure
from kafkacompat.net.listener_meter import ListenerMeter
from kafkacompat.net.memory_pool import MemoryPool
from kafkacompat.net.muting import mute
from kafkacompat.net.newcomers import Newcomers
from kafkacompat.net.poller import BUSY_S, Poller
from kafkacompat.net.resolving import overrides_by_address
from kafkacompat.net.settings import UNLIMITED, Admission, ConnectionCounts, NetworkSettings, idle_too_long
from kafkacompat.net.turn_line import TurnLine
from kafkacompat.ports import Clock, Workers
from kafkacompat.ports.dispatcher import ConnectionInfo, Dispatcher
from kafkacompat.ports.network import ListenerReading
from kafkacompat.quota.connection_rates import ConnectionRates

if TYPE_CHECKING:
    from kafkacompat.net.handshakes import Handshakes
    from kafkacompat.ports.tls import TlsTerms

SWEEP_INTERVAL_MS = 60_000
"""The longest interval between checks of quiet connections. They free memory after the same time."""

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
    ) -> None:
        """`tls` has the terms of the listeners with TLS, by name."""
        self.dispatcher = dispatcher
        self.clock = clock
        self.workers = workers
        bound = settings.queued_max_request_bytes
        self.memory = MemoryPool(bound) if bound > 0 else None
        self.listeners: tuple[BoundListener, ...] = ()
        self._tls = tls
        self._handshakes: Handshakes | None = None
        """Only if a listener has TLS. Its modules are then imported on demand, because they slow down the start."""
        if tls:
            from kafkacompat.net.handshakes import Handshakes

            self._handshakes = Handshakes(clock)
        self._settings = settings
        self._counts = ConnectionCounts(replace(settings, max_connections_per_ip_overrides={}))
        """Its settings have addresses only, no host names."""
        self._overrides_are_known = not settings.max_connections_per_ip_overrides
        self._rates = ConnectionRates(settings.quota_windows, settings.quota_window_ms)
        self.newcomers = Newcomers(clock, settings.quota_windows, settings.quota_window_ms)
        self._throttled_until_ms: dict[str, int] = {}
        """By listener: when a connection over the rate may be let in. The acceptor waits until that is done."""
        self._connections: dict[int, Connection] = {}
        self._next_connection_id = 1
        self._meters: dict[str, ListenerMeter] = {}
        self._held: Collection[str] = ()
        self._line = TurnLine()
        self._poller = Poller(self._line.give, self._line.wake)
        self._closed_one = trio.Event()
        """Set, and replaced, when a connection has closed."""
        self._nursery: trio.Nursery | None = None
        self._draining = False

    @property
    def settings(self) -> NetworkSettings:
        return self._settings

    def update_settings(self, settings: NetworkSettings) -> None:
        """Apply settings. Limits apply at once, socket options to new connections, overrides of hosts once their names
        are resolved. Connections over a lowered max.connections are closed, those over other limits stay."""
        overrides = settings.max_connections_per_ip_overrides
        if overrides != self._settings.max_connections_per_ip_overrides:
            self._overrides_are_known = False
        self._settings = settings
        self._counts.settings = replace(
            settings, max_connections_per_ip_overrides=self._counts.settings.max_connections_per_ip_overrides
        )
        self._announce_room()
        if self._nursery is not None:
            if not self._overrides_are_known:
                self._nursery.start_soon(self._learn_overrides)
            if self._counts.total > settings.max_connections:
                self._nursery.start_soon(self._close_excess)

    async def _learn_overrides(self) -> None:
        """Resolve the overrides. An unknown host leaves them unchanged."""
        try:
            await self._take_overrides()
        except ConfigError as error:
            _log.error("%s; the overrides stay as they were", error)

    async def _take_overrides(self) -> None:
        overrides = self._settings.max_connections_per_ip_overrides
        known = await overrides_by_address(overrides)
        if overrides is self._settings.max_connections_per_ip_overrides:
            self._overrides_are_known = True
            self._counts.settings = replace(self._counts.settings, max_connections_per_ip_overrides=known)

    @property
    def connection_count(self) -> int:
        return len(self._connections)

    def listener_readings(self) -> dict[str, ListenerReading]:
        """By listener; those without connections too."""
        now_ms, present = self.clock.monotonic_ms(), self._counts.by_listener
        return {name: meter.read(present.get(name, 0), now_ms) for name, meter in self._meters.items()}

    async def bind(self, endpoints: Iterable[EndPoint]) -> tuple[BoundListener, ...]:
        """Listen on all endpoints, or on none and raise OSError that names `listeners`. Clients wait until `run`
        accepts, which may already run.

        Raises ConfigError for an unknown host in max.connections.per.ip.overrides.
        """
        await self._take_overrides()
        bound: list[BoundListener] = []
        try:
            for endpoint in endpoints:
                bound.append(await bind(endpoint, self._settings))
        except BaseException:
            for listener in bound:
                listener.close()
            raise
        self.listeners += tuple(bound)
        for listener in bound:
            self._meters[listener.endpoint.listener_name] = ListenerMeter(self.clock.monotonic_ms())
            if self._nursery is not None:
                self._nursery.start_soon(self._accept, listener)
        return tuple(bound)

    def hold(self, listeners: Collection[str]) -> None:
        """Let the clients of these listeners wait, and those of no others."""
        self._held = listeners
        self._announce_room()

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve the present listeners until drained or cancelled."""
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                for listener in self.listeners:
                    nursery.start_soon(self._accept, listener)
                nursery.start_soon(self._poller.run)
                nursery.start_soon(self._line.run)
                nursery.start_soon(self._sweep)
                nursery.start_soon(self.newcomers.run)
                if self._handshakes is not None:
                    nursery.start_soon(self._handshakes.run)
                if not self._overrides_are_known:
                    nursery.start_soon(self._learn_overrides)
                task_status.started()
        finally:
            self._nursery = None
            for listener in self.listeners:
                listener.close()
            for connection in list(self._connections.values()):
                connection.close()
            self._poller.close()

    async def drain(self, deadline_ms: int) -> None:
        """Stop accepting and reading, answer the received requests, close all connections. After `deadline_ms` close
        the rest. `run` then returns."""
        self._draining = True
        for listener in self.listeners:
            listener.close()
        self.newcomers.close_held()
        self._announce_room()
        async for connection in self._each():
            connection.drain()
        with trio.move_on_after(deadline_ms / 1000):
            while self._connections:
                await self._closed_one.wait()
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
        if self._line.add(connection) and not self._poller.serving:
            self._line.wake()

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
            self._counts.release(info.listener_name, info.client_host)
            self._meters[info.listener_name].gone(info.client_software, self.clock.monotonic_ms())
            self._announce_room()

    # The server's own tasks.

    async def _accept(self, listener: BoundListener) -> None:
        await accept_forever(
            listener, partial(self._wait_for_admission, listener), partial(self._accepted, listener)
        )

    async def _wait_for_admission(self, listener: BoundListener) -> None:
        name = listener.endpoint.listener_name
        while not self._draining and (name in self._throttled_until_ms or not self._has_room(name)):
            await self._closed_one.wait()

    def _has_room(self, listener: str) -> bool:
        return listener not in self._held and self._counts.may_accept(listener)

    def _accepted(self, listener: BoundListener, sock: socket.socket, host: str, port: int) -> None:
        endpoint = listener.endpoint
        try:
            configure(sock, self._settings)
        except OSError:
            sock.close()  # gone before it was accepted
            return
        if self._nursery is None or self._draining:
            sock.close()
            return
        name, now_ms = endpoint.listener_name, self.clock.monotonic_ms()
        throttle_ms = self._rates.record(
            name,
            self._settings.max_connection_creation_rate if self._is_counted_by_node(name) else None,
            self._settings.listener_max_connection_creation_rate.get(name.upper(), UNLIMITED),
            now_ms,
        )
        if throttle_ms:
            self._meters[name].accept_throttles.note(throttle_ms, now_ms)
            self._throttled_until_ms[name] = now_ms + throttle_ms
            self._nursery.start_soon(self._let_in_later, listener, sock, host, port)
            return
        self._let_in(listener, sock, host, port)

    async def _let_in_later(self, listener: BoundListener, sock: socket.socket, host: str, port: int) -> None:
        """Let in a connection over max.connection.creation.rate as soon as there is room, before its listener's next."""
        name = listener.endpoint.listener_name
        try:
            while not self._draining:
                wait_ms = self._throttled_until_ms[name] - self.clock.monotonic_ms()
                if wait_ms <= 0 and self._has_room(name):
                    break
                with trio.move_on_after(wait_ms / 1000 if wait_ms > 0 else inf):
                    await self._closed_one.wait()
        except BaseException:
            sock.close()
            raise
        if self._draining:
            sock.close()
            return
        self._let_in(listener, sock, host, port)
        del self._throttled_until_ms[name]
        self._announce_room()

    def _let_in(self, listener: BoundListener, sock: socket.socket, host: str, port: int) -> None:
        endpoint = listener.endpoint
        now_ms = self.clock.monotonic_ms()
        throttle_ms = self.newcomers.throttle_ms(host, now_ms)
        if throttle_ms:
            name = endpoint.listener_name
            self._rates.unrecord(name, is_counted_by_node=self._is_counted_by_node(name), now_ms=now_ms)
            self._meters[name].address_throttles.note(throttle_ms, now_ms)
            self.newcomers.hold(sock, now_ms + throttle_ms)
            return
        admission = self._counts.admit(endpoint.listener_name, host)
        if admission is Admission.REFUSED:
            _log.info("refusing a connection of %s: max.connections.per.ip is reached", host)
            sock.close()
            return
        info = ConnectionInfo(
            self._next_connection_id, endpoint.listener_name, host, port, listener_is_sasl=endpoint.is_sasl
        )
        self._next_connection_id += 1
        info.meter = meter = self._meters[endpoint.listener_name]
        meter.created.note(now_ms)
        connection = self._connection(sock, info)
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

    def _is_counted_by_node(self, listener: str) -> bool:
        return listener != self._settings.protected_listener

    def _connection(self, sock: socket.socket, info: ConnectionInfo) -> Connection:
        settings = self._settings
        bounds = settings.socket_request_max_bytes, settings.socket_request_without_records_max_bytes
        if self._handshakes is None or info.listener_name not in self._tls:
            return Connection(sock, info, self, *bounds)
        from kafkacompat.net.tls_connection import TlsConnection

        return TlsConnection(sock, info, self, *bounds, self._tls[info.listener_name], self._handshakes)

    def _throttle(self, connection: Connection, throttle_ms: int) -> None:
        if self._nursery is not None and not self._draining:
            mute(connection, throttle_ms, self._nursery, self.clock)

    def _limit_frames(self, connection: Connection, is_authenticated: bool) -> None:
        settings = self._settings
        if is_authenticated:
            connection.limit_frames(
                settings.socket_request_max_bytes, settings.socket_request_without_records_max_bytes
            )
        else:
            connection.limit_frames(settings.sasl_server_max_receive_size)

    async def _close_excess(self) -> None:
        """Close the least recently used connections, until no more are there than max.connections allows."""
        counted = [
            each for each in self._connections.values() if self._is_counted_by_node(each.info.listener_name)
        ]
        counted.sort(key=lambda each: (each.last_active_ms, each.info.connection_id))
        async for connection in self._each(counted):
            if self._counts.total <= self._settings.max_connections:
                break
            connection.close()

    async def _sweep(self) -> None:
        """Close connections that are idle too long. One task for all, so that a read needs no timeout."""
        while True:
            max_idle_ms = self._settings.connections_max_idle_ms
            now_ms = self.clock.monotonic_ms()
            next_ms = now_ms + SWEEP_INTERVAL_MS
            async for connection in self._each():
                last_ms = connection.last_active_ms
                if idle_too_long(now_ms, last_ms, connection.requests_in_flight, max_idle_ms):
                    _log.info("closing idle connection %d", connection.info.connection_id)
                    self._meters[connection.info.listener_name].expired += 1
                    connection.close()
                    continue
                if now_ms - last_ms >= SWEEP_INTERVAL_MS:
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

    def _announce_room(self) -> None:
        event, self._closed_one = self._closed_one, trio.Event()
        event.set()
