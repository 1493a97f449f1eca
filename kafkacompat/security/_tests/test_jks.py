"""JKS: a keystore written by keytool, and bytes that are not a keystore."""

from __future__ import annotations

import base64
from contextlib import suppress

import pytest
from cryptography.hazmat.primitives.serialization import load_der_private_key
from cryptography.x509 import load_der_x509_certificate
from hypothesis import given
from hypothesis import strategies as st

from kafkacompat.security.jks import JksError, WrongPassword, parse_jks

KEYTOOLS = base64.b64decode(
    """
    /u3+7QAAAAIAAAACAAAAAgAEcm9vdAAAAaIJUkY6AAVYLjUwOQAAAXAwggFsMIIBE6ADAgECAgkA7JqZPDbgzT0wCgYIKoZIzj0E
    AwIwITEQMA4GA1UEChMHRXhhbXBsZTENMAsGA1UEAxMEUm9vdDAgFw0yNjExMjMxNjUxNTRaGA8yMTI2MTAzMDE2NTE1NFowITEQ
    MA4GA1UEChMHRXhhbXBsZTENMAsGA1UEAxMEUm9vdDBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABBYXSx16Sof9aVGpZ/oV7ACB
    9ZGG924YLPnJ4GfOjitIp+C+gZmaBbNgM9rGa6Y5zK6MXTCZCKeGOioVkQSeMTijMjAwMB0GA1UdDgQWBBTnWpHNVA9boFPCvLiK
    AOJik1MYUzAPBgNVHRMBAf8EBTADAQH/MAoGCCqGSM49BAMCA0cAMEQCIFgNn5gC4eE8lpDeuM3zABHy5elnOTU2wWFNMN0fhn6Q
    AiBsQSM6vZ/lvNB4L7wKqowfkxlYkvaOeiJ3K3tUtGvjFwAAAAEABmJyb2tlcgAAAaIJUkenAAAAfzB9MA4GCisGAQQBKgIRAQEF
    AARr4jtVRqtRYgeLoo6sXYM651FR6yWVe2GSIIRLCGFzQnqtA2CnJ3ZMkaU49B8NyMQ8UocvoOTtNfXupH+bfXmbMzJTsdb9/i7u
    iZZhtU/ta2TQbm94v/C4uGzCUxWh0PN5z+tVpm4WYIsQM9UAAAACAAVYLjUwOQAAAaIwggGeMIIBQ6ADAgECAggz9viBD36prTAK
    BggqhkjOPQQDAjAhMRAwDgYDVQQKEwdFeGFtcGxlMQ0wCwYDVQQDEwRSb290MCAXDTI2MTEyMzE2NTE1NVoYDzIxMjYxMDMwMTY1
    MTU1WjAmMRAwDgYDVQQKEwdFeGFtcGxlMRIwEAYDVQQDEwlsb2NhbGhvc3QwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAASjcpv2
    LoBBbkiGEGw4/kV0EHSrKiIgv/7gW/icIW/Tum7L/G5qn7ZZhMHEyPL4DytKAQu+XvWx6UfyZcaY5p4Eo14wXDAdBgNVHQ4EFgQU
    o796yb0QsawN/CoQv5TbuQ940+YwGgYDVR0RBBMwEYIJbG9jYWxob3N0hwR/AAABMB8GA1UdIwQYMBaAFOdakc1UD1ugU8K8uIoA
    4mKTUxhTMAoGCCqGSM49BAMCA0kAMEYCIQC/JFylFd07pGym/RXedaujfWSYhxG+RpTBOOIjeREMgAIhALgv5gtAd5h4ktNRRdSd
    BT+0RA/hgPdo9VWzgPy7cQfdAAVYLjUwOQAAAXAwggFsMIIBE6ADAgECAgkA7JqZPDbgzT0wCgYIKoZIzj0EAwIwITEQMA4GA1UE
    ChMHRXhhbXBsZTENMAsGA1UEAxMEUm9vdDAgFw0yNjExMjMxNjUxNTRaGA8yMTI2MTAzMDE2NTE1NFowITEQMA4GA1UEChMHRXhh
    bXBsZTENMAsGA1UEAxMEUm9vdDBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABBYXSx16Sof9aVGpZ/oV7ACB9ZGG924YLPnJ4GfO
    jitIp+C+gZmaBbNgM9rGa6Y5zK6MXTCZCKeGOioVkQSeMTijMjAwMB0GA1UdDgQWBBTnWpHNVA9boFPCvLiKAOJik1MYUzAPBgNV
    HRMBAf8EBTADAQH/MAoGCCqGSM49BAMCA0cAMEQCIFgNn5gC4eE8lpDeuM3zABHy5elnOTU2wWFNMN0fhn6QAiBsQSM6vZ/lvNB4
    L7wKqowfkxlYkvaOeiJ3K3tUtGvjF3A1Jqrr5ENUNtSNkmK962FdJSXc
    """
)
"""Written by keytool -storetype JKS. The store's password is `secret`, that of the key `broker` is `other-secret`;
`root` is trusted."""


def test_keys_and_certificates_of_a_keystore_are_read() -> None:
    store = parse_jks(KEYTOOLS, "secret")
    (entry,) = store.keys
    assert entry.alias == "broker"
    own, issuer = (load_der_x509_certificate(each) for each in entry.chain)
    assert own.subject.rfc4514_string() == "CN=localhost,O=Example"
    assert own.issuer == issuer.subject
    key = load_der_private_key(entry.unprotected("other-secret"), None)
    assert key.public_key() == own.public_key()
    ((alias, trusted),) = store.trusted
    assert (alias, load_der_x509_certificate(trusted)) == ("root", issuer)


def test_without_a_password_certificates_are_read_all_the_same() -> None:
    assert parse_jks(KEYTOOLS, None) == parse_jks(KEYTOOLS, "secret")


def test_a_wrong_password_is_told_from_damage() -> None:
    with pytest.raises(WrongPassword) as of_store:
        parse_jks(KEYTOOLS, "Secret")
    assert not of_store.value.args
    with pytest.raises(WrongPassword) as of_key:
        parse_jks(KEYTOOLS, "secret").keys[0].unprotected("secret")
    assert of_key.value.args == ("broker",)


def test_no_representation_shows_a_key() -> None:
    store = parse_jks(KEYTOOLS, "secret")
    assert repr(store.keys[0]) == "JksKey(alias='broker')"


@given(st.data())
def test_whatever_is_cut_or_changed_is_refused_or_read(data: st.DataObject) -> None:
    changed = bytearray(KEYTOOLS[: data.draw(st.integers(0, len(KEYTOOLS)))])
    for _ in range(data.draw(st.integers(0, 4))):
        if changed:
            changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    with suppress(JksError, WrongPassword):
        store = parse_jks(bytes(changed), None)
        for each in store.keys:
            each.unprotected("other-secret")


@pytest.mark.parametrize("password", [None, "secret"])
def test_other_bytes_are_no_keystore(password: str | None) -> None:
    for data in (b"", b"\xfe\xed\xfe\xed", b"PK" + bytes(100)):
        with pytest.raises(JksError):
            parse_jks(data, password)
