"""The replies of one connection on their way to its socket, in order.

As much is written as the socket takes, memory gathered in one call, file slices by sendfile from the page cache. It never waits,
it says why it stopped. Its length is bounded by its owner, who asks `queued_bytes`.

A slice that is not in the page cache would block the loop for a disk's time, so each stretch of PROBED_BYTES is asked
for first: one byte at its either end, read with RWF_NOWAIT, about a microsecond a stretch, less than remembering what
was written lately would cost, and right after a restart or under memory pressure too. Read-ahead and the order in which
the kernel gives pages back make a stretch with both ends in cache one that is whole, but for rare cases, which cost one
disk read and nothing else. A cold stretch is warmed in a worker thread by sending it to the null device.

A small slice is copied instead, and its reply leaves in one call: five (the bytes before it, asking twice, sendfile, the
bytes after it) cost more than the copy, and a client would be woken before the last few bytes are there.
"""

from __future__ import annotations

import enum
import os
import socket
from collections import deque

from kafkacompat.deferred import Deferred
from kafkacompat.ports import File, FileSlice, Workers
from kafkacompat.ports.dispatcher import Reply, ReplyPart

PROBED_BYTES = 256 * 1024
PROBED_AHEAD_BYTES = 1024 * 1024
"""What is asked for in one go, so that whatever a socket takes at once leaves in one call."""
WARMED_BYTES = 1024 * 1024
"""What one job of a worker thread brings into the page cache."""
COPIED_BYTES_MAX = 32 * 1024
"""A slice up to this size is read and sent together with what is around it: 9 us instead of 15, at a few bytes 7."""
GATHERED_PARTS_MAX = 64
GATHERED_BYTES_MAX = 256 * 1024

_MORE_FOLLOWS = getattr(socket, "MSG_MORE", 0)


def warm(file: File, position: int, length: int) -> None:
    """Bring a stretch of a file into the page cache; blocks on the disk, for a worker thread. OSError when it cannot be read."""
    null = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
    try:
        while length > 0:
            sent = file.send_to(null, position, length)
            if not sent:
                return  # too short: sending it says so
            position += sent
            length -= sent
    finally:
        os.close(null)


class Flushed(enum.Enum):
    EMPTY = "all is sent"
    FULL = "the socket takes no more"
    COLD = "the next slice must be read from the disk first"
    TURN_OVER = "the budget is used up"


# A name of the module's own, because a member is looked up in its enum far more slowly.
_EMPTY = Flushed.EMPTY
_FULL = Flushed.FULL
_COLD = Flushed.COLD
_TURN_OVER = Flushed.TURN_OVER


class SliceTooShort(Exception):
    """A file ended before the slice that was promised to the client."""


class OutputQueue:
    __slots__ = ("_head_sent", "_known_warm_to", "_parts", "_socket", "queued_bytes")

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._parts: deque[ReplyPart] = deque()
        self._head_sent = 0
        self._known_warm_to = 0
        """Up to where the slice at the head is known to be in the page cache, from its start."""
        self.queued_bytes = 0

    def add(self, reply: Reply) -> None:
        for part in reply:
            length = len(part)
            if length:
                self._parts.append(part)
                self.queued_bytes += length

    def flush(self, budget_bytes: int) -> Flushed:
        """Send until there is nothing left or a reason to stop. OSError when the peer or a file is gone; SliceTooShort."""
        parts = self._parts
        try:
            while parts:
                if budget_bytes <= 0:
                    return _TURN_OVER
                head = parts[0]
                sent: int | None
                if len(parts) == 1 and not isinstance(head, FileSlice) and not self._head_sent:
                    sent = self._socket.send(head)
                else:
                    sent = self._send_gathered()
                    if not sent:
                        sent = self._send_slice(head)  # type: ignore[arg-type]  # a FileSlice: all else is gathered
                        if sent is None:
                            return _COLD
                budget_bytes -= sent
                self._advance(sent)
        except BlockingIOError:
            return _FULL
        return _EMPTY

    def warm_next(self, workers: Workers) -> Deferred[None]:
        """After COLD: there when a worker has brought the next stretch into the page cache. Nothing is sent until then."""
        head = self._parts[0]
        assert isinstance(head, FileSlice)
        file, position = head.file, head.position + self._head_sent
        length = min(head.length - self._head_sent, WARMED_BYTES)

        def warmed(_: None) -> None:
            self._known_warm_to = self._head_sent + length

        return workers.submit(lambda: warm(file, position, length)).then(warmed)

    def forget_warmth(self) -> None:
        """Time has passed: ask for what is in the page cache again."""
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
        sent = file.send_to(self._socket.fileno(), position, self._known_warm_to - done)
        if not sent:
            raise SliceTooShort(
                f"{file.path} ends before byte {part.position + part.length}, which a reply needs"
            )
        return sent

    def _warm_bytes(self, file: File, position: int, length: int) -> int:
        """How much from `position` on is in the page cache, `length` at most, in whole stretches."""
        try_read = file.try_read
        if try_read(position, 1) is None:
            return 0
        warm_bytes = 0
        while warm_bytes < length:
            # The end of one stretch stands for the beginning of the next.
            end = min(warm_bytes + PROBED_BYTES, length)
            if try_read(position + end - 1, 1) is None:
                break
            warm_bytes = end
        return warm_bytes

    def _send_gathered(self) -> int:
        """Bytes sent in one call; 0 when the head is a slice that is not copied."""
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
        """The bytes of a small slice that lie in the page cache."""
        if part.length > COPIED_BYTES_MAX:
            return None
        data = part.file.try_read(part.position, part.length)
        return data if data is not None and len(data) == part.length else None

    def _advance(self, sent: int) -> None:
        self.queued_bytes -= sent
        parts = self._parts
        done = self._head_sent + sent
        while parts:
            length = len(parts[0])
            if done < length:
                break
            done -= length
            parts.popleft()
            self._known_warm_to = 0
        self._head_sent = done
