"""The client's side of a TLS handshake, on a connection that this node has opened."""

from __future__ import annotations

import socket
import ssl

import trio

from kafkacompat.net.tls_socket import HANDSHAKE_BYTES_MAX, TlsSocket


async def secured(sock: socket.socket, context: ssl.SSLContext, host: str) -> TlsSocket:
    """The socket behind TLS, after the peer's certificate was verified. The caller bounds the time. Raises
    ConnectionError with the reason, or OSError; the socket is then closed."""
    tls = TlsSocket(sock, context, host)
    allowance = HANDSHAKE_BYTES_MAX
    try:
        tls.greet()
        while not tls.is_secured or tls.has_unsent:
            if tls.has_unsent:
                await trio.lowlevel.wait_writable(sock)
            else:
                await trio.lowlevel.wait_readable(sock)
            if tls.is_secured:
                tls.push()
                continue
            allowance -= tls.shake_hands(allowance)
            if allowance <= 0:
                raise ConnectionAbortedError(f"a TLS handshake of more than {HANDSHAKE_BYTES_MAX} bytes")
    except BaseException:
        tls.close()
        raise
    return tls
