"""Puts the console together and runs it until it is told to stop: the looks, the reader, the fold and the server."""

from __future__ import annotations

import signal
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


def server_config(host: str, port: int) -> Config:
    """Hypercorn's settings: one listener, HTTP/1.1 and 2, no log of requests, no hint of the server's make."""
    config = Config()
    config.bind = [f"[{host}]:{port}" if ":" in host else f"{host}:{port}"]
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
    state = ConsoleState(bootstrap, wall_clock_ms(), f"{wall_clock_ms():x}")
    reader = ResultReader(bootstrap)
    client = ClusterClient(bootstrap)
    send, receive = trio.open_memory_channel[Batch](MAX_WAITING_BATCHES)
    app = application(state, wall_clock_ms, allowed_hosts)
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with trio.open_nursery() as nursery:
            stopping = trio.Event()
            server = partial(serve, cast(Any, app), server_config(host, port), shutdown_trigger=stopping.wait)
            try:
                binds = await nursery.start(server)
            except OSError as error:
                raise ConsoleError(f"cannot listen on {host}:{port}: {error.strerror or error}") from error
            nursery.start_soon(keep_looking, state, client, reader, wall_clock_ms)
            nursery.start_soon(reader.run, send)
            nursery.start_soon(fold_batches, state, receive)
            ready(binds[0])
            async for _ in signals:
                break
            stopping.set()
            await trio.sleep(0)
            nursery.cancel_scope.cancel()


async def fold_batches(state: ConsoleState, batches: trio.MemoryReceiveChannel[Batch]) -> None:
    """Take in what the reader brings."""
    async with batches:
        async for batch in batches:
            state.took(batch)
