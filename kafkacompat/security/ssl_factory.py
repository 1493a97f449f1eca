"""The settings `ssl.*` of one listener or one client, the stores that they name, and the OpenSSL contexts made of them.

For a listener, `listener.name.<its name in lower case>.ssl.x` has precedence over `ssl.x`. An error has the setting's name as
written and the position, never the value. `ssl` and `cryptography` are imported when a context is made. Python's `ssl` loads
keys only from files. So a key is passed as a file: in memory if the system supports that, encrypted with a random password,
and deleted right after.
"""

from __future__ import annotations

import logging
import os
import secrets
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field
from typing import TYPE_CHECKING

from kafkacompat.config import ConfigError, broker_keys, parse_value
from kafkacompat.dataclass import dataclass
from kafkacompat.security import stores
from kafkacompat.security.principal_mapping import MAPPING_RULES
from kafkacompat.security.stores import PEM, Store, StoreError

if TYPE_CHECKING:
    from ssl import SSLContext

    from kafkacompat.config.keys import ConfigValue
    from kafkacompat.security.stores import KeyEntry

_log = logging.getLogger(__name__)

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
    """Reads files. Raises ConfigError with the setting concerned. If the system lets no file be read, its error is the cause."""
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
        raise settings.error(blame[problem.part], str(problem)) from problem.__cause__


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
        raise settings.error(
            blame.get(problem.part, TRUSTSTORE_LOCATION), str(problem)
        ) from problem.__cause__


def _is_pem(settings: SslSettings, type_setting: str) -> bool:
    """Kafka accepts PEM in capitals only; Java accepts the other types in any case."""
    kind = settings.text(type_setting) or ""
    if kind != PEM and (kind == "" or kind.upper() not in _STORE_TYPES or kind.upper() == PEM):
        raise settings.error(type_setting, f"{kind} is none of {', '.join(_STORE_TYPES)}")
    return kind == PEM


def _check_inline(settings: SslSettings, name: str, type_setting: str, is_pem: bool) -> None:
    if not is_pem:
        raise settings.error(name, f"only {PEM} may stand in a setting, and {type_setting} is not {PEM}")


NO_SUITE = "TLS_EMPTY_RENEGOTIATION_INFO_SCSV"
"""Java lists this among the suites. It is a signal to the peer, which OpenSSL always sends."""
_WITH = "_WITH_"
_PREFIXES = ("TLS_", "SSL_")


def is_tls13(name: str) -> bool:
    return name.startswith("TLS_") and _WITH not in name and name != NO_SUITE


def openssl_name(name: str) -> str | None:
    """The OpenSSL name of a suite up to TLS 1.2: TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 is ECDHE-RSA-AES128-GCM-SHA256.
    None for other forms."""
    exchange, found, cipher = name.partition(_WITH)
    if not found or exchange[:4] not in _PREFIXES:
        return None
    words = cipher.split("_")
    if words[0] == "AES" and len(words) > 1:
        words[:2] = ["AES" + words[1]]
    # OpenSSL's names omit the mode only if it is CBC, and the digest of ChaCha20.
    words = [word for word in words if word != "CBC"]
    if words[0] == "CHACHA20":
        words = words[:2]
    keys = [] if exchange[4:] == "RSA" else exchange[4:].split("_")
    return "-".join(keys + words)


_PROTOCOLS = ("TLSv1", "TLSv1.1", "TLSv1.2", "TLSv1.3")
_SINCE_TLS12 = ("TLSv1.2", "TLSv1.3")


def server_context(settings: SslSettings, loaded: SslStores | None = None) -> SSLContext:
    """For a listener. `loaded` has the stores if they are already read. Raises ConfigError with the setting. Its cause is the
    system's error, if there is one."""
    import ssl

    stores = load_stores(settings) if loaded is None else loaded
    if stores.keystore is None:
        raise settings.error(KEYSTORE_LOCATION, "a listener needs a key and its certificate")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    # A renegotiation costs this side more than the client, and may change identities (RFC 5746).
    context.options |= ssl.OP_NO_RENEGOTIATION
    auth = settings.text(CLIENT_AUTH)
    context.verify_mode = {"required": ssl.CERT_REQUIRED, "requested": ssl.CERT_OPTIONAL}.get(
        auth or "", ssl.CERT_NONE
    )
    _restrict(context, settings)
    _take_keys(context, settings, stores)
    _take_anchors(context, settings, stores, ssl.Purpose.CLIENT_AUTH)
    return context


