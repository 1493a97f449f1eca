"""The server's side of a mechanism in one exchange, and its errors."""

from __future__ import annotations

from typing import Protocol


class SaslAuthenticationError(Exception):
    """The exchange has failed, and the client gets this text. `reason` is the text for the log."""

    def __init__(self, told: str, reason: str = "") -> None:
        super().__init__(told)
        self.reason = reason or told


class SaslError(Exception):
    """The exchange has failed. The client is told only that its credentials are invalid, because the text may reveal
    which users exist."""


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
