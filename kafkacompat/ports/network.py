"""The doors to other nodes and to clients: channels that ask, listeners that are asked.

Protocols, the values that cross them, and nothing that acts. Implementations live in net and in the simulator.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from kafkacompat.config import EndPoint, ServerConfig
    from kafkacompat.deferred import Deferred
    from kafkacompat.ports.dispatcher import Dispatcher


class ProbeResult(enum.Enum):
    CONNECTED = "somebody accepts connections there"
    REFUSED = "the host is there and nobody listens"
    UNREACHABLE = "no answer, no way there or no such host"


class Channel(Protocol):
    """A way to one address for one purpose, connected when it is needed. Requests are answered in their order."""

    on_refused: Callable[[], None] | None
    """Told when a connection that was lost cannot be had again, for nobody listens there any more."""

    @property
    def is_closed(self) -> bool: ...

    def peer_versions(self, api_key: int) -> tuple[int, int] | None:
        """What the other side serves; None while that is not known."""
        ...

    def request(self, message: Any, timeout_ms: int, *, max_version: int | None = None) -> Deferred[Any]:
        """The response; fails with a ChannelError (net.failures)."""
        ...

    def close(self) -> None: ...


class Channels(Protocol):
    """All ways from this node to others."""

    def get(self, host: str, port: int, purpose: str, *, client_id: str | None = None) -> Channel:
        """The channel of this purpose to this address, made if need be."""
        ...

    def probe(self, host: str, port: int, timeout_ms: int) -> Deferred[ProbeResult]:
        """What becomes of a connection attempt; never fails."""
        ...

    def close_all(self) -> None:
        """For good."""
        ...


class SocketServer(Protocol):
    """Listeners and their connections. `bind`, then `serve`, then `drain`; each once."""

    dispatcher: Dispatcher
    """Who carries requests out; there before `serve`."""

    def bind(self, endpoints: Iterable[EndPoint]) -> Deferred[tuple[EndPoint, ...]]:
        """Listen on all, or on none; the endpoints with the ports really bound. Clients wait until `serve`. Fails with OSError
        naming the setting, or ConfigError."""
        ...

    def serve(self) -> Deferred[None]:
        """There once requests are taken."""
        ...

    def take_settings(self, config: ServerConfig) -> None:
        """Bounds of connections hold from now on."""
        ...

    def drain(self, deadline_ms: int) -> Deferred[None]:
        """Accept and read nothing more, answer what was received, close all; after the deadline whatever is left."""
        ...

    def close_listeners(self) -> None:
        """Of a server that does not come to serve."""
        ...


class Network(Protocol):
    """A node's share of the network."""

    @property
    def channels(self) -> Channels: ...

    def socket_server(self) -> SocketServer: ...

    def own_name(self, endpoints: Iterable[EndPoint]) -> Deferred[str]:
        """This machine's full name, for endpoints without a host; empty where none is without."""
        ...
