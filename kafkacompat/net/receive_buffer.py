"""The received bytes of one connection that are not handled yet, and the frames in them.

It provides room to receive into and cuts out complete frames, without copying. A frame is an int32 size and as many
bytes. A client's frame has at most `socket.request.max.bytes`, or `sasl.server.max.receive.size` before
authentication. Requests without records, recognised by the first two bytes, have a separate bound. Memory grows with
the bytes received, never with an announced size: by doubling at first, and then in a mapping of the announced size, of
which the system provides each page when it is written. To double further would copy and clear 100 MB in one step.
"""

from __future__ import annotations

from collections.abc import Callable
from mmap import MAP_PRIVATE, mmap
from struct import Struct

from kafkacompat.wire.errors import WireError

INITIAL_BYTES = 8 * 1024
BUSY_BYTES_MAX = 128 * 1024
"""A buffer that receive calls fill completely grows to this, so that one system call brings many requests."""
RETAINED_BYTES_MAX = 4 * 1024 * 1024
"""A larger buffer is freed as soon as it is empty."""
ALONE_BYTES_MIN = 64 * 1024
"""A frame of this size or more is received only up to its end, so that nothing after it needs moving."""

DOUBLED_BYTES_MAX = 1024 * 1024
"""A larger buffer is a mapping, made once: for its frame, or for all that may be retained."""

RECORDS_KIND = b"\0\0"
"""The first two bytes of a frame with records: Produce."""
ENVELOPE_KIND = b"\0\x3a"
"""The first two bytes of an Envelope. A broker forwards a client's frame in it, which may have the full size."""
ENVELOPE_BYTES_MAX = 128 * 1024
"""The bytes around that frame: two headers, each with a client id, a principal and an address. A string has at most 32
KiB."""

_SIZE = Struct(">i")


