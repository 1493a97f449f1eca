"""The two sides of an exchange of SCRAM (RFC 5802, RFC 7677). Pure.

The server checks the client's first and final message against the stored credential. The client proves knowledge of the
password, and checks that the server knows the stored credential. Follows Apache Kafka: there is no channel binding; the
client's binding is part of its proof but is not evaluated.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Callable
from hmac import compare_digest

from kafkacompat.security.delegation_tokens import TokenCredential
from kafkacompat.security.sasl_client import AuthenticationFailed
from kafkacompat.security.sasl_server import SaslAuthenticationError, SaslError
from kafkacompat.security.scram import ScramCredential, ScramMechanism, exclusive_or, sasl_name, user_name

MESSAGE_BYTES_MAX = 32 * 1024
"""No name, nonce and extensions are longer. Parsing takes time before the client is authenticated."""
TOKEN_AUTHENTICATION = "tokenauth"
"""The extension that makes the user name the id of a delegation token."""
_SASL_NAME = r"(?:[^\x00=,\x80-\U0010ffff]|=2C|=3D)+"
_VALUE = r"[^\x00,\x80-\U0010ffff]+"
_PRINTABLE = r"[\x21-\x2b\x2d-\x7e]+"
_BASE64_DIGIT = "[a-zA-Z0-9/+]"
_BASE64 = f"(?:{_BASE64_DIGIT}{{4}})*(?:{_BASE64_DIGIT}{{3}}=|{_BASE64_DIGIT}{{2}}==)?"
_EXTENSIONS = f"(?:,[A-Za-z]+={_VALUE})*"
_CLIENT_FIRST = re.compile(
    f"n,(?:a=({_SASL_NAME}))?,(?:m={_VALUE},)?n=({_SASL_NAME}),r=({_PRINTABLE})({_EXTENSIONS})"
)
_CLIENT_FINAL = re.compile(f"c=({_BASE64}),r=({_PRINTABLE}){_EXTENSIONS},p=({_BASE64})")


def token_named(response: bytes) -> str | None:
    """The id of the token in a client's first message. None for any other message."""
    if len(response) > MESSAGE_BYTES_MAX:
        return None
    message = _CLIENT_FIRST.fullmatch(response.decode("utf-8", "replace"))
    if message is None or not _is_of_token(message[4]):
        return None
    try:
        return user_name(message[2])
    except ValueError:
        return None


def _no_token(token_id: str) -> None:
    """Of a server without delegation tokens."""


class ScramSaslServer:
    """`credential_of` returns a user's credential, or None. `nonce` is the server's, for this exchange only."""

    __slots__ = (
        "_client_first_bare",
        "_credential",
        "_credential_of",
        "_mechanism",
        "_nonce",
        "_now_ms",
        "_server_first",
        "_token",
        "_token_of",
        "_user",
        "authorization_id",
        "lifetime_ms",
        "token_authenticated",
    )

    def __init__(
        self,
        mechanism: ScramMechanism,
        credential_of: Callable[[str], ScramCredential | None],
        nonce: str,
        token_of: Callable[[str], TokenCredential | None] = _no_token,
        now_ms: Callable[[], int] = int,
    ) -> None:
        """`token_of`: the credential of a delegation token by its id, None if there is no such token. `now_ms`: wall time."""
        self._mechanism = mechanism
        self._credential_of = credential_of
        self._token_of = token_of
        self._now_ms = now_ms
        self._token: TokenCredential | None = None
        self._nonce = nonce
        """The client's nonce and the server's, once the client has sent its own."""
        self._credential: ScramCredential | None = None
        self._client_first_bare = self._server_first = ""
        self._user = ""
        self.authorization_id: str | None = None
        self.lifetime_ms: int | None = None
        self.token_authenticated = False

    def evaluate_response(self, response: bytes) -> bytes:
        if len(response) > MESSAGE_BYTES_MAX:
            raise SaslError("a SCRAM message that is too long")
        text = response.decode("utf-8", "replace")
        return self._first(text) if self._credential is None else self._final(text, self._credential)

    def _first(self, text: str) -> bytes:
        message = _CLIENT_FIRST.fullmatch(text)
        if message is None:
            raise SaslError("Invalid SCRAM client first message format")
        authorization_id, name, client_nonce, extensions = message.groups()
        try:
            self._user = user_name(name)
        except ValueError:
            raise SaslError("Authentication failed: Credentials could not be obtained") from None
        credential = (
            self._credential_of_token() if _is_of_token(extensions) else self._credential_of(self._user)
        )
        if credential is None:
            raise SaslError("Authentication failed: Invalid user credentials")
        if authorization_id not in (None, self._user):
            raise SaslAuthenticationError(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        if credential.iterations < self._mechanism.min_iterations:
            raise SaslError(f"fewer iterations than {self._mechanism.name} needs")
        self._credential = credential
        self._nonce = client_nonce + self._nonce
        self._client_first_bare = f"n={name},r={client_nonce}{extensions}"
        salt = b64encode(credential.salt).decode()
        self._server_first = f"r={self._nonce},s={salt},i={credential.iterations}"
        return self._server_first.encode()

    def _credential_of_token(self) -> ScramCredential:
        self._token = self._token_of(self._user)
        if self._token is None:
            raise SaslError("Token Authentication failed: there is no token of this id")
        return self._token.credential

    def _final(self, text: str, credential: ScramCredential) -> bytes:
        message = _CLIENT_FINAL.fullmatch(text)
        if message is None:
            raise SaslError("Invalid SCRAM client final message format")
        binding, nonce, proof = message.groups()
        if nonce != self._nonce:
            raise SaslError("Invalid client nonce in the final client message")
        without_proof = f"c={b64encode(b64decode(binding)).decode()},r={nonce}"
        signed = ",".join((self._client_first_bare, self._server_first, without_proof)).encode()
        mechanism = self._mechanism
        try:
            client_key = exclusive_or(mechanism.hmac(credential.stored_key, signed), b64decode(proof))
        except ValueError:
            raise SaslError("Invalid client credentials") from None
        if not compare_digest(mechanism.digest(client_key), credential.stored_key):
            raise SaslError("Invalid client credentials")
        self.authorization_id = self._user
        if self._token is not None:
            self.authorization_id = self._token.owner
            self.token_authenticated = True
            self.lifetime_ms = self._token.expires_ms - self._now_ms()
        return b"v=" + b64encode(mechanism.hmac(credential.server_key, signed))


def _is_of_token(extensions: str) -> bool:
    """`extensions` has a comma before each one. Of equal names the last one counts."""
    named = dict(each.split("=", 1) for each in extensions.split(",") if each)
    return named.get(TOKEN_AUTHENTICATION, "").lower() == "true"


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
