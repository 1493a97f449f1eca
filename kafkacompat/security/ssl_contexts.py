"""OpenSSL contexts from settings and stores, for a listener and for a client.

Servers and channels are unknown here. `ssl` and `cryptography` are imported when a context is made. Python's `ssl`
loads keys only from files. So a key is passed as a file: in memory if the system supports that, encrypted with a
random password, and deleted right after.
"""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kafkacompat.security.cipher_suites import NO_SUITE, is_tls13, openssl_name
from kafkacompat.security.ssl_settings import (
    CIPHER_SUITES,
    CLIENT_AUTH,
    ENABLED_PROTOCOLS,
    ENDPOINT_IDENTIFICATION,
    KEYSTORE_KEY,
    KEYSTORE_LOCATION,
    PROTOCOL,
    TRUSTSTORE_CERTIFICATES,
    TRUSTSTORE_LOCATION,
    SslSettings,
    SslStores,
    load_stores,
)

if TYPE_CHECKING:
    from ssl import SSLContext

    from kafkacompat.security.stores import KeyEntry

_PROTOCOLS = ("TLSv1", "TLSv1.1", "TLSv1.2", "TLSv1.3")
_SINCE_TLS12 = ("TLSv1.2", "TLSv1.3")


def server_context(settings: SslSettings, loaded: SslStores | None = None) -> SSLContext:
    """For a listener. `loaded` has the stores if they are already read. Raises ConfigError with the setting."""
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
