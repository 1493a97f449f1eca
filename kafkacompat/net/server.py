"""All listeners and connections of a node.

It binds, accepts within bounds, lets connections take turns, closes the idle, and drains.
"""

from __future__ import annotations

import logging
import socket
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import replace
from functools import partial
from time import monotonic

import trio

from kafkacompat.config import ConfigError, EndPoint
from kafkacompat.net.connection import Connection
from kafkacompat.net.listener import BoundListener, accept_forever, bind, configure
from kafkacompat.net.poller import BUSY_S, Poller
from kafkacompat.net.resolving import overrides_by_address
from kafkacompat.net.settings import Admission, ConnectionCounts, NetworkSettings, idle_too_long
from kafkacompat.ports import Clock, Workers
from kafkacompat.ports.dispatcher import ConnectionInfo, Dispatcher

SWEEP_INTERVAL_MS = 60_000
"""How often quiet connections are looked at, at the least often; they give back memory after as long."""

_log = logging.getLogger(__name__)


class Server:
    """`bind`, then `run` in a task of its own; `drain` ends it."""

    def __init__(
        self, dispatcher: Dispatcher, settings: NetworkSettings, clock: Clock, workers: Workers
    ) -> None:
        self.dispatcher = dispatcher
        self.clock = clock
        self.workers = workers
        self.listeners: tuple[BoundListener, ...] = ()
        self._settings = settings
        self._counts = ConnectionCounts(replace(settings, max_connections_per_ip_overrides={}))
        """Its settings name addresses only."""
        self._overrides_are_known = not settings.max_connections_per_ip_overrides
        self._connections: dict[int, Connection] = {}
        self._next_connection_id = 1
        self._line: deque[Connection] = deque()
        """Connections that want a turn; each stands in it once."""
        self._poller = Poller(self._give_turns_once, self._wake_turn_taker)
        self._turn_taker: trio.lowlevel.Task | None = None
        """Set while it waits for the line to fill."""
        self._closed_one = trio.Event()
        """Set, and replaced, when a connection has closed."""
        self._nursery: trio.Nursery | None = None
        self._draining = False

    @property
    def settings(self) -> NetworkSettings:
        return self._settings

    def update_settings(self, settings: NetworkSettings) -> None:
        """Limits hold from now on; socket options for connections to come. Overrides of hosts once these are resolved."""
        overrides = settings.max_connections_per_ip_overrides
        if overrides != self._settings.max_connections_per_ip_overrides:
            self._overrides_are_known = False
        self._settings = settings
        self._counts.settings = replace(
            settings, max_connections_per_ip_overrides=self._counts.settings.max_connections_per_ip_overrides
        )
        self._announce_room()
        if not self._overrides_are_known and self._nursery is not None:
            self._nursery.start_soon(self._learn_overrides)

    async def _learn_overrides(self) -> None:
        """An unknown host leaves the overrides as they were."""
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

    async def bind(self, endpoints: Iterable[EndPoint]) -> tuple[BoundListener, ...]:
        """Listen on all endpoints, or on none and raise OSError naming `listeners`. Clients wait until `run` accepts.

        ConfigError for an unknown host in max.connections.per.ip.overrides.
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
        return tuple(bound)

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until drained or cancelled. The listeners present now are served."""
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                for listener in self.listeners:
                    nursery.start_soon(self._accept, listener)
                nursery.start_soon(self._poller.run)
                nursery.start_soon(self._give_turns)
                nursery.start_soon(self._sweep)
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
        """Accept and read nothing more, answer what was received, close all; after `deadline_ms` whatever is left.

        `run` returns after this.
        """
        self._draining = True
        for listener in self.listeners:
            listener.close()
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

    # What connections need of their server (connection.Host).

    def take_turn_soon(self, connection: Connection) -> None:
        if connection.in_line:
            return
        connection.in_line = True
        self._line.append(connection)
        if not self._poller.serving:
            self._wake_turn_taker()

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
            self._announce_room()

    # The server's own tasks.

    async def _give_turns(self) -> None:
        while True:
            while self._line:
                self._give_turns_once(monotonic() + BUSY_S)
                await trio.lowlevel.checkpoint()
            self._turn_taker = trio.lowlevel.current_task()
            await trio.lowlevel.wait_task_rescheduled(self._forget_turn_taker)

    def _give_turns_once(self, until_s: float) -> None:
        """A turn for each that stands in the line now, or for as many as there is time for, but one at least."""
        line = self._line
        for _ in range(len(line)):
            connection = line.popleft()
            connection.in_line = False
            connection.turn()
            if monotonic() >= until_s:
                return

    def _wake_turn_taker(self) -> None:
        if self._line:
            taker, self._turn_taker = self._turn_taker, None
            if taker is not None:
                trio.lowlevel.reschedule(taker)

    def _forget_turn_taker(self, _raise_cancel: Callable[[], None]) -> trio.lowlevel.Abort:
        self._turn_taker = None
        return trio.lowlevel.Abort.SUCCEEDED

    async def _accept(self, listener: BoundListener) -> None:
        await accept_forever(
            listener, partial(self._wait_for_admission, listener), partial(self._accepted, listener)
        )

    async def _wait_for_admission(self, listener: BoundListener) -> None:
        name = listener.endpoint.listener_name
        while not self._draining and not self._counts.may_accept(name):
            await self._closed_one.wait()

    def _accepted(self, listener: BoundListener, sock: socket.socket, host: str, port: int) -> None:
        endpoint = listener.endpoint
        try:
            configure(sock, self._settings)
        except OSError:
            sock.close()  # gone before it was there
            return
        if self._nursery is None or self._draining:
            sock.close()
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
        connection = Connection(
            sock,
            info,
            self,
            self._settings.socket_request_max_bytes,
            self._settings.socket_request_without_records_max_bytes,
        )
        self._connections[info.connection_id] = connection
        try:
            connection.start()
        except OSError as error:  # no memory for one more socket in the set
            _log.error("closing a connection of %s: %s", host, error)
            connection.close()
            return
        if admission is Admission.PROTECTED:
            self._close_least_recently_used()

    def _close_least_recently_used(self) -> None:
        candidates = [
            connection
            for connection in self._connections.values()
            if connection.info.listener_name != self._settings.protected_listener
        ]
        if candidates:
            min(candidates, key=lambda each: (each.last_active_ms, each.info.connection_id)).close()

    async def _sweep(self) -> None:
        """Close connections that are idle too long. One task for all, so that a read needs no timeout of its own."""
        while True:
            max_idle_ms = self._settings.connections_max_idle_ms
            now_ms = self.clock.monotonic_ms()
            next_ms = now_ms + SWEEP_INTERVAL_MS
            async for connection in self._each():
                last_ms = connection.last_active_ms
                if idle_too_long(now_ms, last_ms, connection.requests_in_flight, max_idle_ms):
                    _log.info("closing idle connection %d", connection.info.connection_id)
                    connection.close()
                    continue
                if now_ms - last_ms >= SWEEP_INTERVAL_MS:
                    connection.shrink()
                if max_idle_ms >= 0 and not connection.requests_in_flight:
                    next_ms = min(next_ms, last_ms + max_idle_ms)
            if 0 <= max_idle_ms < SWEEP_INTERVAL_MS:
                next_ms = min(next_ms, now_ms + max_idle_ms)  # for connections yet to come
            await trio.sleep(max(next_ms - now_ms, 1) / 1000)

    async def _each(self) -> AsyncIterator[Connection]:
        """Those that are there now, as long as they are; others have their turn again and again meanwhile."""
        until_s = monotonic() + BUSY_S
        for connection in list(self._connections.values()):
            if not connection.closed:
                yield connection
            if monotonic() >= until_s:
                await trio.lowlevel.checkpoint()
                until_s = monotonic() + BUSY_S

    def _announce_room(self) -> None:
        event, self._closed_one = self._closed_one, trio.Event()
        event.set()
