"""A client's connection on a listener with TLS: the handshake, then the same as any other connection.

The difference is in the encrypting socket (tls_socket.py), so a plaintext connection has no branch for TLS. This
module handles what a poller cannot know: a handshake must continue (in a separate line, `Handshakes`), and bytes may
wait in OpenSSL while the socket has none.
"""

from __future__ import annotations

import logging
import socket
from collections import OrderedDict, deque
from typing import TYPE_CHECKING, Protocol

import trio

from kafkacompat.net.connection import Connection, Host
from kafkacompat.net.output_queue import OutputQueue, SliceTooShort
from kafkacompat.net.poller import READ, WRITE
from kafkacompat.net.tls_socket import HANDSHAKE_BYTES_MAX, SENT_AT_ONCE_BYTES, HandshakeFailed, TlsSocket
from kafkacompat.ports import FileSlice
from kafkacompat.ports.dispatcher import ConnectionInfo
from kafkacompat.ports.network import TlsTerms, Unidentified

if TYPE_CHECKING:
    from kafkacompat.ports import Clock

HANDSHAKE_MS_MAX = 30_000
"""librdkafka's limit for setting up a connection. Kafka closes an idle handshake after connections.max.idle.ms."""


class Handshaking(Protocol):
    """A connection with an unfinished handshake."""

    def shake_hands(self) -> None:
        """Continue the handshake. Never waits, never raises."""
        ...

    def too_slow(self, bound_ms: int) -> None:
        """The time limit has passed: close the connection and log it."""
        ...


class Handshakes:
    """Call `run` in its own task."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._deadlines_ms: OrderedDict[Handshaking, int] = OrderedDict()
        """Connections with an unfinished handshake, in the order of their start."""
        self._line: deque[Handshaking] = deque()
        self._news = trio.Event()

    def __len__(self) -> int:
        return len(self._deadlines_ms)

    def began(self, connection: Handshaking) -> None:
        self._deadlines_ms[connection] = self._clock.monotonic_ms() + HANDSHAKE_MS_MAX
        self._news.set()

    def go_on_soon(self, connection: Handshaking) -> None:
        """Continue a handshake whose socket has news. The socket is not watched until the step is done, so it is in
        the line once."""
        self._line.append(connection)
        self._news.set()

    def ended(self, connection: Handshaking) -> None:
        """The handshake has succeeded, or the connection is closed."""
        self._deadlines_ms.pop(connection, None)

    async def run(self) -> None:
        while True:
            wait_s = self._end_the_slow()
            if self._line:
                self._line.popleft().shake_hands()
                await trio.lowlevel.checkpoint()
                continue
            self._news = trio.Event()
            with trio.move_on_after(wait_s):
                await self._news.wait()

    def _end_the_slow(self) -> float:
        """Close the connections past their time limit. Returns the seconds until the next limit."""
        now_ms = self._clock.monotonic_ms()
        while self._deadlines_ms:
            connection, deadline_ms = next(iter(self._deadlines_ms.items()))
            if now_ms < deadline_ms:
                return (deadline_ms - now_ms) / 1000
            connection.too_slow(HANDSHAKE_MS_MAX)
        return float("inf")


_log = logging.getLogger(__name__)


class TlsConnection(Connection):
    __slots__ = ("_allowance", "_handshakes", "_terms", "_tls")

    def __init__(
        self,
        sock: socket.socket,
        info: ConnectionInfo,
        host: Host,
        max_frame_bytes: int,
        max_other_bytes: int | None,
        terms: TlsTerms,
        handshakes: Handshakes,
    ) -> None:
        self._tls = TlsSocket(sock, terms.context)
        super().__init__(self._tls, info, host, max_frame_bytes, max_other_bytes, TlsOutputQueue(self._tls))
        self._terms = terms
        self._handshakes = handshakes
        self._allowance = HANDSHAKE_BYTES_MAX

    def start(self) -> None:
        super().start()
        self._handshakes.began(self)

    def readable(self) -> None:
        if not self._tls.is_secured:
            self._handshakes.go_on_soon(self)
            # Watched again when its turn has come. Others are served meanwhile.
            self._watch(0)
            return
        super().readable()
        self._read_on_soon()

    def writable(self) -> None:
        if not self._tls.is_secured:
            self._handshakes.go_on_soon(self)
            self._watch(0)
        else:
            super().writable()

    def turn(self, until_s: float | None = None) -> None:
        super().turn(until_s)
        if until_s is None and self._tls.has_more and self._watched & READ:
            self.readable()

    def _read_on_soon(self) -> None:
        if self._tls.has_more and self._watched & READ:
            self._host.take_turn_soon(self)

    def shake_hands(self) -> None:
        """Continue the handshake. Never waits, never raises."""
        if self.closed or self._tls.is_secured:
            return
        try:
            self._allowance -= self._tls.shake_hands(self._allowance)
            if self._tls.is_secured:
                self._terms.identify(self.info, self._tls.certificate)
            elif self._allowance <= 0:
                raise HandshakeFailed(f"it takes more than {HANDSHAKE_BYTES_MAX} bytes")
        except (OSError, Unidentified) as error:
            if isinstance(error, (HandshakeFailed, Unidentified)):
                self._count(failed=True)
            self._log_end(error)
            self.close()
            return
        except Exception:
            _log.exception("closing %s: an error of the broker's own", self.info)
            self.close()
            return
        self.last_active_ms = self._host.clock.monotonic_ms()
        if self._tls.is_secured:
            if not self.info.listener_is_sasl:
                self._count(failed=False)
            self._handshakes.ended(self)
            self._watch(READ)
            self._read_on_soon()
        else:
            self._watch(WRITE if self._tls.has_unsent else READ)

    def _count(self, *, failed: bool) -> None:
        """A client that goes away during the handshake is not counted, as in Kafka."""
        meter, now_ms = self.info.meter, self._host.clock.monotonic_ms()
        if meter is not None:
            (meter.not_authenticated if failed else meter.authenticated)(now_ms)

    def too_slow(self, bound_ms: int) -> None:
        """The time limit of the handshake has passed."""
        self._log_end(TimeoutError(f"TLS handshake failed: it takes more than {bound_ms} ms"))
        self.close()

    def drain(self) -> None:
        """Before the end of the handshake nothing was received."""
        if self._tls.is_secured:
            super().drain()
        else:
            self.close()

    def close(self) -> None:
        self._handshakes.ended(self)
        super().close()


class TlsOutputQueue(OutputQueue):
    """File slices are read from the page cache and encrypted, because sendfile cannot encrypt."""

    __slots__ = ("_tls",)

    def __init__(self, tls: TlsSocket) -> None:
        super().__init__(tls)
        self._tls = tls

    def _send_slice(self, part: FileSlice) -> int | None:
        if sent := self._tls.finish():
            return sent
        file, done = part.file, self._head_sent
        position, length = part.position + done, min(part.length - done, SENT_AT_ONCE_BYTES)
        data = file.try_read(position, length)
        if not data and done < self._known_warm_to:
            # It was loaded a moment ago. If it is gone again, this one read blocks on the disk.
            data = file.read_cold(position, length)
        if data is None:
            return None
        if not data:
            raise SliceTooShort(
                f"{file.path} ends before byte {part.position + part.length}, which a reply needs"
            )
        return self._tls.send(data)
