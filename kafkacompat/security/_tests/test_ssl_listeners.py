"""Listeners with TLS: a client's principal, and which stores may replace others while a node runs."""

from __future__ import annotations

import os
import ssl
import time
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from kafkacompat._tests.certificates import Authority, Identity
from kafkacompat.config import ConfigError, ServerConfig, defaults_without_file
from kafkacompat.ports.dispatcher import ConnectionInfo, Principal
from kafkacompat.ports.network import Unidentified
from kafkacompat.security._tests.test_ssl_contexts import client_of, handshake, inline, server_of
from kafkacompat.security.client_settings import security_to_brokers
from kafkacompat.security.sasl_client import ClientSecurity
from kafkacompat.security.ssl_listeners import SslListener, ssl_listeners

ROOT = Authority()
ANONYMOUS = Principal("User", "ANONYMOUS")
PREFIX = "listener.name.safe."


def config(changes: dict[str, str], protocol: str = "SSL") -> ServerConfig:
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SAFE://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
        "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,SAFE:{protocol},CONTROLLER:PLAINTEXT",
    }
    return ServerConfig.from_properties(defaults_without_file(), settings | changes)


def stores(identity: Identity, *trusted: Authority) -> dict[str, str]:
    return {PREFIX + name: value for name, value in inline(identity, *trusted).items()}


def listener(changes: dict[str, str], protocol: str = "SSL") -> SslListener:
    found = ssl_listeners(config(changes, protocol))
    assert list(found) == ["SAFE"]
    return found["SAFE"]


def principal(served: SslListener, identity: Identity | None) -> Principal:
    connection = ConnectionInfo(1, "SAFE", "127.0.0.1", 9)
    certificate = None if identity is None else identity.chain[0].public_bytes(Encoding.DER)
    served.identify(connection, certificate)
    return connection.principal


def test_a_client_goes_by_the_subject_of_its_certificate() -> None:
    served = listener(stores(ROOT.issue()))
    assert principal(served, None) == ANONYMOUS
    assert principal(served, ROOT.issue("alice")) == Principal("User", "CN=alice")


def test_rules_of_the_listener_give_another_name_or_none() -> None:
    rules = {f"{PREFIX}ssl.principal.mapping.rules": "RULE:CN=(a.*)/$1/U"}
    served = listener(stores(ROOT.issue()) | rules)
    assert principal(served, ROOT.issue("alice")) == Principal("User", "ALICE")
    with pytest.raises(Unidentified, match="No rules apply to CN=bob"):
        principal(served, ROOT.issue("bob"))


def test_with_sasl_the_certificate_says_nothing_and_is_asked_for_by_this_listeners_own_setting_only() -> None:
    asked = {"ssl.client.auth": "required"}
    served = listener(stores(ROOT.issue(), ROOT) | asked, "SASL_SSL")
    assert principal(served, ROOT.issue("alice")) == ANONYMOUS
    handshake(served.context, client_of(inline(None, ROOT)))
    own = {f"{PREFIX}ssl.client.auth": "required"}
    assert listener(stores(ROOT.issue(), ROOT) | own, "SASL_SSL").context.verify_mode.name == "CERT_REQUIRED"


def serial(served: SslListener) -> int:
    _, theirs = handshake(served.context, client_of(inline(None, ROOT)))
    certificate = theirs.getpeercert(binary_form=True)
    assert certificate is not None
    return x509.load_der_x509_certificate(certificate).serial_number


def test_stores_are_exchanged_for_connections_to_come() -> None:
    before, after = ROOT.issue(), ROOT.issue()
    served = listener(stores(before))
    assert served.exchanged(config(stores(before))) is None
    exchanged = served.exchanged(config(stores(after)))
    assert exchanged is not None
    assert serial(served) == before.chain[0].serial_number
    served.take(exchanged)
    assert serial(served) == after.chain[0].serial_number


def test_a_file_that_was_changed_in_its_place_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "keys.pem"
    before, after = ROOT.issue(), ROOT.issue()
    path.write_text(before.pem())
    same = config({f"{PREFIX}ssl.keystore.type": "PEM", f"{PREFIX}ssl.keystore.location": str(path)})
    served = ssl_listeners(same)["SAFE"]
    path.write_text(after.pem())
    os.utime(path, (5, 5))
    exchanged = served.exchanged(same)
    assert exchanged is not None
    served.take(exchanged)
    assert serial(served) == after.chain[0].serial_number
    assert served.exchanged(same) is None


OTHER_NAME = x509.Name(
    [
        x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Example"),
        x509.NameAttribute(NameOID.COMMON_NAME, "localhost"),
    ]
)


@pytest.mark.parametrize(
    ("after", "told", "permission"),
    [
        (ROOT.issue(OTHER_NAME), "Keystore DistinguishedName does not match", "ssl.allow.dn.changes"),
        (ROOT.issue(hosts=("localhost",)), "Keystore SubjectAltNames do not match", "ssl.allow.san.changes"),
        (ROOT.issue(hosts=()), "Keystore SubjectAltNames do not match", "ssl.allow.san.changes"),
    ],
)
def test_peers_that_trusted_the_node_trust_its_new_certificate_unless_a_change_is_permitted(
    after: Identity, told: str, permission: str
) -> None:
    served = listener(stores(ROOT.issue()))
    with pytest.raises(ConfigError, match=f"certificate.chain: {told}"):
        served.exchanged(config(stores(after)))
    for prefix in ("", PREFIX):
        allowed = {f"{prefix}{permission}": "true"}
        assert served.exchanged(config(stores(after) | allowed)) is not None


