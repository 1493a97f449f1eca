"""A request and what became of it, as bytes, and the dispatcher that shows them to watchers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kafkacompat.dataclass import dataclass
from kafkacompat.ports.dispatcher import ANONYMOUS, CloseConnection, Pending
from kafkacompat.wire.apis import APIS, ApiKey
from kafkacompat.wire.errors import WireError
from kafkacompat.wire.headers import parse_request_header

if TYPE_CHECKING:
    from kafkacompat.ports import Clock
    from kafkacompat.ports.dispatcher import ConnectionInfo, Dispatcher, Reply
    from kafkacompat.wire.headers import RequestHeader

BODY_BYTES_MAX = 256 << 10
"""A larger request or reply is not kept, and its type is not shown."""
BEFORE_AUTHENTICATION = {
    int(each): APIS[each].latest
    for each in (ApiKey.SASL_HANDSHAKE, ApiKey.API_VERSIONS, ApiKey.SASL_AUTHENTICATE)
}
"""The newest version of each API by which a client is authenticated."""


@dataclass(slots=True)
class Exchange:
    """A request and what became of it, as bytes. `exchanges/recorded.py` decodes them."""

    api_key: int
    version: int
    client_id: str | None
    principal: str
    node: int
    listener: str
    connection_id: int
    client: str
    """host:port."""
    at_ms: int
    """When the request was there, by the node's clock."""
    body: bytes | None
    """Behind the header. None if it was too large to keep."""
    reply: Reply | None = None
    """None: there was none."""
    closed: str | None = None
    """Why the connection was closed in place of a reply, or behind it."""
    faults: tuple[str, ...] = ()
    """Those that it met."""

    def ended(self, end: Exception) -> None:
        """It has failed, or its connection was closed."""
        self.closed = str(end)
        if isinstance(end, CloseConnection):
            self.reply = end.last_reply


Watcher = Callable[[Exchange], None]
"""Called in the thread of the node. The parts of the reply may be sent already, and are not to be changed."""


def begun(
    header: RequestHeader, frame: memoryview, connection: ConnectionInfo, node: int, now_ms: int
) -> Exchange:
    """An exchange whose request is there. `node`: the id of the one that has it."""
    body = None
    if len(frame) - header.body_offset <= BODY_BYTES_MAX:
        body = bytes(frame[header.body_offset :])
    return Exchange(
        header.api_key,
        header.api_version,
        header.client_id,
        f"{connection.principal.type}:{connection.principal.name}",
        node,
        connection.listener_name,
        connection.connection_id,
        f"{connection.client_host}:{connection.client_port}",
        now_ms,
        body,
    )


def observed(
    exchange: Exchange, dispatch: Callable[[], Reply | Pending | None], tell: Watcher
) -> Reply | Pending | None:
    """Dispatch the request of an exchange, and tell of it when its reply is there."""
    try:
        answer = dispatch()
    except (CloseConnection, WireError) as end:
        exchange.ended(end)
        tell(exchange)
        raise
    if isinstance(answer, Pending):

        def done(reply: Any) -> None:
            try:
                exchange.reply = reply.result()
            except Exception as end:
                exchange.ended(end)
            tell(exchange)

        answer.reply.on_done(done)
    else:
        exchange.reply = answer
        tell(exchange)
    return answer


class WatchedDispatcher:
    """A Dispatcher around a node's own, which stands there only while somebody watches."""

    def __init__(self, inner: Dispatcher, tell: Watcher, clock: Clock, node: int) -> None:
        """`tell` raises nothing."""
        self._inner = inner
        self._tell = tell
        self._clock = clock
        self._node = node

    def dispatch(self, connection: ConnectionInfo, frame: memoryview) -> Reply | Pending | None:
        try:
            header = parse_request_header(frame)
        except WireError:
            header = None
        if header is None or header.api_key not in APIS or _may_be_a_token(connection, header):
            return self._inner.dispatch(connection, frame)
        exchange = begun(header, frame, connection, self._node, self._clock.now_ms())
        return observed(exchange, lambda: self._inner.dispatch(connection, frame), self._tell)

    def connection_closed(self, connection: ConnectionInfo) -> None:
        self._inner.connection_closed(connection)


def _may_be_a_token(connection: ConnectionInfo, header: RequestHeader) -> bool:
    """After SaslHandshake version 0, frames are SASL tokens without a header. Where a client is not authenticated yet, only what
    is surely a request of the authentication is shown."""
    if not connection.listener_is_sasl or connection.principal != ANONYMOUS:
        return False
    newest = BEFORE_AUTHENTICATION.get(header.api_key)
    return newest is None or header.api_version > newest
