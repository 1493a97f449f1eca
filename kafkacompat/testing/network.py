"""The network of a node under test. Its sockets are real, and belong to the thread: they outlive the node when another one takes
its place, so clients stay connected.

A socket server passes requests to whichever node serves. Between two nodes it holds them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import field
from typing import TYPE_CHECKING

from kafkacompat.dataclass import dataclass
from kafkacompat.deferred import Deferred
from kafkacompat.ports.dispatcher import CloseConnection, Pending
from kafkacompat.testing.around import PassedNetwork

if TYPE_CHECKING:
    from kafkacompat.config import EndPoint, ServerConfig
    from kafkacompat.ports import Network
    from kafkacompat.ports.dispatcher import ConnectionInfo, Dispatcher, Reply
    from kafkacompat.ports.network import ListenerReading, MemoryReading, SocketServer
    from kafkacompat.testing.transit import Transit

Wrap = Callable[["Dispatcher"], "Dispatcher"]
"""What stands between the connections of a socket server and its node."""
REPLACED = "another node has taken the place of this one"


@dataclass(slots=True)
class Held:
    """A request that waits for the next node."""

    connection: ConnectionInfo
    frame: memoryview
    reply: Deferred[Reply | None] = field(default_factory=Deferred)


class Switch:
    """Passes requests to the present node's dispatcher. While there is none, requests wait."""

    def __init__(self) -> None:
        self._serving: Dispatcher | None = None
        self._connections: dict[int, ConnectionInfo] = {}
        """Those that have sent a request."""
        self._unauthenticated: set[int] = set()
        """Those whose authentication the present node does not know."""
        self._held: list[Held] = []
        self._pending: dict[Deferred[Reply | None], None] = {}
        """Replies that the present node owes."""

    def dispatch(self, connection: ConnectionInfo, frame: memoryview) -> Reply | Pending | None:
        self._connections[connection.connection_id] = connection
        if self._serving is None:
            held = Held(connection, frame)
            self._held.append(held)
            return Pending(held.reply, blocks=True)
        return self._pass(self._serving, connection, frame)

    def _pass(
        self, serving: Dispatcher, connection: ConnectionInfo, frame: memoryview
    ) -> Reply | Pending | None:
        if connection.connection_id in self._unauthenticated:
            raise CloseConnection(REPLACED)
        reply = serving.dispatch(connection, frame)
        if isinstance(reply, Pending) and not reply.reply.done:
            self._pending[reply.reply] = None
            reply.reply.on_done(self._settled)
        return reply

    def _settled(self, reply: Deferred[Reply | None]) -> None:
        self._pending.pop(reply, None)

    def connection_closed(self, connection: ConnectionInfo) -> None:
        self._connections.pop(connection.connection_id, None)
        self._unauthenticated.discard(connection.connection_id)
        self._held = [each for each in self._held if each.connection is not connection]
        if self._serving is not None:
            self._serving.connection_closed(connection)

    def hold(self) -> None:
        """The present node is gone: whoever waits for it is disconnected, and what comes is held."""
        self._serving = None
        for connection in self._connections.values():
            connection.throttling = connection.timings = None
            if connection.listener_is_sasl:
                self._unauthenticated.add(connection.connection_id)
        pending, self._pending = self._pending, {}
        for reply in pending:
            reply.fail(CloseConnection(REPLACED))

    def serve(self, dispatcher: Dispatcher) -> None:
        self._serving = dispatcher
        held, self._held = self._held, []
        for each in held:
            try:
                reply = self._pass(dispatcher, each.connection, each.frame)
            except Exception as refusal:
                each.reply.fail(refusal)
                continue
            if isinstance(reply, Pending):
                reply.reply.pass_to(each.reply)
            else:
                each.reply.resolve(reply)


class KeptServer:
    """ports.SocketServer of all nodes that serve one after another."""

    def __init__(self, inner: SocketServer, wrap: Wrap, transit: Transit) -> None:
        self._inner = inner
        self._wrap = wrap
        self._transit = transit
        self._switch = Switch()
        self._bound: dict[str, EndPoint] = {}
        self._serves = False

    def bind(self, endpoints: Iterable[EndPoint]) -> Deferred[tuple[EndPoint, ...]]:
        wanted = tuple(endpoints)
        missing = [each for each in wanted if each.listener_name not in self._bound]

        def bound(new: tuple[EndPoint, ...]) -> tuple[EndPoint, ...]:
            self._bound.update((each.listener_name, each) for each in new)
            return tuple(self._bound[each.listener_name] for each in wanted)

        return (self._inner.bind(missing) if missing else Deferred.of(())).then(bound)

    def serve(self, dispatcher: Dispatcher) -> Deferred[None]:
        self._switch.serve(self._wrap(dispatcher))
        if self._serves:
            return Deferred.of(None)
        self._serves = True
        return self._inner.serve(self._transit.dispatcher(self._switch))

    def redirect(self, dispatcher: Dispatcher) -> None:
        self._switch.serve(self._wrap(dispatcher))

    def node_is_gone(self, config: ServerConfig) -> None:
        """Keep the connections for the next node. What was set while the last one ran is undone."""
        self._switch.hold()
        self._inner.hold(())
        self._inner.take_settings(config)
        self._inner.take_connection_creation_rates({})

    def hold(self, listeners: Collection[str]) -> None:
        self._inner.hold(listeners)

    def take_settings(self, config: ServerConfig) -> None:
        self._inner.take_settings(config)

    def check_settings(self, config: ServerConfig) -> None:
        self._inner.check_settings(config)

    def take_connection_creation_rates(self, rates: Mapping[str | None, int]) -> None:
        self._inner.take_connection_creation_rates(rates)

    def listener_readings(self) -> Mapping[str, ListenerReading]:
        return self._inner.listener_readings()

    def certificate_ends_s(self) -> Mapping[str, float]:
        return self._inner.certificate_ends_s()

    def memory_reading(self) -> MemoryReading | None:
        return self._inner.memory_reading()

    def drain(self, deadline_ms: int) -> Deferred[None]:
        return self._inner.drain(deadline_ms)

    def close_listeners(self) -> None:
        self._inner.close_listeners()


class KeptServers:
    """The socket servers of a thread: a node asks for one for each of its roles, always in the same order."""

    def __init__(self, network: Network, wrap: Wrap, transit: Transit) -> None:
        self._network = network
        self._wrap = wrap
        self._transit = transit
        self._servers: list[KeptServer] = []
        self._asked = 0

    def next(self) -> KeptServer:
        if self._asked == len(self._servers):
            self._servers.append(KeptServer(self._network.socket_server(), self._wrap, self._transit))
        self._asked += 1
        return self._servers[self._asked - 1]

    def node_is_gone(self, config: ServerConfig) -> None:
        self._asked = 0
        for each in self._servers:
            each.node_is_gone(config)


class TestNetwork(PassedNetwork):
    """ports.Network of one node: its own channels, and the thread's socket servers."""

    __test__ = False

    def __init__(self, inner: Network, servers: KeptServers) -> None:
        super().__init__(inner)
        self._servers = servers

    def socket_server(self) -> SocketServer:
        return self._servers.next()
