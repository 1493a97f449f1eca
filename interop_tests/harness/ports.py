"""Ports for servers of the suite, which stay free while their server is down."""

from __future__ import annotations

import random
import socket

# Below the range that outgoing connections take ports from: one of a client that asks for its broker again and again would.
PORTS = range(15_000, 32_000)

_given: set[int] = set()


def free_port(host: str = "127.0.0.1") -> int:
    """A port that nobody listens on now, that no outgoing connection will take and that was not given before."""
    while True:
        port = random.choice(PORTS)
        if port in _given:
            continue
        with socket.socket() as probe:
            try:
                probe.bind((host if host.startswith("127.") else "0.0.0.0", port))
            except OSError:
                continue
        _given.add(port)
        return port
