"""The exchange of GSSAPI over a library that a test stands in for: the order of messages, and what either side refuses."""

from __future__ import annotations

import pytest

from kafkacompat.security.gssapi import CHOICE, OFFER, GssapiSaslClient, GssapiSaslServer, GssRefused
from kafkacompat.security.sasl_client import AuthenticationFailed
from kafkacompat.security.sasl_server import SaslError
from kafkacompat.wire.errors import WireError

SIGNED = b"signed:"
TICKET, REPLY = b"ticket", b"reply"


class Context:
    """A GssContext whose tokens are words."""

    def __init__(self, answers: dict[bytes, bytes]) -> None:
        """`answers`: the tokens that this side takes, and its answers to them."""
        self.answers = answers
        self.is_complete = False
        self.peer = "alice@REALM.TEST"

    def step(self, token: bytes) -> bytes:
        if token not in self.answers:
            raise GssRefused("no such ticket")
        self.is_complete = token != b""
        return self.answers[token]

    def wrap(self, message: bytes) -> bytes:
        return SIGNED + message

    def unwrap(self, message: bytes) -> bytes:
        if not message.startswith(SIGNED):
            raise GssRefused("a wrong signature")
        return message.removeprefix(SIGNED)


def server(answer: bytes = REPLY) -> GssapiSaslServer:
    return GssapiSaslServer(Context({TICKET: answer}))


def client() -> GssapiSaslClient:
    return GssapiSaslClient(lambda: Context({b"": TICKET, REPLY: b""}))


def test_both_sides_agree_on_no_layer_and_the_server_knows_the_principal() -> None:
    mine, theirs = client(), server()
    message: bytes | None = mine.initial_response()
    told: list[bytes | None] = []
    while message is not None:
        told.append(message)
        challenge = theirs.evaluate_response(message)
        told.append(challenge)
        message = mine.evaluate_challenge(challenge or b"")
    assert told == [TICKET, REPLY, b"", SIGNED + OFFER, SIGNED + CHOICE, None]
    assert theirs.authorization_id == "alice@REALM.TEST"
    assert theirs.lifetime_ms is None
    assert not theirs.token_authenticated


def test_a_client_that_asks_for_no_reply_gets_the_offer_at_once() -> None:
    theirs = server(answer=b"")
    assert theirs.evaluate_response(TICKET) == SIGNED + OFFER
    assert theirs.authorization_id is None
    assert theirs.evaluate_response(SIGNED + CHOICE + b"bob@REALM.TEST") is None
    assert theirs.authorization_id == "alice@REALM.TEST"


def test_a_wrong_ticket_is_refused() -> None:
    theirs = server()
    with pytest.raises(SaslError, match="no such ticket"):
        theirs.evaluate_response(b"forged")
    assert theirs.authorization_id is None


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (b"unsigned", SaslError),
        (SIGNED + b"\2\0\0\0", SaslError),
        (SIGNED + b"\0\0\0\0", SaslError),
        (SIGNED + b"\1\0\0", WireError),
        (SIGNED, WireError),
    ],
)
def test_a_choice_that_was_not_offered_is_refused(answer: bytes, error: type[Exception]) -> None:
    theirs = server(answer=b"")
    theirs.evaluate_response(TICKET)
    with pytest.raises(error):
        theirs.evaluate_response(answer)
    assert theirs.authorization_id is None


def test_a_layer_besides_none_may_be_chosen_as_by_java() -> None:
    theirs = server(answer=b"")
    theirs.evaluate_response(TICKET)
    theirs.evaluate_response(SIGNED + b"\3\0\0\0")
    assert theirs.authorization_id is not None


def test_the_offer_waits_for_an_empty_message() -> None:
    theirs = server()
    theirs.evaluate_response(TICKET)
    with pytest.raises(SaslError, match="no response data"):
        theirs.evaluate_response(SIGNED + CHOICE)


def test_a_client_without_a_ticket_fails() -> None:
    def refuse() -> Context:
        raise GssRefused("Cannot contact any KDC")

    with pytest.raises(AuthenticationFailed, match="Cannot contact any KDC"):
        GssapiSaslClient(refuse).initial_response()


@pytest.mark.parametrize("offer", [b"unsigned", SIGNED + b"\4\0\0\0", SIGNED + b"\1"])
def test_a_client_takes_no_offer_without_a_signature_or_with_layers_only(offer: bytes) -> None:
    mine = client()
    mine.initial_response()
    mine.evaluate_challenge(REPLY)
    with pytest.raises(AuthenticationFailed):
        mine.evaluate_challenge(offer)


def test_a_client_notices_a_server_that_cannot_prove_itself() -> None:
    mine = client()
    mine.initial_response()
    with pytest.raises(AuthenticationFailed, match="no such ticket"):
        mine.evaluate_challenge(b"forged")
