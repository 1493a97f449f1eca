"""Java's text of a subject. The expected texts are from X500Principal.getName of Java 17."""

from __future__ import annotations

from contextlib import suppress

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from kafkacompat._tests.certificates import Authority
from kafkacompat.security.distinguished_name import DerError, rfc2253, subject

CERTIFICATE = Authority().issue().chain[0].public_bytes(Encoding.DER)


def attribute(oid: x509.ObjectIdentifier, text: str) -> x509.NameAttribute:
    return x509.NameAttribute(oid, text)


def test_the_last_name_comes_first() -> None:
    name = x509.Name(
        [
            attribute(NameOID.COUNTRY_NAME, "DE"),
            attribute(NameOID.STATE_OR_PROVINCE_NAME, "Bayern"),
            attribute(NameOID.DOMAIN_COMPONENT, "example"),
            attribute(NameOID.EMAIL_ADDRESS, "a@b"),
            attribute(NameOID.SURNAME, "Ü"),
            attribute(NameOID.COMMON_NAME, "broker-1"),
        ]
    )
    assert rfc2253(name.public_bytes()) == (
        "CN=broker-1,2.5.4.4=#0c02c39c,1.2.840.113549.1.9.1=#1603614062,DC=example,ST=Bayern,C=DE"
    )


def test_names_of_one_level_are_joined_by_plus() -> None:
    name = x509.Name(
        [
            x509.RelativeDistinguishedName([attribute(NameOID.ORGANIZATION_NAME, "o")]),
            x509.RelativeDistinguishedName(
                [attribute(NameOID.COMMON_NAME, "c"), attribute(NameOID.USER_ID, "u")]
            ),
        ]
    )
    assert rfc2253(name.public_bytes()) in ("CN=c+UID=u,O=o", "UID=u+CN=c,O=o")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (' a,b=c+d<e>f#g;h"i\\j ', '\\ a\\,b\\=c\\+d\\<e\\>f\\#g\\;h\\"i\\\\j\\ '),
        ("  x", "\\ \\ x"),
        ("é😀\n", "é😀\n"),
        ("a\0b", "a\\00b"),
        ("*.example.com", "*.example.com"),
    ],
)
def test_characters_with_a_meaning_are_escaped(text: str, shown: str) -> None:
    name = x509.Name([attribute(NameOID.COMMON_NAME, text)])
    assert rfc2253(name.public_bytes()) == f"CN={shown}"


def test_a_certificates_subject_is_found() -> None:
    identity = Authority().issue("alice")
    assert rfc2253(subject(identity.chain[0].public_bytes(Encoding.DER))) == "CN=alice"


def test_a_name_without_parts_is_empty() -> None:
    assert rfc2253(x509.Name([]).public_bytes()) == ""


@given(st.binary(max_size=200))
def test_other_bytes_are_refused(data: bytes) -> None:
    for reader in (rfc2253, subject):
        with suppress(DerError):
            reader(data)


@given(st.data())
def test_a_changed_certificate_is_read_or_refused(data: st.DataObject) -> None:
    changed = bytearray(CERTIFICATE[: data.draw(st.integers(0, len(CERTIFICATE)))])
    if changed:
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    with suppress(DerError):
        rfc2253(subject(bytes(changed)))
