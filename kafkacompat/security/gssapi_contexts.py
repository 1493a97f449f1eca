"""What an exchange of GSSAPI needs from the Kerberos library. Declarations only: the library is optional."""

from __future__ import annotations

from typing import Protocol

MECHANISM = "GSSAPI"
NO_LAYER = 1
"""The bit of a SASL connection without a security layer. Kafka offers no other."""
SIZE_BYTES = 4
"""The layers in one byte, and the length of the largest message in three (RFC 4752)."""


class GssRefused(Exception):
    """The library refuses a token, or cannot make one. The text is for the log."""


class GssContext(Protocol):
    """One security context of one side. Each call may wait for a file or for the key distribution center."""

    @property
    def is_complete(self) -> bool: ...

    @property
    def peer(self) -> str:
        """The principal of the client, with its realm. For the server's side, once complete."""
        ...

    def step(self, token: bytes) -> bytes:
        """The token for the other side, empty for none. Raises GssRefused."""
        ...

    def wrap(self, message: bytes) -> bytes:
        """Signed, not encrypted. Raises GssRefused."""
        ...

    def unwrap(self, message: bytes) -> bytes:
        """Raises GssRefused."""
        ...
