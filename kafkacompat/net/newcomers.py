"""New connections whose address has connection_creation_rate: those over the rate are held unserved, then closed (KIP-612).

The quotas name addresses or hosts. Hosts are resolved in a thread, so a slow name server delays nobody.
"""

from __future__ import annotations

import logging
import socket
from collections import deque
from collections.abc import Mapping

import trio

from kafkacompat.addresses import as_peer_host, without_zone
from kafkacompat.net.resolving import addresses_of
from kafkacompat.ports import Clock
from kafkacompat.quota.connection_rates import UNLIMITED, AddressRates

HELD_MAX = 500
"""Connections held at once. One more closes the one that has been held longest. Kafka has no such bound."""
RETRY_S = 60.0
"""How long after a failure an unknown host is resolved again."""

_log = logging.getLogger(__name__)


class Newcomers:
    """Decides on new connections by address. `run` closes held connections, and resolves hosts."""

    def __init__(self, clock: Clock, windows: int, window_ms: int) -> None:
        self._clock = clock
        self._rates = AddressRates(windows, window_ms)
        self._quotas: Mapping[str | None, int] = {}
        self._found: dict[str, tuple[str, ...]] = {}
        """The addresses of the hosts that the quotas name, as far as they are resolved."""
        self._held: deque[tuple[socket.socket, int]] = deque()
        """In the order of their arrival, with the time at which they are closed."""
        self._holds = trio.Event()
        self._changed = trio.Event()

    @property
    def held_count(self) -> int:
        return len(self._held)

    def take(self, quotas: Mapping[str | None, int]) -> None:
        """Replace all quotas, by address or host name; None for all others. Those of unresolved hosts apply later."""
        if quotas == self._quotas:
            return
        self._quotas = quotas
        self._found = {host: found for host, found in self._found.items() if host in quotas}
        self._apply()
        self._changed.set()

    def throttle_ms(self, address: str, now_ms: int) -> int:
        """Record a new connection. Returns for how long to hold it. 0: it is let in."""
        return self._rates.record(address, now_ms)

    def hold(self, sock: socket.socket, until_ms: int) -> None:
        """Keep a socket, without serving it, and close it then."""
        if len(self._held) >= HELD_MAX:
            self._held.popleft()[0].close()
        self._held.append((sock, until_ms))
        self._holds.set()

    def close_held(self) -> None:
        while self._held:
            self._held.popleft()[0].close()

    async def run(self) -> None:
        """Until cancelled."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._close_in_time)
                nursery.start_soon(self._resolve_hosts)
        finally:
            self.close_held()

    async def _close_in_time(self) -> None:
        while True:
            await self._holds.wait()
            self._holds = trio.Event()
            while self._held:
                wait_ms = self._held[0][1] - self._clock.monotonic_ms()
                if wait_ms > 0:
                    await trio.sleep(wait_ms / 1000)
                else:
                    self._held.popleft()[0].close()

    async def _resolve_hosts(self) -> None:
        while True:
            self._changed = trio.Event()
            failed = False
            for host in self._unresolved():
                addresses = await addresses_of(host)
                if addresses is None:
                    failed = True
                    _log.error("connection_creation_rate of %s has no effect yet: unknown host", host)
                elif host in self._quotas:
                    self._found[host] = addresses
                    self._apply()
            with trio.move_on_after(RETRY_S if failed else float("inf")):
                await self._changed.wait()

    def _unresolved(self) -> list[str]:
        return [
            host
            for host in self._quotas
            if host is not None and host not in self._found and _address(host) is None
        ]

    def _apply(self) -> None:
        """A quota of an address counts more than one of a host that has this address."""
        bounds: dict[str, int] = {}
        for host, addresses in self._found.items():
            bounds.update(dict.fromkeys(addresses, self._quotas[host]))
        for name, bound in self._quotas.items():
            address = None if name is None else _address(name)
            if address is not None:
                bounds[address] = bound
        self._rates.take(bounds, self._quotas.get(None, UNLIMITED))


def _address(name: str) -> str | None:
    """The client's address that the name means. None if the name is a host name."""
    address = as_peer_host(name)
    return None if address is None else without_zone(address)
