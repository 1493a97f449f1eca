"""Requests between the nodes of a cluster: how many are on their way.

A node that asks another waits for the answer. While the other one has the request and cannot answer yet, nothing is on its way. So
when as many answers are awaited as are owed, all that was sent has arrived.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from kafkacompat.net.channel import SOFTWARE_NAME
from kafkacompat.ports.dispatcher import Pending

if TYPE_CHECKING:
    from kafkacompat.config import EndPoint
    from kafkacompat.deferred import Deferred
    from kafkacompat.ports import Channel, Channels, Network, ProbeResult, SocketServer
    from kafkacompat.ports.dispatcher import ConnectionInfo, Dispatcher, Reply


class Transit:
    """Of one node, in its loop only."""

    __slots__ = ("awaited", "owed")

    def __init__(self) -> None:
        self.awaited: dict[tuple[str, int], int] = {}
        """Answers of other nodes, by their hosts and ports."""
        self.owed = 0
        """Answers to other nodes."""

    def awaits(self, address: tuple[str, int], more: int) -> None:
        self.awaited[address] = self.awaited.get(address, 0) + more

    def network(self, inner: Network) -> Network:
        """The same network. Requests over its channels are counted."""
        return _CountedNetwork(inner, self)

    def dispatcher(self, inner: Dispatcher) -> Dispatcher:
        """The same dispatcher. Its answers to nodes are counted."""
        return _CountedDispatcher(inner, self)


class _CountedNetwork:
    """ports.Network."""

    def __init__(self, inner: Network, transit: Transit) -> None:
        self._inner = inner
        self._channels = _CountedChannels(inner.channels, transit)
        self._controller_channels = _CountedChannels(inner.controller_channels, transit)

    @property
    def channels(self) -> Channels:
        return self._channels

    @property
    def controller_channels(self) -> Channels:
        return self._controller_channels

    def socket_server(self) -> SocketServer:
        return self._inner.socket_server()

    def own_name(self, endpoints: Iterable[EndPoint]) -> Deferred[str]:
        return self._inner.own_name(endpoints)

    def resolve(self, host: str) -> Deferred[str | None]:
        return self._inner.resolve(host)


class _CountedChannels:
    """ports.Channels."""

    def __init__(self, inner: Channels, transit: Transit) -> None:
        self._inner = inner
        self._transit = transit
        self._channels: dict[Channel, _CountedChannel] = {}

    def get(self, host: str, port: int, purpose: str, *, client_id: str | None = None) -> Channel:
        inner = self._inner.get(host, port, purpose, client_id=client_id)
        channel = self._channels.get(inner)
        if channel is None:
            self._channels = {each: one for each, one in self._channels.items() if not each.is_closed}
            channel = self._channels[inner] = _CountedChannel(inner, self._transit, (host, port))
        return channel

    def probe(self, host: str, port: int, timeout_ms: int) -> Deferred[ProbeResult]:
        answer = self._inner.probe(host, port, timeout_ms)
        self._transit.awaits((host, port), 1)
        answer.on_done(lambda _: self._transit.awaits((host, port), -1))
        return answer

    def close_all(self) -> None:
        self._inner.close_all()


class _CountedChannel:
    """ports.Channel."""

    def __init__(self, inner: Channel, transit: Transit, address: tuple[str, int]) -> None:
        self._inner = inner
        self._transit = transit
        self._address = address

    @property
    def on_refused(self) -> Callable[[], None] | None:
        return self._inner.on_refused

    @on_refused.setter
    def on_refused(self, call: Callable[[], None] | None) -> None:
        self._inner.on_refused = call

    @property
    def is_closed(self) -> bool:
        return self._inner.is_closed

    def peer_versions(self, api_key: int) -> tuple[int, int] | None:
        return self._inner.peer_versions(api_key)

    def request(self, message: Any, timeout_ms: int, *, max_version: int | None = None) -> Deferred[Any]:
        self._transit.awaits(self._address, 1)
        answer = self._inner.request(message, timeout_ms, max_version=max_version)
        answer.on_done(self._answered)
        return answer

    def _answered(self, _: object) -> None:
        self._transit.awaits(self._address, -1)

    def close(self) -> None:
        self._inner.close()


class _CountedDispatcher:
    """ports.dispatcher.Dispatcher."""

    def __init__(self, inner: Dispatcher, transit: Transit) -> None:
        self._inner = inner
        self._transit = transit
        self._by_connection: dict[int, int] = {}

    def dispatch(self, connection: ConnectionInfo, frame: memoryview) -> Reply | Pending | None:
        answer = self._inner.dispatch(connection, frame)
        if type(answer) is Pending and not answer.reply.done and _is_node(connection):
            self._owes(connection.connection_id, 1)
            answer.reply.on_done(lambda _: self._answers(connection.connection_id))
        return answer

    def connection_closed(self, connection: ConnectionInfo) -> None:
        self._transit.owed -= self._by_connection.pop(connection.connection_id, 0)
        self._inner.connection_closed(connection)

    def _owes(self, connection_id: int, more: int) -> None:
        self._transit.owed += more
        self._by_connection[connection_id] = self._by_connection.get(connection_id, 0) + more

    def _answers(self, connection_id: int) -> None:
        if connection_id in self._by_connection:  # it is still open
            self._owes(connection_id, -1)


def _is_node(connection: ConnectionInfo) -> bool:
    return (
        connection.client_software is not None and connection.client_software.split(" ")[0] == SOFTWARE_NAME
    )
