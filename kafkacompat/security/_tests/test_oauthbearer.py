"""OAUTHBEARER: messages in Kafka's form, accepted and refused tokens, the length of a session."""

from __future__ import annotations

import json
import os
from base64 import urlsafe_b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kafkacompat._tests.tokens import claims, private_key, public_entry, signed, write_jwks
from kafkacompat.config import ConfigError, ServerConfig, defaults_without_file
from kafkacompat.net.runtime import SystemRandom
from kafkacompat.security._tests.test_sasl_client import talk
from kafkacompat.security.client_settings import security_of_client, security_to_brokers
from kafkacompat.security.jwks import JwksError, JwksFile, parse_jwks
from kafkacompat.security.jwt_validator import ExpectedClaims, JwtValidator
from kafkacompat.security.librdkafka import librdkafka_settings
from kafkacompat.security.mechanisms import mechanisms_of
from kafkacompat.security.oauthbearer import (
    MESSAGE_BYTES_MAX,
    REFUSED,
    TOKEN_CHARACTERS_MAX,
    BearerToken,
    ClientInitialResponse,
    OAuthBearerSaslServer,
    TokenRefused,
)
from kafkacompat.security.oauthbearer_client import OAuthBearerSaslClient
from kafkacompat.security.sasl_authenticator import EnabledMechanism, SaslServerAuthenticator
from kafkacompat.security.sasl_client import AuthenticationFailed, SaslClientAuthenticator
from kafkacompat.security.sasl_server import SaslAuthenticationError, SaslError
from kafkacompat.wire.errors import WireError

NOW_S = 1_700_000_000
MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;"


def first(auth: str = "Bearer a.b.c", head: str = "n,,", more: str = "") -> bytes:
    return f"{head}\x01auth={auth}\x01{more}\x01".encode()


def known(token: str) -> BearerToken:
    if token != "a.b.c":
        raise TokenRefused("another one")
    return BearerToken("alice", 5000)


def test_a_first_message_is_taken_apart() -> None:
    more = "trace=x=1\x01tenant=a b\t\r\n\x01"
    message = ClientInitialResponse.parse(first("bEaReR  -_~+/.aZ09==", "n,a=al=2Cice,", more))
    assert message == ("-_~+/.aZ09==", "al=2Cice", {"trace": "x=1", "tenant": "a b\t\r\n"})
    assert ClientInitialResponse.parse(OAuthBearerSaslClient(lambda: "t", {"a": "b"}).initial_response()) == (
        "t",
        "",
        {"a": "b"},
    )


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\x01",
        b"\xff",
        b"n,,\x01\x01",
        first()[:-1],
        first() + b"\x01",
        first(head="y,,"),
        first(head="n,a=,"),
        first(head="n,a=x,y,"),
        first(""),
        first("Bearer"),
        first("Bearer a b"),
        first("Bearer a=b"),
        first("Bearer a\u00e9"),
        first(more="1x=y\x01"),
        first(more="x=\x01"),
        first(more="x\x01"),
    ],
)
def test_another_form_is_refused_without_a_word_of_why(message: bytes) -> None:
    with pytest.raises(SaslError):
        OAuthBearerSaslServer(known).evaluate_response(message)


