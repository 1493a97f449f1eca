"""How a listener verifies tokens: the settings sasl.oauthbearer.* of its mechanism OAUTHBEARER.

Without a handler, or without an address of keys, Apache Kafka accepts unsigned tokens. In that case a node verifies
them anyway, or does not start. A node that is not told whose tokens it takes, and for whom, does not start, unless a
setting says that it takes them all.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, cast

from kafkacompat.config import ConfigError
from kafkacompat.config.keys import as_int, as_list
from kafkacompat.security.http_fetch import Bounds, HttpAddress, fetch, http_address
from kafkacompat.security.jaas import LoginModule
from kafkacompat.security.jwks import (
    JWKS_BYTES_MAX,
    Background,
    JwksError,
    JwksFile,
    RefreshTerms,
    RemoteKeys,
    UnfetchedKeys,
)
from kafkacompat.security.jwt_validator import ExpectedClaims, JwtValidator, KeySource
from kafkacompat.security.oauthbearer import MECHANISM, OAuthBearerSaslServer
from kafkacompat.security.oauthbearer_client import file_of, ssl_of
from kafkacompat.security.ssl_factory import ClientContext

if TYPE_CHECKING:
    from kafkacompat.config import ServerConfig

JWKS_URL = "sasl.oauthbearer.jwks.endpoint.url"
EXPECTED_AUDIENCE = "sasl.oauthbearer.expected.audience"
EXPECTED_ISSUER = "sasl.oauthbearer.expected.issuer"
BOUNDS = Bounds(connect_s=10.0, whole_s=20.0, bytes_max=JWKS_BYTES_MAX)


def exchanges_of(
    config: ServerConfig,
    listener: str,
    now_ms: Callable[[], int],
    module: LoginModule,
    background: Background | None,
) -> Callable[[], OAuthBearerSaslServer]:
    """A function that begins a new exchange. `now_ms` is wall time. `background` is None while settings are only checked.

    Raises ConfigError if the keys cannot be read.
    """
    keys = _keys(config, listener, module, background)
    return partial(OAuthBearerSaslServer, JwtValidator(keys, _expected(config, listener), now_ms))


def _keys(
    config: ServerConfig, listener: str, module: LoginModule, background: Background | None
) -> KeySource:
    url = _text(config, listener, JWKS_URL)
    if url is None:
        raise ConfigError(
            JWKS_URL, None, f"{JWKS_URL} must be set: without keys anybody's token would be taken", whole=True
        )
    address = http_address(JWKS_URL, url)
    if address is not None:
        return _remote(config, listener, address, module, background)
    source = JwksFile(file_of(JWKS_URL, url))
    try:
        source.keys()
    except JwksError as problem:
        raise ConfigError(JWKS_URL, url, str(problem)) from None
    return source


def _remote(
    config: ServerConfig,
    listener: str,
    address: HttpAddress,
    module: LoginModule,
    background: Background | None,
) -> KeySource:
    """Nothing is fetched while settings are only checked. A server that is away keeps no node from starting."""

    def number(setting: str) -> int:
        value = as_int(config.of_listener(listener, setting, MECHANISM))
        if value <= 0:
            raise ConfigError(setting, str(value), "it must be above 0")
        return value

    terms = RefreshTerms(
        number("sasl.oauthbearer.jwks.endpoint.refresh.ms"),
        number("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms"),
        number("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms"),
    )
    ssl = ssl_of(address, module)
    context = None if ssl is None else ClientContext(ssl)
    if background is None:
        return UnfetchedKeys()

    def ask() -> bytes:
        now = None if context is None else context.newest()
        return fetch(address, BOUNDS, now, {"Accept": "application/json"})

    return RemoteKeys(ask, address.place, terms, background)


def _expected(config: ServerConfig, listener: str) -> ExpectedClaims:
    def named(setting: str) -> str:
        found = _text(config, listener, setting)
        if found is None:
            raise ConfigError(setting, "", "a claim has a name")
        return found

    audience = as_list(config.of_listener(listener, EXPECTED_AUDIENCE, MECHANISM))
    issuer = _text(config, listener, EXPECTED_ISSUER)
    for setting, value, allowance in (
        (EXPECTED_AUDIENCE, audience, "sasl.oauthbearer.allow.unverified.audience"),
        (EXPECTED_ISSUER, issuer, "sasl.oauthbearer.allow.unverified.issuer"),
    ):
        if not value and not config.of_listener(listener, allowance, MECHANISM):
            raise ConfigError(
                setting,
                None,
                f"{setting} must be set, or {allowance} must be true: a token that was issued for something else "
                "would be taken",
                whole=True,
            )
    return ExpectedClaims(
        frozenset(audience),
        issuer,
        as_int(config.of_listener(listener, "sasl.oauthbearer.clock.skew.seconds", MECHANISM)),
        named("sasl.oauthbearer.scope.claim.name"),
        named("sasl.oauthbearer.sub.claim.name"),
    )


def _text(config: ServerConfig, listener: str, setting: str) -> str | None:
    """None also for blanks."""
    value = cast("str | None", config.of_listener(listener, setting, MECHANISM))
    return (value or "").strip() or None
