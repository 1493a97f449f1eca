"""A simulated node's access to the network, as ports.Network: its channels, and servers that take messages instead of
bytes.

A server passes each message to the handlers of its dispatcher, at the highest version. Messages of groups, and of
clients that authenticate themselves, pass through the dispatcher as frames. This module knows nothing of a node's parts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, cast

from kafkacompat.api.request_context import ControllerTimedOut, NotController, RequestContext
from kafkacompat.api.sasl_dispatch import SaslDispatcher
from kafkacompat.deferred import Deferred
from kafkacompat.net.channels import ConnectionLost
from kafkacompat.ports.dispatcher import CloseConnection, ConnectionInfo
from kafkacompat.ports.network import ListenerReading, MemoryReading
from kafkacompat.sim import frames, parked
from kafkacompat.sim.links import EXTERNAL_PORT, Connection, SimulatedChannels
from kafkacompat.wire.apis import response_class
from kafkacompat.wire.codec import decode, encode
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.envelope_request import EnvelopeRequest
from kafkacompat.wire.messages.fetch_response import FetchResponse
from kafkacompat.wire.messages.metadata_response import MetadataResponse

if TYPE_CHECKING:
    from kafkacompat.api.dispatch import ApiDispatcher
    from kafkacompat.api.registry import ApiTable
    from kafkacompat.config import EndPoint, ServerConfig
    from kafkacompat.ports.dispatcher import Dispatcher
    from kafkacompat.sim.cluster_life import Life

STAND_INS: dict[type[Exception], ErrorCode] = {
    NotController: ErrorCode.NOT_CONTROLLER,
    ControllerTimedOut: ErrorCode.REQUEST_TIMED_OUT,
    ConnectionLost: ErrorCode.UNKNOWN_SERVER_ERROR,
}
"""The same error codes as in api/dispatch."""
ADDRESS = "127.0.0.1"


class SimulatedNetwork:
    def __init__(self, life: Life) -> None:
        self._life = life
        self.channels = self.controller_channels = SimulatedChannels(life)

    def socket_server(self) -> SimulatedSocketServer:
        return SimulatedSocketServer(self._life)

    def own_name(self, endpoints: Iterable[EndPoint]) -> Deferred[str]:
        """No simulated listener uses all interfaces."""
        return Deferred.of("")

    def resolve(self, host: str) -> Deferred[str | None]:
        """Hosts have addresses only."""
        return Deferred.of(None)


class SimulatedSocketServer:
    def __init__(self, life: Life) -> None:
        self._life = life
        self.dispatcher: Dispatcher = cast(Any, None)
        self._listeners: dict[int, EndPoint] = {}
        """By port."""
        self.serves = False
        """True while requests are accepted."""
        self._waiting: list[Callable[[], None]] = []
        """Requests that arrived before the server accepted them."""
        self._connections: dict[int, Connection] = {}
        self._drained: Deferred[None] | None = None

    def bind(self, endpoints: Iterable[EndPoint]) -> Deferred[tuple[EndPoint, ...]]:
        bound = tuple(endpoints)
        for each in bound:
            self._listeners[each.port] = each
            # A listener for clients of another network, which is not simulated. Connections to it are refused.
            if each.port != EXTERNAL_PORT:
                self._life.listening[each.port] = self
        return Deferred.of(bound)

    def serve(self) -> Deferred[None]:
        self.serves = True
        waiting, self._waiting = self._waiting, []
        for call in waiting:
            call()
        return Deferred.of(None)

    def hold(self, listeners: Collection[str]) -> None:
        """Do nothing: only listeners with port 0 are bound before they are served."""

    def take_settings(self, config: ServerConfig) -> None:
        """Do nothing: connections are not limited here."""

    def check_settings(self, config: ServerConfig) -> None:
        """Do nothing: there are no stores."""

    def take_connection_creation_rates(self, rates: Mapping[str | None, int]) -> None:
        """Do nothing: connections are not limited here."""

    def drain(self, deadline_ms: int) -> Deferred[None]:
        self.close_listeners()
        self._drained = Deferred()
        for connection in list(self._connections.values()):
            connection.drain()
        self._life.call_after(deadline_ms, self._close_all)
        self._maybe_drained()
        return self._drained

    def listener_readings(self) -> dict[str, ListenerReading]:
        """Nobody scrapes a simulated node."""
        return {}

    def certificate_ends_s(self) -> dict[str, float]:
        return {}

    def memory_reading(self) -> MemoryReading | None:
        return None

    def close_listeners(self) -> None:
        for port in self._listeners:
            self._life.listening.pop(port, None)

    def _close_all(self) -> None:
        for connection in list(self._connections.values()):
            connection.close_by_server()

    def _maybe_drained(self) -> None:
        if self._drained is not None and not self._drained.done and not self._connections:
            self._drained.resolve(None)

    # Events of connections.

    def opened(self, connection: Connection) -> ConnectionInfo:
        self._connections[connection.id] = connection
        listener = self._listeners[connection.port]
        return ConnectionInfo(connection.id, listener.listener_name, ADDRESS, 0, listener.is_sasl)

    def closed(self, connection: Connection) -> None:
        if self._connections.pop(connection.id, None) is not None:
            if self.serves:
                self.dispatcher.connection_closed(connection.info)
            self._maybe_drained()

    def asked(self, connection: Connection, message: Any, answered: Callable[[Any], None]) -> None:
        if self.serves:
            self._begin(connection, message, answered)
        else:
            self._waiting.append(lambda: self._begin(connection, message, answered))

    def _begin(self, connection: Connection, message: Any, answered: Callable[[Any], None]) -> None:
        timer = parked.watch(self._life, connection, message)
        if timer is None:
            self._carry_out(connection, message, answered)
            return

        def in_time(response: Any) -> None:
            timer.cancel()
            answered(response)

        self._carry_out(connection, message, in_time)

    def _carry_out(self, connection: Connection, message: Any, answered: Callable[[Any], None]) -> None:
        if frames.is_framed(connection):
            frames.carry_out(self.dispatcher, connection, message, answered)
            return
        life = self._life
        dispatcher = served_by(self.dispatcher)
        context = context_of(message, connection.info, dispatcher.table)
        oracles = life.simulation.client_oracles
        is_forwarded = isinstance(message, EnvelopeRequest)
        asked = life.simulation.rights_oracle.forwarded(life, message) if is_forwarded else None

        def done(answer: Deferred[Any]) -> None:
            try:
                response = answer.result()
            except CloseConnection:
                connection.close_by_server()
                return
            except OSError:
                handler = dispatcher.table.load(message.API_KEY)
                response = handler.error_response(message, ErrorCode.KAFKA_STORAGE_ERROR, context.api_version)
            except (NotController, ControllerTimedOut, ConnectionLost) as error:
                if isinstance(error, ConnectionLost) and not life.is_stopping:
                    raise
                handler = dispatcher.table.load(message.API_KEY)
                response = handler.error_response(message, STAND_INS[type(error)], context.api_version)
            if isinstance(response, FetchResponse):
                try:
                    read_records(response)
                except OSError:
                    # As if the kernel could not read the file to send.
                    connection.close_by_server()
                    return
            elif isinstance(response, MetadataResponse):
                response = copied(response, message)
            oracles.answered(life, message, response)
            if asked is not None:
                life.simulation.rights_oracle.unwrapped(asked, response)
            answered(response)

        dispatcher.call(context, message).on_done(done)


def served_by(dispatcher: Dispatcher) -> ApiDispatcher:
    """Return the dispatcher that carries requests out, without the one that authenticates their clients."""
    return cast("ApiDispatcher", dispatcher.served if isinstance(dispatcher, SaslDispatcher) else dispatcher)


def context_of(message: Any, connection: ConnectionInfo, table: ApiTable) -> RequestContext:
    """Return a context with the highest served version. For some APIs Kafka defines a version that it does not serve yet."""
    return RequestContext(
        message.API_KEY,
        min(message.MAX_VERSION, table.by_key[message.API_KEY].max_version),
        0,
        None,
        connection.connection_id,
        connection.listener_name,
        connection.client_host,
    )


def read_records(response: FetchResponse) -> None:
    """Read the records, as sending them through the socket would."""
    for topic in response.responses:
        for partition in topic.partitions:
            if partition.records is not None and not isinstance(partition.records, bytes):
                partition.records = partition.records.read()


def copied(response: Any, request: Any) -> Any:
    """Encode and decode the response, because parts of it are already encoded."""
    version = request.MAX_VERSION
    return decode(response_class(request.API_KEY), version, bytes(encode(response, version)))