def client_context(settings: SslSettings, loaded: SslStores | None = None) -> SSLContext:
    """For outgoing connections. The certificate must be for the dialled host, which is passed as `server_hostname`,
    unless ssl.endpoint.identification.algorithm is empty. Raises ConfigError with the setting."""
    import ssl

    stores = load_stores(settings) if loaded is None else loaded
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    algorithm = settings.text(ENDPOINT_IDENTIFICATION) or ""
    if algorithm.lower() not in ("", "https"):
        raise settings.error(ENDPOINT_IDENTIFICATION, f"{algorithm} is neither https nor empty")
    context.check_hostname = bool(algorithm)
    context.verify_mode = ssl.CERT_REQUIRED
    context.options |= ssl.OP_NO_RENEGOTIATION
    _restrict(context, settings)
    if stores.keystore is not None:
        _take_keys(context, settings, stores)
    _take_anchors(context, settings, stores, ssl.Purpose.SERVER_AUTH)
    return context


class ClientContext:
    """`client_context`, of the stores that lie in the files now. It blocks."""

    def __init__(self, settings: SslSettings) -> None:
        """Raises ConfigError with the setting."""
        self._settings = settings
        self._stores, self._context = self._made()

    def newest(self) -> SSLContext:
        """If a changed file cannot be used, this is logged, and the context stays as it was."""
        if file_times(self._settings) != self._stores.modified_ms:
            try:
                self._stores, self._context = self._made()
            except ConfigError as error:
                _log.error("%s; the stores stay as they were", error)
        return self._context

    def _made(self) -> tuple[SslStores, SSLContext]:
        stores = load_stores(self._settings)
        return stores, client_context(self._settings, stores)


def _restrict(context: SSLContext, settings: SslSettings) -> None:
    """Restrict the context to the enabled protocols and cipher suites."""
    import ssl

    enabled = _protocols(settings)
    suites = [name for name in settings.entries(CIPHER_SUITES) if name != NO_SUITE]
    if suites:
        modern = [name for name in suites if is_tls13(name)]
        older = [name for name in suites if not is_tls13(name)]
        enabled = [each for each in enabled if (modern if each == "TLSv1.3" else older)]
        if not enabled:
            raise settings.error(CIPHER_SUITES, f"none is of a protocol that {ENABLED_PROTOCOLS} has")
        if older:
            _restrict_older(context, settings, older)
        if modern:
            _restrict_modern(context, settings, modern)
    versions = {
        "TLSv1": ssl.TLSVersion.TLSv1,
        "TLSv1.1": ssl.TLSVersion.TLSv1_1,
        "TLSv1.2": ssl.TLSVersion.TLSv1_2,
        "TLSv1.3": ssl.TLSVersion.TLSv1_3,
    }
    if not any(each in _SINCE_TLS12 for each in enabled):
        raise settings.error(ENABLED_PROTOCOLS, "TLSv1 and TLSv1.1 are broken and off in OpenSSL, as in Java")
    context.minimum_version = next(versions[each] for each in _SINCE_TLS12 if each in enabled)
    context.maximum_version = next(versions[each] for each in reversed(_SINCE_TLS12) if each in enabled)


def _protocols(settings: SslSettings) -> list[str]:
    """In the order of their versions. If none is enabled, all up to ssl.protocol."""
    limit = settings.text(PROTOCOL) or ""
    if limit not in (*_PROTOCOLS, "TLS", "SSL"):
        raise settings.error(PROTOCOL, f"{limit} is no protocol that is known")
    enabled = settings.entries(ENABLED_PROTOCOLS)
    for name in enabled:
        if name not in _PROTOCOLS:
            raise settings.error(ENABLED_PROTOCOLS, f"{name} is none of {', '.join(_PROTOCOLS)}")
    if not enabled:
        return list(_PROTOCOLS[: _PROTOCOLS.index(limit) + 1] if limit in _PROTOCOLS else _PROTOCOLS)
    return [each for each in _PROTOCOLS if each in enabled]


