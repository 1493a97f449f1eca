"""Where a client's token for OAUTHBEARER comes from, by Kafka's settings: a file, or an authorization server.

An option of the login module counts where the setting of the same meaning is not set.
"""

from __future__ import annotations

from collections.abc import Mapping

from kafkacompat.config import ConfigError, broker_keys, parse_value
from kafkacompat.security.http_fetch import Bounds, HttpAddress, http_address
from kafkacompat.security.jaas import LoginModule
from kafkacompat.security.oauthbearer import MECHANISM
from kafkacompat.security.oauthbearer_client import TokenFile
from kafkacompat.security.ssl_settings import SslSettings, ssl_settings
from kafkacompat.security.token_endpoint import ANSWER_BYTES_MAX, ClientCredentials, TokenEndpoint

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
