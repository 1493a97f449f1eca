"""How a client connects, by settings: a node to other nodes' listeners, a command by a file of Kafka's client
properties."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from kafkacompat.config import ConfigError
from kafkacompat.config.endpoints import SECURITY_PROTOCOLS
from kafkacompat.config.keys import listener_prefix
from kafkacompat.security.gssapi import MECHANISM as GSSAPI
from kafkacompat.security.jaas import LoginModule
from kafkacompat.security.kerberos_login import KerberosLogin, login_of_client, service_name_of
from kafkacompat.security.mechanisms import JAAS_CONFIG, LOGIN_MODULES, login_module
from kafkacompat.security.oauthbearer import MECHANISM as OAUTHBEARER
from kafkacompat.security.oauthbearer_client import (
    OAuthBearerSaslClient,
    TokenEndpoint,
    TokenFile,
    TokenSource,
    token_origin,
)
from kafkacompat.security.sasl_client import ClientSecurity, PlainSaslClient, SaslClient
from kafkacompat.security.sasl_server import PLAIN
from kafkacompat.security.scram import NONCE_BITS, SCRAM_BY_NAME, nonce_text
from kafkacompat.security.scram_exchange import ScramSaslClient
from kafkacompat.security.ssl_factory import SslSettings, ssl_settings

if TYPE_CHECKING:
    from kafkacompat.config import ServerConfig

SECURITY_PROTOCOL = "security.protocol"
MECHANISM = "sasl.mechanism"
MECHANISM_BETWEEN_BROKERS = "sasl.mechanism.inter.broker.protocol"
MECHANISM_TO_CONTROLLERS = "sasl.mechanism.controller.protocol"
DEFAULT_MECHANISM = GSSAPI
USER, PASSWORD, IS_TOKEN = "username", "password", "tokenauth"


class Credentials(NamedTuple):
    """The client's credentials. They are not part of its printed form."""

    user: str
    password: str
    is_token: bool = False
    """The user is the id of a delegation token."""

    def __repr__(self) -> str:
        return "Credentials([hidden])"


class Connection(NamedTuple):
    """A client's connection settings."""

    protocol: str
    ssl: SslSettings | None
    mechanism: str
    credentials: Credentials | TokenFile | TokenEndpoint | KerberosLogin | None
    """None without SASL."""

    def security(self) -> ClientSecurity:
        """Raises ConfigError if a store cannot be read."""
        context = None
        if self.ssl is not None:
            from kafkacompat.security.ssl_factory import client_context

            context = client_context(self.ssl)
        if self.credentials is None:
            return ClientSecurity(context)
        if isinstance(self.credentials, TokenEndpoint):
            source, extensions = TokenSource(self.credentials), self.credentials.extensions
            return ClientSecurity(
                context, self.mechanism, lambda host: OAuthBearerSaslClient(source.token, extensions)
            )
        if isinstance(self.credentials, KerberosLogin):
            return ClientSecurity(context, self.mechanism, self.credentials.exchanges(MECHANISM))
        return ClientSecurity(context, self.mechanism, partial(_exchange, self.mechanism, self.credentials))


def security_to_brokers(config: ServerConfig) -> ClientSecurity:
    """How this node connects to brokers. Raises ConfigError."""
    return _to_listener(config, config.inter_broker_listener_name, MECHANISM_BETWEEN_BROKERS)


def security_to_controllers(config: ServerConfig) -> ClientSecurity:
    """How this node connects to controllers: by the first of controller.listener.names. Raises ConfigError."""
    return _to_listener(config, config.controller_listener_names[0], MECHANISM_TO_CONTROLLERS)


def security_of_client(properties: Mapping[str, str]) -> ClientSecurity:
    """From Kafka's client properties. Raises ConfigError."""
    return connection_of_client(properties).security()


def connection_of_client(properties: Mapping[str, str]) -> Connection:
    """The same, without reading any store."""
    protocol = properties.get(SECURITY_PROTOCOL, "PLAINTEXT").strip().upper()
    if protocol not in SECURITY_PROTOCOLS:
        raise ConfigError(SECURITY_PROTOCOL, protocol, f"it must be one of {', '.join(SECURITY_PROTOCOLS)}")
    mechanism = properties.get(MECHANISM, DEFAULT_MECHANISM).strip()
    return _connection(protocol, mechanism, MECHANISM, JAAS_CONFIG, properties, "")


def _to_listener(config: ServerConfig, listener: str, mechanism_setting: str) -> ClientSecurity:
    protocol = config.security_protocols().get(listener, "PLAINTEXT")
    mechanism = config.get_string(mechanism_setting) or DEFAULT_MECHANISM
    prefix = listener_prefix(listener)
    jaas = f"{listener_prefix(listener, mechanism)}{JAAS_CONFIG}"
    connection = _connection(protocol, mechanism, mechanism_setting, jaas, config.originals, prefix)
    security = connection._replace(ssl=None).security()
    if connection.ssl is not None:
        from kafkacompat.security.ssl_listeners import DialledListener

        security.stores = DialledListener(listener, security, connection.ssl)
    return security


def _connection(
    protocol: str,
    mechanism: str,
    mechanism_setting: str,
    jaas_setting: str,
    properties: Mapping[str, str],
    prefix: str,
) -> Connection:
    ssl = ssl_settings(properties, prefix) if protocol.endswith("SSL") else None
    if not protocol.startswith("SASL_"):
        return Connection(protocol, ssl, "", None)
    if mechanism not in LOGIN_MODULES:
        raise ConfigError(mechanism_setting, mechanism, f"only {', '.join(LOGIN_MODULES)} are served")
    text = properties.get(jaas_setting)
    if text is None:
        raise ConfigError(jaas_setting, None, f"{jaas_setting} must be set: it says who connects", whole=True)
    module = login_module(jaas_setting, text, mechanism)
    if mechanism == OAUTHBEARER:
        return Connection(protocol, ssl, mechanism, token_origin(module, properties, prefix))
    if mechanism == GSSAPI:
        login = login_of_client(module, jaas_setting, service_name_of(properties, prefix))
        return Connection(protocol, ssl, mechanism, login)
    is_token = module.options.get(IS_TOKEN, "").lower() == "true"
    user, password = (_option(module, name, jaas_setting) for name in (USER, PASSWORD))
    return Connection(protocol, ssl, mechanism, Credentials(user, password, is_token))


def _exchange(mechanism: str, credentials: Credentials | TokenFile, host: str) -> SaslClient:
    if isinstance(credentials, TokenFile):
        return OAuthBearerSaslClient(credentials.token, credentials.extensions)
    user, password, is_token = credentials
    if mechanism == PLAIN:
        return PlainSaslClient(user, password)
    nonce = nonce_text(secrets.randbits(NONCE_BITS))
    return ScramSaslClient(SCRAM_BY_NAME[mechanism], user, password, nonce, is_token)


def _option(module: LoginModule, name: str, setting: str) -> str:
    value = module.options.get(name)
    if not value:
        raise ConfigError(setting, None, f"{setting}: the login module needs the option {name}", whole=True)
    return value
