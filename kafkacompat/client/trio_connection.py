"""The client on trio: a connection to one broker, with one time limit for all that is done with it."""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeVar

import trio

from kafkacompat.addresses import host_and_port
from kafkacompat.client.exchange import Exchange
from kafkacompat.security.sasl_client import ClientSecurity
from kafkacompat.wire.message import Message

RECEIVE_BYTES = 64 * 1024
DECODED_AT_ONCE_BYTES = 16 * 1024
"""A thread decodes a larger answer, because the loop would stand still meanwhile."""
LOGINS_MAX = 8
"""Threads at once, those included whose connection was given up while they wait for a server that issues tickets."""
_LOGINS = trio.CapacityLimiter(LOGINS_MAX)

M = TypeVar("M", bound=Message)


@asynccontextmanager
async def connected(
    host: str,
    port: int,
    security: ClientSecurity,
    *,
    client_id: str,
    response_bytes_max: int,
    within_s: float,
) -> AsyncIterator[TrioConnection]:
    """A connection for one block, which ends after `within_s` in any case. Raises BrokerAway, or CommandFailed if a retry
    cannot help."""
    authenticator = security.authenticator(host)
    exchange = Exchange(host_and_port(host, port), client_id, response_bytes_max, authenticator)
    try:
        with trio.fail_after(within_s):
            async with await _connected(exchange, host, port, security.context) as stream:
                connection = TrioConnection(exchange, stream)
                await connection.open(has_login=authenticator is not None)
                yield connection
    except trio.TooSlowError:
        raise exchange.timed_out(within_s) from None


class TrioConnection:
    """One broker. Each request uses the highest version that both sides support."""

    def __init__(self, exchange: Exchange, stream: trio.abc.Stream) -> None:
        self._exchange = exchange
        self._stream = stream

    async def open(self, *, has_login: bool) -> None:
        """Send what comes before other requests."""
        response: Message | None = None
        while True:
            if has_login:
                # A step may derive a key from a password, or fetch a token.
                request = await trio.to_thread.run_sync(
                    self._exchange.opening, response, abandon_on_cancel=True, limiter=_LOGINS
                )
            else:
                request = self._exchange.opening(response)
            if request is None:
                return
            await self._ask(request, None)
            response = self._exchange.any_response()

    async def call(self, request: Message, response_type: type[M], max_version: int | None = None) -> M:
        """Send a request and wait for its answer. Raises BrokerAway, or CommandFailed if a retry cannot help."""
        await self._ask(request, max_version)
        if self._exchange.response_bytes <= DECODED_AT_ONCE_BYTES:
            return self._exchange.response(response_type)
        return await trio.to_thread.run_sync(self._exchange.response, response_type)

    def serves(self, api_key: int, version: int) -> bool:
        """Return whether the broker supports this version of an API."""
        return self._exchange.serves(api_key, version)

    async def _ask(self, request: Message, max_version: int | None) -> None:
        try:
            await self._stream.send_all(self._exchange.send(request, max_version))
            while True:
                data = await self._stream.receive_some(RECEIVE_BYTES)
                if not data:
                    raise self._exchange.closed()
                if self._exchange.receive(data):
                    return
        except trio.BrokenResourceError as error:
            if isinstance(error.__cause__, OSError) and error.__cause__.errno:
                raise self._exchange.broken(error.__cause__) from None
            raise self._exchange.closed() from None


async def _connected(
    exchange: Exchange, host: str, port: int, context: ssl.SSLContext | None
) -> trio.abc.Stream:
    try:
        tcp = await trio.open_tcp_stream(host, port)
    except (OSError, UnicodeError) as error:
        raise exchange.unreachable(reason_of(error)) from None
    if context is None:
        return tcp
    try:
        stream = trio.SSLStream(tcp, context, server_hostname=host, https_compatible=True)
        await stream.do_handshake()
    except (trio.BrokenResourceError, ValueError) as error:  # ValueError: a text that names no host
        await trio.aclose_forcefully(tcp)
        cause = error.__cause__ or error
        if isinstance(cause, ssl.SSLCertVerificationError):
            raise exchange.certificate_refused(cause.verify_message) from None
        raise exchange.handshake_failed(str(cause) or "the connection ended") from None
    except BaseException:
        await trio.aclose_forcefully(tcp)
        raise
    return stream


def reason_of(error: OSError | UnicodeError) -> str:
    """The reason of a failed `open_tcp_stream`, for a person. An address that a broker advertises may be a text that is
    no host name: its encoding then raises UnicodeError."""
    if isinstance(error, UnicodeError):
        return f"its address is not a host name: {error}"
    causes = (
        error.__cause__.exceptions
        if isinstance(error.__cause__, ExceptionGroup)
        else (error.__cause__, error)
    )
    told = next((cause for cause in causes if isinstance(cause, OSError)), error)
    if isinstance(told, socket.gaierror) or not told.errno:
        return (told.strerror or str(told)).lower()
    return os.strerror(told.errno).lower()
