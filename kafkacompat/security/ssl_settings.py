"""The settings `ssl.*` of one listener or one client, and the stores that they name.

For a listener, `listener.name.<its name in lower case>.ssl.x` has precedence over `ssl.x`. An error has the setting's
name as written and the position, never the value.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kafkacompat.config import ConfigError, broker_keys, parse_value
from kafkacompat.security import stores
from kafkacompat.security.stores import PEM, Store, StoreError

if TYPE_CHECKING:
    from kafkacompat.config.validators import ConfigValue

KEYSTORE_TYPE = "ssl.keystore.type"
KEYSTORE_LOCATION = "ssl.keystore.location"
KEYSTORE_PASSWORD = "ssl.keystore.password"
KEYSTORE_KEY = "ssl.keystore.key"
KEYSTORE_CHAIN = "ssl.keystore.certificate.chain"
KEY_PASSWORD = "ssl.key.password"
TRUSTSTORE_TYPE = "ssl.truststore.type"
TRUSTSTORE_LOCATION = "ssl.truststore.location"
TRUSTSTORE_PASSWORD = "ssl.truststore.password"
TRUSTSTORE_CERTIFICATES = "ssl.truststore.certificates"
CLIENT_AUTH = "ssl.client.auth"
PROTOCOL = "ssl.protocol"
ENABLED_PROTOCOLS = "ssl.enabled.protocols"
CIPHER_SUITES = "ssl.cipher.suites"
ENDPOINT_IDENTIFICATION = "ssl.endpoint.identification.algorithm"
MAPPING_RULES = "ssl.principal.mapping.rules"
ENGINE_FACTORY = "ssl.engine.factory.class"
PROVIDER = "ssl.provider"
OF_STORES = (
    KEYSTORE_TYPE,
    KEYSTORE_LOCATION,
    KEYSTORE_PASSWORD,
    KEYSTORE_KEY,
    KEYSTORE_CHAIN,
    KEY_PASSWORD,
    TRUSTSTORE_TYPE,
    TRUSTSTORE_LOCATION,
    TRUSTSTORE_PASSWORD,
    TRUSTSTORE_CERTIFICATES,
)
NAMES = (
    *OF_STORES,
    CLIENT_AUTH,
    PROTOCOL,
    ENABLED_PROTOCOLS,
    CIPHER_SUITES,
    ENDPOINT_IDENTIFICATION,
    MAPPING_RULES,
    ENGINE_FACTORY,
    PROVIDER,
)
_STORE_TYPES = (PEM, stores.PKCS12, stores.JKS)
_OF_JAVA = (ENGINE_FACTORY, PROVIDER)
"""They name Java classes that have no equivalent here."""


@dataclass(frozen=True, slots=True)
class SslSettings:
    """Values by their plain names. They may contain passwords and keys, so they are not part of the printed form."""

    _values: Mapping[str, ConfigValue] = field(repr=False)
    _written: Mapping[str, str] = field(compare=False)

    def text(self, name: str) -> str | None:
        value = self._values[name]
        assert value is None or isinstance(value, str)
        return value

    def entries(self, name: str) -> tuple[str, ...]:
        value = self._values[name]
        assert isinstance(value, tuple)
        return value

    def with_stores_of(self, other: SslSettings) -> SslSettings:
        """These settings with the stores of `other`: on an existing listener only the stores can change."""
        stores = {name: other._values[name] for name in OF_STORES}
        return SslSettings({**self._values, **stores}, {**self._written, **other._written})

    def error(self, name: str, message: str) -> ConfigError:
        """An error about a setting, with the name by which it was set."""
        written = self._written.get(name, name)
        return ConfigError(written, None, f"{written}: {message}", whole=True)


def ssl_settings(properties: Mapping[str, str], prefix: str = "") -> SslSettings:
    """From a client's properties, or from a node's with a listener's prefix. Raises ConfigError."""
    keys = broker_keys()
    values: dict[str, ConfigValue] = {}
    written: dict[str, str] = {}
    for name in NAMES:
        values[name] = keys[name].default
        for written_as in (prefix + name, name):
            if written_as in properties:
                values[name] = parse_value(keys[name], properties[written_as])
                written[name] = written_as
                break
    settings = SslSettings(values, written)
    for name in _OF_JAVA:
        if settings.text(name):
            raise settings.error(name, "this names a class of Java's, and is not supported")
    return settings


@dataclass(frozen=True, slots=True)
class SslStores:
    """The stores that the settings name, and the modification times of their files."""

    keystore: Store | None = field(repr=False)
    truststore: Store | None = field(repr=False)
    modified_ms: tuple[int | None, int | None]


def load_stores(settings: SslSettings) -> SslStores:
    """Reads files. Raises ConfigError with the setting concerned."""
    modified_ms = file_times(settings)
    return SslStores(_keystore(settings), _truststore(settings), modified_ms)