class ReceiveBuffer:
    __slots__ = (
        "_buffer",
        "_busy",
        "_max_frame_bytes",
        "_max_other_bytes",
        "_replaced_at",
        "_view",
        "end",
        "is_begun",
        "start",
    )

    def __init__(self, max_frame_bytes: int, max_other_bytes: int | None = None) -> None:
        self.limit(max_frame_bytes, max_other_bytes)
        self._buffer: bytearray | mmap = bytearray(INITIAL_BYTES)
        self._view = memoryview(self._buffer)
        self._replaced_at = INITIAL_BYTES
        """An empty buffer that was filled to here is replaced by another one. More than any buffer has: not at all."""
        self.start = 0
        self.end = 0
        """What is received and not yet returned as frames lies between the two. Whoever receives moves `end`. There is no method
        for it, nor for whether anything is there, because a call takes as long as a dozen comparisons."""
        self.is_begun = False
        """Whoever takes frames in other ways clears it."""
        self._busy = False

    def limit(self, max_frame_bytes: int, max_other_bytes: int | None = None) -> None:
        """`max_other_bytes` is the bound of frames without records. None means the same bound."""
        self._max_frame_bytes = max_frame_bytes
        self._max_other_bytes = (
            max_frame_bytes if max_other_bytes is None else min(max_other_bytes, max_frame_bytes)
        )

    def __len__(self) -> int:
        """Bytes received and not yet returned as frames."""
        return self.end - self.start

    @property
    def capacity(self) -> int:
        return len(self._buffer)

    def room(self, hold: bool) -> memoryview | None:
        """The place for the next bytes. None if there is no room. Never empty.

        With `hold` (a returned frame is still in use), or while a complete frame waits, nothing is moved. Otherwise the
        result is never None.
        """
        start, end, capacity = self.start, self.end, len(self._buffer)
        waiting = end - start
        if end == capacity:
            self._busy = True
        if hold or (waiting and self.has_frame()):
            return self._view[end:] if end < capacity else None
        if not waiting:
            self.start = self.end = end = 0
            if capacity > RETAINED_BYTES_MAX:
                self._replace(INITIAL_BYTES, 0)
            elif self._busy and capacity < BUSY_BYTES_MAX:
                self._replace(BUSY_BYTES_MAX, 0)
            self._busy = False
            return self._view
        wanted = 4 if waiting < 4 else 4 + _SIZE.unpack_from(self._buffer, start)[0]
        if start and wanted > capacity - start:
            self._view[:waiting] = self._view[start:end]
            self.start, self.end = 0, waiting
            start, end = 0, waiting
        if end == capacity:
            # Doubling amortises the copies. An announced size alone must not take memory.
            capacity = max(min(wanted, 2 * capacity), INITIAL_BYTES)
            self._replace(
                max(wanted, RETAINED_BYTES_MAX) if capacity > DOUBLED_BYTES_MAX else capacity, waiting
            )
            end = waiting
        if wanted >= ALONE_BYTES_MIN:
            return self._view[end : min(self.start + wanted, len(self._buffer))]
        return self._view[end:]

    def receive_frame(self, receive_into: Callable[[memoryview], int]) -> memoryview | None:
        """Receive once while nothing waits and no returned frame is in use. The frame if that was one whole frame of a size that
        any request may have. If not, what was received waits, and `is_begun` tells whether it is the begin of such a frame.
        What `receive_into` raises changes nothing."""
        if self._busy or self.end >= self._replaced_at:
            self.room(hold=False)
        view = self._view
        self.end = received = receive_into(view)
        if received > 4:
            size: int = _SIZE.unpack_from(view)[0]
            if size == received - 4 and size <= self._max_other_bytes:
                self.start = received
                return view[4:received]
            self.is_begun = received - 4 < size <= self._max_other_bytes
        self.start = 0
        return None

    def receive_rest(self, receive_into: Callable[[memoryview], int]) -> memoryview | None:
        """As `receive_frame`, while `is_begun`."""
        room = self.room(hold=False)
        assert room is not None
        received = receive_into(room)
        self.end = end = self.end + received
        size: int = _SIZE.unpack_from(self._view)[0]
        is_any = size <= self._max_other_bytes
        self.is_begun = received > 0 and end - 4 < size and is_any
        if size == end - 4 and is_any:
            self.start = end
            return self._view[4:end]
        return None

    def unviewed_room(self) -> memoryview:
        """The place for the next bytes while any frame may still be in use: bytes with an external view are left to
        its holder.

        Only an incomplete frame may wait.
        """
        if self._is_viewed():
            if self.has_space():
                return self._view[self.end :]
            self._busy = True
            self._replace(max(INITIAL_BYTES, 2 * len(self)), len(self))
        room = self.room(hold=False)
        assert room is not None
        return room

    def has_space(self) -> bool:
        """Whether `room` has space even if nothing may be moved."""
        return self.end < len(self._buffer)

    def has_frame(self) -> bool:
        """Whether `next_frame` would return a frame or raise."""
        waiting = self.end - self.start
        if waiting < 4:
            return False
        size: int = _SIZE.unpack_from(self._buffer, self.start)[0]
        return (
            waiting >= 4 + size or not 0 <= size <= self._max_frame_bytes or self._is_too_large(size, waiting)
        )

    def announced_bytes(self) -> int:
        """The size of the first frame. 0 if it is not there yet."""
        return int(_SIZE.unpack_from(self._buffer, self.start)[0]) if self.end - self.start >= 4 else 0

    def next_frame(self) -> memoryview | None:
        """The next complete frame without its size. None if more bytes are needed. Raises WireError for a size out of
        bounds."""
        start, end = self.start, self.end
        begin = start + 4
        if begin > end:
            return None
        size: int = _SIZE.unpack_from(self._buffer, start)[0]
        if not 0 <= size <= self._max_other_bytes:
            self._check(size, end - start)
        stop = begin + size
        if stop > end:
            return None
        self.start = stop
        return self._view[begin:stop]

    def _check(self, size: int, waiting: int) -> None:
        if not 0 <= size <= self._max_frame_bytes:
            raise WireError(f"a frame of {size} bytes is not within 0..{self._max_frame_bytes}")
        if self._is_too_large(size, waiting):
            raise WireError(
                f"a frame of {size} bytes that brings no records is larger than {self._max_other_bytes} "
                "(socket.request.without.records.max.bytes)"
            )

    def _is_too_large(self, size: int, waiting: int) -> bool:
        """Checked as soon as the kind is known, before the rest is received."""
        if size <= self._max_other_bytes or waiting < 6:
            return False
        at = self.start + 4
        kind = self._buffer[at : at + 2]
        if kind == ENVELOPE_KIND:
            return size > self._max_other_bytes + ENVELOPE_BYTES_MAX
        return kind != RECORDS_KIND

    def shrink(self) -> None:
        """Free memory while no bytes wait and no frame is in use."""
        if self.start == self.end and len(self._buffer) > INITIAL_BYTES:
            self.start = self.end = 0
            self._replace(INITIAL_BYTES, 0)

    def forget(self) -> None:
        """Free the memory for good. Frames that are in use keep theirs."""
        self._buffer = bytearray()
        self._view = memoryview(self._buffer)
        self.start = self.end = 0

    def _is_viewed(self) -> bool:
        """CPython refuses to resize a buffer that has views. A mapping counts as viewed, so it is used up to its end."""
        if not isinstance(self._buffer, bytearray):
            return True
        self._view.release()
        try:
            self._buffer.append(0)
            self._buffer.pop()
        except BufferError:
            return True
        finally:
            self._view = memoryview(self._buffer)
        return False

    def _replace(self, capacity: int, keep: int) -> None:
        # A new buffer, because a view that is still held would prevent resizing.
        buffer: bytearray | mmap
        if capacity <= DOUBLED_BYTES_MAX:
            buffer = bytearray(capacity)
        else:
            buffer = mmap(-1, capacity, flags=MAP_PRIVATE)
        view = memoryview(buffer)
        if keep:
            view[:keep] = self._view[self.start : self.start + keep]
        self._buffer = buffer
        self._view = view
        if capacity > RETAINED_BYTES_MAX:
            self._replaced_at = 0
        else:
            self._replaced_at = capacity if capacity < BUSY_BYTES_MAX else RETAINED_BYTES_MAX + 1
        self.start, self.end = 0, keep
