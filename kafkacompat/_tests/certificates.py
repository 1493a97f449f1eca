"""A certificate authority for tests: keys, certificates and stores of every form, made as they are needed."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

PrivateKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey
BOTH_USAGES = (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH)
_DAY = timedelta(days=1)


def _encryption(password: str | None) -> KeySerializationEncryption:
    return NoEncryption() if password is None else BestAvailableEncryption(password.encode())


@dataclass(frozen=True)
class Identity:
    """A key with its chain, the own certificate first."""

    key: PrivateKey
    chain: tuple[x509.Certificate, ...]

    def key_pem(self, password: str | None = None) -> str:
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, _encryption(password)).decode()

    def chain_pem(self) -> str:
        return "".join(each.public_bytes(Encoding.PEM).decode() for each in self.chain)

    def pem(self, password: str | None = None) -> str:
        return self.key_pem(password) + self.chain_pem()

    def pkcs12(self, password: str, alias: str = "key") -> bytes:
        return pkcs12.serialize_key_and_certificates(
            alias.encode(), self.key, self.chain[0], self.chain[1:], _encryption(password)
        )


class Authority:
    """Issues certificates. One that another authority has issued is an intermediate one."""

    def __init__(self, name: str = "Test Root", issuer: Authority | None = None) -> None:
        self.key: PrivateKey = ec.generate_private_key(ec.SECP256R1())
        self.subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._issuer = issuer
        maker = issuer or self
        constraints = x509.BasicConstraints(ca=True, path_length=None)
        self.certificate = (
            _builder(self.subject, maker.subject, self.key, -1, 3650)
            .add_extension(constraints, critical=True)
            .sign(maker.key, hashes.SHA256())
        )

    @classmethod
    def pretended(cls, identity: Identity, issuer: Authority) -> Authority:
        """Somebody who issues certificates with a key whose own certificate does not allow it."""
        made = cls(issuer=issuer)
        made.key, made.certificate = identity.key, identity.chain[0]
        made.subject = made.certificate.subject
        return made

    def itself(self) -> Identity:
        return Identity(self.key, (self.certificate,))

    def pem(self) -> str:
        return self.certificate.public_bytes(Encoding.PEM).decode()

    def pkcs12(self, password: str) -> bytes:
        """A truststore as Java reads it: a certificate without the mark of being trusted would be none of its entries."""
        trusted = pkcs12.PKCS12Certificate(self.certificate, b"ca")
        return pkcs12.serialize_java_truststore([trusted], _encryption(password))

    def issue(
        self,
        name: str | x509.Name = "localhost",
        hosts: tuple[str, ...] = ("localhost", "127.0.0.1"),
        *,
        from_days: int = -1,
        to_days: int = 30,
        use_rsa: bool = False,
        usages: Sequence[x509.ObjectIdentifier] = BOTH_USAGES,
    ) -> Identity:
        key: PrivateKey = (
            rsa.generate_private_key(65537, 2048) if use_rsa else ec.generate_private_key(ec.SECP256R1())
        )
        subject = (
            x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]) if isinstance(name, str) else name
        )
        builder = _builder(subject, self.subject, key, from_days, to_days)
        builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        if hosts:
            builder = builder.add_extension(
                x509.SubjectAlternativeName([_general_name(host) for host in hosts]), critical=False
            )
        certificate = builder.sign(self.key, hashes.SHA256())
        return Identity(key, (certificate, *self._above()))

    def _above(self) -> tuple[x509.Certificate, ...]:
        return () if self._issuer is None else (self.certificate, *self._issuer._above())


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: PrivateKey, from_days: int, to_days: int
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + from_days * _DAY)
        .not_valid_after(now + to_days * _DAY)
    )
