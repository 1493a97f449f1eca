"""The listening sockets and their acceptors: connections are accepted within Kafka's connection quotas (ConnectionQuotas).

The bounds on connections and on their rates hold the acceptors back, so clients wait in the backlog. New connections whose
address is over its connection_creation_rate are held unserved, then closed (KIP-612). Its quotas name addresses or hosts. Hosts
are resolved in a thread, so a slow name server delays nobody.
"""

from __future__ import annotations

import errno
import logging
import os
import socket
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import replace
from functools import partial
from math import inf
from time import monotonic

import trio

from kafkacompat.addresses import as_peer_host, host_and_port, peer_host, without_zone
from kafkacompat.config import ConfigError, EndPoint
from kafkacompat.net.descriptors import Descriptors
from kafkacompat.net.listener_meter import ListenerMeter
from kafkacompat.net.pacing import pace, stop_pacing
from kafkacompat.net.resolving import Address, address_to_bind, addresses_of, overrides_by_address
from kafkacompat.net.settings import SYSTEM_DEFAULT, UNLIMITED, Admission, ConnectionCounts, NetworkSettings
from kafkacompat.ports import Clock
from kafkacompat.ports.network import ListenerReading
from kafkacompat.quota.connection_rates import AddressRates, ConnectionRates

ACCEPTING_S = 0.001
"""How long connections are accepted in a row before others get their turn."""
EXHAUSTED_PAUSE_S = 0.1
SAID_EVERY = 100
"""Of failed accepts in a row for lack of resources, every so many is logged."""
_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
"""Out of descriptors or memory. This passes when connections close."""

_log = logging.getLogger(__name__)


class BoundListener:
    """One endpoint's socket. `host` and `port` are the bound address."""

    __slots__ = ("endpoint", "host", "paced_by", "port", "socket")

    def __init__(self, endpoint: EndPoint, sock: socket.socket, paced_by: bytes | None) -> None:
        """`paced_by`: see stop_pacing."""
        self.endpoint = endpoint
        self.socket = sock
        self.paced_by = paced_by
        self.host, self.port = sock.getsockname()[:2]

    def close(self) -> None:
        if self.socket.fileno() != -1:
            if trio.lowlevel.in_trio_run():
                trio.lowlevel.notify_closing(self.socket)
            self.socket.close()


async def bind(endpoint: EndPoint, settings: NetworkSettings) -> BoundListener:
    """Bind and listen. Raises OSError that names the setting and the endpoint."""
    try:
        return BoundListener(
            endpoint, *_listening_socket(endpoint, await address_to_bind(endpoint), settings)
        )
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error.args[-1])
        raise OSError(
            error.errno,
            f"listeners: cannot listen on {endpoint.listener_name}://"
            f"{host_and_port(endpoint.host, endpoint.port)}: {reason}",
        ) from error


def _listening_socket(
    endpoint: EndPoint, found: Address, settings: NetworkSettings
) -> tuple[socket.socket, bytes | None]:
    """And what stop_pacing returns of it."""
    family, kind, protocol, address = found
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        if settings.socket_receive_buffer_bytes != SYSTEM_DEFAULT:
            # Before listening, because the window size of a connection is fixed in its handshake.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, settings.socket_receive_buffer_bytes)
        sock.setblocking(False)
        sock.bind(address)
        paced_by = stop_pacing(sock)
        sock.listen(settings.socket_listen_backlog_size)
    except OSError:
        sock.close()
        raise
    return sock, paced_by


async def accept_forever(
    listener: BoundListener,
    wait_until_allowed: Callable[[], Awaitable[None]],
    accepted: Callable[[socket.socket, str, int], None],
) -> None:
    """Pass each new connection's socket, client address and port to `accepted`, until the listener is closed."""
    listening = listener.socket
    until_s = 0.0
    exhausted = 0
    while True:
        if monotonic() >= until_s:
            await trio.lowlevel.checkpoint()
            until_s = monotonic() + ACCEPTING_S
        try:
            await wait_until_allowed()
            sock, address = listening.accept()
        except BlockingIOError:
            try:
                await trio.lowlevel.wait_readable(listening)
                exhausted = 0
            except (trio.ClosedResourceError, OSError, ValueError) as error:
                if listening.fileno() == -1:
                    return
                exhausted = await _pause(
                    listener, error, exhausted
                )  # the system adds no socket to the set now
            continue
        except OSError as error:
            if listening.fileno() == -1:
                return
            if error.errno in _EXHAUSTED:
                exhausted = await _pause(listener, error, exhausted)
            # Any other error concerns one connection that failed before it was accepted.
            continue
        except MemoryError as error:
            exhausted = await _pause(listener, error, exhausted)
            continue
        accepted(sock, peer_host(address[0], address[3] if len(address) == 4 else 0), address[1])


async def _pause(listener: BoundListener, error: Exception, failed: int) -> int:
    """After so many failures in a row. Returns their number with this one."""
    if failed % SAID_EVERY == 0:
        _log.error(
            "%s cannot accept connections: %s", listener.endpoint.listener_name, str(error) or repr(error)
        )
    await trio.sleep(EXHAUSTED_PAUSE_S)
    return failed + 1


def configure(sock: socket.socket, settings: NetworkSettings) -> None:
    """Set the options of an accepted socket, as Kafka does. What the system refuses closes the connection without a word, so a
    setting is bounded by its definition."""
    sock.setblocking(False)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if settings.socket_send_buffer_bytes != SYSTEM_DEFAULT:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, settings.socket_send_buffer_bytes)


HELD_MAX = 500
"""Connections held at once. One more closes the one that has been held longest. Kafka has no such bound."""
RETRY_S = 60.0
"""How long after a failure an unknown host is resolved again."""


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


Enters = Callable[[socket.socket, EndPoint, str, int, Admission], None]
"""Called with each counted connection, its listener, and its client's address and port."""
LOOK_AGAIN_S = 1.0
"""While connections lack descriptors: others than connections may give some back."""
TOLD_EVERY_MS = 60_000
"""How often the lack is logged."""


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
        """Resolve the overrides. A name without an address leaves them unchanged, and is asked for again until it has one or
        other overrides are set: a name server may be away for a moment."""
        wanted = self.settings.max_connections_per_ip_overrides
        while wanted is self.settings.max_connections_per_ip_overrides:
            try:
                await self._take_overrides()
                return
            except ConfigError as error:
                _log.error("%s; the overrides stay as they were until it is known", error)
            await trio.sleep(RETRY_S)

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
            if listener.paced_by is not None:
                pace(sock, listener.paced_by)
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
        """Let in a connection over a connection rate as soon as there is room, before its listener's next."""
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
