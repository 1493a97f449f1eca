"""The client id that a connection repeats is taken from its bytes, and is what the header's parser reads."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from kafkacompat.api.dispatch import CLIENT_ID_KEPT_MAX, _client_id
from kafkacompat.api.route import Route
from kafkacompat.ports.dispatcher import ConnectionInfo
from kafkacompat.wire.errors import WireError
from kafkacompat.wire.headers import request_start, rest_of_header

ROUTES = {False: Route(12, 0), True: Route(12, 4)}
"""Heartbeat, with a header without and with tagged fields."""
ids = st.sampled_from(
    [
        b"\xff\xff",
        b"\0\0",
        b"\0\1a",
        b"\0\1b",
        b"\0\2a\0",
        b"\0\1\xff",
        b"\0\xf7" + b"i" * 247,
        b"\1\0" + b"i" * 256,
    ]
)
ends = st.sampled_from([b"", b"\0", b"\0\0", b"\1\0\1\0", b"\1\0\1\0\0body", b"\1\5\0\0", b"\2", b"body"])
headers = st.tuples(st.booleans(), ids, ends)


@given(st.lists(headers, max_size=6))
@example([(True, b"\0\1a", b"\1\0\1\0body"), (False, b"\0\1a", b"\1\0\1\0body")])
@example([(True, b"\0\1a", b"\0body"), (True, b"\0\1a", b"\1\0\1\0body"), (True, b"\0\1a", b"")])
def test_it_is_what_the_parser_reads(sent: list[tuple[bool, bytes, bytes]]) -> None:
    connection = ConnectionInfo(1, "PLAINTEXT", "127.0.0.1", 5)
    for has_tags, client_id, rest in sent:
        route = ROUTES[has_tags]
        start = route.key.to_bytes(2, "big") + route.version.to_bytes(2, "big") + bytes(4)
        frame = memoryview(start + client_id + rest)
        try:
            header = rest_of_header(frame, *request_start(frame))
        except WireError:
            expected = None
        else:
            expected = header.client_id, header.body_offset
        try:
            found = _client_id(connection, route, frame, request_start(frame))
        except WireError:
            found = None
        assert found == expected
        assert len(connection.client_id_bytes or b"") <= CLIENT_ID_KEPT_MAX


def test_the_next_request_is_not_parsed_again() -> None:
    connection = ConnectionInfo(1, "PLAINTEXT", "127.0.0.1", 5)
    route = ROUTES[True]
    frame = memoryview(b"\0\x0c\0\4\0\0\0\1\0\1a\0body")
    assert _client_id(connection, route, frame, (12, 4, 1)) == ("a", 12)
    connection.client_id = "kept"
    assert _client_id(connection, route, frame, (12, 4, 1)) == ("kept", 12)
