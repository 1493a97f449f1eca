"""Frames: a 32-bit size, then that many bytes. Sans-I/O.

What a socket received is cut into frames without being copied, within a bound (socket.request.max.bytes), and given on to the
headers' functions. The order is: `space()`, receive into it, `received(n)`, then `next_frame()` until it gives None.
"""

from struct import Struct as Layout

from kafkacompat.wire.errors import WireError
from kafkacompat.wire.headers import (
    RequestHeader,
    parse_request_header,
    parse_response_header,
    request_header_bytes,
    response_header_bytes,
)

__all__ = [
    "FRAME_SIZE",
    "FrameReader",
    "RequestHeader",
    "parse_request_header",
    "parse_response_header",
    "request_header_bytes",
    "response_header_bytes",
]

FRAME_SIZE = Layout(">i")
INITIAL_BYTES = 64 * 1024
RETAINED_BYTES = 2 * 1024 * 1024
MIN_SPACE_BYTES = 4 * 1024


class FrameReader:
    """One growable buffer. Frames are views of it, good for as long as they are held.

    A buffer with a view outside is never overwritten or moved: the reader goes on in a new one. So a holder of a
    frame, or of `records` decoded from it, costs memory but is never surprised. Memory grows with what has arrived,
    not with the size a peer claims, and at most twice `max_frame_bytes` is held for unread bytes.
    """

    __slots__ = ("_buffer", "_initial_bytes", "_start", "_stop", "_window", "max_frame_bytes")

    def __init__(self, max_frame_bytes: int, initial_bytes: int = INITIAL_BYTES) -> None:
        self.max_frame_bytes = max_frame_bytes
        self._initial_bytes = max(initial_bytes, FRAME_SIZE.size)
        self._buffer = bytearray(0)
        self._start = 0
        self._stop = 0
        self._window: memoryview | None = None

    @property
    def unread_bytes(self) -> int:
        """Received and not yet given out as frames."""
        return self._stop - self._start

    def space(self) -> memoryview:
        """Room to receive into: never empty, valid until `received`."""
        if self._start == self._stop and self._stop and not self._is_viewed():
            self._start = self._stop = 0
            if len(self._buffer) > RETAINED_BYTES:
                self._buffer = bytearray(self._initial_bytes)
        room = len(self._buffer) - self._stop
        missing = self._missing()
        if room < min(missing, MIN_SPACE_BYTES):
            self._make_room(missing)
        self._window = memoryview(self._buffer)[self._stop :]
        return self._window

    def received(self, count: int) -> None:
        """`count` bytes have been put at the beginning of `space()`."""
        if self._window is not None:
            self._window.release()
            self._window = None
        self._stop += count

    def feed(self, data: bytes | bytearray | memoryview) -> None:
        """Receive bytes that lie elsewhere, by copying them."""
        view = memoryview(data)
        while len(view):
            space = self.space()
            count = min(len(space), len(view))
            space[:count] = view[:count]
            self.received(count)
            view = view[count:]

    def next_frame(self) -> memoryview | None:
        """The next whole frame without its size, or None. WireError for a size of zero, below, or above the bound."""
        begin = self._start + FRAME_SIZE.size
        if begin > self._stop:
            return None
        size = self._size()
        if begin + size > self._stop:
            return None
        self._start = begin + size
        return memoryview(self._buffer)[begin : self._start]

    def _size(self) -> int:
        size: int = FRAME_SIZE.unpack_from(self._buffer, self._start)[0]
        if not 0 < size <= self.max_frame_bytes:
            raise WireError(f"a frame of {size} bytes")
        return size

    def _missing(self) -> int:
        """Bytes to come until the next frame is whole, as far as is known; at least 1."""
        unread = self._stop - self._start
        if unread < FRAME_SIZE.size:
            return FRAME_SIZE.size - unread
        return max(1, FRAME_SIZE.size + self._size() - unread)

    def _make_room(self, missing: int) -> None:
        """Move the unread bytes to the beginning of a buffer with room for more."""
        unread = self._stop - self._start
        capacity = len(self._buffer)
        # Twice what has arrived: a peer that claims a large frame must send it to make us hold it.
        wanted = max(self._initial_bytes, min(unread + missing, 2 * unread))
        if capacity <= RETAINED_BYTES:
            wanted = max(wanted, capacity)
        if wanted == capacity and not self._is_viewed():
            self._buffer[:unread] = self._buffer[self._start : self._stop]
        else:
            buffer = bytearray(wanted)
            with memoryview(self._buffer) as view:
                buffer[:unread] = view[self._start : self._stop]
            self._buffer = buffer
        self._start = 0
        self._stop = unread

    def _is_viewed(self) -> bool:
        """Whether a view of the buffer is held outside: then CPython refuses to change its size."""
        try:
            self._buffer.append(0)
        except BufferError:
            return True
        self._buffer.pop()
        return False
