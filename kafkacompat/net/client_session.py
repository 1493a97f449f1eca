"""The authentication of one of this node's channels, and its expiry (KIP-368)."""

from __future__ import annotations

import logging
import socket
from typing import TYPE_CHECKING

from kafkacompat.net.agreement import authenticate
from kafkacompat.net.failures import ConnectionLost
from kafkacompat.net.receive_buffer import ReceiveBuffer
from kafkacompat.ports import Clock
from kafkacompat.security.sasl_client import REAUTHENTICATE_AFTER, AuthenticationFailed, ClientSecurity

if TYPE_CHECKING:
    from kafkacompat.net.tls_socket import AnySocket

_log = logging.getLogger(__name__)


class ClientSession:
    """The session of a channel, over all its connections. Without SASL it never ends."""

    __slots__ = ("_clock", "_peer", "_refusal_told", "_renew_at_ms", "_security", "is_over")

    def __init__(self, security: ClientSecurity, clock: Clock, peer: str) -> None:
        self._security = security
        self._clock = clock
        self._peer = peer
        self._renew_at_ms: int | None = None
        self._refusal_told = ""
        self.is_over = False
        """The channel must authenticate again before it sends another request. Requests already sent are answered
        first."""

    async def secure(self, sock: socket.socket, host: str) -> AnySocket:
        """The connection to use from now on. Raises OSError. A refused certificate is logged once while the refusal
        lasts."""
        context = self._security.context
        if context is None:
            return sock
        from kafkacompat.net.client_tls import secured

        try:
            return await secured(sock, context, host)
        except ConnectionAbortedError as error:
            self._tell(f"no TLS with {self._peer}: {error}")
            raise

    async def begin(self, sock: AnySocket, buffer: ReceiveBuffer, client_id: str, host: str) -> None:
        """Authenticate. Raises ConnectionLost if the peer refuses this node, which is logged once while the refusal
        lasts."""
        self.is_over = False
        self._renew_at_ms = None
        authenticator = self._security.authenticator(host)
        if authenticator is None:
            return
        try:
            lifetime_ms = await authenticate(sock, buffer, client_id, authenticator)
        except AuthenticationFailed as error:
            text = f"authentication with {self._peer} failed: {error}"
            self._tell(text)
            raise ConnectionLost(text) from None
        self._refusal_told = ""
        if lifetime_ms:
            self._renew_at_ms = self._clock.monotonic_ms() + int(lifetime_ms * REAUTHENTICATE_AFTER)

    def _tell(self, refusal: str) -> None:
        if refusal != self._refusal_told:
            self._refusal_told = refusal
            _log.error("%s", refusal)

    def ends(self) -> bool:
        """Whether it has just become `is_over`."""
        if self._renew_at_ms is None or self.is_over or self._clock.monotonic_ms() < self._renew_at_ms:
            return False
        self.is_over = True
        return True
