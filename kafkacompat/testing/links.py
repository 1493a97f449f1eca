"""The links between the nodes of a cluster, which a test can cut: requests get no answer, as behind a switch that drops packets.

Clients are not cut off. What was under way when a link was cut is lost, and its connection too when the link is whole again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from kafkacompat.deferred import Deferred
from kafkacompat.net.failures import ConnectionLost, RequestTimedOut
from kafkacompat.ports import ProbeResult

if TYPE_CHECKING:
    from kafkacompat.config import EndPoint
    from kafkacompat.ports import Channel, Channels, Network, Timers
    from kafkacompat.ports.network import SocketServer

TIMER_MAX_MS = 1 << 40
"""A longer time limit is none."""


class Links:
    """Of a cluster. Tests cut and mend, nodes look."""

    def __init__(self, nodes: Mapping[tuple[str, int], int]) -> None:
        """`nodes`: who listens at a host and port."""
        self._nodes = nodes
        self._cut: frozenset[frozenset[int]] = frozenset()

    def cut(self, sides: Iterable[Collection[int]]) -> None:
        """Nodes of different sides do not reach each other. Replaces an earlier cut."""
        parts = [frozenset(side) for side in sides]
        self._cut = frozenset(
            frozenset((one, other))
            for index, side in enumerate(parts)
            for another in parts[index + 1 :]
            for one in side
            for other in another
        )

    def mend(self) -> None:
        self._cut = frozenset()

    def is_cut(self, node: int, address: tuple[str, int]) -> bool:
        other = self._nodes.get(address)
        return bool(self._cut) and other is not None and frozenset((node, other)) in self._cut


class NodeLinks:
    """One node's side of them. In its thread only."""

    def __init__(self, links: Links, node: int) -> None:
        self._links = links
        self._node = node
        self._lost: dict[Deferred[Any], None] = {}
        """Answers that cannot come."""

    def is_cut(self, address: tuple[str, int]) -> bool:
        return self._links.is_cut(self._node, address)

    def lose(self, answer: Deferred[Any], timers: Timers, timeout_ms: int) -> None:
        """It fails at its time limit, or when the links are mended."""
        self._lost[answer] = None
        answer.when_abandoned = partial(self._forget, answer)
        if timeout_ms < TIMER_MAX_MS:
            timers.call_after(timeout_ms, lambda: self._end(answer, RequestTimedOut("the link is cut")))

    def mended(self) -> None:
        """Connections over which something was lost are lost."""
        for answer in list(self._lost):
            self._end(answer, ConnectionLost("the link was cut"))

    def _forget(self, answer: Deferred[Any]) -> None:
        self._lost.pop(answer, None)

    def _end(self, answer: Deferred[Any], error: Exception) -> None:
        if answer in self._lost:
            del self._lost[answer]
            answer.fail(error)

    def around(self, network: Network, timers: Timers) -> Network:
        return _Network(network, self, timers)


class _Network:
    """ports.Network."""

    def __init__(self, inner: Network, links: NodeLinks, timers: Timers) -> None:
        self._inner = inner
        self._channels = _Channels(inner.channels, links, timers)
        self._controller_channels = _Channels(inner.controller_channels, links, timers)

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


class _Channels:
    """ports.Channels."""

    def __init__(self, inner: Channels, links: NodeLinks, timers: Timers) -> None:
        self._inner = inner
        self._links = links
        self._timers = timers
        self._known: dict[tuple[str, int, str], _Channel] = {}

    def get(self, host: str, port: int, purpose: str, *, client_id: str | None = None) -> Channel:
        inner = self._inner.get(host, port, purpose, client_id=client_id)
        known = self._known.get((host, port, purpose))
        if known is None or known.inner is not inner:
            known = _Channel(inner, (host, port), self._links, self._timers)
            self._known[host, port, purpose] = known
        return known

    def probe(self, host: str, port: int, timeout_ms: int) -> Deferred[ProbeResult]:
        if self._links.is_cut((host, port)):
            return Deferred.of(ProbeResult.UNREACHABLE)
        return self._inner.probe(host, port, timeout_ms)

    def close_all(self) -> None:
        self._inner.close_all()


class _Channel:
    """ports.Channel."""

    def __init__(self, inner: Channel, address: tuple[str, int], links: NodeLinks, timers: Timers) -> None:
        self.inner = inner
        self._address = address
        self._links = links
        self._timers = timers

    @property
    def on_refused(self) -> Callable[[], None] | None:
        return self.inner.on_refused

    @on_refused.setter
    def on_refused(self, callback: Callable[[], None] | None) -> None:
        self.inner.on_refused = callback

    @property
    def is_closed(self) -> bool:
        return self.inner.is_closed

    def peer_versions(self, api_key: int) -> tuple[int, int] | None:
        return self.inner.peer_versions(api_key)

    def request(self, message: Any, timeout_ms: int, *, max_version: int | None = None) -> Deferred[Any]:
        answer: Deferred[Any] = Deferred()
        if self._links.is_cut(self._address):
            self._links.lose(answer, self._timers, timeout_ms)
            return answer
        asked = self.inner.request(message, timeout_ms, max_version=max_version)
        answer.when_abandoned = asked.abandon

        def arrived(done: Deferred[Any]) -> None:
            if self._links.is_cut(self._address) and not self.inner.is_closed:
                self._links.lose(answer, self._timers, timeout_ms)
            else:
                done.pass_to(answer)

        asked.on_done(arrived)
        return answer

    def close(self) -> None:
        self.inner.close()
