"""The client's side of SASL: authentication to a listener, and its result.

Pure: responses in, requests out. Follows Apache Kafka's SaslClientAuthenticator after the versions are known:
SaslHandshake 1, then SaslAuthenticate until both sides are done. No error text contains a secret.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from kafkacompat.wire.errors import ErrorCode, code_of
from kafkacompat.wire.tables import ApiKey

if TYPE_CHECKING:
    from ssl import SSLContext

    from kafkacompat.ports.network import ChangingStores
    from kafkacompat.wire.messages.sasl_authenticate_request import SaslAuthenticateRequest
    from kafkacompat.wire.messages.sasl_handshake_request import SaslHandshakeRequest
    from kafkacompat.wire.messages.sasl_handshake_response import SaslHandshakeResponse

SASL_VERSIONS: dict[int, int] = {ApiKey.SASL_HANDSHAKE: 1, ApiKey.SASL_AUTHENTICATE: 2}
"""The versions that the client uses, by API key. Every node with SASL supports them."""
REAUTHENTICATE_AFTER = 0.85
"""The fraction of a session's length after which the client re-authenticates. Apache Kafka's clients do so then at the
earliest."""


class AuthenticationFailed(Exception):
    """The server refuses this client, or cannot prove its own identity. A retry would have the same result."""


class SaslClient(Protocol):
    """One exchange with one mechanism."""

    def initial_response(self) -> bytes: ...

    def evaluate_challenge(self, challenge: bytes) -> bytes | None:
        """The next message, or None after the last one. Raises AuthenticationFailed."""
        ...


class PlainSaslClient:
    def __init__(self, user: str, password: str) -> None:
        from kafkacompat.security.sasl_server import initial_response

        self._message = initial_response(user, password)

    def initial_response(self) -> bytes:
        return self._message

    def evaluate_challenge(self, challenge: bytes) -> bytes | None:
        return None


class ClientSecurity:
    """How connections to a listener are made: encryption and credentials."""

    __slots__ = ("begin", "context", "mechanism", "stores")

    def __init__(
        self,
        context: SSLContext | None = None,
        mechanism: str = "",
        begin: Callable[[str], SaslClient] | None = None,
    ) -> None:
        """`context` None means no TLS. `begin` starts a new exchange with `mechanism` with a host, as it is
        named in the address; None means no SASL."""
        self.context = context
        self.mechanism = mechanism
        self.begin = begin
        self.stores: ChangingStores | None = None
        """Of a node's connections with TLS. They replace the context."""

    def take(self, other: ClientSecurity) -> None:
        """New connections are made as by the other."""
        self.context, self.mechanism, self.begin = other.context, other.mechanism, other.begin

    def authenticator(self, host: str) -> SaslClientAuthenticator | None:
        return None if self.begin is None else SaslClientAuthenticator(self.mechanism, self.begin(host))


NO_SECURITY = ClientSecurity()


class SaslClientAuthenticator:
    """The authentication of one connection, once. `step(None)` returns the first request. Then pass each response,
    until there is no next request."""

    __slots__ = ("_client", "_mechanism", "session_lifetime_ms")

    def __init__(self, mechanism: str, client: SaslClient) -> None:
        self._mechanism = mechanism
        self._client = client
        self.session_lifetime_ms = 0
        """The length of the session after the exchange. 0 means forever."""

    def step(self, response: Any) -> SaslHandshakeRequest | SaslAuthenticateRequest | None:
        """May take milliseconds to derive a key from a password, or wait for a server that issues tickets.
        Raises AuthenticationFailed."""
        # Most clients and nodes have no credentials, and start without these.
        from kafkacompat.wire.messages.sasl_authenticate_request import SaslAuthenticateRequest
        from kafkacompat.wire.messages.sasl_handshake_request import SaslHandshakeRequest

        if response is None:
            return SaslHandshakeRequest(mechanism=self._mechanism)
        if response.API_KEY == ApiKey.SASL_HANDSHAKE:
            self._check_handshake(response)
            return SaslAuthenticateRequest(auth_bytes=self._client.initial_response())
        assert response.API_KEY == ApiKey.SASL_AUTHENTICATE
        if response.error_code:
            told = response.error_message or code_of(response.error_code).name
            raise AuthenticationFailed(told)
        token = self._client.evaluate_challenge(bytes(response.auth_bytes))
        self.session_lifetime_ms = max(0, response.session_lifetime_ms)
        return None if token is None else SaslAuthenticateRequest(auth_bytes=token)

    def _check_handshake(self, response: SaslHandshakeResponse) -> None:
        if response.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
            enabled = ", ".join(response.mechanisms)
            raise AuthenticationFailed(
                f"the SASL mechanism {self._mechanism} is not enabled there: {enabled}"
            )
        if response.error_code == ErrorCode.ILLEGAL_SASL_STATE:
            raise AuthenticationFailed("there is a listener without SASL")
        if response.error_code:
            raise AuthenticationFailed(f"SaslHandshake is answered with error {response.error_code}")
