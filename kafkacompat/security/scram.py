"""SCRAM (RFC 5802, RFC 7677): its two mechanisms, what is kept of a password, and the sums of an exchange. Pure."""

from __future__ import annotations

import hashlib
import hmac
from typing import NamedTuple

NONCE_BITS = 130
"""Of chance in a nonce, as in Apache Kafka's."""
_NONCE_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


class ScramMechanism(NamedTuple):
    type: int
    """In requests and records."""
    name: str
    hash: str
    """As hashlib knows it."""
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

    def credential(self, salt: bytes, salted_password: bytes, iterations: int) -> ScramCredential:
        """What a server keeps."""
        stored_key = self.digest(self.client_key(salted_password))
        return ScramCredential(salt, stored_key, self.hmac(salted_password, b"Server Key"), iterations)


SCRAM_SHA_256 = ScramMechanism(1, "SCRAM-SHA-256", "sha256")
SCRAM_SHA_512 = ScramMechanism(2, "SCRAM-SHA-512", "sha512")
SCRAM_MECHANISMS = (SCRAM_SHA_256, SCRAM_SHA_512)
SCRAM_BY_NAME = {mechanism.name: mechanism for mechanism in SCRAM_MECHANISMS}
SCRAM_BY_TYPE = {mechanism.type: mechanism for mechanism in SCRAM_MECHANISMS}


class ScramCredential(NamedTuple):
    """Whoever has it can play the server, and try passwords; so it is not shown where it is printed."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        return "ScramCredential([hidden])"


def nonce_text(number: int) -> str:
    """A nonce of a number below 1 << NONCE_BITS: what may stand in a message, without a comma."""
    digits = []
    while number:
        number, digit = divmod(number, len(_NONCE_DIGITS))
        digits.append(_NONCE_DIGITS[digit])
    return "".join(reversed(digits)) or "0"


def exclusive_or(first: bytes, second: bytes) -> bytes:
    """Of equal lengths; ValueError."""
    return bytes(one ^ other for one, other in zip(first, second, strict=True))


def sasl_name(user: str) -> str:
    """A user's name as it stands in a message."""
    return user.replace("=", "=3D").replace(",", "=2C")


def user_name(name: str) -> str:
    """The user whom a message names. ValueError when the name holds another sign behind '='."""
    user = name.replace("=2C", ",")
    if "=" in user.replace("=3D", ""):
        raise ValueError("an escape that SCRAM does not have")
    return user.replace("=3D", "=")
