"""The interfaces to other nodes and to clients: channels for outgoing requests, listeners for incoming ones.

Protocols and their values; nothing here acts. The implementations are in net and in the simulator.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from ssl import SSLContext

    from kafkacompat.config import EndPoint, ServerConfig
    from kafkacompat.deferred import Deferred
    from kafkacompat.ports.dispatcher import ConnectionInfo, Dispatcher


class ProbeResult(enum.Enum):
    CONNECTED = "somebody accepts connections there"
    REFUSED = "the host is there and nobody listens"
    UNREACHABLE = "no answer, no way there or no such host"


Counted = tuple[int, float]
"""Number of events since the start, and events per second in the last 30 to 60 seconds."""


class ListenerReading(NamedTuple):
    """Connections and authentications of one listener."""

    present: int
    """Open connections."""
    created: Counted
    closed: Counted
    expired: int
    """Connections closed because their session was over (connections.max.reauth.ms)."""
    authenticated: Counted
    not_authenticated: Counted
    """TLS handshakes that failed too."""
    authenticated_again: Counted
    """KIP-368."""
    not_authenticated_again: Counted
    authenticated_once: int
    """Clients that cannot authenticate again: those of TLS, and of versions before KIP-368."""
    reauthentication_ms: tuple[float, float]
    """Mean and longest time in the last minute; NaN: none."""
    received_bytes: Counted
    """Without the bytes that encryption adds, as all bytes here."""
    sent_bytes: Counted
    requests: Counted
    responses: Counted
    """Those that were sent, or are about to be."""
    response_bytes: float
    """The mean size of the last 30 to 60 seconds; NaN: none."""
    largest_response_bytes: float
    """Of the last minute, or since the last reading; NaN: none."""
    software: Mapping[tuple[str, str], int]
    """Open connections by name and version of the client's software. `("unknown", "unknown")` before the client has told it."""
    accept_throttle_ms: float
    """The mean of the last minute, of the connections that had to wait for a connection rate; NaN: none."""
    address_throttle_ms: float
    """The same of those that were over the rate of their address, and were not let in."""


class MemoryReading(NamedTuple):
    """The memory for requests that are being received (queued.max.request.bytes). Of all listeners of a role."""

    available_bytes: int
    used_bytes: int


class Channel(Protocol):
    """A connection to one address for one purpose, established on demand. Requests are answered in order."""

    on_refused: Callable[[], None] | None
    """Called when a lost connection is refused on reconnect, because no process listens there any more."""

    @property
    def is_closed(self) -> bool: ...

    def peer_versions(self, api_key: int) -> tuple[int, int] | None:
        """The versions that the peer supports. None while unknown."""
        ...

    def request(self, message: Any, timeout_ms: int, *, max_version: int | None = None) -> Deferred[Any]:
        """The response. Fails with a ChannelError (net.failures)."""
        ...

    def close(self) -> None: ...


class Channels(Protocol):
    """All channels from this node to others."""

    def get(self, host: str, port: int, purpose: str, *, client_id: str | None = None) -> Channel:
        """The channel for this purpose to this address, created if necessary."""
        ...

    def probe(self, host: str, port: int, timeout_ms: int) -> Deferred[ProbeResult]:
        """The outcome of a connection attempt. Never fails."""
        ...

    def close_all(self) -> None:
        """Close all channels for good."""
        ...


class SocketServer(Protocol):
    """Listeners and their connections. Call `bind`, `serve` and `drain` in this order, `serve` and `drain` once each."""

    def bind(self, endpoints: Iterable[EndPoint]) -> Deferred[tuple[EndPoint, ...]]:
        """Listen on all endpoints, or on none. Returns the endpoints with the ports actually bound. Clients wait until
        `serve`. Listeners that are bound later are served at once. Fails with OSError that names the setting, or
        ConfigError."""
        ...

    def serve(self, dispatcher: Dispatcher) -> Deferred[None]:
        """Pass requests to the dispatcher. Resolves when they are accepted."""
        ...

    def redirect(self, dispatcher: Dispatcher) -> None:
        """Pass requests to another dispatcher than `serve` has named, those of open connections too. What waits for the last one
        is answered by it."""
        ...

    def hold(self, listeners: Collection[str]) -> None:
        """Let the clients of these listeners wait, and those of no others."""
        ...

    def take_settings(self, config: ServerConfig) -> None:
        """Apply settings. Bounds of connections apply at once. Changed stores, in a setting or in their file, apply to
        new connections."""
        ...

    def check_settings(self, config: ServerConfig) -> None:
        """Raise ConfigError for stores that `take_settings` would refuse."""
        ...

    def take_connection_creation_rates(self, rates: Mapping[str | None, int]) -> None:
        """Replace the bounds of new connections per second by client address or host name. None: of all other addresses.
        Bounds of addresses apply at once, those of host names once they are resolved."""
        ...

    def listener_readings(self) -> Mapping[str, ListenerReading]:
        """What each listener has counted, by its name."""
        ...

    def certificate_ends_s(self) -> Mapping[str, float]:
        """When the certificate ends that a listener with TLS shows to new clients, or the first one of its chain, in
        seconds since 1970. By the listener's name."""
        ...

    def memory_reading(self) -> MemoryReading | None:
        """None: the memory is not bounded."""
        ...

    def drain(self, deadline_ms: int) -> Deferred[None]:
        """Stop accepting and reading, answer the received requests, close all connections. At the deadline close the
        rest."""
        ...

    def close_listeners(self) -> None:
        """For a server that will not serve."""
        ...


class Network(Protocol):
    """A node's part of the network."""

    @property
    def channels(self) -> Channels:
        """To brokers' inter-broker listeners."""
        ...

    @property
    def controller_channels(self) -> Channels:
        """To controllers."""
        ...

    def socket_server(self) -> SocketServer: ...

    def own_name(self, endpoints: Iterable[EndPoint]) -> Deferred[str]:
        """This machine's full host name, for endpoints without a host. Empty if every endpoint has one."""
        ...

    def resolve(self, host: str) -> Deferred[str | None]:
        """The first address of a host, in text. None if the host is unknown. Never fails."""
        ...


class Unidentified(Exception):
    """The client's certificate gives no principal, so the client is not served. The text has the reason."""


class ChangingStores(Protocol):
    """Stores that may change while a node runs."""

    name: str
    """Whose they are, for the log."""

    def exchanged(self, config: ServerConfig) -> object | None:
        """The terms under these settings, for `take`. None if no store has changed, in a setting or in its file. Reads
        files: for a worker. Raises ConfigError."""
        ...

    def take(self, exchanged: Any) -> None:
        """Apply the terms to new connections."""
        ...


class TlsTerms(ChangingStores, Protocol):
    """The terms of one listener. They are read for each new connection."""

    @property
    def context(self) -> SSLContext: ...

    @property
    def certificate_end_s(self) -> float:
        """When the first certificate ends of the chain that clients are shown, in seconds since 1970."""
        ...

    def identify(self, connection: ConnectionInfo, certificate: bytes | None) -> None:
        """After the handshake, give the connection the principal of its client's certificate. Raises Unidentified."""
        ...
