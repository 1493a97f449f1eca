"""The requirements of a listener with TLS for its clients. Declarations only: the network knows no setting and no
store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from ssl import SSLContext

    from kafkacompat.config import ServerConfig
    from kafkacompat.ports.dispatcher import ConnectionInfo


class Unidentified(Exception):
    """The client's certificate gives no principal, so the client is not served. The text has the reason."""


class TlsTerms(Protocol):
    """The terms of one listener. They are read for each new connection, because stores may change while a node runs."""

    @property
    def context(self) -> SSLContext: ...

    @property
    def certificate_end_s(self) -> float:
        """When the first certificate ends of the chain that clients are shown, in seconds since 1970."""
        ...

    def identify(self, connection: ConnectionInfo, certificate: bytes | None) -> None:
        """After the handshake, give the connection the principal of its client's certificate. Raises Unidentified."""
        ...

    def exchanged(self, config: ServerConfig) -> object | None:
        """The terms under these settings, for `take`. None if no store has changed, in a setting or in its file. Reads
        files: for a worker. Raises ConfigError."""
        ...

    def take(self, exchanged: Any) -> None:
        """Apply the terms to new connections."""
        ...
