"""The network ports on trio: this node's channels, its socket servers, its host name.

Code outside of trio's coroutines starts asynchronous work here. Everything runs in a nursery that outlives it.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import trio

from kafkacompat.config import ConfigError, EndPoint, ServerConfig
from kafkacompat.deferred import Deferred
from kafkacompat.net.channels import Channels
from kafkacompat.net.descriptors import Descriptors
from kafkacompat.net.loop_wait import LoopWait
from kafkacompat.net.resolving import address_of, own_name
from kafkacompat.net.runtime import later, wait_for
from kafkacompat.net.server import Server, Throttles
from kafkacompat.net.settings import ChannelSettings, NetworkSettings
from kafkacompat.ports import Clock, Timers, Workers, passes
from kafkacompat.ports.dispatcher import ConnectionInfo, Dispatcher, Pending, Reply
from kafkacompat.ports.network import ChangingStores, ListenerReading, MemoryReading, TlsTerms
from kafkacompat.security.sasl_client import NO_SECURITY, ClientSecurity

READ_AGAIN_S = 10.0
"""How long after a shortage the stores of changed settings are read again."""
_log = logging.getLogger(__name__)


class TrioNetwork:
    """ports.Network. `replies` loads what is sent into the page cache."""

    def __init__(
        self,
        nursery: trio.Nursery,
        config: ServerConfig,
        clock: Clock,
        timers: Timers,
        replies: Workers,
        tls: Mapping[str, TlsTerms],
        brokers: ClientSecurity = NO_SECURITY,
        controllers: ClientSecurity = NO_SECURITY,
        descriptors: Descriptors | None = None,
        socket_clock: Clock | None = None,
        wait: LoopWait | None = None,
    ) -> None:
        """`tls` has the terms of the listeners with TLS, by name. `brokers` and `controllers` tell how this node
        connects to them. `socket_clock` measures how long connections are idle, and their rates: by default `clock`,
        whose timers end throttles and requests to other nodes. `wait` lets a server wait in the place of trio's loop."""
        self._nursery = nursery
        self._config = config
        self._socket_clock = socket_clock or clock
        self._throttles = Throttles(clock, timers)
        self._replies = replies
        self._tls = tls
        self._dialled = [each.stores for each in (brokers, controllers) if each.stores is not None]
        self._descriptors = descriptors or Descriptors()
        self._wait = wait
        settings = ChannelSettings.from_config(config)
        client_id = str(config.node_id)

        def channels_with(security: ClientSecurity) -> Channels:
            return Channels(nursery, clock, timers, client_id, settings, security, wait)

        self.channels_with = channels_with
        """New channels to another cluster, for mirrors."""
        self.channels = channels_with(brokers)
        self.controller_channels = channels_with(controllers)

    def socket_server(self) -> TrioSocketServer:
        server = Server(
            NotYet(),
            NetworkSettings.from_config(self._config),
            self._socket_clock,
            self._replies,
            self._tls,
            self._descriptors,
            self._throttles,
            self._wait,
        )
        return TrioSocketServer(self._nursery, server, self._tls, self._replies, self._dialled)

    def own_name(self, endpoints: Iterable[EndPoint]) -> Deferred[str]:
        return later(self._nursery, partial(own_name, tuple(endpoints)))

    def resolve(self, host: str) -> Deferred[str | None]:
        return later(self._nursery, partial(address_of, host))


