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
from kafkacompat.testing.around import Address, AroundChannels, PassedChannel

if TYPE_CHECKING:
    from kafkacompat.ports import Channel, Network, Timers

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
        return AroundChannels(
            network, lambda channel, address: _Channel(channel, address, self, timers), self._probed
        )

    def _probed(self, address: Address, probe: Callable[[], Deferred[ProbeResult]]) -> Deferred[ProbeResult]:
        return Deferred.of(ProbeResult.UNREACHABLE) if self.is_cut(address) else probe()


class _Channel(PassedChannel):
    def __init__(self, inner: Channel, address: Address, links: NodeLinks, timers: Timers) -> None:
        super().__init__(inner, address)
        self._links = links
        self._timers = timers

    def request(self, message: Any, timeout_ms: int, *, max_version: int | None = None) -> Deferred[Any]:
        answer: Deferred[Any] = Deferred()
        if self._links.is_cut(self._address):
            self._links.lose(answer, self._timers, timeout_ms)
            return answer
        asked = super().request(message, timeout_ms, max_version=max_version)
        answer.when_abandoned = asked.abandon

        def arrived(done: Deferred[Any]) -> None:
            if self._links.is_cut(self._address) and not self.is_closed:
                self._links.lose(answer, self._timers, timeout_ms)
            else:
                done.pass_to(answer)

        asked.on_done(arrived)
        return answer
