"""Delegation tokens as SCRAM credentials: who is let in by a token, in whose name, and for how long."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import pytest

from kafkacompat.config import ServerConfig, defaults_without_file
from kafkacompat.security import delegation_tokens as module
from kafkacompat.security._tests.test_sasl_client import talk
from kafkacompat.security.delegation_tokens import TokenCredentials, TokenSettings, token_settings
from kafkacompat.security.sasl_authenticator import EnabledMechanism, SaslServerAuthenticator
from kafkacompat.security.sasl_client import SaslClientAuthenticator
from kafkacompat.security.sasl_server import SaslAuthenticationError, SaslError
from kafkacompat.security.scram import SCRAM_BY_NAME, SCRAM_MECHANISMS, SCRAM_SHA_256, ScramMechanism
from kafkacompat.security.scram_exchange import ScramSaslClient, ScramSaslServer
from kafkacompat.wire.messages.delegation_token_record import DelegationTokenRecord

ID, SECRET = "Ez5eVhOYQO6Iu0yE0fDNcg", "a secret key"
NOW_MS, EXPIRES_MS = 1_000_000, 1_500_000


class Numbers:
    """A Random that counts."""

    def __init__(self) -> None:
        self._count = 0

    def randrange(self, stop: int) -> int:
        self._count += 1
        return self._count

    def uuid(self) -> bytes:
        raise AssertionError("not asked for")


def settings(secret: str | None = SECRET) -> TokenSettings:
    given = {} if secret is None else {"delegation.token.secret.key": secret}
    return token_settings(ServerConfig.from_properties(defaults_without_file(), given))


def credentials(secret: str | None = SECRET) -> TokenCredentials:
    return TokenCredentials(settings(secret), Numbers())


def token(owner: str = "User:alice", expires_ms: int = EXPIRES_MS) -> Any:
    return DelegationTokenRecord(
        owner=owner, requester=owner, token_id=ID, expiration_timestamp=expires_ms, max_timestamp=expires_ms
    )


def server_of(tokens: dict[str, Any], mechanism: ScramMechanism = SCRAM_SHA_256) -> ScramSaslServer:
    kept = credentials()
    return ScramSaslServer(
        mechanism,
        {}.get,
        "server",
        lambda token_id: kept.of(token_id, tokens.get(token_id), mechanism),
        lambda: NOW_MS,
    )


def password() -> str:
    return b64encode(settings().hmac(ID)).decode()


def exchange(server: ScramSaslServer, client: ScramSaslClient) -> None:
    final = client.evaluate_challenge(server.evaluate_response(client.initial_response()))
    assert final is not None
    assert client.evaluate_challenge(server.evaluate_response(final)) is None


@pytest.mark.parametrize("mechanism", SCRAM_MECHANISMS, ids=lambda each: each.name)
def test_a_token_lets_in_in_its_owners_name_until_it_expires(mechanism: ScramMechanism) -> None:
    server = server_of({ID: token()}, mechanism)
    exchange(server, ScramSaslClient(mechanism, ID, password(), "client", is_token=True))
    assert (server.authorization_id, server.token_authenticated) == ("alice", True)
    assert server.lifetime_ms == EXPIRES_MS - NOW_MS


def test_an_owner_of_another_type_is_a_user_of_its_name() -> None:
    server = server_of({ID: token("Robot:r:2")})
    exchange(server, ScramSaslClient(SCRAM_SHA_256, ID, password(), "client", is_token=True))
    assert server.authorization_id == "r:2"


@pytest.mark.parametrize(
    ("token_id", "secret", "is_token"),
    [(ID, "wrong", True), ("unknown", None, True), ("alice", None, True), (ID, None, False)],
)
def test_which_tokens_let_nobody_in(token_id: str, secret: str | None, is_token: bool) -> None:
    server = server_of({ID: token()})
    client = ScramSaslClient(SCRAM_SHA_256, token_id, secret or password(), "client", is_token=is_token)
    with pytest.raises(SaslError) as refused:
        exchange(server, client)
    assert (server.authorization_id, server.token_authenticated) == (None, False)
    assert token_id not in str(refused.value)


def test_a_client_may_name_the_token_and_not_its_owner_as_whom_it_acts() -> None:
    bare = f"n={ID},r=client,tokenauth=true"
    assert server_of({ID: token()}).evaluate_response(f"n,a={ID},{bare}".encode())
    with pytest.raises(SaslAuthenticationError, match="authorization id"):
        server_of({ID: token()}).evaluate_response(f"n,a=alice,{bare}".encode())


@pytest.mark.parametrize(
    ("expires_ms", "lifetime_ms"),
    [(EXPIRES_MS, EXPIRES_MS - NOW_MS), (NOW_MS + 100_000_000, 3_600_000), (NOW_MS - 5, 0)],
)
def test_the_session_ends_with_the_token(expires_ms: int, lifetime_ms: int) -> None:
    """An expired token that is not removed yet lets in for no time, as in Apache Kafka."""
    tokens = {ID: token(expires_ms=expires_ms)}
    enabled = EnabledMechanism(lambda: server_of(tokens), 3_600_000)
    authenticator = SaslServerAuthenticator({"SCRAM-SHA-256": enabled})
    client = SaslClientAuthenticator(
        "SCRAM-SHA-256", ScramSaslClient(SCRAM_SHA_256, ID, password(), "client", is_token=True)
    )
    talk(client, authenticator)
    assert (authenticator.user, authenticator.token_authenticated) == ("alice", True)
    assert client.session_lifetime_ms == lifetime_ms
    assert authenticator.expires_ms == lifetime_ms
    assert authenticator.has_expired(lifetime_ms + 1)


def test_a_removed_token_lets_nobody_in_though_its_credential_was_computed() -> None:
    kept = credentials()
    assert kept.of(ID, token(), SCRAM_SHA_256) is not None
    assert kept.of(ID, None, SCRAM_SHA_256) is None


@pytest.mark.parametrize("secret", [None, ""])
def test_without_a_secret_key_no_token_lets_in(secret: str | None) -> None:
    assert settings(secret).secret is None
    assert credentials(secret).of(ID, token(), SCRAM_SHA_256) is None


def test_a_credential_is_computed_once_and_a_bounded_number_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CREDENTIALS_KEPT_MAX", 2)
    kept = credentials()

    def salt(token_id: str, mechanism: str = "SCRAM-SHA-256") -> bytes:
        found = kept.of(token_id, token(), SCRAM_BY_NAME[mechanism])
        assert found is not None
        return found.credential.salt

    first = salt("1")
    assert salt("1", "SCRAM-SHA-512") != first
    assert salt("1") == first
    salt("2")
    assert salt("1") != first


def test_no_secret_is_shown() -> None:
    found = credentials().of(ID, token(), SCRAM_SHA_256)
    assert found is not None
    shown = repr(found) + repr(settings()) + str(settings())
    assert SECRET not in shown
    assert repr(found.credential.stored_key) not in shown
