"""PLAIN's server: accepted clients, and the errors for the others."""

from __future__ import annotations

import pytest

from kafkacompat.security.sasl_server import PlainSaslServer, SaslAuthenticationError, initial_response

USERS = {"user_alice": "her secret", "user_bøb": "påss", "user_": "nobody", "username": "admin"}


@pytest.mark.parametrize(
    ("response", "user"),
    [
        (initial_response("alice", "her secret"), "alice"),
        (initial_response("bøb", "påss"), "bøb"),
        (b"alice\0alice\0her secret", "alice"),
    ],
)
def test_the_right_password_is_taken(response: bytes, user: str) -> None:
    server = PlainSaslServer(USERS)
    assert server.authorization_id is None
    assert server.evaluate_response(response) == b""
    assert server.authorization_id == user


@pytest.mark.parametrize(
    ("response", "text"),
    [
        (b"\0alice\0her Secret", "Invalid username or password"),
        (b"\0alice\0her secret ", "Invalid username or password"),
        (b"\0name\0admin", "Invalid username or password"),
        (b"\0mallory\0her secret", "Invalid username or password"),
        (b"\0\0nobody", "username not specified"),
        (b"\0alice\0", "password not specified"),
        (b"bob\0alice\0her secret", "authorization id that is different from username"),
        (b"bob\0alice\0wrong", "Invalid username or password"),
        (b"alice\0her secret", "expected 3 tokens, got 2"),
        (b"\0alice\0her secret\0", "expected 3 tokens, got 4"),
        (b"\0\0\0\0\0\0\0", "expected 3 tokens, got 4"),
        (b"", "expected 3 tokens, got 1"),
        (b"\0alice\0\xff", "Invalid username or password"),
    ],
)
def test_everybody_else_is_told_why(response: bytes, text: str) -> None:
    server = PlainSaslServer(USERS)
    with pytest.raises(SaslAuthenticationError, match=text):
        server.evaluate_response(response)
    assert server.authorization_id is None
