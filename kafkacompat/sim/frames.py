"""Passes messages to a node's dispatcher as a socket does: a frame with a header in, the bytes of a reply out."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kafkacompat.api.registry import BROKER_APIS
from kafkacompat.api.sasl_dispatch import NobodyAuthenticates
from kafkacompat.deferred import Deferred
from kafkacompat.ports.dispatcher import CloseConnection, Dispatcher, Pending, Reply
from kafkacompat.ports.files import FileSlice
from kafkacompat.sim.links import SECURED_PORT
from kafkacompat.wire.apis import response_class
from kafkacompat.wire.codec import decode, encode
from kafkacompat.wire.errors import WireError
from kafkacompat.wire.headers import parse_response_header, request_header_bytes

if TYPE_CHECKING:
    from kafkacompat.sim.links import Connection

GROUP_PURPOSE, LATE_PURPOSE, SHARE_PURPOSE = "group", "group late", "share"
FRAMED = frozenset({GROUP_PURPOSE, LATE_PURPOSE, SHARE_PURPOSE})
"""Connections with these purposes carry frames, one request at a time. So do all to SECURED_PORT."""
SIZE_BYTES = 4
CLOSING = (CloseConnection, WireError)


def is_framed(connection: Connection) -> bool:
    return connection.channel.purpose in FRAMED or connection.port == SECURED_PORT


def carry_out(
    dispatcher: Dispatcher, connection: Connection, message: Any, answered: Callable[[Any], None]
) -> None:
    """Send a message at its highest version. The connection is closed if the dispatcher requires it."""
    key = message.API_KEY
    version = min(message.MAX_VERSION, BROKER_APIS.by_key[key].max_version)
    frame = request_header_bytes(key, version, 0, "simulated") + encode(message, version)
    oracle = connection.life.simulation.rights_oracle
    asked = oracle.arrives(connection, message) if connection.port == SECURED_PORT else None

    def done(reply: Deferred[Any]) -> None:
        try:
            parts = reply.result()
        except (*CLOSING, OSError) as problem:
            close(is_judged=not isinstance(problem, NobodyAuthenticates))
            return
        if parts is None and connection.is_ended:
            close(is_judged=False)  # a long request ends without an answer when nobody waits for it
            return
        data = _bytes_of(parts)[SIZE_BYTES:]
        _, start = parse_response_header(data, key, version)
        response = decode(response_class(key), version, data[start:])
        if asked is not None:
            oracle.answered(asked, response)
        connection.life.simulation.share_groups.answered(connection.life, message, response)
        answered(response)

    def close(is_judged: bool) -> None:
        if asked is not None:
            oracle.refused(asked, is_judged)
        connection.close_by_server()

    try:
        reply = dispatcher.dispatch(connection.info, memoryview(frame))
    except CLOSING:
        close(is_judged=True)
        return
    if isinstance(reply, Pending):
        reply.reply.on_done(done)
    else:
        done(Deferred.of(reply))


def _bytes_of(reply: Reply) -> bytes:
    return b"".join(part.read() if isinstance(part, FileSlice) else bytes(part) for part in reply)
