"""What a connection hands requests to. Declarations only: the network knows no API, the dispatcher no socket."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from kafkacompat.deferred import Deferred
from kafkacompat.ports.files import FileSlice

ReplyPart = bytes | bytearray | memoryview | FileSlice
"""A run of bytes of a reply; memory stays unchanged until it is sent."""

Reply = list[ReplyPart]
"""A whole response with its 4-byte size prefix."""


class CloseConnection(Exception):
    """Raised by a dispatcher, or as the failure of its reply: close this connection, as Kafka does instead of answering."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(slots=True)
class Pending:
    """A reply that comes later; None when the request gets none."""

    reply: Deferred[Reply | None]
    blocks: bool
    """True: the connection's next request waits for this reply, as in Kafka. False for a produce that waits for replicas:
    later requests are dispatched, their replies held back until this one has left."""


class ConnectionInfo:
    """Who is at the other end, as far as the network knows."""

    __slots__ = (
        "client_host",
        "client_port",
        "client_software",
        "connection_id",
        "listener_is_sasl",
        "listener_name",
    )

    def __init__(
        self,
        connection_id: int,
        listener_name: str,
        client_host: str,
        client_port: int,
        listener_is_sasl: bool = False,
        client_software: str | None = None,
    ) -> None:
        self.connection_id = connection_id
        """Unique while the server lives."""
        self.listener_name = listener_name
        self.client_host = client_host
        """Textual address, e.g. '127.0.0.1'."""
        self.client_port = client_port
        self.listener_is_sasl = listener_is_sasl
        self.client_software = client_software
        """Set by whoever handles ApiVersions."""

    def __str__(self) -> str:
        return f"connection {self.connection_id} of {self.client_host}:{self.client_port} on {self.listener_name}"


class Dispatcher(Protocol):
    """Synchronous: called in the loop's thread, in the order in which a connection's requests came."""

    def dispatch(self, connection: ConnectionInfo, frame: memoryview) -> Reply | Pending | None:
        """Handle one request (without its size prefix). None: no reply, as for acks=0.

        `frame` is writable and lies in the receive buffer: valid until this returns or, for a blocking Pending, until its
        reply is done; what is kept longer is copied. Raises CloseConnection or WireError to close the connection.
        """
        ...

    def connection_closed(self, connection: ConnectionInfo) -> None:
        """Called once for every connection, whatever ended it; replies still pending will not be sent."""
        ...
