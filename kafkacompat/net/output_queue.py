"""The replies of one connection on their way to its socket, in order.

It writes as much as the socket accepts: memory gathered in one call, file slices by sendfile from the page cache. It
never waits, and returns why it stopped. Its owner bounds its length by `queued_bytes`.

A slice that is not in the page cache would block the loop for a disk read. So each stretch of PROBED_BYTES is checked
first: one byte at each end is read with RWF_NOWAIT. That takes about a microsecond per stretch, less than tracking
recent writes, and also works right after a restart or under memory pressure. Because of read-ahead and the order in
which the kernel frees pages, a stretch with both ends in the cache is almost always complete. The rare exception costs
one disk read. A worker thread warms a cold stretch by sending it to the null device.

A small slice is copied, and its reply is sent in one call. Five calls (the bytes before it, two checks, sendfile, the
bytes after it) cost more than the copy, and would wake a client before the last bytes have arrived.
"""

from __future__ import annotations

import enum
import os
import socket
from collections import deque
from collections.abc import Sequence
from typing import Protocol

from kafkacompat.deferred import Deferred
from kafkacompat.ports import Buffer, File, FileSlice, Workers
from kafkacompat.ports.dispatcher import Reply, ReplyPart

PROBED_BYTES = 256 * 1024
PROBED_AHEAD_BYTES = 1024 * 1024
"""Bytes checked at once, so that everything a socket accepts can be sent in one call."""
WARMED_BYTES = 1024 * 1024
"""Bytes that one job of a worker thread loads into the page cache."""
COPIED_BYTES_MAX = 32 * 1024
"""A slice up to this size is read and sent together with its neighbours: 9 us instead of 15, or 7 for a few bytes."""
JOINED_BYTES_MAX = 64 * 1024
"""A reply of several parts up to this size is one piece when it is sent alone."""
GATHERED_PARTS_MAX = 64
GATHERED_BYTES_MAX = 256 * 1024
PART_BYTES = 4 * 1024
"""A part takes as long as so many more bytes. An answer to a fetch may have small slices of thousands of partitions."""

_MORE_FOLLOWS = getattr(socket, "MSG_MORE", 0)


def warm(file: File, position: int, length: int) -> None:
    """Load a stretch of a file into the page cache. Blocks on the disk; for a worker thread. Raises OSError if it
    cannot be read."""
    null = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
    try:
        while length > 0:
            sent = file.send_to(null, position, length)
            if not sent:
                return  # too short: sending it reports that
            position += sent
            length -= sent
    finally:
        os.close(null)


class Flushed(enum.Enum):
    EMPTY = "all is sent"
    FULL = "the socket takes no more"
    COLD = "the next slice must be read from the disk first"
    TURN_OVER = "the budget is used up"


# A module's name, because looking up an enum member is far slower.
_EMPTY = Flushed.EMPTY
_FULL = Flushed.FULL
_COLD = Flushed.COLD
_TURN_OVER = Flushed.TURN_OVER


class SliceTooShort(Exception):
    """A file ended before the end of a slice that was announced to the client."""


class ByteSocket(Protocol):
    """The methods used of a non-blocking socket: the system's, or an encrypting one in front of it."""

    def recv_into(self, buffer: memoryview, /) -> int: ...

    def send(self, data: Buffer, flags: int = ..., /) -> int: ...

    def sendmsg(
        self, buffers: Sequence[Buffer], ancillary: Sequence[tuple[int, int, Buffer]], flags: int = ..., /
    ) -> int: ...

    def fileno(self) -> int: ...

    def setsockopt(self, level: int, option: int, value: int, /) -> None: ...

    def close(self) -> None: ...


