"""Requests between the nodes of a cluster: how many are on their way.

A node that asks another waits for the answer. While the other one has the request and cannot answer yet, nothing is on its way. So
when as many answers are awaited as are owed, all that was sent has arrived.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kafkacompat.net.channel import SOFTWARE_NAME
from kafkacompat.ports.dispatcher import Pending
from kafkacompat.testing.around import Address, AroundChannels, PassedChannel

if TYPE_CHECKING:
    from kafkacompat.deferred import Deferred
    from kafkacompat.ports import Channel, Network, ProbeResult
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
        return AroundChannels(
            inner, lambda channel, address: _CountedChannel(channel, address, self), self._probed
        )

    def _probed(self, address: Address, probe: Callable[[], Deferred[ProbeResult]]) -> Deferred[ProbeResult]:
        answer = probe()
        self.awaits(address, 1)
        answer.on_done(lambda _: self.awaits(address, -1))
        return answer

    def dispatcher(self, inner: Dispatcher) -> Dispatcher:
        """The same dispatcher. Its answers to nodes are counted."""
        return _CountedDispatcher(inner, self)


class _CountedChannel(PassedChannel):
    def __init__(self, inner: Channel, address: Address, transit: Transit) -> None:
        super().__init__(inner, address)
        self._transit = transit

    def request(self, message: Any, timeout_ms: int, *, max_version: int | None = None) -> Deferred[Any]:
        self._transit.awaits(self._address, 1)
        answer = super().request(message, timeout_ms, max_version=max_version)
        answer.on_done(self._answered)
        return answer

    def _answered(self, _: object) -> None:
        self._transit.awaits(self._address, -1)


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
