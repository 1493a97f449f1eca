"""Listeners with TLS: stock clients, stores in every format, accepted clients and their principals, compared with
Apache Kafka."""

from __future__ import annotations

import contextlib
import socket
import ssl
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)
from cryptography import x509
from kafka import KafkaConsumer, KafkaProducer

from interop_tests.conftest import MakeBroker
from interop_tests.harness.broker import BrokerProcess
from interop_tests.harness.java_tools import KafkaTools
from interop_tests.harness.kafka_jars import require_program
from interop_tests.harness.ports import free_port
from interop_tests.harness.waiting import wait_until
from interop_tests.security import damaged_handshakes
from interop_tests.security.damaged_handshakes import REFUSED, SERVED, WAITS
from interop_tests.security.stores import ALICE, ALICE_NAME, FORMS, PASSWORD, Stores, with_listener
from interop_tests.side_by_side.area import SOAK, KeptBrokers, kept_brokers, seeds
from interop_tests.side_by_side.comparison import Comparison
from kafkacompat._tests.certificates import Authority, Identity

pytestmark = pytest.mark.needs_control
CLIENT_S = 20
Alike = Callable[[str, Comparison, str], None]
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


@pytest.fixture
def stores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stores:
    monkeypatch.setenv("KAFKACOMPAT_LOG", "INFO")
    return Stores(tmp_path / "stores")


def secured(make_broker: MakeBroker, settings: dict[str, str]) -> tuple[BrokerProcess, str]:
    """A broker with a listener SAFE, and that listener's address."""
    broker = make_broker(start=False)
    port = free_port()
    broker.settings |= with_listener(broker.settings, port) | settings
    broker.start()
    return broker, f"127.0.0.1:{port}"


def of_librdkafka(address: str, stores: Stores, key: Path | None = None, **more: Any) -> dict[str, Any]:
    settings = {
        "bootstrap.servers": address,
        "security.protocol": "ssl",
        "ssl.ca.location": str(stores.ca_pem),
    }
    if key is not None:
        settings |= {"ssl.certificate.location": str(key), "ssl.key.location": str(key)}
    return settings | more


def first_error(settings: dict[str, Any]) -> KafkaError:
    errors: list[KafkaError] = []
    producer = Producer(settings | {"error_cb": errors.append})
    deadline = time.monotonic() + CLIENT_S
    while not errors and time.monotonic() < deadline:
        producer.poll(0.1)
    return errors[0]


@pytest.mark.smoke
@pytest.mark.parametrize("form", FORMS)
def test_stock_clients_over_tls_with_stores_of_each_form(
    make_broker: MakeBroker, stores: Stores, form: str
) -> None:
    own = stores.authority.issue(use_rsa=form == "JKS")
    broker, address = secured(make_broker, stores.settings(own, form, prefix="listener.name.safe."))
    large = b"x" * 700_000
    producer = Producer(of_librdkafka(address, stores))
    producer.produce("topic", b"from librdkafka")
    producer.produce("topic", large)
    assert producer.flush(CLIENT_S) == 0
    other = KafkaProducer(bootstrap_servers=address, security_protocol="SSL", ssl_cafile=str(stores.ca_pem))
    other.send("topic", b"from kafka-python").get(CLIENT_S)
    other.close()
    expected = {b"from librdkafka", b"from kafka-python", large}
    group = {"group.id": "group", "auto.offset.reset": "earliest"}
    consumer = Consumer(of_librdkafka(address, stores) | group)
    consumer.subscribe(["topic"])
    seen: set[bytes] = set()
    deadline = time.monotonic() + CLIENT_S
    while len(seen) < 3 and time.monotonic() < deadline:
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            seen.add(message.value())
    consumer.close()
    assert seen == expected
    again = KafkaConsumer(
        "topic",
        bootstrap_servers=address,
        security_protocol="SSL",
        ssl_cafile=str(stores.ca_pem),
        auto_offset_reset="earliest",
        consumer_timeout_ms=CLIENT_S * 1000,
    )
    assert {next(again).value for _ in expected} == expected
    again.close()
    assert PASSWORD not in broker.log_text()


