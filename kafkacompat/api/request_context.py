"""Who asks, where, in which version; and what anybody who asks a controller may meet."""

from __future__ import annotations

from typing import NamedTuple

NO_CONNECTION = -1
"""The connection id of a request that this node makes of itself."""


class NotController(Exception):
    """This node is not the active controller, or ceased to be it before the records were committed (error NOT_CONTROLLER)."""


class ControllerTimedOut(Exception):
    """No active controller answered in time (error REQUEST_TIMED_OUT); the request may have been carried out."""


class Principal(NamedTuple):
    """Who asks, as security knows it: type and name, 'User' and 'ANONYMOUS' where nobody said."""

    type: str
    name: str
    token_authenticated: bool = False


ANONYMOUS = Principal("User", "ANONYMOUS")


class RequestContext:
    """One request's envelope: who asks, where, in which version."""

    __slots__ = (
        "api_key",
        "api_version",
        "client_host",
        "client_id",
        "client_software",
        "connection_id",
        "correlation_id",
        "listener_is_sasl",
        "listener_name",
        "principal",
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
        self.client_software: tuple[str, str] | None = None
        """Name and version, known from an ApiVersions request itself."""
