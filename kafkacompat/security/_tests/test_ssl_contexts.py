"""Contexts from settings: stores of every format, accepted clients, and errors for bad input. Handshakes are real, in
memory."""

from __future__ import annotations

import base64
import errno
import os
import ssl
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import Encoding

from kafkacompat._tests.certificates import Authority, Identity
from kafkacompat.config import ConfigError
from kafkacompat.config.keys import listener_prefix
from kafkacompat.security._tests.test_jks import KEYTOOLS
from kafkacompat.security.ssl_factory import (
    ClientContext,
    client_context,
    file_times,
    load_stores,
    openssl_name,
    server_context,
    ssl_settings,
)

ROOT = Authority()
BROKER = ROOT.issue()
ALICE = ROOT.issue("alice", ())
PASSWORD = "a secret"


class Ends(Exception):
    """A failed handshake, and the side that reported the reason."""


def handshake(
    server: ssl.SSLContext, client: ssl.SSLContext, host: str = "localhost"
) -> tuple[ssl.SSLObject, ssl.SSLObject]:
    """Both sides of a connection. Raises ssl.SSLError of the side that refuses."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = (
        server.wrap_bio(to_server, to_client, server_side=True),
        client.wrap_bio(to_client, to_server, server_hostname=host),
    )
    for _ in range(6):
        for side in reversed(sides):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    for side in reversed(sides):
        # With TLS 1.3 a client learns only after its handshake that its certificate was refused.
        try:
            side.read(1)
        except ssl.SSLWantReadError:
            continue
    return sides


def inline(identity: Identity | None = None, *trusted: Authority, **more: str) -> dict[str, str]:
    properties = dict(more)
    if identity is not None:
        properties |= {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.key": identity.key_pem(),
            "ssl.keystore.certificate.chain": identity.chain_pem(),
        }
    if trusted:
        properties |= {
            "ssl.truststore.type": "PEM",
            "ssl.truststore.certificates": "".join(each.pem() for each in trusted),
        }
    return properties


def server_of(properties: dict[str, str]) -> ssl.SSLContext:
    return server_context(ssl_settings(properties))


def client_of(properties: dict[str, str]) -> ssl.SSLContext:
    return client_context(ssl_settings(properties))


def subject_of(side: ssl.SSLObject) -> object:
    certificate = side.getpeercert()
    return certificate and certificate["subject"]


def test_both_sides_believe_each_other() -> None:
    server = server_of(inline(BROKER, ROOT, **{"ssl.client.auth": "required"}))
    ours, theirs = handshake(server, client_of(inline(ALICE, ROOT)))
    assert ours.version() == "TLSv1.3"
    assert subject_of(ours) == ((("commonName", "alice"),),)
    assert subject_of(theirs) == ((("commonName", "localhost"),),)


@pytest.mark.parametrize("form", ["pem", "pem with password", "pkcs12", "pkcs12 called jks"])
def test_stores_are_read_from_files(form: str, tmp_path: Path) -> None:
    keys, trust = tmp_path / "keys", tmp_path / "trust"
    properties = {"ssl.keystore.location": str(keys), "ssl.truststore.location": str(trust)}
    if form.startswith("pem"):
        password = PASSWORD if "password" in form else None
        keys.write_text(BROKER.pem(password))
        trust.write_text(ROOT.pem())
        properties |= {"ssl.keystore.type": "PEM", "ssl.truststore.type": "PEM"}
        if password is not None:
            properties["ssl.key.password"] = password
    else:
        keys.write_bytes(BROKER.pkcs12(PASSWORD))
        trust.write_bytes(ROOT.pkcs12(PASSWORD))
        kind = "JKS" if "jks" in form else "PKCS12"
        properties |= {"ssl.keystore.type": kind, "ssl.keystore.password": PASSWORD}
        properties |= {"ssl.truststore.type": kind, "ssl.truststore.password": PASSWORD}
    properties["ssl.client.auth"] = "required"
    ours, _ = handshake(server_of(properties), client_of(inline(ALICE, ROOT)))
    assert subject_of(ours) == ((("commonName", "alice"),),)


def test_a_jks_store_is_read_for_keys_and_for_trust(tmp_path: Path) -> None:
    path = tmp_path / "keytools.jks"
    path.write_bytes(KEYTOOLS)
    keys = {
        "ssl.keystore.location": str(path),
        "ssl.keystore.password": "secret",
        "ssl.key.password": "other-secret",
    }
    trust = {"ssl.truststore.location": str(path), "ssl.truststore.password": "secret"}
    _, theirs = handshake(server_of(keys), client_of(trust))
    assert theirs.getpeercert()
    assert [alias for alias, _ in load_stores(ssl_settings(keys)).keystore.certificates()] == [
        "broker",
        "root",
    ]  # type: ignore[union-attr]


def test_a_chain_is_sent_up_to_who_is_trusted() -> None:
    middle = Authority("Middle", ROOT)
    handshake(server_of(inline(middle.issue())), client_of(inline(None, ROOT)))


def test_a_certificate_in_the_truststore_is_trusted_whoever_issued_it() -> None:
    middle = Authority("Middle", ROOT)
    handshake(server_of(inline(middle.issue())), client_of(inline(None, middle)))


@pytest.mark.parametrize(
    ("auth", "client", "subject"),
    [
        ("none", inline(None, ROOT), None),
        ("none", inline(ALICE, ROOT), None),
        ("requested", inline(None, ROOT), None),
        ("requested", inline(ALICE, ROOT), ((("commonName", "alice"),),)),
        ("required", inline(ALICE, ROOT), ((("commonName", "alice"),),)),
    ],
)
def test_a_client_that_shows_a_certificate_is_known(
    auth: str, client: dict[str, str], subject: object
) -> None:
    server = server_of(inline(BROKER, ROOT, **{"ssl.client.auth": auth}))
    ours, _ = handshake(server, client_of(client))
    assert subject_of(ours) == subject


@pytest.mark.parametrize(
    ("auth", "client"),
    [
        ("required", None),
        ("required", Authority("Foreign").issue("alice")),
        ("requested", Authority("Foreign").issue("alice")),
        ("required", ROOT.issue("alice", from_days=-9, to_days=-2)),
        ("required", ROOT.issue("alice", from_days=2)),
    ],
)
@pytest.mark.parametrize("protocol", ["TLSv1.2", "TLSv1.3"])
def test_a_client_without_a_valid_certificate_is_refused(
    auth: str, client: Identity | None, protocol: str
) -> None:
    server = server_of(inline(BROKER, ROOT, **{"ssl.client.auth": auth, "ssl.enabled.protocols": protocol}))
    with pytest.raises(ssl.SSLError):
        handshake(server, client_of(inline(client, ROOT)))


@pytest.mark.parametrize(
    ("host", "algorithm", "is_right"),
    [
        ("localhost", "https", True),
        ("127.0.0.1", "https", True),
        ("localhost", "HTTPS", True),
        ("other", "https", False),
        ("127.0.0.2", "https", False),
        ("other", "", True),
    ],
)
def test_a_client_verifies_the_host_that_it_dialed(host: str, algorithm: str, is_right: bool) -> None:
    client = client_of(inline(None, ROOT, **{"ssl.endpoint.identification.algorithm": algorithm}))
    server = server_of(inline(BROKER))
    if is_right:
        handshake(server, client, host)
    else:
        with pytest.raises(ssl.SSLCertVerificationError):
            handshake(server, client, host)


def test_without_verifying_the_host_the_issuer_counts_all_the_same() -> None:
    client = client_of(inline(None, Authority("Foreign"), **{"ssl.endpoint.identification.algorithm": ""}))
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(server_of(inline(BROKER)), client)


@pytest.mark.parametrize(
    ("server", "client", "version"),
    [
        ("TLSv1.2", "TLSv1.2,TLSv1.3", "TLSv1.2"),
        ("TLSv1.3", "TLSv1.2,TLSv1.3", "TLSv1.3"),
        ("TLSv1,TLSv1.1,TLSv1.2", "TLSv1.2,TLSv1.3", "TLSv1.2"),
        ("", "TLSv1.2,TLSv1.3", "TLSv1.3"),
        ("TLSv1.2", "TLSv1.3", None),
    ],
)
def test_protocols_are_those_that_are_enabled(server: str, client: str, version: str | None) -> None:
    contexts = (
        server_of(inline(BROKER, **{"ssl.enabled.protocols": server})),
        client_of(inline(None, ROOT, **{"ssl.enabled.protocols": client})),
    )
    if version is None:
        with pytest.raises(ssl.SSLError):
            handshake(*contexts)
    else:
        assert handshake(*contexts)[0].version() == version


def test_ssl_protocol_is_the_highest_where_none_is_enabled() -> None:
    server = server_of(inline(BROKER, **{"ssl.enabled.protocols": "", "ssl.protocol": "TLSv1.2"}))
    assert handshake(server, client_of(inline(None, ROOT)))[0].version() == "TLSv1.2"


@pytest.mark.parametrize(
    ("suites", "cipher"),
    [
        ("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", "ECDHE-ECDSA-AES128-GCM-SHA256"),
        ("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-ECDSA-CHACHA20-POLY1305"),
        ("TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA384", "ECDHE-ECDSA-AES256-SHA384"),
        (
            "TLS_AES_256_GCM_SHA384,TLS_CHACHA20_POLY1305_SHA256,TLS_AES_128_GCM_SHA256",
            "TLS_AES_256_GCM_SHA384",
        ),
        (
            "TLS_EMPTY_RENEGOTIATION_INFO_SCSV,TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
            "ECDHE-ECDSA-AES256-GCM-SHA384",
        ),
    ],
)
def test_cipher_suites_go_by_javas_names(suites: str, cipher: str) -> None:
    server = server_of(inline(BROKER, **{"ssl.cipher.suites": suites}))
    negotiated = handshake(server, client_of(inline(None, ROOT)))[0].cipher()
    assert negotiated is not None
    assert negotiated[0] == cipher


@pytest.mark.parametrize(
    ("name", "translated"),
    [
        ("TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256", "ECDHE-RSA-AES128-SHA256"),
        ("TLS_DHE_RSA_WITH_AES_256_GCM_SHA384", "DHE-RSA-AES256-GCM-SHA384"),
        ("TLS_RSA_WITH_AES_128_CBC_SHA", "AES128-SHA"),
        ("SSL_RSA_WITH_RC4_128_SHA", "RC4-128-SHA"),
        ("ECDHE-RSA-AES128-GCM-SHA256", None),
    ],
)
def test_names_of_suites_are_translated(name: str, translated: str | None) -> None:
    assert openssl_name(name) == translated


def test_a_listener_has_settings_of_its_own() -> None:
    properties = {
        "ssl.client.auth": "none",
        "ssl.protocol": "TLSv1.2",
        "listener.name.external.ssl.client.auth": "required",
    }
    settings = ssl_settings(properties, listener_prefix("EXTERNAL"))
    assert settings.text("ssl.client.auth") == "required"
    assert settings.text("ssl.protocol") == "TLSv1.2"
    assert str(settings.error("ssl.client.auth", "x")) == "listener.name.external.ssl.client.auth: x"


def broken(identity: Identity) -> str:
    """Certificates of which the second one is cut off."""
    der = identity.chain[0].public_bytes(Encoding.DER)
    lines = base64.encodebytes(der[:-9]).decode()
    return identity.chain_pem() + f"-----BEGIN CERTIFICATE-----\n{lines}-----END CERTIFICATE-----\n"


WITHOUT = {"ssl.keystore.type": "PEM"}


@pytest.mark.parametrize(
    ("properties", "told"),
    [
        ({}, "ssl.keystore.location: a listener needs a key"),
        ({"ssl.keystore.location": "/nowhere"}, "ssl.keystore.location: needs ssl.keystore.password"),
        (
            {**WITHOUT, "ssl.keystore.location": "/nowhere"},
            "ssl.keystore.location: /nowhere cannot be read: No such",
        ),
        ({"ssl.keystore.password": PASSWORD}, "ssl.keystore.password: is set without ssl.keystore.location"),
        ({**WITHOUT, "ssl.keystore.password": PASSWORD}, "ssl.keystore.password: PEM has no such password"),
        ({"ssl.keystore.type": "BCFKS"}, "ssl.keystore.type: BCFKS is none of PEM, PKCS12, JKS"),
        ({"ssl.keystore.type": "pem"}, "ssl.keystore.type: pem is none of"),
        ({"ssl.keystore.key": BROKER.key_pem()}, "ssl.keystore.key: only PEM may stand in a setting"),
        (
            {**WITHOUT, "ssl.keystore.key": BROKER.key_pem()},
            "ssl.keystore.key: needs ssl.keystore.certificate.chain",
        ),
        (
            {**WITHOUT, "ssl.keystore.certificate.chain": BROKER.chain_pem()},
            "ssl.keystore.certificate.chain: needs ssl.keystore.key",
        ),
        (
            inline(BROKER) | {"ssl.keystore.location": "/x"},
            "ssl.keystore.location: and ssl.keystore.key exclude",
        ),
        (
            inline(BROKER) | {"ssl.keystore.certificate.chain": broken(BROKER)},
            "ssl.keystore.certificate.chain: certificate 2 is no X.509 certificate",
        ),
        (
            inline(BROKER) | {"ssl.keystore.certificate.chain": "-----BEGIN CERTIFICATE-----\nAAAA"},
            "ssl.keystore.certificate.chain: entry 1 (CERTIFICATE) has no END line",
        ),
        (
            inline(BROKER) | {"ssl.keystore.certificate.chain": "x"},
            "ssl.keystore.certificate.chain: at least one",
        ),
        (
            inline(BROKER) | {"ssl.keystore.key": BROKER.key_pem() * 2},
            "ssl.keystore.key: one private key is expected, and there are 2",
        ),
        (
            inline(BROKER) | {"ssl.keystore.key": ALICE.key_pem()},
            "ssl.keystore.key: the private key is not that of",
        ),
        (
            inline(BROKER) | {"ssl.keystore.key": BROKER.key_pem(PASSWORD)},
            "ssl.key.password: the key is encrypted",
        ),
        (inline(BROKER, **{"ssl.key.password": PASSWORD}), "ssl.key.password: the key is not encrypted"),
        (
            inline(BROKER, **{"ssl.key.password": "another secret"})
            | {"ssl.keystore.key": BROKER.key_pem(PASSWORD)},
            "ssl.key.password: the private key cannot be used, or has another password",
        ),
        (
            inline(BROKER) | {"ssl.keystore.key": BROKER.key_pem().replace("PRIVATE KEY", "EC PRIVATE KEY")},
            "ssl.keystore.key: EC PRIVATE KEY is not PKCS#8",
        ),
        (inline(BROKER, **{"ssl.truststore.password": PASSWORD}), "ssl.truststore.password: is set without"),
        (
            inline(BROKER, **{"ssl.truststore.certificates": "x"}),
            "ssl.truststore.certificates: only PEM may stand in a setting",
        ),
        (
            inline(BROKER, **{"ssl.truststore.type": "PEM", "ssl.truststore.certificates": "x"}),
            "ssl.truststore.certificates: at least one certificate is expected",
        ),
        (
            inline(BROKER, ROOT, **{"ssl.truststore.location": "/x"}),
            "ssl.truststore.location: and ssl.truststore.certificates exclude",
        ),
        (inline(BROKER, **{"ssl.enabled.protocols": "TLSv1.4"}), "ssl.enabled.protocols: TLSv1.4 is none of"),
        (
            inline(BROKER, **{"ssl.enabled.protocols": "TLSv1.1"}),
            "ssl.enabled.protocols: TLSv1 and TLSv1.1 are broken",
        ),
        (inline(BROKER, **{"ssl.protocol": "TLSv2"}), "ssl.protocol: TLSv2 is no protocol"),
        (inline(BROKER, **{"ssl.cipher.suites": "TLS_NO"}), "ssl.cipher.suites: TLS_NO is no cipher suite"),
        (
            inline(BROKER, **{"ssl.cipher.suites": "TLS_DH_anon_WITH_NOTHING"}),
            "ssl.cipher.suites: TLS_DH_anon_WITH_NOTHING is no cipher suite",
        ),
        (
            inline(
                BROKER,
                **{
                    "ssl.cipher.suites": "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
                    "ssl.enabled.protocols": "TLSv1.3",
                },
            ),
            "ssl.cipher.suites: none is of a protocol that ssl.enabled.protocols has",
        ),
        (
            inline(BROKER, **{"ssl.engine.factory.class": "a.B"}),
            "ssl.engine.factory.class: this names a class",
        ),
    ],
)
def test_bad_input_is_told_by_setting_and_place_without_secrets(
    properties: dict[str, str], told: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        server_of(properties)
    text = str(refused.value)
    assert text.startswith(told)
    assert "secret" not in text
    assert BROKER.key_pem().splitlines()[1] not in text


@pytest.mark.parametrize("content", [b"", b"text", b"\x30\x03abc", b"\xfe\xed\xfe\xed" + bytes(40)])
@pytest.mark.parametrize("role", ["keystore", "truststore"])
def test_a_damaged_store_is_told_by_its_setting(content: bytes, role: str, tmp_path: Path) -> None:
    path = tmp_path / "store"
    path.write_bytes(content)
    properties = {f"ssl.{role}.location": str(path), f"ssl.{role}.password": PASSWORD}
    with pytest.raises(ConfigError, match=rf"^ssl\.{role}\.(location|password): ") as refused:
        server_of({**inline(BROKER), **properties} if role == "truststore" else properties)
    assert PASSWORD not in str(refused.value)


def test_a_wrong_password_is_told_by_its_setting(tmp_path: Path) -> None:
    (tmp_path / "p12").write_bytes(BROKER.pkcs12(PASSWORD))
    (tmp_path / "jks").write_bytes(KEYTOOLS)
    for form, password, blamed in (
        ("p12", "wrong secret", "ssl.keystore.password: "),
        ("jks", "wrong secret", "ssl.keystore.password: "),
        ("jks", "secret", "ssl.keystore.password: the key broker has another password"),
    ):
        properties = {"ssl.keystore.location": str(tmp_path / form), "ssl.keystore.password": password}
        with pytest.raises(ConfigError) as refused:
            server_of(properties)
        assert str(refused.value).startswith(blamed)
        assert "secret" not in str(refused.value)


@pytest.mark.parametrize("refused", ["open", "memfd_create"], ids=["the file", "the key"])
def test_what_the_system_refuses_is_the_cause_of_the_error(
    refused: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shortage passes, and the stores are read again then."""
    if not hasattr(os, refused):
        pytest.skip("the key is passed in a file")
    path = tmp_path / "node.pem"
    path.write_text(BROKER.key_pem() + BROKER.chain_pem())
    settings = ssl_settings({"ssl.keystore.type": "PEM", "ssl.keystore.location": str(path)})

    def shortage(*_arguments: object) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(os, refused, shortage)
    with pytest.raises(ConfigError, match=r"ssl\.keystore\.location: .*: Too many open files") as failure:
        server_context(settings)
    cause = failure.value.__cause__
    assert isinstance(cause, OSError)
    assert cause.errno == errno.EMFILE


