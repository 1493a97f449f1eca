"""The authenticator of a connection: accepted requests in order, answers, and the length of a session."""

from __future__ import annotations

from typing import Any

import pytest

from kafkacompat.security._tests.test_scram import final_message
from kafkacompat.security.sasl_authenticator import (
    Answer,
    AskedForVersions,
    EnabledMechanism,
    Failure,
    IllegalRequest,
    Outcome,
    SaslServerAuthenticator,
    Work,
)
from kafkacompat.security.sasl_server import Nameless, PlainSaslServer, initial_response
from kafkacompat.security.scram import SCRAM_SHA_256
from kafkacompat.security.scram_exchange import ScramSaslServer
from kafkacompat.wire.apis import request_class, response_class
from kafkacompat.wire.codec import decoder, encoder
from kafkacompat.wire.errors import WireError
from kafkacompat.wire.headers import parse_response_header, request_header_bytes

VERSIONS, HANDSHAKE, AUTHENTICATE, METADATA = 18, 17, 36, 3
USERS = {"user_alice": "secret", "user_bob": "secret"}
KEPT = SCRAM_SHA_256.credential(b"salt", SCRAM_SHA_256.salted_password("secret", b"salt", 4096), 4096)


def authenticator(max_reauth_ms: int = 0) -> SaslServerAuthenticator:
    def plain() -> PlainSaslServer:
        return PlainSaslServer(USERS)

    def scram() -> ScramSaslServer:
        return ScramSaslServer(SCRAM_SHA_256, {"alice": KEPT}.get, "nonce")

    return SaslServerAuthenticator(
        {
            "PLAIN": EnabledMechanism(plain, max_reauth_ms),
            "SCRAM-SHA-256": EnabledMechanism(scram, max_reauth_ms),
        }
    )


def frame(key: int, version: int, **fields: Any) -> memoryview:
    out = request_header_bytes(key, version, 7, "client")
    encoder(request_class(key), version)(request_class(key)(**fields), out)
    return memoryview(out)


def answer(outcome: Outcome, key: int, version: int) -> Any:
    assert isinstance(outcome, (Answer, Failure))
    assert outcome.reply is not None
    assert int.from_bytes(outcome.reply[:4], "big") == len(outcome.reply) - 4
    body = outcome.reply[4:]
    correlation_id, position = parse_response_header(body, key, version)
    assert correlation_id == 7
    message, end = decoder(response_class(key), version)(body, position)
    assert end == len(body)
    return message


def handshake(
    of: SaslServerAuthenticator, mechanism: str = "PLAIN", version: int = 1, now_ms: int = 0
) -> Any:
    return answer(of.handle(frame(HANDSHAKE, version, mechanism=mechanism), now_ms), HANDSHAKE, version)


def log_in(of: SaslServerAuthenticator, user: str = "alice", now_ms: int = 0, version: int = 2) -> Any:
    handshake(of)
    token = initial_response(user, "secret")
    return answer(of.handle(frame(AUTHENTICATE, version, auth_bytes=token), now_ms), AUTHENTICATE, version)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_handshake_and_authenticate_complete_it(version: int) -> None:
    of = authenticator()
    assert isinstance(of.handle(frame(VERSIONS, 4), 0), AskedForVersions)
    of.versions_told()
    told = handshake(of)
    assert (told.error_code, told.mechanisms) == (0, ["PLAIN", "SCRAM-SHA-256"])
    assert (of.is_complete, of.user) == (False, None)
    token = initial_response("alice", "secret")
    told = answer(of.handle(frame(AUTHENTICATE, version, auth_bytes=token), 0), AUTHENTICATE, version)
    assert (told.error_code, told.auth_bytes, told.session_lifetime_ms) == (0, b"", 0)
    assert (of.is_complete, of.user, of.expires_ms) == (True, "alice", None)
    assert of.client_may_again is (version > 0)


def test_versions_may_be_asked_for_again_until_they_are_told() -> None:
    of = authenticator()
    for _ in range(3):
        assert isinstance(of.handle(frame(VERSIONS, 4), 0), AskedForVersions)
    of.versions_told()
    with pytest.raises(WireError):
        of.handle(frame(VERSIONS, 4), 0)


@pytest.mark.parametrize("key", [METADATA, AUTHENTICATE])
def test_nothing_else_is_understood_before_the_handshake(key: int) -> None:
    with pytest.raises(WireError, match="before authentication"):
        authenticator().handle(frame(key, 1), 0)


@pytest.mark.parametrize(
    "garbage", [b"", b"\x60\x82", b"GET / HTTP/1.1\r\n\r\n", b"\0\x11\0\2\0\0\0\7\xff\xff\0\0"]
)
def test_a_frame_that_is_no_request_ends_the_exchange(garbage: bytes) -> None:
    with pytest.raises(WireError):
        authenticator().handle(memoryview(garbage), 0)


