"""A private certificate authority: it creates its key, and issues the certificates of nodes. PEM texts in, PEM texts
out.

The extensions are those that strict verifiers require: key identifiers, key usage, and a node's addresses.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LIFE = timedelta(days=3650)
CLOCK_SKEW = timedelta(days=1)
"""A certificate is valid from this long before `now`, because clocks of machines differ."""


class AuthorityError(Exception):
    """The authority's key and certificate cannot be used. The message contains neither."""


def new_authority(name: str, now: datetime) -> tuple[str, str]:
    """The key (PKCS#8, without a password) and the self-signed certificate of a new authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _name(name)
    builder = (
        _builder(subject, subject, key.public_key(), now)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(is_authority=True), critical=True)
    )
    return _key_pem(key), _certificate_pem(builder.sign(key, hashes.SHA256()))


def issue(
    authority_key: str, authority_certificate: str, name: str, hosts: Sequence[str], now: datetime
) -> str:
    """A new key and its certificate, in this order. `hosts` are the names and IP addresses that clients may use.
    Raises AuthorityError."""
    try:
        signing = load_pem_private_key(authority_key.encode(), None)
        issuer = x509.load_pem_x509_certificate(authority_certificate.encode())
    except (ValueError, TypeError) as error:
        raise AuthorityError("the key or the certificate of the authority is damaged") from error
    if not isinstance(signing, ec.EllipticCurvePrivateKey) or signing.public_key() != issuer.public_key():
        raise AuthorityError("the authority's key is not the one of its certificate")
    key = ec.generate_private_key(ec.SECP256R1())
    uses = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
    builder = (
        _builder(_name(name), issuer.subject, key.public_key(), now)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(is_authority=False), critical=True)
        .add_extension(uses, critical=False)
        .add_extension(x509.SubjectAlternativeName([_host(each) for each in hosts]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signing.public_key()), critical=False
        )
    )
    return _key_pem(key) + _certificate_pem(builder.sign(signing, hashes.SHA256()))


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + LIFE)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _usage(*, is_authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not is_authority,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _host(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> str:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def _certificate_pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(Encoding.PEM).decode()
