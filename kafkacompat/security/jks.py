"""Java's keystore format JKS: trusted certificates, and password-protected private keys with their chains.

kafkacompat has its own reader, because the only library for it, pyjks, has had no release since 2020 and needs three
more that this format does not. Pure. Every length and count is checked against the available bytes. Keys have Sun's
protection: XOR with SHA-1 over password and salt. It is weak, but in general use.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable
from dataclasses import field
from struct import Struct

from kafkacompat.dataclass import dataclass
from kafkacompat.security.distinguished_name import (
    OBJECT_IDENTIFIER,
    OCTET_STRING,
    SEQUENCE,
    DerError,
    content,
    elements,
    sole,
)

MAGIC = b"\xfe\xed\xfe\xed"
_KEY, _TRUSTED = 1, 2
_X509 = "X.509"
_DIGEST_BYTES = 20
_SALT_BYTES = 20
_WHITENER = b"Mighty Aphrodite"
_SUN_PROTECTION = bytes.fromhex("2b060104012a02110101")
"""1.3.6.1.4.1.42.2.17.1.1"""
_INT = Struct(">i")
_SHORT = Struct(">H")


class JksError(Exception):
    """The bytes are not a keystore."""


class WrongPassword(Exception):
    """The password of the store is wrong, or that of the named key."""


@dataclass(frozen=True, slots=True)
class JksKey:
    alias: str
    protected: bytes = field(repr=False)
    chain: tuple[bytes, ...] = field(repr=False)

    def unprotected(self, password: str) -> bytes:
        """The key as PKCS#8. Raises JksError or WrongPassword."""
        try:
            algorithm, data = elements(sole(self.protected, SEQUENCE))
            identifier = next(elements(content(algorithm, SEQUENCE)), None)
            if identifier is None or content(identifier, OBJECT_IDENTIFIER) != _SUN_PROTECTION:
                raise JksError(
                    f"the key {self.alias} is protected in a way that is no keystore's of this kind"
                )
            stored = content(data, OCTET_STRING)
        except (DerError, ValueError):
            raise JksError(f"the key {self.alias} is damaged") from None
        if len(stored) < _SALT_BYTES + _DIGEST_BYTES:
            raise JksError(f"the key {self.alias} is damaged")
        secret = password.encode("utf-16-be")
        encrypted, check = stored[_SALT_BYTES:-_DIGEST_BYTES], stored[-_DIGEST_BYTES:]
        stream = bytearray()
        digest = stored[:_SALT_BYTES]
        while len(stream) < len(encrypted):
            digest = hashlib.sha1(secret + digest).digest()
            stream += digest
        key = bytes(a ^ b for a, b in zip(encrypted, stream, strict=False))
        if not hmac.compare_digest(hashlib.sha1(secret + key).digest(), check):
            raise WrongPassword(self.alias)
        return key


@dataclass(frozen=True, slots=True)
class JksStore:
    keys: tuple[JksKey, ...]
    trusted: tuple[tuple[str, bytes], ...]
    """(alias, certificate)"""


def parse_jks(data: bytes, password: str | None) -> JksStore:
    """As in Java, without a password the integrity of the store is not checked. Raises JksError, or WrongPassword
    without a name."""
    if len(data) < 12 + _DIGEST_BYTES or not data.startswith(MAGIC):
        raise JksError("this is no JKS keystore")
    body = data[:-_DIGEST_BYTES]
    if password is not None:
        found = hashlib.sha1(password.encode("utf-16-be") + _WHITENER + body).digest()
        if not hmac.compare_digest(found, data[-_DIGEST_BYTES:]):
            raise WrongPassword
    reader = _Reader(body[len(MAGIC) :])
    version, count = reader.number(), reader.number()
    if version not in (1, 2):
        raise JksError(f"a keystore of version {version}")
    keys: list[JksKey] = []
    trusted: list[tuple[str, bytes]] = []
    for _ in range(count):
        tag, alias = reader.number(), reader.text()
        reader.take(8)  # the creation time
        certificate = reader.certificate if version == 2 else reader.sized
        if tag == _KEY:
            protected = reader.sized()
            keys.append(JksKey(alias, protected, tuple(reader.several(certificate))))
        elif tag == _TRUSTED:
            trusted.append((alias, certificate()))
        else:
            raise JksError(f"an entry of kind {tag}")
    return JksStore(tuple(keys), tuple(trusted))


class _Reader:
    """Reads the available bytes. Raises JksError if there are too few."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def take(self, count: int) -> bytes:
        end = self._position + count
        if count < 0 or end > len(self._data):
            raise JksError("the keystore ends within an entry")
        taken = self._data[self._position : end]
        self._position = end
        return taken

    def number(self) -> int:
        found: int = _INT.unpack(self.take(4))[0]
        return found

    def sized(self) -> bytes:
        return self.take(self.number())

    def text(self) -> str:
        return self.take(_SHORT.unpack(self.take(2))[0]).decode("utf-8", "replace")

    def certificate(self) -> bytes:
        kind = self.text()
        if kind != _X509:
            raise JksError("a certificate that is not X.509")
        return self.sized()

    def several(self, one: Callable[[], bytes]) -> list[bytes]:
        return [one() for _ in range(self.number())]