@pytest.mark.parametrize("mechanism", ["GSSAPI", "plain", ""])
def test_another_mechanism_is_refused_with_those_there_are(mechanism: str) -> None:
    of = authenticator()
    outcome = of.handle(frame(HANDSHAKE, 1, mechanism=mechanism), 0)
    assert isinstance(outcome, Failure)
    told = answer(outcome, HANDSHAKE, 1)
    assert (told.error_code, told.mechanisms) == (33, ["PLAIN", "SCRAM-SHA-256"])
    with pytest.raises(WireError):
        of.handle(frame(HANDSHAKE, 1, mechanism="PLAIN"), 0)


def test_a_wrong_password_is_told_by_its_mechanism() -> None:
    of = authenticator()
    handshake(of)
    outcome = of.handle(frame(AUTHENTICATE, 2, auth_bytes=initial_response("alice", "wrong")), 0)
    assert isinstance(outcome, Failure)
    told = answer(outcome, AUTHENTICATE, 2)
    assert (told.error_code, told.error_message) == (
        58,
        "Authentication failed: Invalid username or password",
    )
    assert (of.is_complete, of.user) == (False, None)
    with pytest.raises(WireError):
        of.handle(frame(AUTHENTICATE, 2, auth_bytes=initial_response("alice", "secret")), 0)


def test_whether_a_user_exists_is_not_told() -> None:
    texts = set()
    for first in (b"n,,n=mallory,r=abc", b"n,,garbage"):
        of = authenticator()
        handshake(of, "SCRAM-SHA-256")
        told = answer(of.handle(frame(AUTHENTICATE, 2, auth_bytes=first), 0), AUTHENTICATE, 2)
        assert told.error_code == 58
        texts.add(told.error_message)
    assert texts == {
        "Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-256"
    }


def test_an_exchange_goes_on_until_the_mechanism_says_so() -> None:
    of = authenticator(max_reauth_ms=5000)
    handshake(of, "SCRAM-SHA-256")
    told = answer(of.handle(frame(AUTHENTICATE, 2, auth_bytes=b"n,,n=alice,r=abc"), 0), AUTHENTICATE, 2)
    assert told.auth_bytes.startswith(b"r=abcnonce,")
    assert (told.session_lifetime_ms, of.is_complete, of.expires_ms) == (0, False, None)


def test_another_request_in_the_exchange_is_illegal() -> None:
    of = authenticator()
    handshake(of)
    outcome = of.handle(frame(METADATA, 1), 0)
    assert isinstance(outcome, IllegalRequest)
    assert (outcome.header.api_key, outcome.header.correlation_id) == (METADATA, 7)
    with pytest.raises(WireError):
        of.handle(frame(AUTHENTICATE, 2, auth_bytes=initial_response("alice", "secret")), 0)


def test_behind_the_oldest_handshake_tokens_come_bare() -> None:
    of = authenticator()
    handshake(of, version=0)
    assert of.handle(memoryview(initial_response("alice", "secret")), 0) == Answer(bytes(4))
    assert (of.is_complete, of.user) == (True, "alice")


def test_a_bare_token_that_is_refused_is_not_answered() -> None:
    of = authenticator()
    handshake(of, version=0)
    outcome = of.handle(memoryview(initial_response("alice", "wrong")), 0)
    assert isinstance(outcome, Failure)
    assert outcome.reply is None
    of = authenticator()
    handshake(of, "SCRAM-SHA-256", version=0)
    with pytest.raises(WireError):
        of.handle(memoryview(b"n,,n=mallory,r=abc"), 0)


def test_a_session_ends_unless_it_is_begun_anew() -> None:
    of = authenticator(max_reauth_ms=5000)
    assert log_in(of, now_ms=1000).session_lifetime_ms == 5000
    assert (of.has_expired(5999), of.has_expired(6000)) == (False, True)
    assert not of.begins_anew(METADATA, 6001)
    assert of.begins_anew(HANDSHAKE, 5500)
    assert (of.is_complete, of.user) == (False, "alice")
    assert log_in(of, now_ms=5600).session_lifetime_ms == 5000
    assert of.is_complete
    assert (of.has_expired(10599), of.has_expired(10600)) == (False, True)


def test_a_session_of_a_token_that_has_just_ended_is_over_within_its_first_millisecond() -> None:
    of = authenticator(max_reauth_ms=5000)
    handshake(of, now_ms=1000)
    of._server.lifetime_ms = -10_000  # the token was taken within the clock skew
    token = initial_response("alice", "secret")
    told = answer(of.handle(frame(AUTHENTICATE, 2, auth_bytes=token), 1000), AUTHENTICATE, 2)
    assert (told.error_code, told.session_lifetime_ms) == (0, 0)
    assert of.has_expired(1000)


def test_a_session_is_begun_anew_once_a_second() -> None:
    of = authenticator(max_reauth_ms=5000)
    log_in(of)
    assert of.begins_anew(HANDSHAKE, 10)
    log_in(of, now_ms=10)
    assert not of.begins_anew(HANDSHAKE, 1009)
    assert of.begins_anew(HANDSHAKE, 1010)


def test_a_session_that_never_ends_is_not_begun_anew() -> None:
    of = authenticator()
    log_in(of)
    assert not of.begins_anew(HANDSHAKE, 1 << 40)
    assert not of.has_expired(1 << 40)


