"""No pacing between two processes of one machine.

Where BBR is the system's congestion control, a timer lets each 64 kB of a connection go, at the rate that BBR has
measured. Within a machine there is no congestion. But each piece that comes by itself wakes the client. That is work of
the sender, and lowers the rate that is measured. A large reply then costs two to three times the CPU.

The kernel never stops pacing a connection that has begun with it. So the listening socket gets an algorithm that does
not pace. Its connections inherit that, and a connection from another machine gets the system's back.
"""

from __future__ import annotations

import socket

_PACES = b"bbr"
_DOES_NOT = b"reno"
"""Each Linux has it, and lets any process choose it."""

_OPTION: int | None = getattr(socket, "TCP_CONGESTION", None)
_NAME_BYTES = 16


def stop_pacing(listening: socket.socket) -> bytes | None:
    """Returns the system's algorithm for `pace`. None if it does not pace, or cannot be given back: then nothing changes."""
    if _OPTION is None:
        return None
    try:
        usual = algorithm_of(listening)
        if not usual.startswith(_PACES):
            return None
        with socket.socket(listening.family, listening.type, listening.proto) as other:
            _choose(other, _DOES_NOT)
            _choose(other, usual)  # some systems allow it only to a few processes
        _choose(listening, _DOES_NOT)
    except OSError:
        return None
    return usual


def pace(accepted: socket.socket, usual: bytes) -> None:
    """Give a connection the system's algorithm back, unless both of its ends have one address. Raises OSError."""
    is_local = accepted.getsockname()[0] == accepted.getpeername()[0]
    if not is_local and algorithm_of(accepted) == _DOES_NOT:  # a route may have its own
        _choose(accepted, usual)


def algorithm_of(sock: socket.socket) -> bytes:
    assert _OPTION is not None
    return sock.getsockopt(socket.IPPROTO_TCP, _OPTION, _NAME_BYTES).rstrip(b"\0")


def _choose(sock: socket.socket, name: bytes) -> None:
    assert _OPTION is not None
    sock.setsockopt(socket.IPPROTO_TCP, _OPTION, name)
