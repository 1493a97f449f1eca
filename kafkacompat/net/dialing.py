"""Opens one TCP connection, and distinguishes the reasons of a failure.

It resolves the name, connects without blocking, and sets the options. A refusal (the host answers and no process
listens) differs from silence for callers that decide whether a peer's process is gone.
"""

from __future__ import annotations

import errno
import os
import socket
from contextlib import suppress

import trio

from kafkacompat.ports import ProbeResult


async def dial(host: str, port: int) -> socket.socket:
    """A connected, non-blocking socket. The caller bounds the time. Raises OSError; ConnectionRefusedError is a
    refusal."""
    try:
        addresses = await trio.socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except UnicodeError as error:  # another node may advertise a text that names no host
        raise OSError(f"{host!r} is not a host name: {error}") from None
    except RuntimeError as error:  # the resolver needs a thread
        raise OSError(f"nobody can resolve {host}: {error}") from None
    failure: OSError | None = None
    for tried, (family, kind, protocol, _, address) in enumerate(addresses):
        # Each gets its part of the time that is left. Otherwise the first that does not answer would be the only one for ever.
        now_s = trio.current_time()
        left_s = trio.current_effective_deadline() - now_s
        found: OSError = TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))
        with trio.move_on_at(now_s + left_s / (len(addresses) - tried)):
            try:
                return await _connect(family, kind, protocol, address)
            except OSError as error:
                found = error
        # A refusal is more specific than silence: a machine has answered.
        if failure is None or not isinstance(failure, ConnectionRefusedError):
            failure = found
    assert failure is not None  # getaddrinfo raises an error if there is no address
    raise failure


async def probe(host: str, port: int, timeout_ms: int) -> ProbeResult:
    """The outcome of a connection attempt, which is closed at once."""
    with trio.move_on_after(timeout_ms / 1000):
        try:
            (await dial(host, port)).close()
        except ConnectionRefusedError:
            return ProbeResult.REFUSED
        except OSError:
            return ProbeResult.UNREACHABLE
        return ProbeResult.CONNECTED
    return ProbeResult.UNREACHABLE


async def _connect(family: int, kind: int, protocol: int, address: tuple[object, ...]) -> socket.socket:
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        code = sock.connect_ex(address)
        if code == errno.EINPROGRESS:
            await trio.lowlevel.wait_writable(sock)
            code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            raise OSError(code, os.strerror(code))
        with suppress(OSError):
            if sock.getsockname() == sock.getpeername():
                # On loopback a socket connects to itself if the dialled port is its own ephemeral one.
                raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
    except BaseException:
        sock.close()
        raise
    return sock