class OutputQueue:
    __slots__ = ("_head_sent", "_known_warm_to", "_parts", "_socket", "_took_less", "queued_bytes")

    def __init__(self, sock: ByteSocket) -> None:
        self._socket = sock
        self._parts: deque[ReplyPart] = deque()
        self._head_sent = 0
        self._known_warm_to = 0
        """Bytes of the first slice, from its start, that are known to be in the page cache."""
        self._took_less = False
        """The socket took less of a slice than it could have: it is full, and need not be asked again."""
        self.queued_bytes = 0

    def add(self, reply: Reply) -> int:
        """Return the bytes of the reply."""
        total = 0
        for part in reply:
            length = len(part)
            if length:
                self._parts.append(part)
                total += length
        self.queued_bytes += total
        return total

    def send_alone(self, part: bytes | bytearray | memoryview) -> int:
        """Send a reply while nothing is queued, and queue what the socket does not take. Returns the bytes sent. Raises OSError
        if the peer is gone."""
        try:
            sent = self._socket.send(part)
        except BlockingIOError:
            sent = 0
        if sent < len(part):
            self._parts.append(part)
            self._head_sent = sent
            self.queued_bytes = len(part) - sent
        return sent

    def joined(self, reply: Reply) -> bytes | None:
        """The parts of a small reply in one piece. None if it is larger, or if a slice is not in the page cache. Raises OSError."""
        if len(reply) > GATHERED_PARTS_MAX:
            return None
        pieces: list[bytes | bytearray | memoryview] = []
        left = JOINED_BYTES_MAX
        for part in reply:
            if type(part) is FileSlice:
                left -= part.length
                copied = self._copied(part) if left >= 0 else None
                if copied is None:
                    return None
                pieces.append(copied)
            else:
                left -= len(part)
                pieces.append(part)  # type: ignore[arg-type]  # no slice
        return b"".join(pieces) if left >= 0 else None

    def flush(self, budget_bytes: int) -> Flushed:
        """Send until nothing is left, or there is a reason to stop. Raises OSError if the peer or a file is gone, or
        SliceTooShort."""
        parts = self._parts
        try:
            while parts:
                if budget_bytes <= 0:
                    return _TURN_OVER
                head = parts[0]
                is_slice = isinstance(head, FileSlice)
                sent: int | None
                if len(parts) == 1 and not is_slice and not self._head_sent:
                    sent = self._socket.send(head)  # type: ignore[arg-type]  # no slice
                    if sent == len(head):  # nearly always
                        parts.clear()
                        self.queued_bytes = 0
                        return _EMPTY
                else:
                    # A large slice is sent in many pieces.
                    is_large = is_slice and head.length > COPIED_BYTES_MAX  # type: ignore[union-attr]
                    sent = 0 if is_large else self._send_gathered()
                    if sent == self.queued_bytes and not self._head_sent:  # mostly
                        parts.clear()
                        self.queued_bytes = self._known_warm_to = 0
                        return _EMPTY
                    if not sent:
                        # a FileSlice: everything else is gathered
                        sent = self._send_slice(head)  # type: ignore[arg-type]
                        if sent is None:
                            return _COLD
                budget_bytes -= sent + PART_BYTES * self._advance(sent)
                if self._took_less:
                    self._took_less = False
                    return _FULL
        except BlockingIOError:
            return _FULL
        return _EMPTY

    def warm_next(self, workers: Workers) -> Deferred[None]:
        """After COLD: resolves when a worker has loaded the next stretch into the page cache. Nothing is sent until
        then."""
        head = self._parts[0]
        assert isinstance(head, FileSlice)
        file, position = head.file, head.position + self._head_sent
        length = min(head.length - self._head_sent, WARMED_BYTES)

        def warmed(_: None) -> None:
            self._known_warm_to = self._head_sent + length

        return workers.submit(lambda: warm(file, position, length)).then(warmed)

    def forget_warmth(self) -> None:
        """Time has passed: check the page cache again."""
        self._known_warm_to = 0

    def clear(self) -> None:
        self._parts.clear()
        self.queued_bytes = 0

    def _send_slice(self, part: FileSlice) -> int | None:
        file, done = part.file, self._head_sent
        position = part.position + done
        if done >= self._known_warm_to:
            warm_bytes = self._warm_bytes(file, position, min(part.length - done, PROBED_AHEAD_BYTES))
            if not warm_bytes:
                return None
            self._known_warm_to = done + warm_bytes
        wanted = self._known_warm_to - done
        sent = file.send_to(self._socket.fileno(), position, wanted)
        self._took_less = 0 < sent < wanted
        if not sent:
            raise SliceTooShort(
                f"{file.path} ends before byte {part.position + part.length}, which a reply needs"
            )
        return sent

    def _warm_bytes(self, file: File, position: int, length: int) -> int:
        """Bytes from `position` on that are in the page cache, at most `length`, in whole stretches."""
        try_read = file.try_read
        if try_read(position, 1) is None:
            return 0
        warm_bytes = 0
        while warm_bytes < length:
            # The end of one stretch is checked in place of the beginning of the next.
            end = min(warm_bytes + PROBED_BYTES, length)
            if try_read(position + end - 1, 1) is None:
                break
            warm_bytes = end
        return warm_bytes

    def _send_gathered(self) -> int:
        """Bytes sent in one call. 0 if the first part is a slice that is not copied."""
        buffers: list[bytes | bytearray | memoryview] = []
        total = 0
        flags = 0
        for part in self._parts:
            if len(buffers) == GATHERED_PARTS_MAX or total >= GATHERED_BYTES_MAX:
                break
            if isinstance(part, FileSlice):
                copied = self._copied(part) if buffers or not self._head_sent else None
                if copied is None:
                    flags = _MORE_FOLLOWS
                    break
                part = copied
            elif not buffers and self._head_sent:
                part = memoryview(part)[self._head_sent :]
            buffers.append(part)
            total += len(part)
        if not buffers:
            return 0
        if len(buffers) == 1:
            return self._socket.send(buffers[0], flags)
        return self._socket.sendmsg(buffers, [], flags)

    def _copied(self, part: FileSlice) -> bytes | None:
        """The bytes of a small slice that is in the page cache."""
        if part.length > COPIED_BYTES_MAX:
            return None
        data = part.file.try_read(part.position, part.length)
        return data if data is not None and len(data) == part.length else None

    def _advance(self, sent: int) -> int:
        """Returns how many parts are done."""
        self.queued_bytes -= sent
        parts = self._parts
        before = len(parts)
        done = self._head_sent + sent
        while parts:
            length = len(parts[0])
            if done < length:
                break
            done -= length
            parts.popleft()
            self._known_warm_to = 0
        self._head_sent = done
        return before - len(parts)
