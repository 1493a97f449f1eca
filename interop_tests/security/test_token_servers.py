"""Clients that get their tokens from an authorization server: Java's by each of its grants, and librdkafka by an assertion."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qs

import jwt
import pytest
from confluent_kafka import Producer
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from interop_tests.harness.broker import APACHE, BrokerProcess, chosen_kind
from interop_tests.harness.java_tools import LOGGING
from interop_tests.harness.kafka_jvm import kafka_java
from interop_tests.harness.ports import free_port
from interop_tests.harness.wire import Connection
from interop_tests.security.test_oauthbearer import PACKAGE, good, settings_of
from kafkacompat._tests.http_server import Asked, Server, serving
from kafkacompat._tests.tokens import private_key, public_entry, signed, write_jwks

pytestmark = pytest.mark.needs_control
CLIENT_S = 90
JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"
CLIENT_ASSERTION = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
SECRET = "s3cret of the client"


@dataclass(frozen=True)
class Realm:
    """A broker that takes tokens, and the server that issues them."""

    broker: BrokerProcess
    address: str
    server: Server
    key: Path
    """The private key of the client, PEM."""

    def forms(self) -> list[dict[str, str]]:
        """The requests for tokens since the last call."""
        asked, self.server.asked[:] = list(self.server.asked), []
        return [
            {name: values[0] for name, values in parse_qs(each.body.decode()).items()}
            for each in asked
            if each.target == "/token"
        ]


@pytest.fixture(scope="module")
def realm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Realm]:
    folder = tmp_path_factory.mktemp("token-server")
    url = write_jwks(folder / "keys.json", public_entry(private_key())).replace("file:///", "file:/")
    key = folder / "client.pem"
    key.write_bytes(private_key("client").private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    broker = BrokerProcess(chosen_kind(), folder / "broker")
    port = free_port()
    broker.settings |= settings_of(broker, port, url)
    broker.jvm_options = (f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={url}",)
    with serving() as server:

        def answer(asked: Asked) -> tuple[int, bytes]:
            return 200, json.dumps({"access_token": signed(good()), "expires_in": 3600}).encode()

        server.answer = answer
        server.headers["Content-Type"] = "application/json"
        try:
            yield Realm(broker.start(), f"127.0.0.1:{port}", server, key)
        finally:
            broker.kill()


def created(
    realm: Realm, folder: Path, topic: str, properties: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    """Java's client creates a topic."""
    url = f"{realm.server.base}/token"
    properties = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.jaas.config": f"{PACKAGE}OAuthBearerLoginModule required;",
        "sasl.login.callback.handler.class": f"{PACKAGE}OAuthBearerLoginCallbackHandler",
        "sasl.oauthbearer.token.endpoint.url": url,
    } | properties
    file = folder / "client.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    allowed = "-Dorg.apache.kafka.sasl.oauthbearer.allowed."
    command = kafka_java("-Xmx256m", LOGGING, f"{allowed}urls={url}", f"{allowed}files={realm.key}")
    command += ["org.apache.kafka.tools.TopicCommand", "--bootstrap-server", realm.address]
    command += ["--command-config", str(file), "--create", "--topic", topic]
    return subprocess.run(command, capture_output=True, text=True, timeout=CLIENT_S)


def claims_of(realm: Realm, assertion: str) -> dict[str, str]:
    """The assertion's claims, which the client's key has signed."""
    key = private_key("client").public_key()
    found: dict[str, str] = jwt.decode(assertion, key, algorithms=["RS256"], audience="tokens")
    return found


def test_java_with_client_credentials(realm: Realm, tmp_path: Path) -> None:
    of = "sasl.oauthbearer."
    made = created(
        realm,
        tmp_path,
        "credentials",
        {
            f"{of}client.credentials.client.id": "me",
            f"{of}client.credentials.client.secret": SECRET,
            f"{of}scope": "kafka",
        },
    )
    assert made.returncode == 0, made
    assert realm.forms()[0] == {"grant_type": "client_credentials", "scope": "kafka"}
    assert SECRET not in realm.broker.log_text()


