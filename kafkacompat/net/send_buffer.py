"""The send buffer of a connection whose client takes large replies.

A socket that has room again wakes the loop, so a larger buffer sends a megabyte with fewer wakes. What the client's window
does not take leaves the buffer by the client's own calls. So a buffer that was full once gets FULL_BYTES. The system may
give less (on Linux net.core.wmem_max). A size that is set does not change.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafkacompat.net.output_queue import ByteSocket

FULL_BYTES = 1024 * 1024


def enlarged(sock: ByteSocket) -> bool:
    """Whether the socket, which is full for the first time, has more room now."""
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, FULL_BYTES)
    except OSError:  # some systems refuse what is beyond their bound
        return False
    return True