def test_a_message_that_is_too_long_is_not_taken_apart() -> None:
    with pytest.raises(SaslError, match="too long"):
        OAuthBearerSaslServer(known).evaluate_response(first(more="a=b\x01" * (MESSAGE_BYTES_MAX // 4)))
    longest = "a" * TOKEN_CHARACTERS_MAX
    assert ClientInitialResponse.parse(first(f"Bearer {longest}")).token == longest


def test_another_scheme_ends_the_connection() -> None:
    with pytest.raises(WireError):
        OAuthBearerSaslServer(known).evaluate_response(first("Basic abc"))


def test_a_token_that_is_not_taken_is_told_twice() -> None:
    server = OAuthBearerSaslServer(known)
    with pytest.raises(SaslError):
        server.evaluate_response(b"\x01")
    assert server.evaluate_response(first("Bearer x")) == REFUSED.encode()
    with pytest.raises(SaslAuthenticationError) as failed:
        server.evaluate_response(b"\x01")
    assert (str(failed.value), failed.value.reason) == (REFUSED, "invalid_token: another one")
    assert server.authorization_id is None


def test_nobody_acts_for_another() -> None:
    with pytest.raises(SaslAuthenticationError, match=r"authorization id \(bob\).*principal name \(alice\)"):
        OAuthBearerSaslServer(known).evaluate_response(first(head="n,a=bob,"))
    server = OAuthBearerSaslServer(known)
    assert server.evaluate_response(first(head="n,a=alice,")) == b""
    assert (server.authorization_id, server.lifetime_ms) == ("alice", 5000)


@pytest.mark.parametrize(("max_reauth_ms", "lifetime_ms"), [(0, 5000), (3000, 3000), (9000, 5000)])
def test_a_session_ends_with_the_token_or_before(max_reauth_ms: int, lifetime_ms: int) -> None:
    server = SaslServerAuthenticator(
        {"OAUTHBEARER": EnabledMechanism(lambda: OAuthBearerSaslServer(known), max_reauth_ms)}
    )
    client = SaslClientAuthenticator("OAUTHBEARER", OAuthBearerSaslClient(lambda: "a.b.c"))
    talk(client, server)
    assert (server.user, server.expires_ms, client.session_lifetime_ms) == ("alice", lifetime_ms, lifetime_ms)


def test_a_session_of_a_token_that_is_just_over_ends_at_once() -> None:
    begin: Callable[[], OAuthBearerSaslServer] = lambda: OAuthBearerSaslServer(  # noqa: E731
        lambda token: BearerToken("alice", -1)
    )
    server = SaslServerAuthenticator({"OAUTHBEARER": EnabledMechanism(begin, 0)})
    talk(SaslClientAuthenticator("OAUTHBEARER", OAuthBearerSaslClient(lambda: "a.b.c")), server)
    assert server.expires_ms == 0
    assert server.has_expired(1)


def test_a_client_says_that_it_has_read_the_refusal() -> None:
    server = SaslServerAuthenticator(
        {"OAUTHBEARER": EnabledMechanism(lambda: OAuthBearerSaslServer(known), 0)}
    )
    with pytest.raises(AuthenticationFailed, match="invalid_token"):
        talk(SaslClientAuthenticator("OAUTHBEARER", OAuthBearerSaslClient(lambda: "s3cret")), server)


class FixedKeys:
    def __init__(self, *entries: dict[str, Any]) -> None:
        self._set = parse_jwks(json.dumps({"keys": entries or [public_entry(private_key())]}))
        self.missing: list[str | None] = []

    def keys(self) -> Any:
        return self._set

    def is_missing(self, key_id: str | None) -> None:
        self.missing.append(key_id)


def validated(token: str, keys: FixedKeys | None = None, **expected: Any) -> BearerToken:
    return JwtValidator(keys or FixedKeys(), ExpectedClaims(**expected), lambda: NOW_S * 1000)(token)


def test_a_good_token_tells_who_and_how_long() -> None:
    assert validated(signed(claims(NOW_S))) == ("alice", 3_600_000)
    mail = signed(claims(NOW_S, mail=" bob\n"))
    assert validated(mail, sub_claim_name="mail").principal_name == "bob"
    every = claims(NOW_S, iss="me", aud=["a", "b"], scope=["x", "y"], nbf=NOW_S, exp=NOW_S + 1.5)
    assert (
        validated(signed(every), expected_issuer="me", expected_audience=frozenset("bc")).lifetime_ms == 1000
    )


def unchecked(payload: dict[str, Any]) -> str:
    """A signed token with any payload: PyJWT's own encode refuses some claims."""
    from jwt.api_jws import PyJWS

    headers = {"kid": "of-tests"}
    return PyJWS().encode(json.dumps(payload).encode(), private_key(), "RS256", headers)


@pytest.mark.parametrize(
    ("others", "expected"),
    [
        ({"exp": NOW_S - 30}, {}),
        ({"exp": NOW_S}, {"clock_skew_seconds": 0}),
        ({"nbf": NOW_S + 31}, {}),
        ({"exp": None}, {}),
        ({"iat": None}, {}),
        ({"iat": -1}, {}),
        ({"iat": NOW_S + 3601}, {}),
        ({"nbf": NOW_S + 3601}, {"clock_skew_seconds": 9000}),
        ({"exp": "9999999999"}, {}),
        ({"exp": True}, {}),
        ({"exp": float("inf")}, {}),
        ({"sub": None}, {}),
        ({"sub": 5}, {}),
        ({"sub": " "}, {}),
        ({"aud": None}, {"expected_audience": frozenset("a")}),
        ({"aud": ["b"]}, {"expected_audience": frozenset("a")}),
        ({"aud": ["a", 1]}, {"expected_audience": frozenset("a")}),
        ({"iss": None}, {"expected_issuer": "me"}),
        ({"iss": "Me"}, {"expected_issuer": "me"}),
        ({"scope": ["a", "a "]}, {}),
        ({"scope": ""}, {}),
        ({"scope": [1]}, {}),
    ],
)
def test_claims_that_are_not_good(others: dict[str, Any], expected: dict[str, Any]) -> None:
    with pytest.raises(TokenRefused) as refused:
        validated(unchecked(claims(NOW_S, **others)), **expected)
    assert "signature" not in str(refused.value)


def unsigned(header: dict[str, Any], signature: str = "") -> str:
    parts = (
        urlsafe_b64encode(json.dumps(each).encode()).decode().rstrip("=") for each in (header, claims(NOW_S))
    )
    return ".".join((*parts, signature))


def test_a_token_signed_by_another_key_is_refused() -> None:
    from jwt import encode

    secret = "a secret that everybody knows, long enough to sign with it"
    good = signed(claims(NOW_S))
    oct_entry = {"kty": "oct", "kid": "of-tests", "k": urlsafe_b64encode(secret.encode()).decode()}
    for token, keys in (
        (unsigned({"alg": "none"}), None),
        (unsigned({"alg": "none"}, "x"), None),
        (unsigned({"alg": "NONE"}, "x"), None),
        (unsigned({"alg": "RS256"}, "x"), None),
        (unsigned({}, "x"), None),
        (signed(claims(NOW_S), "another"), None),
        # CVE-2026-33557: keys that the token itself brings or names count for nothing.
        (signed(claims(NOW_S), "another", jwk=public_entry(private_key("another"))), None),
        (signed(claims(NOW_S), "another", jku="https://elsewhere.example/keys"), None),
        (good[:-8] + ("A" * 8 if good[-8:] != "A" * 8 else "B" * 8), None),
        (encode(claims(NOW_S), secret, "HS256", headers={"kid": "of-tests"}), FixedKeys(oct_entry)),
        (signed(claims(NOW_S), crit=["x"], x=1), None),
        ("a.b", None),
        ("a.b.c.d", None),
        ("a" * 70_000, None),
        ("....", None),
    ):
        with pytest.raises(TokenRefused):
            validated(token, keys)


def test_a_name_that_stands_twice_is_refused() -> None:
    head, _, signature = signed(claims(NOW_S)).split(".")
    twice = urlsafe_b64encode(b'{"sub":"alice","sub":"bob"}').decode().rstrip("=")
    with pytest.raises(TokenRefused):
        validated(f"{head}.{twice}.{signature}")
    head = urlsafe_b64encode(b'{"alg":"RS256","alg":"none"}').decode().rstrip("=")
    with pytest.raises(TokenRefused, match="twice"):
        validated(f"{head}.{twice}.{signature}")


def test_the_key_is_the_one_that_is_named() -> None:
    keys = FixedKeys(public_entry(private_key("another"), "first"), public_entry(private_key()))
    assert validated(signed(claims(NOW_S)), keys).principal_name == "alice"
    with pytest.raises(TokenRefused, match="no key"):
        validated(signed(claims(NOW_S), kid="unknown"), keys)
    assert keys.missing == ["unknown"]


@pytest.mark.parametrize(
    "entry",
    [
        {"kty": "oct", "k": "AAAA"},
        {"kty": "RSA", "n": "AQAB", "e": "AQAB"},
        {"kty": "RSA"},
        {"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA"},
        {"kty": "EC", "crv": "P-192"},
        {"kty": ["RSA"]},
        5,
    ],
)
def test_entries_that_are_no_keys_are_passed_over(entry: Any) -> None:
    assert parse_jwks(json.dumps({"keys": [entry, public_entry(private_key()) | {"use": "enc"}]})).keys == ()


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"keys": 5}', "[" * 100_000])
def test_documents_that_are_no_key_set(text: str) -> None:
    with pytest.raises(JwksError):
        parse_jwks(text)


def test_a_file_that_was_changed_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    write_jwks(path, public_entry(private_key(), "one"))
    file = JwksFile(str(path))
    assert [each.key_id for each in file.keys().keys] == ["one"]
    write_jwks(path, public_entry(private_key(), "two"))
    os.utime(path, ns=(1, 1))
    assert [each.key_id for each in file.keys().keys] == ["two"]
    path.unlink()
    with pytest.raises(JwksError):
        file.keys()


OF_SAFE = "listener.name.safe.oauthbearer."
EXPECTED = {
    OF_SAFE + "sasl.oauthbearer.expected.audience": "kafka,me",
    OF_SAFE + "sasl.oauthbearer.expected.issuer": "issuer",
}


def made(settings: dict[str, str]) -> OAuthBearerSaslServer:
    every = {
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "listener.name.safe.oauthbearer.sasl.jaas.config": MODULE,
    }
    config = ServerConfig.from_properties(defaults_without_file(), every | settings)
    found = mechanisms_of(config, "SAFE", lambda user, mechanism: None, SystemRandom(), lambda: NOW_S * 1000)
    server = found["OAUTHBEARER"].begin()
    assert isinstance(server, OAuthBearerSaslServer)
    return server


def test_settings_of_the_listener_say_what_is_expected(tmp_path: Path) -> None:
    url = write_jwks(tmp_path / "the keys.json")
    server = made(
        {
            "sasl.oauthbearer.jwks.endpoint.url": url,
            "sasl.oauthbearer.expected.audience": "others",
            OF_SAFE + "sasl.oauthbearer.sub.claim.name": "name",
        }
        | EXPECTED
    )
    token = signed(claims(NOW_S, aud="kafka", iss="issuer", name="bob"))
    assert server.evaluate_response(first(f"Bearer {token}")) == b""
    assert server.authorization_id == "bob"


@pytest.mark.parametrize("claim", ["audience", "issuer"])
def test_whoever_takes_tokens_for_anybody_or_from_anybody_says_so(claim: str, tmp_path: Path) -> None:
    """CVE-2026-33557: any token that the issuer ever signed was taken."""
    expected = OF_SAFE + f"sasl.oauthbearer.expected.{claim}"
    settings = {OF_SAFE + "sasl.oauthbearer.jwks.endpoint.url": write_jwks(tmp_path / "keys")} | EXPECTED
    del settings[expected]
    with pytest.raises(ConfigError, match=rf"expected\.{claim} must be set"):
        made(settings)
    allowed = settings | {OF_SAFE + f"sasl.oauthbearer.allow.unverified.{claim}": "true"}
    for value in ("strange", None):
        told = {"aud": "kafka", "iss": "issuer"} | {"aud" if claim == "audience" else "iss": value}
        token = signed(claims(NOW_S, **told))
        assert made(allowed).evaluate_response(first(f"Bearer {token}")) == b""
        # What is expected is checked, whatever else is allowed.
        refused = made(allowed | EXPECTED).evaluate_response(first(f"Bearer {token}"))
        assert refused != b""


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({}, "sasl.oauthbearer.jwks.endpoint.url must be set"),
        ({OF_SAFE + "sasl.oauthbearer.jwks.endpoint.url": "file:///no/such/keys"}, "jwks.endpoint.url"),
        ({"sasl.oauthbearer.jwks.endpoint.url": "ftp://x/keys"}, "jwks.endpoint.url"),
        ({"sasl.oauthbearer.jwks.endpoint.url": "file://elsewhere/keys"}, "jwks.endpoint.url"),
        ({"sasl.oauthbearer.sub.claim.name": " "} | EXPECTED, "sub.claim.name"),
        ({OF_SAFE + "sasl.oauthbearer.clock.skew.seconds": "long"}, "clock.skew.seconds"),
    ],
)
def test_a_start_is_refused_by_the_setting(settings: dict[str, str], told: str, tmp_path: Path) -> None:
    if "claim" in told:
        settings = settings | {"sasl.oauthbearer.jwks.endpoint.url": write_jwks(tmp_path / "keys")}
    with pytest.raises(ConfigError, match=told):
        made(settings)


