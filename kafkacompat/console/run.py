"""Puts the console together and runs it until it is told to stop: the looks, the reader, the fold and the server."""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable, Collection
from functools import partial
from typing import Any, cast

import trio
from hypercorn.config import Config
from hypercorn.trio import serve

from kafkacompat.console.admin import ClusterClient
from kafkacompat.console.failure import ConsoleError
from kafkacompat.console.looking import keep_looking, wall_clock_ms
from kafkacompat.console.reader import MAX_WAITING_BATCHES, Batch, ResultReader
from kafkacompat.console.server import application
from kafkacompat.console.state import ConsoleState

GRACE_S = 1.0
KEEP_ALIVE_S = 30.0
MAX_REQUEST_HEAD_BYTES = 16 * 1024


def bound_socket(host: str, port: int) -> socket.socket:
    """A socket of that address, not listening yet. ConsoleError if the address cannot be had."""
    try:
        family, kind, protocol, _name, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        bound = socket.socket(family, kind, protocol)
    except OSError as error:
        raise ConsoleError(f"cannot listen on {host}:{port}: {error.strerror or error}") from error
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except OSError as error:
        bound.close()
        raise ConsoleError(f"cannot listen on {host}:{port}: {error.strerror or error}") from error
    return bound


def server_config(listener: socket.socket) -> Config:
    """Hypercorn's settings: the given socket, no log of requests, no hint of the server's make."""
    config = Config()
    config.bind = [f"fd://{listener.fileno()}"]
    config.accesslog = None
    config.errorlog = None
    config.include_server_header = False
    config.graceful_timeout = GRACE_S
    config.keep_alive_timeout = KEEP_ALIVE_S
    config.h11_max_incomplete_size = MAX_REQUEST_HEAD_BYTES
    return config


async def run_console(
    bootstrap: str,
    host: str,
    port: int,
    allowed_hosts: Collection[str],
    ready: Callable[[str], None],
) -> None:
    """Serve until SIGINT or SIGTERM; ready is called with the page's address. ConsoleError if the port cannot be had.

    port 0 takes a free one. The broker need not be there: the page says that it is not, and goes on when it comes.
    """
    listener = bound_socket(host, port)
    state = ConsoleState(bootstrap, wall_clock_ms(), f"{wall_clock_ms():x}")
    reader = ResultReader(bootstrap)
    client = ClusterClient(bootstrap)
    send, receive = trio.open_memory_channel[Batch](MAX_WAITING_BATCHES)
    app = application(state, wall_clock_ms, allowed_hosts)
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with trio.open_nursery() as nursery:
            server = partial(serve, cast(Any, app), server_config(listener), mode="asgi")
            binds = await nursery.start(server)
            # The server closes it: it has made a socket of its own from the number.
            listener.detach()
            nursery.start_soon(keep_looking, state, client, reader, wall_clock_ms)
            nursery.start_soon(reader.run, send)
            nursery.start_soon(fold_batches, state, receive)
            ready(binds[0])
            async for _ in signals:
                break
            nursery.cancel_scope.cancel()


async def fold_batches(state: ConsoleState, batches: trio.MemoryReceiveChannel[Batch]) -> None:
    """Take in what the reader brings."""
    async with batches:
        async for batch in batches:
            state.took(batch)
