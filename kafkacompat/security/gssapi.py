"""The two sides of GSSAPI (RFC 4752), and what they need of the Kerberos library, which is optional. Pure.

Only authentication, without a security layer, as Java and so Apache Kafka do it. The client's authorization id is ignored, as
Apache Kafka's handler ignores it.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Protocol

from kafkacompat.security.sasl_client import AuthenticationFailed
from kafkacompat.security.sasl_server import SaslError
from kafkacompat.wire.errors import WireError

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


CHOICE = NO_LAYER.to_bytes(1, "big") + bytes(3)
"""No layer, no message of a layer, and the name of the principal itself."""


class GssapiSaslClient:
    """`begin` makes a context for the server. It and the exchange wait for the key distribution center."""

    def __init__(self, begin: Callable[[], GssContext]) -> None:
        self._begin = begin
        self._context: GssContext | None = None
        self._has_chosen = False

    def initial_response(self) -> bytes:
        try:
            self._context = self._begin()
            return self._context.step(b"")
        except GssRefused as refusal:
            raise AuthenticationFailed(str(refusal)) from None

    def evaluate_challenge(self, challenge: bytes) -> bytes | None:
        context = self._context
        assert context is not None
        if self._has_chosen:
            return None
        try:
            if not context.is_complete:
                # Once it is complete, an empty answer asks for the server's offer.
                return context.step(challenge)
            offer = context.unwrap(challenge)
            if len(offer) < SIZE_BYTES or not offer[0] & NO_LAYER:
                raise AuthenticationFailed("the server requires a security layer, which Kafka does not have")
            self._has_chosen = True
            return context.wrap(CHOICE)
        except GssRefused as refusal:
            raise AuthenticationFailed(str(refusal)) from None


OFFER = NO_LAYER.to_bytes(1, "big") + (65536).to_bytes(3, "big")
"""No layer. Java names the length of the largest message also where there is no layer to limit."""


class _Stage(Enum):
    CONTEXT = 0
    OFFER = 1
    """The context is complete, and the client is to answer with nothing."""
    CHOICE = 2


class GssapiSaslServer:
    """One exchange. `evaluate_response` may wait for files: it is for a worker."""

    __slots__ = (
        "_context",
        "_stage",
        "authorization_id",
        "lifetime_ms",
        "token_authenticated",
    )

    def __init__(self, context: GssContext) -> None:
        self._context = context
        self._stage = _Stage.CONTEXT
        self.authorization_id: str | None = None
        """The client's principal, with its realm."""
        self.lifetime_ms: int | None = None
        """A session may outlive the ticket, as in Apache Kafka."""
        self.token_authenticated = False

    def evaluate_response(self, response: bytes) -> bytes | None:
        try:
            if self._stage is _Stage.CONTEXT:
                return self._token(response)
            if self._stage is _Stage.OFFER:
                if response:
                    raise SaslError("Handshake expecting no response data from server")
                return self._offer()
            self._chosen(self._context.unwrap(response))
            return None
        except GssRefused as refusal:
            raise SaslError(f"GSSAPI: {refusal}") from None

    def _token(self, response: bytes) -> bytes:
        token = self._context.step(response)
        if not self._context.is_complete:
            return token
        if not token:
            return self._offer()
        self._stage = _Stage.OFFER
        return token

    def _offer(self) -> bytes:
        self._stage = _Stage.CHOICE
        return self._context.wrap(OFFER)

    def _chosen(self, choice: bytes) -> None:
        if len(choice) < SIZE_BYTES:
            raise WireError(f"GSSAPI: a choice of {len(choice)} bytes")
        if not choice[0] & NO_LAYER:
            raise SaslError(f"GSSAPI: Client selected unsupported protection: {choice[0]}")
        self.authorization_id = self._context.peer
