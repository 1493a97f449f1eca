"""SCRAM (RFC 5802, RFC 7677): its two mechanisms, the stored credentials, and the computations of an exchange. Pure."""

from __future__ import annotations

import hashlib
import hmac
from typing import NamedTuple

NONCE_BITS = 130
"""Random bits in a nonce, as in Apache Kafka."""
_NONCE_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


class ScramMechanism(NamedTuple):
    type: int
    """The number in requests and records."""
    name: str
    hash: str
    """The name in hashlib."""
    min_iterations: int = 4096
    max_iterations: int = 16384

    def salted_password(self, password: str, salt: bytes, iterations: int) -> bytes:
        return hashlib.pbkdf2_hmac(self.hash, password.encode(), salt, iterations)

    def hmac(self, key: bytes, data: bytes) -> bytes:
        return hmac.digest(key, data, self.hash)

    def digest(self, data: bytes) -> bytes:
        return hashlib.new(self.hash, data).digest()

    def client_key(self, salted_password: bytes) -> bytes:
        return self.hmac(salted_password, b"Client Key")

    def server_key(self, salted_password: bytes) -> bytes:
        return self.hmac(salted_password, b"Server Key")

    def credential(self, salt: bytes, salted_password: bytes, iterations: int) -> ScramCredential:
        """The credential that a server stores."""
        stored_key = self.digest(self.client_key(salted_password))
        return ScramCredential(salt, stored_key, self.server_key(salted_password), iterations)


SCRAM_SHA_256 = ScramMechanism(1, "SCRAM-SHA-256", "sha256")
SCRAM_SHA_512 = ScramMechanism(2, "SCRAM-SHA-512", "sha512")
SCRAM_MECHANISMS = (SCRAM_SHA_256, SCRAM_SHA_512)
SCRAM_BY_NAME = {mechanism.name: mechanism for mechanism in SCRAM_MECHANISMS}
SCRAM_BY_TYPE = {mechanism.type: mechanism for mechanism in SCRAM_MECHANISMS}


class ScramCredential(NamedTuple):
    """The stored credential of a user. With it one can impersonate the server and try passwords, so it is not part of
    the printed form."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        return "ScramCredential([hidden])"


def nonce_text(number: int) -> str:
    """A nonce for a number below 1 << NONCE_BITS, in characters allowed in a message, without a comma."""
    digits = []
    while number:
        number, digit = divmod(number, len(_NONCE_DIGITS))
        digits.append(_NONCE_DIGITS[digit])
    return "".join(reversed(digits)) or "0"


def exclusive_or(first: bytes, second: bytes) -> bytes:
    """XOR of two byte strings of equal length. Raises ValueError."""
    return bytes(one ^ other for one, other in zip(first, second, strict=True))


def sasl_name(user: str) -> str:
    """A user's name as written in a message."""
    return user.replace("=", "=3D").replace(",", "=2C")


def user_name(name: str) -> str:
    """The user named in a message. Raises ValueError if the name has an invalid '=' escape."""
    user = name.replace("=2C", ",")
    if "=" in user.replace("=3D", ""):
        raise ValueError("an escape that SCRAM does not have")
    return user.replace("=3D", "=")
