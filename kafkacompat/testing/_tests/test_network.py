"""Requests that come between two nodes, or that the first one owes an answer."""

from __future__ import annotations

import pytest

from kafkacompat.deferred import Deferred
from kafkacompat.ports.dispatcher import CloseConnection, ConnectionInfo, Pending, Reply
from kafkacompat.testing.network import Switch


class Node:
    """Answers with the frame, at once or later."""

    def __init__(self, *, answers: bool = True) -> None:
        self.answers = answers
        self.closed: list[int] = []

    def dispatch(self, connection: ConnectionInfo, frame: memoryview) -> Reply | Pending | None:
        return [bytes(frame)] if self.answers else Pending(Deferred(), blocks=False)

    def connection_closed(self, connection: ConnectionInfo) -> None:
        self.closed.append(connection.connection_id)


FRAME = memoryview(bytearray(b"frame"))


def client(number: int = 1, *, is_sasl: bool = False) -> ConnectionInfo:
    return ConnectionInfo(number, "PLAINTEXT", "127.0.0.1", 1234, listener_is_sasl=is_sasl)


def test_requests_wait_for_the_next_node() -> None:
    switch = Switch()
    held = [switch.dispatch(client(), FRAME), switch.dispatch(client(2), FRAME)]
    assert all(isinstance(each, Pending) and each.blocks and not each.reply.done for each in held)
    switch.serve(Node())
    assert [each.reply.result() for each in held if isinstance(each, Pending)] == [[b"frame"], [b"frame"]]
    assert switch.dispatch(client(), FRAME) == [b"frame"]


def test_who_waits_for_a_node_that_is_gone_is_disconnected() -> None:
    switch = Switch()
    switch.serve(Node(answers=False))
    owed = switch.dispatch(client(), FRAME)
    assert isinstance(owed, Pending)
    switch.hold()
    with pytest.raises(CloseConnection):
        owed.reply.result()


def test_a_held_request_of_a_connection_that_closes_is_forgotten() -> None:
    switch = Switch()
    connection = client()
    held = switch.dispatch(connection, FRAME)
    switch.connection_closed(connection)
    node = Node()
    switch.serve(node)
    assert isinstance(held, Pending)
    assert not held.reply.done
    switch.connection_closed(connection)
    assert node.closed == [1]


def test_who_has_authenticated_with_one_node_is_unknown_to_the_next() -> None:
    switch = Switch()
    connection, other = client(is_sasl=True), client(2, is_sasl=True)
    switch.serve(Node())
    switch.dispatch(connection, FRAME)
    switch.hold()
    held = switch.dispatch(connection, FRAME)
    switch.serve(Node())
    assert isinstance(held, Pending)
    with pytest.raises(CloseConnection):
        held.reply.result()
    with pytest.raises(CloseConnection):
        switch.dispatch(connection, FRAME)
    assert switch.dispatch(other, FRAME) == [b"frame"]


def test_what_quotas_have_kept_of_a_connection_does_not_reach_the_next_node() -> None:
    switch = Switch()
    connection = client()
    switch.serve(Node())
    switch.dispatch(connection, FRAME)
    connection.throttling = object()
    switch.hold()
    assert connection.throttling is None
