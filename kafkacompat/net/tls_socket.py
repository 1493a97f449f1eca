"""A socket that encrypts, in front of another one, with the methods that a connection uses. It never waits.

OpenSSL works in memory: received bytes are put in, and its output is sent. So one system call moves many records, the
data that a peer can make it hold is bounded, and OpenSSL never asks the socket for five bytes.

- An encrypted piece counts as sent once all of it has left. Until then `send` raises BlockingIOError. The next `send`,
  with any argument, continues that piece and returns its length. So the caller keeps it in its queue, as with any
  socket.
- Received bytes that are not read yet are bounded by one piece. `has_more` tells that there is more to read without news
  from the socket.
- An error of OpenSSL becomes a ConnectionError with its reason. The alert was sent to the peer as far as the socket
  accepted it.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Sequence
from contextlib import suppress

import trio

from kafkacompat.ports import Buffer

RECORD_BYTES_MAX = 16 * 1024 + 512
"""The size of one record on the wire, and a little more."""
RECEIVED_AT_ONCE_BYTES = 32 * 1024
"""Bytes that OpenSSL gets at a time. It may find a thousand updates of keys in them, at 10 microseconds or more each."""
DATA_SHARE = 4
"""A piece of RECEIVED_AT_ONCE_BYTES that has less than this part of data is the last one of a call: tiny records and TLS's
own messages take as much time as large ones."""
LEAST_DATA_SHARE = 64
"""Of a piece with less than this part the connection is closed: records of one byte have more."""
SENT_AT_ONCE_BYTES = 64 * 1024
"""Bytes encrypted before the socket is tried: four full records."""
HANDSHAKE_BYTES_MAX = 128 * 1024
"""Bytes that a client may send before the end of its handshake. OpenSSL accepts certificate chains of up to 100 KiB."""
ALERTS_BYTES_MAX = 16 * 1024
"""Bytes that OpenSSL produces itself (tickets, answers to key updates) and that may wait for a peer that does not
read."""
DECRYPTED_AT_ONCE_BYTES = 256 * 1024
"""Of a call. The room for a large frame is as large as the frame, and a fast client fills the socket as quickly as it is
emptied: 100 MB take a tenth of a second."""


class HandshakeFailed(ConnectionAbortedError):
    """The peer's or our side refused the TLS handshake."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"TLS handshake failed: {reason}")


_received = memoryview(bytearray(RECEIVED_AT_ONCE_BYTES))
"""Shared by all sockets of the loop's thread, because its contents go to OpenSSL at once."""


