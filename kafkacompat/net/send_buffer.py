"""The send buffer of a connection whose client takes large replies.

A socket that has room again wakes the loop, so a larger buffer sends a megabyte with fewer wakes. It must not be too large: a
client on the same machine that empties its socket faster than it is filled sleeps and is woken for each 64 kB, and waking it is the
sender's work. A client with a small receive buffer is not woken so. What its window does not take waits in the send buffer, and
leaves by the client's own calls.

So a buffer that was full gets FULL_BYTES, and one that is full again and again because it waits for the client's window gets
WINDOW_BYTES. The system may give less (on Linux net.core.wmem_max). A size that is set does not change.
"""

from __future__ import annotations

import fcntl
import socket
import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafkacompat.net.output_queue import ByteSocket

FULL_BYTES = 320 * 1024
WINDOW_BYTES = 1024 * 1024
SETTLED_FULLS = 32
"""After being full so often, some megabytes are sent, and the client's system has found the size of the client's window."""

_SIOCOUTQNSD = 0x894B
"""Linux: the bytes that were not sent yet. Those that were and are not acknowledged do not count."""


def enlarged(sock: ByteSocket, fulls: int) -> bool:
    """Whether the socket has more room now. `fulls`: how often it was full, this time included."""
    if fulls == 1:
        wanted = FULL_BYTES
    elif fulls == SETTLED_FULLS and _unsent_bytes(sock) >= FULL_BYTES:
        wanted = WINDOW_BYTES
    else:
        return False
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, wanted)
    except OSError:  # some systems refuse what is beyond their bound
        return False
    return True


def _unsent_bytes(sock: ByteSocket) -> int:
    """0 where the system does not tell."""
    try:
        return int(struct.unpack("=i", fcntl.ioctl(sock.fileno(), _SIOCOUTQNSD, bytes(4)))[0])
    except OSError:
        return 0
