"""The server's side of SCRAM: checks the client's first and final message against the stored credential. Pure.

Follows Apache Kafka: there is no channel binding; the client's binding is part of its proof but is not evaluated.
Additional fields in a message are accepted. An unknown user fails like a wrong password.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import Callable
from hmac import compare_digest

from kafkacompat.security.delegation_tokens import TokenCredential
from kafkacompat.security.sasl_server import SaslAuthenticationError, SaslError
from kafkacompat.security.scram import (
    ScramCredential,
    ScramMechanism,
    exclusive_or,
    user_name,
)

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