def client(url: str, **more: str) -> SaslClientAuthenticator:
    module = MODULE.replace(";", ' extension_tenant="a b";')
    properties = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}
    properties |= {"sasl.jaas.config": module, "sasl.oauthbearer.token.endpoint.url": url}
    authenticator = security_of_client(properties | more).authenticator("broker.example")
    assert authenticator is not None
    return authenticator


def test_a_client_reads_its_token_for_each_exchange(tmp_path: Path) -> None:
    path = tmp_path / "the token"
    seen: list[ClientInitialResponse] = []

    class Server(OAuthBearerSaslServer):
        def evaluate_response(self, response: bytes) -> bytes:
            seen.append(ClientInitialResponse.parse(response))
            return super().evaluate_response(response)

    for text in ("a.b.c\n", "a.b.c"):
        path.write_text(text)
        server = SaslServerAuthenticator({"OAUTHBEARER": EnabledMechanism(lambda: Server(known), 0)})
        talk(client(path.as_uri()), server)
        assert server.user == "alice"
    assert seen == [("a.b.c", "", {"tenant": "a b"})] * 2


@pytest.mark.parametrize("text", [None, "", "a\x01b", "a b", "\u00e9"])
def test_a_file_without_a_token_ends_the_exchange(text: str | None, tmp_path: Path) -> None:
    path = tmp_path / "token"
    if text is not None:
        path.write_text(text, "utf-8")
    server = SaslServerAuthenticator(
        {"OAUTHBEARER": EnabledMechanism(lambda: OAuthBearerSaslServer(known), 0)}
    )
    with pytest.raises(AuthenticationFailed, match="file"):
        talk(client(path.as_uri()), server)


