"""Memory of large pieces of remote segments, used again and again.

The C library gives memory of this size back to the system, and takes it anew for the next piece. Then the system clears each page,
which takes longer than to read the records. Used by several threads at once.
"""

from __future__ import annotations

from threading import Lock

LEAST_BYTES = 128 * 1024
"""Less is kept by the C library itself."""
STEP_BYTES = 64 * 1024
"""Sizes are multiples of this, above what is asked for: the pieces of a fetch differ by the batch that lies before them."""
KEPT_BYTES_MAX = 8 << 20
"""More is not kept for later."""


class ReusedBuffers:
    def __init__(self) -> None:
        self._lock = Lock()
        self._kept: list[bytearray] = []
        """Those used last are at the end. Some may be in use."""
        self.kept_bytes = 0

    def take(self, size: int) -> memoryview:
        """So many bytes, with any contents. They are used again when no view of them is left, also none of a part. A view may
        hold a much larger buffer."""
        if size < LEAST_BYTES:
            return memoryview(bytearray(size))
        with self._lock:
            buffer = self._take_free(size) or self._add(size)
            return memoryview(buffer)[:size]

    def _take_free(self, size: int) -> bytearray | None:
        kept = self._kept
        for index in range(len(kept) - 1, -1, -1):
            buffer = kept[index]
            if size <= len(buffer) and _is_free(buffer):
                kept.append(kept.pop(index))
                return buffer
        return None

    def _add(self, size: int) -> bytearray:
        buffer = bytearray((size // STEP_BYTES + 1) * STEP_BYTES)
        self._kept.append(buffer)
        self.kept_bytes += len(buffer)
        while self.kept_bytes > KEPT_BYTES_MAX:
            # One that is in use goes with its last view.
            self.kept_bytes -= len(self._kept.pop(0))
        return buffer


def _is_free(buffer: bytearray) -> bool:
    """Whether no view of it is left: a bytearray refuses to change its size while there is one."""
    try:
        buffer.pop()
    except BufferError:
        return False
    buffer.append(0)
    return True
