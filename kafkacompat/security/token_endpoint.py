"""Tokens that an authorization server issues to a client for its id and its secret (OAuth's client credentials). It blocks.

A token is kept until most of its life is over. No text of a failure holds the secret or a token.
"""

from __future__ import annotations

import json
import time
from base64 import b64encode, urlsafe_b64decode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import TYPE_CHECKING

from kafkacompat.security.http_fetch import Bounds, FetchFailed, HttpAddress, fetch
from kafkacompat.security.oauthbearer import TOKEN, TOKEN_CHARACTERS_MAX
from kafkacompat.security.sasl_client import AuthenticationFailed

if TYPE_CHECKING:
    from ssl import SSLContext

    from kafkacompat.security.ssl_settings import SslSettings

ANSWER_BYTES_MAX = 256 * 1024
USED_PART = 0.8
"""Of a token's life. Afterwards another is asked for."""
FIELDS = ("access_token", "id_token")


@dataclass(frozen=True, slots=True)
class ClientCredentials:
    """What a client asks with. Neither is shown where it is printed."""

    client_id: str
    secret: str = field(repr=False)
    scope: str | None = None
    url_encodes: bool = False
    """The id, the secret and the scope are URL-encoded first, as RFC 6749 wants and not every server does."""

    def headers(self) -> dict[str, str]:
        pair = f"{self._encoded(self.client_id)}:{self._encoded(self.secret)}"
        return {
            "Accept": "application/json",
            "Authorization": f"Basic {b64encode(pair.encode()).decode()}",
            "Cache-Control": "no-cache",
            "Content-Type": "application/x-www-form-urlencoded",
        }

    def body(self) -> bytes:
        scope = "" if self.scope is None else f"&scope={self._encoded(self.scope)}"
        return f"grant_type=client_credentials{scope}".encode()

    def _encoded(self, text: str) -> str:
        from urllib.parse import quote_plus

        return quote_plus(text, safe="*-._") if self.url_encodes else text


@dataclass(frozen=True, slots=True)
class TokenEndpoint:
    """Where tokens come from, and how patiently they are asked for."""

    address: HttpAddress
    credentials: ClientCredentials
    ssl: SslSettings | None
    """For https."""
    bounds: Bounds
    backoff_s: float
    backoff_max_s: float
    """How long tries go on after one that failed."""
    extensions: Mapping[str, str]


class TokenSource:
    """The client's token, fetched when there is none that is good."""

    def __init__(
        self,
        endpoint: TokenEndpoint,
        now_s: Callable[[], float] = time.time,
        sleep_s: Callable[[float], None] = time.sleep,
    ) -> None:
        """ConfigError where a store for https cannot be read."""
        self._endpoint = endpoint
        self._context: SSLContext | None = None
        if endpoint.ssl is not None:
            from kafkacompat.security.ssl_contexts import client_context

            self._context = client_context(endpoint.ssl)
        self._now_s = now_s
        self._sleep_s = sleep_s
        self._token = ""
        self._good_until_s = 0.0

    def token(self) -> str:
        """AuthenticationFailed."""
        if not self._token or self._now_s() >= self._good_until_s:
            token = token_in(self._answer())
            asked_s = self._now_s()
            expires_s = expiry_of(token)
            self._good_until_s = asked_s if expires_s is None else asked_s + (expires_s - asked_s) * USED_PART
            self._token = token
        return self._token

    def _answer(self) -> bytes:
        endpoint = self._endpoint
        ends_s = self._now_s() + endpoint.backoff_max_s
        pause_s = endpoint.backoff_s
        while True:
            try:
                return fetch(
                    endpoint.address,
                    endpoint.bounds,
                    self._context,
                    endpoint.credentials.headers(),
                    endpoint.credentials.body(),
                )
            except FetchFailed as failure:
                if failure.is_final or self._now_s() + pause_s > ends_s:
                    raise AuthenticationFailed(f"no token: {failure}") from None
            self._sleep_s(pause_s)
            pause_s *= 2


def token_in(answer: bytes) -> str:
    """AuthenticationFailed when the answer holds no token."""
    try:
        found = json.loads(answer)
        texts = [found[name] for name in FIELDS if isinstance(found.get(name), str)]
    except (ValueError, AttributeError, RecursionError):
        raise AuthenticationFailed("the token endpoint's answer is no JSON object") from None
    token = next((each.strip() for each in texts if each.strip()), "")
    if len(token) > TOKEN_CHARACTERS_MAX or TOKEN.fullmatch(token) is None:
        raise AuthenticationFailed("there is no token in the token endpoint's answer")
    return token


def expiry_of(token: str) -> float | None:
    """In seconds since 1970; None when the token does not say it, for then it is used once."""
    sections = token.split(".")
    if len(sections) != 3:
        return None
    try:
        claims = json.loads(urlsafe_b64decode(sections[1] + "=" * (-len(sections[1]) % 4)))
        expires_s = float(claims["exp"])
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return None
    return expires_s if isfinite(expires_s) else None
