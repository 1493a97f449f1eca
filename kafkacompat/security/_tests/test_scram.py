"""SCRAM's server: the examples of RFC 7677, accepted clients, and failures."""

from __future__ import annotations

from base64 import b64decode, b64encode

import pytest

from kafkacompat.security.sasl_server import SaslAuthenticationError, SaslError
from kafkacompat.security.scram import (
    NONCE_BITS,
    SCRAM_MECHANISMS,
    SCRAM_SHA_256,
    ScramCredential,
    ScramMechanism,
    exclusive_or,
    nonce_text,
    sasl_name,
    user_name,
)
from kafkacompat.security.scram_exchange import MESSAGE_BYTES_MAX, ScramSaslServer

SALT = b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
SERVER_NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"


def credential(
    mechanism: ScramMechanism = SCRAM_SHA_256, password: str = "pencil", iterations: int = 4096
) -> ScramCredential:
    return mechanism.credential(SALT, mechanism.salted_password(password, SALT, iterations), iterations)


def server_of(
    mechanism: ScramMechanism = SCRAM_SHA_256, kept: ScramCredential | None = None, user: str = "user"
) -> ScramSaslServer:
    return ScramSaslServer(mechanism, {user: kept or credential(mechanism)}.get, SERVER_NONCE)


def final_message(
    mechanism: ScramMechanism,
    client_first_bare: str,
    server_first: str,
    *,
    password: str = "pencil",
    binding: str = "biws",
    extensions: str = "",
    salt: bytes = SALT,
) -> bytes:
    nonce = server_first.split(",")[0].removeprefix("r=")
    signed = f"{client_first_bare},{server_first},c={binding},r={nonce}".encode()
    key = mechanism.client_key(mechanism.salted_password(password, salt, 4096))
    proof = exclusive_or(key, mechanism.hmac(mechanism.digest(key), signed))
    return f"c={binding},r={nonce}{extensions},p={b64encode(proof).decode()}".encode()


def test_the_exchange_of_rfc_7677() -> None:
    server = server_of()
    first = server.evaluate_response(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO")
    assert first == f"r=rOprNGfwEbeRWgbNEkqO{SERVER_NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode()
    assert server.authorization_id is None
    proof = "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    final = f"c=biws,r=rOprNGfwEbeRWgbNEkqO{SERVER_NONCE},p={proof}".encode()
    assert server.evaluate_response(final) == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert server.authorization_id == "user"


@pytest.mark.parametrize("mechanism", SCRAM_MECHANISMS, ids=lambda each: each.name)
@pytest.mark.parametrize(
    ("header", "bare", "user"),
    [
        ("n,,", "n=user,r=abc", "user"),
        ("n,a=user,", "n=user,r=abc", "user"),
        ("n,,", "n=a=2Cb=3Dc,r=abc", "a,b=c"),
        ("n,,", "n=user,r=abc,ext=of=mine,tokenauth=false", "user"),
    ],
)
def test_a_scram_client_with_the_password_gets_in(
    mechanism: ScramMechanism, header: str, bare: str, user: str
) -> None:
    server = server_of(mechanism, user=user)
    first = server.evaluate_response((header + bare).encode()).decode()
    answer = server.evaluate_response(final_message(mechanism, bare, first, extensions=",x=y"))
    assert answer.startswith(b"v=")
    assert server.authorization_id == user


@pytest.mark.parametrize(
    ("first", "reason"),
    [
        ("n,,n=mallory,r=abc", "Invalid user credentials"),
        ("n,,n=user,r=abc,tokenauth=True", "no token of this id"),
        ("y,,n=user,r=abc", "first message format"),
        ("p=tls-unique,,n=user,r=abc", "first message format"),
        ("n,,n=us=2cer,r=abc", "first message format"),
        ("n,,n=,r=abc", "first message format"),
        ("n,,n=user,r=a c", "first message format"),
        ("n,,n=user,r=abc,1=x", "first message format"),
        ("n,,n=üser,r=abc", "first message format"),
        ("n,,n=user,r=abc\n", "first message format"),
        ("", "first message format"),
    ],
)
def test_a_first_message_that_is_refused_tells_nothing(first: str, reason: str) -> None:
    with pytest.raises(SaslError, match=reason):
        server_of().evaluate_response(first.encode())


def test_a_message_that_is_too_long_is_not_taken_apart() -> None:
    longest = f"n,,n=user,r={'r' * (MESSAGE_BYTES_MAX - len('n,,n=user,r='))}".encode()
    assert server_of().evaluate_response(longest).startswith(b"r=rrr")
    with pytest.raises(SaslError, match="too long"):
        server_of().evaluate_response(longest + b"r")


def test_nobody_acts_for_another() -> None:
    with pytest.raises(SaslAuthenticationError, match="different from username"):
        server_of().evaluate_response(b"n,a=admin,n=user,r=abc")


def test_a_credential_of_too_few_iterations_is_not_used() -> None:
    with pytest.raises(SaslError, match="fewer iterations"):
        server_of(kept=credential(iterations=4095)).evaluate_response(b"n,,n=user,r=abc")


def test_a_scram_client_without_the_password_does_not_get_in() -> None:
    right = final_message(SCRAM_SHA_256, "n=user,r=abc", server_first()).decode()
    other_nonce = right.replace("r=abc", "r=abd")
    for message, reason in (
        (
            final_message(SCRAM_SHA_256, "n=user,r=abc", server_first(), password="pencils").decode(),
            "Invalid cl",
        ),
        (
            final_message(SCRAM_SHA_256, "n=other,r=abc", server_first()).decode(),
            "Invalid client credentials",
        ),
        (other_nonce, "Invalid client nonce"),
        (right.replace("c=biws", "c=eSws"), "Invalid client credentials"),
        (right.rpartition("p=")[0] + "p=QUJD", "Invalid client credentials"),
        (right.rpartition("p=")[0] + "p=", "Invalid client credentials"),
        (right.rpartition(",p=")[0], "final message format"),
        (right + ",p=QUJD", "Invalid client credentials"),
    ):
        server = server_of()
        server.evaluate_response(b"n,,n=user,r=abc")
        with pytest.raises(SaslError, match=reason):
            server.evaluate_response(message.encode())
        assert server.authorization_id is None


def server_first() -> str:
    return server_of().evaluate_response(b"n,,n=user,r=abc").decode()


def test_stored_scram_credentials_are_not_printed() -> None:
    kept = credential()
    assert f"{kept} {kept!r}" == "ScramCredential([hidden]) ScramCredential([hidden])"


@pytest.mark.parametrize("user", ["a", "a,b=c", "=2C", "=3D2C", ",,", "=="])
def test_a_name_survives_the_message(user: str) -> None:
    assert user_name(sasl_name(user)) == user


def test_an_unknown_escape_is_refused() -> None:
    with pytest.raises(ValueError, match="escape"):
        user_name("a=b")


def test_a_nonce_has_all_of_its_chance() -> None:
    assert nonce_text(0) == "0"
    assert nonce_text(36 * 35 + 10) == "za"
    most = (1 << NONCE_BITS) - 1
    assert int(nonce_text(most), 36) == most
