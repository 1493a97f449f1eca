"""A client's exchanges with our own server: accepted clients, and what the client refuses."""

from __future__ import annotations

from typing import Any

import pytest

from kafkacompat.config import ConfigError, ServerConfig, defaults_without_file
from kafkacompat.security.client_settings import (
    security_of_client,
    security_to_brokers,
    security_to_controllers,
)
from kafkacompat.security.librdkafka import librdkafka_settings
from kafkacompat.security.sasl_authenticator import Answer, EnabledMechanism, Failure, SaslServerAuthenticator
from kafkacompat.security.sasl_client import AuthenticationFailed, SaslClientAuthenticator
from kafkacompat.security.sasl_server import PlainSaslServer
from kafkacompat.security.scram import SCRAM_MECHANISMS, SCRAM_SHA_256, ScramMechanism
from kafkacompat.security.scram_exchange import ScramSaslClient, ScramSaslServer
from kafkacompat.wire.apis import response_class
from kafkacompat.wire.codec import decoder
from kafkacompat.wire.headers import parse_response_header, request_frame
from kafkacompat.wire.messages.sasl_authenticate_response import SaslAuthenticateResponse

SALT = b"a salt"
USER, PASSWORD = "al,i=ce", 'se"cr,e=t'
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"


def server(max_reauth_ms: int = 0) -> SaslServerAuthenticator:
    mechanisms = {
        "PLAIN": EnabledMechanism(lambda: PlainSaslServer({"user_" + USER: PASSWORD}), max_reauth_ms)
    }
    for each in SCRAM_MECHANISMS:
        kept = each.credential(SALT, each.salted_password(PASSWORD, SALT, 4096), 4096)

        def begin(mechanism: ScramMechanism = each, kept: Any = kept) -> ScramSaslServer:
            return ScramSaslServer(mechanism, {USER: kept}.get, "server")

        mechanisms[each.name] = EnabledMechanism(begin, max_reauth_ms)
    return SaslServerAuthenticator(mechanisms)


def talk(client: SaslClientAuthenticator, server: SaslServerAuthenticator) -> None:
    response = None
    while (request := client.step(response)) is not None:
        assert request.API_KEY is not None
        version = request.MAX_VERSION
        outcome = server.handle(memoryview(request_frame(request, version, 1, "c"))[4:], 0)
        assert isinstance(outcome, (Answer, Failure))
        assert outcome.reply is not None
        body = outcome.reply[4:]
        _, position = parse_response_header(body, request.API_KEY, version)
        response = decoder(response_class(request.API_KEY), version)(body, position)[0]


def client_properties(
    mechanism: str, password: str = PASSWORD, protocol: str = "SASL_PLAINTEXT"
) -> dict[str, str]:
    module = PLAIN_MODULE if mechanism == "PLAIN" else SCRAM_MODULE
    quoted = password.replace('"', '\\"')
    return {
        "security.protocol": protocol,
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": f'{module} required username="{USER}" password="{quoted}";',
    }


def made(properties: dict[str, str]) -> SaslClientAuthenticator:
    authenticator = security_of_client(properties).authenticator("broker.example")
    assert authenticator is not None
    return authenticator


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_client_with_the_password_gets_in(mechanism: str) -> None:
    client, other = made(client_properties(mechanism)), server(5000)
    talk(client, other)
    assert other.user == USER
    assert client.session_lifetime_ms == 5000


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_client_with_a_wrong_password_is_told_so(mechanism: str) -> None:
    other = server()
    with pytest.raises(AuthenticationFailed, match="Authentication failed") as failed:
        talk(made(client_properties(mechanism, "n0t-this")), other)
    assert other.user is None
    assert "n0t-this" not in str(failed.value)


def test_a_mechanism_that_is_not_enabled_is_named() -> None:
    other = SaslServerAuthenticator({"PLAIN": EnabledMechanism(lambda: PlainSaslServer({}), 0)})
    with pytest.raises(AuthenticationFailed, match="SCRAM-SHA-256 is not enabled there: PLAIN"):
        talk(made(client_properties("SCRAM-SHA-256")), other)


def test_an_error_that_only_a_newer_server_knows_is_a_refusal() -> None:
    client = made(client_properties("PLAIN"))
    with pytest.raises(AuthenticationFailed, match="UNKNOWN_SERVER_ERROR"):
        client.step(SaslAuthenticateResponse(error_code=9999))


