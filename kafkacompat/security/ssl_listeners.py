"""The listeners of a node with TLS: their requirements for clients, and stores that change while the node runs, those too with
which it connects to a listener.

Changed stores apply to new connections. They are accepted only if they keep working: clients that know this node's
certificate must recognise the new one, and brokers must still trust each other (the rules of Kafka's dynamic broker
settings).
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from kafkacompat.config.keys import listener_prefix
from kafkacompat.dataclass import dataclass
from kafkacompat.ports.dispatcher import ConnectionInfo, Principal
from kafkacompat.ports.network import Unidentified
from kafkacompat.security.distinguished_name import DerError, rfc2253, subject
from kafkacompat.security.principal_mapping import MAPPING_RULES, NoMatchingRule, SslPrincipalMapper
from kafkacompat.security.ssl_factory import (
    CLIENT_AUTH,
    KEYSTORE_CHAIN,
    KEYSTORE_KEY,
    KEYSTORE_LOCATION,
    TRUSTSTORE_LOCATION,
    SslSettings,
    SslStores,
    client_context,
    file_times,
    load_stores,
    server_context,
    ssl_settings,
)
from kafkacompat.security.stores import subject_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from ssl import SSLContext

    from cryptography.x509 import Certificate, GeneralName

    from kafkacompat.config import EndPoint, ServerConfig
    from kafkacompat.security.sasl_client import ClientSecurity

USER = "User"
_FLIGHTS = 4
"""More than any handshake has."""


@dataclass(frozen=True, slots=True)
class Terms:
    """The settings, stores and context in force, as one value."""

    settings: SslSettings
    stores: SslStores
    context: SSLContext


class SslListener:
    """ports.TlsTerms of one listener. Raises ConfigError if it cannot be served."""

    def __init__(self, config: ServerConfig, endpoint: EndPoint) -> None:
        self.name = f"listener {endpoint.listener_name}"
        self._endpoint = endpoint
        self._is_inter_broker = endpoint.listener_name == config.inter_broker_listener_name
        self._terms = self._made(config)
        rules = self._terms.settings.text(MAPPING_RULES)
        self._mapper = SslPrincipalMapper() if rules is None else SslPrincipalMapper(rules)

    @property
    def context(self) -> SSLContext:
        return self._terms.context

    @property
    def certificate_end_s(self) -> float:
        keystore = self._terms.stores.keystore
        assert keystore is not None
        chains = [each.chain for each in keystore.keys]
        return min(each.not_valid_after_utc.timestamp() for chain in chains for each in chain)

    def identify(self, connection: ConnectionInfo, certificate: bytes | None) -> None:
        """Set the principal from the client's certificate, if there is one and SASL does not set it."""
        if certificate is None or self._endpoint.is_sasl:
            return
        try:
            connection.principal = Principal(USER, self._mapper.name(rfc2253(subject(certificate))))
        except (DerError, NoMatchingRule) as problem:
            raise Unidentified(f"failed authentication ({MAPPING_RULES}: {problem})") from None

    def exchanged(self, config: ServerConfig) -> Terms | None:
        """The terms under these settings, for `take`. None if no store has changed, in a setting or in its file. Reads
        stores, in any thread. Raises ConfigError for what Kafka refuses on an existing listener."""
        before, name = self._terms, self._endpoint.listener_name
        terms = _exchanged(before, _settings(config, self._endpoint), server_context, config, name)
        if terms is not None and self._is_inter_broker:
            _check_that_they_meet(before, terms)
            _check_that_they_meet(terms, before)
        return terms

    def take(self, exchanged: Terms) -> None:
        self._terms = exchanged

    def _made(self, config: ServerConfig) -> Terms:
        settings = _settings(config, self._endpoint)
        stores = load_stores(settings)
        terms = Terms(settings, stores, server_context(settings, stores))
        if self._is_inter_broker:
            _check_that_they_meet(terms, terms)
        return terms


class DialledListener:
    """ports.ChangingStores of this node's connections to a listener, its own or another node's. As Kafka's channels between nodes,
    new connections have the stores of the newest settings."""

    def __init__(self, name: str, security: ClientSecurity, settings: SslSettings) -> None:
        """`security` gets its context here. Raises ConfigError."""
        self.name = f"the connections to listener {name}"
        self._listener = name
        self._security = security
        stores = load_stores(settings)
        self.take(Terms(settings, stores, client_context(settings, stores)))

    def exchanged(self, config: ServerConfig) -> Terms | None:
        now = ssl_settings(config.originals, listener_prefix(self._listener))
        return _exchanged(self._terms, now, client_context, config, self._listener)

    def take(self, exchanged: Terms) -> None:
        self._terms = exchanged
        self._security.context = exchanged.context


