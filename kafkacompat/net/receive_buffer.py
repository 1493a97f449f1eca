"""The bytes of one connection that are not handled yet, and the frames in them.

It gives room to receive into and cuts whole frames out, without copying. A frame is an int32 size and as many bytes
(`socket.request.max.bytes` at most). A frame of another kind than those that bring records, which its first two bytes tell, has a
bound of its own. Memory follows what was received, never what a size prefix promises.
"""

from __future__ import annotations

from struct import Struct

from kafkacompat.wire.errors import WireError

INITIAL_BYTES = 8 * 1024
BUSY_BYTES_MAX = 128 * 1024
"""A buffer that receives fill whole grows to this, so that one system call brings many requests."""
RETAINED_BYTES_MAX = 4 * 1024 * 1024
"""A buffer larger than this is given back as soon as it is empty."""
ALONE_BYTES_MIN = 64 * 1024
"""A frame of this size or more is received up to its end only, so that nothing behind it needs moving."""

RECORDS_KIND = b"\0\0"
"""The first two bytes of a frame that may bring records: Produce."""
ENVELOPE_KIND = b"\0\x3a"
"""Of one in which a broker passes on a client's frame, which may have been as large as any."""
ENVELOPE_BYTES_MAX = 128 * 1024
"""What it wraps around that frame: two headers, each with a client id, a principal and an address. A text has 32 KiB at most."""

_SIZE = Struct(">i")


class ReceiveBuffer:
    __slots__ = ("_buffer", "_busy", "_end", "_max_frame_bytes", "_max_other_bytes", "_start", "_view")

    def __init__(self, max_frame_bytes: int, max_other_bytes: int | None = None) -> None:
        """`max_other_bytes`: of frames that bring no records; None for the same bound."""
        self._max_frame_bytes = max_frame_bytes
        self._max_other_bytes = max_frame_bytes if max_other_bytes is None else max_other_bytes
        self._buffer = bytearray(INITIAL_BYTES)
        self._view = memoryview(self._buffer)
        self._start = 0
        self._end = 0
        self._busy = False

    def __len__(self) -> int:
        """Bytes received and not yet handed out."""
        return self._end - self._start

    @property
    def capacity(self) -> int:
        return len(self._buffer)

    def room(self, hold: bool) -> memoryview | None:
        """Where the next bytes go; None when there is no room. Never empty.

        With `hold` (a frame handed out is still in use) nothing is moved. Without, only an incomplete frame may be
        waiting at the front, and the room is never None.
        """
        start, end, capacity = self._start, self._end, len(self._buffer)
        if hold:
            return self._view[end:] if end < capacity else None
        waiting = end - start
        if not waiting:
            self._start = self._end = end = 0
            if capacity > RETAINED_BYTES_MAX:
                self._replace(INITIAL_BYTES, 0)
            elif self._busy and capacity < BUSY_BYTES_MAX:
                self._replace(BUSY_BYTES_MAX, 0)
            self._busy = False
            return self._view
        wanted = 4 if waiting < 4 else 4 + _SIZE.unpack_from(self._buffer, start)[0]
        if start and wanted > capacity - start:
            self._view[:waiting] = self._view[start:end]
            self._start, self._end = 0, waiting
            start, end = 0, waiting
        if end == capacity:
            # Doubling pays for the copies; the promised size alone must not take memory.
            self._replace(max(min(wanted, 2 * capacity), INITIAL_BYTES), waiting)
            end = waiting
        if wanted >= ALONE_BYTES_MIN:
            return self._view[end : min(self._start + wanted, len(self._buffer))]
        return self._view[end:]

    def has_space(self) -> bool:
        """Whether `room` gives some even while nothing may be moved."""
        return self._end < len(self._buffer)

    def received(self, count: int) -> None:
        self._end += count
        if self._end == len(self._buffer):
            self._busy = True

    def has_frame(self) -> bool:
        """Whether `next_frame` would give a frame or raise."""
        waiting = self._end - self._start
        if waiting < 4:
            return False
        size: int = _SIZE.unpack_from(self._buffer, self._start)[0]
        return (
            waiting >= 4 + size or not 0 <= size <= self._max_frame_bytes or self._is_too_large(size, waiting)
        )

    def next_frame(self) -> memoryview | None:
        """The next whole frame without its size, None when more bytes are needed. WireError for a size out of bounds."""
        start = self._start
        waiting = self._end - start
        if waiting < 4:
            return None
        size: int = _SIZE.unpack_from(self._buffer, start)[0]
        if not 0 <= size <= self._max_frame_bytes:
            raise WireError(
                f"a frame of {size} bytes is not within 0..{self._max_frame_bytes} (socket.request.max.bytes)"
            )
        if size > self._max_other_bytes and self._is_too_large(size, waiting):
            raise WireError(
                f"a frame of {size} bytes that brings no records is larger than {self._max_other_bytes} "
                "(socket.request.without.records.max.bytes)"
            )
        if waiting < 4 + size:
            return None
        self._start = stop = start + 4 + size
        return self._view[start + 4 : stop]

    def _is_too_large(self, size: int, waiting: int) -> bool:
        """Told as soon as the kind is known, before the rest is taken in."""
        if size <= self._max_other_bytes or waiting < 6:
            return False
        at = self._start + 4
        kind = self._buffer[at : at + 2]
        if kind == ENVELOPE_KIND:
            return size > self._max_other_bytes + ENVELOPE_BYTES_MAX
        return kind != RECORDS_KIND

    def shrink(self) -> None:
        """Give memory back while nothing is waiting and no frame is in use."""
        if self._start == self._end and len(self._buffer) > INITIAL_BYTES:
            self._start = self._end = 0
            self._replace(INITIAL_BYTES, 0)

    def _replace(self, capacity: int, keep: int) -> None:
        # A new buffer, not a resized one: a view someone still holds would forbid resizing.
        buffer = bytearray(capacity)
        if keep:
            buffer[:keep] = self._view[self._start : self._start + keep]
        self._buffer = buffer
        self._view = memoryview(buffer)
        self._start, self._end = 0, keep
