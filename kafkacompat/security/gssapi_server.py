"""The server's side of GSSAPI (RFC 4752), as Java's and so Apache Kafka's: only authentication, without a security layer.

The client's authorization id is ignored, as Apache Kafka's handler ignores it.
"""

from __future__ import annotations

from enum import Enum

from kafkacompat.security.gssapi_contexts import NO_LAYER, SIZE_BYTES, GssContext, GssRefused
from kafkacompat.security.sasl_server import SaslError
from kafkacompat.wire.errors import WireError

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
