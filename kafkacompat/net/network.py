"""The network's doors of ports, on trio: this node's channels, its socket servers, its name.

Those who are no coroutines of the loop's ask here for what takes time. All in a nursery that outlives it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial

import trio

from kafkacompat.config import EndPoint, ServerConfig
from kafkacompat.deferred import Deferred
from kafkacompat.net.channel import ChannelSettings
from kafkacompat.net.channels import Channels
from kafkacompat.net.resolving import own_name
from kafkacompat.net.runtime import later
from kafkacompat.net.server import Server
from kafkacompat.net.settings import NetworkSettings
from kafkacompat.ports import Clock, Timers, Workers
from kafkacompat.ports.dispatcher import ConnectionInfo, Dispatcher, Pending, Reply


class TrioNetwork:
    """ports.Network. `replies` brings what is sent into the page cache."""

    def __init__(
        self, nursery: trio.Nursery, config: ServerConfig, clock: Clock, timers: Timers, replies: Workers
    ) -> None:
        self._nursery = nursery
        self._config = config
        self._clock = clock
        self._replies = replies
        self.channels = Channels(
            nursery, clock, timers, str(config.node_id), ChannelSettings.from_config(config)
        )

    def socket_server(self) -> TrioSocketServer:
        server = Server(NotYet(), NetworkSettings.from_config(self._config), self._clock, self._replies)
        return TrioSocketServer(self._nursery, server)

    def own_name(self, endpoints: Iterable[EndPoint]) -> Deferred[str]:
        return later(self._nursery, partial(own_name, tuple(endpoints)))


class TrioSocketServer:
    """ports.SocketServer."""

    def __init__(self, nursery: trio.Nursery, server: Server) -> None:
        self._nursery = nursery
        self._server = server

    @property
    def dispatcher(self) -> Dispatcher:
        return self._server.dispatcher

    @dispatcher.setter
    def dispatcher(self, dispatcher: Dispatcher) -> None:
        self._server.dispatcher = dispatcher

    def bind(self, endpoints: Iterable[EndPoint]) -> Deferred[tuple[EndPoint, ...]]:
        async def bind() -> tuple[EndPoint, ...]:
            bound = await self._server.bind(endpoints)
            return tuple(replace(each.endpoint, port=each.port) for each in bound)

        return later(self._nursery, bind)

    def serve(self) -> Deferred[None]:
        return later(self._nursery, partial(self._nursery.start, self._server.run))

    def take_settings(self, config: ServerConfig) -> None:
        self._server.update_settings(NetworkSettings.from_config(config))

    def drain(self, deadline_ms: int) -> Deferred[None]:
        return later(self._nursery, partial(self._server.drain, deadline_ms))

    def close_listeners(self) -> None:
        for listener in self._server.listeners:
            listener.close()


class NotYet:
    """The dispatcher of a server that does not serve."""

    def dispatch(self, connection: ConnectionInfo, frame: memoryview) -> Reply | Pending | None:
        raise RuntimeError("the server is not built")

    def connection_closed(self, connection: ConnectionInfo) -> None:
        """No connection was made."""
