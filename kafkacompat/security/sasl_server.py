"""The server's side of a mechanism in one exchange, its errors, and the simplest mechanism: PLAIN (RFC 4616). Pure."""

from __future__ import annotations

from collections.abc import Mapping
from hmac import compare_digest
from typing import Protocol


class SaslAuthenticationError(Exception):
    """Fails the exchange with a text for the client. `reason` is the text for the log.

    Kafka's SaslAuthenticationException. The text must not reveal which users exist.
    """

    def __init__(self, told: str, reason: str = "") -> None:
        super().__init__(told)
        self.reason = reason or told


class SaslError(Exception):
    """Fails the exchange with a text for the log only.

    Java's SaslException. The client is told only that its credentials are invalid, because the text may reveal which users
    exist.
    """


class Nameless(Exception):
    """No rule gives an authenticated client a user's name. The text is for the log."""


class SaslServer(Protocol):
    """One exchange. It is not called again after an error."""

    @property
    def authorization_id(self) -> str | None:
        """The user's name, once the exchange is complete."""
        ...

    @property
    def lifetime_ms(self) -> int | None:
        """How long the client's credentials are valid, counted from the end of the exchange. None means forever
        (KIP-368)."""
        ...

    @property
    def token_authenticated(self) -> bool:
        """Whether the client has shown a delegation token. Known once the exchange is complete."""
        ...

    def evaluate_response(self, response: bytes) -> bytes | None:
        """The answer to the client. None if the mechanism has no last message: without request headers, nothing is sent.
        Raises SaslAuthenticationError or SaslError."""
        ...


PLAIN = "PLAIN"
USER_PREFIX = "user_"
"""Options of the login module with this prefix define users: user_alice="her password"."""
_PARTS = 3
_FAILED = "Authentication failed: "


class PlainSaslServer:
    """`options` are those of the server's login module."""

    __slots__ = ("_options", "authorization_id", "lifetime_ms", "token_authenticated")

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = options
        self.authorization_id: str | None = None
        self.lifetime_ms: int | None = None
        self.token_authenticated = False

    def evaluate_response(self, response: bytes) -> bytes:
        parts = response.decode("utf-8", "replace").split("\0", _PARTS)
        if len(parts) != _PARTS:
            raise SaslAuthenticationError(
                f"Invalid SASL/PLAIN response: expected {_PARTS} tokens, got {len(parts)}"
            )
        authorization_id, user, password = parts
        if not user:
            raise SaslAuthenticationError(_FAILED + "username not specified")
        if not password:
            raise SaslAuthenticationError(_FAILED + "password not specified")
        expected = self._options.get(USER_PREFIX + user)
        if expected is None or not compare_digest(password.encode(), expected.encode()):
            raise SaslAuthenticationError(_FAILED + "Invalid username or password")
        if authorization_id not in ("", user):
            raise SaslAuthenticationError(
                _FAILED + "Client requested an authorization id that is different from username"
            )
        self.authorization_id = user
        return b""


def initial_response(user: str, password: str) -> bytes:
    """The client's message."""
    return f"\0{user}\0{password}".encode()
