"""Assembles the console and runs it until it is stopped: the looks, the reader, the fold and the server."""

from __future__ import annotations

import contextlib
import secrets
import signal
import socket
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any, cast

import trio
from hypercorn.config import Config
from hypercorn.trio import serve

from kafkacompat.addresses import host_and_port
from kafkacompat.console.admin import ClusterClient
from kafkacompat.console.core.tokens import checked_token, is_beyond_loopback
from kafkacompat.console.decoder import Decoder
from kafkacompat.console.failure import ConsoleError
from kafkacompat.console.looking import keep_counting, keep_looking, kept_up, wall_clock_ms
from kafkacompat.console.reader import MAX_WAITING_BATCHES, Batch, ResultReader
from kafkacompat.console.server import application
from kafkacompat.console.share_numbers import NumbersTold
from kafkacompat.console.state import ConsoleState
from kafkacompat.console.watching import OPTION, Nodes
from kafkacompat.pipeline.schemas.client import RegistrySettings
from kafkacompat.security.cluster_address import ClusterAddress
from kafkacompat.security.http_fetch import HttpAddress

GRACE_S = 1.0
KEEP_ALIVE_S = 30.0
TOKEN_BYTES = 32
TOKEN_FILE_CHARACTERS_MAX = 4096
MAX_REQUEST_HEAD_BYTES = 16 * 1024


def bound_socket(host: str, port: int) -> socket.socket:
    """Return a socket that is bound to the address but not listening yet. ConsoleError if the address is not available."""
    try:
        family, kind, protocol, _name, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        bound = socket.socket(family, kind, protocol)
    except OSError as error:
        raise ConsoleError(
            f"cannot listen on {host_and_port(host, port)}: {error.strerror or error}"
        ) from error
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except OSError as error:
        bound.close()
        raise ConsoleError(
            f"cannot listen on {host_and_port(host, port)}: {error.strerror or error}"
        ) from error
    return bound


def token_of_file(path: str) -> str:
    """ConsoleError naming the file, and not what stands in it."""
    try:
        with open(path, encoding="ascii") as file:
            return checked_token(file.read(TOKEN_FILE_CHARACTERS_MAX))
    except OSError as error:
        raise ConsoleError(f"cannot read the file {path} of --token-file: {error.strerror}") from error
    except UnicodeDecodeError:
        raise ConsoleError(f"the file {path} of --token-file is no ASCII text") from None
    except ValueError as error:
        raise ConsoleError(f"the file {path} of --token-file: {error}") from None


def server_config(listener: socket.socket) -> Config:
    """Return Hypercorn's settings: the given socket, no request log, no Server header."""
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
    bootstrap: ClusterAddress,
    host: str,
    port: int,
    allowed_hosts: Collection[str],
    ready: Callable[[str, str | None], None],
    token: str | None = None,
    metrics: Sequence[HttpAddress] = (),
    registry: RegistrySettings | None = None,
    watched: Nodes | None = None,
) -> None:
    """Serve until SIGINT or SIGTERM. ConsoleError if the port is not available.

    `ready` is called with the page's address, and with the token if this function made one. `token` is what requests must
    bear. Without it, a random token is made if other machines can reach the console, or nodes are watched. Otherwise none is
    needed.
    `metrics` are listeners for metrics, which are asked for what is in flight with share groups. `registry` has the schemas of
    Avro and Protobuf. `watched` are nodes whose requests are shown, on loopback only and only with a token.

    Port 0 means any free port. Without a broker the page says so, and continues when the broker answers.
    """
    security = bootstrap.security()
    listener = bound_socket(host, port)
    state = ConsoleState(bootstrap, wall_clock_ms(), f"{wall_clock_ms():x}")
    reader = ResultReader(bootstrap)
    client = ClusterClient(bootstrap)
    send, receive = trio.open_memory_channel[Batch](MAX_WAITING_BATCHES)
    made = None
    is_beyond = is_beyond_loopback(listener.getsockname()[0])
    if watched is not None and is_beyond:
        listener.close()
        raise ConsoleError(
            f"{OPTION}: requests are shown on this machine only, so --listen is a loopback address"
        )
    if token is None and (is_beyond or watched is not None):
        made = secrets.token_urlsafe(TOKEN_BYTES)
    decoder = Decoder(registry) if registry is not None else None
    app = application(state, wall_clock_ms, allowed_hosts, token or made, decoder, security, watched)
    with (
        contextlib.closing(decoder or contextlib.ExitStack()),
        trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals,
    ):
        async with trio.open_nursery() as nursery:
            server = partial(serve, cast(Any, app), server_config(listener), mode="asgi")
            binds = await nursery.start(server)
            # The server closes the descriptor: it has created a socket from the number.
            listener.detach()
            looking = partial(keep_looking, state, client, reader, wall_clock_ms, security)
            nursery.start_soon(kept_up, looking, lambda why: state.away(wall_clock_ms(), why))
            counting = partial(keep_counting, state, metrics)
            nursery.start_soon(kept_up, counting, lambda why: state.counted(NumbersTold(error=why)))
            nursery.start_soon(reader.run, send)
            nursery.start_soon(fold_batches, state, receive)
            ready(binds[0], made)
            async for _ in signals:
                break
            nursery.cancel_scope.cancel()


async def fold_batches(state: ConsoleState, batches: trio.MemoryReceiveChannel[Batch]) -> None:
    """Fold the reader's batches into the state."""
    async with batches:
        async for batch in batches:
            state.took(batch)