def _restrict_older(context: SSLContext, settings: SslSettings, names: list[str]) -> None:
    import ssl

    translated: list[str] = []
    for name in names:
        known = openssl_name(name)
        try:
            if known is None:
                raise ssl.SSLError
            context.set_ciphers(known)
        except ssl.SSLError:
            raise settings.error(CIPHER_SUITES, f"{name} is no cipher suite that OpenSSL has") from None
        translated.append(known)
    context.set_ciphers(":".join(translated))


def _restrict_modern(context: SSLContext, settings: SslSettings, names: list[str]) -> None:
    known = [each["name"] for each in context.get_ciphers() if is_tls13(each["name"])]
    for name in names:
        if name not in known:
            raise settings.error(CIPHER_SUITES, f"{name} is no cipher suite that OpenSSL has")
    if set(names) == set(known):
        return
    set_ciphersuites = getattr(context, "set_ciphersuites", None)
    if set_ciphersuites is None:
        # A listener that offers more than allowed would be worse than one that does not start.
        raise settings.error(
            CIPHER_SUITES,
            f"this Python cannot choose among the suites of TLS 1.3: name all of {', '.join(known)}, or none of them",
        )
    set_ciphersuites(":".join(names))


def _take_keys(context: SSLContext, settings: SslSettings, stores: SslStores) -> None:
    """Load the first key of each type, because OpenSSL holds only one."""
    import ssl

    assert stores.keystore is not None
    setting = KEYSTORE_LOCATION if settings.text(KEYSTORE_KEY) is None else KEYSTORE_KEY
    if not stores.keystore.keys:
        raise settings.error(setting, "there is no private key in it")
    kinds: set[type] = set()
    for entry in sorted(stores.keystore.keys, key=lambda each: each.alias):
        if type(entry.key) in kinds:
            continue
        kinds.add(type(entry.key))
        try:
            _take_key(context, entry)
        except ssl.SSLError as error:
            reason = (
                "the private key is not that of the certificate"
                if error.reason == "KEY_VALUES_MISMATCH"
                else f"OpenSSL does not take the key or its certificates: {error.reason or error}"
            )
            raise settings.error(setting, reason) from None
        except OSError as error:
            text = f"the key cannot be passed to OpenSSL: {error.strerror or error}"
            raise settings.error(setting, text) from error


def _take_key(context: SSLContext, entry: KeyEntry) -> None:
    from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat

    assert entry.key is not None
    password = secrets.token_hex(32)
    data = entry.key.private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(password.encode())
    )
    data += b"".join(each.public_bytes(Encoding.PEM) for each in entry.chain)
    with _as_file(data) as path:
        context.load_cert_chain(path, password=password)


@contextmanager
def _as_file(data: bytes) -> Iterator[str]:
    if hasattr(os, "memfd_create"):
        with open(os.memfd_create("keystore"), "wb") as file:
            file.write(data)
            file.flush()
            yield f"/proc/self/fd/{file.fileno()}"
    else:
        with tempfile.NamedTemporaryFile() as file:  # only its owner may read it
            file.write(data)
            file.flush()
            yield file.name


def _take_anchors(context: SSLContext, settings: SslSettings, stores: SslStores, purpose: object) -> None:
    """Trust the certificates in the truststore. Without one, those that the system trusts."""
    import ssl

    from cryptography.hazmat.primitives.serialization import Encoding

    if stores.truststore is None:
        context.load_default_certs(purpose)  # type: ignore[arg-type]
        return
    anchors = stores.truststore.anchors()
    if not anchors:
        setting = (
            TRUSTSTORE_LOCATION if settings.text(TRUSTSTORE_CERTIFICATES) is None else TRUSTSTORE_CERTIFICATES
        )
        raise settings.error(setting, "there is no certificate in it")
    context.load_verify_locations(cadata=b"".join(each.public_bytes(Encoding.DER) for each in anchors))
    # A certificate in a truststore is trusted even if another authority has issued it.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
