"""A client's side of OAUTHBEARER (RFC 7628), and where its token comes from: a file, or an authorization server.

By Kafka's settings. An option of the login module counts where the setting of the same meaning is not set. A server issues
tokens for the client's id and its secret (OAuth's client credentials), which blocks. A token is kept until most of its life is
over. No text of a failure holds the secret or a token.
"""

from __future__ import annotations

import json
import time
from base64 import b64encode, urlsafe_b64decode
from collections.abc import Callable, Mapping
from dataclasses import field
from math import isfinite
from typing import NamedTuple

from kafkacompat.config import ConfigError, broker_keys, parse_value
from kafkacompat.config.properties import open_regular
from kafkacompat.dataclass import dataclass
from kafkacompat.security.http_fetch import Bounds, FetchFailed, HttpAddress, fetch, http_address
from kafkacompat.security.jaas import LoginModule
from kafkacompat.security.oauthbearer import (
    ACKNOWLEDGED,
    AUTH,
    MECHANISM,
    SEPARATOR,
    TOKEN,
    TOKEN_CHARACTERS_MAX,
)
from kafkacompat.security.sasl_client import AuthenticationFailed
from kafkacompat.security.ssl_factory import ClientContext, SslSettings, ssl_settings


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


ANSWER_BYTES_MAX = 256 * 1024
USED_PART = 0.8
"""Of a token's life. Afterwards another is asked for."""
ASKED_AGAIN_S = 10.0
"""How long a token that still holds is used after a failure to get another, as by Apache Kafka's clients."""
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
        self._context = None if endpoint.ssl is None else ClientContext(endpoint.ssl)
        self._now_s = now_s
        self._sleep_s = sleep_s
        self._token = ""
        self._good_until_s = self._expires_s = 0.0

    def token(self) -> str:
        """AuthenticationFailed if no token can be had, and there is none that still holds."""
        if not self._token or self._now_s() >= self._good_until_s:
            try:
                token = token_in(self._answer())
            except AuthenticationFailed:
                now_s = self._now_s()
                if now_s >= self._expires_s:
                    raise
                self._good_until_s = min(now_s + ASKED_AGAIN_S, self._expires_s)
                return self._token
            asked_s = self._now_s()
            expires_s = expiry_of(token)
            self._expires_s = asked_s if expires_s is None else expires_s
            self._good_until_s = asked_s + (self._expires_s - asked_s) * USED_PART
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
                    None if self._context is None else self._context.newest(),
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


TOKEN_URL = "sasl.oauthbearer.token.endpoint.url"
OF_TOKENS = "sasl.oauthbearer."
OF_LOGIN = "sasl.login."
EXTENSION_PREFIX = "extension_"
"""Options of the login module that begin so are extensions of the first message."""
TIMEOUT_MS = 10_000
"""Where Apache Kafka waits without an end."""


def token_origin(
    module: LoginModule, properties: Mapping[str, str], prefix: str
) -> TokenFile | TokenEndpoint:
    """`prefix`: of the listener, for a node. Its token is in a file: the event loop waits for no server. ConfigError."""
    places = (f"{prefix}{MECHANISM.lower()}.", prefix, "") if prefix else ("",)
    urls = (properties.get(place + TOKEN_URL, "").strip() for place in places)
    url = next((each for each in urls if each), None)
    if url is None:
        raise ConfigError(TOKEN_URL, None, f"{TOKEN_URL} must be set: it says who connects", whole=True)
    extensions = {
        name.removeprefix(EXTENSION_PREFIX): value
        for name, value in module.options.items()
        if name.startswith(EXTENSION_PREFIX)
    }
    address = http_address(TOKEN_URL, url)
    if address is None:
        return TokenFile(file_of(TOKEN_URL, url), extensions)
    if prefix:
        text = f"{TOKEN_URL}: for connections between nodes only a file: URL is served"
        raise ConfigError(TOKEN_URL, None, text, whole=True)
    return _endpoint(address, module, properties, extensions)


def file_of(setting: str, url: str) -> str:
    """The path of a file: URL of this machine. ConfigError for every other URL."""
    from urllib.parse import unquote, urlsplit

    parts = urlsplit(url)
    if parts.scheme.lower() != "file" or parts.netloc not in ("", "localhost"):
        text = f"{setting}: only file: URLs of this machine, http: and https: are served"
        raise ConfigError(setting, None, text, whole=True)
    return unquote(parts.path)


def ssl_of(address: HttpAddress, module: LoginModule) -> SslSettings | None:
    """For https: the options ssl.* of the login module, as for Apache Kafka. ConfigError."""
    return ssl_settings(module.options) if address.scheme == "https" else None


def _endpoint(
    address: HttpAddress, module: LoginModule, properties: Mapping[str, str], extensions: Mapping[str, str]
) -> TokenEndpoint:
    def found(name: str, option: str) -> str:
        return (properties.get(name, "").strip() or module.options.get(option, "")).strip()

    def needed(name: str, option: str) -> str:
        value = found(name, option)
        if not value:
            raise ConfigError(name, None, f"{name} must be set, or the option {option}", whole=True)
        return value

    credentials = ClientCredentials(
        needed(f"{OF_TOKENS}client.credentials.client.id", "clientId"),
        needed(f"{OF_TOKENS}client.credentials.client.secret", "clientSecret"),
        found(f"{OF_TOKENS}scope", "scope") or None,
        properties.get(f"{OF_TOKENS}header.urlencode", "false").strip().lower() == "true",
    )
    connect_ms = _milliseconds(properties, "connect.timeout.ms", TIMEOUT_MS)
    read_ms = _milliseconds(properties, "read.timeout.ms", TIMEOUT_MS)
    return TokenEndpoint(
        address,
        credentials,
        ssl_of(address, module),
        Bounds(connect_ms / 1000, (connect_ms + read_ms) / 1000, ANSWER_BYTES_MAX),
        _milliseconds(properties, "retry.backoff.ms", 0) / 1000,
        _milliseconds(properties, "retry.backoff.max.ms", 0) / 1000,
        extensions,
    )


def _milliseconds(properties: Mapping[str, str], name: str, instead: int) -> int:
    """Of a setting sasl.login.*; `instead` where neither it nor a default is set, or it is 0."""
    key = broker_keys()[OF_LOGIN + name]
    text = properties.get(OF_LOGIN + name)
    value = key.default if text is None else parse_value(key, text)
    assert value is None or isinstance(value, int)
    return max(value or instead, 0)