def test_a_name_may_differ_in_case_and_blanks_and_have_more_hosts() -> None:
    served = listener(stores(ROOT.issue("the Broker")))
    more = ROOT.issue("The  broker", ("localhost", "127.0.0.1", "other.example.com"))
    assert served.exchanged(config(stores(more))) is not None


def test_settings_that_are_no_store_stay_as_they_were_at_the_start() -> None:
    before, after = ROOT.issue(), ROOT.issue()
    served = listener(stores(before, ROOT))
    required = {f"{PREFIX}ssl.client.auth": "required"}
    assert served.exchanged(config(stores(before, ROOT) | required)) is None
    exchanged = served.exchanged(config(stores(after, ROOT) | required))
    assert exchanged is not None
    served.take(exchanged)
    assert serial(served) == after.chain[0].serial_number


def test_a_truststore_may_change_and_not_begin() -> None:
    served = listener(stores(ROOT.issue(), ROOT))
    assert served.exchanged(config(stores(ROOT.issue(), Authority("Other")))) is not None
    with pytest.raises(ConfigError, match="a truststore cannot be added"):
        listener(stores(ROOT.issue())).exchanged(config(stores(ROOT.issue(), ROOT)))


def test_a_store_that_cannot_be_read_leaves_the_one_that_is_there() -> None:
    before = ROOT.issue()
    served = listener(stores(before))
    with pytest.raises(ConfigError, match=r"not base64|has no END line"):
        served.exchanged(
            config(
                stores(before) | {f"{PREFIX}ssl.keystore.certificate.chain": "-----BEGIN CERTIFICATE-----\nx"}
            )
        )
    assert serial(served) == before.chain[0].serial_number


BETWEEN_BROKERS = {"inter.broker.listener.name": "SAFE", f"{PREFIX}ssl.client.auth": "required"}


def test_brokers_have_to_believe_each_other() -> None:
    listener(stores(ROOT.issue(), ROOT) | BETWEEN_BROKERS)
    with pytest.raises(ConfigError, match="do not believe each other"):
        listener(stores(ROOT.issue(), Authority("Other")) | BETWEEN_BROKERS)


def test_brokers_have_to_believe_each_other_while_stores_are_exchanged_one_by_one() -> None:
    other = Authority("Other")
    served = listener(stores(ROOT.issue(), ROOT) | BETWEEN_BROKERS)
    with pytest.raises(ConfigError, match="do not believe each other"):
        served.exchanged(config(stores(other.issue(), other) | BETWEEN_BROKERS))
    both = served.exchanged(config(stores(ROOT.issue(), ROOT, other) | BETWEEN_BROKERS))
    assert both is not None
    served.take(both)
    assert served.exchanged(config(stores(other.issue(), ROOT, other) | BETWEEN_BROKERS)) is not None


def test_the_end_of_the_first_certificate_of_the_chain_is_known() -> None:
    days = 86_400
    served = listener(stores(ROOT.issue(to_days=5)))
    end_s = served.certificate_end_s
    assert 4 * days < end_s - time.time() <= 5 * days
    exchanged = served.exchanged(config(stores(ROOT.issue(to_days=9))))
    assert exchanged is not None
    served.take(exchanged)
    assert served.certificate_end_s - end_s == pytest.approx(4 * days, abs=60)


def shown_by(dialling: ClientSecurity) -> int:
    """The certificate that the node shows whom it dials."""
    assert dialling.context is not None
    server = server_of(inline(ROOT.issue(), ROOT, **{"ssl.client.auth": "required"}))
    certificate = handshake(server, dialling.context)[0].getpeercert(binary_form=True)
    assert certificate is not None
    return x509.load_der_x509_certificate(certificate).serial_number


def test_a_node_dials_others_with_stores_that_were_exchanged() -> None:
    before, after, other = ROOT.issue(), ROOT.issue(), Authority("Other")
    dialling = security_to_brokers(config(stores(before, ROOT) | BETWEEN_BROKERS))
    dialled = dialling.stores
    assert dialled is not None
    assert dialled.exchanged(config(stores(before, ROOT) | BETWEEN_BROKERS)) is None
    exchanged = dialled.exchanged(config(stores(after, ROOT) | BETWEEN_BROKERS))
    assert shown_by(dialling) == before.chain[0].serial_number
    dialled.take(exchanged)
    assert shown_by(dialling) == after.chain[0].serial_number
    dialled.take(dialled.exchanged(config(stores(after, other) | BETWEEN_BROKERS)))
    with pytest.raises(ssl.SSLError, match="CERTIFICATE_VERIFY_FAILED"):
        shown_by(dialling)
    without_keys = {PREFIX + name: value for name, value in inline(None, other).items()}
    with pytest.raises(ConfigError, match="neither added nor removed"):
        dialled.exchanged(config(without_keys | BETWEEN_BROKERS))
