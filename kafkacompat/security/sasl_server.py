"""A mechanism's side of the server in one exchange, and how an exchange fails."""

from __future__ import annotations

from typing import Protocol


class SaslAuthenticationError(Exception):
    """The exchange has failed, and the client is told this text."""


class SaslError(Exception):
    """The exchange has failed. The client is told no more than that its credentials are invalid: the text may say who exists."""


class SaslServer(Protocol):
    """One exchange. After an error it is not called again."""

    @property
    def authorization_id(self) -> str | None:
        """The user's name, once the exchange is complete."""
        ...

    def evaluate_response(self, response: bytes) -> bytes:
        """What the client is answered. SaslAuthenticationError, SaslError."""
        ...
