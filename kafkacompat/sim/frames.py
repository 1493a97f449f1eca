"""Messages that reach a node's dispatcher as a socket would bring them: a frame with a header in, the bytes of a reply out."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kafkacompat.deferred import Deferred
from kafkacompat.ports.dispatcher import CloseConnection, Dispatcher, Pending
from kafkacompat.wire.apis import response_class
from kafkacompat.wire.codec import decode, encode
from kafkacompat.wire.headers import parse_response_header, request_header_bytes

if TYPE_CHECKING:
    from kafkacompat.sim.links import Connection

GROUP_PURPOSE, LATE_PURPOSE = "group", "group late"
FRAMED = frozenset({GROUP_PURPOSE, LATE_PURPOSE})
"""Connections of these purposes carry frames, one request at a time."""
SIZE_BYTES = 4


def carry_out(
    dispatcher: Dispatcher, connection: Connection, message: Any, answered: Callable[[Any], None]
) -> None:
    """At the highest version. The connection is closed where the dispatcher says so."""
    key, version = message.API_KEY, message.MAX_VERSION
    frame = request_header_bytes(key, version, 0, "simulated") + encode(message, version)

    def done(reply: Deferred[Any]) -> None:
        try:
            parts = reply.result()
        except CloseConnection:
            connection.close_by_server()
            return
        data = b"".join(bytes(part) for part in parts)[SIZE_BYTES:]
        _, start = parse_response_header(data, key, version)
        answered(decode(response_class(key), version, data[start:]))

    try:
        reply = dispatcher.dispatch(connection.info, memoryview(frame))
    except CloseConnection:
        connection.close_by_server()
        return
    if isinstance(reply, Pending):
        reply.reply.on_done(done)
    else:
        done(Deferred.of(reply))
