"""Keystores and truststores in any format: PEM, PKCS#12, JKS.

A store is a value: private keys with their chains, and trusted certificates. As in Java, a store declared as JKS may
be PKCS#12 and the reverse, because keytool writes PKCS#12 while JKS is the default type. No error and no printed form
contains secrets. `cryptography` is imported when a store is read, so a node without TLS does not load it.
"""

from __future__ import annotations

import os
from dataclasses import field
from typing import TYPE_CHECKING

from kafkacompat.config.properties import open_regular
from kafkacompat.dataclass import dataclass
from kafkacompat.security import pem
from kafkacompat.security.distinguished_name import DerError, issuer, rfc2253, subject
from kafkacompat.security.jks import MAGIC, JksError, JksStore, WrongPassword, parse_jks

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
    from cryptography.x509 import Certificate

STORE_BYTES_MAX = 16 * 1024 * 1024
PEM = "PEM"
PKCS12 = "PKCS12"
JKS = "JKS"
PEM_ALIAS = "kafka"
"""Kafka's name for the only key of a PEM store. Its trusted certificates are kafka0, kafka1 and so on."""


class StoreError(Exception):
    """A store cannot be used. `part` tells which setting is concerned: STORE, PASSWORD, KEY_PASSWORD, KEY or CHAIN."""

    def __init__(self, part: str, message: str) -> None:
        super().__init__(message)
        self.part = part


STORE, PASSWORD, KEY_PASSWORD, KEY, CHAIN = "store", "password", "key password", "key", "chain"
_SEQUENCE = b"\x30"


@dataclass(frozen=True, slots=True)
class KeyEntry:
    alias: str
    key: PrivateKeyTypes | None = field(repr=False)
    """None in a truststore, where keys are not decrypted."""
    chain: tuple[Certificate, ...]
    """The key's own certificate first."""


@dataclass(frozen=True, slots=True)
class TrustedCertificate:
    alias: str
    certificate: Certificate


@dataclass(frozen=True, slots=True)
class Store:
    keys: tuple[KeyEntry, ...]
    trusted: tuple[TrustedCertificate, ...]

    def certificates(self) -> list[tuple[str, Certificate]]:
        """Alias and certificate of every entry (for a key, its own certificate), sorted by alias."""
        own = [(each.alias, each.chain[0]) for each in self.keys if each.chain]
        return sorted(
            own + [(each.alias, each.certificate) for each in self.trusted], key=lambda each: each[0]
        )

    def anchors(self) -> list[Certificate]:
        """The trusted certificates, each once. As in Java, the own certificate of a key counts too."""
        return list(dict.fromkeys(certificate for _, certificate in self.certificates()))