@pytest.mark.parametrize("url", ["", "ftp://issuer.example/token", "file://elsewhere/token"])
def test_a_token_that_cannot_be_fetched_is_refused_by_its_setting(url: str) -> None:
    with pytest.raises(ConfigError, match=r"sasl\.oauthbearer\.token\.endpoint\.url"):
        client(url)


def test_a_node_says_who_it_is_by_the_file_of_the_listener(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("a.b.c")
    of = "listener.name.inside."
    config = ServerConfig.from_properties(
        defaults_without_file(),
        {
            "listeners": "INSIDE://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
            "inter.broker.listener.name": "INSIDE",
            "listener.security.protocol.map": "INSIDE:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
            "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
            f"{of}oauthbearer.sasl.jaas.config": MODULE,
            "sasl.oauthbearer.token.endpoint.url": "file:///no/such/token",
            f"{of}oauthbearer.sasl.oauthbearer.token.endpoint.url": (tmp_path / "token").as_uri(),
        },
    )
    begin = security_to_brokers(config).begin
    assert begin is not None
    assert ClientInitialResponse.parse(begin("host").initial_response()).token == "a.b.c"


def test_a_client_of_librdkafka_is_told_that_it_has_no_token() -> None:
    properties = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}
    properties |= {"sasl.jaas.config": MODULE, "sasl.oauthbearer.token.endpoint.url": "file:///token"}
    with pytest.raises(ConfigError, match="librdkafka"):
        librdkafka_settings(properties)
