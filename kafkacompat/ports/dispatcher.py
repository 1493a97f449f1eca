"""The interface between connections and request handling. Declarations only: the network knows no API, and the
dispatcher no socket."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from kafkacompat.addresses import host_and_port
from kafkacompat.dataclass import dataclass
from kafkacompat.deferred import Deferred
from kafkacompat.ports.files import FileSlice

ReplyPart = bytes | bytearray | memoryview | FileSlice
"""A part of a reply. Its memory must not change until it is sent."""

Reply = list[ReplyPart]
"""A whole response with its 4-byte size prefix."""


class CloseConnection(Exception):
    """Raised by a dispatcher, or the failure of its reply: close this connection, as Kafka does in place of an answer."""

    def __init__(self, reason: str, last_reply: Reply | None = None) -> None:
        """`last_reply` is sent before the connection is closed."""
        super().__init__(reason)
        self.reason = reason
        self.last_reply = last_reply


@dataclass(slots=True)
class Pending:
    """A reply that comes later. None if the request gets no reply."""

    reply: Deferred[Reply | None]
    blocks: bool
    """True: the connection's next request waits for this reply, as in Kafka. False for a produce that waits for
    replicas: later requests are dispatched, and their replies are held back until this one is sent."""


class Principal(NamedTuple):
    """The principal of a client: type and name. 'User' and 'ANONYMOUS' without authentication."""

    type: str
    name: str
    token_authenticated: bool = False


ANONYMOUS = Principal("User", "ANONYMOUS")


class Timings(Protocol):
    """Told when replies of a connection leave, while times are taken of one of them."""

    def add(self, mark: Any) -> None:
        """Take the times of one more request."""
        ...

    def sending(self) -> None:
        """What is ready is about to be sent."""
        ...

    def sent(self, waiting: int) -> None:
        """Everything ready is sent. `waiting`: replies that are not there yet, or wait behind one that is not."""
        ...


class ListenerCounts(Protocol):
    """Counts what happens on the connections of a listener."""

    received_bytes: int
    sent_bytes: int
    requests: int
    responses: int
    largest_response: int
    """Bytes of the largest one since somebody has last looked."""

    def software_told(self, before: str | None, software: str) -> None:
        """A client has told the name and version of its software, after another one, if `before` is not None."""
        ...

    # `again`: of a client that was authenticated before (KIP-368).

    def authenticated(self, now_ms: int, *, may_again: bool = False, began_ms: int | None = None) -> None:
        """`may_again`: the client knows how to authenticate again. `began_ms`: it did so now, since then."""
        ...

    def not_authenticated(self, now_ms: int, *, again: bool = False) -> None: ...

    def session_ended(self) -> None:
        """A connection is closed because its client goes on without authenticating again."""
        ...


class ConnectionInfo:
    """The client of a connection, as far as the network knows it."""

    __slots__ = (
        "client_host",
        "client_id",
        "client_id_bytes",
        "client_port",
        "client_software",
        "connection_id",
        "listener_is_sasl",
        "listener_name",
        "meter",
        "on_authentication",
        "on_throttled",
        "principal",
        "read_s",
        "tagged_client_id_bytes",
        "throttling",
        "timings",
    )

    def __init__(
        self,
        connection_id: int,
        listener_name: str,
        client_host: str,
        client_port: int,
        listener_is_sasl: bool = False,
        client_software: str | None = None,
        principal: Principal = ANONYMOUS,
    ) -> None:
        self.connection_id = connection_id
        """Unique during the life of the server."""
        self.listener_name = listener_name
        self.client_host = client_host
        """The address as text, for example '127.0.0.1'."""
        self.client_port = client_port
        self.listener_is_sasl = listener_is_sasl
        self.client_software = client_software
        """Name and version, with a space between them. Set by `tell_software`."""
        self.principal = principal
        """On a listener with TLS the network sets it, on one with SASL the authentication."""
        self.read_s = 0.0
        """When the connection was last found to have something to read, in seconds of the monotonic clock; 0: never."""
        self.timings: Timings | None = None
        """Set by the dispatcher while times are taken of a request of this connection."""
        self.meter: ListenerCounts | None = None
        """Of the listener. None if nobody counts."""
        self.on_authentication: Callable[[bool], None] | None = None
        """On a listener with SASL, called when the client is authenticated, or must authenticate again. The allowed
        requests change with it."""

        self.on_throttled: Callable[[int], None] | None = None
        """Stops the connection's requests for some milliseconds. None if the network cannot."""
        self.throttling: Any = None
        """Kept by the dispatcher: what the quotas do to requests like the last one."""
        self.client_id: str | None = None
        self.client_id_bytes: bytes | None = None
        self.tagged_client_id_bytes: bytes | None = None
        """Kept by the dispatcher: the client id of the last request, and its bytes in the request's header, in one that has tagged
        fields with the count of none."""

    def tell_software(self, software: str) -> None:
        """The client has told it in ApiVersions."""
        if software != self.client_software:
            if self.meter is not None:
                self.meter.software_told(self.client_software, software)
            self.client_software = software

    def __str__(self) -> str:
        who = host_and_port(self.client_host, self.client_port)
        return f"connection {self.connection_id} of {who} on {self.listener_name}"


class Dispatcher(Protocol):
    """Synchronous: called in the loop's thread, in the order of a connection's requests."""

    def dispatch(self, connection: ConnectionInfo, frame: memoryview) -> Reply | Pending | None:
        """Handle one request (without its size prefix). Returns None if it gets no reply, as with acks=0.

        `frame` is writable and part of the receive buffer. It is valid until this returns or, for a blocking Pending,
        until its reply is done; copy what is needed longer. Raises CloseConnection or WireError to close the
        connection.
        """
        ...

    def connection_closed(self, connection: ConnectionInfo) -> None:
        """Called once for every connection, after any kind of end. Pending replies are not sent any more."""
        ...


class Throttling(Protocol):
    """The throttling of a request to which a quota applies."""

    fetch_bytes_max: int
    """The most that a fetch may return."""

    def waits(self, context: Any) -> None:
        """The request waits from now on. Its wait is not its time."""
        ...

    def fetched(self, context: Any, size_bytes: int) -> int:
        """Record a fetch response of this size, unless it is throttled. Returns the throttle time in milliseconds."""
        ...

    def tell(self, context: Any, answer: Any) -> None:
        """Record the request that has this answer, and write the throttle time into the answer."""
        ...
