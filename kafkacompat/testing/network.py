"""The network of a node under test: the real one, with something around the dispatcher of each of its listeners."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafkacompat.config import EndPoint
    from kafkacompat.deferred import Deferred
    from kafkacompat.ports import Channels, Network
    from kafkacompat.ports.dispatcher import Dispatcher
    from kafkacompat.ports.network import SocketServer

Wrap = Callable[["Dispatcher"], "Dispatcher"]
"""What stands between the connections of a socket server and its node."""


class TestNetwork:
    """ports.Network."""

    __test__ = False

    def __init__(self, inner: Network, wrap: Wrap) -> None:
        self._inner = inner
        self._wrap = wrap

    @property
    def channels(self) -> Channels:
        return self._inner.channels

    @property
    def controller_channels(self) -> Channels:
        return self._inner.controller_channels

    def socket_server(self) -> SocketServer:
        server = self._inner.socket_server()
        serve = server.serve
        server.serve = lambda dispatcher: serve(self._wrap(dispatcher))  # type: ignore[method-assign]
        return server

    def own_name(self, endpoints: Iterable[EndPoint]) -> Deferred[str]:
        return self._inner.own_name(endpoints)

    def resolve(self, host: str) -> Deferred[str | None]:
        return self._inner.resolve(host)
