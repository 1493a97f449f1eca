"""The rates of new connections: of a node, by listener and by address of the client (ConnectionQuotas). Pure.

Setting: max.connection.creation.rate, also with a listener's prefix. Quota of an ip entity: connection_creation_rate.
KIP-612.
"""

from __future__ import annotations

from collections.abc import Mapping

from kafkacompat.quota.client_quotas import ENTRIES_MAX, EXPIRES_MS
from kafkacompat.quota.rate import Rate

CONNECTION_CREATION_RATE = "connection_creation_rate"
IP_QUOTAS = {CONNECTION_CREATION_RATE: "INT"}
"""The quotas of addresses, with the type of their value."""
UNLIMITED = 2**31 - 1


class ConnectionRates:
    def __init__(self, windows: int, window_ms: int) -> None:
        self._windows = windows
        self._window_ms = window_ms
        self._node = Rate(windows, window_ms)
        self._listeners: dict[str, Rate] = {}

    def record(self, listener: str, node_bound: int | None, listener_bound: int, now_ms: int) -> int:
        """Record a new connection of a listener. Returns for how many milliseconds it must wait, at most one window.

        `node_bound` is None for a protected listener, which the rate of the node does not count.
        """
        of_listener = self._listeners.get(listener)
        if of_listener is None:
            of_listener = self._listeners[listener] = Rate(self._windows, self._window_ms)
        throttle_ms = 0
        if node_bound is not None:
            self._node.record(1, now_ms)
            throttle_ms = self._throttle_ms(self._node, node_bound, now_ms)
        of_listener.record(1, now_ms)
        return max(throttle_ms, self._throttle_ms(of_listener, listener_bound, now_ms))

    def unrecord(self, listener: str, *, is_counted_by_node: bool, now_ms: int) -> None:
        """Take back a recorded connection that is not let in."""
        if is_counted_by_node:
            self._node.record(-1, now_ms)
        self._listeners[listener].record(-1, now_ms)

    def _throttle_ms(self, rate: Rate, bound: int, now_ms: int) -> int:
        # A bound of 0 lets in one connection per window.
        return min(rate.throttle_ms(bound, now_ms), self._window_ms) if bound else self._window_ms


class AddressRates:
    """The rates of new connections by address. Without a bound for an address nothing is recorded."""

    def __init__(self, windows: int, window_ms: int) -> None:
        self._windows = windows
        self._window_ms = window_ms
        self._bounds: Mapping[str, int] = {}
        self._default = UNLIMITED
        self._rates: dict[str, tuple[Rate, int]] = {}
        """The rate, and when it was used last, by address. The least recently used one is the first."""

    def take(self, bounds: Mapping[str, int], default: int) -> None:
        """Replace all bounds. The measurements stay."""
        self._bounds = bounds
        self._default = default

    def record(self, address: str, now_ms: int) -> int:
        """Record a new connection. Returns for how many milliseconds it is held before it is closed, at most one window.

        0: it is let in. A connection that is not let in does not count.
        """
        bound = self._bounds.get(address, self._default)
        if bound >= UNLIMITED:
            return 0
        rate = self._rate(address, now_ms)
        rate.record(1, now_ms)
        # Of a quota below 1 the whole number is 0, which lets in nobody.
        throttle_ms = min(rate.throttle_ms(bound, now_ms), self._window_ms) if bound else self._window_ms
        if throttle_ms:
            rate.record(-1, now_ms)
        return throttle_ms

    def _rate(self, address: str, now_ms: int) -> Rate:
        rates = self._rates
        known = rates.pop(address, None)
        rate = Rate(self._windows, self._window_ms) if known is None else known[0]
        # Clients of very many addresses may come, and each of them only once.
        while rates:
            oldest = next(iter(rates))
            if len(rates) < ENTRIES_MAX and now_ms - rates[oldest][1] < EXPIRES_MS:
                break
            del rates[oldest]
        rates[address] = rate, now_ms
        return rate