def file_times(settings: SslSettings) -> tuple[int | None, int | None]:
    """Modification times of the keystore's and the truststore's files. None if it is not a file."""
    places = settings.text(KEYSTORE_LOCATION), settings.text(TRUSTSTORE_LOCATION)
    first, second = (None if place is None else stores.modified_ms(place) for place in places)
    return first, second


def _keystore(settings: SslSettings) -> Store | None:
    key, chain = settings.text(KEYSTORE_KEY), settings.text(KEYSTORE_CHAIN)
    place, password = settings.text(KEYSTORE_LOCATION), settings.text(KEYSTORE_PASSWORD)
    key_password, is_pem = settings.text(KEY_PASSWORD), _is_pem(settings, KEYSTORE_TYPE)
    blame = {
        stores.STORE: KEYSTORE_LOCATION,
        stores.PASSWORD: KEYSTORE_PASSWORD,
        stores.KEY_PASSWORD: KEYSTORE_PASSWORD if key_password is None and not is_pem else KEY_PASSWORD,
        stores.KEY: KEYSTORE_LOCATION if key is None else KEYSTORE_KEY,
        stores.CHAIN: KEYSTORE_LOCATION if chain is None else KEYSTORE_CHAIN,
    }
    if key is not None or chain is not None:
        _check_inline(settings, KEYSTORE_CHAIN if key is None else KEYSTORE_KEY, KEYSTORE_TYPE, is_pem)
        if key is None:
            raise settings.error(KEYSTORE_CHAIN, f"needs {KEYSTORE_KEY} as well")
        if chain is None:
            raise settings.error(KEYSTORE_KEY, f"needs {KEYSTORE_CHAIN} as well")
        if place is not None:
            raise settings.error(KEYSTORE_LOCATION, f"and {KEYSTORE_KEY} exclude each other")
    if is_pem and password is not None:
        raise settings.error(KEYSTORE_PASSWORD, f"PEM has no such password; its key's is {KEY_PASSWORD}")
    if place is None and password is not None:
        raise settings.error(KEYSTORE_PASSWORD, f"is set without {KEYSTORE_LOCATION}")
    if place is not None and password is None and not is_pem:
        raise settings.error(KEYSTORE_LOCATION, f"needs {KEYSTORE_PASSWORD}")
    try:
        if key is not None and chain is not None:
            return stores.pem_keystore(key, chain, key_password)
        if place is None:
            return None
        data = stores.read_file(place)
        if is_pem:
            text = stores.text_of(data)
            return stores.pem_keystore(text, text, key_password)
        return stores.binary_store(data, password, key_password, wants_key=True)
    except StoreError as problem:
        raise settings.error(blame[problem.part], str(problem)) from None


def _truststore(settings: SslSettings) -> Store | None:
    certificates = settings.text(TRUSTSTORE_CERTIFICATES)
    place, password = settings.text(TRUSTSTORE_LOCATION), settings.text(TRUSTSTORE_PASSWORD)
    is_pem = _is_pem(settings, TRUSTSTORE_TYPE)
    if certificates is not None:
        _check_inline(settings, TRUSTSTORE_CERTIFICATES, TRUSTSTORE_TYPE, is_pem)
        if place is not None:
            raise settings.error(TRUSTSTORE_LOCATION, f"and {TRUSTSTORE_CERTIFICATES} exclude each other")
    if is_pem and password is not None:
        raise settings.error(TRUSTSTORE_PASSWORD, "PEM has no password")
    if place is None and password is not None:
        raise settings.error(TRUSTSTORE_PASSWORD, f"is set without {TRUSTSTORE_LOCATION}")
    blame = {stores.PASSWORD: TRUSTSTORE_PASSWORD if password is not None else TRUSTSTORE_LOCATION}
    try:
        if certificates is not None:
            blame[stores.CHAIN] = TRUSTSTORE_CERTIFICATES
            return stores.pem_truststore(certificates)
        if place is None:
            return None
        data = stores.read_file(place)
        if is_pem:
            return stores.pem_truststore(stores.text_of(data))
        return stores.binary_store(data, password, None, wants_key=False)
    except StoreError as problem:
        raise settings.error(blame.get(problem.part, TRUSTSTORE_LOCATION), str(problem)) from None


def _is_pem(settings: SslSettings, type_setting: str) -> bool:
    """Kafka accepts PEM in capitals only; Java accepts the other types in any case."""
    kind = settings.text(type_setting) or ""
    if kind != PEM and (kind == "" or kind.upper() not in _STORE_TYPES or kind.upper() == PEM):
        raise settings.error(type_setting, f"{kind} is none of {', '.join(_STORE_TYPES)}")
    return kind == PEM


def _check_inline(settings: SslSettings, name: str, type_setting: str, is_pem: bool) -> None:
    if not is_pem:
        raise settings.error(name, f"only {PEM} may stand in a setting, and {type_setting} is not {PEM}")