ASSERTION = {
    "sasl.oauthbearer.assertion.algorithm": "RS256",
    "sasl.oauthbearer.assertion.claim.aud": "tokens",
    "sasl.oauthbearer.assertion.claim.iss": "me",
    "sasl.oauthbearer.assertion.claim.sub": "me",
}


def test_java_with_an_assertion_as_the_grant(realm: Realm, tmp_path: Path) -> None:
    """KIP-1139."""
    retriever = {"sasl.oauthbearer.jwt.retriever.class": f"{PACKAGE}JwtBearerJwtRetriever"}
    key = {"sasl.oauthbearer.assertion.private.key.file": str(realm.key)}
    made = created(realm, tmp_path, "assertion", ASSERTION | retriever | key)
    assert made.returncode == 0, made
    form = realm.forms()[0]
    assert form["grant_type"] == JWT_BEARER
    assert claims_of(realm, form["assertion"])["sub"] == "me"


def test_java_with_an_assertion_in_place_of_the_secret(realm: Realm, tmp_path: Path) -> None:
    """KIP-1258."""
    more = {
        "sasl.oauthbearer.client.credentials.client.id": "me",
        "sasl.oauthbearer.assertion.private.key.file": str(realm.key),
    }
    made = created(realm, tmp_path, "client-assertion", ASSERTION | more)
    assert made.returncode == 0, made
    form = realm.forms()[0]
    assert (form["grant_type"], form["client_assertion_type"]) == ("client_credentials", CLIENT_ASSERTION)
    assert claims_of(realm, form["client_assertion"])["iss"] == "me"


def test_librdkafka_with_an_assertion(realm: Realm) -> None:
    producer = Producer(
        {
            "bootstrap.servers": realm.address,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.token.endpoint.url": f"{realm.server.base}/token",
            "sasl.oauthbearer.grant.type": JWT_BEARER,
            "sasl.oauthbearer.assertion.algorithm": "RS256",
            "sasl.oauthbearer.assertion.private.key.file": str(realm.key),
            "sasl.oauthbearer.assertion.claim.aud": "tokens",
            "sasl.oauthbearer.assertion.claim.iss": "me",
            "sasl.oauthbearer.assertion.claim.sub": "me",
        }
    )
    producer.produce("of-librdkafka", b"one")
    assert producer.flush(CLIENT_S) == 0
    form = realm.forms()[0]
    assert form["grant_type"] == JWT_BEARER
    assert claims_of(realm, form["assertion"])["sub"] == "me"


@pytest.mark.skipif(
    chosen_kind() == APACHE, reason="the addresses that Apache Kafka may ask are a property of its JVM"
)
def test_nobody_sends_a_node_to_another_address_over_the_network(realm: Realm, tmp_path: Path) -> None:
    """CVE-2025-27817: with an address of the client's choice a node reads files, and asks servers, for the client."""
    secret = tmp_path / "secret"
    secret.write_text("a line that nobody may see")
    addresses = {f"{realm.server.base}/elsewhere", secret.as_uri()}
    with Connection(realm.broker.bootstrap) as connection:
        for setting in ("jwks", "token"):
            for prefix in ("", "listener.name.safe.", "listener.name.safe.oauthbearer."):
                for address in addresses:
                    name = f"{prefix}sasl.oauthbearer.{setting}.endpoint.url"
                    change = {"Name": name, "ConfigOperation": 0, "Value": address}
                    resource = {"ResourceType": 4, "ResourceName": "1", "Configs": [change]}
                    reply = connection.call(
                        "IncrementalAlterConfigs", 1, {"Resources": [resource], "ValidateOnly": False}
                    )
                    assert prefix or reply["Responses"][0]["ErrorCode"] != 0
                    assert "nobody may see" not in repr(reply)
    made = created(
        realm,
        tmp_path,
        "undeterred",
        {
            "sasl.oauthbearer.client.credentials.client.id": "me",
            "sasl.oauthbearer.client.credentials.client.secret": SECRET,
        },
    )
    assert made.returncode == 0, made
    assert not [each for each in realm.server.asked if each.target == "/elsewhere"]
    assert "nobody may see" not in realm.broker.log_text()
