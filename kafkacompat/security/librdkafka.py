"""Kafka's client properties as librdkafka settings. librdkafka has no JAAS text and no Java key stores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kafkacompat.config import ConfigError
from kafkacompat.security.client_settings import MECHANISM, Credentials, connection_of_client
from kafkacompat.security.kerberos_login import SERVICE_NAME, KerberosLogin
from kafkacompat.security.oauthbearer import MECHANISM as OAUTHBEARER
from kafkacompat.security.oauthbearer_client import OF_TOKENS, TokenEndpoint, TokenFile
from kafkacompat.security.sasl_server import PLAIN

if TYPE_CHECKING:
    from kafkacompat.security.ssl_factory import SslSettings

OF_KERBEROS = "sasl.kerberos."


def librdkafka_settings(properties: Mapping[str, str]) -> dict[str, str]:
    """The settings of a librdkafka client besides its own; empty without security. They contain secrets. Raises
    ConfigError."""
    connection = connection_of_client(properties)
    settings: dict[str, str] = {}
    if connection.protocol != "PLAINTEXT":
        settings["security.protocol"] = connection.protocol
    if connection.credentials is not None:
        settings |= _of_sasl(connection.mechanism, connection.credentials)
    if connection.ssl is not None:
        settings |= _of_tls(connection.ssl)
    return settings


def _of_sasl(
    mechanism: str, credentials: Credentials | TokenFile | TokenEndpoint | KerberosLogin
) -> dict[str, str]:
    if isinstance(credentials, TokenEndpoint):
        return _of_endpoint(credentials)
    if isinstance(credentials, KerberosLogin):
        return _of_kerberos(mechanism, credentials)
    if isinstance(credentials, TokenFile):
        raise ConfigError(MECHANISM, mechanism, "a client of librdkafka reads no token from a file")
    if credentials.is_token and mechanism != PLAIN:
        raise ConfigError(
            MECHANISM, mechanism, "a client of librdkafka does not log in with a delegation token"
        )
    return {
        "sasl.mechanism": mechanism,
        "sasl.username": credentials.user,
        "sasl.password": credentials.password,
    }


def _of_kerberos(mechanism: str, login: KerberosLogin) -> dict[str, str]:
    """librdkafka runs kinit for a keytab. It has no setting for a ticket cache: KRB5CCNAME names it."""
    settings = {"sasl.mechanism": mechanism, SERVICE_NAME: login.service}
    if login.ticket_cache is not None:
        raise ConfigError(
            MECHANISM, mechanism, "a client of librdkafka has only the user's default ticket cache"
        )
    if login.uses_ticket_cache:
        # An empty command: the tickets are there.
        return settings | {f"{OF_KERBEROS}kinit.cmd": ""}
    assert login.principal is not None
    settings[f"{OF_KERBEROS}principal"] = login.principal
    if login.keytab is not None:
        settings[f"{OF_KERBEROS}keytab"] = login.keytab
    return settings


def _of_endpoint(endpoint: TokenEndpoint) -> dict[str, str]:
    """librdkafka asks the authorization server itself."""
    asked = endpoint.credentials
    if asked.url_encodes:
        raise ConfigError(
            MECHANISM, OAUTHBEARER, "a client of librdkafka has no sasl.oauthbearer.header.urlencode"
        )
    settings = {
        "sasl.mechanism": OAUTHBEARER,
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.client.id": asked.client_id,
        "sasl.oauthbearer.client.secret": asked.secret,
        "sasl.oauthbearer.token.endpoint.url": endpoint.address.url,
    }
    if asked.scope is not None:
        settings[f"{OF_TOKENS}scope"] = asked.scope
    if endpoint.extensions:
        settings["sasl.oauthbearer.extensions"] = ",".join(
            f"{name}={value}" for name, value in endpoint.extensions.items()
        )
    if endpoint.ssl is not None and (anchors := _of_tls(endpoint.ssl).get("ssl.ca.pem")):
        settings["https.ca.pem"] = anchors
    return settings


def _of_tls(settings: SslSettings) -> dict[str, str]:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    from kafkacompat.security.ssl_factory import ENDPOINT_IDENTIFICATION, load_stores

    stores = load_stores(settings)
    found = {"ssl.endpoint.identification.algorithm": settings.text(ENDPOINT_IDENTIFICATION) or "none"}
    if stores.truststore is not None:
        anchors = stores.truststore.anchors()
        found["ssl.ca.pem"] = "".join(each.public_bytes(Encoding.PEM).decode() for each in anchors)
    if stores.keystore is not None and stores.keystore.keys:
        entry = min(stores.keystore.keys, key=lambda each: each.alias)
        assert entry.key is not None
        key = entry.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        found["ssl.key.pem"] = key.decode()
        found["ssl.certificate.pem"] = "".join(
            each.public_bytes(Encoding.PEM).decode() for each in entry.chain
        )
    return found
