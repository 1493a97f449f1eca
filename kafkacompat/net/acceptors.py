"""The acceptors of all listeners: they accept connections within Kafka's connection quotas.

The bounds on connections and on their rates hold the acceptors back, so clients wait in the backlog. What is over the
bound of its address is closed, and what is over the rate of its address is held (newcomers.py).
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from functools import partial
from math import inf

import trio

from kafkacompat.addresses import without_zone
from kafkacompat.config import ConfigError, EndPoint
from kafkacompat.net.descriptors import Descriptors
from kafkacompat.net.listener import BoundListener, accept_forever, bind, configure
from kafkacompat.net.listener_meter import ListenerMeter
from kafkacompat.net.newcomers import Newcomers
from kafkacompat.net.resolving import overrides_by_address
from kafkacompat.net.settings import UNLIMITED, Admission, ConnectionCounts, NetworkSettings
from kafkacompat.ports import Clock
from kafkacompat.ports.network import ListenerReading
from kafkacompat.quota.connection_rates import ConnectionRates

Enters = Callable[[socket.socket, EndPoint, str, int, Admission], None]
"""Called with each counted connection, its listener, and its client's address and port."""
LOOK_AGAIN_S = 1.0
"""While connections lack descriptors: others than connections may give some back."""
TOLD_EVERY_MS = 60_000
"""How often the lack is logged."""
_log = logging.getLogger(__name__)