def test_nobody_becomes_another() -> None:
    of = authenticator(max_reauth_ms=5000)
    log_in(of)
    assert of.begins_anew(HANDSHAKE, 2000)
    told = log_in(of, user="bob", now_ms=2000)
    assert told.error_code == 58
    assert told.error_message == "Cannot change principals during re-authentication from User.alice: User.bob"
    assert not of.is_complete


def test_a_session_keeps_its_mechanism() -> None:
    of = authenticator(max_reauth_ms=5000)
    log_in(of)
    assert of.begins_anew(HANDSHAKE, 2000)
    assert handshake(of, "SCRAM-SHA-256").error_code == 0
    outcome = of.handle(frame(AUTHENTICATE, 2, auth_bytes=b"n,,n=alice,r=abc"), 2000)
    assert isinstance(outcome, Failure)
    assert outcome.reply is None
    assert not of.is_complete


def test_a_failure_of_a_session_begun_anew_says_so() -> None:
    of = authenticator(max_reauth_ms=5000)
    handshake(of, "SCRAM-SHA-256")
    first = answer(of.handle(frame(AUTHENTICATE, 2, auth_bytes=b"n,,n=alice,r=a"), 0), AUTHENTICATE, 2)
    of.handle(frame(AUTHENTICATE, 2, auth_bytes=_final(first.auth_bytes.decode())), 0)
    assert of.is_complete
    assert of.begins_anew(HANDSHAKE, 2000)
    handshake(of, "SCRAM-SHA-256")
    told = answer(of.handle(frame(AUTHENTICATE, 2, auth_bytes=b"garbage"), 2000), AUTHENTICATE, 2)
    assert "during re-authentication due to" in told.error_message


def _final(server_first: str) -> bytes:
    return final_message(SCRAM_SHA_256, "n=alice,r=a", server_first, password="secret", salt=b"salt")


def blocking(name_of: Any = None, max_reauth_ms: int = 0) -> SaslServerAuthenticator:
    """Of a mechanism whose exchanges a worker carries out."""
    plain = EnabledMechanism(lambda: PlainSaslServer(USERS), max_reauth_ms, name_of, blocks=True)
    return SaslServerAuthenticator({"PLAIN": plain})


def begun(of: SaslServerAuthenticator, user: str = "alice", password: str = "secret") -> Work:
    handshake(of)
    work = of.handle(frame(AUTHENTICATE, 2, auth_bytes=initial_response(user, password)), 0)
    assert isinstance(work, Work)
    return work


def test_a_worker_evaluates_what_may_wait_for_files() -> None:
    of = blocking(max_reauth_ms=1000)
    work = begun(of)
    assert not of.is_complete
    told = answer(of.worked(work.evaluate, 7), AUTHENTICATE, 2)
    assert (told.error_code, told.session_lifetime_ms) == (0, 1000)
    assert (of.is_complete, of.user, of.expires_ms) == (True, "alice", 1007)


def test_an_exchange_that_finds_no_worker_is_answered_as_everywhere() -> None:
    of = blocking()
    work = begun(of, password="wrong")
    outcome = of.worked(work.evaluate, 0)
    assert isinstance(outcome, Failure)
    assert answer(outcome, AUTHENTICATE, 2).error_code == 58
    with pytest.raises(WireError):
        of.handle(frame(AUTHENTICATE, 2, auth_bytes=b""), 0)


def test_a_worker_answers_messages_without_headers_too() -> None:
    of = blocking()
    handshake(of, version=0)
    work = of.handle(memoryview(initial_response("alice", "secret")), 0)
    assert isinstance(work, Work)
    assert of.worked(work.evaluate, 0) == Answer(bytes(4))
    assert of.is_complete


def test_a_rule_names_the_user() -> None:
    of = blocking(str.upper)
    of.worked(begun(of).evaluate, 0)
    assert (of.user, of.nameless_because) == ("ALICE", "")


def nameless(name: str) -> str:
    raise Nameless("no rule")


def test_a_client_without_a_name_is_authenticated_and_the_reason_is_known() -> None:
    of = blocking(nameless)
    assert answer(of.worked(begun(of).evaluate, 0), AUTHENTICATE, 2).error_code == 0
    assert (of.is_complete, of.nameless_because) == (True, "no rule")


def test_another_name_or_none_ends_a_reauthentication() -> None:
    names = {"alice": "a", "bob": "b"}
    of = blocking(lambda name: names[name] if name in names else nameless(name), 10_000)
    of.worked(begun(of).evaluate, 0)
    assert of.begins_anew(HANDSHAKE, 1)
    outcome = of.worked(begun(of, "bob").evaluate, 1)
    assert isinstance(outcome, Failure)
    assert "from User.a: User.b" in answer(outcome, AUTHENTICATE, 2).error_message
    of = blocking(lambda name: names[name] if name in names else nameless(name), 10_000)
    of.worked(begun(of).evaluate, 0)
    names.clear()
    assert of.begins_anew(HANDSHAKE, 1)
    with pytest.raises(WireError, match="no rule"):
        of.worked(begun(of).evaluate, 1)
