"""Chains of certificates in a store."""

from __future__ import annotations

import warnings

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, pkcs12
from cryptography.x509.oid import NameOID

from kafkacompat._tests.certificates import Authority
from kafkacompat.security.stores import binary_store, chain_of, issuer_of, subject_of

ROOT = Authority()
MIDDLE = Authority("Middle", ROOT)


def with_country(country: str) -> x509.Certificate:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        attribute = x509.NameAttribute(NameOID.COUNTRY_NAME, country, _validate=False)
        name = x509.Name([attribute, x509.NameAttribute(NameOID.COMMON_NAME, "broker")])
        return MIDDLE.issue(name).chain[0]


@pytest.mark.filterwarnings("error")
def test_a_chain_with_names_that_keytool_makes_is_read_without_a_warning() -> None:
    """keytool writes C=Unknown where nobody answers its questions, and a country has two letters."""
    first = with_country("Unknown")
    assert subject_of(first) == "CN=broker,C=Unknown"
    assert issuer_of(first) == subject_of(MIDDLE.certificate)
    others = [ROOT.certificate, MIDDLE.certificate, first]
    assert chain_of(first, others) == (first, MIDDLE.certificate, ROOT.certificate)


def test_a_chain_ends_where_an_issuer_is_missing() -> None:
    first = with_country("DE")
    assert chain_of(first, [ROOT.certificate]) == (first,)
    assert chain_of(ROOT.certificate, [MIDDLE.certificate]) == (ROOT.certificate,)


@pytest.mark.parametrize(
    ("alias", "trusted"),
    [(None, False), ("CN=Other", False), ("other", True)],
    ids=["of openssl -certfile", "of another key's chain, by keytool", "trusted"],
)
def test_certificates_beside_a_key_are_trusted_only_as_entries_of_their_own(
    alias: str | None, trusted: bool
) -> None:
    """A store may be both keystore and truststore. Java trusts none of the others."""
    identity, other = MIDDLE.issue(), Authority("Other").certificate
    beside = pkcs12.PKCS12Certificate(other, None if alias is None else alias.encode())
    chain = [pkcs12.PKCS12Certificate(each, None) for each in identity.chain[1:]]
    data = pkcs12.serialize_key_and_certificates(
        b"key", identity.key, identity.chain[0], [*chain, beside], BestAvailableEncryption(b"secret")
    )
    store = binary_store(data, "secret", None, wants_key=True)
    assert store.keys[0].chain == identity.chain
    assert store.anchors() == [identity.chain[0], *([other] if trusted else [])]


def test_certificates_without_a_key_are_trusted_by_any_alias() -> None:
    data = pkcs12.serialize_key_and_certificates(
        None, None, None, [ROOT.certificate], BestAvailableEncryption(b"secret")
    )
    assert binary_store(data, "secret", None, wants_key=False).anchors() == [ROOT.certificate]
