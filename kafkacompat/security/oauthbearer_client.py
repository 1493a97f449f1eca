"""The client's side of OAUTHBEARER (RFC 7628): sends a token, and acknowledges a refusal."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from kafkacompat.config.files import open_regular
from kafkacompat.security.oauthbearer import ACKNOWLEDGED, AUTH, SEPARATOR, TOKEN, TOKEN_CHARACTERS_MAX
from kafkacompat.security.sasl_client import AuthenticationFailed


class TokenFile(NamedTuple):
    """A client whose token is in a file. Each exchange reads the file, so that a new token can replace it."""

    path: str
    extensions: Mapping[str, str]

    def token(self) -> str:
        """Raises AuthenticationFailed."""
        try:
            with open(open_regular(self.path), encoding="ascii") as file:
                text = file.read(TOKEN_CHARACTERS_MAX).strip()
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is no ASCII"
            raise AuthenticationFailed(f"the token's file {self.path} cannot be read: {reason}") from None
        if TOKEN.fullmatch(text) is None:
            raise AuthenticationFailed(f"there is no token in the file {self.path}")
        return text


class OAuthBearerSaslClient:
    """`token` returns the token as the authorization server has issued it. Raises AuthenticationFailed."""

    def __init__(self, token: Callable[[], str], extensions: Mapping[str, str] | None = None) -> None:
        self._token = token
        self._extensions = extensions or {}
        self._refused_because = ""

    def initial_response(self) -> bytes:
        pairs = {AUTH: f"Bearer {self._token()}", **self._extensions}
        told = "".join(f"{name}={value}{SEPARATOR}" for name, value in pairs.items())
        return f"n,,{SEPARATOR}{told}{SEPARATOR}".encode()

    def evaluate_challenge(self, challenge: bytes) -> bytes | None:
        """A challenge has the reason of a refusal. The client acknowledges it, and the server then fails the exchange."""
        if not challenge:
            return None
        if self._refused_because:
            raise AuthenticationFailed(self._refused_because)
        self._refused_because = challenge.decode("utf-8", "replace")
        return ACKNOWLEDGED