class TlsSocket:
    __slots__ = (
        "_incoming",
        "_is_over",
        "_outgoing",
        "_promised",
        "_socket",
        "_tls",
        "_unsent",
        "has_more",
        "is_secured",
    )

    def __init__(
        self, sock: socket.socket, context: ssl.SSLContext, server_hostname: str | None = None
    ) -> None:
        """`server_hostname` is the host that a client has dialled. None for the server's side."""
        self._socket = sock
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname is None, server_hostname)
        self._unsent = memoryview(b"")
        """Encrypted bytes that the socket has not accepted yet."""
        self._promised = 0
        """The caller's bytes that count as sent once nothing is unsent."""
        self._is_over = False
        """The peer sends nothing more."""
        self.has_more = False
        self.is_secured = False
        """The handshake is complete."""

    def fileno(self) -> int:
        return self._socket.fileno()

    def setsockopt(self, level: int, option: int, value: int) -> None:
        self._socket.setsockopt(level, option, value)

    @property
    def certificate(self) -> bytes | None:
        """The peer's certificate, if it has sent one."""
        return self._tls.getpeercert(binary_form=True)

    def greet(self) -> None:
        """Send the client's first message. Raises ConnectionError."""
        with suppress(ssl.SSLWantReadError):
            self._tls.do_handshake()
        self.push()

    def shake_hands(self, allowance: int) -> int:
        """Continue the handshake as far as the peer has. Returns the bytes received, at most `allowance`. Then
        `is_secured` tells whether it is complete, and `has_unsent` that the socket is full. Raises ConnectionError."""
        if not self.push():
            return 0
        taken = 0
        try:
            taken = self._socket.recv_into(_received[: min(allowance, RECORD_BYTES_MAX)])
        except BlockingIOError:
            return 0
        if not taken:
            raise ConnectionResetError("the other side closed the connection during the TLS handshake")
        self._incoming.write(_received[:taken])
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            self._give_up()
            raise HandshakeFailed(reason_of(error)) from None
        else:
            self.is_secured = True
            self.has_more = self._incoming.pending > 0
        self.push()
        return taken

    @property
    def has_unsent(self) -> bool:
        return bool(self._unsent)

    def recv_into(self, room: memoryview) -> int:
        """Fill the room with bytes, as far as available, or less if they take long: at most DECRYPTED_AT_ONCE_BYTES. 0 at the
        end. Raises BlockingIOError if there are none, or ConnectionError."""
        incoming, tls = self._incoming, self._tls
        wanted = min(len(room), DECRYPTED_AT_ONCE_BYTES)
        got = before = 0
        given = incoming.pending
        pending = given or tls.pending()
        is_emptied = False
        try:
            while got < wanted:
                if not pending:
                    if given >= RECEIVED_AT_ONCE_BYTES and (got - before) * DATA_SHARE < given:
                        if (got - before) * LEAST_DATA_SHARE < given:
                            raise ConnectionAbortedError(
                                "TLS: the client sends hardly anything but messages of TLS's own"
                            )
                        break
                    if is_emptied:
                        break
                    before, asked = got, min(max(wanted - got, RECORD_BYTES_MAX), RECEIVED_AT_ONCE_BYTES)
                    given = self._receive(asked)
                    if not given:
                        break
                    is_emptied = given < asked
                try:
                    count = tls.read(wanted - got, room[got:] if got else room)
                except ssl.SSLWantReadError:
                    pending = 0
                    continue
                if not count:
                    self._is_over = True
                    break
                got += count  # type: ignore[operator]  # returns a number if a buffer is given
                pending = incoming.pending or tls.pending()
        except ssl.SSLEOFError:
            self._is_over = True
        except ssl.SSLError as error:
            self._give_up()
            raise ConnectionAbortedError(f"TLS: {reason_of(error)}") from None
        self.has_more = got == wanted and bool(incoming.pending or tls.pending())
        if self._outgoing.pending:
            self.push()
        if not got and not self._is_over:
            raise BlockingIOError
        return got

    def _receive(self, most: int) -> int:
        """Pass OpenSSL a piece of the socket's bytes, or its end. Returns the length of the piece, 1 for the end. 0: there is
        none."""
        if self._is_over:
            return 0
        try:
            count = self._socket.recv_into(_received[:most])
        except BlockingIOError:
            return 0
        if count:
            self._incoming.write(_received[:count])
        else:
            self._incoming.write_eof()
        return count or 1

    def send(self, data: Buffer, flags: int = 0) -> int:
        """Raises BlockingIOError or ConnectionError."""
        return self.finish(flags) or self._encrypt(memoryview(data)[:SENT_AT_ONCE_BYTES], flags)

    def sendmsg(self, buffers: Sequence[Buffer], ancillary: Sequence[object], flags: int = 0) -> int:
        """Send one piece of as many buffers as fit; the next call sends the rest. Ancillary data must be empty."""
        if sent := self.finish(flags):
            return sent
        gathered: list[Buffer] = []
        left = SENT_AT_ONCE_BYTES
        for buffer in buffers:
            gathered.append(buffer if len(buffer) <= left else memoryview(buffer)[:left])
            left -= len(gathered[-1])
            if not left:
                break
        return self._encrypt(gathered[0] if len(gathered) == 1 else b"".join(gathered), flags)

    def finish(self, flags: int = 0) -> int:
        """Send the rest of a piece. Returns its length, 0 if there was none. Raises BlockingIOError while the socket
        does not accept all."""
        if not self.push(flags):
            raise BlockingIOError
        promised, self._promised = self._promised, 0
        return promised

    def _encrypt(self, data: Buffer, flags: int) -> int:
        try:
            self._promised = self._tls.write(data)
        except ssl.SSLError as error:
            raise ConnectionAbortedError(f"TLS: {reason_of(error)}") from None
        return self.finish(flags)

    def push(self, flags: int = 0) -> bool:
        """Send OpenSSL's output, the earlier rest first. Returns whether all was sent. Raises ConnectionError."""
        while True:
            if not self._unsent:
                if not self._outgoing.pending:
                    return True
                self._unsent = memoryview(self._outgoing.read())
            try:
                self._unsent = self._unsent[self._socket.send(self._unsent, flags) :]
            except BlockingIOError:
                if self._outgoing.pending > ALERTS_BYTES_MAX:
                    raise ConnectionAbortedError(
                        "the client does not read what TLS itself has to say"
                    ) from None
                return False

    def _give_up(self) -> None:
        """Send the alert, if there is room for it."""
        with suppress(OSError):
            self.push()

    def close(self) -> None:
        """Close, with a close alert if the last piece was sent completely, so that the peer knows that nothing was cut
        off."""
        if self.is_secured and not self._unsent and self._socket.fileno() != -1:
            with suppress(ssl.SSLError):
                # The peer has not sent its close alert yet, and it is not waited for.
                self._tls.unwrap()
            self._give_up()
        self._socket.close()


def reason_of(error: ssl.SSLError) -> str:
    """OpenSSL's text without Python's file and line."""
    text = getattr(error, "verify_message", "") or (error.reason or "").replace("_", " ").lower()
    return text or str(error.args[-1])


AnySocket = socket.socket | TlsSocket
"""A socket of a connection to another node."""


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
