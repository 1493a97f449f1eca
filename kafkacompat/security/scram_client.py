"""The client's side of SCRAM: proves knowledge of the password, and checks that the server knows the stored
credential. Pure."""

from __future__ import annotations

from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from hmac import compare_digest

from kafkacompat.security.sasl_client import AuthenticationFailed
from kafkacompat.security.scram import ScramMechanism, exclusive_or, sasl_name
from kafkacompat.security.scram_server import TOKEN_AUTHENTICATION

ITERATIONS_MAX = 1_000_000
"""Bound on the work that a server can ask of a client."""
_NO_BINDING = "biws"


class ScramSaslClient:
    """`nonce` is the client's, for this exchange only. `is_token`: the user is the id of a delegation token."""

    __slots__ = ("_first_bare", "_mechanism", "_nonce", "_password", "_server_signature")

    def __init__(
        self, mechanism: ScramMechanism, user: str, password: str, nonce: str, is_token: bool = False
    ) -> None:
        self._mechanism = mechanism
        self._password = password
        self._nonce = nonce
        extension = f",{TOKEN_AUTHENTICATION}=true" if is_token else ""
        self._first_bare = f"n={sasl_name(user)},r={nonce}{extension}"
        self._server_signature: bytes | None = None

    def initial_response(self) -> bytes:
        return f"n,,{self._first_bare}".encode()

    def evaluate_challenge(self, challenge: bytes) -> bytes | None:
        fields = _fields(challenge)
        if self._server_signature is None:
            return self._final(challenge.decode(), fields)
        if "e" in fields:
            raise AuthenticationFailed(f"the server refuses: {fields['e']}")
        if not compare_digest(_decoded(fields, "v"), self._server_signature):
            raise AuthenticationFailed("the server does not know what is kept of the password")
        return None

    def _final(self, server_first: str, fields: dict[str, str]) -> bytes:
        mechanism, nonce = self._mechanism, fields.get("r", "")
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise AuthenticationFailed("the server's nonce does not go on from the client's")
        iterations = fields.get("i", "")
        if not iterations.isascii() or not iterations.isdigit() or len(iterations) > len(str(ITERATIONS_MAX)):
            raise AuthenticationFailed("the server asks for no number of iterations")
        if not mechanism.min_iterations <= int(iterations) <= ITERATIONS_MAX:
            raise AuthenticationFailed(
                f"the server asks for {iterations} iterations, not for {mechanism.min_iterations} to {ITERATIONS_MAX}"
            )
        salted = mechanism.salted_password(self._password, _decoded(fields, "s"), int(iterations))
        client_key = mechanism.client_key(salted)
        without_proof = f"c={_NO_BINDING},r={nonce}"
        signed = f"{self._first_bare},{server_first},{without_proof}".encode()
        proof = exclusive_or(client_key, mechanism.hmac(mechanism.digest(client_key), signed))
        self._server_signature = mechanism.hmac(mechanism.server_key(salted), signed)
        return f"{without_proof},p={b64encode(proof).decode()}".encode()


def _fields(message: bytes) -> dict[str, str]:
    try:
        return dict(each.split("=", 1) for each in message.decode("ascii").split(",") if "=" in each)
    except UnicodeDecodeError:
        raise AuthenticationFailed("the server's message is no SCRAM message") from None


def _decoded(fields: dict[str, str], name: str) -> bytes:
    try:
        return b64decode(fields[name], validate=True)
    except (KeyError, Base64Error):
        raise AuthenticationFailed("the server's message is no SCRAM message") from None
