"""The sender, connection and version of a request, and the errors that any request to a controller may raise."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkacompat.ports.dispatcher import ANONYMOUS, Principal

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkacompat.ports.dispatcher import Throttling

NO_CONNECTION = -1
"""The connection id of requests that this node sends to itself."""


class NotController(Exception):
    """This node is not the active controller, or lost that role before the records were committed (error NOT_CONTROLLER)."""


class ControllerTimedOut(Exception):
    """No active controller answered in time (error REQUEST_TIMED_OUT); the request may have been carried out."""


class RequestContext:
    """The sender, connection and version of one request."""

    __slots__ = (
        "again",
        "api_key",
        "api_version",
        "client_host",
        "client_id",
        "client_port",
        "client_software",
        "connection_id",
        "connection_software",
        "correlation_id",
        "is_forwarded",
        "listener_is_sasl",
        "listener_name",
        "principal",
        "size_bytes",
        "started_s",
        "throttling",
        "waits_since_s",
    )

    def __init__(
        self,
        api_key: int,
        api_version: int,
        correlation_id: int,
        client_id: str | None,
        connection_id: int,
        listener_name: str,
        client_host: str,
        listener_is_sasl: bool = False,
        principal: Principal = ANONYMOUS,
        client_port: int = 0,
        connection_software: str | None = None,
    ) -> None:
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.connection_id = connection_id
        self.listener_name = listener_name
        self.client_host = client_host
        """Textual address, e.g. '127.0.0.1'."""
        self.listener_is_sasl = listener_is_sasl
        self.principal = principal
        self.client_port = client_port
        self.connection_software = connection_software
        """'name version', as the connection's ApiVersions request said. None without one."""
        self.is_forwarded = False
        """Whether the request came in an Envelope, so that the connection is a broker's and not the client's."""
        self.throttling: Throttling | None = None
        """None if no quota applies to the request, or it is recorded already. The next three are set with it."""
        self.size_bytes: int
        """What counts of the request's size, without its prefix."""
        self.started_s: float
        """When it was received, in seconds of the monotonic clock."""
        self.waits_since_s: float | None
        """When it had used its time of the loop, and only waits. None: it does not wait."""
        self.client_software: tuple[str, str] | None = None
        """Name and version. Only the context of an ApiVersions request has them."""
        self.again: Callable[[], bool] | None = None
        """Set by a handler that says so (Handler.repeats), if the same request from the same host would get the same answer.
        A call carries the request out once more if that is still so, and otherwise does nothing and returns False. The answer
        has no error. It is not called for a sender with a quota or rights."""