def test_java_tools_show_certificates_out_of_stores_of_each_form(
    make_broker: MakeBroker, stores: Stores, tools: KafkaTools, tmp_path: Path
) -> None:
    own, bob = stores.authority.issue(), stores.authority.issue("bob", ())
    required = {"listener.name.safe.ssl.client.auth": "required"}
    _, address = secured(make_broker, stores.settings(own, prefix="listener.name.safe.") | required)
    for form in FORMS:
        file = tmp_path / f"{form}.properties"
        properties = {"security.protocol": "SSL"} | stores.settings(bob, form, name="bob")
        file.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        common = ("--bootstrap-server", address, "--command-config", str(file))
        made = tools.run("TopicCommand", *common, "--create", "--topic", f"of-{form}")
        assert made.status == 0, made


def test_a_client_with_a_certificate_goes_by_its_subject_as_in_apache_kafka(
    make_broker: MakeBroker, stores: Stores
) -> None:
    """The permission to create topics shows the principal of a client. Kafka uses the same settings."""
    authority = stores.authority
    prefix = "listener.name.safe."
    rules = r"RULE:^CN=m(.*?)-([0-9]+)$/$2.$1/U, DEFAULT"
    settings = {
        "authorizer.class.name": AUTHORIZER,
        "super.users": f"User:{ALICE_NAME};User:17.ALLORY;User:ANONYMOUS",
        f"{prefix}ssl.client.auth": "requested",
        f"{prefix}ssl.principal.mapping.rules": rules,
    }
    _, address = secured(make_broker, stores.settings(authority.issue(), prefix=prefix) | settings)
    identities: dict[str, Identity | None] = {
        "alice": authority.issue(ALICE, ()),
        "mapped": authority.issue("mallory-17", ()),
        "stranger": authority.issue("stranger", ()),
        "nobody": None,
    }
    allowed: dict[str, bool] = {}
    for name, identity in identities.items():
        key = None if identity is None else stores.keystore(name, identity)
        admin = AdminClient(of_librdkafka(address, stores, key))
        (made,) = admin.create_topics([NewTopic(name, 1, 1)], request_timeout=CLIENT_S).values()
        error = made.exception(CLIENT_S)
        allowed[name] = error is None
        if error is not None:
            assert error.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert allowed == {"alice": True, "mapped": True, "stranger": False, "nobody": True}


def test_expired_foreign_and_missing_certificates_let_nobody_in(
    make_broker: MakeBroker, stores: Stores
) -> None:
    prefix = "listener.name.safe."
    required = {f"{prefix}ssl.client.auth": "required"}
    own = stores.authority.issue()
    broker, address = secured(make_broker, stores.settings(own, prefix=prefix) | required)
    refused = {
        "expired": stores.authority.issue("bob", (), from_days=-9, to_days=-2),
        "foreign": Authority("Foreign").issue("bob", ()),
        "missing": None,
    }
    for name, identity in refused.items():
        key = None if identity is None else stores.keystore(name, identity)
        error = first_error(of_librdkafka(address, stores, key))
        # With TLS 1.3 a client gets the refusal after its own handshake is complete.
        assert error.code() in (KafkaError._SSL, KafkaError._TRANSPORT), name
        assert "alert" in error.str(), name
    if broker.kind == "kafkacompat":
        for reason in (
            "certificate has expired",
            "unable to get local issuer",
            "peer did not return a certificate",
        ):
            assert reason in broker.log_text()
    welcome = stores.keystore("welcome", stores.authority.issue("bob", ()))
    producer = Producer(of_librdkafka(address, stores, welcome))
    producer.produce("topic", b"hello")
    assert producer.flush(CLIENT_S) == 0


def test_clients_that_verify_do_not_talk_to_who_has_another_name(
    make_broker: MakeBroker, stores: Stores
) -> None:
    own = stores.authority.issue("elsewhere", ("elsewhere.example.com",))
    _, address = secured(make_broker, stores.settings(own, prefix="listener.name.safe."))
    verifying = {"ssl.endpoint.identification.algorithm": "https"}
    assert first_error(of_librdkafka(address, stores, **verifying)).code() == KafkaError._SSL
    careless = {"ssl.endpoint.identification.algorithm": "none"}
    producer = Producer(of_librdkafka(address, stores, **careless))
    producer.produce("topic", b"hello")
    assert producer.flush(CLIENT_S) == 0


