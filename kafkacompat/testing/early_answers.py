"""Answers fetches that find nothing before the time that clients would wait.

A client takes no other step with a partition while its fetch waits: it seeks, asks for ends, acknowledges, or fetches partitions
that it was assigned meanwhile when that fetch is answered, which is after 500 ms by the defaults of clients. Here it is answered
after `FIRST_MS`, and after twice as long each time that nothing came. So a consumer that was busy a moment ago is quick, and
one that idles asks as seldom as elsewhere.

The wait of a request is the longest that a client wants, so an empty answer may come before. A fetch that waits for more than
any record (fetch.min.bytes) waits as long as it asks.
"""

from __future__ import annotations

from collections.abc import Collection
from struct import Struct as Layout
from struct import error as StructError
from typing import TYPE_CHECKING

from kafkacompat.ports.dispatcher import ANONYMOUS, Pending
from kafkacompat.wire.apis import ApiKey
from kafkacompat.wire.errors import WireError
from kafkacompat.wire.headers import parse_request_header
from kafkacompat.wire.primitives import read_compact_nullable_string

if TYPE_CHECKING:
    from kafkacompat.ports import Clock
    from kafkacompat.ports.dispatcher import ConnectionInfo, Dispatcher, Reply

FIRST_MS = 10
KEYS = frozenset(each.to_bytes(2, "big") for each in (ApiKey.FETCH, ApiKey.SHARE_FETCH))
REPLICA_IN_TAG = 15
"""The first version of Fetch that does not begin with the replica's id."""
INT32_BYTES = 4
WAIT = Layout(">ii")
"""max_wait_ms and min_bytes."""


class EarlyAnswers:
    """ports.dispatcher.Dispatcher, around a node's own."""

    def __init__(self, inner: Dispatcher, clock: Clock, listeners: Collection[str]) -> None:
        """`clock`: by which fetches wait. `listeners`: the names of those that clients use, and no node."""
        self._inner = inner
        self._clock = clock
        self._listeners = listeners
        self._waits_ms: dict[int, int] = {}
        """Of the next fetch of each connection."""

    def dispatch(self, connection: ConnectionInfo, frame: memoryview) -> Reply | Pending | None:
        if bytes(frame[:2]) not in KEYS or connection.listener_name not in self._listeners:
            return self._inner.dispatch(connection, frame)
        if connection.listener_is_sasl and connection.principal == ANONYMOUS:  # it may be a token
            return self._inner.dispatch(connection, frame)
        connection_id = connection.connection_id
        frame, wait_ms = shortened(frame, self._waits_ms.get(connection_id, FIRST_MS))
        self._waits_ms[connection_id] = FIRST_MS
        began_ms = self._clock.monotonic_ms()
        answer = self._inner.dispatch(connection, frame)
        if not isinstance(answer, Pending):
            return answer

        def answered(_: object) -> None:
            if connection_id in self._waits_ms and self._clock.monotonic_ms() - began_ms >= wait_ms:
                self._waits_ms[connection_id] = max(FIRST_MS, 2 * wait_ms)

        answer.reply.on_done(answered)
        return answer

    def connection_closed(self, connection: ConnectionInfo) -> None:
        self._waits_ms.pop(connection.connection_id, None)
        self._inner.connection_closed(connection)


def shortened(frame: memoryview, wait_ms: int) -> tuple[memoryview, int]:
    """A request with this wait, and its wait, if it may have that. Otherwise the request as it is, with the wait that it has."""
    try:
        header = parse_request_header(frame)
        position = header.body_offset
        if header.api_key == ApiKey.SHARE_FETCH:
            for _ in ("group", "member"):
                _, position = read_compact_nullable_string(frame, position)
            position += INT32_BYTES
        elif header.api_version < REPLICA_IN_TAG:
            position += INT32_BYTES
        longest_ms, min_bytes = WAIT.unpack_from(frame, position)
    except (WireError, StructError):
        return frame, 0
    if min_bytes > 1 or longest_ms <= wait_ms:
        return frame, longest_ms
    changed = bytearray(frame)
    WAIT.pack_into(changed, position, wait_ms, min_bytes)
    return memoryview(changed), wait_ms
