"""The brokers' addresses that this controller has reached. Only there a refused connection means a dead process.

Every controller, active or not, follows the images and dials each unfenced broker's inter-broker listener
(inter.broker.listener.name) until it has connected once. An address that it never reached may be in another network,
another host's `localhost`, or behind a firewall that refuses. A failure there says nothing about the broker.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING

from kafkacompat.deferred import Deferred

if TYPE_CHECKING:
    from kafkacompat.controller.image import BrokerRegistration, MetadataImage
    from kafkacompat.ports import TimerHandle, Timers

AGAIN_MS = (1_000, 5_000, 20_000, 60_000)
"""Waits between attempts to an address that was not reached yet. The last one is repeated."""

Address = tuple[str, int]


class Probed(Enum):
    """The outcome of a connection attempt."""

    REACHED = "somebody accepts connections there"
    REFUSED = "the host is there and nobody listens"
    SILENT = "no answer, no way there or no such host"


Probe = Callable[[str, int], Deferred[Probed]]
"""(host, port) -> outcome of a connection attempt. Never fails."""


class Reach:
    """Subscribe `on_image` to the published images. Bounded by the registered brokers."""

    def __init__(self, node_id: int, listener_name: str, probe: Probe, timers: Timers) -> None:
        self._node_id = node_id
        self._listener_name = listener_name
        self._timers = timers
        self.probe = probe
        self._wanted: set[Address] = set()
        """Addresses of the unfenced brokers."""
        self._reached: set[Address] = set()
        self._attempts: dict[Address, TimerHandle | None] = {}
        """Addresses not reached yet, with the timer of the next attempt. None while an attempt is in progress."""

    def address_of(self, broker: BrokerRegistration) -> Address | None:
        """The broker's address for other brokers. None for a broker without that listener, and for the one in this
        process."""
        endpoint = broker.endpoints.get(self._listener_name)
        if endpoint is None or broker.id == self._node_id:
            return None
        return endpoint.host, endpoint.port

    def reached(self, broker: BrokerRegistration) -> Address | None:
        """The broker's address if this controller has reached it before, otherwise None."""
        address = self.address_of(broker)
        return address if address in self._reached else None

    def on_image(self, old: MetadataImage, new: MetadataImage) -> None:
        if old.brokers is new.brokers:
            return
        registered: set[Address] = set()
        self._wanted = set()
        for broker in new.brokers.values():
            address = self.address_of(broker)
            if address is not None:
                registered.add(address)
                if not broker.fenced:
                    self._wanted.add(address)
        self._reached &= registered
        for address in [each for each, timer in self._attempts.items() if each not in self._wanted and timer]:
            timer = self._attempts.pop(address)
            assert timer is not None
            timer.cancel()
        for address in sorted(self._wanted - self._reached - self._attempts.keys()):
            self._try(address, 0)

    def _try(self, address: Address, attempt: int) -> None:
        self._attempts[address] = None

        def answered(done: Deferred[Probed]) -> None:
            del self._attempts[address]
            if done.result() is Probed.REACHED:
                self._reached.add(address)
            elif address in self._wanted:
                wait_ms = AGAIN_MS[min(attempt, len(AGAIN_MS) - 1)]
                self._attempts[address] = self._timers.call_after(
                    wait_ms, lambda: self._try(address, attempt + 1)
                )

        self.probe(*address).on_done(answered)
