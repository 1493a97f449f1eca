"""A listener with OAUTHBEARER: tokens are taken and refused as by Apache Kafka with the same keys, and stock clients get in."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, Producer
from kafka import KafkaProducer
from kafka.net.sasl.oauth import AbstractTokenProvider

from interop_tests.harness.broker import APACHE, KAFKACOMPAT, BrokerProcess
from interop_tests.harness.ports import free_port
from interop_tests.harness.waiting import wait_until
from interop_tests.harness.wire import Connection, ConnectionClosed
from kafkacompat._tests.http_server import Asked, serving
from kafkacompat._tests.tokens import claims, private_key, public_entry, signed, write_jwks
from kafkacompat.security.cluster_address import ClusterAddress
from kafkacompat.security.oauthbearer import REFUSED

pytestmark = pytest.mark.needs_control
PACKAGE = "org.apache.kafka.common.security.oauthbearer."
AUDIENCE, ISSUER = "kafka", "https://issuer.example"
CLIENT_S = 20
SOAK = bool(os.environ.get("KAFKACOMPAT_SOAK"))


EXPECTED = {"expected.audience": f"{AUDIENCE},others", "expected.issuer": ISSUER}
ALLOWED = {"allow.unverified.audience": "true", "allow.unverified.issuer": "true"}
LISTENERS = {
    "safe": EXPECTED,
    "anybody": {"expected.issuer": ISSUER, "allow.unverified.audience": "true"},
    "anyone": {"expected.audience": AUDIENCE, "allow.unverified.issuer": "true"},
    "open": ALLOWED,
    "empty": {"expected.audience": "", "expected.issuer": " "} | ALLOWED,
    "both": EXPECTED | ALLOWED,
}
"""What each expects of a token, and what it allows."""


def settings_of(
    broker: BrokerProcess, port: int, url: str, name: str = "safe", told: Mapping[str, str] = EXPECTED
) -> dict[str, str]:
    of = f"listener.name.{name}."
    mechanism = f"{of}oauthbearer."
    address = f"{name.upper()}://127.0.0.1:{port}"
    protocols = broker.settings.get(
        "listener.security.protocol.map", "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT"
    )
    return {
        "listeners": f"{broker.settings['listeners']},{address}",
        "advertised.listeners": f"{broker.settings['advertised.listeners']},{address}",
        "listener.security.protocol.map": f"{protocols},{name.upper()}:SASL_PLAINTEXT",
        "connection.failed.authentication.delay.ms": "5",
        f"{of}sasl.enabled.mechanisms": "OAUTHBEARER",
        f"{mechanism}sasl.jaas.config": f"{PACKAGE}OAuthBearerLoginModule required;",
        f"{mechanism}sasl.server.callback.handler.class": f"{PACKAGE}OAuthBearerValidatorCallbackHandler",
        f"{mechanism}sasl.oauthbearer.jwks.endpoint.url": url,
    } | {f"{of}sasl.oauthbearer.{setting}": value for setting, value in told.items()}


@pytest.fixture(scope="module")
def by_listener(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, dict[str, str]]]:
    """The addresses of LISTENERS, each by the kind of broker."""
    folder = tmp_path_factory.mktemp("tokens")
    url = write_jwks(
        folder / "keys.json", public_entry(private_key("other"), "other"), public_entry(private_key())
    )
    # Java writes a file's URL with one slash, and so it stands in the property.
    url = url.replace("file:///", "file:/")
    found: dict[str, dict[str, str]] = {name: {} for name in LISTENERS}
    with ExitStack() as stack:
        brokers = [BrokerProcess(kind, folder / kind) for kind in (APACHE, KAFKACOMPAT)]
        for broker in brokers:
            for name, told in LISTENERS.items():
                port = free_port()
                broker.settings |= settings_of(broker, port, url, name, told)
                found[name][broker.kind] = f"127.0.0.1:{port}"
            stack.callback(broker.kill)
        brokers[0].jvm_options = (f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={url}",)
        brokers[0].launch()
        brokers[1].start()
        brokers[0].wait_until_ready()
        yield found


@pytest.fixture(scope="module")
def addresses(by_listener: dict[str, dict[str, str]]) -> dict[str, str]:
    """Of the listener that expects both, by the kind of broker."""
    return by_listener["safe"]


def good(**others: Any) -> dict[str, Any]:
    return claims(**{"iss": ISSUER, "aud": AUDIENCE, **others})


def unsigned() -> str:
    header = urlsafe_b64encode(b'{"alg":"none"}').decode().rstrip("=")
    return f"{header}.{signed(good()).split('.')[1]}."


def now() -> int:
    return int(time.time())


TOKENS = {
    "good": lambda: signed(good()),
    "for several": lambda: signed(good(aud=["x", "others"], scope=["a", "b"], nbf=now() - 5)),
    "of a scope": lambda: signed(good(scope="a b")),
    "over within the skew": lambda: signed(good(iat=now() - 60, exp=now() - 10)),
    "over": lambda: signed(good(iat=now() - 600, exp=now() - 300)),
    "not yet": lambda: signed(good(nbf=now() + 300)),
    "without an end": lambda: signed(good(exp=None)),
    "without a beginning": lambda: signed(good(iat=None)),
    "over before it begins": lambda: signed(good(iat=now() + 7200)),
    "for others": lambda: signed(good(aud="somebody")),
    "for nobody": lambda: signed(good(aud=None)),
    "of another issuer": lambda: signed(good(iss="https://other.example")),
    "of no issuer": lambda: signed(good(iss=None)),
    "of a stranger": lambda: signed(good(), "stranger"),
    "of another key": lambda: signed(good(), "other"),
    "of the other key": lambda: signed(good(), "other", kid="other"),
    "of an unknown key": lambda: signed(good(), kid="unknown"),
    "by PS256": lambda: signed(good(), algorithm="PS256"),
    "by RS512": lambda: signed(good(), algorithm="RS512"),
    "unsigned": unsigned,
    "with extensions": lambda: signed(good(), crit=["x"], x=1),
    "naming nobody": lambda: signed(good(sub=None)),
    "naming blanks": lambda: signed(good(sub=" ")),
    "naming with blanks": lambda: signed(good(sub=" alice ")),
    "doubled scopes": lambda: signed(good(scope=["a", "a"])),
    "an empty scope": lambda: signed(good(scope="")),
    "no token": lambda: "abc",
    "two parts": lambda: "abc.def",
    "four parts": lambda: signed(good()) + ".x",
    "no base64": lambda: "~~~.~~~.~~~",
}
OF_AUDIENCE = ("for others", "for nobody")
OF_ISSUER = ("of another issuer", "of no issuer")


def message(token: str, head: str = "n,,", scheme: str = "Bearer", more: str = "") -> bytes:
    return f"{head}\x01auth={scheme} {token}\x01{more}\x01".encode()


MESSAGES = {
    "with extensions": lambda: message(signed(good()), more="trace=x=1\x01tenant=a b\x01"),
    "as herself": lambda: message(signed(good()), "n,a=alice,"),
    "as bob": lambda: message(signed(good()), "n,a=bob,"),
    "of another scheme": lambda: message("abc", scheme="Basic"),
    "in capitals": lambda: message(signed(good()), scheme="BEARER"),
    "without a token": lambda: b"n,,\x01x=y\x01\x01",
    "with a bad extension": lambda: message(signed(good()), more="1=x\x01"),
    "bound to a channel": lambda: message(signed(good()), "y,,"),
    "empty": lambda: b"",
    "acknowledged": lambda: b"\x01",
    "cut": lambda: message(signed(good()))[:-1],
}


def answers(address: str, first: bytes) -> list[Any]:
    """To the first message, to the acknowledgement of a refusal, and to a request behind it."""
    heard: list[Any] = []
    with Connection(address) as connection:
        try:
            heard.append(connection.call("SaslHandshake", 1, {"Mechanism": "OAUTHBEARER"}))
            for token in (first, b"\x01"):
                answer = connection.call("SaslAuthenticate", 2, {"AuthBytes": token})
                answer["SessionLifetimeMs"] = answer["SessionLifetimeMs"] > 0
                heard.append(answer)
                if answer["ErrorCode"] or not answer["AuthBytes"]:
                    break
            heard.append(len(connection.call("Metadata", 12, {"Topics": []})["Brokers"]))
        except ConnectionClosed:
            heard.append("closed")
    return heard


def test_tokens_are_taken_as_by_apache_kafka(addresses: dict[str, str]) -> None:
    firsts = {name: message(make()) for name, make in TOKENS.items()}
    firsts |= {f"message {name}": make() for name, make in MESSAGES.items()}
    ours = {name: answers(addresses[KAFKACOMPAT], first) for name, first in firsts.items()}
    theirs = {name: answers(addresses[APACHE], first) for name, first in firsts.items()}
    assert ours == theirs
    assert ours["good"][-1] == 1
    assert ours["over"][-1] == "closed"


@pytest.mark.parametrize("name", [name for name in LISTENERS if name != "safe"])
def test_what_may_stay_unverified_is_taken_as_by_apache_kafka(
    by_listener: dict[str, dict[str, str]], name: str
) -> None:
    """CVE-2026-33557. What is expected is verified, whatever is allowed."""
    firsts = {
        each: message(TOKENS[each]())
        for each in ("good", "over", "of a stranger", "unsigned", *OF_AUDIENCE, *OF_ISSUER)
    }
    ours, theirs = (
        {each: answers(by_listener[name][kind], first) for each, first in firsts.items()}
        for kind in (KAFKACOMPAT, APACHE)
    )
    assert ours == theirs
    taken = {each for each, heard in ours.items() if heard[-1] != "closed"}
    told = LISTENERS[name]
    expects = {claim: bool(told.get(f"expected.{claim}", "").strip()) for claim in ("audience", "issuer")}
    assert taken == {
        "good",
        *([] if expects["audience"] else OF_AUDIENCE),
        *([] if expects["issuer"] else OF_ISSUER),
    }


@pytest.mark.parametrize("claim", ["audience", "issuer"])
def test_whoever_does_not_say_what_stays_unverified_does_not_start(claim: str, tmp_path: Path) -> None:
    told = {key: value for key, value in EXPECTED.items() if claim not in key}
    url = write_jwks(tmp_path / "keys.json", public_entry(private_key())).replace("file:///", "file:/")
    for kind in (KAFKACOMPAT, APACHE):
        broker = BrokerProcess(kind, tmp_path / kind)
        broker.settings |= settings_of(broker, free_port(), url, told=told)
        broker.jvm_options = (f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={url}",)
        try:
            with pytest.raises(AssertionError, match="the broker ended with status 1"):
                broker.start()
        finally:
            broker.kill()
        for setting in (f"expected.{claim}", f"allow.unverified.{claim}"):
            assert f"sasl.oauthbearer.{setting}" in broker.log_text()


def damaged(first: bytes, chance: random.Random) -> bytes:
    """A first message that was cut, or of which a byte is changed, left out, added or doubled."""
    at = chance.randrange(len(first))
    byte = bytes([chance.choice((first[at] ^ 1 << chance.randrange(7), *b"\0\1\n =,.-_+/", 0x80, 0xFF))])
    before, rest = first[:at], first[at + 1 :]
    return chance.choice(
        (before, before + byte + rest, before + rest, before + byte + first[at:], before + first[at:] * 2)
    )


def token_of(first: bytes) -> list[bytes] | None:
    """What Apache Kafka decodes the sections of the token to. It takes the other alphabet of base64 too, and ignores bits
    behind the last byte."""
    token = first.partition(b"Bearer ")[2].partition(b"\x01")[0]
    try:
        return [urlsafe_b64decode(section + b"=" * (-len(section) % 4)) for section in token.split(b".")]
    except ValueError:
        return None


def is_refused(heard: list[Any]) -> bool:
    return bool(heard[1]["AuthBytes"] == REFUSED.encode())


def test_only_apache_kafka_takes_a_token_in_the_other_alphabet(addresses: dict[str, str]) -> None:
    first = message(signed(good()).translate(str.maketrans("-_", "+/")))
    assert is_refused(answers(addresses[KAFKACOMPAT], first))
    assert answers(addresses[APACHE], first)[-1] == 1


def test_damaged_messages_are_answered_as_by_apache_kafka(addresses: dict[str, str]) -> None:
    seed, count = (random.randrange(1 << 30), 3000) if SOAK else (5, 150)
    chance = random.Random(seed)
    whole = (
        message(signed(good())),
        message(signed(good()), "n,a=alice,", more="trace=x=1\x01"),
        message("abc.def.ghi"),
    )
    told = []
    for _ in range(count):
        good_one = chance.choice(whole)
        first = damaged(good_one, chance)
        ours, theirs = (answers(addresses[kind], first) for kind in (KAFKACOMPAT, APACHE))
        if ours != theirs and not (token_of(first) == token_of(good_one) and is_refused(ours)):
            told.append(f"{first!r}\n  ours   {ours}\n  theirs {theirs}")
    assert not told, f"seed {seed}\n" + "\n".join(told)


class Tokens(AbstractTokenProvider):  # type: ignore[misc]
    def token(self) -> str:
        return signed(good())


@pytest.mark.parametrize("kind", [KAFKACOMPAT, APACHE])
def test_stock_clients_get_in_by_a_token(addresses: dict[str, str], kind: str) -> None:
    shared = {"bootstrap.servers": addresses[kind], "security.protocol": "SASL_PLAINTEXT"}
    shared["sasl.mechanism"] = "OAUTHBEARER"
    producer = Producer(shared | {"oauth_cb": lambda _: (signed(good()), time.time() + 3600)})
    producer.produce("tokens", b"from librdkafka")
    assert producer.flush(CLIENT_S) == 0
    other = KafkaProducer(
        bootstrap_servers=addresses[kind],
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="OAUTHBEARER",
        sasl_oauth_token_provider=Tokens(),
    )
    other.send("tokens", b"from kafka-python").get(CLIENT_S)
    other.close()
    errors: list[KafkaError] = []
    refused = Producer(
        shared
        | {"oauth_cb": lambda _: (signed(good(), "stranger"), time.time() + 3600), "error_cb": errors.append}
    )
    deadline = time.monotonic() + CLIENT_S
    while not errors and time.monotonic() < deadline:
        refused.poll(0.1)
    assert errors[0].code() == KafkaError._AUTHENTICATION


@pytest.mark.parametrize("kind", [KAFKACOMPAT, APACHE])
def test_commands_get_in_by_a_token_in_a_file(addresses: dict[str, str], kind: str, tmp_path: Path) -> None:
    token = tmp_path / "token"
    file = tmp_path / "client.properties"
    file.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=OAUTHBEARER\n"
        f"sasl.jaas.config={PACKAGE}OAuthBearerLoginModule required extension_tenant=one;\n"
        f"sasl.oauthbearer.token.endpoint.url={token.as_uri()}\n"
    )

    def listed(text: str) -> subprocess.CompletedProcess[str]:
        token.write_text(text)
        command = [sys.executable, "-m", "kafkacompat", "topics", "list", "--bootstrap", addresses[kind]]
        command += ["--command-config", str(file)]
        return subprocess.run(command, capture_output=True, text=True, timeout=CLIENT_S * 2)

    assert listed(signed(good())).returncode == 0
    stranger = signed(good(), "stranger")
    refused = listed(stranger)
    assert refused.returncode == 1
    assert "invalid_token" in refused.stderr
    assert stranger not in refused.stderr


def test_keys_and_tokens_come_from_an_authorization_server(tmp_path: Path) -> None:
    """The node fetches the keys by their URL; our commands and librdkafka ask the token endpoint for a token."""
    with serving() as server, ExitStack() as stack:

        def answer(asked: Asked) -> tuple[int, bytes]:
            if asked.target == "/keys":
                return 200, json.dumps({"keys": [public_entry(private_key())]}).encode()
            return 200, json.dumps({"access_token": signed(good()), "expires_in": 3600}).encode()

        server.answer = answer
        server.headers["Content-Type"] = "application/json"
        broker = BrokerProcess(KAFKACOMPAT, tmp_path / "broker")
        port = free_port()
        broker.settings |= settings_of(broker, port, server.base + "/keys")
        stack.callback(broker.kill)
        broker.start()
        wait_until(lambda: any(each.target == "/keys" for each in server.asked), "the keys are fetched")
        file = tmp_path / "client.properties"
        module = (
            f'{PACKAGE}OAuthBearerLoginModule required clientId="me" clientSecret="s3cret" scope="kafka";'
        )
        file.write_text(
            "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=OAUTHBEARER\n"
            f"sasl.oauthbearer.token.endpoint.url={server.base}/token\nsasl.jaas.config={module}\n"
        )
        address = f"127.0.0.1:{port}"
        how = ["--bootstrap", address, "--command-config", str(file)]
        command = [sys.executable, "-m", "kafkacompat", "topics", *how, "create", "made"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=CLIENT_S)
        assert done.returncode == 0, done
        told = [each for each in server.asked if each.target == "/token"]
        assert {each.body for each in told} == {b"grant_type=client_credentials&scope=kafka"}
        producer = Producer(ClusterAddress.of_file(address, str(file)).librdkafka())
        producer.produce("made", b"one")
        assert producer.flush(CLIENT_S) == 0
        assert server.asked[-1].target == "/token"
        server.answer = lambda asked: (401, b"s3cret")
        refused = subprocess.run(command, capture_output=True, text=True, timeout=CLIENT_S)
        assert refused.returncode == 1
        assert "answered with status 401" in refused.stderr
        assert "s3cret" not in refused.stderr + broker.log_text()