FIRST = b"r=client-server,s=YSBzYWx0,i=4096"


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"\xff",
        FIRST.replace(b"client-", b"other-"),
        b"r=client,s=YSBzYWx0,i=4096",
        b"r=client-,s=YSBzYWx0,i=4096",
        FIRST.replace(b"4096", b"4095"),
        FIRST.replace(b"4096", b"1000001"),
        FIRST.replace(b"4096", b"9" * 5000),
        FIRST.replace(b"4096", b"-1"),
        FIRST.replace(b"4096", "\u0664".encode()),
        FIRST.replace(b"YSBzYWx0", b"%%"),
        b"r=client-server,i=4096",
    ],
)
def test_a_first_message_that_is_not_believed(first: bytes) -> None:
    with pytest.raises(AuthenticationFailed):
        ScramSaslClient(SCRAM_SHA_256, "user", "secret", "client-").evaluate_challenge(first)


@pytest.mark.parametrize("final", [b"v=AAAA", b"", b"e=other-error", b"v=%", b"x"])
def test_a_server_that_does_not_know_the_password_is_not_believed(final: bytes) -> None:
    client = ScramSaslClient(SCRAM_SHA_256, "user", "secret", "client-")
    assert client.evaluate_challenge(FIRST) is not None
    with pytest.raises(AuthenticationFailed):
        client.evaluate_challenge(final)


def test_a_token_is_told_as_one() -> None:
    properties = client_properties("SCRAM-SHA-256")
    properties["sasl.jaas.config"] = properties["sasl.jaas.config"].replace(";", " tokenauth=true;")
    begin = security_of_client(properties).begin
    assert begin is not None
    assert begin("host").initial_response().endswith(b",tokenauth=true")


def test_a_client_of_librdkafka_is_told_that_it_has_no_tokens() -> None:
    """It would send the token's id as the name of a user, and be told that its password is wrong."""
    properties = client_properties("SCRAM-SHA-256")
    assert librdkafka_settings(properties)["sasl.username"] == USER
    properties["sasl.jaas.config"] = properties["sasl.jaas.config"].replace(";", " tokenauth=true;")
    with pytest.raises(ConfigError, match="does not log in with a delegation token") as told:
        librdkafka_settings(properties)
    assert PASSWORD not in str(told.value)


def node(settings: dict[str, str]) -> ServerConfig:
    return ServerConfig.from_properties(defaults_without_file(), settings)


def test_a_node_speaks_to_brokers_and_to_controllers_as_their_listeners_say() -> None:
    config = node(
        {
            "listeners": "PLAINTEXT://127.0.0.1:0,INSIDE://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
            "inter.broker.listener.name": "INSIDE",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INSIDE:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
            "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
            "sasl.mechanism.controller.protocol": "PLAIN",
            "listener.name.inside.scram-sha-512.sasl.jaas.config": f'{SCRAM_MODULE} required username=a password="b";',
            "listener.name.controller.plain.sasl.jaas.config": f'{PLAIN_MODULE} required username=c password="d";',
        }
    )
    assert security_to_brokers(config).mechanism == "SCRAM-SHA-512"
    to_controllers = security_to_controllers(config)
    assert to_controllers.mechanism == "PLAIN"
    assert to_controllers.begin is not None
    assert to_controllers.begin("host").initial_response() == b"\0c\0d"
    assert security_to_brokers(node({})).begin is None


@pytest.mark.parametrize(
    ("properties", "told"),
    [
        ({"security.protocol": "TLS"}, "TLS for configuration security.protocol"),
        ({"security.protocol": "SASL_PLAINTEXT"}, "sasl.jaas.config must be set"),
        ({"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}, "sasl.jaas.config must be set"),
        (
            client_properties("PLAIN") | {"sasl.jaas.config": f"{PLAIN_MODULE} required password=s3cret;"},
            "sasl.jaas.config: the login module needs the option username",
        ),
        (
            client_properties("PLAIN") | {"sasl.jaas.config": f"{SCRAM_MODULE} required password=s3cret;"},
            "the login module must be .*PlainLoginModule",
        ),
        (
            client_properties("PLAIN") | {"sasl.jaas.config": f"{PLAIN_MODULE} required password=s3cret"},
            "sasl.jaas.config: .*not terminated",
        ),
    ],
)
def test_properties_that_do_not_say_who_connects(properties: dict[str, str], told: str) -> None:
    with pytest.raises(ConfigError, match=told) as refused:
        security_of_client(properties)
    assert "s3cret" not in str(refused.value)
