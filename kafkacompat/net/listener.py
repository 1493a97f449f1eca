"""Listening sockets: bound as in `listeners`, accepting under all conditions."""

from __future__ import annotations

import errno
import logging
import os
import socket
from collections.abc import Awaitable, Callable
from time import monotonic

import trio

from kafkacompat.addresses import host_and_port, peer_host
from kafkacompat.config import EndPoint
from kafkacompat.net.resolving import Address, address_to_bind
from kafkacompat.net.settings import SYSTEM_DEFAULT, NetworkSettings

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

    __slots__ = ("endpoint", "host", "port", "socket")

    def __init__(self, endpoint: EndPoint, sock: socket.socket) -> None:
        self.endpoint = endpoint
        self.socket = sock
        self.host, self.port = sock.getsockname()[:2]

    def close(self) -> None:
        if self.socket.fileno() != -1:
            if trio.lowlevel.in_trio_run():
                trio.lowlevel.notify_closing(self.socket)
            self.socket.close()


async def bind(endpoint: EndPoint, settings: NetworkSettings) -> BoundListener:
    """Bind and listen. Raises OSError that names the setting and the endpoint."""
    try:
        return BoundListener(endpoint, _listening_socket(endpoint, await address_to_bind(endpoint), settings))
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error.args[-1])
        raise OSError(
            error.errno,
            f"listeners: cannot listen on {endpoint.listener_name}://"
            f"{host_and_port(endpoint.host, endpoint.port)}: {reason}",
        ) from error


def _listening_socket(endpoint: EndPoint, found: Address, settings: NetworkSettings) -> socket.socket:
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
        sock.listen(settings.socket_listen_backlog_size)
    except OSError:
        sock.close()
        raise
    return sock


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
            exhausted = 0
            try:
                await trio.lowlevel.wait_readable(listening)
            except (trio.ClosedResourceError, OSError, ValueError):
                return
            continue
        except OSError as error:
            if listening.fileno() == -1:
                return
            if error.errno in _EXHAUSTED:
                if exhausted % SAID_EVERY == 0:
                    _log.error("%s cannot accept connections: %s", listener.endpoint.listener_name, error)
                exhausted += 1
                await trio.sleep(EXHAUSTED_PAUSE_S)
            # Any other error concerns one connection that failed before it was accepted.
            continue
        accepted(sock, peer_host(address[0], address[3] if len(address) == 4 else 0), address[1])


def configure(sock: socket.socket, settings: NetworkSettings) -> None:
    """Set the options of an accepted socket, as Kafka does."""
    sock.setblocking(False)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if settings.socket_send_buffer_bytes != SYSTEM_DEFAULT:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, settings.socket_send_buffer_bytes)