def read_file(path: str) -> bytes:
    """Raises StoreError if it cannot be read, or is too long for a store. The system's error is its cause."""
    try:
        with open(open_regular(path), "rb") as file:
            data = file.read(STORE_BYTES_MAX + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise StoreError(STORE, f"{path} cannot be read: {reason}") from error
    if len(data) > STORE_BYTES_MAX:
        raise StoreError(STORE, f"{path} is larger than {STORE_BYTES_MAX} bytes")
    return data


def modified_ms(path: str) -> int | None:
    try:
        return os.stat(path).st_mtime_ns // 1_000_000
    except OSError:
        return None


def pem_keystore(key_text: str, chain_text: str, key_password: str | None) -> Store:
    """Raises StoreError."""
    chain = _pem_certificates(chain_text, CHAIN)
    return Store((KeyEntry(PEM_ALIAS, _pem_key(key_text, key_password), chain),), ())


def pem_truststore(text: str) -> Store:
    """Raises StoreError."""
    certificates = enumerate(_pem_certificates(text, CHAIN))
    return Store((), tuple(TrustedCertificate(f"{PEM_ALIAS}{at}", each) for at, each in certificates))


def text_of(data: bytes, part: str = STORE) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise StoreError(part, "this is no PEM text") from None


def binary_store(data: bytes, password: str | None, key_password: str | None, *, wants_key: bool) -> Store:
    """A PKCS#12 or JKS store, recognised by its first bytes. Keys are decrypted if `wants_key`. Raises StoreError."""
    if data.startswith(MAGIC):
        return _of_jks(data, password, key_password, wants_key)
    return _of_pkcs12(data, password)


def _of_jks(data: bytes, password: str | None, key_password: str | None, wants_key: bool) -> Store:
    try:
        store = parse_jks(data, password)
    except JksError as error:
        raise StoreError(STORE, str(error)) from None
    except WrongPassword:
        raise StoreError(PASSWORD, "the password is wrong, or the store was changed without it") from None
    trusted = tuple(
        TrustedCertificate(alias, _certificate(der, STORE, f"the certificate {alias}"))
        for alias, der in store.trusted
    )
    return Store(_keys_of_jks(store, key_password or password, wants_key), trusted)


def _keys_of_jks(store: JksStore, password: str | None, wants_key: bool) -> tuple[KeyEntry, ...]:
    from cryptography.hazmat.primitives.serialization import load_der_private_key

    found: list[KeyEntry] = []
    for entry in store.keys:
        chain = tuple(_certificate(der, STORE, f"a certificate of {entry.alias}") for der in entry.chain)
        try:
            key = load_der_private_key(entry.unprotected(password or ""), None) if wants_key else None
        except WrongPassword:
            raise StoreError(KEY_PASSWORD, f"the key {entry.alias} has another password") from None
        except JksError as error:
            raise StoreError(STORE, str(error)) from None
        except _key_problems():
            raise StoreError(STORE, f"the key {entry.alias} cannot be used") from None
        found.append(KeyEntry(entry.alias, key, chain))
    return tuple(found)


def _of_pkcs12(data: bytes, password: str | None) -> Store:
    """The library returns one key, the first. Certificates of the chain of a key are not trusted ones.

    Java marks those that it trusts, but the library does not tell the mark.
    """
    from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12

    if not data.startswith(_SEQUENCE):
        raise StoreError(STORE, "this is neither PKCS#12 nor JKS")
    try:
        store = load_pkcs12(data, None if password is None else password.encode())
    except _key_problems():
        raise StoreError(PASSWORD, "the password is wrong, or the store is damaged") from None
    others = {each.certificate: _alias(each.friendly_name) for each in store.additional_certs}
    keys: tuple[KeyEntry, ...] = ()
    if store.key is not None:
        if store.cert is None:
            raise StoreError(STORE, "there is no certificate for the key")
        chain = chain_of(store.cert.certificate, list(others))
        keys = (KeyEntry(_alias(store.cert.friendly_name), store.key, chain),)
        others = {
            each: alias
            for each, alias in others.items()
            # OpenSSL writes the certificates beside a key without an alias, and keytool those of a chain with their subject.
            if alias and alias != subject_of(each) and each not in chain
        }
    return Store(keys, tuple(TrustedCertificate(alias, each) for each, alias in others.items()))


def chain_of(first: Certificate, others: list[Certificate]) -> tuple[Certificate, ...]:
    """A certificate, its issuer, that one's issuer, and so on, as far as available."""
    by_subject: dict[str, list[Certificate]] = {}
    for each in others:
        by_subject.setdefault(subject_of(each), []).append(each)
    chain = [first]
    while True:
        issuer = issuer_of(chain[-1])
        above = next((each for each in by_subject.get(issuer, ()) if each not in chain), None)
        if above is None or issuer == subject_of(chain[-1]):
            return tuple(chain)
        chain.append(above)


def subject_of(certificate: Certificate) -> str:
    """As in RFC 2253. `cryptography` would warn of names that RFC 5280 does not allow, such as keytool's C=Unknown."""
    return _name_text(subject(_encoded(certificate)))


def issuer_of(certificate: Certificate) -> str:
    return _name_text(issuer(_encoded(certificate)))


def _name_text(name: bytes) -> str:
    try:
        return rfc2253(name)
    except DerError:
        return name.hex()


def _encoded(certificate: Certificate) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    return certificate.public_bytes(Encoding.DER)


def _key_problems() -> tuple[type[Exception], ...]:
    """The errors of `cryptography` for a wrong password, for damage, and for an unsupported algorithm."""
    from cryptography.exceptions import UnsupportedAlgorithm

    return ValueError, TypeError, UnsupportedAlgorithm


def _alias(friendly_name: bytes | None) -> str:
    return "" if friendly_name is None else friendly_name.decode("utf-8", "replace")


def _pem_entries(text: str, part: str) -> list[tuple[str, bytes]]:
    try:
        return pem.entries(text)
    except pem.PemError as error:
        raise StoreError(part, str(error)) from None


def _pem_certificates(text: str, part: str) -> tuple[Certificate, ...]:
    found = [der for label, der in _pem_entries(text, part) if label.endswith(pem.CERTIFICATE)]
    if not found:
        raise StoreError(part, "at least one certificate is expected, and there is none")
    return tuple(_certificate(der, part, f"certificate {at}") for at, der in enumerate(found, 1))


def _certificate(der: bytes, part: str, which: str) -> Certificate:
    from cryptography.x509 import load_der_x509_certificate

    try:
        return load_der_x509_certificate(der)
    except ValueError as error:
        raise StoreError(part, f"{which} is no X.509 certificate: {error}") from None


def _pem_key(text: str, password: str | None) -> PrivateKeyTypes:
    from cryptography.hazmat.primitives.serialization import load_der_private_key

    found = [(label, der) for label, der in _pem_entries(text, KEY) if label.endswith(pem.PRIVATE_KEY)]
    if len(found) != 1:
        raise StoreError(KEY, f"one private key is expected, and there are {len(found)}")
    label, der = found[0]
    if label not in (pem.PRIVATE_KEY, pem.ENCRYPTED_PRIVATE_KEY):
        raise StoreError(
            KEY, f"{label} is not PKCS#8, the form that Kafka takes: openssl pkcs8 -topk8 makes it"
        )
    if (label == pem.ENCRYPTED_PRIVATE_KEY) != (password is not None):
        raise StoreError(
            KEY_PASSWORD, "the key is encrypted" if password is None else "the key is not encrypted"
        )
    try:
        return load_der_private_key(der, None if password is None else password.encode())
    except _key_problems():
        raise StoreError(
            KEY if password is None else KEY_PASSWORD,
            "the private key cannot be used" + ("" if password is None else ", or has another password"),
        ) from None
