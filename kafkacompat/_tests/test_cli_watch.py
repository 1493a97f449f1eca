"""What `kafkacompat watch` prints of an exchange."""

from __future__ import annotations

from typing import Any

from kafkacompat.cli.watch import fitted, lines_of

TOLD: dict[str, Any] = {
    "at_ms": 1_000,
    "node": 1,
    "listener": "PLAINTEXT",
    "client": "127.0.0.1:5",
    "connection_id": 4,
    "client_id": "app",
    "principal": "User:alice",
    "api": "Produce",
    "version": 9,
    "errors": [],
    "reasons": [],
    "closed": None,
    "topics": ["orders"],
    "request": {"acks": 1},
    "response": {"throttle_time_ms": 0},
}


def test_an_exchange_is_one_line() -> None:
    line = "00:00:01.000 node 1 Produce v9 orders from 'app' (User:alice, 127.0.0.1:5) - ok"
    assert lines_of(TOLD, False) == [line]
    verbose = ['    request {"acks": 1}', '    response {"throttle_time_ms": 0}']
    assert lines_of(TOLD, True) == [line, *verbose]


def test_what_was_refused_has_its_reasons_below() -> None:
    refused = lines_of({**TOLD, "errors": ["X"], "reasons": ["X: because"], "closed": "a fault"}, False)
    assert refused[0].endswith(" - X, closed")
    assert refused[1:] == ["    X: because", "    closed: a fault"]
    assert lines_of({**TOLD, "response": None}, False)[0].endswith(" - no response is shown")


def test_a_client_cannot_send_control_characters_to_a_terminal() -> None:
    (line,) = lines_of({**TOLD, "topics": ["\x1b[2J"], "client_id": "a\nb"}, False)
    assert line.isprintable()
    assert "\\x1b[2J" in line


def test_a_line_is_cut_to_the_terminal() -> None:
    assert fitted("abcdef", 6) == "abcdef"
    assert fitted("abcdefg", 6) == "abcde…"