def test_a_thousand_that_stop_in_the_handshake_beside_one_that_works(
    make_broker: MakeBroker, stores: Stores
) -> None:
    broker, address = secured(
        make_broker, stores.settings(stores.authority.issue(), prefix="listener.name.safe.")
    )
    host, port = address.split(":")
    context = ssl.create_default_context(cafile=str(stores.ca_pem))
    with contextlib.ExitStack() as stack:
        for number in range(1000):
            outgoing = ssl.MemoryBIO()
            hello = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost")
            with contextlib.suppress(ssl.SSLWantReadError):
                hello.do_handshake()
            said = outgoing.read()
            stopped = stack.enter_context(socket.create_connection((host, int(port)), CLIENT_S))
            stopped.sendall(said[: len(said) * (number % 5) // 4])
        producer = Producer(of_librdkafka(address, stores))
        for _ in range(100):
            producer.produce("topic", b"hello")
        assert producer.flush(CLIENT_S) == 0
        garbage = stack.enter_context(socket.create_connection((host, int(port)), CLIENT_S))
        garbage.sendall(b"GET / HTTP/1.0\r\n\r\n")
        garbage.settimeout(CLIENT_S)
        with contextlib.suppress(ConnectionResetError):
            while garbage.recv(1000):
                pass
    producer.produce("topic", b"hello")
    assert producer.flush(CLIENT_S) == 0
    if broker.kind == "kafkacompat":
        wait_until(lambda: "TLS handshake failed" in broker.log_text(), what="a line about who was refused")


def alter(admin: AdminClient, changes: dict[str, str]) -> KafkaError | None:
    """Set dynamic settings of node 1 one by one. Returns the error, if any."""
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        for name, value in changes.items()
    ]
    resource = ConfigResource(ResourceType.BROKER, "1", incremental_configs=entries)
    (done,) = admin.incremental_alter_configs([resource]).values()
    error = done.exception(CLIENT_S)
    return None if error is None else error.args[0]


def serial(address: str, stores: Stores) -> int:
    """The serial number of the certificate that the listener shows to a new connection."""
    host, port = address.split(":")
    context = ssl.create_default_context(cafile=str(stores.ca_pem))
    with (
        socket.create_connection((host, int(port)), CLIENT_S) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as secured_socket,
    ):
        certificate = secured_socket.getpeercert(binary_form=True)
    assert certificate is not None
    return x509.load_der_x509_certificate(certificate).serial_number


def test_stores_are_exchanged_while_the_node_serves(make_broker: MakeBroker, stores: Stores) -> None:
    """First with a setting that names another file, then with the same setting after the file was changed in place."""
    prefix = "listener.name.safe."
    first, second, third = (stores.authority.issue() for _ in range(3))
    broker, address = secured(make_broker, stores.settings(first, prefix=prefix))
    producer = Producer(of_librdkafka(address, stores))
    producer.produce("topic", b"before")
    assert producer.flush(CLIENT_S) == 0
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    location = f"{prefix}ssl.keystore.location"
    path = stores.keystore("second", second)
    assert alter(admin, {location: str(path)}) is None
    wait_until(
        lambda: serial(address, stores) == second.chain[0].serial_number,
        what="the second certificate is shown",
    )
    path.write_text(third.pem())
    assert alter(admin, {location: str(path)}) is None
    wait_until(
        lambda: serial(address, stores) == third.chain[0].serial_number, what="the third certificate is shown"
    )
    refused = {
        "another name": stores.keystore("name", stores.authority.issue("elsewhere")),
        "fewer hosts": stores.keystore("hosts", stores.authority.issue(hosts=("localhost",))),
        "no file": stores.folder / "nowhere.pem",
    }
    for why, wrong in refused.items():
        error = alter(admin, {location: str(wrong)})
        assert error is not None, why
        assert error.code() == KafkaError.INVALID_REQUEST, why
    # A setting other than a store is accepted, and takes effect at the next start.
    assert alter(admin, {f"{prefix}ssl.client.auth": "required"}) is None
    assert serial(address, stores) == third.chain[0].serial_number
    # Open connections are not affected.
    producer.produce("topic", b"after")
    assert producer.flush(CLIENT_S) == 0


def test_sasl_over_tls_says_who_a_client_is_by_its_password(make_broker: MakeBroker, stores: Stores) -> None:
    """On a SASL_SSL listener the certificate is requested only if the listener's setting says so, and does not
    determine the principal."""
    prefix, plain = "listener.name.safe.", "org.apache.kafka.common.security.plain.PlainLoginModule"
    settings = {
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SAFE:SASL_SSL",
        "authorizer.class.name": AUTHORIZER,
        "super.users": "User:bob;User:ANONYMOUS",
        "ssl.client.auth": "required",
        f"{prefix}sasl.enabled.mechanisms": "PLAIN",
        f"{prefix}plain.sasl.jaas.config": f'{plain} required user_bob="bobs-word" user_eve="eves-word";',
    }
    _, address = secured(make_broker, stores.settings(stores.authority.issue(), prefix=prefix) | settings)
    key = stores.keystore("bob", stores.authority.issue("bob", ()))
    for user, allowed in (("bob", True), ("eve", False)):
        who = {
            "security.protocol": "sasl_ssl",
            "sasl.mechanism": "PLAIN",
            "sasl.username": user,
            "sasl.password": f"{user}s-word",
        }
        admin = AdminClient(of_librdkafka(address, stores, key) | who)
        (made,) = admin.create_topics([NewTopic(user, 1, 1)], request_timeout=CLIENT_S).values()
        assert (made.exception(CLIENT_S) is None) == allowed, user
    wrong = {
        "security.protocol": "sasl_ssl",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "bob",
        "sasl.password": "no",
    }
    assert first_error(of_librdkafka(address, stores) | wrong).code() == KafkaError._AUTHENTICATION


def test_openssl_may_not_begin_a_handshake_anew(make_broker: MakeBroker, stores: Stores) -> None:
    _, address = secured(make_broker, stores.settings(stores.authority.issue(), prefix="listener.name.safe."))
    command = [
        require_program("openssl"),
        "s_client",
        "-connect",
        address,
        "-tls1_2",
        "-CAfile",
        str(stores.ca_pem),
    ]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as client:
        assert client.stdin is not None
        assert client.stdout is not None
        said = ""
        while "Extended master secret" not in said:
            said += client.stdout.readline()
        assert "Cipher is ECDHE" in said
        client.stdin.write("R\n")
        client.stdin.flush()
        # If renegotiation were permitted, the client would continue with its input. It fails on a connection that is closed
        # without a word, as by kafkacompat, and not on one that is closed with one, as by Apache Kafka.
        client.wait(CLIENT_S)
        assert "RENEGOTIATING" in client.stdout.read()


@pytest.fixture(scope="module")
def side_by_side(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KeptBrokers]:
    with kept_brokers(damaged_handshakes.AREA, tmp_path_factory.mktemp("handshakes")) as kept:
        yield kept


def kafkas_outcomes(comparison: Comparison) -> Counter[str]:
    return Counter(each.rpartition("\n")[2].strip().strip("'") for each in comparison.answers)


@pytest.mark.costly
def test_handshakes_come_out_as_with_apache_kafka(side_by_side: KeptBrokers, alike: Alike) -> None:
    comparison = side_by_side.talk("whole_handshakes")
    alike("handshakes", comparison, "--talks")
    outcomes = kafkas_outcomes(comparison)
    assert outcomes["refused"] > 20
    assert len(outcomes) > 4


@pytest.mark.parametrize(
    ("announced", "is_excused"),
    [(32 * 1024, False), (32 * 1024 + 1, True), (128 * 1024, True), (1 << 20, False)],
)
def test_waiting_for_a_first_message_is_excused_by_its_size(announced: int, is_excused: bool) -> None:
    """Java waits for up to 32 KiB of it, OpenSSL for up to 128 KiB."""
    case = damaged_handshakes.Case(
        "PLAIN_TLS", ssl.TLSVersion.TLSv1_3, False, damaged_handshakes.flipped, 0, 1
    )
    flight = b"\x16\x03\x01\x02\x00\x01" + announced.to_bytes(3, "big") + bytes(508)
    assert damaged_handshakes.is_excused(case, REFUSED, WAITS, flight) is is_excused


def test_damaged_handshakes_end_as_with_apache_kafka(side_by_side: KeptBrokers, alike: Alike) -> None:
    (seed,), count = seeds((5,), 1), 600 if SOAK else 60
    comparison = side_by_side.seed(seed, count)
    alike("handshakes", comparison, f"--seed {seed} --requests {count}")
    outcomes = kafkas_outcomes(comparison)
    assert outcomes[REFUSED] > 20
    assert outcomes[WAITS] > 2
    assert outcomes[SERVED] > 1