class TrioSocketServer:
    """ports.SocketServer."""

    def __init__(
        self,
        nursery: trio.Nursery,
        server: Server,
        tls: Mapping[str, TlsTerms],
        workers: Workers,
        dialled: Sequence[ChangingStores] = (),
    ) -> None:
        """`workers` read changed stores. `dialled`: those of the connections to other nodes."""
        self._nursery = nursery
        self._server = server
        self._tls = tls
        self._dialled = dialled
        self._workers = workers
        self._newest: ServerConfig | None = None
        self._bound: frozenset[str] = frozenset()
        """The names of the listeners, of those too that are being bound. A node with both roles has a server for each."""

    def bind(self, endpoints: Iterable[EndPoint]) -> Deferred[tuple[EndPoint, ...]]:
        async def bind() -> tuple[EndPoint, ...]:
            wanted = tuple(endpoints)
            names = frozenset(each.listener_name for each in wanted)
            self._bound |= names
            if self._newest is not None:
                # Settings that came before a listener is bound may have other stores.
                for name in names & self._tls.keys():
                    await self._read_stores(self._tls[name], self._newest)
            bound = await self._server.bind(wanted)
            return tuple(replace(each.endpoint, port=each.port) for each in bound)

        return later(self._nursery, bind)

    def serve(self, dispatcher: Dispatcher) -> Deferred[None]:
        self._server.dispatcher = dispatcher
        return later(self._nursery, partial(self._nursery.start, self._server.run))

    def redirect(self, dispatcher: Dispatcher) -> None:
        self._server.dispatcher = dispatcher

    def hold(self, listeners: Collection[str]) -> None:
        self._server.hold(listeners)

    def take_settings(self, config: ServerConfig) -> None:
        self._server.update_settings(NetworkSettings.from_config(config))
        self._newest = config
        listeners = [self._tls[name] for name in self._bound & self._tls.keys()]
        for stores in (*listeners, *self._dialled):
            later(self._nursery, partial(self._read_stores, stores, config)).unheeded(
                f"reading the stores of {stores.name}"
            )

    async def _read_stores(self, stores: ChangingStores, config: ServerConfig) -> None:
        """Read stores and apply those that have changed, unless newer settings have arrived meanwhile. What cannot be read for
        a reason that passes is read again."""
        try:
            exchanged = await wait_for(self._workers.submit(partial(stores.exchanged, config)))
        except Exception as error:
            is_of_settings = isinstance(error, ConfigError)
            may_pass = passes(error.__cause__ if is_of_settings else error)
            if not (is_of_settings or may_pass):
                raise
            if config is self._newest:
                outlook = " until they are read again" if may_pass else ""
                _log.error("%s; the stores of %s stay as they were%s", error, stores.name, outlook)
                if may_pass:
                    later(self._nursery, partial(self._read_again, stores, config)).unheeded(
                        f"reading the stores of {stores.name}"
                    )
            return
        if config is self._newest and exchanged is not None:
            stores.take(exchanged)
            _log.info("%s: other stores from now on", stores.name)

    async def _read_again(self, stores: ChangingStores, config: ServerConfig) -> None:
        await trio.sleep(READ_AGAIN_S)
        if config is self._newest:
            await self._read_stores(stores, config)

    def check_settings(self, config: ServerConfig) -> None:
        for stores in (*self._tls.values(), *self._dialled):
            stores.exchanged(config)

    def take_connection_creation_rates(self, rates: Mapping[str | None, int]) -> None:
        self._server.newcomers.take(rates)

    def listener_readings(self) -> Mapping[str, ListenerReading]:
        return self._server.listener_readings()

    def certificate_ends_s(self) -> Mapping[str, float]:
        return {name: self._tls[name].certificate_end_s for name in sorted(self._bound & self._tls.keys())}

    def memory_reading(self) -> MemoryReading | None:
        memory = self._server.memory
        return None if memory is None else memory.read()

    def drain(self, deadline_ms: int) -> Deferred[None]:
        return later(self._nursery, partial(self._server.drain, deadline_ms))

    def close_listeners(self) -> None:
        for listener in self._server.listeners:
            listener.close()


class NotYet:
    """The dispatcher of a server that does not serve yet."""

    def dispatch(self, connection: ConnectionInfo, frame: memoryview) -> Reply | Pending | None:
        raise RuntimeError("the server is not built")

    def connection_closed(self, connection: ConnectionInfo) -> None:
        """No connection was accepted."""
