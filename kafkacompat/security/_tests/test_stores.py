"""Chains of certificates in a store."""

from __future__ import annotations

import warnings

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID

from kafkacompat._tests.certificates import Authority
from kafkacompat.security.stores import chain_of, issuer_of, subject_of

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