def _exchanged(
    before: Terms,
    now: SslSettings,
    context_of: Callable[[SslSettings, SslStores], SSLContext],
    config: ServerConfig,
    listener: str,
) -> Terms | None:
    """The terms with the stores of these settings. None if no store has changed. Raises ConfigError."""
    settings = before.settings.with_stores_of(now)
    if settings == before.settings and file_times(settings) == before.stores.modified_ms:
        return None
    stores = load_stores(settings)
    terms = Terms(settings, stores, context_of(settings, stores))
    _check_identity(before, terms, config, listener)
    if before.stores.truststore is None and stores.truststore is not None:
        raise settings.error(TRUSTSTORE_LOCATION, "a truststore cannot be added to a listener that has none")
    return terms


def ssl_listeners(config: ServerConfig) -> dict[str, SslListener]:
    """By name. Reads stores. Raises ConfigError."""
    return {
        endpoint.listener_name: SslListener(config, endpoint)
        for endpoint in config.listeners()
        if endpoint.has_tls
    }


def _settings(config: ServerConfig, endpoint: EndPoint) -> SslSettings:
    prefix = listener_prefix(endpoint.listener_name)
    properties = dict(config.originals)
    if endpoint.is_sasl:
        # With SASL, a client certificate is requested only if this listener's own setting says so.
        properties.pop(CLIENT_AUTH, None)
    return ssl_settings(properties, prefix)


def _check_identity(before: Terms, after: Terms, config: ServerConfig, listener: str) -> None:
    """Require the same subjects entry by entry, and no fewer alternative names."""
    settings = after.settings
    if before.stores.keystore is None or after.stores.keystore is None:
        if before.stores.keystore is not after.stores.keystore:
            raise settings.error(KEYSTORE_LOCATION, "a keystore can be neither added nor removed")
        return
    old, new = before.stores.keystore.certificates(), after.stores.keystore.certificates()
    setting = KEYSTORE_LOCATION if settings.text(KEYSTORE_KEY) is None else KEYSTORE_CHAIN
    same_names = not config.of_listener(listener, "ssl.allow.dn.changes")
    same_hosts = not config.of_listener(listener, "ssl.allow.san.changes")
    if (same_names or same_hosts) and len(old) != len(new):
        raise settings.error(setting, f"Keystore entries do not match: {len(old)} before, {len(new)} now")
    for (_, was), (alias, now) in zip(old, new, strict=False):
        if same_names and _comparable(was) != _comparable(now):
            text = "Keystore DistinguishedName does not match"
            raise settings.error(
                setting,
                f"{text}: {subject_of(was)} before, {subject_of(now)} now, in entry {alias} (ssl.allow.dn.changes)",
            )
        if same_hosts and not alternative_names(was) <= alternative_names(now):
            text = "Keystore SubjectAltNames do not match"
            raise settings.error(setting, f"{text}: some are gone from entry {alias} (ssl.allow.san.changes)")


def _comparable(certificate: Certificate) -> str:
    """A name without differences in case and number of blanks, which RFC 5280 ignores."""
    return " ".join(subject_of(certificate).lower().split())


def alternative_names(certificate: Certificate) -> frozenset[GeneralName]:
    from cryptography.x509 import ExtensionNotFound, SubjectAlternativeName

    try:
        return frozenset(certificate.extensions.get_extension_for_class(SubjectAlternativeName).value)
    except ExtensionNotFound:
        return frozenset()


def _check_that_they_meet(server: Terms, client: Terms) -> None:
    """Check that brokers with these stores trust each other, for any host name. Raises ConfigError."""
    import ssl

    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    dialing = client_context(client.settings, client.stores)
    dialing.check_hostname = False
    sides = (
        dialing.wrap_bio(to_client, to_server),
        server.context.wrap_bio(to_server, to_client, server_side=True),
    )
    try:
        for _ in range(_FLIGHTS):
            for side in sides:
                with suppress(ssl.SSLWantReadError):
                    side.do_handshake()
    except ssl.SSLError as error:
        raise client.settings.error(
            KEYSTORE_LOCATION if client.settings.text(KEYSTORE_KEY) is None else KEYSTORE_CHAIN,
            f"brokers with these stores do not believe each other: {error.reason or error}",
        ) from None