class Acceptors:
    """Call `bind`, then `run` in its own task. `close` ends it with the last connection that is held."""

    def __init__(
        self, settings: NetworkSettings, clock: Clock, enters: Enters, descriptors: Descriptors
    ) -> None:
        self.settings = settings
        self.listeners: tuple[BoundListener, ...] = ()
        self.meters: dict[str, ListenerMeter] = {}
        """By the name of the listener."""
        self.counts = ConnectionCounts(replace(settings, max_connections_per_ip_overrides={}))
        """Its settings have addresses only, no host names."""
        self.newcomers = Newcomers(clock, settings.quota_windows, settings.quota_window_ms)
        self.throttled_until_ms: dict[str, int] = {}
        """By listener: when a connection over the rate may be let in. The acceptor waits until that is done."""
        self.are_closed = False
        self._clock = clock
        self._enters = enters
        self._descriptors = descriptors
        descriptors.connections.append(
            lambda: self.counts.total + self.newcomers.held_count + len(self.throttled_until_ms)
        )
        self._lack_told_ms: int | None = None
        self._overrides_are_known = not settings.max_connections_per_ip_overrides
        self._rates = ConnectionRates(settings.quota_windows, settings.quota_window_ms)
        self._held: Collection[str] = ()
        self._room = trio.Event()
        """Set, and replaced, when a connection has closed or a bound has changed."""
        self._nursery: trio.Nursery | None = None

    def update_settings(self, settings: NetworkSettings) -> None:
        overrides = settings.max_connections_per_ip_overrides
        if overrides != self.settings.max_connections_per_ip_overrides:
            self._overrides_are_known = False
        self.settings = settings
        self.counts.settings = replace(
            settings, max_connections_per_ip_overrides=self.counts.settings.max_connections_per_ip_overrides
        )
        self._announce_room()
        if not self._overrides_are_known and self._nursery is not None:
            self._nursery.start_soon(self._learn_overrides)

    def readings(self) -> dict[str, ListenerReading]:
        """By listener; those without connections too."""
        now_ms, present = self._clock.monotonic_ms(), self.counts.by_listener
        return {name: meter.read(present.get(name, 0), now_ms) for name, meter in self.meters.items()}

    async def bind(self, endpoints: Iterable[EndPoint]) -> tuple[BoundListener, ...]:
        """As Server.bind."""
        await self._take_overrides()
        bound: list[BoundListener] = []
        try:
            for endpoint in endpoints:
                bound.append(await bind(endpoint, self.settings))
        except BaseException:
            for listener in bound:
                listener.close()
            raise
        self.listeners += tuple(bound)
        for listener in bound:
            self.meters[listener.endpoint.listener_name] = ListenerMeter(self._clock.monotonic_ms())
            if self._nursery is not None:
                self._nursery.start_soon(self._accept, listener)
        return tuple(bound)

    def hold(self, listeners: Collection[str]) -> None:
        """Let the clients of these listeners wait, and those of no others."""
        self._held = listeners
        self._announce_room()

    async def run(self) -> None:
        """Accept on the present and later listeners until cancelled."""
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                for listener in self.listeners:
                    nursery.start_soon(self._accept, listener)
                nursery.start_soon(self.newcomers.run)
                if not self._overrides_are_known:
                    nursery.start_soon(self._learn_overrides)
        finally:
            self._nursery = None
            for listener in self.listeners:
                listener.close()

    def close(self) -> None:
        """Accept nothing more, and close what is held."""
        self.are_closed = True
        for listener in self.listeners:
            listener.close()
        self.newcomers.close_held()
        self._announce_room()

    def released(self, listener: str, host: str) -> None:
        """A connection that was passed on has closed."""
        self.counts.release(listener, without_zone(host))
        self._announce_room()

    async def room_changed(self) -> None:
        """Wait until a connection has closed or a bound has changed."""
        await self._room.wait()

    def is_counted_by_node(self, listener: str) -> bool:
        return listener != self.settings.protected_listener

    def _announce_room(self) -> None:
        event, self._room = self._room, trio.Event()
        event.set()

    async def _learn_overrides(self) -> None:
        """Resolve the overrides. An unknown host leaves them unchanged."""
        try:
            await self._take_overrides()
        except ConfigError as error:
            _log.error("%s; the overrides stay as they were", error)

    async def _take_overrides(self) -> None:
        overrides = self.settings.max_connections_per_ip_overrides
        known = await overrides_by_address(overrides)
        if overrides is self.settings.max_connections_per_ip_overrides:
            self._overrides_are_known = True
            self.counts.settings = replace(self.counts.settings, max_connections_per_ip_overrides=known)

    async def _accept(self, listener: BoundListener) -> None:
        await accept_forever(
            listener, partial(self._wait_for_admission, listener), partial(self._accepted, listener)
        )

    async def _wait_for_admission(self, listener: BoundListener) -> None:
        name = listener.endpoint.listener_name
        while not self.are_closed and (name in self.throttled_until_ms or not self._has_room(name)):
            with trio.move_on_after(inf if self._has_descriptors(name) else LOOK_AGAIN_S):
                await self._room.wait()

    def _has_room(self, listener: str) -> bool:
        if listener in self._held or not self.counts.may_accept(listener):
            return False
        if self._has_descriptors(listener):
            return True
        now_ms = self._clock.monotonic_ms()
        if self._lack_told_ms is None or now_ms - self._lack_told_ms >= TOLD_EVERY_MS:
            self._lack_told_ms = now_ms
            _log.error(
                "%s accepts no connections until others close: of %d open files that the system allows, the rest is "
                "kept for logs and the quorum",
                listener,
                self._descriptors.limit,
            )
        return False

    def _has_descriptors(self, listener: str) -> bool:
        return self._descriptors.may_accept(listener in self.settings.listeners_of_nodes)

    def _accepted(self, listener: BoundListener, sock: socket.socket, host: str, port: int) -> None:
        endpoint = listener.endpoint
        try:
            configure(sock, self.settings)
        except OSError:
            sock.close()  # gone before it was accepted
            return
        if self._nursery is None or self.are_closed:
            sock.close()
            return
        name, now_ms = endpoint.listener_name, self._clock.monotonic_ms()
        throttle_ms = self._rates.record(
            name,
            self.settings.max_connection_creation_rate if self.is_counted_by_node(name) else None,
            self.settings.listener_max_connection_creation_rate.get(name.upper(), UNLIMITED),
            now_ms,
        )
        if throttle_ms:
            self.meters[name].accept_throttles.note(throttle_ms, now_ms)
            self.throttled_until_ms[name] = now_ms + throttle_ms
            self._nursery.start_soon(self._let_in_later, endpoint, sock, host, port)
            return
        self._let_in(endpoint, sock, host, port)

    async def _let_in_later(self, endpoint: EndPoint, sock: socket.socket, host: str, port: int) -> None:
        """Let in a connection over max.connection.creation.rate as soon as there is room, before its listener's next."""
        name = endpoint.listener_name
        try:
            while not self.are_closed:
                wait_ms = self.throttled_until_ms[name] - self._clock.monotonic_ms()
                if wait_ms <= 0 and self._has_room(name):
                    break
                with trio.move_on_after(wait_ms / 1000 if wait_ms > 0 else LOOK_AGAIN_S):
                    await self._room.wait()
        except BaseException:
            sock.close()
            raise
        if self.are_closed:
            sock.close()
            return
        self._let_in(endpoint, sock, host, port)
        del self.throttled_until_ms[name]
        self._announce_room()

    def _let_in(self, endpoint: EndPoint, sock: socket.socket, host: str, port: int) -> None:
        name, now_ms, address = endpoint.listener_name, self._clock.monotonic_ms(), without_zone(host)
        throttle_ms = self.newcomers.throttle_ms(address, now_ms)
        if throttle_ms:
            self._rates.unrecord(name, is_counted_by_node=self.is_counted_by_node(name), now_ms=now_ms)
            self.meters[name].address_throttles.note(throttle_ms, now_ms)
            self.newcomers.hold(sock, now_ms + throttle_ms)
            return
        admission = self.counts.admit(name, address)
        if admission is Admission.REFUSED:
            _log.info("refusing a connection of %s: max.connections.per.ip is reached", host)
            sock.close()
            return
        self.meters[name].created.note(now_ms)
        self._enters(sock, endpoint, host, port, admission)