def test_settings_and_stores_show_no_secrets(tmp_path: Path) -> None:
    settings = ssl_settings(
        inline(BROKER, ROOT, **{"ssl.keystore.location": "x", "ssl.key.password": PASSWORD})
    )
    stores = load_stores(ssl_settings(inline(BROKER, ROOT)))
    shown = repr((settings, stores, stores.keystore))
    assert PASSWORD not in shown
    assert "PRIVATE" not in shown


def test_a_file_that_has_changed_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "keys.pem"
    path.write_text(BROKER.pem())
    settings = ssl_settings({"ssl.keystore.type": "PEM", "ssl.keystore.location": str(path)})
    loaded = load_stores(settings)
    assert file_times(settings) == loaded.modified_ms
    path.write_text(ALICE.pem())

    os.utime(path, (1, 2))
    assert file_times(settings) != loaded.modified_ms


def test_a_client_has_the_stores_that_lie_in_the_files(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trust = tmp_path / "trust"

    def write(text: str, at_s: int) -> None:
        trust.write_text(text)
        os.utime(trust, (at_s, at_s))

    write(ROOT.pem(), 1)
    client = ClientContext(
        ssl_settings({"ssl.truststore.type": "PEM", "ssl.truststore.location": str(trust)})
    )
    old, other = server_of(inline(BROKER)), Authority("Other")
    new = server_of(inline(other.issue()))
    handshake(old, client.newest())
    assert client.newest() is client.newest()
    write(other.pem(), 2)
    handshake(new, client.newest())
    with pytest.raises(ssl.SSLError):
        handshake(old, client.newest())
    write("half of", 3)
    handshake(new, client.newest())
    assert "ssl.truststore.location" in caplog.text
    write(ROOT.pem(), 4)
    handshake(old, client.newest())
