"""OAUTHBEARER (RFC 7628): the client's first message has a token, from which a validator gets the principal. Pure.

Follows Apache Kafka: the refusal of a token is answered in JSON, and the exchange fails with that text when the client
has acknowledged it. No error text contains the token.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from kafkacompat.security.sasl_server import SaslAuthenticationError, SaslError
from kafkacompat.wire.errors import WireError

MECHANISM = "OAUTHBEARER"
REFUSED = '{"status":"invalid_token"}'
ACKNOWLEDGED = b"\x01"
"""The client's only answer to a refusal."""
SEPARATOR = "\x01"
AUTH = "auth"
_SASL_NAME = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_PAIR = r"[A-Za-z]+=[\x21-\x7e \t\r\n]+\x01"
_FIRST = re.compile(f"n,(?:a=({_SASL_NAME}))?,\x01((?:{_PAIR})*)\x01")
TOKEN = re.compile(r"[-_~+/.a-zA-Z0-9]+=*")
TOKEN_CHARACTERS_MAX = 64 * 1024
"""Longer tokens are refused before any of it is decoded."""
MESSAGE_BYTES_MAX = TOKEN_CHARACTERS_MAX + 16 * 1024
"""With its name and extensions. Parsing takes time before the client is authenticated, half a microsecond for an extension of four
bytes."""
_AUTHORIZATION = re.compile(f"([A-Za-z0-9_]+) +({TOKEN.pattern})")


class BearerToken(NamedTuple):
    """A valid token."""

    principal_name: str
    lifetime_ms: int
    """How long it is still valid. May be negative within the allowed clock skew."""


class TokenRefused(Exception):
    """The token is not valid. The text is for the log. Of the client's data it has only names and times."""


class ClientInitialResponse(NamedTuple):
    token: str
    authorization_id: str
    extensions: Mapping[str, str]

    @classmethod
    def parse(cls, message: bytes) -> ClientInitialResponse:
        """Raises SaslError, or WireError if Apache Kafka closes the connection without an answer."""
        if len(message) > MESSAGE_BYTES_MAX:
            raise SaslError("an OAUTHBEARER message that is too long")
        found = _FIRST.fullmatch(message.decode("utf-8", "replace"))
        if found is None:
            raise SaslError("Invalid OAUTHBEARER client first message")
        authorization_id, pairs = found.groups()
        extensions = dict(each.split("=", 1) for each in pairs.split(SEPARATOR) if each)
        authorization = extensions.pop(AUTH, None)
        if authorization is None:
            raise SaslError("Invalid OAUTHBEARER client first message: 'auth' not specified")
        scheme_and_token = _AUTHORIZATION.fullmatch(authorization)
        if scheme_and_token is None:
            raise SaslError("Invalid OAUTHBEARER client first message: invalid 'auth' format")
        scheme, token = scheme_and_token.groups()
        if scheme.lower() != "bearer":
            raise WireError("OAUTHBEARER with another scheme than bearer")
        return cls(token, authorization_id or "", extensions)


class OAuthBearerSaslServer:
    """`validate` raises TokenRefused. As in Apache Kafka's handler, well-formed extensions are accepted."""

    __slots__ = ("_refused_because", "_validate", "authorization_id", "lifetime_ms", "token_authenticated")

    def __init__(self, validate: Callable[[str], BearerToken]) -> None:
        self._validate = validate
        self._refused_because: str | None = None
        self.authorization_id: str | None = None
        self.lifetime_ms: int | None = None
        self.token_authenticated = False

    def evaluate_response(self, response: bytes) -> bytes:
        if response == ACKNOWLEDGED and self._refused_because is not None:
            raise SaslAuthenticationError(REFUSED, self._refused_because)
        self._refused_because = None
        first = ClientInitialResponse.parse(response)
        try:
            token = self._validate(first.token)
        except TokenRefused as problem:
            self._refused_because = f"invalid_token: {problem}"
            return REFUSED.encode()
        name = token.principal_name
        if first.authorization_id not in ("", name):
            raise SaslAuthenticationError(
                f"Authentication failed: Client requested an authorization id ({first.authorization_id}) that is different "
                f"from the token's principal name ({name})"
            )
        self.lifetime_ms = token.lifetime_ms
        self.authorization_id = name
        return b""
