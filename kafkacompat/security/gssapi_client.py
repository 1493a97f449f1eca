"""The client's side of GSSAPI (RFC 4752): only authentication, without a security layer."""

from __future__ import annotations

from collections.abc import Callable

from kafkacompat.security.gssapi_contexts import NO_LAYER, SIZE_BYTES, GssContext, GssRefused
from kafkacompat.security.sasl_client import AuthenticationFailed

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
